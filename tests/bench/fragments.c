/* Mixed sizes with long-lived fragments: phases, each with its own sizes; at the end of a phase all blocks go but one in
 * sixteen, which stays for several phases. Memory that an allocator cannot use again between the survivors shows in
 * the peak. Operations are blocks. */
#include "bench.h"

#define PHASES 24
#define STAY 6

static struct arguments args;

static void *work(void *index)
{
    rng random = seed((long)index);
    long count = args.ops / PHASES;
    long survivors = count / 16 + 1;
    struct held *live = calloc((size_t)count, sizeof *live);
    struct held *kept = calloc((size_t)(survivors * STAY), sizeof *kept);
    for (int phase = 0; phase < PHASES; phase++) {
        struct held *stay = kept + survivors * (phase % STAY);
        int lg_low = 3 + phase * 5 % 7;
        for (long i = 0; i < survivors; i++)
            drop(&stay[i]);
        for (long i = 0; i < count; i++)
            hold(&live[i], log_between(&random, lg_low, lg_low + 3));
        for (long i = 0; i < count; i++) {
            if (i % 16 == 0) {
                stay[i / 16] = live[i];
                live[i].block = NULL;
            } else {
                drop(&live[i]);
            }
        }
    }
    for (long i = 0; i < survivors * STAY; i++)
        drop(&kept[i]);
    free(kept);
    free(live);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

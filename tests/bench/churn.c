/* Churn of small sizes on each thread alone: a table of live blocks, one replaced at random an operation. Sizes 16 to 512
 * bytes, or those of variant `log`: 8 bytes to 8 KiB, small ones frequent. */
#include "bench.h"

#define SLOTS 4096

static struct arguments args;
static int logarithmic;

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held *slots = calloc(SLOTS, sizeof *slots);
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % SLOTS];
        drop(slot);
        hold(slot, logarithmic ? log_between(&random, 3, 13) : between(&random, 16, 512));
    }
    for (int i = 0; i < SLOTS; i++)
        drop(&slots[i]);
    free(slots);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    logarithmic = strcmp(args.variant, "log") == 0;
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

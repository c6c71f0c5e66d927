/* Waves of blocks of 1 to 1000 bytes, a run of equal size at a time, small sizes repeated more: of each wave a part is
 * freed at once, in the order of allocation or in reverse, the rest joins a long-lived ring and goes a few thousand
 * blocks later. Variant `shared`: threads pass their rings on to the next thread. Operations are blocks. */
#include "bench.h"

#define RING 30000
#define WAVE 2000

static struct arguments args;
static struct held *rings[MAX_THREADS];

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held *ring = calloc(RING, sizeof *ring);
    struct held *wave = calloc(WAVE, sizeof *wave);
    long place = 0;
    for (long made = 0; made < args.ops;) {
        int count = 0;
        while (count < WAVE) {
            size_t size = between(&random, 1, between(&random, 1, 1000));
            for (size_t run = 1 + 200 / size; run > 0 && count < WAVE; run--)
                hold(&wave[count++], size);
        }
        made += count;
        int reverse = (int)(next(&random) & 1);
        for (int i = 0; i < count; i++) {
            struct held *block = &wave[reverse ? count - 1 - i : i];
            if (i % 4 == 0) {
                drop(&ring[place]);
                ring[place] = *block;
                block->block = NULL;
                place = (place + 1) % RING;
            } else {
                drop(block);
            }
        }
        if (strcmp(args.variant, "shared") == 0) {
            struct held *other =
                __atomic_exchange_n(&rings[(made / WAVE) % args.threads], ring, __ATOMIC_ACQ_REL);
            ring = other != NULL ? other : calloc(RING, sizeof *ring);
        }
    }
    for (int i = 0; i < RING; i++)
        drop(&ring[i]);
    free(ring);
    free(wave);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    for (int i = 0; i < args.threads; i++) {
        for (int j = 0; rings[i] != NULL && j < RING; j++)
            drop(&rings[i][j]);
        free(rings[i]);
    }
    return done((unsigned long long)(args.threads * args.ops));
}

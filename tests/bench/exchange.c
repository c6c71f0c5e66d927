/* Threads around a barrier: in each round every thread allocates a set of blocks and frees the set of its neighbour, one
 * block in eight of its own earlier. Sizes are 16 bytes to 32 KiB, small ones frequent. Operations are rounds. */
#include "bench.h"

#define BLOCKS 2000

static struct arguments args;
static struct held sets[2][MAX_THREADS][BLOCKS];
static pthread_barrier_t barrier;

static void *work(void *index)
{
    long me = (long)index;
    rng random = seed(me);
    for (long round = 0; round < args.ops; round++) {
        struct held *mine = sets[round % 2][me];
        struct held *theirs = sets[(round + 1) % 2][(me + 1) % args.threads];
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = log_between(&random, 4, next(&random) % 16 == 0 ? 15 : 10);
            drop(&theirs[i]);
            hold(&mine[i], size);
            if (i % 8 == 0)
                drop(&mine[i]);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    pthread_barrier_init(&barrier, NULL, (unsigned)args.threads);
    run_threads(args.threads, work);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < args.threads; i++)
            for (int j = 0; j < BLOCKS; j++)
                drop(&sets[s][i][j]);
    return done((unsigned long long)(args.threads * args.ops));
}

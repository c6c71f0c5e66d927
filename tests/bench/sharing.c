/* False sharing: each thread allocates a small block, writes to it many times and frees it, again and again. Where blocks
 * of two threads lie on one cache line the writes are slow. Variant `thrash`: every thread allocates its first block
 * itself; `scratch`: the main thread allocates them one after the other and hands them over, so that the allocator is
 * tempted to give the parts of that line out to other threads. Operations are blocks a thread. */
#include "bench.h"

#define WRITES 4000

static struct arguments args;
static void *handed[MAX_THREADS];

static void *work(void *index)
{
    free(handed[(long)index]);
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        volatile unsigned char *block = malloc(8);
        if (block == NULL)
            die("no memory");
        for (int j = 0; j < 8; j++)
            block[j] = (unsigned char)i;
        for (int j = 0; j < WRITES; j++)
            block[j % 8]++;
        for (int j = 0; j < 8; j++)
            sum += block[j];
        free((void *)block);
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    if (strcmp(args.variant, "scratch") == 0)
        for (int i = 0; i < args.threads; i++)
            handed[i] = malloc(8);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

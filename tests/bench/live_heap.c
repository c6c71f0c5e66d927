/* Cost an operation over a live heap of a given size: fills the heap with blocks of 64 to 512 bytes, then replaces random
 * ones. Prints nanoseconds an operation of the second part. Variant: live bytes of all threads together. */
#include <time.h>

#include "bench.h"

static struct arguments args;
static long slots_each;
static pthread_barrier_t barrier;
static long long began;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held *slots = malloc((size_t)slots_each * sizeof *slots);
    for (long i = 0; i < slots_each; i++)
        hold(&slots[i], between(&random, 64, 512));
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        began = now();
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % (uint64_t)slots_each];
        drop(slot);
        hold(slot, between(&random, 64, 512));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    slots_each = atol(args.variant) / 288 / args.threads;
    if (slots_each < 1)
        die("the variant is the live bytes");
    pthread_barrier_init(&barrier, NULL, (unsigned)args.threads);
    run_threads(args.threads, work);
    printf("ns_per_op = %.2f\n", (double)(now() - began) / (double)(args.threads * args.ops));
    _exit(fflush(stdout));
}

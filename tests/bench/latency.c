/* How long single calls take: churn of small sizes with some of pages and a table of live blocks; each malloc and free is
 * timed by the time-stamp counter. Prints the median and two tails of both, in ns, the cost of reading the counter taken
 * off. */
#include <time.h>
#include <x86intrin.h>

#include "bench.h"

#define SLOTS 4096
#define BUCKETS 65536 /* one a tick, the last for all that took longer; those are kept apart */
#define LONG 65536

static struct arguments args;

struct times {
    unsigned counts[BUCKETS];
    uint64_t longer[LONG];
    unsigned nlonger;
    unsigned long total;
};

static struct times *mallocs[MAX_THREADS], *frees[MAX_THREADS];

static inline uint64_t ticks(void)
{
    unsigned core;
    return __rdtscp(&core);
}

static inline void note(struct times *times, uint64_t took)
{
    times->total++;
    if (took < BUCKETS)
        times->counts[took]++;
    else if (times->nlonger < LONG)
        times->longer[times->nlonger++] = took;
}

static void *work(void *index)
{
    rng random = seed((long)index);
    struct times *m = mallocs[(long)index], *f = frees[(long)index];
    struct held *slots = calloc(SLOTS, sizeof *slots);
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % SLOTS];
        uint64_t kind = next(&random) % 1000;
        size_t size = kind == 0 ? between(&random, 16384, 262144) : log_between(&random, 4, kind < 50 ? 13 : 10);
        uint64_t a = ticks();
        free(slot->block);
        uint64_t b = ticks();
        void *block = malloc(size);
        uint64_t c = ticks();
        if (block == NULL)
            die("no memory");
        note(f, b - a);
        note(m, c - b);
        *(char *)block = 1;
        slot->block = block;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The time that `part` of the calls stayed within. */
static double percentile(struct times **all, double part, double ns_per_tick, uint64_t cost)
{
    unsigned long total = 0, seen = 0;
    for (int i = 0; i < args.threads; i++)
        total += all[i]->total;
    unsigned long wanted = (unsigned long)(part * (double)total);
    uint64_t tick = 0;
    for (; tick < BUCKETS; tick++) {
        for (int i = 0; i < args.threads; i++)
            seen += all[i]->counts[tick];
        if (seen > wanted)
            break;
    }
    if (tick == BUCKETS) {
        static uint64_t longer[MAX_THREADS * LONG];
        unsigned long count = 0;
        for (int i = 0; i < args.threads; i++)
            for (unsigned j = 0; j < all[i]->nlonger; j++)
                longer[count++] = all[i]->longer[j];
        qsort(longer, count, sizeof *longer, by_size);
        unsigned long at = wanted - seen;
        tick = count == 0 ? BUCKETS : longer[at < count ? at : count - 1];
    }
    return tick < cost ? 0 : (double)(tick - cost) * ns_per_tick;
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    uint64_t cost = UINT64_MAX;
    for (int i = 0; i < 100000; i++) {
        uint64_t a = ticks(), b = ticks();
        cost = b - a < cost ? b - a : cost;
    }
    for (int i = 0; i < args.threads; i++) {
        mallocs[i] = calloc(1, sizeof **mallocs);
        frees[i] = calloc(1, sizeof **frees);
        memset(mallocs[i], 0, sizeof **mallocs);
        memset(frees[i], 0, sizeof **frees);
    }
    long long start = now();
    uint64_t first = ticks();
    run_threads(args.threads, work);
    double ns_per_tick = (double)(now() - start) / (double)(ticks() - first);
    printf("malloc = %.1f %.1f %.1f\n", percentile(mallocs, 0.5, ns_per_tick, cost),
           percentile(mallocs, 0.99, ns_per_tick, cost), percentile(mallocs, 0.9999, ns_per_tick, cost));
    printf("free = %.1f %.1f %.1f\n", percentile(frees, 0.5, ns_per_tick, cost),
           percentile(frees, 0.99, ns_per_tick, cost), percentile(frees, 0.9999, ns_per_tick, cost));
    return 0;
}

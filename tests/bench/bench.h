/* What the workloads share: random numbers, blocks whose first and last byte are checked when they go, threads, and the
 * one line that a program prints. Usage of every workload: PROGRAM THREADS OPERATIONS [VARIANT], operations a thread.
 *
 * With BENCH_GATE=FIFO in the environment a program waits, before main, until something is written there: so a tracer
 * can attach to it first. */
#ifndef JEPROBE_BENCH_H
#define JEPROBE_BENCH_H

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 64

struct arguments {
    int threads;
    long ops;
    const char *variant; /* "" when not given */
};

static inline void die(const char *what)
{
    fprintf(stderr, "workload failed: %s\n", what);
    exit(1);
}

__attribute__((constructor, unused)) static void wait_at_gate(void)
{
    const char *gate = getenv("BENCH_GATE");
    if (gate == NULL)
        return;
    free(malloc(1)); /* the allocator is up when the tracer looks */
    int fd = open(gate, O_RDONLY);
    char byte;
    if (fd < 0 || read(fd, &byte, 1) != 1)
        die("no byte at the gate");
    close(fd);
    unsetenv("BENCH_GATE"); /* not for children */
}

static inline struct arguments parse(int argc, char **argv)
{
    if (argc < 3)
        die("usage: PROGRAM THREADS OPERATIONS [VARIANT]");
    struct arguments args = { atoi(argv[1]), atol(argv[2]), argc > 3 ? argv[3] : "" };
    if (args.threads < 1 || args.threads > MAX_THREADS || args.ops < 1)
        die("1 to 64 threads, 1 or more operations");
    return args;
}

/* xorshift64*: one state a thread, never 0. */
typedef uint64_t rng;

static inline rng seed(long number)
{
    return (uint64_t)number * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
}

static inline uint64_t next(rng *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (x * 0x2545f4914f6cdd1du) >> 16;
}

/* Uniform in [low, high]. */
static inline size_t between(rng *state, size_t low, size_t high)
{
    return low + (size_t)(next(state) % (high - low + 1));
}

/* Sizes whose logarithm is uniform: small ones are frequent. */
static inline size_t log_between(rng *state, int lg_low, int lg_high)
{
    size_t bit = (size_t)1 << between(state, (size_t)lg_low, (size_t)lg_high - 1);
    return bit + (size_t)(next(state) & (bit - 1));
}

static inline void mark(void *block, size_t size)
{
    unsigned char *bytes = (unsigned char *)block;
    bytes[0] = (unsigned char)size;
    bytes[size - 1] = (unsigned char)(size ^ 0x5a);
    if (size == 1)
        bytes[0] = 1;
}

static inline void check_mark(const void *block, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)block;
    if (size == 1 ? bytes[0] != 1
                  : bytes[0] != (unsigned char)size || bytes[size - 1] != (unsigned char)(size ^ 0x5a))
        die("a block lost its content");
}

static inline void *get(size_t size)
{
    void *block = malloc(size);
    if (block == NULL)
        die("no memory");
    mark(block, size);
    return block;
}

static inline void put(void *block, size_t size)
{
    check_mark(block, size);
    free(block);
}

/* A block and its size. */
struct held {
    void *block;
    size_t size;
};

static inline void hold(struct held *held, size_t size)
{
    held->size = size;
    held->block = get(size);
}

static inline void drop(struct held *held)
{
    if (held->block != NULL)
        put(held->block, held->size);
    held->block = NULL;
}

typedef void *(*body)(void *);

/* Runs `threads` bodies with their index as argument, and waits for them. */
static inline void run_threads(int threads, body body)
{
    pthread_t ids[MAX_THREADS];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, body, (void *)i) != 0)
            die("pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

static inline int done(unsigned long long checksum)
{
    printf("%llu\n", checksum);
    return 0;
}

#endif

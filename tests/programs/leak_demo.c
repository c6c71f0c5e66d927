/* A small server that leaks, for `cargo xtask demo`.
 *
 * Two workers serve requests, half of them queries and half logins, until SIGTERM or until their time is over:
 *
 *   parse_request      balanced: a buffer that is freed at its end
 *   cache_put          levels off at 4 MiB: a new entry frees the one in its slot
 *   session_open       levels off at 2 MiB, in the same way
 *   audit_log_append   leaks: a record per login on a list that nobody reads
 *
 * so that after a few seconds audit_log_append holds most of the heap. load_config allocates once, before `ready`.
 * Argument: seconds to live, 60 by default; it bounds what a forgotten server can take (10 MiB a second). */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

enum {
    WORKERS = 2,
    CACHE_SLOTS = 512,
    CACHE_BYTES = 8192,
    SESSIONS = 2048,
    SESSION_BYTES = 1024,
    RECORD_BYTES = 1900,
    REQUESTS_PER_TICK = 48, /* with a record for every second one and 100 ticks a second: 5 MiB a second and worker */
    TICK_NS = 10 * 1000 * 1000,
};

struct record {
    struct record *next;
    char text[RECORD_BYTES];
};

static atomic_int stopping;
static _Atomic(struct record *) audit_log;
static _Atomic(char *) cache[CACHE_SLOTS];
static _Atomic(char *) sessions[SESSIONS];

static void *need(void *memory)
{
    if (memory == NULL) {
        perror("leak_demo");
        exit(1);
    }
    return memory;
}

NOINLINE static char *load_config(void)
{
    char *config = need(malloc(3 << 20));
    memset(config, 'c', 3 << 20);
    return config;
}

NOINLINE static unsigned parse_request(unsigned number)
{
    size_t bytes = 256 + number % 4096;
    char *buffer = need(malloc(bytes));
    memset(buffer, (int)number, bytes);
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < bytes; i += 64)
        hash = (hash ^ (unsigned char)buffer[i]) * 16777619u;
    free(buffer);
    return hash + number * 2654435761u;
}

NOINLINE static void cache_put(unsigned hash)
{
    char *entry = need(malloc(CACHE_BYTES));
    memset(entry, (int)hash, CACHE_BYTES);
    free(atomic_exchange(&cache[hash % CACHE_SLOTS], entry));
}

NOINLINE static void session_open(unsigned hash)
{
    char *session = need(malloc(SESSION_BYTES));
    memset(session, (int)hash, SESSION_BYTES);
    free(atomic_exchange(&sessions[hash % SESSIONS], session));
}

NOINLINE static void audit_log_append(unsigned hash)
{
    struct record *record = need(malloc(sizeof *record));
    snprintf(record->text, sizeof record->text, "request with hash %08x", hash);
    record->next = atomic_load(&audit_log);
    while (!atomic_compare_exchange_weak(&audit_log, &record->next, record)) {
    }
}

/* Keeps the call before it from becoming a jump, which would take the caller out of the stack. */
static void not_a_tail_call(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

NOINLINE static void handle_query(unsigned hash)
{
    cache_put(hash);
    not_a_tail_call();
}

NOINLINE static void handle_login(unsigned hash)
{
    session_open(hash);
    audit_log_append(hash);
    not_a_tail_call();
}

NOINLINE static void handle_request(unsigned number)
{
    unsigned hash = parse_request(number) >> 7;
    if (hash & 1)
        handle_login(hash >> 1);
    else
        handle_query(hash >> 1);
    not_a_tail_call();
}

static void *serve(void *argument)
{
    unsigned number = *(unsigned *)argument;
    while (!atomic_load(&stopping)) {
        for (int i = 0; i < REQUESTS_PER_TICK; i++)
            handle_request(number += WORKERS);
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    return NULL;
}

static void stop(int signal)
{
    (void)signal;
    atomic_store(&stopping, 1);
}

int main(int argc, char **argv)
{
    signal(SIGTERM, stop);
    signal(SIGALRM, stop);
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    char *config = load_config();
    pthread_t workers[WORKERS];
    unsigned first[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        first[i] = i;
        if (pthread_create(&workers[i], NULL, serve, &first[i]) != 0) {
            perror("leak_demo: pthread_create");
            return 1;
        }
    }
    printf("ready\n");
    fflush(stdout);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    free(config);
    return 0;
}

/* Producers and consumers: every block is freed by another thread than the one that allocated it. Half of the threads
 * (at least one) allocate batches and put them into one bounded queue, the other half take and free them. With variant
 * `blind` the blocks are of 64 bytes, their writer fills them, who frees them does not look at them, and the batch
 * taken is the newest one. Operations are blocks a producer. */
#include "bench.h"

#define BATCH 1000
#define BLIND_BATCH 4096
#define BLIND_BYTES 64
#define QUEUE 32

static struct arguments args;
static int producers, consumers, blind;
static unsigned blocks; /* in a batch */
static void **queue[QUEUE];
static unsigned long head, tail;
static int producing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;

static size_t size_of(unsigned place)
{
    return 16 + (place * 37u) % 240;
}

static void *produce(void *index)
{
    (void)index;
    for (long made = 0; made < args.ops; made += blocks) {
        void **batch = get(blocks * sizeof *batch);
        for (unsigned i = 0; i < blocks; i++)
            batch[i] = blind ? memset(get(BLIND_BYTES), (int)i, BLIND_BYTES) : get(size_of(i));
        pthread_mutex_lock(&lock);
        while (head - tail == QUEUE)
            pthread_cond_wait(&not_full, &lock);
        queue[head++ % QUEUE] = batch;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    if (--producing == 0)
        pthread_cond_broadcast(&not_empty);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *consume(void *index)
{
    (void)index;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (head == tail && producing > 0)
            pthread_cond_wait(&not_empty, &lock);
        if (head == tail) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        void **batch = blind ? queue[--head % QUEUE] : queue[tail++ % QUEUE];
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&lock);
        for (unsigned i = 0; i < blocks; i++) {
            if (blind)
                free(batch[i]);
            else
                put(batch[i], size_of(i));
        }
        free(batch);
    }
}

static void *work(void *index)
{
    return (long)index < producers ? produce(index) : consume(index);
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    blind = strcmp(args.variant, "blind") == 0;
    blocks = blind ? BLIND_BATCH : BATCH;
    producing = producers = args.threads > 1 ? args.threads / 2 : 1;
    consumers = args.threads > 1 ? args.threads - producers : 1;
    run_threads(producers + consumers, work);
    return done((unsigned long long)(producers * args.ops));
}

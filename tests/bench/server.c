/* A server whose requests outlive the thread that began them: each worker replaces random blocks of a table, and after
 * a part of its work starts its successor, hands it the table and ends. So blocks are freed by other threads than the
 * one that allocated them, and threads come and go. Variant `small`: 8 to 128 bytes; otherwise 10 to 1000. Variant `wide`:
 * five times the blocks, more than a processor's own cache holds, freed without being looked at, so that they are cold. */
#include "bench.h"

#define SLOTS_MOST 5000
#define GENERATIONS 50

static struct arguments args;
static size_t low = 10, high = 1000;
static size_t slots = 1000;
static int cold;

struct worker {
    struct held slots[SLOTS_MOST];
    rng random;
    int generation;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    long ops = args.ops / GENERATIONS;
    for (long i = 0; i < ops; i++) {
        struct held *slot = &worker->slots[next(&worker->random) % slots];
        if (cold)
            free(slot->block);
        else
            drop(slot);
        hold(slot, between(&worker->random, low, high));
    }
    pthread_mutex_lock(&worker->lock);
    int generation = ++worker->generation;
    if (generation == GENERATIONS)
        pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    if (generation < GENERATIONS) {
        pthread_t successor;
        if (pthread_create(&successor, NULL, work, worker) != 0)
            die("pthread_create");
        pthread_detach(successor);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    if (strcmp(args.variant, "small") == 0)
        low = 8, high = 128;
    if (strcmp(args.variant, "wide") == 0)
        slots = SLOTS_MOST, cold = 1;
    struct worker *workers[MAX_THREADS];
    rng random = seed(77);
    for (int i = 0; i < args.threads; i++) {
        struct worker *worker = workers[i] = calloc(1, sizeof *worker);
        worker->random = seed(i);
        pthread_mutex_init(&worker->lock, NULL);
        pthread_cond_init(&worker->changed, NULL);
        /* The main thread makes the first blocks, in an order that mixes the workers' addresses. */
        for (size_t j = 0; j < slots; j++)
            hold(&worker->slots[j], between(&random, low, high));
        for (size_t j = 0; j < slots; j++) {
            size_t k = next(&random) % slots;
            struct held other = worker->slots[k];
            worker->slots[k] = worker->slots[j];
            worker->slots[j] = other;
        }
    }
    for (int i = 0; i < args.threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, work, workers[i]) != 0)
            die("pthread_create");
        pthread_detach(id);
    }
    for (int i = 0; i < args.threads; i++) {
        struct worker *worker = workers[i];
        pthread_mutex_lock(&worker->lock);
        while (worker->generation < GENERATIONS)
            pthread_cond_wait(&worker->changed, &worker->lock);
        pthread_mutex_unlock(&worker->lock);
        for (size_t j = 0; j < slots; j++)
            drop(&worker->slots[j]);
    }
    return done((unsigned long long)(args.threads * args.ops));
}

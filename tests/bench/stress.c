/* Threads that leave objects behind: all threads run in rounds; within one each allocates, keeps, frees and swaps objects
 * with a table that all share, so that objects outlive the threads that made them and are freed by others. Objects are
 * arrays of words, mostly small, some of 10 to 100 KiB. Operations are objects a thread and round. */
#include "bench.h"

#define SHARED 1000
#define ROUNDS 12

static struct arguments args;
static uintptr_t *shared[SHARED];

static uintptr_t *make(rng *random)
{
    uint64_t kind = next(random) % 1000;
    size_t words = kind == 0 ? between(random, 1250, 12500) : kind < 100 ? between(random, 32, 512) : between(random, 1, 32);
    uintptr_t *object = calloc(words + 1, sizeof *object);
    if (object == NULL)
        die("no memory");
    object[0] = words;
    for (size_t i = 1; i <= words; i++)
        object[i] = words ^ i;
    return object;
}

static void end(uintptr_t *object)
{
    if (object == NULL)
        return;
    size_t words = object[0];
    if (object[words] != (words ^ words) || (words > 1 && object[1] != (words ^ 1)))
        die("an object lost its content");
    free(object);
}

static void *work(void *argument)
{
    rng random = (rng)(uintptr_t)argument;
    long room = args.ops / 2 + 1, live = 0, kept = 0;
    uintptr_t **objects = calloc((size_t)room, sizeof *objects);
    uintptr_t **keep = calloc((size_t)(args.ops / 3 + 1), sizeof *keep);
    for (long i = 0; i < args.ops; i++) {
        if (next(&random) % 2 == 0) {
            if (live == room) {
                end(objects[0]);
                objects[0] = objects[--live];
            }
            objects[live++] = make(&random);
        } else if (live > 0) {
            long at = (long)(next(&random) % (uint64_t)live);
            end(objects[at]);
            objects[at] = objects[--live];
        }
        if (i % 4 == 0 && kept < args.ops / 3)
            keep[kept++] = make(&random);
        if (next(&random) % 4 == 0 && live > 0) {
            long at = (long)(next(&random) % (uint64_t)live);
            objects[at] = __atomic_exchange_n(&shared[next(&random) % SHARED], objects[at], __ATOMIC_ACQ_REL);
            if (objects[at] == NULL)
                objects[at] = objects[--live];
        }
    }
    for (long i = 0; i < live; i++)
        end(objects[i]);
    for (long i = 0; i < kept; i++)
        end(keep[i]);
    free(objects);
    free(keep);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    rng random = seed(1);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t ids[MAX_THREADS];
        for (int i = 0; i < args.threads; i++)
            if (pthread_create(&ids[i], NULL, work, (void *)(uintptr_t)(next(&random) | 1)) != 0)
                die("pthread_create");
        for (int i = 0; i < args.threads; i++)
            pthread_join(ids[i], NULL);
        for (int i = 0; i < SHARED; i++)
            if (next(&random) % 2 == 0) {
                end(shared[i]);
                shared[i] = NULL;
            }
    }
    for (int i = 0; i < SHARED; i++)
        end(shared[i]);
    return done((unsigned long long)(args.threads * args.ops));
}

/* Many threads that live briefly: each allocates a few hundred blocks of all sizes up to a page, frees most of them, and
 * leaves the rest to the thread that waits for it. Operations are threads started a starter. */
#include "bench.h"

#define BLOCKS 200
#define LEFT 8

static struct arguments args;

struct legacy {
    struct held left[LEFT];
    rng random;
};

static void *live(void *argument)
{
    struct legacy *legacy = argument;
    struct held blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        hold(&blocks[i], log_between(&legacy->random, 4, 12));
    for (int i = 0; i < BLOCKS; i++) {
        if (i < LEFT)
            legacy->left[i] = blocks[i];
        else
            drop(&blocks[i]);
    }
    return NULL;
}

static void *work(void *index)
{
    struct legacy legacy = { .random = seed((long)index) };
    for (long i = 0; i < args.ops; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, live, &legacy) != 0)
            die("pthread_create");
        pthread_join(id, NULL);
        for (int j = 0; j < LEFT; j++)
            drop(&legacy.left[j]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

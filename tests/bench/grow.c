/* Buffers that grow by realloc: several at a time, each by half again from 64 bytes to a limit, then freed. Limits by
 * variant: `small` 4 KiB, `large` 4 MiB, otherwise 256 KiB. Operations are buffers. */
#include "bench.h"

#define OPEN 16

static struct arguments args;
static size_t limit = 256 << 10;

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held buffers[OPEN] = { { NULL, 0 } };
    for (long finished = 0; finished < args.ops;) {
        struct held *buffer = &buffers[next(&random) % OPEN];
        if (buffer->block == NULL) {
            hold(buffer, 64);
            continue;
        }
        check_mark(buffer->block, buffer->size);
        size_t size = buffer->size + buffer->size / 2;
        void *block = realloc(buffer->block, size);
        if (block == NULL || ((unsigned char *)block)[0] != (unsigned char)buffer->size)
            die("realloc");
        /* What was added is used, as by one who appends. */
        memset((char *)block + buffer->size, 7, size - buffer->size);
        mark(block, size);
        buffer->block = block;
        buffer->size = size;
        if (size > limit) {
            drop(buffer);
            finished++;
        }
    }
    for (int i = 0; i < OPEN; i++)
        drop(&buffers[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    if (strcmp(args.variant, "small") == 0)
        limit = 4 << 10;
    else if (strcmp(args.variant, "large") == 0)
        limit = 4 << 20;
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

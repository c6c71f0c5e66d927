/* A small set of live blocks, each replaced at random. By variant:
 *
 *   large   5 to 25 MiB, 20 live, all bytes written
 *   pages   4 KiB to 1 MiB, logarithmic, 1000 live, one byte a page written
 *   medium  1 to 64 KiB, uniform, 2000 live, first and last byte written */
#include "bench.h"

static struct arguments args;

static void *work(void *index)
{
    rng random = seed((long)index);
    int large = strcmp(args.variant, "large") == 0, pages = strcmp(args.variant, "pages") == 0;
    size_t count = large ? 20 : pages ? 1000 : 2000;
    struct held *slots = calloc(count, sizeof *slots);
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % count];
        drop(slot);
        size_t size = large ? between(&random, 5u << 20, 25u << 20)
                      : pages ? log_between(&random, 12, 20)
                              : between(&random, 1024, 65536);
        hold(slot, size);
        if (large) {
            memset(slot->block, 1, size);
            mark(slot->block, size);
        } else if (pages) {
            for (size_t at = 4096; at + 1 < size; at += 4096)
                ((char *)slot->block)[at] = 1;
        }
    }
    for (size_t i = 0; i < count; i++)
        drop(&slots[i]);
    free(slots);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

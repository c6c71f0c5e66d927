/* calloc: mostly small records, some tables, now and then one of megabytes that is used only in part. */
#include "bench.h"

#define SLOTS 1024

static struct arguments args;

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held *slots = calloc(SLOTS, sizeof *slots);
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % SLOTS];
        free(slot->block);
        uint64_t kind = next(&random) % 4096;
        slot->size = kind == 0 ? between(&random, 1 << 20, 4 << 20)
                     : kind < 64 ? between(&random, 4096, 65536)
                                 : between(&random, 16, 400);
        unsigned char *bytes = calloc(1, slot->size);
        if (bytes == NULL)
            die("no memory");
        size_t at = (size_t)(next(&random) % slot->size);
        if (bytes[0] | bytes[slot->size - 1] | bytes[at])
            die("calloc gave a block that is not zero");
        bytes[at] = bytes[0] = bytes[slot->size - 1] = 0xff;
        sum += at & 1;
        slot->block = bytes;
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i].block);
    free(slots);
    return (void *)sum;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

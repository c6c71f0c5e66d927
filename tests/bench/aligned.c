/* Aligned blocks: posix_memalign and aligned_alloc at 32 bytes to 64 KiB, sizes up to 16 KiB, mixed with plain ones. */
#include "bench.h"

#define SLOTS 2048

static struct arguments args;

static void *work(void *index)
{
    rng random = seed((long)index);
    struct held *slots = calloc(SLOTS, sizeof *slots);
    for (long i = 0; i < args.ops; i++) {
        struct held *slot = &slots[next(&random) % SLOTS];
        drop(slot);
        uint64_t kind = next(&random) % 64;
        size_t size = log_between(&random, 4, kind < 4 ? 14 : 10);
        size_t align = kind == 0 ? 65536 : kind < 4 ? 4096 : (size_t)32 << kind % 5;
        void *block = NULL;
        if (kind < 16) {
            block = malloc(size);
            align = 8;
        } else if (kind % 2 == 0) {
            if (posix_memalign(&block, align, size) != 0)
                die("posix_memalign");
        } else {
            size = (size + align - 1) / align * align;
            block = aligned_alloc(align, size);
        }
        if (block == NULL || (uintptr_t)block % align != 0)
            die("a block is not aligned");
        mark(block, size);
        slot->block = block;
        slot->size = size;
    }
    for (int i = 0; i < SLOTS; i++)
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

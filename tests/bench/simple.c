/* The shape of the C library's own benchmark: batches of 25 to 6400 blocks of one size between 8 bytes and 1 KiB, allocated in
 * order and freed in order; then, by turns, freed in reverse. Operations are blocks a thread. */
#include "bench.h"

#define LARGEST 6400

static struct arguments args;

static void *work(void *index)
{
    (void)index;
    static const int batches[] = { 25, 100, 400, 1600, LARGEST };
    static const size_t sizes[] = { 8, 16, 32, 64, 128, 256, 512, 1024 };
    void **blocks = malloc(LARGEST * sizeof *blocks);
    int turn = 0;
    for (long made = 0; made < args.ops;) {
        int batch = batches[turn % 5];
        size_t size = sizes[turn / 5 % 8];
        for (int repeat = LARGEST / batch; repeat > 0; repeat--) {
            for (int i = 0; i < batch; i++)
                blocks[i] = get(size);
            for (int i = 0; i < batch; i++)
                put(blocks[turn / 40 % 2 ? batch - 1 - i : i], size);
        }
        made += LARGEST;
        turn++;
    }
    free(blocks);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

/* Three holders of known shares for the page and the pictures, dumped as a series.
 *
 *   keep_cache     8 MiB, once
 *   keep_sessions  4 MiB, once
 *   grow_log       4 MiB in each round
 *
 * Argument: a prefix. Round n ends with a dump to PREFIX.n.heap, a line `ready n`, and waits for a line; `end` ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 << 10 };

static char *blocks[4096];
static int count;

#define NOINLINE __attribute__((noinline))

NOINLINE static char *new_block(void)
{
    char *block = malloc(BLOCK);
    if (block == NULL)
        abort();
    memset(block, 1, BLOCK);
    return block;
}

NOINLINE static void keep_cache(void)
{
    for (int i = 0; i < 128; i++)
        blocks[count++] = new_block();
}

NOINLINE static void keep_sessions(void)
{
    for (int i = 0; i < 64; i++)
        blocks[count++] = new_block();
}

NOINLINE static void grow_log(void)
{
    for (int i = 0; i < 64; i++)
        blocks[count++] = new_block();
}

NOINLINE static void serve(void)
{
    grow_log();
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    char line[64], path[4096];
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
        (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    keep_cache();
    keep_sessions();
    for (int round = 0; round < 32; round++) {
        serve();
        if (argc > 1) {
            const char *name = path;
            snprintf(path, sizeof path, "%s.%d.heap", argv[1], round);
            if (mallctl == NULL || mallctl("prof.dump", NULL, NULL, &name, sizeof name) != 0)
                return 1;
        }
        printf("ready %d\n", round);
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL || strcmp(line, "end\n") == 0)
            break;
    }
    return 0;
}

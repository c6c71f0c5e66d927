// Calls to count instructions of: `calls KIND COUNT` makes COUNT pairs of one kind on a warm thread. KIND: `malloc` (malloc
// and free), `cxx` (operator new and unsized delete), `sized` (operator new and sized delete).
#include <new>

#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: calls malloc|cxx|sized COUNT");
    const char *kind = argv[1];
    long count = atol(argv[2]);
    // Sixteen live at a time, of eight sizes: neither a stack's first block each time nor a full one.
    void *blocks[16];
    for (long i = 0; i < count; i += 16) {
        for (int j = 0; j < 16; j++) {
            size_t size = 16 + 24 * static_cast<size_t>(j % 8);
            blocks[j] = kind[0] == 'm' ? malloc(size) : ::operator new(size);
            static_cast<char *>(blocks[j])[0] = 1;
        }
        for (int j = 0; j < 16; j++) {
            if (kind[0] == 'm')
                free(blocks[j]);
            else if (kind[0] == 'c')
                ::operator delete(blocks[j]);
            else
                ::operator delete(blocks[j], 16 + 24 * static_cast<size_t>(j % 8));
        }
    }
    return done(static_cast<unsigned long long>(count));
}

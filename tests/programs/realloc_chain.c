/* Chains of realloc: growing, shrinking, at random, past every size class up to 32 MiB; the content survives each step
   and no block overlaps another. */
#include "fact.h"
#include <malloc.h>

#define SLOTS 64

static size_t random_size(unsigned long *state)
{
	*state = *state * 6364136223846793005UL + 1442695040888963407UL;
	unsigned shift = (unsigned)(*state >> 60) + 3;
	return ((*state >> 20) & ((1UL << shift) - 1)) + 1;
}

int main(void)
{
	size_t wrong = 0, steps = 0;
	unsigned char *block = NULL;
	size_t old = 0;
	for (size_t size = 1; size < (32u << 20); size = size * 6 / 5 + 1) {
		unsigned char *next = realloc(block, size);
		MUST(next && malloc_usable_size(next) >= size);
		wrong += damaged(next, old, 5);
		fill(next, size, 5);
		block = next;
		old = size;
		steps++;
	}
	for (size_t size = old; size > 1; size = size * 4 / 5) {
		unsigned char *next = realloc(block, size);
		MUST(next);
		wrong += damaged(next, size, 5);
		block = next;
		steps++;
	}
	free(block);
	line("chain.wrong bytes = %zu", wrong);
	line("chain.steps = %zu", steps);

	unsigned char *slots[SLOTS] = {0};
	size_t sizes[SLOTS] = {0};
	unsigned long state = 42;
	wrong = 0;
	for (int round = 0; round < 30000; round++) {
		int slot = (int)(random_size(&state) % SLOTS);
		size_t size = random_size(&state);
		size_t kept = size < sizes[slot] ? size : sizes[slot];
		unsigned char *next = realloc(slots[slot], size);
		MUST(next);
		wrong += damaged(next, kept, (unsigned)slot);
		fill(next, size, (unsigned)slot);
		slots[slot] = next;
		sizes[slot] = size;
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		wrong += damaged(slots[slot], sizes[slot], (unsigned)slot);
		free(slots[slot]);
	}
	line("random.wrong bytes = %zu", wrong);

	/* calloc after dirty memory of every size went back. */
	wrong = 0;
	for (size_t size = 1; size < (8u << 20); size = size * 3 / 2 + 1) {
		void *dirty[4];
		for (int i = 0; i < 4; i++) {
			dirty[i] = malloc(size);
			MUST(dirty[i]);
			memset(dirty[i], 0xee, size);
		}
		for (int i = 0; i < 4; i++)
			free(dirty[i]);
		for (int i = 0; i < 4; i++) {
			unsigned char *clean = calloc(1, size);
			MUST(clean);
			for (size_t at = 0; at < size; at++)
				wrong += clean[at] != 0;
			memset(clean, 0xdd, size);
			dirty[i] = clean;
		}
		for (int i = 0; i < 4; i++)
			free(dirty[i]);
	}
	line("calloc.dirty bytes = %zu", wrong);
	return 0;
}

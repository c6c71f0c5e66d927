/* For every small size, and around every class boundary up to 8 MiB: usable size, agreement of the three ways to ask for
   it, and the alignment of many blocks of each class. */
#include "fact.h"
#include <malloc.h>

#define LIVE 40

int main(void)
{
	size_t (*nallocx)(size_t, int) = (size_t (*)(size_t, int))dlsym(RTLD_DEFAULT, "nallocx");
	MUST(nallocx);
	size_t disagreements = 0, previous = 0;
	for (size_t size = 1; size <= 16384; size++) {
		void *block = malloc(size);
		MUST(block);
		size_t usable = malloc_usable_size(block);
		disagreements += usable != nallocx(size, 0);
		if (usable != previous)
			line("class %zu = %zu", size, usable);
		previous = usable;
		free(block);
	}
	for (size_t base = 16384; base < (8u << 20); base *= 2) {
		for (int step = 0; step < 4; step++) {
			for (int offset = -1; offset <= 1; offset++) {
				size_t size = base + base / 4 * (size_t)step + (size_t)offset;
				void *block = malloc(size);
				MUST(block);
				size_t usable = malloc_usable_size(block);
				disagreements += usable != nallocx(size, 0) || usable < size;
				line("large %zu = %zu", size, usable);
				((char *)block)[usable - 1] = 1;
				free(block);
			}
		}
	}
	line("disagreements = %zu", disagreements);

	/* The bits that no address of a class ever has set. */
	for (size_t size = 1; size <= 2000000; size = nallocx(size + 1, 0)) {
		void *blocks[LIVE];
		uintptr_t seen = 0;
		size_t usable = nallocx(size, 0);
		for (int i = 0; i < LIVE; i++) {
			blocks[i] = malloc(usable);
			MUST(blocks[i]);
			seen |= (uintptr_t)blocks[i];
		}
		for (int i = 0; i < LIVE; i++)
			free(blocks[i]);
		line("align %zu = %zu", usable, (size_t)(seen & -seen));
		if (usable > 32768)
			size = usable * 5 / 4;
		else
			size = usable;
	}

	/* Explicit alignment, every power of two up to 4 MiB, several sizes, kept alive together. */
	size_t misaligned = 0, short_blocks = 0;
	for (size_t alignment = 8; alignment <= (4u << 20); alignment *= 2) {
		void *blocks[8];
		for (int i = 0; i < 8; i++) {
			size_t size = 1 + alignment * (size_t)i / 3;
			MUST(posix_memalign(&blocks[i], alignment, size) == 0);
			misaligned += (uintptr_t)blocks[i] % alignment != 0;
			short_blocks += malloc_usable_size(blocks[i]) < size;
			memset(blocks[i], i, size);
		}
		for (int i = 0; i < 8; i++)
			free(blocks[i]);
	}
	line("explicit.misaligned = %zu", misaligned);
	line("explicit.short = %zu", short_blocks);
	return 0;
}

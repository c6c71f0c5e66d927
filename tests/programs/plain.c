/* An ordinary program: allocates, prints what it computed, says which malloc it got. */
#include "fact.h"
#include <malloc.h>

int main(void)
{
	size_t sum = 0;
	for (size_t i = 1; i < 3000; i++) {
		unsigned char *block = malloc(i);
		MUST(block);
		memset(block, (int)i, i);
		sum += block[i - 1];
		free(block);
	}
	line("sum = %zu", sum);
	line("malloc(33).usable = %zu", malloc_usable_size(malloc(33)));
	return 0;
}

/* Until it reads a line: a block that is held for each eight that are freed at once, a thousand times a second. */
#include "fact.h"
#include <poll.h>

#define BYTES 4000

__attribute__((noinline)) static void held(void) { MUST(malloc(BYTES) != NULL); }

__attribute__((noinline)) static void freed(void)
{
	void *volatile block = malloc(BYTES);
	MUST(block != NULL);
	free(block);
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	line("ready");
	while (poll(&input, 1, 1) == 0) {
		held();
		for (int i = 0; i < 8; i++)
			freed();
	}
	return 0;
}

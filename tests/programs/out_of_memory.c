/* Under a limit on address space: allocation fails with NULL and ENOMEM, and works again after memory went back. */
#include "fact.h"
#include <malloc.h>
#include <sys/resource.h>

#define SLOTS 100000

static void *slots[SLOTS];

static int fill_up(size_t size)
{
	int count = 0;
	errno = SENTINEL;
	while (count < SLOTS && (slots[count] = malloc(size))) {
		memset(slots[count], 1, 64);
		count++;
	}
	return count;
}

static void release(int count)
{
	for (int i = 0; i < count; i++)
		free(slots[i]);
}

int main(void)
{
	struct rlimit limit = {512u << 20, 512u << 20};
	/* What is mapped already counts; leave the library room for its own first mappings. */
	free(malloc(100));
	MUST(setrlimit(RLIMIT_AS, &limit) == 0);

	for (int round = 0; round < 3; round++) {
		int count = fill_up(1 << 20);
		line("round %d.failed = %d", round, count < SLOTS && slots[count] == NULL);
		line("round %d.errno = %s", round, errno_name(errno));
		line("round %d.blocks = %d", round, count);
		errno = SENTINEL;
		void *none = calloc(200, 1 << 20);
		line("round %d.calloc = %s", round, none ? "block" : errno_name(errno));
		void *untouched = (void *)0x1234;
		line("round %d.posix_memalign = %s", round, errno_name(posix_memalign(&untouched, 1 << 21, 200u << 20)));
		line("round %d.untouched = %d", round, untouched == (void *)0x1234);
		errno = SENTINEL;
		memset(slots[0], 5, 1 << 20);
		none = realloc(slots[0], 300u << 20);
		line("round %d.realloc = %s", round, none ? "block" : errno_name(errno));
		line("round %d.kept = %d", round, ((char *)slots[0])[(1 << 20) - 1] == 5);
		release(count);
		void *again = malloc(1 << 20);
		line("round %d.again = %d", round, again != NULL);
		free(again);
	}

	/* Small blocks to the brim, then all back. */
	size_t small = 0;
	void **list = NULL;
	for (;;) {
		void **block = malloc(4000);
		if (!block)
			break;
		*block = list;
		list = block;
		small++;
	}
	line("small.blocks = %zu", small);
	while (list) {
		void **next = *list;
		free(list);
		list = next;
	}
	void *after = malloc(4000);
	line("small.again = %d", after != NULL);
	free(after);
	return 0;
}

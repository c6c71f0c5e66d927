/* Every function of the C family with ordinary, empty, wrong and impossible arguments: result, usable size, errno. */
#include "fact.h"
#include <malloc.h>

static const size_t MAX_CLASS = 0x7000000000000000;

static void report(const char *name, void *block)
{
	int error = errno;
	line("%s.null = %d", name, block == NULL);
	line("%s.errno = %s", name, errno_name(error));
	if (block)
		line("%s.usable = %zu", name, malloc_usable_size(block));
}

/* Runs one call, reports it and frees its block. */
#define CALL(name, expression)                                                                     \
	do {                                                                                       \
		errno = SENTINEL;                                                                  \
		void *block_ = (expression);                                                       \
		report(name, block_);                                                              \
		free(block_);                                                                      \
	} while (0)

static void aligned(const char *name, size_t alignment, size_t size)
{
	void *slot = (void *)0x1234;
	errno = SENTINEL;
	int result = posix_memalign(&slot, alignment, size);
	int error = errno;
	line("%s.result = %s", name, errno_name(result));
	line("%s.errno = %s", name, errno_name(error));
	line("%s.untouched = %d", name, slot == (void *)0x1234);
	if (result == 0) {
		line("%s.usable = %zu", name, malloc_usable_size(slot));
		line("%s.misaligned = %zu", name, (uintptr_t)slot % alignment);
		free(slot);
	}
}

int main(void)
{
	volatile size_t huge = MAX_CLASS + 1, all = SIZE_MAX, half = PTRDIFF_MAX, big = (size_t)1 << 33;

	CALL("malloc(0)", malloc(0));
	CALL("malloc(1)", malloc(1));
	CALL("malloc(100)", malloc(100));
	CALL("malloc(above max)", malloc(huge));
	CALL("malloc(SIZE_MAX)", malloc(all));
	CALL("malloc(PTRDIFF_MAX)", malloc(half));
	CALL("malloc(2^46)", malloc((size_t)1 << 46));

	CALL("calloc(0,8)", calloc(0, 8));
	CALL("calloc(8,0)", calloc(8, 0));
	CALL("calloc(3,5)", calloc(3, 5));
	CALL("calloc(overflow)", calloc(big, big));
	CALL("calloc(SIZE_MAX,2)", calloc(all, 2));
	CALL("calloc(SIZE_MAX,1)", calloc(all, 1));

	CALL("realloc(NULL,0)", realloc(NULL, 0));
	CALL("realloc(NULL,100)", realloc(NULL, 100));
	CALL("realloc(p,0)", realloc(malloc(10), 0));
	void *kept = malloc(100);
	fill(kept, 100, 3);
	errno = SENTINEL;
	void *grown = realloc(kept, huge);
	report("realloc(p,above max)", grown);
	line("realloc(p,above max).damaged = %zu", damaged(kept, 100, 3));
	errno = SENTINEL;
	report("reallocarray(overflow)", reallocarray(kept, big, big));
	line("reallocarray(overflow).damaged = %zu", damaged(kept, 100, 3));
	free(kept);

	aligned("posix_memalign(0,8)", 0, 8);
	aligned("posix_memalign(1,8)", 1, 8);
	aligned("posix_memalign(2,8)", 2, 8);
	aligned("posix_memalign(3,8)", 3, 8);
	aligned("posix_memalign(4,8)", 4, 8);
	aligned("posix_memalign(24,8)", 24, 8);
	aligned("posix_memalign(8,0)", 8, 0);
	aligned("posix_memalign(8,8)", 8, 8);
	aligned("posix_memalign(64,1)", 64, 1);
	aligned("posix_memalign(4096,4097)", 4096, 4097);
	aligned("posix_memalign(2^21,1)", 1 << 21, 1);
	aligned("posix_memalign(8,SIZE_MAX)", 8, all);
	aligned("posix_memalign(64,above max)", 64, huge);

	CALL("aligned_alloc(0,8)", aligned_alloc(0, 8));
	CALL("aligned_alloc(3,8)", aligned_alloc(3, 8));
	CALL("aligned_alloc(24,8)", aligned_alloc(24, 8));
	CALL("aligned_alloc(1,8)", aligned_alloc(1, 8));
	CALL("aligned_alloc(2,8)", aligned_alloc(2, 8));
	CALL("aligned_alloc(4,8)", aligned_alloc(4, 8));
	CALL("aligned_alloc(64,0)", aligned_alloc(64, 0));
	CALL("aligned_alloc(64,1)", aligned_alloc(64, 1));
	CALL("aligned_alloc(64,65)", aligned_alloc(64, 65));
	CALL("aligned_alloc(32,48)", aligned_alloc(32, 48));
	CALL("aligned_alloc(128,200)", aligned_alloc(128, 200));
	CALL("aligned_alloc(128,1000)", aligned_alloc(128, 1000));
	CALL("aligned_alloc(256,2000)", aligned_alloc(256, 2000));
	CALL("aligned_alloc(2048,2049)", aligned_alloc(2048, 2049));
	CALL("aligned_alloc(4096,1)", aligned_alloc(4096, 1));
	CALL("aligned_alloc(4096,4097)", aligned_alloc(4096, 4097));
	CALL("aligned_alloc(4096,14337)", aligned_alloc(4096, 14337));
	CALL("aligned_alloc(8192,1)", aligned_alloc(8192, 1));
	CALL("aligned_alloc(8192,100)", aligned_alloc(8192, 100));
	CALL("aligned_alloc(2^20,1)", aligned_alloc(1 << 20, 1));
	CALL("aligned_alloc(64,SIZE_MAX)", aligned_alloc(64, all));
	CALL("aligned_alloc(2^40,1)", aligned_alloc((size_t)1 << 40, 1));

	CALL("memalign(0,8)", memalign(0, 8));
	CALL("memalign(3,8)", memalign(3, 8));
	CALL("memalign(64,100)", memalign(64, 100));
	CALL("memalign(64,SIZE_MAX)", memalign(64, all));
	errno = SENTINEL;
	void *small = memalign(64, 0);
	line("memalign(64,0).misaligned = %zu", (uintptr_t)small % 64);
	report("memalign(64,0)", small);
	free(small);

	CALL("valloc(0)", valloc(0));
	CALL("valloc(1)", valloc(1));
	CALL("valloc(4097)", valloc(4097));
	CALL("valloc(20000)", valloc(20000));
	CALL("valloc(SIZE_MAX)", valloc(all));
	void *page = valloc(1);
	line("valloc(1).misaligned = %zu", (uintptr_t)page % 4096);
	free(page);

	void *(*page_round)(size_t) = (void *(*)(size_t))provided("pvalloc");
	if (page_round) {
		CALL("pvalloc(0)", page_round(0));
		CALL("pvalloc(1)", page_round(1));
		CALL("pvalloc(4097)", page_round(4097));
		page = page_round(4097);
		line("pvalloc(4097).misaligned = %zu", (uintptr_t)page % 4096);
		free(page);
		CALL("pvalloc(above max)", page_round(huge));
	}

	errno = SENTINEL;
	line("malloc_usable_size(NULL) = %zu", malloc_usable_size(NULL));
	line("malloc_usable_size(NULL).errno = %s", errno_name(errno));

	errno = SENTINEL;
	free(NULL);
	free(malloc(10));
	free(malloc(100000));
	line("free.errno = %s", errno_name(errno));

	void (*free_sized_)(void *, size_t) = (void (*)(void *, size_t))provided("free_sized");
	void (*free_aligned_sized_)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))provided("free_aligned_sized");
	line("free_sized.provided = %d", free_sized_ != NULL);
	line("free_aligned_sized.provided = %d", free_aligned_sized_ != NULL);
	if (free_sized_ && free_aligned_sized_) {
		errno = SENTINEL;
		free_sized_(NULL, 8);
		free_aligned_sized_(NULL, 64, 8);
		/* Again and again: a wrong class would hand out overlapping blocks. */
		for (int round = 0; round < 2000; round++) {
			for (size_t size = 1; size < 70000; size = size * 5 / 3 + 1) {
				void *plain = malloc(size), *other = aligned_alloc(64, size);
				MUST(plain && other);
				fill(plain, size, 1);
				fill(other, size, 2);
				MUST(damaged(plain, size, 1) == 0);
				free_sized_(plain, size);
				MUST(damaged(other, size, 2) == 0);
				free_aligned_sized_(other, 64, size);
			}
		}
		line("free_sized.errno = %s", errno_name(errno));
	}
	return 0;
}

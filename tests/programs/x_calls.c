/* The extended family: mallocx, rallocx, xallocx, sallocx, dallocx, sdallocx, nallocx. The functions are found at run
   time, so the program needs no library at link time. */
#include "fact.h"
#include <malloc.h>

#define LG_ALIGN(lg) (lg)
#define ZERO 0x40
#define TCACHE_NONE 0x100
#define ARENA(index) (((index) + 1) << 20)

static void *(*mallocx)(size_t, int);
static void *(*rallocx)(void *, size_t, int);
static size_t (*xallocx)(void *, size_t, size_t, int);
static size_t (*sallocx)(const void *, int);
static void (*dallocx)(void *, int);
static void (*sdallocx)(void *, size_t, int);
static size_t (*nallocx)(size_t, int);
static int (*mallctl)(const char *, void *, size_t *, void *, size_t);

static void find(void *slot, const char *name)
{
	*(void **)slot = dlsym(RTLD_DEFAULT, name);
	MUST(*(void **)slot != NULL);
}

static void block(const char *name, size_t size, int flags, size_t alignment)
{
	errno = SENTINEL;
	void *at = mallocx(size, flags);
	line("%s.null = %d", name, at == NULL);
	if (at) {
		line("%s.errno = %s", name, errno_name(errno));
		line("%s.usable = %zu", name, sallocx(at, flags));
		line("%s.agrees = %d", name,
		     sallocx(at, flags) == malloc_usable_size(at) && nallocx(size, flags) == sallocx(at, flags));
		if (alignment)
			line("%s.misaligned = %zu", name, (uintptr_t)at % alignment);
		dallocx(at, flags & ~(ZERO | 0x3f));
	}
}

int main(void)
{
	find(&mallocx, "mallocx");
	find(&rallocx, "rallocx");
	find(&xallocx, "xallocx");
	find(&sallocx, "sallocx");
	find(&dallocx, "dallocx");
	find(&sdallocx, "sdallocx");
	find(&nallocx, "nallocx");
	find(&mallctl, "mallctl");
	volatile size_t all = SIZE_MAX;

	block("mallocx(0)", 0, 0, 0);
	block("mallocx(10)", 10, 0, 0);
	block("mallocx(100000)", 100000, 0, 0);
	block("mallocx(1,lg12)", 1, LG_ALIGN(12), 4096);
	block("mallocx(1,lg13)", 1, LG_ALIGN(13), 8192);
	block("mallocx(100,lg21)", 100, LG_ALIGN(21), 1 << 21);
	block("mallocx(SIZE_MAX)", all, 0, 0);
	block("mallocx(1,lg63)", 1, LG_ALIGN(63), 0);
	block("mallocx(100,none)", 100, TCACHE_NONE, 0);
	block("mallocx(100,arena0)", 100, ARENA(0) | TCACHE_NONE, 0);

	/* Zero fill after the same memory was dirty. */
	size_t dirty = 0;
	for (int round = 0; round < 200; round++) {
		size_t size = 16u << (round % 14);
		void *used = mallocx(size, 0);
		MUST(used);
		memset(used, 0xa5, size);
		sdallocx(used, size, 0);
		unsigned char *clean = mallocx(size, ZERO);
		MUST(clean);
		for (size_t i = 0; i < sallocx(clean, 0); i++)
			dirty += clean[i] != 0;
		memset(clean, 0x5a, size);
		sdallocx(clean, size, 0);
	}
	line("zero.dirty bytes = %zu", dirty);

	/* rallocx keeps the content; with ZERO it clears the tail behind the old usable size. */
	unsigned char *at = mallocx(100, 0);
	fill(at, 112, 9);
	at = rallocx(at, 5000, ZERO);
	MUST(at);
	line("rallocx(zero).damaged = %zu", damaged(at, 112, 9));
	dirty = 0;
	for (size_t i = 112; i < 5120; i++)
		dirty += at[i] != 0;
	line("rallocx(zero).dirty tail = %zu", dirty);
	line("rallocx(zero).usable = %zu", sallocx(at, 0));
	errno = SENTINEL;
	line("rallocx(SIZE_MAX).null = %d", rallocx(at, all, 0) == NULL);
	line("rallocx(SIZE_MAX).damaged = %zu", damaged(at, 112, 9));
	line("rallocx(SIZE_MAX).errno = %s", errno_name(errno));
	at = rallocx(at, 3000, LG_ALIGN(11));
	line("rallocx(lg11).misaligned = %zu", (uintptr_t)at % 2048);
	line("rallocx(lg11).damaged = %zu", damaged(at, 112, 9));
	at = rallocx(at, 0, 0);
	line("rallocx(p,0).usable = %zu", sallocx(at, 0));
	dallocx(at, 0);

	/* xallocx never moves. */
	at = mallocx(10, 0);
	errno = SENTINEL;
	line("xallocx(small,100) = %zu", xallocx(at, 100, 0, 0));
	line("xallocx(small,1) = %zu", xallocx(at, 1, 0, 0));
	line("xallocx(small,SIZE_MAX) = %zu", xallocx(at, all, 0, 0));
	line("xallocx(small,10,SIZE_MAX) = %zu", xallocx(at, 10, all, 0));
	line("xallocx.errno = %s", errno_name(errno));
	dallocx(at, 0);
	at = mallocx(100000, 0);
	fill(at, 50000, 4);
	line("xallocx(100000 to 50000) = %zu", xallocx(at, 50000, 0, 0));
	line("xallocx(100000 to 50000).sallocx = %zu", sallocx(at, 0));
	line("xallocx(large to 100) = %zu", xallocx(at, 100, 0, 0));
	size_t before = sallocx(at, 0), grown = xallocx(at, before, 200000, 0);
	line("xallocx(grow).in range = %d", grown >= before && grown <= before + 200000 + 65536);
	line("xallocx(grow).agrees = %d", grown == sallocx(at, 0));
	if (grown > before)
		memset(at + before, 1, grown - before);
	line("xallocx.damaged = %zu", damaged(at, 50000, 4));
	line("xallocx(large,SIZE_MAX).unchanged = %d", xallocx(at, all, 0, 0) == grown);
	sdallocx(at, grown, 0);

	line("nallocx(0) = %zu", nallocx(0, 0));
	line("nallocx(1) = %zu", nallocx(1, 0));
	line("nallocx(SIZE_MAX) = %zu", nallocx(all, 0));
	line("nallocx(1,lg62) = %zu", nallocx(1, LG_ALIGN(62)));
	line("nallocx(1,lg63) = %zu", nallocx(1, LG_ALIGN(63)));

	/* sdallocx takes any size from the request to the usable size. */
	for (int round = 0; round < 3000; round++) {
		size_t request = 1 + (size_t)(round * 37) % 40000;
		int flags = round % 3 ? 0 : LG_ALIGN(7);
		unsigned char *one = mallocx(request, flags), *two = mallocx(request, flags);
		MUST(one && two && one != two);
		fill(one, request, 1);
		fill(two, request, 2);
		MUST(damaged(one, request, 1) == 0);
		sdallocx(one, request, flags);
		MUST(damaged(two, request, 2) == 0);
		sdallocx(two, sallocx(two, flags), flags);
	}
	line("sdallocx.rounds = 3000");

	/* An arena index made by arenas.create takes part. */
	unsigned arena = 0;
	size_t length = sizeof arena;
	int result = mallctl("arenas.create", &arena, &length, NULL, 0);
	if (result == 0) {
		void *blocks[100];
		for (int i = 0; i < 100; i++) {
			blocks[i] = mallocx(1000, (int)ARENA(arena) | TCACHE_NONE);
			MUST(blocks[i]);
			fill(blocks[i], 1000, (unsigned)i);
		}
		size_t wrong = 0;
		for (int i = 0; i < 100; i++) {
			wrong += damaged(blocks[i], 1000, (unsigned)i);
			dallocx(blocks[i], TCACHE_NONE);
		}
		line("arena.damaged = %zu", wrong);
	}
	line("arenas.create = %d", result);
	return 0;
}

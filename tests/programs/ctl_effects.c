/* What writing to the control tree does, seen from the program. Linked against nothing: the library is preloaded. */
#include "fact.h"
#include "jemalloc/jemalloc.h"
#include <pthread.h>

static int (*ctl)(const char *, void *, size_t *, void *, size_t);
static int (*to_mib)(const char *, size_t *, size_t *);
static int (*by_mib)(const size_t *, size_t, void *, size_t *, void *, size_t);
static void *(*mallocx_)(size_t, int);
static void (*dallocx_)(void *, int);

static size_t get(const char *name, size_t size)
{
	size_t value = 0, length = size;
	int rc = ctl(name, &value, &length, NULL, 0);
	if (rc)
		line("failed %s = %d", name, rc);
	return value;
}

static int set(const char *name, size_t value, size_t size)
{
	return ctl(name, NULL, NULL, &value, size);
}

static void refresh(void)
{
	MUST(set("epoch", 1, 8) == 0);
}

static void *other_thread(void *unused)
{
	(void)unused;
	line("other.tcache.enabled = %zu", get("thread.tcache.enabled", 1));
	uint64_t before = get("thread.allocated", 8);
	void *volatile p = malloc(1 << 20);
	line("other.allocated.grows = %d", get("thread.allocated", 8) - before >= 1 << 20);
	free(p);
	return NULL;
}

int main(void)
{
	ctl = (int (*)(const char *, void *, size_t *, void *, size_t))provided("mallctl");
	to_mib = (int (*)(const char *, size_t *, size_t *))provided("mallctlnametomib");
	by_mib = (int (*)(const size_t *, size_t, void *, size_t *, void *, size_t))provided("mallctlbymib");
	mallocx_ = (void *(*)(size_t, int))provided("mallocx");
	dallocx_ = (void (*)(void *, int))provided("dallocx");
	MUST(ctl && to_mib && by_mib && mallocx_ && dallocx_);

	const char *version;
	size_t length = sizeof version;
	MUST(ctl("version", &version, &length, NULL, 0) == 0);
	line("version = %s", version);
	line("header.version = %s", JEMALLOC_VERSION);

	/* Counters of the thread: values and addresses agree, usable sizes. */
	uint64_t *allocated = (uint64_t *)get("thread.allocatedp", 8);
	uint64_t *deallocated = (uint64_t *)get("thread.deallocatedp", 8);
	uint64_t a = *allocated, d = *deallocated;
	void *volatile block = malloc(100000);
	line("allocated = %lu", (unsigned long)(*allocated - a));
	line("allocated.same = %d", get("thread.allocated", 8) == *allocated);
	free(block);
	line("deallocated.same = %d", *deallocated - d == *allocated - a && get("thread.deallocated", 8) == *deallocated);

	/* Statistics stand still between epochs. */
	refresh();
	size_t epoch = get("epoch", 8), before = get("stats.allocated", 8), active = get("stats.active", 8);
	block = malloc(64 << 20);
	memset(block, 1, 64 << 20);
	line("stats.frozen = %d", get("stats.allocated", 8) == before);
	size_t live = get("approximate_stats.active", 8);
	line("approximate.is live = %d", live >= active + (64 << 20) - (1 << 20));
	refresh();
	line("epoch.step = %zu", get("epoch", 8) - epoch);
	size_t after = get("stats.allocated", 8);
	line("stats.allocated.grows = %d", after >= before + (64 << 20) && after < before + (66 << 20));
	line("stats.order = %d", get("stats.allocated", 8) <= get("stats.active", 8) &&
		get("stats.active", 8) <= get("stats.mapped", 8) && get("stats.resident", 8) >= 64 << 20 &&
		get("stats.metadata", 8) > 0);
	free(block);
	refresh();
	line("stats.allocated.falls = %d", get("stats.allocated", 8) < after - (60 << 20));

	/* realloc to nothing is counted, at once. */
	size_t zero = get("stats.zero_reallocs", 8);
	block = malloc(10);
	MUST(realloc(block, 0) == NULL);
	line("zero_reallocs = %zu", get("stats.zero_reallocs", 8) - zero);

	/* Arenas: made, used, named by pointer; the thread moves and comes back. */
	unsigned count = (unsigned)get("arenas.narenas", 4);
	unsigned made = (unsigned)get("arenas.create", 4);
	line("arenas.create = %d", made == count);
	line("arenas.narenas = %d", get("arenas.narenas", 4) == count + 1);
	void *mine = mallocx_(5000, MALLOCX_ARENA(made) | MALLOCX_TCACHE_NONE);
	MUST(mine);
	unsigned found = ~0u;
	length = sizeof found;
	line("arenas.lookup.rc = %d", ctl("arenas.lookup", &found, &length, &mine, sizeof mine));
	line("arenas.lookup = %d", found == made);
	dallocx_(mine, MALLOCX_TCACHE_NONE);
	unsigned old = ~0u;
	length = sizeof old;
	line("thread.arena.rc = %d", ctl("thread.arena", &old, &length, &made, sizeof made));
	line("thread.arena = %d", get("thread.arena", 4) == made && old != made);
	void *moved = malloc(300000);
	length = sizeof found;
	MUST(ctl("arenas.lookup", &found, &length, &moved, sizeof moved) == 0);
	line("moved.arena = %d", found == made);
	free(moved);
	MUST(set("thread.arena", old, 4) == 0);
	line("thread.arena.back = %d", get("thread.arena", 4) == old);
	line("thread.arena.bad = %d", set("thread.arena", 4000, 4));

	/* Decay: of one arena, and the default of those made later. */
	char name[64];
	snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", made);
	line("decay.set = %d", set(name, 1234, 8));
	line("decay.get = %zd", (ssize_t)get(name, 8));
	line("decay.low = %d", set(name, (size_t)-2, 8));
	line("decay.high = %d", set(name, 18446744072001, 8));
	line("decay.kept = %zd", (ssize_t)get(name, 8));
	line("decay.default.set = %d", set("arenas.dirty_decay_ms", 777, 8));
	line("decay.default.get = %zd", (ssize_t)get("arenas.dirty_decay_ms", 8));
	line("decay.default.bad = %d", set("arenas.muzzy_decay_ms", (size_t)-2, 8));
	unsigned later = (unsigned)get("arenas.create", 4);
	snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", later);
	line("decay.later = %zd", (ssize_t)get(name, 8));
	line("decay.all = %d", set("arena.4096.dirty_decay_ms", 5, 8));

	/* Purging gives resident memory back. */
	block = malloc(256 << 20);
	memset(block, 1, 256 << 20);
	refresh();
	size_t resident = get("stats.resident", 8);
	free(block);
	line("purge = %d", ctl("arena.4096.purge", NULL, NULL, NULL, 0));
	refresh();
	line("purge.resident.falls = %d", get("stats.resident", 8) + (200 << 20) < resident);
	line("decay.now = %d", ctl("arena.0.decay", NULL, NULL, NULL, 0));

	/* Thread caches: the thread's own, and explicit ones. */
	_Bool off = 0, on = 1, was = 9;
	length = 1;
	line("tcache.off.rc = %d", ctl("thread.tcache.enabled", &was, &length, &off, 1));
	line("tcache.was = %d", was);
	line("tcache.enabled = %zu", get("thread.tcache.enabled", 1));
	line("tcache.flush.off = %d", ctl("thread.tcache.flush", NULL, NULL, NULL, 0));
	for (int i = 0; i < 1000; i++) {
		void *volatile p = malloc((size_t)i);
		free(p);
	}
	MUST(ctl("thread.tcache.enabled", NULL, NULL, &on, 1) == 0);
	line("tcache.enabled.again = %zu", get("thread.tcache.enabled", 1));
	line("tcache.flush = %d", ctl("thread.tcache.flush", NULL, NULL, NULL, 0));
	line("idle = %d", ctl("thread.idle", NULL, NULL, NULL, 0));
	unsigned cache = ~0u;
	length = 4;
	line("tcache.create = %d", ctl("tcache.create", &cache, &length, NULL, 0));
	for (int i = 0; i < 1000; i++) {
		void *p = mallocx_(64, MALLOCX_TCACHE(cache));
		MUST(p);
		memset(p, i, 64);
		dallocx_(p, MALLOCX_TCACHE(cache));
	}
	line("tcache.flush.one = %d", set("tcache.flush", cache, 4));
	void *p = mallocx_(64, MALLOCX_TCACHE(cache));
	dallocx_(p, MALLOCX_TCACHE(cache));
	line("tcache.destroy = %d", set("tcache.destroy", cache, 4));
	unsigned again = ~0u;
	length = 4;
	MUST(ctl("tcache.create", &again, &length, NULL, 0) == 0);
	line("tcache.reused = %d", again == cache);
	MUST(set("tcache.destroy", again, 4) == 0);

	pthread_t thread;
	MUST(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	pthread_join(thread, NULL);

	/* A prefix mib is completed by hand, as programs that loop over indexes do. */
	size_t mib[4], depth = 4;
	MUST(to_mib("arenas.bin.0.size", mib, &depth) == 0);
	size_t sum = 0, bins = get("arenas.nbins", 4);
	for (size_t i = 0; i < bins; i++) {
		size_t size;
		mib[2] = i;
		length = sizeof size;
		MUST(by_mib(mib, depth, &size, &length, NULL, 0) == 0);
		sum += size;
	}
	line("bins.sum = %zu", sum);
	mib[2] = bins;
	size_t size;
	length = sizeof size;
	line("bins.beyond = %d", by_mib(mib, depth, &size, &length, NULL, 0));
	line("mib.short = %d", by_mib(mib, 3, &size, &length, NULL, 0));
	line("mib.none = %d", by_mib(mib, 0, &size, &length, NULL, 0));
	depth = 2;
	line("mib.cut = %d", to_mib("arenas.bin.0.size", mib, &depth));
	line("mib.cut.depth = %zu", depth);
	depth = 0;
	line("mib.nothing = %d", to_mib("arenas.bin.0.size", mib, &depth));
	errno = SENTINEL;
	ctl("nothing", NULL, NULL, NULL, 0);
	line("errno = %s", errno_name(errno));
	return 0;
}

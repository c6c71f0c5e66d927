/* Threads that allocate and free at random, on order: what is live changes all the time until "pause".

   input     does                              prints
   run       lets all threads work             done
   pause     stops them between two calls      done
   quit      ends                                                                  */
#include "fact.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define SLOTS 4096

static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic(void *) slots[SLOTS];

__attribute__((noinline)) static void *small(uint64_t r) { return malloc(16 + r % 200); }
__attribute__((noinline)) static void *middle(uint64_t r) { return malloc(1000 + r % 5000); }
__attribute__((noinline)) static void *large(uint64_t r) { return malloc(20000 + r % 100000); }

static void *work(void *seed)
{
	uint64_t r = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
	for (;;) {
		pthread_rwlock_rdlock(&gate);
		for (int i = 0; i < 64; i++) {
			r ^= r << 13, r ^= r >> 7, r ^= r << 17;
			char *block = NULL;
			if (r >> 60)
				block = r % 10 ? (r % 3 ? small(r >> 8) : middle(r >> 8)) : large(r >> 8);
			if (block)
				block[0] = 1;
			/* The slot may have been filled by another thread, which then sees its block freed here. */
			free(atomic_exchange(&slots[(r >> 20) % SLOTS], block));
		}
		pthread_rwlock_unlock(&gate);
	}
	return NULL;
}

int main(void)
{
	char text[32];
	pthread_t thread;
	pthread_rwlockattr_t fair;
	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	MUST(pthread_rwlock_init(&gate, &fair) == 0);
	MUST(pthread_rwlock_wrlock(&gate) == 0);
	for (uintptr_t i = 1; i <= THREADS; i++)
		MUST(pthread_create(&thread, NULL, work, (void *)i) == 0);
	line("ready");
	int running = 0;
	while (hear(text, sizeof text)) {
		if (!strcmp(text, "quit"))
			_exit(0);
		int run = !strcmp(text, "run");
		if (run && !running)
			pthread_rwlock_unlock(&gate);
		if (!run && running)
			pthread_rwlock_wrlock(&gate);
		running = run;
		line("done");
	}
	return 0;
}

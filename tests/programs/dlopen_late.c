/* A running program opens the library given as its argument and uses it beside its own allocator; then opens a plugin with
   RTLD_DEEPBIND when a second argument names one. */
#include "fact.h"
#include <malloc.h>
#include <pthread.h>

static void *(*mallocx)(size_t, int);
static void *(*rallocx)(void *, size_t, int);
static void (*dallocx)(void *, int);
static size_t (*sallocx)(const void *, int);

static void *worker(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	void *blocks[200];
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 200; i++) {
			size_t size = 1 + (size_t)(i * 97 + round * 13) % 30000;
			blocks[i] = mallocx(size, 0);
			MUST(blocks[i] && sallocx(blocks[i], 0) >= size);
			fill(blocks[i], size < 500 ? size : 500, seed + (unsigned)i);
		}
		for (int i = 0; i < 200; i++) {
			size_t size = 1 + (size_t)(i * 97 + round * 13) % 30000;
			MUST(damaged(blocks[i], size < 500 ? size : 500, seed + (unsigned)i) == 0);
			if (i % 3 == 0)
				MUST((blocks[i] = rallocx(blocks[i], size * 2, 0)));
			dallocx(blocks[i], 0);
		}
	}
	return NULL;
}

int main(int count, char **arguments)
{
	MUST(count >= 2);
	void *own = malloc(1000);
	fill(own, 1000, 1);
	void *handle = dlopen(arguments[1], RTLD_NOW | (count > 2 && !strcmp(arguments[2], "deepbind") ? RTLD_DEEPBIND : 0));
	if (!handle)
		dprintf(2, "%s\n", dlerror());
	MUST(handle);
	*(void **)&mallocx = dlsym(handle, "mallocx");
	*(void **)&rallocx = dlsym(handle, "rallocx");
	*(void **)&dallocx = dlsym(handle, "dallocx");
	*(void **)&sallocx = dlsym(handle, "sallocx");
	MUST(mallocx && rallocx && dallocx && sallocx);
	worker((void *)1);
	pthread_t threads[4];
	for (uintptr_t i = 0; i < 4; i++)
		MUST(pthread_create(&threads[i], NULL, worker, (void *)(i * 1000)) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	line("own.damaged = %zu", damaged(own, 1000, 1));
	own = realloc(own, 50000);
	MUST(own);
	free(own);
	/* Its memory stays valid whatever dlclose does, and the process ends well. */
	char *kept = mallocx(100, 0);
	MUST(kept);
	strcpy(kept, "kept");
	line("dlclose = %d", dlclose(handle));
	line("kept = %s", kept);
	line("works = 1");
	return 0;
}

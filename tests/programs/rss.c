/* Resident memory before, at the height of, and after using 400 MiB of small and large blocks, freed partly by another
   thread; then after purging through mallctl; then after waiting out a short decay by allocating a little. */
#include "fact.h"
#include <pthread.h>

static size_t resident(void)
{
	char text[128] = {0};
	FILE *file = fopen("/proc/self/statm", "r");
	MUST(file && fgets(text, sizeof text, file));
	fclose(file);
	size_t total, pages;
	MUST(sscanf(text, "%zu %zu", &total, &pages) == 2);
	return pages * 4096 >> 20;
}

#define SMALL 1600000
#define LARGE 100

static void **small;
static void *large[LARGE];

static void *free_half(void *argument)
{
	(void)argument;
	for (int i = 0; i < SMALL / 2; i++)
		free(small[i]);
	for (int i = 0; i < LARGE / 2; i++)
		free(large[i]);
	return NULL;
}

int main(int count, char **arguments)
{
	int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
		(int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	MUST(mallctl);
	line("before = %zu", resident());
	small = malloc(SMALL * sizeof *small);
	for (int i = 0; i < SMALL; i++) {
		small[i] = malloc(128);
		MUST(small[i]);
		memset(small[i], 1, 128);
	}
	for (int i = 0; i < LARGE; i++) {
		large[i] = malloc(2u << 20);
		MUST(large[i]);
		memset(large[i], 1, 2u << 20);
	}
	line("height = %zu", resident());
	pthread_t other;
	MUST(pthread_create(&other, NULL, free_half, NULL) == 0);
	pthread_join(other, NULL);
	for (int i = SMALL / 2; i < SMALL; i++)
		free(small[i]);
	for (int i = LARGE / 2; i < LARGE; i++)
		free(large[i]);
	free(small);
	if (count > 1 && !strcmp(arguments[1], "purge")) {
		MUST(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
		MUST(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
		line("after = %zu", resident());
	} else {
		/* Time passes only by work here: the decay clock is read on the allocation path. */
		struct timespec start, now;
		clock_gettime(CLOCK_MONOTONIC, &start);
		do {
			for (int i = 0; i < 1000; i++)
				free(malloc((size_t)(16 + i % 3000)));
			free(malloc(100000));
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (now.tv_sec - start.tv_sec < 3);
		line("after = %zu", resident());
	}
	return 0;
}

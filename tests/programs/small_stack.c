/* Threads with the smallest stack that pthread allows here (16 KiB): every entry point must fit, with the sampler at
   work too when the environment says so. */
#include "fact.h"
#include <malloc.h>
#include <pthread.h>

static void *worker(void *argument)
{
	(void)argument;
	for (size_t size = 1; size < 200000; size = size * 3 / 2 + 1) {
		char *block = malloc(size);
		MUST(block);
		block[0] = block[size - 1] = 1;
		block = realloc(block, size * 2);
		MUST(block && block[0] == 1);
		free(block);
		void *aligned = NULL;
		MUST(posix_memalign(&aligned, 256, size) == 0);
		free(aligned);
		free(calloc(size, 2));
	}
	return NULL;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	MUST(pthread_attr_setstacksize(&attributes, 16384) == 0);
	for (int round = 0; round < 50; round++) {
		pthread_t threads[8];
		for (int i = 0; i < 8; i++)
			MUST(pthread_create(&threads[i], &attributes, worker, NULL) == 0);
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
	}
	line("threads = 400");
	return 0;
}

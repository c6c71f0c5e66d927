/* Threads that take pictures of the statistics, move between arenas and flush while the main thread forks; each child
   uses the control tree itself. */
#include "fact.h"
#include <pthread.h>
#include <sys/wait.h>

static int (*ctl)(const char *, void *, size_t *, void *, size_t);
static volatile int stop;

static int exercise(unsigned arena)
{
	uint64_t epoch = 1;
	size_t length = sizeof epoch;
	if (ctl("epoch", &epoch, &length, &epoch, sizeof epoch) || ctl("thread.arena", NULL, NULL, &arena, sizeof arena))
		return 1;
	void *volatile p = malloc(5000);
	free(p);
	return ctl("thread.tcache.flush", NULL, NULL, NULL, 0) || ctl("arena.4096.decay", NULL, NULL, NULL, 0);
}

static void *busy(void *unused)
{
	(void)unused;
	for (unsigned i = 0; !stop; i++)
		MUST(exercise(i % 2) == 0);
	return NULL;
}

int main(void)
{
	ctl = (int (*)(const char *, void *, size_t *, void *, size_t))provided("mallctl");
	MUST(ctl);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		MUST(pthread_create(&threads[i], NULL, busy, NULL) == 0);
	int good = 0;
	for (int i = 0; i < 200; i++) {
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0) {
			alarm(20);
			_exit(exercise(0) || exercise(1));
		}
		int status;
		MUST(waitpid(child, &status, 0) == child);
		good += status == 0;
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	line("children = %d", good);
	return 0;
}

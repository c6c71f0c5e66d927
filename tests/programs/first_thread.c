/* A second thread does what it hears on standard input; the first one may end before it.

   input     does                                          prints
   N         holds N blocks of 100,000 bytes more          done
   leave     ends the first thread                         done
   next      has a third thread take over from the second, which ends       done
   exec      executes the program again                    ready                      */
#include "fact.h"
#include <pthread.h>
#include <semaphore.h>

static sem_t leave;
static pthread_t first;

static void *work(void *unused)
{
	char heard[64];
	(void)unused;
	while (hear(heard, sizeof heard)) {
		if (!strcmp(heard, "exec")) {
			execl("/proc/self/exe", "first_thread", (char *)NULL);
			_exit(97);
		}
		if (!strcmp(heard, "leave")) {
			MUST(sem_post(&leave) == 0);
			MUST(pthread_join(first, NULL) == 0);
		} else if (!strcmp(heard, "next")) {
			pthread_t next;
			line("done");
			MUST(pthread_create(&next, NULL, work, NULL) == 0);
			return NULL;
		}
		for (int i = atoi(heard); i > 0; i--)
			MUST(malloc(100000) != NULL);
		line("done");
	}
	_exit(0);
}

int main(void)
{
	pthread_t second;
	MUST(sem_init(&leave, 0, 0) == 0);
	first = pthread_self();
	MUST(pthread_create(&second, NULL, work, NULL) == 0);
	line("ready");
	while (sem_wait(&leave) != 0)
		;
	pthread_exit(NULL);
}

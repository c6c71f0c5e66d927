/* A thousand forks from a process whose eight threads allocate without pause. Each child allocates, frees blocks that it
   inherited, starts a thread and exits; a child stuck on a lock that died with the fork never ends. */
#include "fact.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static atomic_int stop;
static atomic_ulong operations;
static void *inherited[64];

static void churn(unsigned seed, int rounds)
{
	void *blocks[64] = {0};
	size_t sizes[64] = {0};
	unsigned long state = seed;
	for (int i = 0; i < rounds; i++) {
		state = state * 6364136223846793005UL + 1442695040888963407UL;
		unsigned slot = (unsigned)(state >> 58);
		size_t size = 1 + ((state >> 30) & ((1u << (4 + (state >> 54 & 15) % 13)) - 1));
		if (blocks[slot])
			MUST(damaged(blocks[slot], sizes[slot] < 32 ? sizes[slot] : 32, slot) == 0);
		free(blocks[slot]);
		blocks[slot] = malloc(size);
		MUST(blocks[slot]);
		sizes[slot] = size;
		fill(blocks[slot], size < 32 ? size : 32, slot);
	}
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
}

static void *worker(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	/* Behind the main thread and the children, which would otherwise wait for eight time slices each. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
	while (!atomic_load(&stop)) {
		churn(seed++, 500);
		atomic_fetch_add(&operations, 500);
	}
	return NULL;
}

static void *child_thread(void *argument)
{
	churn((unsigned)(uintptr_t)argument, 200);
	return NULL;
}

int main(int count, char **arguments)
{
	int forks = count > 1 ? atoi(arguments[1]) : 1000;
	pthread_t threads[8];
	for (uintptr_t i = 0; i < 8; i++)
		MUST(pthread_create(&threads[i], NULL, worker, (void *)(i * 1000 + 1)) == 0);
	for (int i = 0; i < 64; i++) {
		inherited[i] = malloc((size_t)(1 << (i % 20)));
		MUST(inherited[i]);
	}
	int good = 0;
	for (int i = 0; i < forks; i++) {
		pid_t pid = fork();
		MUST(pid >= 0);
		if (pid == 0) {
			alarm(30);
			for (int k = 0; k < 64; k++)
				free(inherited[k]);
			churn((unsigned)i, 300);
			if (i % 10 == 0) {
				pthread_t thread;
				MUST(pthread_create(&thread, NULL, child_thread, NULL) == 0);
				pthread_join(thread, NULL);
			}
			if (i % 50 == 0) {
				pid_t grandchild = fork();
				MUST(grandchild >= 0);
				if (grandchild == 0) {
					churn((unsigned)i + 7, 100);
					_exit(0);
				}
				int status = 1;
				MUST(waitpid(grandchild, &status, 0) == grandchild && status == 0);
			}
			if (i % 2)
				_exit(0);
			exit(0);
		}
		int status = 1;
		MUST(waitpid(pid, &status, 0) == pid);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	line("good children = %d", good);

	int spawned = 0;
	for (int i = 0; i < 50; i++) {
		pid_t pid;
		char *command[] = {"/bin/true", NULL};
		MUST(posix_spawn(&pid, command[0], NULL, NULL, command, environ) == 0);
		int status = 1;
		MUST(waitpid(pid, &status, 0) == pid);
		spawned += status == 0;
		pid = vfork();
		if (pid == 0) {
			execv(command[0], command);
			_exit(1);
		}
		MUST(waitpid(pid, &status, 0) == pid);
		spawned += status == 0;
	}
	line("spawned = %d", spawned);
	atomic_store(&stop, 1);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	line("parent worked = %d", atomic_load(&operations) > 10000);
	return 0;
}

/* Twenty sites of known bytes, 16 B to 64 MiB, through every C entry point; some objects are made by a second thread and
   some freed by another one. Commands on standard input:

   scale N      makes an N-th of the objects from now on, prints `scaled`
   allocate     does it all, prints `site NAME SIZE USABLE LIVE TOTAL` for each site, then `allocated`
   free         frees what is left, prints `freed`
   dump PATH    mallctl("prof.dump", PATH), prints `dump RESULT`
   threads      starts and ends 200 threads that allocate a little, prints `threads done`
   fork         forks a child that allocates, frees and exits, prints `child STATUS`
   exec         replaces itself by the program in its second argument (same protocol)
   exit         (or the end of input) ends the process with its objects live

   `ready` says that it listens. No site is inlined or tail-called, so each is a frame of its own. */
#include "fact.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#define SITES 20

struct object {
	struct object *next;
};

typedef void *maker(size_t size);

/* Keeps the call from becoming a jump. */
#define KEEP(block) __asm__ volatile("" : : "r"(block) : "memory")

#define SITE(name, expression)                                                                     \
	__attribute__((noinline, noclone)) void *name(size_t size);                                \
	void *name(size_t size)                                                                    \
	{                                                                                          \
		void *block = (expression);                                                        \
		KEEP(block);                                                                       \
		return block;                                                                      \
	}

static void *by_posix_memalign(size_t alignment, size_t size)
{
	void *block = NULL;
	return posix_memalign(&block, alignment, size) ? NULL : block;
}

SITE(site_00, malloc(size))
SITE(site_01, malloc(size))
SITE(site_02, calloc(1, size))
SITE(site_03, malloc(size))
SITE(site_04, realloc(NULL, size))
SITE(site_05, aligned_alloc(64, size))
SITE(site_06, malloc(size))
SITE(site_07, calloc(size / 8, 8))
SITE(site_08, by_posix_memalign(128, size))
SITE(site_09, malloc(size))
SITE(site_10, memalign(4096, size))
SITE(site_11, malloc(size))
SITE(site_12, realloc(malloc(100), size))
SITE(site_13, malloc(size))
SITE(site_14, calloc(1, size))
SITE(site_15, malloc(size))
SITE(site_16, realloc(malloc(5000), size))
SITE(site_17, malloc(size))
SITE(site_18, by_posix_memalign(4096, size))
SITE(site_19, malloc(size))

static struct site {
	const char *name;
	maker *make;
	size_t size;
	size_t total;  /* objects made */
	int frees;     /* 0: none, n: every n-th object is freed again by its maker */
	int remote;    /* n: every n-th of those left is freed by the other thread */
	int elsewhere; /* made by the second thread */
	struct object *live;
	size_t count, usable;
} sites[SITES] = {
	{"site_00", site_00, 16, 1200000, 0, 3, 0, 0, 0, 0},
	{"site_01", site_01, 30, 600000, 4, 0, 0, 0, 0, 0},
	{"site_02", site_02, 48, 400000, 0, 0, 1, 0, 0, 0},
	{"site_03", site_03, 100, 200000, 0, 2, 0, 0, 0, 0},
	{"site_04", site_04, 160, 120000, 5, 0, 0, 0, 0, 0},
	{"site_05", site_05, 256, 80000, 0, 4, 1, 0, 0, 0},
	{"site_06", site_06, 400, 50000, 0, 0, 0, 0, 0, 0},
	{"site_07", site_07, 640, 30000, 2, 3, 0, 0, 0, 0},
	{"site_08", site_08, 1000, 24000, 0, 0, 1, 0, 0, 0},
	{"site_09", site_09, 2048, 12000, 3, 0, 0, 0, 0, 0},
	{"site_10", site_10, 4096, 5000, 0, 2, 0, 0, 0, 0},
	{"site_11", site_11, 6000, 4000, 0, 0, 0, 0, 0, 0},
	{"site_12", site_12, 10000, 2400, 6, 0, 0, 0, 0, 0},
	{"site_13", site_13, 16384, 1500, 0, 5, 1, 0, 0, 0},
	{"site_14", site_14, 30000, 800, 0, 0, 0, 0, 0, 0},
	{"site_15", site_15, 100000, 400, 2, 0, 0, 0, 0, 0},
	{"site_16", site_16, 300000, 150, 0, 3, 0, 0, 0, 0},
	{"site_17", site_17, 1 << 20, 60, 0, 0, 1, 0, 0, 0},
	{"site_18", site_18, 8 << 20, 12, 0, 4, 0, 0, 0, 0},
	{"site_19", site_19, 64 << 20, 4, 2, 0, 0, 0, 0, 0},
};

/* Frees every n-th object of the list. */
static void thin(struct site *site, int n)
{
	struct object **link = &site->live;
	for (size_t i = 1; *link; i++) {
		struct object *object = *link;
		if (i % (size_t)n == 0) {
			*link = object->next;
			free(object);
			site->count--;
		} else {
			link = &object->next;
		}
	}
}

static void populate(int elsewhere)
{
	/* In turns, so that sites mix within a thread's stream of bytes. */
	for (size_t step = 0; step < 100; step++) {
		for (int i = 0; i < SITES; i++) {
			struct site *site = &sites[i];
			if (site->elsewhere != elsewhere)
				continue;
			size_t from = site->total * step / 100, to = site->total * (step + 1) / 100;
			for (size_t k = from; k < to; k++) {
				struct object *object = site->make(site->size);
				MUST(object);
				site->usable = malloc_usable_size(object);
				object->next = site->live;
				site->live = object;
				site->count++;
			}
		}
	}
	for (int i = 0; i < SITES; i++)
		if (sites[i].elsewhere == elsewhere && sites[i].frees)
			thin(&sites[i], sites[i].frees);
}

static void *second(void *argument)
{
	(void)argument;
	populate(1);
	return NULL;
}

static void *other(void *argument)
{
	(void)argument;
	for (int i = 0; i < SITES; i++)
		if (sites[i].remote)
			thin(&sites[i], sites[i].remote);
	return NULL;
}

static void run(void *(*body)(void *))
{
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, body, NULL) == 0);
	pthread_join(thread, NULL);
}

static void *brief(void *argument)
{
	void *blocks[50];
	for (size_t i = 0; i < 50; i++)
		blocks[i] = malloc(1000 + i * 100 + (uintptr_t)argument);
	for (size_t i = 0; i < 50; i++)
		free(blocks[i]);
	return NULL;
}

static void free_all(void)
{
	for (int i = 0; i < SITES; i++) {
		while (sites[i].live) {
			struct object *object = sites[i].live;
			sites[i].live = object->next;
			free(object);
		}
		sites[i].count = 0;
	}
}

int main(int count, char **arguments)
{
	char command[512];
	line("ready %d", getpid());
	while (hear(command, sizeof command)) {
		if (!strcmp(command, "allocate")) {
			run(second);
			populate(0);
			run(other);
			for (int i = 0; i < SITES; i++)
				line("site %s %zu %zu %zu %zu", sites[i].name, sites[i].size, sites[i].usable,
				     sites[i].count, sites[i].total);
			line("allocated");
		} else if (!strncmp(command, "scale ", 6)) {
			for (int i = 0; i < SITES; i++)
				sites[i].total = (sites[i].total + (size_t)atoi(command + 6) - 1) / (size_t)atoi(command + 6);
			line("scaled");
		} else if (!strcmp(command, "free")) {
			free_all();
			line("freed");
		} else if (!strncmp(command, "dump ", 5)) {
			int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
				(int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
			MUST(mallctl);
			const char *path = command + 5;
			line("dump %d", mallctl("prof.dump", NULL, NULL, &path, sizeof path));
		} else if (!strcmp(command, "threads")) {
			for (int round = 0; round < 25; round++) {
				pthread_t threads[8];
				for (uintptr_t i = 0; i < 8; i++)
					MUST(pthread_create(&threads[i], NULL, brief, (void *)i) == 0);
				for (int i = 0; i < 8; i++)
					pthread_join(threads[i], NULL);
			}
			line("threads done");
		} else if (!strcmp(command, "fork")) {
			pid_t pid = fork();
			MUST(pid >= 0);
			if (pid == 0) {
				for (uintptr_t i = 0; i < 200; i++)
					brief((void *)i);
				free_all();
				_exit(0);
			}
			int status = -1;
			MUST(waitpid(pid, &status, 0) == pid);
			line("child %d", status);
		} else if (!strcmp(command, "exec")) {
			MUST(count > 1);
			execl(arguments[1], arguments[1], (char *)NULL);
			_exit(97);
		} else if (!strcmp(command, "exit")) {
			break;
		} else {
			line("unknown command %s", command);
		}
	}
	return 0;
}

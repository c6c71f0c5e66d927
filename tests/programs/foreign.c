/* Pointers that the library never gave out: the C library's own blocks, and plain wrong addresses. The argument picks the
   case; the test judges how the process ends. */
#include "fact.h"
#include <malloc.h>

extern void *__libc_malloc(size_t);

static char outside[4096] __attribute__((aligned(64)));

int main(int count, char **arguments)
{
	MUST(count == 2);
	const char *which = arguments[1];
	if (!strcmp(which, "free")) {
		for (int i = 0; i < 1000; i++) {
			void *theirs = __libc_malloc(10 + (size_t)i * 40);
			MUST(theirs);
			memset(theirs, 1, 10);
			free(theirs);
		}
	} else if (!strcmp(which, "realloc")) {
		char *theirs = __libc_malloc(100);
		strcpy(theirs, "kept");
		char *ours = realloc(theirs, 5000);
		MUST(ours);
		line("content = %s", ours);
		free(ours);
	} else if (!strcmp(which, "usable")) {
		void *theirs = __libc_malloc(100);
		line("usable = %d", malloc_usable_size(theirs) < 200);
	} else if (!strcmp(which, "static")) {
		line("before = 1");
		free(outside + 64);
	} else if (!strcmp(which, "stack")) {
		char local[256] __attribute__((aligned(64)));
		line("before = 1");
		memset(local, 0, sizeof local);
		free(local + 64);
	} else if (!strcmp(which, "low")) {
		line("before = 1");
		free((void *)0x40);
	} else if (!strcmp(which, "kernel")) {
		line("before = 1");
		free((void *)0xffffffffff600010);
	} else {
		MUST(!"a known case");
	}
	line("after = 1");
	return 0;
}

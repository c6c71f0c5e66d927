/* Holds 200 blocks of 100,000 bytes from one site. With "exit N" it ends with N, with "kill" it kills itself a second and a
   half later; without arguments each line it hears is a number of blocks to hold more, or, below 0, to free. */
#include "fact.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *kept[20000];
static int count;

static void hold(int n) {
	for (int i = 0; i < n; i++) {
		kept[count] = malloc(100000);
		MUST(kept[count] != NULL);
		count++;
	}
}

static void drop(int n) {
	while (n-- > 0 && count > 0) {
		free(kept[--count]);
	}
}

int main(int argc, char **argv) {
	char heard[64];
	hold(200);
	line("ready");
	if (argc > 2 && strcmp(argv[1], "exit") == 0) {
		return atoi(argv[2]);
	}
	if (argc > 1 && strcmp(argv[1], "kill") == 0) {
		usleep(1500000);
		raise(SIGKILL);
	}
	while (hear(heard, sizeof heard)) {
		int n = atoi(heard);
		hold(n);
		drop(-n);
		line("done");
	}
	return 0;
}

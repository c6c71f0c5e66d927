/* Allocates at named call paths, keeps a known part, and leaves a profile behind (prof_final). The functions are kept
 * apart and out of line, so that every one is a row of a report. */
#include "fact.h"

#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

enum { KEPT = 30000 };
static void *kept[KEPT];
static int used;

static APART void keep(void *block)
{
	MUST(block != NULL && used < KEPT);
	kept[used++] = block;
}

APART void site_small(int count)
{
	for (int i = 0; i < count; i++)
		keep(malloc(48));
}

APART void site_large(int count)
{
	for (int i = 0; i < count; i++)
		keep(calloc(1, 300000));
}

APART void site_grown(int count)
{
	for (int i = 0; i < count; i++) {
		void *block = malloc(100);
		MUST(block != NULL);
		keep(realloc(block, 5000));
	}
}

APART void site_freed(int count)
{
	for (int i = 0; i < count; i++) {
		void *block = malloc(2000);
		MUST(block != NULL);
		memset(block, 1, 2000);
		free(block);
	}
}

APART void caller_mixed(int depth)
{
	if (depth > 0)
		caller_mixed(depth - 1);
	else
		site_small(5000);
	site_grown(20);
}

APART void caller_large(void)
{
	site_large(40);
	site_freed(2000);
}

int main(void)
{
	caller_mixed(3);
	caller_large();
	site_small(10000);
	line("kept = %d", used);
	return 0;
}

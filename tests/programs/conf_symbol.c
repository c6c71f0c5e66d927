/* A program that brings its own configuration. */
#include "fact.h"

const char *malloc_conf = "narenas:3,planted_key:7";

int main(void)
{
	int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
		(int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	MUST(mallctl);
	unsigned count = 0;
	size_t length = sizeof count;
	free(malloc(1));
	line("result = %d", mallctl("opt.narenas", &count, &length, NULL, 0));
	line("opt.narenas = %u", count);
	return 0;
}

/* Loads the plugin named by the argument with RTLD_DEEPBIND, which would bind its malloc and free to the C library's although
   another allocator is preloaded, and passes blocks across in both directions. */
#include "fact.h"
#include <malloc.h>

int main(int count, char **arguments)
{
	MUST(count == 2);
	void *handle = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!handle)
		dprintf(2, "%s\n", dlerror());
	MUST(handle);
	char *(*make)(size_t) = (char *(*)(size_t))dlsym(handle, "plugin_make");
	char *(*copy)(const char *) = (char *(*)(const char *))dlsym(handle, "plugin_copy");
	void (*drop)(void *) = (void (*)(void *))dlsym(handle, "plugin_free");
	MUST(make && copy && drop);
	size_t wrong = 0;
	for (int i = 1; i < 500; i++) {
		/* Made by the plugin, freed and resized here. */
		char *theirs = make((size_t)i * 50);
		MUST(theirs);
		wrong += theirs[i * 50 - 1] != 'p';
		if (i % 2) {
			theirs = realloc(theirs, (size_t)i * 100);
			MUST(theirs);
			wrong += theirs[0] != 'p' || theirs[i * 50 - 1] != 'p';
		}
		free(theirs);
		char *text = copy("a text of the host");
		wrong += strcmp(text, "a text of the host") != 0;
		free(text);

		/* Made here, freed by the plugin. */
		char *ours = malloc((size_t)i * 50);
		MUST(ours);
		memset(ours, 'h', (size_t)i * 50);
		drop(ours);
	}
	line("wrong = %zu", wrong);
	dlclose(handle);
	line("works = 1");
	return 0;
}

/* Opens the library given as its argument, has it allocate, closes it.

   input     does                                                  prints
   load      opens the library                                     done
   N         has the library allocate N blocks of 100,000 bytes    done
   unload    closes it                                             done, or done kept when it is still mapped */
#include "fact.h"

int main(int count, char **arguments)
{
	char heard[64];
	void *handle = NULL;
	MUST(count == 2);
	line("ready");
	while (hear(heard, sizeof heard)) {
		if (!strcmp(heard, "load")) {
			handle = dlopen(arguments[1], RTLD_NOW);
			MUST(handle);
		} else if (!strcmp(heard, "unload")) {
			MUST(dlclose(handle) == 0);
			if (dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD)) {
				line("done kept");
				continue;
			}
		} else {
			char *(*make)(size_t);
			*(void **)&make = dlsym(handle, "plugin_make");
			MUST(make);
			for (int i = atoi(heard); i > 0; i--)
				MUST(make(100000));
		}
		line("done");
	}
	return 0;
}

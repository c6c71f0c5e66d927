/* operator new in a C program. First argument: a plugin in C++, opened with RTLD_LOCAL, so that the runtime is in no
   global scope; "none" calls the operator with no C++ runtime in the process at all. */
#include "fact.h"

int main(int count, char **arguments)
{
	MUST(count == 2);
	free(malloc(1));
	if (strcmp(arguments[1], "none") == 0) {
		void *(*operator_new)(size_t) = (void *(*)(size_t))provided("_Znwm");
		void *(*quiet)(size_t, const void *) = (void *(*)(size_t, const void *))provided("_ZnwmRKSt9nothrow_t");
		MUST(operator_new && quiet);
		line("block = %d", operator_new(100) != NULL);
		line("quiet = %d", quiet((size_t)1 << 60, "") != NULL);
		operator_new((size_t)1 << 60);
		line("returned = 1");
		return 0;
	}
	void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
	MUST(plugin);
	int (*throwing)(void) = (int (*)(void))dlsym(plugin, "failing_new");
	int (*quiet)(void) = (int (*)(void))dlsym(plugin, "failing_quiet_new");
	MUST(throwing && quiet);
	line("throwing = %d", throwing());
	line("quiet = %d", quiet());
	return 0;
}

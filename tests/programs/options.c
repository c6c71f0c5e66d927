/* Reads the options named as arguments (name:type, type b, u, z, s or i) and prints them. */
#include "fact.h"
#include <sys/types.h>

int main(int count, char **arguments)
{
	int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
		(int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	MUST(mallctl);
	for (int i = 1; i < count; i++) {
		char *name = arguments[i], *type = strchr(name, ':');
		MUST(type);
		*type++ = 0;
		union {
			_Bool b;
			unsigned u;
			size_t z;
			ssize_t i;
			const char *s;
		} value = {0};
		size_t length = *type == 'b' ? 1 : *type == 'u' ? 4 : 8;
		int result = mallctl(name, &value, &length, NULL, 0);
		if (result)
			line("%s = error %d", name, result);
		else if (*type == 'b')
			line("%s = %s", name, value.b ? "true" : "false");
		else if (*type == 'u')
			line("%s = %u", name, value.u);
		else if (*type == 'z')
			line("%s = %zu", name, value.z);
		else if (*type == 'i')
			line("%s = %zd", name, value.i);
		else
			line("%s = %s", name, value.s);
	}
	return 0;
}

/* What every control name answers to every kind of call, as lines `NAME CALL = RC LEN`. The names are the arguments; one
   of the form !NAME is only looked up and called without arguments, because a write would need a value that means
   something. Values are never printed: the same lines are expected from every library that knows the name. */
#include "fact.h"

typedef int (*ctl_fn)(const char *, void *, size_t *, void *, size_t);
typedef int (*mib_fn)(const char *, size_t *, size_t *);
typedef int (*bymib_fn)(const size_t *, size_t, void *, size_t *, void *, size_t);

static ctl_fn ctl;
static mib_fn to_mib;
static bymib_fn by_mib;

static const char *name_of(int rc)
{
	switch (rc) {
	case 0: return "0";
	case EPERM: return "EPERM";
	case ENOENT: return "ENOENT";
	case EAGAIN: return "EAGAIN";
	case ENOMEM: return "ENOMEM";
	case EFAULT: return "EFAULT";
	case EINVAL: return "EINVAL";
	default: return "other";
	}
}

static void battery(const char *name, int only_null)
{
	unsigned char old[32], value[32] = {0};
	size_t mib[7], depth = 7, len, exact = 0;
	int rc = to_mib(name, mib, &depth);
	line("%s mib = %s %zu", name, name_of(rc), rc ? 0 : depth);
	line("%s null = %s", name, name_of(ctl(name, NULL, NULL, NULL, 0)));
	if (rc == 0)
		line("%s null by mib = %s", name, name_of(by_mib(mib, depth, NULL, NULL, NULL, 0)));
	if (only_null)
		return;
	static const size_t sizes[] = {0, 1, 3, 4, 8, 16};
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		memset(old, 0xee, sizeof old);
		len = sizes[i];
		rc = ctl(name, old, &len, NULL, 0);
		size_t touched = 0;
		for (size_t at = 0; at < sizeof old; at++)
			if (old[at] != 0xee)
				touched = at + 1;
		MUST(touched <= sizes[i]);
		line("%s read %zu = %s %zu", name, sizes[i], name_of(rc), len);
		if (rc == 0 && sizes[i] != 0) {
			exact = sizes[i];
			memcpy(value, old, sizeof value);
		}
	}
	len = 8;
	line("%s room only = %s %zu", name, name_of(ctl(name, NULL, &len, NULL, 0)), len);
	line("%s old only = %s", name, name_of(ctl(name, old, NULL, NULL, 0)));
	line("%s newlen only = %s", name, name_of(ctl(name, NULL, NULL, NULL, 8)));
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i] != exact)
			line("%s write %zu = %s", name, sizes[i], name_of(ctl(name, NULL, NULL, value, sizes[i])));
	if (exact == 0)
		return;
	line("%s write back = %s", name, name_of(ctl(name, NULL, NULL, value, exact)));
	len = exact;
	line("%s exchange = %s %zu", name, name_of(ctl(name, old, &len, value, exact)), len);
	len = exact + 1;
	line("%s exchange long = %s %zu", name, name_of(ctl(name, old, &len, value, exact)), len);
	len = exact;
	line("%s exchange wrong new = %s %zu", name, name_of(ctl(name, old, &len, value, exact + 1)), len);
}

int main(int argc, char **argv)
{
	ctl = (ctl_fn)provided("mallctl");
	to_mib = (mib_fn)provided("mallctlnametomib");
	by_mib = (bymib_fn)provided("mallctlbymib");
	MUST(ctl && to_mib && by_mib);
	free(malloc(1));
	for (int i = 1; i < argc; i++)
		battery(argv[i] + (argv[i][0] == '!'), argv[i][0] == '!');
	return 0;
}

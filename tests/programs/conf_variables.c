/* A program that brings all three variables: its options, the options above all others, and a reader of messages. */
#include "fact.h"
#include "jemalloc/jemalloc.h"

const char *malloc_conf = "narenas:3,dirty_decay_ms:1,planted_low:1";
const char *malloc_conf_2_conf_harder = "dirty_decay_ms:2,planted_high:1,prof:true";

static int messages, null_opaque;
static char last[256];

static void reader(void *opaque, const char *text)
{
	messages++;
	null_opaque += opaque == NULL;
	snprintf(last, sizeof last, "%s", text);
}

int main(void)
{
	int (*ctl)(const char *, void *, size_t *, void *, size_t) =
		(int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	void (**message)(void *, const char *) = (void (**)(void *, const char *))dlsym(RTLD_DEFAULT, "malloc_message");
	if (!ctl)
		ctl = mallctl;
	if (!message)
		message = &malloc_message;
	free(malloc(1));
	unsigned arenas = 0;
	ssize_t dirty = 0;
	size_t length = sizeof arenas;
	MUST(ctl("opt.narenas", &arenas, &length, NULL, 0) == 0);
	length = sizeof dirty;
	MUST(ctl("opt.dirty_decay_ms", &dirty, &length, NULL, 0) == 0);
	line("narenas = %u", arenas);
	line("dirty = %zd", dirty);
	const char *nowhere = "/nonexistent/file";
	*message = reader;
	line("dump = %d", ctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere));
	line("messages = %d", messages);
	line("null opaque = %d", null_opaque == messages);
	line("prefix = %d", strncmp(last, "<jeprobe>: ", 11) == 0);
	line("names the file = %d", strstr(last, nowhere) != NULL);
	line("ends = %d", last[strlen(last) - 1] == '\n');
	*message = NULL;
	ctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere);
	line("messages after = %d", messages);
	return 0;
}

/* Facts for the test that runs the program: one line `key = value` on standard output, written with a single write(2)
   from a stack buffer, so that printing neither allocates nor disturbs what is being measured. */
#ifndef JEPROBE_FACT_H
#define JEPROBE_FACT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2), unused)) static void line(const char *format, ...)
{
	char text[512];
	int saved = errno;
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof text - 2)
		length = sizeof text - 2;
	text[length] = '\n';
	if (write(1, text, (size_t)length + 1) != length + 1)
		_exit(99);
	errno = saved;
}

/* Reads one line (without its end) from standard input; 0 at the end of input. */
__attribute__((unused)) static int hear(char *text, size_t room)
{
	size_t used = 0;
	char byte;
	while (read(0, &byte, 1) == 1) {
		if (byte == '\n') {
			text[used] = 0;
			return 1;
		}
		if (used + 1 < room)
			text[used++] = byte;
	}
	return 0;
}

/* Fails the program loudly; the test shows its standard error. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			dprintf(2, "%s:%d: %s is false (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			_exit(98);                                                                 \
		}                                                                                  \
	} while (0)

/* errno before each call under test; a call that keeps errno leaves it. */
#define SENTINEL 77

static inline __attribute__((unused)) const char *errno_name(int value)
{
	switch (value) {
	case SENTINEL: return "kept";
	case ENOMEM: return "ENOMEM";
	case EINVAL: return "EINVAL";
	case 0: return "0";
	default: return "other";
	}
}

/* The function as provided by the library under test, or NULL when only the C library has it. */
__attribute__((unused)) static void *provided(const char *name)
{
	void *address = dlsym(RTLD_DEFAULT, name);
	Dl_info info;
	if (!address || !dladdr(address, &info) || strstr(info.dli_fname, "libc.so") || strstr(info.dli_fname, "libc-"))
		return NULL;
	return address;
}

/* Fills with a pattern that depends on the seed and the offset. */
__attribute__((unused)) static void fill(void *block, size_t bytes, unsigned seed)
{
	unsigned char *at = (unsigned char *)block;
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

/* Number of bytes that differ from the pattern. */
__attribute__((unused)) static size_t damaged(const void *block, size_t bytes, unsigned seed)
{
	const unsigned char *at = (const unsigned char *)block;
	size_t wrong = 0;
	for (size_t i = 0; i < bytes; i++)
		wrong += at[i] != (unsigned char)(seed + i * 7 + (i >> 8));
	return wrong;
}
#endif

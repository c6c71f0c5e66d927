/* Which function each sampled block is said to come from, by the entry point that made it, with every allocation sampled: the
   first frame of a stack is the function that called the allocator. Argument: where to write the profile. */
#include "fact.h"
#include <malloc.h>

#define HELD 300
#define ROUNDS 20
#define BYTES 37

static void *held[HELD];

/* Each in a section of its own, whose bounds the linker tells. */
#define ENTRY(NAME, CALL)                                                                  \
	__attribute__((noinline, section("entry_" #NAME))) static void make_##NAME(void)  \
	{                                                                                  \
		for (int i = 0; i < HELD; i++) {                                           \
			void *block = NULL;                                                \
			CALL;                                                              \
			MUST(block);                                                       \
			held[i] = block;                                                   \
		}                                                                          \
	}                                                                                  \
	extern char __start_entry_##NAME[], __stop_entry_##NAME[];

/* operator new(size, align), where a C++ runtime or the allocator has it. */
static void *(*new_aligned)(size_t, size_t);
static void *(*mallocx)(size_t, int), *(*rallocx)(void *, size_t, int);

ENTRY(malloc, block = malloc(BYTES))
ENTRY(calloc, block = calloc(1, BYTES))
ENTRY(realloc, block = realloc(NULL, BYTES))
ENTRY(moved, block = realloc(realloc(NULL, BYTES + 2000), BYTES))
ENTRY(grown, block = realloc(realloc(NULL, BYTES), 20000))
ENTRY(large, block = calloc(1, 20000))
ENTRY(memalign, block = memalign(32, BYTES))
ENTRY(aligned_alloc, block = aligned_alloc(32, BYTES))
ENTRY(posix_memalign, MUST(posix_memalign(&block, 32, BYTES) == 0))
ENTRY(new_aligned, block = new_aligned(BYTES, 32))
ENTRY(mallocx, block = mallocx(BYTES, 0))
ENTRY(mallocx_zeroed, block = mallocx(BYTES, 0x40))
ENTRY(mallocx_aligned, block = mallocx(BYTES, 5))
ENTRY(rallocx, block = rallocx(malloc(BYTES + 2000), BYTES, 0))

static int (*control)(const char *, void *, size_t *, void *, size_t);

static void measure(const char *name, void (*make)(void), char *low, char *high, const char *path)
{
	size_t dirty = 0;
	for (int round = 0;; round++) {
		make();
		int zeroed = make == make_calloc || make == make_large || make == make_mallocx_zeroed;
		for (int i = 0; i < HELD; i++) {
			size_t size = malloc_usable_size(held[i]);
			for (size_t at = 0; zeroed && at < size; at++)
				dirty += ((char *)held[i])[at] != 0;
			memset(held[i], 0xee, size);
		}
		if (round == ROUNDS)
			break;
		for (int i = 0; i < HELD; i++)
			free(held[i]);
	}
	MUST(control("prof.dump", NULL, NULL, &path, sizeof path) == 0);
	for (int i = 0; i < HELD; i++)
		free(held[i]);

	FILE *profile = fopen(path, "r");
	MUST(profile);
	char text[4096];
	size_t inside = 0, objects = 0, bytes = 0, stacks = 0;
	while (fgets(text, sizeof text, profile)) {
		size_t leaf, count, sum;
		if (sscanf(text, "@ %zx", &leaf) == 1)
			inside = leaf > (size_t)low && leaf <= (size_t)high;
		else if (inside && sscanf(text, " t*: %zu: %zu", &count, &sum) == 2) {
			objects += count;
			bytes += sum;
			stacks += count != 0;
		}
	}
	fclose(profile);
	line("%s.objects = %zu", name, objects);
	line("%s.bytes each = %zu", name, objects ? bytes / objects : 0);
	line("%s.stacks = %zu", name, stacks);
	line("%s.dirty bytes = %zu", name, dirty);
}

#define MEASURE(NAME) measure(#NAME, make_##NAME, __start_entry_##NAME, __stop_entry_##NAME, arguments[1])

int main(int count, char **arguments)
{
	MUST(count == 2);
	control = (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	new_aligned = (void *(*)(size_t, size_t))dlsym(RTLD_DEFAULT, "_ZnwmSt11align_val_t");
	mallocx = (void *(*)(size_t, int))dlsym(RTLD_DEFAULT, "mallocx");
	rallocx = (void *(*)(void *, size_t, int))dlsym(RTLD_DEFAULT, "rallocx");
	MUST(control && new_aligned && mallocx && rallocx);
	MEASURE(malloc);
	MEASURE(calloc);
	MEASURE(realloc);
	MEASURE(moved);
	MEASURE(grown);
	MEASURE(large);
	MEASURE(memalign);
	MEASURE(aligned_alloc);
	MEASURE(posix_memalign);
	MEASURE(new_aligned);
	MEASURE(mallocx);
	MEASURE(mallocx_zeroed);
	MEASURE(mallocx_aligned);
	MEASURE(rallocx);
	return 0;
}

/* A program with allocation hooks of its own and no allocator: the tests of the probes drive it by lines.

   Compiled as is it has jeprobe's hooks; with -DFOREIGN only otel_memory ones, their arguments in odd places. -DBASE_ZERO
   gives notes a linker damaged, -DLONG_NOP a 5-byte nop, -DNO_NOP none.

   input            does                                                       prints
   sem              -                                                          alloc free dump ctx = raised counts
   alloc N          N hits of the alloc hook, ptr 0x1000 + 64 i, 64 bytes      done
   free N           N hits of the free hook, same pointers                     done
   bad              one hit with a context that is not mapped                  done
   dump             one hit of the dump hook                                   done
   mallctl          mallctl("prof.active", .., false)                          done
   unread           mallctl("prof.reset"), the name on a page that nobody has touched, then one that is nowhere       done
   threads N        N threads, each one hit of the alloc hook                  done
   held             the thread that was started before "ready" hits once       done
   fork             forks; the child hits the alloc hook 5 times and ends      child = semaphore it saw, done
   vfork            a vfork child, which shares our memory, hits once          done
   exec             executes itself again                                      ready ...
   quit             ends */
#include "fact.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SEMAPHORE(name) __attribute__((section(".probes"), used)) volatile unsigned short name = 0
SEMAPHORE(jeprobe_alloc_semaphore);
SEMAPHORE(jeprobe_free_semaphore);
SEMAPHORE(jeprobe_dump_semaphore);
SEMAPHORE(jeprobe_ctx_semaphore);

/* The table's context record: two words, a word with the depth, the words of the frames and the flags, then the frames; the
   second flag says that they are not packed. */
struct context {
	uint64_t hash, tctxs;
	uint16_t depth, words, flags, pad;
	uint64_t frames[3];
};
static struct context known = {.depth = 3, .words = 3, .flags = 2, .frames = {0x401000, 0x402000, 0x403000}};

#ifdef BASE_ZERO
#define BASE "0"
#else
#define BASE "_.stapsdt.base"
#endif

#if defined(LONG_NOP)
#define PROBE ".byte 0x0f,0x1f,0x44,0x00,0x00\n"
#elif defined(NO_NOP)
#define PROBE "xchg %rbx,%rbx\n"
#else
#define PROBE "nop\n"
#endif

#define NOTE(provider, name, semaphore, arguments)                                              \
	".pushsection .note.stapsdt,\"?\",\"note\"\n"                                           \
	".balign 4\n.4byte 992f-991f,994f-993f,3\n"                                             \
	"991: .asciz \"stapsdt\"\n992: .balign 4\n"                                             \
	"993: .8byte 990b\n.8byte " BASE "\n.8byte " semaphore "\n"                             \
	".asciz \"" provider "\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n"              \
	"994: .balign 4\n.popsection\n"

#define HOOK(symbol, notes)                                                                     \
	__asm__(".text\n.globl " symbol "\n.type " symbol ",@function\n" symbol ":\n990: " PROBE notes "ret\n")

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base,1\n.popsection\n");

#ifdef FOREIGN
/* pointer in memory at rdi, size as a signed 32-bit register, weight constant. */
HOOK("foreign_alloc", NOTE("otel_memory", "alloc", "jeprobe_alloc_semaphore", "8@8(%rdi) -4@%esi 8@$4096"));
HOOK("foreign_free", NOTE("otel_memory", "free", "jeprobe_free_semaphore", "8@%rdx"));
void foreign_alloc(uint64_t *block, int size);
void foreign_free(uint64_t a, uint64_t b, uint64_t ptr);
#else
HOOK("jeprobe_hook_alloc", NOTE("jeprobe", "alloc", "jeprobe_alloc_semaphore", "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8")
                           NOTE("otel_memory", "alloc", "jeprobe_alloc_semaphore", "8@%rdi 8@%rsi 8@%rdx"));
HOOK("jeprobe_hook_free", NOTE("jeprobe", "free", "jeprobe_free_semaphore", "8@%rdi 8@%rsi 8@%rdx")
                          NOTE("otel_memory", "free", "jeprobe_free_semaphore", "8@%rdi"));
HOOK("jeprobe_hook_dump", NOTE("jeprobe", "dump", "jeprobe_dump_semaphore", "8@%rdi 8@%rsi 8@%rdx"));
HOOK("jeprobe_hook_context", NOTE("jeprobe", "context", "jeprobe_ctx_semaphore", "8@%rdi 8@%rsi"));
void jeprobe_hook_alloc(uint64_t ptr, uint64_t usable, uint64_t weight, uint64_t context, uint64_t requested);
void jeprobe_hook_free(uint64_t ptr, uint64_t usable, uint64_t context);
void jeprobe_hook_dump(uint64_t sequence, uint64_t reason, const char *path);
#endif

__attribute__((noinline, noclone)) int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t length)
{
	__asm__ volatile("" ::"r"(name), "r"(old), "r"(old_length), "r"(new), "r"(length) : "memory");
	return 0;
}

static void hit_alloc(uint64_t ptr, uint64_t context)
{
#ifdef FOREIGN
	uint64_t block[2] = {0, ptr};
	(void)context;
	foreign_alloc(block, 64);
#else
	jeprobe_hook_alloc(ptr, 64, 4096, context, 60);
#endif
}

static void hit_free(uint64_t ptr)
{
#ifdef FOREIGN
	foreign_free(1, 2, ptr);
#else
	jeprobe_hook_free(ptr, 64, 0);
#endif
}

static void *thread_hit(void *at)
{
	hit_alloc((uint64_t)(uintptr_t)at, (uintptr_t)&known);
	return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signal_all = PTHREAD_COND_INITIALIZER;
static int asked, answered;

static void *held_thread(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (asked == answered)
			pthread_cond_wait(&signal_all, &lock);
		hit_alloc(0x900000, (uintptr_t)&known);
		answered = asked;
		pthread_cond_broadcast(&signal_all);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char text[128];
	(void)argc;
	MUST(pthread_create(&thread, NULL, held_thread, NULL) == 0);
	line("ready pid %d context %lu", getpid(), (unsigned long)(uintptr_t)&known);
	while (hear(text, sizeof text)) {
		unsigned long n = 0;
		if (!strcmp(text, "sem")) {
			line("alloc = %u", jeprobe_alloc_semaphore);
			line("free = %u", jeprobe_free_semaphore);
			line("dump = %u", jeprobe_dump_semaphore);
			line("ctx = %u", jeprobe_ctx_semaphore);
		} else if (sscanf(text, "alloc %lu", &n) == 1) {
			for (unsigned long i = 0; i < n; i++)
				hit_alloc(0x1000 + 64 * i, (uintptr_t)&known);
		} else if (sscanf(text, "free %lu", &n) == 1) {
			for (unsigned long i = 0; i < n; i++)
				hit_free(0x1000 + 64 * i);
		} else if (!strcmp(text, "bad")) {
			hit_alloc(0x500000, 0x10);
#ifndef FOREIGN
		} else if (!strcmp(text, "dump")) {
			jeprobe_hook_dump(7, 1, "/tmp/target.heap");
#endif
		} else if (!strcmp(text, "mallctl")) {
			unsigned char off = 0;
			mallctl("prof.active", NULL, NULL, &off, 1);
			mallctl("stats.allocated", NULL, NULL, NULL, 0);
		} else if (!strcmp(text, "unread")) {
			static const char NAME[] = "prof.reset";
			int file = memfd_create("names", 0);
			MUST(file >= 0 && write(file, NAME, sizeof NAME) == sizeof NAME);
			const char *name = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
			MUST(name != MAP_FAILED);
			mallctl(name, NULL, NULL, NULL, 0);
			mallctl((const char *)16, NULL, NULL, NULL, 0);
		} else if (sscanf(text, "threads %lu", &n) == 1) {
			for (unsigned long i = 0; i < n; i++) {
				MUST(pthread_create(&thread, NULL, thread_hit, (void *)(uintptr_t)(0x700000 + 64 * i)) == 0);
				MUST(pthread_join(thread, NULL) == 0);
			}
		} else if (!strcmp(text, "held")) {
			pthread_mutex_lock(&lock);
			asked++;
			pthread_cond_broadcast(&signal_all);
			while (asked != answered)
				pthread_cond_wait(&signal_all, &lock);
			pthread_mutex_unlock(&lock);
		} else if (!strcmp(text, "fork")) {
			int status;
			pid_t child = fork();
			if (child == 0) {
				for (unsigned long i = 0; i < 5; i++)
					hit_alloc(0xa00000 + 64 * i, (uintptr_t)&known);
				line("child = %u", jeprobe_alloc_semaphore);
				_exit(0);
			}
			MUST(waitpid(child, &status, 0) == child && status == 0);
		} else if (!strcmp(text, "vfork")) {
			int status;
			pid_t child = vfork();
			if (child == 0) {
				hit_alloc(0xb00000, (uintptr_t)&known);
				_exit(0);
			}
			MUST(waitpid(child, &status, 0) == child && status == 0);
		} else if (!strcmp(text, "exec")) {
			execv("/proc/self/exe", argv);
			MUST(0);
		} else if (!strcmp(text, "quit")) {
			return 0;
		} else {
			MUST(!"known command");
		}
		line("done");
	}
	return 0;
}

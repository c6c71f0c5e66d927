// The allocation operators of C++: failure, new handlers, exceptions through them, alignment, sized delete.
#include "fact.h"
#include <new>
#include <sys/resource.h>
#include <vector>

static const size_t IMPOSSIBLE = (size_t)1 << 60;
static const size_t BIG = (size_t)1 << 30;

static int handler_calls;

static void set_limit(rlim_t bytes)
{
	struct rlimit limit;
	MUST(getrlimit(RLIMIT_AS, &limit) == 0);
	limit.rlim_cur = bytes;
	MUST(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void handler_lifting_the_limit()
{
	handler_calls++;
	set_limit(RLIM_INFINITY);
}

struct Mine {
	int value;
};

static void handler_throwing_mine()
{
	handler_calls++;
	throw Mine{42};
}

static void handler_throwing_bad_alloc()
{
	handler_calls++;
	throw std::bad_alloc();
}

static void handler_removing_itself()
{
	if (++handler_calls == 3)
		std::set_new_handler(nullptr);
}

struct Guard {
	int &count;
	explicit Guard(int &c) : count(c) {}
	~Guard() { count++; }
};

// What one failing allocation does: "bad_alloc", "mine", "null", "block".
template <typename Body> static const char *outcome(Body body)
{
	try {
		void *p = body();
		return p ? "block" : "null";
	} catch (const std::bad_alloc &) {
		return "bad_alloc";
	} catch (const Mine &mine) {
		return mine.value == 42 ? "mine" : "damaged";
	}
}

// Pointers that the compiler cannot see through, so that it keeps the pair.
static void *volatile sink;

static void *keep(void *p)
{
	sink = p;
	return sink;
}

int main()
{
	auto plain = [] { return keep(::operator new(IMPOSSIBLE)); };
	auto array = [] { return keep(::operator new[](IMPOSSIBLE)); };
	auto quiet = [] { return keep(::operator new(IMPOSSIBLE, std::nothrow)); };
	auto quiet_array = [] { return keep(::operator new[](IMPOSSIBLE, std::nothrow)); };
	auto aligned = [] { return keep(::operator new(IMPOSSIBLE, std::align_val_t(64))); };
	auto aligned_array = [] { return keep(::operator new[](IMPOSSIBLE, std::align_val_t(64))); };
	auto aligned_quiet = [] { return keep(::operator new(IMPOSSIBLE, std::align_val_t(64), std::nothrow)); };
	auto aligned_quiet_array = [] { return keep(::operator new[](IMPOSSIBLE, std::align_val_t(64), std::nothrow)); };
	struct {
		const char *name;
		void (*handler)();
	} handlers[] = {{"none", nullptr},
			{"mine", handler_throwing_mine},
			{"bad_alloc", handler_throwing_bad_alloc},
			{"removing", handler_removing_itself}};
	for (auto &h : handlers) {
		int calls = 0;
		auto run = [&](const char *form, auto body) {
			handler_calls = 0;
			std::set_new_handler(h.handler);
			const char *result = outcome(body);
			std::set_new_handler(nullptr);
			calls += handler_calls;
			line("%s %s = %s", h.name, form, result);
		};
		run("plain", plain);
		run("array", array);
		run("quiet", quiet);
		run("quiet_array", quiet_array);
		run("aligned", aligned);
		run("aligned_array", aligned_array);
		run("aligned_quiet", aligned_quiet);
		run("aligned_quiet_array", aligned_quiet_array);
		line("%s calls = %d", h.name, calls);
	}

	// A handler that makes room: the allocation goes through.
	std::set_new_handler(handler_lifting_the_limit);
	handler_calls = 0;
	set_limit((rlim_t)256 << 20);
	void *big = keep(::operator new(BIG));
	MUST(big != nullptr && handler_calls == 1);
	::operator delete(big);
	set_limit((rlim_t)256 << 20);
	big = keep(::operator new(2 * BIG, std::align_val_t(1 << 16)));
	MUST(handler_calls == 2);
	line("retried = %d", handler_calls);
	line("retry keeps alignment = %d", (uintptr_t)big % (1 << 16) == 0);
	::operator delete(big, std::align_val_t(1 << 16));
	std::set_new_handler(nullptr);

	// Destructors between throw and catch run, many times over.
	int destroyed = 0, caught = 0;
	for (int i = 0; i < 1000; i++) {
		try {
			Guard guard(destroyed);
			keep(::operator new(IMPOSSIBLE));
		} catch (const std::bad_alloc &error) {
			caught += error.what() != nullptr;
		}
	}
	line("caught = %d", caught);
	line("destroyed = %d", destroyed);

	// Every pair of operators on real sizes.
	int misaligned = 0;
	for (size_t size : {0, 1, 8, 24, 100, 4096, 5000, 20000, 3000000}) {
		void *p = keep(::operator new(size));
		memset(p, 1, size);
		::operator delete(p);
		p = keep(::operator new[](size));
		memset(p, 1, size);
		::operator delete[](p);
		p = keep(::operator new(size));
		::operator delete(p, size);
		p = keep(::operator new[](size));
		::operator delete[](p, size);
		p = keep(::operator new(size, std::nothrow));
		MUST(p != nullptr);
		::operator delete(p, std::nothrow);
		p = keep(::operator new[](size, std::nothrow));
		MUST(p != nullptr);
		::operator delete[](p, std::nothrow);
		for (size_t align = 1; align <= 65536; align *= 2) {
			std::align_val_t al{align};
			p = keep(::operator new(size, al));
			misaligned += (uintptr_t)p % align != 0;
			memset(p, 1, size);
			::operator delete(p, al);
			p = keep(::operator new[](size, al));
			misaligned += (uintptr_t)p % align != 0;
			::operator delete[](p, al);
			p = keep(::operator new(size, al));
			::operator delete(p, size, al);
			p = keep(::operator new[](size, al, std::nothrow));
			misaligned += (uintptr_t)p % align != 0;
			::operator delete[](p, size, al);
			p = keep(::operator new(size, al, std::nothrow));
			::operator delete(p, al, std::nothrow);
			p = keep(::operator new[](size, al));
			::operator delete[](p, al, std::nothrow);
		}
	}
	::operator delete(nullptr);
	::operator delete[](nullptr, (size_t)8);
	::operator delete(nullptr, (size_t)8, std::align_val_t(16));
	line("misaligned = %d", misaligned);

	std::vector<int> numbers;
	for (int i = 0; i < 100000; i++)
		numbers.push_back(i);
	line("vector = %d", numbers[99999]);
	return 0;
}

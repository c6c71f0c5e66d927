// The C++ operators: every form of new and delete, failure with and without handlers, containers over them.
#include "fact.h"
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

static int handler_calls;

static void counting_handler()
{
	if (++handler_calls == 3)
		std::set_new_handler(nullptr);
}

static void throwing_handler()
{
	handler_calls++;
	throw std::bad_alloc();
}

struct alignas(256) Wide {
	char bytes[300];
};

template <typename Call> static const char *outcome(Call call)
{
	try {
		return call() ? "block" : "null";
	} catch (const std::bad_alloc &) {
		return "bad_alloc";
	} catch (...) {
		return "other exception";
	}
}

int main()
{
	volatile size_t all = SIZE_MAX / 2;
	const std::align_val_t a64{64};

	void *zero = operator new(0);
	line("new(0).usable = %zu", malloc_usable_size(zero));
	operator delete(zero);
	operator delete(nullptr);
	operator delete[](nullptr);
	operator delete(nullptr, (size_t)8);

	int misaligned = 0;
	for (int round = 0; round < 500; round++) {
		size_t size = 1 + (size_t)round * 61;
		void *blocks[12] = {
			operator new(size), operator new[](size),
			operator new(size, std::nothrow), operator new[](size, std::nothrow),
			operator new(size, a64), operator new[](size, a64),
			operator new(size, a64, std::nothrow), operator new[](size, a64, std::nothrow),
			operator new(size), operator new[](size), operator new(size, a64), operator new[](size, a64),
		};
		for (int i = 0; i < 12; i++) {
			MUST(blocks[i] && malloc_usable_size(blocks[i]) >= size);
			fill(blocks[i], size, (unsigned)i);
			if ((i >= 4 && i < 8) || i >= 10)
				misaligned += (uintptr_t)blocks[i] % 64 != 0;
		}
		for (int i = 0; i < 12; i++)
			MUST(damaged(blocks[i], size, (unsigned)i) == 0);
		operator delete(blocks[0]);
		operator delete[](blocks[1]);
		operator delete(blocks[2], std::nothrow);
		operator delete[](blocks[3], std::nothrow);
		operator delete(blocks[4], a64);
		operator delete[](blocks[5], a64);
		operator delete(blocks[6], a64, std::nothrow);
		operator delete[](blocks[7], a64, std::nothrow);
		operator delete(blocks[8], size);
		operator delete[](blocks[9], size);
		operator delete(blocks[10], size, a64);
		operator delete[](blocks[11], size, a64);
	}
	line("misaligned = %d", misaligned);
	auto wide = std::make_unique<Wide[]>(7);
	line("wide.misaligned = %zu", (uintptr_t)wide.get() % 256);

	line("new.fail = %s", outcome([&] { return operator new(all); }));
	line("new[].fail = %s", outcome([&] { return operator new[](all); }));
	line("new.nothrow.fail = %s", outcome([&] { return operator new(all, std::nothrow); }));
	line("new[].nothrow.fail = %s", outcome([&] { return operator new[](all, std::nothrow); }));
	line("new.aligned.fail = %s", outcome([&] { return operator new(all, a64); }));
	line("new[].aligned.fail = %s", outcome([&] { return operator new[](all, a64); }));
	line("new.aligned.nothrow.fail = %s", outcome([&] { return operator new(all, a64, std::nothrow); }));
	line("new[].aligned.nothrow.fail = %s", outcome([&] { return operator new[](all, a64, std::nothrow); }));

	std::set_new_handler(counting_handler);
	line("handler.new = %s", outcome([&] { return operator new(all); }));
	line("handler.calls = %d", handler_calls);
	handler_calls = 0;
	std::set_new_handler(counting_handler);
	line("handler.nothrow = %s", outcome([&] { return operator new(all, std::nothrow); }));
	line("handler.nothrow.calls = %d", handler_calls);
	handler_calls = 0;
	std::set_new_handler(throwing_handler);
	line("thrower.new = %s", outcome([&] { return operator new(all); }));
	line("thrower.nothrow = %s", outcome([&] { return operator new(all, std::nothrow); }));
	line("thrower.calls = %d", handler_calls);
	std::set_new_handler(nullptr);

	// Exceptions crossing threads' frames, with containers growing meanwhile.
	size_t caught = 0;
	std::vector<std::thread> threads;
	std::vector<size_t> counts(8);
	for (size_t t = 0; t < counts.size(); t++)
		threads.emplace_back([&counts, t, all] {
			std::map<int, std::string> names;
			for (int i = 0; i < 2000; i++) {
				names[i * 7919 % 1009] = std::string((size_t)(i % 300), 'x');
				try {
					std::vector<char> growing(10);
					growing.resize((size_t)(i % 5) == 4 ? (size_t)all : 1000);
				} catch (const std::exception &) {
					counts[t]++;
				}
			}
		});
	for (auto &thread : threads)
		thread.join();
	for (size_t count : counts)
		caught += count;
	line("threads.caught = %zu", caught);
	return 0;
}

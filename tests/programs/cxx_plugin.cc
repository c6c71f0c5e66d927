// A plugin that brings the C++ runtime into a C program after the allocator was bound (see cxx_late.c).
#include <cstddef>
#include <new>

static void *volatile sink;
static int handler_calls;

static void handler()
{
	if (++handler_calls == 2)
		std::set_new_handler(nullptr);
}

extern "C" int failing_new(void)
{
	handler_calls = 0;
	std::set_new_handler(handler);
	try {
		sink = ::operator new((std::size_t)1 << 60);
		return -1;
	} catch (const std::bad_alloc &) {
		return handler_calls;
	}
}

extern "C" int failing_quiet_new(void)
{
	handler_calls = 0;
	std::set_new_handler(handler);
	sink = ::operator new((std::size_t)1 << 60, std::nothrow);
	return sink ? -1 : handler_calls;
}

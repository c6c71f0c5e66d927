// Early and late life: allocation before main, in thread-exit destructors of both kinds (several rounds), in atexit
// handlers and static destructors, and threads that die with full caches.
#include "fact.h"
#include <atomic>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

static void *before_main;
static size_t before_main_damage;

__attribute__((constructor(101))) static void early()
{
	before_main = malloc(3000);
	MUST(before_main);
	fill(before_main, 3000, 8);
	free(calloc(10, 10));
}

struct Late {
	std::string text = std::string(5000, 'a');
	~Late()
	{
		std::vector<std::string> more;
		for (int i = 0; i < 50; i++)
			more.push_back(std::string(100 + (size_t)i * 30, 'b'));
		line("static destructor = %zu", more.size());
	}
};
static Late late;

static std::atomic<int> thread_local_ends, key_rounds;

struct Local {
	std::vector<std::string> names;
	~Local()
	{
		std::vector<std::unique_ptr<char[]>> more;
		for (size_t i = 1; i < 200; i++)
			more.push_back(std::make_unique<char[]>(i * 31));
		names.clear();
		thread_local_ends++;
	}
};
static thread_local Local local;

static pthread_key_t first, second;

// Re-arms itself three times: pthread runs at most PTHREAD_DESTRUCTOR_ITERATIONS (4) rounds, and the cache of the thread
// may be gone in any of them.
static void end_of_key(void *value)
{
	uintptr_t *state = static_cast<uintptr_t *>(value);
	MUST(damaged(state + 1, 4000, (unsigned)*state) == 0);
	uintptr_t round = *state;
	free(state);
	key_rounds++;
	void *extra[40];
	for (size_t i = 0; i < 40; i++) {
		extra[i] = malloc(24 + i * 100);
		MUST(extra[i]);
		memset(extra[i], 7, 24 + i * 100);
	}
	for (size_t i = 0; i < 40; i++)
		free(extra[i]);
	if (round < 3) {
		state = static_cast<uintptr_t *>(malloc(5000));
		MUST(state);
		*state = round + 1;
		fill(state + 1, 4000, (unsigned)*state);
		pthread_setspecific(round % 2 ? first : second, state);
	}
}

static void *worker(void *)
{
	local.names.assign(20, std::string(200, 'n'));
	uintptr_t *state = static_cast<uintptr_t *>(malloc(5000));
	MUST(state);
	*state = 0;
	fill(state + 1, 4000, 0);
	pthread_setspecific(first, state);
	// A full cache at the end.
	std::vector<void *> blocks;
	for (size_t i = 0; i < 3000; i++)
		blocks.push_back(malloc(16 + i % 2000));
	for (void *block : blocks)
		free(block);
	return malloc(777);
}

static void at_exit()
{
	void *block = malloc(40000);
	MUST(block);
	memset(block, 1, 40000);
	free(block);
	line("atexit = 1");
}

int main()
{
	atexit(at_exit);
	before_main_damage = damaged(before_main, 3000, 8);
	free(before_main);
	line("before main.damaged = %zu", before_main_damage);
	pthread_key_create(&first, end_of_key);
	pthread_key_create(&second, end_of_key);
	const int total = 400;
	for (int batch = 0; batch < total / 8; batch++) {
		pthread_t threads[8];
		for (auto &thread : threads)
			MUST(pthread_create(&thread, nullptr, worker, nullptr) == 0);
		for (auto &thread : threads) {
			void *result = nullptr;
			pthread_join(thread, &result);
			MUST(result);
			memset(result, 3, 777);
			free(result);
		}
	}
	line("thread_local ends = %d", thread_local_ends.load());
	line("key rounds = %d", key_rounds.load());
	return 0;
}

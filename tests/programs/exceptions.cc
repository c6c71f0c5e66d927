// Threads that throw through several frames while their containers grow, rethrow across threads with exception_ptr, and
// print a checksum that does not depend on timing.
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Guard {
	std::string text;
	int &count;
	~Guard() { count++; }
};

static unsigned long descend(int depth, unsigned long seed, int &unwound)
{
	Guard guard{std::string(seed % 200 + 1, 'g'), unwound};
	std::vector<unsigned long> local(seed % 50 + 1, seed);
	if (depth == 0) {
		if (seed % 3 == 0)
			throw std::runtime_error("planted " + std::to_string(seed));
		if (seed % 3 == 1)
			throw std::make_unique<std::string>(std::to_string(seed)).release();
		return local.back();
	}
	return descend(depth - 1, seed * 6364136223846793005UL + 1442695040888963407UL, unwound) + guard.text.size();
}

int main()
{
	std::vector<unsigned long> sums(8);
	std::vector<std::exception_ptr> last(8);
	std::vector<std::thread> threads;
	for (unsigned t = 0; t < 8; t++)
		threads.emplace_back([&, t] {
			std::map<std::string, int> seen;
			int unwound = 0;
			for (unsigned long i = 0; i < 3000; i++) {
				try {
					sums[t] += descend(12, i * 8 + t, unwound);
				} catch (const std::runtime_error &error) {
					seen[error.what()]++;
					last[t] = std::current_exception();
				} catch (std::string *text) {
					sums[t] += text->size();
					delete text;
				}
			}
			sums[t] = sums[t] * 31 + seen.size() * 7 + (unsigned long)unwound;
		});
	for (auto &thread : threads)
		thread.join();
	for (unsigned t = 0; t < 8; t++) {
		try {
			if (last[t])
				std::rethrow_exception(last[t]);
			printf("none ");
		} catch (const std::exception &error) {
			printf("%s ", error.what());
		}
		printf("%lu\n", sums[t]);
	}
	return 0;
}

// Strings: lines are made of words, split, joined and counted in hash tables; most strings live for one line, those in
// the tables for long. Operations are lines.
#include <string>
#include <unordered_map>
#include <vector>

#include "bench.h"

namespace {

struct arguments args;

std::string word(rng *random)
{
    uint64_t number = next(random) % 20000;
    std::string text;
    for (size_t length = 3 + number % 29; text.size() < length; number = number * 31 + 7)
        text.push_back(static_cast<char>('a' + number % 26));
    return text;
}

void *work(void *index)
{
    rng random = seed(reinterpret_cast<long>(index));
    std::unordered_map<std::string, long> counts;
    std::vector<std::string> recent(256);
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        std::string line;
        for (size_t words = between(&random, 3, 20); words > 0; words--)
            line += word(&random) + ' ';
        std::vector<std::string> parts;
        for (size_t from = 0, to; (to = line.find(' ', from)) != std::string::npos; from = to + 1)
            parts.push_back(line.substr(from, to - from));
        std::string joined;
        for (const std::string &part : parts) {
            counts[part]++;
            joined = part + "," + joined;
        }
        if (joined.size() != line.size())
            die("a string lost its content");
        recent[next(&random) % recent.size()] = std::move(joined);
        if (counts.size() > 15000)
            counts.clear();
        sum += parts.size();
    }
    return reinterpret_cast<void *>(sum);
}

} // namespace

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done(static_cast<unsigned long long>(args.threads * args.ops));
}

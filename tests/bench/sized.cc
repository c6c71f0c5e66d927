// Objects of C++: new and sized delete of classes between 16 bytes and 1 KiB behind a virtual base, arrays, and
// over-aligned ones. Compiled with sized deallocation.
#include <memory>
#include <vector>

#include "bench.h"

namespace {

struct arguments args;

struct Base {
    virtual ~Base() = default;
    virtual long value() const = 0;
};

template <size_t Bytes>
struct Object final : Base {
    long number;
    unsigned char fill[Bytes];
    explicit Object(long n) : number(n) { fill[0] = static_cast<unsigned char>(n), fill[Bytes - 1] = static_cast<unsigned char>(n); }
    ~Object() override
    {
        if (fill[0] != static_cast<unsigned char>(number) || fill[Bytes - 1] != static_cast<unsigned char>(number))
            die("an object lost its content");
    }
    long value() const override { return number; }
};

struct alignas(64) Line final {
    unsigned char bytes[64];
};

std::unique_ptr<Base> make(uint64_t kind, long n)
{
    switch (kind % 6) {
    case 0: return std::make_unique<Object<1>>(n);
    case 1: return std::make_unique<Object<16>>(n);
    case 2: return std::make_unique<Object<40>>(n);
    case 3: return std::make_unique<Object<100>>(n);
    case 4: return std::make_unique<Object<240>>(n);
    default: return std::make_unique<Object<1000>>(n);
    }
}

void *work(void *index)
{
    rng random = seed(reinterpret_cast<long>(index));
    std::vector<std::unique_ptr<Base>> live(2048);
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        uint64_t bits = next(&random);
        std::unique_ptr<Base> &slot = live[bits % live.size()];
        if (slot)
            sum += static_cast<unsigned long>(slot->value());
        slot = make(bits >> 16, i);
        if (bits >> 24 & 1) {
            std::unique_ptr<int[]> numbers(new int[16 + (bits >> 32) % 64]);
            numbers[0] = 1;
            sum += static_cast<unsigned long>(numbers[0]);
        } else if ((bits >> 25 & 7) == 0) {
            auto line = std::make_unique<Line>();
            line->bytes[0] = 1;
            sum += line->bytes[0];
        }
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

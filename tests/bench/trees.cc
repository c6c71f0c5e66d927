// Trees: ordered maps that are built, searched, thinned out and torn down (variant `maps`), and binary trees of small
// nodes, built and dropped whole (`nodes`), of which some stay to the end. Operations are insertions.
#include <map>
#include <memory>

#include "bench.h"

namespace {

struct arguments args;

void maps(rng *random)
{
    long left = args.ops;
    std::map<uint64_t, uint64_t> kept;
    while (left > 0) {
        std::map<uint64_t, uint64_t> map;
        for (int i = 0; i < 50000 && left > 0; i++, left--) {
            uint64_t key = next(random) % 1000000;
            map[key] = ~key;
            if (i % 3 == 0)
                map.erase(map.lower_bound(next(random) % (key + 1)));
        }
        for (const auto &[key, value] : map)
            if (value != ~key)
                die("a node lost its content");
        for (int i = 0; i < 500; i++) {
            auto found = map.lower_bound(next(random) % 1000000);
            if (found != map.end())
                kept.insert(*found);
        }
    }
}

struct Node {
    std::unique_ptr<Node> left, right;
};

std::unique_ptr<Node> build(int depth)
{
    auto node = std::make_unique<Node>();
    if (depth > 0) {
        node->left = build(depth - 1);
        node->right = build(depth - 1);
    }
    return node;
}

long count(const Node *node)
{
    return node == nullptr ? 0 : 1 + count(node->left.get()) + count(node->right.get());
}

void nodes(rng *random)
{
    std::unique_ptr<Node> kept = build(17);
    for (long left = args.ops; left > 0;) {
        int depth = static_cast<int>(between(random, 4, 14));
        std::unique_ptr<Node> tree = build(depth);
        if (count(tree.get()) != (2l << depth) - 1)
            die("a tree lost nodes");
        left -= (2l << depth) - 1;
    }
    if (count(kept.get()) != (2l << 17) - 1)
        die("the tree that stays lost nodes");
}

void *work(void *index)
{
    rng random = seed(reinterpret_cast<long>(index));
    if (strcmp(args.variant, "nodes") == 0)
        nodes(&random);
    else
        maps(&random);
    return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done(static_cast<unsigned long long>(args.threads * args.ops));
}

// A functional language's heap: millions of small immutable nodes with a reference count, in persistent trees; an update
// copies the path to the root, and dropping a version frees what no other version shares. Threads share nothing, or,
// in variant `tasks`, pass finished trees on to the next thread, which drops them. Operations are updates.
#include <atomic>

#include "bench.h"

namespace {

struct arguments args;

struct Node {
    std::atomic<unsigned> count;
    unsigned tag;
    Node *children[2];
    uint64_t key;
};

struct Leaf {
    std::atomic<unsigned> count;
    unsigned tag;
    uint64_t key;
};

bool tasks;
std::atomic<Node *> passed[MAX_THREADS];

Node *leaf(uint64_t key)
{
    Leaf *leaf = new Leaf{ { 1 }, 0, key };
    return reinterpret_cast<Node *>(leaf);
}

void drop_tree(Node *node)
{
    while (node != nullptr && node->count.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        if (node->tag == 0) {
            delete reinterpret_cast<Leaf *>(node);
            return;
        }
        if (node->tag != 1)
            die("a node lost its content");
        drop_tree(node->children[0]);
        Node *last = node->children[1];
        delete node;
        node = last;
    }
}

Node *share(Node *node)
{
    if (node != nullptr)
        node->count.fetch_add(1, std::memory_order_relaxed);
    return node;
}

// A new version with `key` in it; takes nothing, gives one reference.
Node *with(Node *node, uint64_t key, int bit)
{
    if (node == nullptr || bit == 0)
        return leaf(key);
    if (node->tag == 0) {
        Leaf *old = reinterpret_cast<Leaf *>(node);
        Node *made = new Node{ { 1 }, 1, { nullptr, nullptr }, key };
        made->children[old->key >> bit & 1] = share(node);
        int side = static_cast<int>(key >> bit & 1);
        Node *below = made->children[side];
        made->children[side] = with(below, key, bit - 1);
        drop_tree(below);
        return made;
    }
    int side = static_cast<int>(key >> bit & 1);
    Node *made = new Node{ { 1 }, 1, { nullptr, nullptr }, key };
    made->children[side] = with(node->children[side], key, bit - 1);
    made->children[1 - side] = share(node->children[1 - side]);
    return made;
}

void *work(void *index)
{
    long me = reinterpret_cast<long>(index);
    rng random = seed(me);
    Node *versions[16] = {};
    Node *current = nullptr;
    for (long i = 0; i < args.ops; i++) {
        Node *changed = with(current, next(&random) % (1 << 20), 20);
        Node *&old = versions[i % 16];
        drop_tree(old);
        old = current;
        current = changed;
        if (i % 20000 == 19999) {
            Node *finished = current;
            current = nullptr;
            if (tasks)
                finished = passed[(me + 1) % args.threads].exchange(finished, std::memory_order_acq_rel);
            drop_tree(finished);
        }
    }
    for (Node *version : versions)
        drop_tree(version);
    drop_tree(current);
    return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    tasks = strcmp(args.variant, "tasks") == 0;
    run_threads(args.threads, work);
    for (auto &tree : passed)
        drop_tree(tree.load());
    return done(static_cast<unsigned long long>(args.threads * args.ops));
}

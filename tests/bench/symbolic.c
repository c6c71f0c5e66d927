/* Symbolic computation: expressions as trees of tiny nodes and numbers of arbitrary length, which live for a moment.
 * Computes the convergents of continued fractions in big integers (variant `fractions`: each step makes several numbers
 * of 8 to 100 bytes and drops them), or differentiates and simplifies expressions (`terms`: millions of nodes of 24 and
 * 32 bytes, most dropped soon). Operations are steps. */
#include "bench.h"

static struct arguments args;

/* A natural number: 32-bit limbs, least first. */
struct number {
    unsigned len;
    uint32_t limbs[];
};

static struct number *new_number(unsigned len)
{
    struct number *n = malloc(sizeof *n + len * sizeof n->limbs[0]);
    if (n == NULL)
        die("no memory");
    n->len = len;
    return n;
}

static struct number *small_number(uint32_t value)
{
    struct number *n = new_number(1);
    n->limbs[0] = value;
    return n;
}

static struct number *multiply_small(const struct number *a, uint32_t b)
{
    struct number *r = new_number(a->len + 1);
    uint64_t carry = 0;
    for (unsigned i = 0; i < a->len; i++) {
        carry += (uint64_t)a->limbs[i] * b;
        r->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    r->limbs[a->len] = (uint32_t)carry;
    if (carry == 0)
        r->len--;
    return r;
}

static struct number *add(const struct number *a, const struct number *b)
{
    if (a->len < b->len) {
        const struct number *c = a;
        a = b;
        b = c;
    }
    struct number *r = new_number(a->len + 1);
    uint64_t carry = 0;
    for (unsigned i = 0; i < a->len; i++) {
        carry += (uint64_t)a->limbs[i] + (i < b->len ? b->limbs[i] : 0);
        r->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    r->limbs[a->len] = (uint32_t)carry;
    if (carry == 0)
        r->len--;
    return r;
}

static uint32_t remainder_of(const struct number *a, uint32_t b)
{
    uint64_t rest = 0;
    for (unsigned i = a->len; i-- > 0;)
        rest = (rest << 32 | a->limbs[i]) % b;
    return (uint32_t)rest;
}

static unsigned long fractions(rng *random)
{
    unsigned long sum = 0;
    struct number *p0 = small_number(1), *p1 = small_number(3), *q0 = small_number(0), *q1 = small_number(1);
    for (long i = 0; i < args.ops; i++) {
        uint32_t term = (uint32_t)between(random, 1, 200);
        struct number *pt = multiply_small(p1, term), *qt = multiply_small(q1, term);
        struct number *p2 = add(pt, p0), *q2 = add(qt, q0);
        free(pt);
        free(qt);
        free(p0);
        free(q0);
        p0 = p1, p1 = p2, q0 = q1, q1 = q2;
        /* p1 q0 - p0 q1 is 1 or -1, so neither pair has a common factor 3. */
        if (remainder_of(p1, 3) == 0 && remainder_of(q1, 3) == 0)
            die("a number lost its content");
        sum += p1->limbs[0];
        if (p1->len > 24) {
            free(p0), free(p1), free(q0), free(q1);
            p0 = small_number(1), p1 = small_number(3), q0 = small_number(0), q1 = small_number(1);
        }
    }
    free(p0), free(p1), free(q0), free(q1);
    return sum;
}

enum kind { CONSTANT, VARIABLE, SUM, PRODUCT };

struct leaf {
    enum kind kind;
    long value;
};

struct pair {
    enum kind kind;
    struct leaf *left, *right;
};

static struct leaf *new_leaf(enum kind kind, long value)
{
    struct leaf *leaf = malloc(sizeof *leaf);
    if (leaf == NULL)
        die("no memory");
    leaf->kind = kind;
    leaf->value = value;
    return leaf;
}

static struct leaf *new_pair(enum kind kind, struct leaf *left, struct leaf *right)
{
    struct pair *pair = malloc(sizeof *pair);
    if (pair == NULL)
        die("no memory");
    pair->kind = kind;
    pair->left = left;
    pair->right = right;
    return (struct leaf *)pair;
}

static struct leaf *copy(const struct leaf *e)
{
    if (e->kind < SUM)
        return new_leaf(e->kind, e->value);
    const struct pair *pair = (const struct pair *)e;
    return new_pair(e->kind, copy(pair->left), copy(pair->right));
}

static void discard(struct leaf *e)
{
    if (e->kind >= SUM) {
        discard(((struct pair *)e)->left);
        discard(((struct pair *)e)->right);
    }
    free(e);
}

static struct leaf *derive(const struct leaf *e)
{
    if (e->kind < SUM)
        return new_leaf(CONSTANT, e->kind == VARIABLE);
    const struct pair *pair = (const struct pair *)e;
    if (e->kind == SUM)
        return new_pair(SUM, derive(pair->left), derive(pair->right));
    return new_pair(SUM, new_pair(PRODUCT, derive(pair->left), copy(pair->right)),
                    new_pair(PRODUCT, copy(pair->left), derive(pair->right)));
}

/* Takes the expression and gives a simpler one. */
static struct leaf *simplify(struct leaf *e)
{
    if (e->kind < SUM)
        return e;
    struct pair *pair = (struct pair *)e;
    struct leaf *left = pair->left = simplify(pair->left), *right = pair->right = simplify(pair->right);
    long neutral = e->kind == PRODUCT;
    if (left->kind == CONSTANT && right->kind == CONSTANT) {
        long value = neutral ? left->value * right->value % 1000 : left->value + right->value;
        discard(e);
        return new_leaf(CONSTANT, value);
    }
    if (neutral && ((left->kind == CONSTANT && left->value == 0) || (right->kind == CONSTANT && right->value == 0))) {
        discard(e);
        return new_leaf(CONSTANT, 0);
    }
    if (left->kind == CONSTANT && left->value == neutral) {
        free(left);
        free(e);
        return right;
    }
    if (right->kind == CONSTANT && right->value == neutral) {
        free(right);
        free(e);
        return left;
    }
    return e;
}

static struct leaf *expression(rng *random, int depth)
{
    uint64_t bits = next(random);
    if (depth == 0)
        return new_leaf(bits % 3 ? VARIABLE : CONSTANT, (long)(bits >> 8 & 7));
    return new_pair(bits % 2 ? SUM : PRODUCT, expression(random, depth - 1), expression(random, depth - 1));
}

static unsigned long terms(rng *random)
{
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        struct leaf *e = expression(random, 7);
        for (int order = 0; order < 3; order++) {
            struct leaf *d = simplify(derive(e));
            discard(e);
            e = d;
        }
        sum += e->kind;
        discard(e);
    }
    return sum;
}

static void *work(void *index)
{
    rng random = seed((long)index);
    return (void *)(strcmp(args.variant, "terms") == 0 ? terms(&random) : fractions(&random));
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

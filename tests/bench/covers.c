/* Logic minimisation: families of bit sets, held as arrays that grow and are copied, cut and sorted; blocks of 20 bytes
 * to some KiB whose lifetimes are those of recursive calls. Operations are functions minimised. */
#include "bench.h"

#define VARIABLES 12

static struct arguments args;

struct family {
    int count, room;
    uint32_t **sets;
};

static struct family *new_family(int room)
{
    struct family *family = malloc(sizeof *family);
    family->count = 0;
    family->room = room;
    family->sets = malloc((size_t)room * sizeof *family->sets);
    return family;
}

static void free_family(struct family *family)
{
    for (int i = 0; i < family->count; i++)
        free(family->sets[i]);
    free(family->sets);
    free(family);
}

/* Sets are two words of ones and zeroes and a pad that makes some of them larger. */
static void insert(struct family *family, uint32_t ones, uint32_t zeros, int pad)
{
    for (int i = 0; i < family->count; i++)
        if ((family->sets[i][0] & ones) == family->sets[i][0] && (family->sets[i][1] & zeros) == family->sets[i][1])
            return; /* a more general set is there */
    if (family->count == family->room) {
        family->room *= 2;
        family->sets = realloc(family->sets, (size_t)family->room * sizeof *family->sets);
    }
    uint32_t *set = malloc(20 + (size_t)pad * 4);
    if (set == NULL)
        die("no memory");
    set[0] = ones;
    set[1] = zeros;
    set[4] = ones ^ zeros;
    family->sets[family->count++] = set;
}

/* What remains of the family where a variable has a value. */
static struct family *cofactor(const struct family *family, int variable, int value)
{
    struct family *part = new_family(4);
    for (int i = 0; i < family->count; i++) {
        uint32_t *set = family->sets[i];
        if (set[4] != (set[0] ^ set[1]))
            die("a set lost its content");
        if (set[value ? 1 : 0] >> variable & 1)
            continue;
        insert(part, set[0] & ~(1u << variable), set[1] & ~(1u << variable), variable & 7);
    }
    return part;
}

static struct family *minimise(const struct family *family, int variable)
{
    if (variable == VARIABLES || family->count <= 1) {
        struct family *same = new_family(2);
        for (int i = 0; i < family->count; i++)
            insert(same, family->sets[i][0], family->sets[i][1], 0);
        return same;
    }
    struct family *low = cofactor(family, variable, 0), *high = cofactor(family, variable, 1);
    struct family *least = minimise(low, variable + 1), *most = minimise(high, variable + 1);
    struct family *both = new_family(least->count + most->count + 1);
    for (int i = 0; i < least->count; i++) {
        int shared = 0;
        for (int j = 0; j < most->count && !shared; j++)
            shared = least->sets[i][0] == most->sets[j][0] && least->sets[i][1] == most->sets[j][1];
        insert(both, least->sets[i][0], least->sets[i][1] | (shared ? 0 : 1u << variable), 2);
    }
    for (int i = 0; i < most->count; i++)
        insert(both, most->sets[i][0] | 1u << variable, most->sets[i][1], 2);
    free_family(low);
    free_family(high);
    free_family(least);
    free_family(most);
    return both;
}

static void *work(void *index)
{
    rng random = seed((long)index);
    unsigned long sum = 0;
    for (long i = 0; i < args.ops; i++) {
        struct family *family = new_family(8);
        for (int j = 0; j < 60; j++) {
            uint32_t care = (uint32_t)next(&random) & (uint32_t)next(&random) & ((1u << VARIABLES) - 1);
            uint32_t ones = (uint32_t)next(&random) & care;
            insert(family, ones, care & ~ones, j & 15);
        }
        struct family *result = minimise(family, 0);
        sum += (unsigned long)result->count;
        free_family(result);
        free_family(family);
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

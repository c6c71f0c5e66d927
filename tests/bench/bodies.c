/* Bodies under gravity: an octree is built anew for each step, in blocks that hold many cells, and read much more than
 * written. Few allocations: shows what the placement of blocks costs or saves. Operations are steps. */
#include "bench.h"

#define BODIES 3000

static struct arguments args;

struct cell {
    double mass, at[3];
    struct cell *parts[8];
    double side;
};

struct body {
    double at[3], speed[3];
};

static void insert(struct cell *cell, const double at[3], const double low[3], double side, int depth)
{
    double low_part[3];
    for (int i = 0; i < 3; i++)
        cell->at[i] = (cell->at[i] * cell->mass + at[i]) / (cell->mass + 1);
    cell->mass += 1;
    cell->side = side;
    if (depth == 0)
        return;
    int part = 0;
    for (int i = 0; i < 3; i++) {
        int high = at[i] >= low[i] + side / 2;
        low_part[i] = low[i] + (high ? side / 2 : 0);
        part |= high << i;
    }
    if (cell->parts[part] == NULL && (cell->parts[part] = calloc(1, sizeof *cell)) == NULL)
        die("no memory");
    insert(cell->parts[part], at, low_part, side / 2, depth - 1);
}

static void pull(const struct cell *cell, struct body *body)
{
    double d[3], square = 1e-6;
    for (int i = 0; i < 3; i++) {
        d[i] = cell->at[i] - body->at[i];
        square += d[i] * d[i];
    }
    int leaf = 1;
    if (cell->side * cell->side > square)
        for (int i = 0; i < 8; i++)
            if (cell->parts[i] != NULL) {
                leaf = 0;
                pull(cell->parts[i], body);
            }
    if (leaf)
        for (int i = 0; i < 3; i++)
            body->speed[i] += 1e-9 * cell->mass * d[i] / square;
}

static void end(struct cell *cell)
{
    if (cell == NULL)
        return;
    for (int i = 0; i < 8; i++)
        end(cell->parts[i]);
    free(cell);
}

static void *work(void *index)
{
    rng random = seed((long)index);
    struct body *bodies = calloc(BODIES, sizeof *bodies);
    const double low[3] = { 0, 0, 0 };
    for (int i = 0; i < BODIES; i++)
        for (int j = 0; j < 3; j++)
            bodies[i].at[j] = (double)(next(&random) % 1000000) / 1e6;
    for (long step = 0; step < args.ops; step++) {
        struct cell *root = calloc(1, sizeof *root);
        for (int i = 0; i < BODIES; i++)
            insert(root, bodies[i].at, low, 1, 6);
        if (root->mass < BODIES - 0.5)
            die("the tree lost bodies");
        for (int i = 0; i < BODIES; i++) {
            pull(root, &bodies[i]);
            for (int j = 0; j < 3; j++) {
                double at = bodies[i].at[j] + bodies[i].speed[j];
                bodies[i].at[j] = at < 0 || at >= 1 ? 0.5 : at;
            }
        }
        end(root);
    }
    free(bodies);
    return NULL;
}

int main(int argc, char **argv)
{
    args = parse(argc, argv);
    run_threads(args.threads, work);
    return done((unsigned long long)(args.threads * args.ops));
}

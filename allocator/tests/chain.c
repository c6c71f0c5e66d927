/* A chain of calls of known shape, from chain_first to the callback. Built several times with different unwind
 * information by unwind.rs. Each level keeps a local of another size alive, so that frames differ. */
#include <ucontext.h>

typedef void (*callback)(void *);

#define LEVEL(name, next, words)                                  \
    __attribute__((noinline)) int name(callback act, void *data)  \
    {                                                             \
        volatile char local[8 * words];                           \
        local[0] = 1;                                             \
        int below = next(act, data);                              \
        return below + local[0];                                  \
    }

__attribute__((noinline)) int chain_last(callback act, void *data)
{
    act(data);
    __asm__ volatile("" ::: "memory");
    return 1;
}

LEVEL(chain_fourth, chain_last, 700)
LEVEL(chain_third, chain_fourth, 3)
LEVEL(chain_second, chain_third, 1)
LEVEL(chain_first, chain_second, 50)

static callback coroutine_act;
static void *coroutine_data;
static ucontext_t outside, inside;

static void coroutine(void)
{
    chain_first(coroutine_act, coroutine_data);
}

/* The same chain on a stack of the caller's. */
int chain_on_stack(callback act, void *data, char *stack, unsigned long bytes)
{
    coroutine_act = act;
    coroutine_data = data;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = bytes;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    return swapcontext(&outside, &inside);
}

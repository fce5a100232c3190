/* shim.c -- see shim.h. Fibers alternate: each runs until it waits. A fiber that waits at a barrier checks the count of
 * arrivals each time it runs. All threads of a block (or lanes of a warp) run the same code. So the count is usually
 * complete at the first check. */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { LANES = 32, MOST = 256, WARPS = MOST / LANES, STACK = 1 << 16 };

struct barrier {
    unsigned come, number;
    unsigned left; /* threads that have not left the GPU kernel; the barrier waits for these threads */
};

struct fiber {
    void *stack; /* pointer into the stack of the fiber, to continue the fiber there */
    bool done;
    /* Number of exchanges that this fiber has made. Even and odd exchanges use different buffers. So a fast lane does
     * not overwrite a value that a slow lane still reads. */
    unsigned exchanges;
};

struct warp {
    struct barrier barrier;
    float given[2][LANES];
    float a[2][LANES][8], b[2][LANES][4]; /* operands of a product: two elements from each 32-bit word */
};

struct shim_run {
    const struct shim_kernel *kernel;
    const void *args;
    char *stacks;
    void *home; /* pointer into the stack of the thread that runs the fibers, to continue the thread there */
    struct barrier barrier;
    unsigned threads, now;
    struct fiber fiber[MOST];
    struct warp warp[WARPS];
};

_Thread_local struct shim_place shim_grid, shim_block, shim_thread, shim_threads;
static _Thread_local struct shim_run *run;

/* --- fibers --------------------------------------------------------------------------------------------- */

static void fiber_main(void);

#if defined(__x86_64__) && !defined(SHIM_UCONTEXT)
/* Push the registers that a called function must preserve. Store the stack pointer in `*from`, and continue on the
 * stack `to`. */
void shim_switch(void **from, void *to);
__asm__(".text\n"
        ".type shim_switch, @function\n"
        "shim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size shim_switch, . - shim_switch\n");

/* Prepare a stack as shim_switch leaves it: six saved registers and the return address. */
static void prepare(struct fiber *f, char *stack)
{
    void **top = (void **)(void *)(stack + STACK - 64);
    void (*const begin)(void) = fiber_main;
    memcpy(&top[0], &begin, sizeof(begin));
    *f = (struct fiber){ .stack = top - 6 };
}

#else
/* Switch to another fiber with swapcontext(), which makes two system calls. */
static void shim_switch(void **from, void *to)
{
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}

static void prepare(struct fiber *f, char *stack)
{
    ucontext_t *place = (ucontext_t *)(void *)(stack + STACK - 4096);
    getcontext(place);
    place->uc_stack = (stack_t){ .ss_sp = stack, .ss_size = STACK - 4096 };
    makecontext(place, fiber_main, 0);
    *f = (struct fiber){ .stack = place };
}
#endif

static void take_turns(void)
{
    struct fiber *me = &run->fiber[run->now];
    shim_switch(&me->stack, run->home);
}

static void fiber_main(void)
{
    run->kernel->run(run->args);
    run->fiber[run->now].done = true;
    run->barrier.left--;
    run->warp[run->now / LANES].barrier.left--;
    take_turns();
    abort(); /* no fiber may continue a finished fiber */
}

static void one_block(void)
{
    run->barrier = (struct barrier){ .left = run->threads };
    for (unsigned i = 0; i < run->threads / LANES; i++)
        run->warp[i].barrier = (struct barrier){ .left = LANES };
    for (unsigned i = 0; i < run->threads; i++)
        prepare(&run->fiber[i], run->stacks + (size_t)i * STACK);
    struct shim_run *of_thread = run; /* a copy, because access to a thread-local variable takes time */
    struct shim_place *thread = &shim_thread;
    while (of_thread->barrier.left > 0) {
        for (unsigned i = 0; i < of_thread->threads; i++) {
            if (of_thread->fiber[i].done)
                continue;
            of_thread->now = i;
            *thread = (struct shim_place){ i, 0 };
            shim_switch(&of_thread->home, of_thread->fiber[i].stack);
        }
    }
}

static pthread_key_t stacks_key;
static pthread_once_t stacks_once = PTHREAD_ONCE_INIT;

static void free_stacks(void *stacks)
{
    munmap(stacks, (size_t)MOST * STACK);
}

static void make_stacks_key(void)
{
    if (pthread_key_create(&stacks_key, free_stacks) != 0)
        abort();
}

/* Return the stacks of this thread's fibers. The stacks are kept until the thread ends. Otherwise a launch would spend
 * most of its time in page faults. */
static char *stacks_of_thread(void)
{
    pthread_once(&stacks_once, make_stacks_key);
    char *stacks = pthread_getspecific(stacks_key);
    if (stacks == NULL) {
        stacks = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED || pthread_setspecific(stacks_key, stacks) != 0)
            abort();
    }
    return stacks;
}

void shim_run(const struct shim_kernel *kernel, struct shim_place grid, unsigned threads, const void *args)
{
    struct shim_run *of_thread = calloc(1, sizeof(*of_thread));
    if (of_thread == NULL || threads > MOST)
        abort();
    *of_thread =
        (struct shim_run){ .kernel = kernel, .args = args, .stacks = stacks_of_thread(), .threads = threads };
    run = of_thread;
    shim_grid = grid;
    shim_threads = (struct shim_place){ threads, 1 };
    for (shim_block.y = 0; shim_block.y < grid.y; shim_block.y++) {
        for (shim_block.x = 0; shim_block.x < grid.x; shim_block.x++)
            one_block();
    }
    free(of_thread);
}

/* --- barriers ------------------------------------------------------------------------------------------- */

/* Wait for all threads of the barrier that have not left the kernel. */
static void wait_for_all(struct barrier *b)
{
    struct shim_run *of_thread = run;
    struct fiber *me = &of_thread->fiber[of_thread->now];
    const unsigned number = b->number;
    b->come++;
    while (b->number == number) {
        if (b->come < b->left) {
            shim_switch(&me->stack, of_thread->home);
            continue;
        }
        b->come = 0;
        b->number++;
    }
}

void shim_block_barrier(void)
{
    wait_for_all(&run->barrier);
}

static struct warp *my_warp(void)
{
    return &run->warp[run->now / LANES];
}

void shim_warp_barrier(void)
{
    wait_for_all(&my_warp()->barrier);
}

/* --- between lanes -------------------------------------------------------------------------------------- */

float shim_exchange(float x, int mask)
{
    const unsigned lane = run->now % LANES, place = run->fiber[run->now].exchanges++ % 2;
    my_warp()->given[place][lane] = x;
    shim_warp_barrier();
    return my_warp()->given[place][lane ^ (unsigned)mask];
}

static void widen(float *to, const unsigned *words, int n, float (*get)(uint16_t x))
{
    for (int i = 0; i < n; i++) {
        to[2 * i] = get((uint16_t)words[i]);
        to[2 * i + 1] = get((uint16_t)(words[i] >> 16));
    }
}

/* Return the product of row `row` of matrix a and column `column` of matrix b. The section "Matrix Fragments for
 * mma.m16n8k16" of the PTX manual defines which lane holds which element. */
static float row_by_column(const struct warp *w, unsigned place, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < 16; k++) {
        const int lane_a = row % 8 * 4 + k % 8 / 2, lane_b = column * 4 + k % 8 / 2;
        sum +=
            w->a[place][lane_a][(row / 8 + k / 8 * 2) * 2 + k % 2] * w->b[place][lane_b][k / 8 * 2 + k % 2];
    }
    return sum;
}

void shim_mma(float d[4], const unsigned a[4], const unsigned b[2], float (*get)(uint16_t x))
{
    struct warp *w = my_warp();
    const unsigned lane = run->now % LANES, place = run->fiber[run->now].exchanges++ % 2;
    widen(w->a[place][lane], a, 4, get);
    widen(w->b[place][lane], b, 2, get);
    shim_warp_barrier();
    for (int e = 0; e < 4; e++)
        d[e] += row_by_column(w, place, (int)lane / 4 + e / 2 * 8, (int)lane % 4 * 2 + e % 2);
}

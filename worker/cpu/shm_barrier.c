/* shm_barrier.c -- see shm_barrier.h. */
#include "cpu/shm_barrier.h"

#include "base/clock.h"
#include "core/thread_util.h"
#include "cpu/futex.h"
#include "cpu/shm_words.h"

#include <sched.h>
#include <time.h>

enum {
    SPINS = 400,    /* some microseconds: as long as a wake-up by the kernel would cost */
    YIELDS = 16,    /* with fewer cores than ranks: let the others run before going to sleep */
    SLICE_MS = 100, /* of sleep; after each the peers are looked after */
    WORDS_MS = 2000 /* that we wait for the words of who has given up first */
};

/* Tell the core that this is a spin loop: it saves power, and lets a sibling thread run. */
static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err)
{
    int32_t pids[SHM_WORLD_MAX];
    *barrier = (struct shm_barrier){ .control = control, .rank = rank, .world = world };
    barrier->spins = world <= cores_allowed() ? SPINS : 0;
    for (int r = 0; r < world; r++)
        pids[r] = control->ranks[r].pid;
    return peers_open(&barrier->peers, pids, world, rank, err);
}

void barrier_close(struct shm_barrier *barrier)
{
    peers_close(&barrier->peers);
}

void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms)
{
    barrier->control->ranks[barrier->rank].marks[mark->seq & 1] = *mark;
    barrier->timeout_ms = timeout_ms;
    barrier->deadline_ms = 0;
    barrier->slack_ms = 0;
}

/* The acquire pairs with release_all's store: whoever sees the new phase sees everything that all ranks
 * wrote before they arrived, slots and gradients included. */
static bool is_over(const struct shm_barrier *b)
{
    return atomic_load_explicit(&b->control->phase, memory_order_acquire) == (uint32_t)b->passed;
}

/* Whoever was first has the word. It may be asking other hosts for theirs; ours stand only if it does not come
 * back from that. */
static void wait_for_words(const struct shm_barrier *b, struct ddp_err *err)
{
    uint64_t limit = clock_ms() + WORDS_MS;
    struct ddp_err first = { 0 };
    while (shm_aborted(b->control, &first) == DDP_OK) {
        if (clock_ms() >= limit)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    *err = first;
}

ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err)
{
    if (!shm_abort_claim(barrier->control)) {
        wait_for_words(barrier, err);
        return err->code;
    }
    if (barrier->abroad != NULL)
        barrier->abroad->tell(barrier->abroad->user, err);
    shm_abort_publish(barrier->control, err->code, err->msg);
    return err->code;
}

/* A peer may end right after it has passed the last barrier of its life, so the phase is asked again after
 * the peers. */
static ddp_status look_after_peers(const struct shm_barrier *b, struct ddp_err *err)
{
    int ended = peers_ended(&b->peers);
    ddp_status status = ended < 0 && b->abroad != NULL ? b->abroad->check(b->abroad->user, err) : DDP_OK;
    if ((ended < 0 && status == DDP_OK) || is_over(b))
        return err->code = DDP_OK;
    if (ended >= 0)
        words_ended(b->control, b->rank, ended, true, err);
    return barrier_give_up(b, err);
}

bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms)
{
    uint64_t now = clock_ms();
    if (barrier->deadline_ms == 0)
        barrier->deadline_ms = now + barrier->timeout_ms;
    uint64_t deadline = barrier->deadline_ms + barrier->slack_ms;
    if (now >= deadline)
        return false;
    *slice_ms = deadline - now < SLICE_MS ? (uint32_t)(deadline - now) + 1 : SLICE_MS;
    return true;
}

/* The deadline is set at the first real wait of a call, and holds for all its barriers together.
 * *slice_ms gets how long to sleep before looking around again. */
static ddp_status look_at_clock(struct shm_barrier *b, uint32_t *slice_ms, struct ddp_err *err)
{
    *slice_ms = 1;
    if (barrier_has_time(b, slice_ms) || is_over(b))
        return DDP_OK;
    words_missing(b->control, b->world, b->rank, (uint32_t)b->passed, b->timeout_ms, err);
    return barrier_give_up(b, err);
}

/* No wake-up is lost: we count ourselves as a sleeper before the kernel compares the phase, and the last
 * rank moves the phase before it looks for sleepers (both sequentially consistent). So either it sees us
 * and wakes us, or the kernel sees the new phase and does not let us sleep. An abort may slip in between;
 * the end of the slice catches it. */
static ddp_status sleep_until_over(struct shm_barrier *b, struct ddp_err *err)
{
    struct shm_control *control = b->control;
    uint32_t slice_ms = 0;

    while (!is_over(b)) {
        ddp_status status = shm_aborted(control, err);
        if (status == DDP_OK)
            status = look_at_clock(b, &slice_ms, err);
        if (status != DDP_OK)
            return status;
        atomic_fetch_add(&control->sleepers, 1);
        futex_wait(&control->phase, (uint32_t)b->passed - 1, slice_ms);
        atomic_fetch_sub(&control->sleepers, 1);
        if (!is_over(b) && (status = look_after_peers(b, err)) != DDP_OK)
            return status;
    }
    return DDP_OK;
}

/* Spinning is the fastest way when the others are about to arrive on cores of their own; with fewer cores
 * than ranks it would only keep them from arriving. Yielding serves that case: nearly always the phase is
 * over when we get the core back, and neither side has paid for sleeping and waking. */
static ddp_status wait_for_others(struct shm_barrier *b, struct ddp_err *err)
{
    for (int i = 0; i < b->spins; i++) {
        if (is_over(b))
            return DDP_OK;
        relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (is_over(b))
            return DDP_OK;
        sched_yield();
    }
    return sleep_until_over(b, err);
}

/* The last one to come. On a mismatch the phase stays, and the others find the reason. */
static ddp_status release_all(struct shm_barrier *b, bool compare, struct ddp_err *err)
{
    if (compare && words_compare(b->control, b->world, err) != DDP_OK)
        return barrier_give_up(b, err);
    atomic_store(&b->control->phase, (uint32_t)b->passed);
    if (atomic_load(&b->control->sleepers) > 0)
        futex_wake_all(&b->control->phase);
    return DDP_OK;
}

/* `arrived` is for the words of a time-out only; it is `arrivals` that decides who is last. The mark was
 * written before, so the read-modify-write (acquire and release) makes all marks visible to the last one. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err)
{
    struct shm_control *control = barrier->control;
    ddp_status status = shm_aborted(control, err);
    if (status != DDP_OK)
        return status;
    barrier->passed++;
    atomic_store_explicit(&control->ranks[barrier->rank].arrived, (uint32_t)barrier->passed,
                          memory_order_release);
    uint64_t arrivals = atomic_fetch_add(&control->arrivals, 1) + 1;
    if (arrivals == barrier->passed * (uint64_t)barrier->world)
        return release_all(barrier, compare, err);
    return wait_for_others(barrier, err);
}

/* For waits that are not in shared memory (other hosts, a named barrier in a foreign store): the same duties, without
 * a phase. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err)
{
    ddp_status status = shm_aborted(barrier->control, err);
    if (status != DDP_OK)
        return status;
    int ended = peers_ended(&barrier->peers);
    if (ended >= 0)
        words_ended(barrier->control, barrier->rank, ended, in_call, err);
    else if (barrier->abroad == NULL || barrier->abroad->check(barrier->abroad->user, err) == DDP_OK)
        return DDP_OK;
    return barrier_give_up(barrier, err);
}

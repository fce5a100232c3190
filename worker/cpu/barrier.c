/* barrier.c -- see barrier.h.
 *
 * Each rank has a pidfd of every other one. The kernel makes it readable as soon as the process ends, and it never
 * refers to a later process with the same number. kill(pid, 0) is not enough, because it succeeds for a zombie and for
 * such a later process. */
#include "cpu/barrier.h"

#include "base/clock.h"
#include "base/syscalls.h"
#include "core/comm_thread.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- the other ranks as processes ------------------------------------------------------------------------ */

/* May be called any number of times, also for a peers_open() that failed halfway. */
static void peers_close(struct peers *peers)
{
    if (peers->fds == NULL)
        return;
    for (int r = 0; r < peers->world; r++)
        if (peers->fds[r].fd >= 0)
            close(peers->fds[r].fd);
    free(peers->fds);
    peers->fds = NULL;
}

/* Kill(pid, 0) would not do: it succeeds for a zombie, and for a stranger who has got the number since. */

/* A peer that has ended and was waited for is detected here; a zombie opens like a living process, and the first
 * check of the peers detects it. */
static ddp_status open_one(struct peers *peers, int32_t pid, int rank, struct ddp_err *err)
{
    peers->fds[rank] = (struct pollfd){ .fd = sys_pidfd_open(pid, 0), .events = POLLIN };
    if (peers->fds[rank].fd >= 0)
        return DDP_OK;
    if (errno == ESRCH)
        return ddp_fail(err, DDP_ERR_PEER_LOST, "rank %d (pid %d) has ended before all ranks had joined",
                        rank, pid);
    return ddp_fail(err, DDP_ERR_IO, "watching rank %d (pid %d): pidfd_open: %s%s", rank, pid,
                    strerror(errno), errno == EMFILE ? " (raise the limit with `ulimit -n`)" : "");
}

/* One descriptor for each peer. That is 255 in a world of 256, below the usual limit of 1024. */
static ddp_status peers_open(struct peers *peers, const int32_t *pids, int world, int rank,
                             struct ddp_err *err)
{
    ddp_status status = DDP_OK;

    *peers = (struct peers){ calloc((unsigned)world, sizeof(struct pollfd)), world };
    if (peers->fds == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d peers", world);
    for (int r = 0; r < world; r++)
        peers->fds[r].fd = -1;
    for (int r = 0; r < world && status == DDP_OK; r++)
        if (r != rank)
            status = open_one(peers, pids[r], r, err);
    if (status != DDP_OK)
        peers_close(peers);
    return status;
}

/* One system call for all peers. A zombie counts as ended: its pidfd is readable before its parent has waited for it. */
static int peers_ended(const struct peers *peers)
{
    if (poll(peers->fds, (nfds_t)peers->world, 0) <= 0)
        return -1;
    for (int r = 0; r < peers->world; r++)
        if (peers->fds[r].fd >= 0 && peers->fds[r].revents != 0)
            return r;
    return -1;
}

/* Return the letter after the command name in /proc/<pid>/stat; '?' when it cannot be read. */
static char state_letter(int32_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return '?';
    char *end = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

static const char *peers_state(int32_t pid)
{
    switch (state_letter(pid)) {
    case 'R':
        return "runs";
    case 'S':
        return "sleeps";
    case 'D':
        return "hangs in a system call";
    case 'T':
    case 't':
        return "is stopped by a signal or a debugger";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        return "state unknown";
    }
}

/* --- errors between ranks -------------------------------------------------------------------------------- */

/* From the control page. Other ranks may be writing these marks, so trust nothing: a torn mark gives a strange
 * sentence, never a crash. */

/* Return the call of a rank, or its last one if its mark is for another call. */
static const char *mark_text(char text[CALL_TEXT], const struct shm_control *control, int rank)
{
    const struct shm_mark *mark = shm_last_mark(control, rank);
    return call_text(text, &mark->call, mark->seq);
}

/* Format "rank 2 (pid 123 on host) has ended while rank 0 waited in all_reduce #17 (f32 x 1024, sum)"; for a rank
 * that was not in a call "... has ended; the last call of rank 0 was all_reduce #17 (f32 x 1024, sum)". */
static ddp_status fail_peer_ended(const struct shm_control *control, int rank, int ended, bool in_call,
                                  struct ddp_err *err)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[ended];
    return ddp_fail(err, DDP_ERR_PEER_LOST, "rank %d (pid %d on %.63s) has ended%s rank %d %s %s", r->rank,
                    r->pid, control->host, in_call ? " while" : "; the last call of",
                    control->ranks[rank].rank, in_call ? "waited in" : "was", mark_text(text, control, rank));
}

/* Append "rank 2 (pid 123 is stopped by a signal or a debugger; last seen in all_reduce #16 (f32 x 9,
 * sum))". */
static void list_rank(char *list, size_t room, const struct shm_control *control, int rank)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[rank];
    size_t used = strlen(list);
    snprintf(list + used, room - used, "%srank %d (pid %d %s; last seen in %s)", used ? ", " : "", r->rank,
             r->pid, peers_state(r->pid), r->arrived == 0 ? "no call" : mark_text(text, control, rank));
}

/* List the ranks that have not arrived at phase `phase`, with their state and their last call. */
static ddp_status fail_peers_missing(const struct shm_control *control, int world, int rank, uint32_t phase,
                                     uint32_t waited_ms, struct ddp_err *err)
{
    enum { LISTED = 4 }; /* more would not fit into the text of an error */
    char list[800] = "", text[CALL_TEXT];
    int missing = 0;

    for (int r = 0; r < world; r++)
        if (control->ranks[r].arrived != phase && missing++ < LISTED)
            list_rank(list, sizeof(list), control, r);
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "rank %d waited %u ms in %s, but %d of %d ranks on %.63s did not arrive: %s%s",
                    control->ranks[rank].rank, waited_ms, mark_text(text, control, rank), missing, world,
                    control->host, list, missing > LISTED ? ", and others" : "");
}

/* Everything that decides how many barriers and bytes a call has. Pointers and timeouts may differ between ranks. */
static bool same_call(const struct shm_mark *a, const struct shm_mark *b)
{
    return a->seq == b->seq && a->call.kind == b->call.kind && a->call.n == b->call.n &&
           a->call.dtype == b->call.dtype && a->call.op == b->call.op && a->call.root == b->call.root;
}

/* Compare the calls of all ranks: DDP_OK, or DDP_ERR_MISMATCH with rank 0's call and the first that differs. */
static ddp_status compare_marks(const struct shm_control *control, int world, struct ddp_err *err)
{
    char first[CALL_TEXT], other[CALL_TEXT];
    const struct shm_mark *mark = shm_last_mark(control, 0);

    for (int r = 1; r < world; r++)
        if (!same_call(mark, shm_mark_of(control, r, mark->seq)))
            return ddp_fail(err, DDP_ERR_MISMATCH, "ranks disagree: rank %d called %s, rank %d called %s",
                            control->ranks[0].rank, mark_text(first, control, 0), control->ranks[r].rank,
                            mark_text(other, control, r));
    return DDP_OK;
}

/* --- the barrier ----------------------------------------------------------------------------------------- */

enum {
    SPINS = 400,    /* some microseconds: the cost of a wake-up by the kernel */
    YIELDS = 16,    /* with fewer cores than ranks: let the others run before sleeping */
    SLICE_MS = 100, /* ms of sleep, after which the peers are checked */
    WORDS_MS = 2000 /* ms to wait for the reason of the rank that gave up first */
};

/* Tell the core that this is a spin loop, which saves power and lets a sibling thread run. */
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

/* The acquire pairs with release_all's store: a rank that sees the new phase sees everything that all ranks wrote
 * before they arrived, slots and gradients included. */
static bool is_over(const struct shm_barrier *b)
{
    return atomic_load_explicit(&b->control->phase, memory_order_acquire) == (uint32_t)b->passed;
}

/* The reason of the first rank counts. That rank may be waiting for the reason of other hosts; ours counts only if it
 * never publishes one. */
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
        barrier->abroad->publish(barrier->abroad->user, err);
    shm_abort_publish(barrier->control, err->code, err->msg);
    return err->code;
}

/* A peer may end right after it has passed its last barrier, so check the phase again after the peers. */
static ddp_status check_peers(const struct shm_barrier *b, struct ddp_err *err)
{
    int ended = peers_ended(&b->peers);
    ddp_status status = ended < 0 && b->abroad != NULL ? b->abroad->check(b->abroad->user, err) : DDP_OK;
    if ((ended < 0 && status == DDP_OK) || is_over(b))
        return err->code = DDP_OK;
    if (ended >= 0)
        fail_peer_ended(b->control, b->rank, ended, true, err);
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

/* Set the deadline at the first real wait of a call; it holds for all its barriers together. *slice_ms gets how long
 * to sleep before the next check. */
static ddp_status check_clock(struct shm_barrier *b, uint32_t *slice_ms, struct ddp_err *err)
{
    *slice_ms = 1;
    if (barrier_has_time(b, slice_ms) || is_over(b))
        return DDP_OK;
    fail_peers_missing(b->control, b->world, b->rank, (uint32_t)b->passed, b->timeout_ms, err);
    return barrier_give_up(b, err);
}

/* No wake-up is lost: we count ourselves as a sleeper before the kernel compares the phase, and the last rank changes
 * the phase before it checks for sleepers (both sequentially consistent). So either that rank sees us and wakes us,
 * or the kernel sees the new phase and does not let us sleep. An abort may come in between; it is detected at the end
 * of the slice. */
static ddp_status sleep_until_over(struct shm_barrier *b, struct ddp_err *err)
{
    struct shm_control *control = b->control;
    uint32_t slice_ms = 0;

    while (!is_over(b)) {
        ddp_status status = shm_aborted(control, err);
        if (status == DDP_OK)
            status = check_clock(b, &slice_ms, err);
        if (status != DDP_OK)
            return status;
        atomic_fetch_add(&control->sleepers, 1);
        futex_wait(&control->phase, (uint32_t)b->passed - 1, slice_ms);
        atomic_fetch_sub(&control->sleepers, 1);
        if (!is_over(b) && (status = check_peers(b, err)) != DDP_OK)
            return status;
    }
    return DDP_OK;
}

/* Spinning is fastest when the others are about to arrive on other cores; with fewer cores than ranks it would only
 * delay them. Yielding is for that case: nearly always the phase is over when we get the core back, and neither side
 * has paid for sleeping and waking. */
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

/* The last rank to arrive. On a mismatch the phase stays, and the others find the reason. */
static ddp_status release_all(struct shm_barrier *b, bool compare, struct ddp_err *err)
{
    if (compare && compare_marks(b->control, b->world, err) != DDP_OK)
        return barrier_give_up(b, err);
    atomic_store(&b->control->phase, (uint32_t)b->passed);
    if (atomic_load(&b->control->sleepers) > 0)
        futex_wake_all(&b->control->phase);
    return DDP_OK;
}

/* `arrived` is only for the text of a timeout; `arrivals` decides which rank is last. The mark was written before, so
 * the read-modify-write (acquire and release) makes all marks visible to the last one. */
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

/* For waits outside shared memory (other hosts, a named barrier in a foreign store): the same checks, without a
 * phase. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err)
{
    ddp_status status = shm_aborted(barrier->control, err);
    if (status != DDP_OK)
        return status;
    int ended = peers_ended(&barrier->peers);
    if (ended >= 0)
        fail_peer_ended(barrier->control, barrier->rank, ended, in_call, err);
    else if (barrier->abroad == NULL || barrier->abroad->check(barrier->abroad->user, err) == DDP_OK)
        return DDP_OK;
    return barrier_give_up(barrier, err);
}

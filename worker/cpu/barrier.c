/* barrier.c -- see barrier.h.
 *
 * Each rank has a pidfd of every other rank. The kernel makes a pidfd readable as soon as its process ends, and a
 * pidfd never refers to a later process with the same pid. kill(pid, 0) cannot replace a pidfd: kill succeeds for a
 * zombie and for a later process with the same pid. */
#include "cpu/barrier.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "core/comm_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- the other ranks as processes ------------------------------------------------------------------------ */

/* Close all descriptors. A second call, or a call after a failed peers_open(), is allowed. */
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

/* Open the pidfd of one peer. Fail if the peer no longer exists. pidfd_open succeeds for a zombie, but peers_ended()
 * detects the zombie later. */
static ddp_status open_one(struct peers *peers, int32_t pid, int rank, struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX];
    peers->fds[rank] = (struct pollfd){ .fd = sys_pidfd_open(pid, 0), .events = POLLIN };
    if (peers->fds[rank].fd >= 0)
        return DDP_OK;
    if (errno == ESRCH)
        return ddp_fail(err, DDP_ERR_PEER_LOST,
                        "rank %d (pid %d) ended before all ranks had joined; read the end of its log", rank,
                        pid);
    return ddp_fail(err, DDP_ERR_IO, "cannot watch rank %d (pid %d): pidfd_open: %s%s", rank, pid,
                    strerror(errno), files_remedy(errno, remedy));
}

/* Open one descriptor for each peer. A host with 256 ranks needs 255 descriptors, fewer than the usual limit of
 * 1024. */
static ddp_status peers_open(struct peers *peers, const int32_t *pids, int world, int rank,
                             struct ddp_err *err)
{
    ddp_status status = DDP_OK;

    *peers = (struct peers){ calloc((unsigned)world, sizeof(struct pollfd)), world };
    if (peers->fds == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d peers", world);
    for (int r = 0; r < world; r++)
        peers->fds[r].fd = -1;
    for (int r = 0; r < world && status == DDP_OK; r++)
        if (r != rank)
            status = open_one(peers, pids[r], r, err);
    if (status != DDP_OK)
        peers_close(peers);
    return status;
}

/* Return a rank that has ended, or -1 if all ranks run. One poll checks all peers. The pidfd of a zombie is
 * readable too. */
static int peers_ended(const struct peers *peers)
{
    if (poll(peers->fds, (nfds_t)peers->world, 0) <= 0)
        return -1;
    for (int r = 0; r < peers->world; r++)
        if (peers->fds[r].fd >= 0 && peers->fds[r].revents != 0)
            return r;
    return -1;
}

/* Return the state letter of /proc/<pid>/stat, or '?' if the file cannot be read. */
static char state_letter(int32_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    (void)read_small_file(AT_FDCWD, path, line, sizeof(line));
    const char *end = strrchr(line, ')');
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
        return "is in an unknown state";
    }
}

/* --- errors between ranks -------------------------------------------------------------------------------- */

/* The functions below read the marks of other ranks. A mark (struct shm_mark) describes the call that a rank has begun.
 * Another rank may still be writing its mark, so these functions check every value. */

/* Return the text of the last call that `rank` has begun. */
static const char *mark_text(char text[CALL_TEXT], const struct shm_control *control, int rank)
{
    const struct shm_mark *mark = shm_last_mark(control, rank);
    return call_text(text, &mark->call, mark->seq);
}

/* Report that rank `ended` has ended: "rank 2 (pid 123 on host) has ended while rank 0 waited in all_reduce #17
 * (f32 x 1024, sum)". Outside a call: "... has ended; rank 0 last called all_reduce #17 (f32 x 1024, sum)". */
static ddp_status fail_peer_ended(const struct shm_control *control, int rank, int ended, bool in_call,
                                  struct ddp_err *err)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[ended];
    return ddp_fail(err, DDP_ERR_PEER_LOST, "rank %d (pid %d on %.63s) has ended%s rank %d %s %s", r->rank,
                    r->pid, control->host, in_call ? " while" : ";", control->ranks[rank].rank,
                    in_call ? "waited in" : "last called", mark_text(text, control, rank));
}

/* Append the state of `rank`: "rank 2 (pid 123 is stopped by a signal or a debugger; last call: all_reduce #16
 * (f32 x 9, sum))". */
static void list_rank(char *list, size_t room, const struct shm_control *control, int rank)
{
    char text[CALL_TEXT];
    const struct shm_rank *r = &control->ranks[rank];
    size_t used = strlen(list);
    snprintf(list + used, room - used, "%srank %d (pid %d %s; last call: %s)", used ? ", " : "", r->rank,
             r->pid, peers_state(r->pid), r->arrived == 0 ? "none" : mark_text(text, control, rank));
}

/* Report the ranks that have not arrived at phase `phase`, with the state and the last call of each. */
static ddp_status fail_peers_missing(const struct shm_control *control, int world, int rank, uint32_t phase,
                                     uint32_t waited_ms, struct ddp_err *err)
{
    enum { LISTED = 4 }; /* the error text has no room for more ranks */
    char list[800] = "", text[CALL_TEXT];
    const enum call_kind kind = shm_last_mark(control, rank)->call.kind;
    int missing = 0;

    for (int r = 0; r < world; r++)
        if (control->ranks[r].arrived != phase && missing++ < LISTED)
            list_rank(list, sizeof(list), control, r);
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "rank %d waited %g s in %s, but %d of %d ranks on %.63s did not arrive: %s%s; %s sets "
                    "the default time limit",
                    control->ranks[rank].rank, waited_ms / 1000.0, mark_text(text, control, rank), missing,
                    world, control->host, list, missing > LISTED ? ", and others" : "",
                    kind == CALL_INIT ? "--timeout of ddprun or DDPRUN_INIT_TIMEOUT_MS"
                                      : "DDPRUN_STEP_TIMEOUT_MS");
}

/* Return true if the marks describe the same call. Pointers and timeouts may differ between ranks. */
static bool same_call(const struct shm_mark *a, const struct shm_mark *b)
{
    return a->seq == b->seq && a->call.kind == b->call.kind && a->call.n == b->call.n &&
           a->call.dtype == b->call.dtype && a->call.op == b->call.op && a->call.root == b->call.root;
}

/* Compare the calls of all ranks. The text of DDP_ERR_MISMATCH names rank 0's call and the first call that differs. */
static ddp_status compare_marks(const struct shm_control *control, int world, struct ddp_err *err)
{
    char first[CALL_TEXT], other[CALL_TEXT];
    const struct shm_mark *mark = shm_last_mark(control, 0);

    for (int r = 1; r < world; r++)
        if (!same_call(mark, shm_mark_of(control, r, mark->seq)))
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "ranks disagree: rank %d called %s, rank %d called %s; call the same collectives "
                            "in the same order and with the same arguments on all ranks",
                            control->ranks[0].rank, mark_text(first, control, 0), control->ranks[r].rank,
                            mark_text(other, control, r));
    return DDP_OK;
}

/* --- the barrier ----------------------------------------------------------------------------------------- */

enum {
    SPINS = 400,    /* iterations of the spin loop; they take about as long as a wake-up by the kernel */
    YIELDS = 16,    /* sched_yield calls before sleeping */
    SLICE_MS = 100, /* ms of sleep between two checks of the peers */
    WORDS_MS = 2000 /* ms to wait for the abort text of another rank */
};

/* Hint to the processor that this is a spin loop. The hint saves power and lets the core's other thread run. */
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

/* Return true if all ranks have arrived. The acquire load pairs with the atomic_store in release_all(), so this rank
 * sees everything that other ranks wrote before they arrived. */
static bool is_over(const struct shm_barrier *b)
{
    return atomic_load_explicit(&b->control->phase, memory_order_acquire) == (uint32_t)b->passed;
}

/* Set *err to the reason of the rank that gave up first. That rank may still be writing the reason, so wait up to
 * WORDS_MS. If no reason appears, leave *err unchanged. */
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

/* Fail if a peer has ended or another host has failed. If the phase is over, all peers have arrived, so do not
 * fail: a peer may end right after its last barrier. */
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

/* Check the deadline. The first wait of a call sets the deadline for all barriers of that call. Set *slice_ms to
 * the time to sleep before the next check. */
static ddp_status check_clock(struct shm_barrier *b, uint32_t *slice_ms, struct ddp_err *err)
{
    *slice_ms = 1;
    if (barrier_has_time(b, slice_ms) || is_over(b))
        return DDP_OK;
    fail_peers_missing(b->control, b->world, b->rank, (uint32_t)b->passed, b->timeout_ms, err);
    return barrier_give_up(b, err);
}

/* Sleep until the phase is over, in slices of at most SLICE_MS. Check the peers after each slice. No wake-up is lost:
 * this rank increments `sleepers`, and then the kernel compares `phase` with its old value. The last rank changes
 * `phase`, and then reads `sleepers`. All four steps are sequentially consistent. So either the last rank sees this
 * sleeper and wakes it, or the kernel sees the new phase and futex_wait returns at once. An abort is detected at the
 * end of the slice at the latest. */
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

/* Wait for the other ranks: spin, then yield, then sleep. Spinning is fastest if the other ranks are about to
 * arrive on other cores. With fewer cores than ranks, `spins` is 0, because spinning would delay the other ranks. */
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

/* Begin the next phase. If `compare` is true, first compare the marks of all ranks, which describe their calls. If the
 * marks differ, give up the barrier instead: the other ranks then read the reason in the control page. Only the last
 * rank to arrive calls this function. */
static ddp_status release_all(struct shm_barrier *b, bool compare, struct ddp_err *err)
{
    if (compare && compare_marks(b->control, b->world, err) != DDP_OK)
        return barrier_give_up(b, err);
    atomic_store(&b->control->phase, (uint32_t)b->passed);
    if (atomic_load(&b->control->sleepers) > 0)
        futex_wake_all(&b->control->phase);
    return DDP_OK;
}

/* Pass the barrier. Each rank has written its mark (barrier_begin) before this call. `arrivals` determines which rank
 * is last. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err)
{
    struct shm_control *control = barrier->control;
    ddp_status status = shm_aborted(control, err);
    if (status != DDP_OK)
        return status;
    barrier->passed++;
    /* Other ranks read `arrived` only after a timeout, to report the missing ranks. */
    atomic_store_explicit(&control->ranks[barrier->rank].arrived, (uint32_t)barrier->passed,
                          memory_order_release);
    /* atomic_fetch_add is also an acquire and a release, so the last rank to arrive sees the marks of all ranks. */
    uint64_t arrivals = atomic_fetch_add(&control->arrivals, 1) + 1;
    if (arrivals == barrier->passed * (uint64_t)barrier->world)
        return release_all(barrier, compare, err);
    return wait_for_others(barrier, err);
}

/* Do the same checks as a barrier that waits. Functions that wait for other hosts, or for a key of the store, call
 * this function. */
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

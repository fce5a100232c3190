/* trial.c -- see trial.h.
 *
 * The steps of a trial:
 *
 *   1. Start the job.
 *   2. Wait for the moment that the seed has chosen: during the start, or when all workers are ready.
 *   3. Make the fault.
 *   4. Wait until no child is left, or until the time is over.
 *   5. Count the survivors, kill them, and report.
 *
 * If the fault has killed both processes of ddprun, the next start of ddprun must find the survivors. So the trial
 * starts a job of one worker in step 4, and measures the time from this start. */
#include "trial.h"

#include "live.h"
#include "procstat.h"
#include "tree.h"

#include "base/clock.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORKERS = 3, /* the last worker fills the memory for an out-of-memory fault */
    HOG_RANK = WORKERS - 1,
    HOG_DELAY_MS = 200,
    READY_MS = 20000,        /* limit for the start, on a busy machine */
    START_SPREAD_US = 30000, /* longest delay of a fault during the start; longer than the start */
    LATER_SPREAD_US = 10000,
    SETTLE_US = 50000,    /* after FAULT_BOTH: time for all processes to end before ddprun is started again */
    NEXT_START_MS = 3000, /* limit from the next start until no process is left; after_ms is added */
    LOOK_US = 2000,
    KILL_MS = 10000
};

struct run {
    struct live live;
    struct trial_result *r;
    uint64_t random;
};

/* Return the next random number of the trial, which is less than `below`. */
static uint64_t pick(struct run *x, uint64_t below)
{
    x->random ^= x->random << 13;
    x->random ^= x->random >> 7;
    x->random ^= x->random << 17;
    return x->random % below;
}

__attribute__((format(printf, 2, 3))) static void add_words(struct run *x, const char *format, ...)
{
    const size_t used = strlen(x->r->words);
    va_list args;
    va_start(args, format);
    vsnprintf(x->r->words + used, sizeof(x->r->words) - used, format, args);
    va_end(args);
}

/* Print the launcher's state and the end of its output, on one line. */
static void add_launcher(struct run *x)
{
    enum { SHOWN = 300 };
    const struct live *l = &x->live;
    const size_t from = l->len > SHOWN ? l->len - SHOWN : 0;
    char said[SHOWN + 1];
    size_t n = 0;
    for (size_t i = from; i < l->len; i++)
        said[n++] = (unsigned char)l->text[i] < ' ' ? ' ' : l->text[i];
    said[n] = '\0';
    if (!l->ended)
        add_words(x, "  the launcher %d runs", (int)l->launcher);
    else if (WIFEXITED(l->status))
        add_words(x, "  launcher: exit status %d", WEXITSTATUS(l->status));
    else
        add_words(x, "  the launcher was ended by signal %d", WTERMSIG(l->status));
    add_words(x, "; its last output: %s\n", said);
}

static bool no_fault(struct run *x, const char *why)
{
    add_words(x, "%s\n", why);
    add_launcher(x);
    return false;
}

static bool start_workers(struct run *x)
{
#define X(id, name, words) name,
    static const char *const kinds[] = { KINDS(X) };
#undef X
    char hog_rank[16], delay[16];
    snprintf(hog_rank, sizeof(hog_rank), "%d", x->live.t->fault == FAULT_OOM ? HOG_RANK : -1);
    snprintf(delay, sizeof(delay), "%d", x->r->during_start ? 0 : HOG_DELAY_MS);
    return live_start(
        &x->live, WORKERS,
        (const char *const[]){ x->live.t->worker, kinds[x->live.t->kind], hog_rank, delay, NULL });
}

/* Open a pidfd of the agent. Among the guardian's children, only the agent leads a session; earlier children only test
 * the kernel's features. The agent is not a child of this process, so another process may get its pid. So check the pid
 * again after the open. */
static int open_agent(struct run *x)
{
    const uint64_t until = clock_us() + READY_MS * 1000;
    while (!x->live.ended && clock_us() < until) {
        pid_t agent = procstat_child(x->live.launcher, 0);
        int fd = agent > 0 && getsid(agent) == agent ? pidfd_open(agent, 0) : -1;
        if (fd >= 0 && procstat_child(x->live.launcher, 0) == agent)
            return fd;
        if (fd >= 0)
            close(fd);
        live_step(&x->live, clock_us());
    }
    return -1;
}

/* Kill the guardian and the agent. In half of the trials, send one kill directly after the other. In the other half,
 * stop both processes first, so that neither can detect the other's death. */
static void kill_both(struct run *x, int agent)
{
    if (pick(x, 2) == 0) {
        kill(x->live.launcher, SIGSTOP);
        pidfd_send_signal(agent, SIGSTOP, NULL, 0);
        kill(x->live.launcher, SIGKILL);
        pidfd_send_signal(agent, SIGKILL, NULL, 0);
    } else {
        pidfd_send_signal(agent, SIGKILL, NULL, 0);
        kill(x->live.launcher, SIGKILL);
    }
}

/* Kill the agent. If `guardian_too` is true, kill the guardian, too. A fault during the start happens a random time
 * after the agent's start. Return false if there is no agent. */
static bool kill_agent(struct run *x, bool guardian_too)
{
    int agent = open_agent(x);
    if (agent < 0)
        return no_fault(x, "there was no agent");
    if (x->r->during_start)
        live_wait(&x->live, pick(x, START_SPREAD_US));
    if (guardian_too)
        kill_both(x, agent);
    else
        pidfd_send_signal(agent, SIGKILL, NULL, 0);
    close(agent);
    return true;
}

static bool until_oom(struct run *x)
{
    const uint64_t until = clock_ms() + READY_MS;
    bool somebody = true;
    int kills;
    /* Count the kills again after the last live_step, because a kill may have ended the job. */
    while ((kills = cage_oom_kills(&x->live.cage)) == 0 && somebody && clock_ms() < until)
        somebody = live_step(&x->live, clock_us() + LOOK_US);
    return kills > 0 ||
           no_fault(x, somebody ? "no process was killed for lack of memory"
                                : "the job was over, and no process was killed for lack of memory");
}

static bool make_fault(struct run *x)
{
    const enum fault fault = x->live.t->fault;
    switch (fault) {
    case FAULT_TERM:
    case FAULT_GUARDIAN:
        kill(x->live.launcher, fault == FAULT_TERM ? SIGTERM : SIGKILL);
        return true;
    case FAULT_AGENT:
    case FAULT_BOTH:
        return kill_agent(x, fault == FAULT_BOTH);
    case FAULT_HANGUP:
        live_hang_up(&x->live);
        return true;
    default:
        return until_oom(x);
    }
}

static bool until_moment(struct run *x)
{
    const uint64_t until = clock_us() + READY_MS * 1000ULL;
    const enum fault fault = x->live.t->fault;
    if (x->r->during_start) {
        if (fault != FAULT_AGENT && fault != FAULT_BOTH)
            live_wait(&x->live, pick(x, START_SPREAD_US));
        return true;
    }
    while (x->live.ready < WORKERS && fault != FAULT_OOM)
        if (!live_step(&x->live, until) || x->live.ended || clock_us() > until)
            return no_fault(x, "the workers did not come");
    live_wait(&x->live, pick(x, LATER_SPREAD_US));
    return true;
}

/* Count the processes that are left. Return at least 1, because wait() has reported that a child is left. The list of
 * /proc may miss processes that live only briefly. */
static int count_left(struct run *x)
{
    const size_t seen = tree_count(x->r->words, sizeof(x->r->words));
    return seen > 0 ? (int)seen : 1;
}

/* Count the survivors, and start ddprun again. Set *from_us to the time of this start. Return the deadline for the
 * end of all processes, in us. */
static uint64_t start_again(struct run *x, uint64_t *from_us)
{
    x->r->left_for_next = count_left(x);
    live_hang_up(&x->live);
    *from_us = clock_us();
    live_start(&x->live, 1, (const char *const[]){ "true", NULL });
    return *from_us + (NEXT_START_MS + (uint64_t)x->live.t->after_ms) * 1000;
}

static void look(struct run *x)
{
    const struct trial *t = x->live.t;
    uint64_t from_us = clock_us(), limit_us = from_us + launcher_limit_ms(t) * 1000;
    const bool may_start_again = t->fault == FAULT_BOTH && t->by != BY_PIDNS_LAYER;
    bool nobody = live_until_nobody(&x->live, may_start_again ? from_us + SETTLE_US : limit_us);
    if (!nobody && may_start_again) {
        limit_us = start_again(x, &from_us);
        nobody = live_until_nobody(&x->live, limit_us);
    }
    x->r->ms = (double)(clock_us() - from_us) / 1000;
    x->r->survivors = nobody ? 0 : count_left(x);
    if (!nobody)
        add_launcher(x);
}

void trial_run(const struct trial *t, struct trial_result *r)
{
    const uint64_t place = t->seed * KIND_COUNT * FAULT_COUNT + (uint64_t)(t->kind * FAULT_COUNT + t->fault);
    struct run x = { .live = { .t = t, .out = -1 }, .r = r, .random = (place + 1) * 0x9E3779B97F4A7C15ULL };
    *r = (struct trial_result){ .end = TRIAL_NO_FAULT };
    r->during_start = pick(&x, 2) == 0;
    cage_open(&x.live.cage, t->fault == FAULT_OOM);
    if (tree_open() && start_workers(&x) && until_moment(&x) && make_fault(&x)) {
        look(&x);
        r->end = TRIAL_DONE;
    }
    live_hang_up(&x.live);
    if (!tree_kill(KILL_MS) && r->survivors == 0)
        r->survivors = count_left(&x);
    cage_close(&x.live.cage);
}

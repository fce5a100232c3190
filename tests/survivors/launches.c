/* launches.c -- ten thousand launches of workers that exit at once, to find hangs, zombies and leaked descriptors.
 *
 *     launches [--launches=N] [--seed=N] DDPRUN
 *
 * Each launch has 1 to 256 workers (/bin/true). Small numbers of workers are more frequent. This program adopts
 * orphans, so a process that the launcher has left behind becomes a child of this program. About half of the launches
 * are traced with ptrace. Guardian and agent then stop just before their end, and this program reads the kernel's lists
 * of their descriptors and children. The first launch has one worker, and its number of descriptors is the reference. A
 * launch with more descriptors has a leak.
 *
 * Exit status 0: no problem was found; 1: a problem was found; 77: this program may not trace processes. */
#include "procstat.h"
#include "tree.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FOLLOWED_MAX = 16,
    LIMIT_MS = 30000,
    WAIT_MS = 100,
    PROGRESS_MS = 5000,
    CANNOT_TRACE = 77,
    EXIT_USAGE_ERROR = 2
};

/* State of guardian and agent at their end. */
struct last_moment {
    int processes; /* number of processes that were examined, at most two */
    int fds, children;
};

struct counts {
    int launches, traced, workers;
    int hung, failed, leftovers, zombies, leaks;
    struct last_moment measure; /* reference: the first launch, which has one worker */
    double worst_ms;
};

struct launch {
    int workers;
    bool traced;
    pid_t pid;
    bool ended;
    int status;
    pid_t followed[FOLLOWED_MAX]; /* traced processes other than the launcher, such as the agent */
    int n_followed;
    int others; /* number of processes that the launcher has left behind */
    struct last_moment last;
};

static int count_children(pid_t pid)
{
    int n = 0;
    while (procstat_child(pid, n) > 0)
        n++;
    return n;
}

_Noreturn static void become(const char *ddprun, const struct launch *l)
{
    char workers[32];
    snprintf(workers, sizeof(workers), "--nproc_per_node=%d", l->workers);
    setpgid(0, 0);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    tree_default_signals();
    if (l->traced)
        raise(SIGSTOP); /* stop here until the tracer continues this process */
    execl(ddprun, "ddprun", "--standalone", "-q", workers, "/bin/true", (char *)NULL);
    _exit(127);
}

/* Follow the agent, which is created by fork. Workers are created by vfork, and are not followed. */
static bool trace(pid_t pid)
{
    const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL;
    int status;
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        return false;
    return ptrace(PTRACE_SEIZE, pid, NULL, options) == 0 && kill(pid, SIGCONT) == 0;
}

static bool is_traced(const struct launch *l, pid_t pid)
{
    for (int i = 0; i < l->n_followed; i++)
        if (l->followed[i] == pid)
            return true;
    return pid == l->pid && l->traced;
}

/* Examine a traced process that has stopped, and continue it. Deliver the signal that has stopped the process. */
static void go_on(struct launch *l, pid_t pid, int status)
{
    const int event = status >> 16, sig = WSTOPSIG(status);
    if (!is_traced(l, pid) && l->n_followed < FOLLOWED_MAX)
        l->followed[l->n_followed++] = pid;
    if (event == PTRACE_EVENT_EXIT) {
        l->last.processes++;
        l->last.fds += procstat_fds(pid);
        l->last.children += count_children(pid);
    }
    ptrace(PTRACE_CONT, pid, NULL, event != 0 ? 0L : (long)sig);
}

/* Note the end of a process. Count the process as left behind, with two exceptions: the launcher itself, and a traced
 * process (the agent) that ends before the launcher. */
static void note_end(struct launch *l, pid_t pid, int status)
{
    if (pid != l->pid) {
        l->others += l->ended || !is_traced(l, pid);
        return;
    }
    l->ended = true;
    l->status = status;
}

/* Return false when no process is left. */
static bool take_events(struct launch *l)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        if (WIFSTOPPED(status))
            go_on(l, pid, status);
        else
            note_end(l, pid, status);
    }
    return pid == 0;
}

/* Run a launch. Return false if the launch could not be started or traced. */
static bool run_launch(const char *ddprun, struct launch *l)
{
    const uint64_t end = clock_ms() + LIMIT_MS;
    l->pid = fork();
    if (l->pid == 0)
        become(ddprun, l);
    if (l->pid < 0 || (l->traced && !trace(l->pid)))
        return false;
    while (take_events(l) && clock_ms() < end)
        tree_wait(WAIT_MS);
    return true;
}

static uint64_t pick(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % below;
}

/* Return the maximum number of workers: each worker needs nine descriptors during its start, and ddprun itself needs up
 * to 64. */
static uint64_t most_workers(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max > 256 * 9 + 64)
        return 256;
    return files.rlim_max > 64 + 2 * 9 ? (files.rlim_max - 64) / 9 : 1;
}

/* Choose a launch. The first launch is the reference: one worker, traced. A later launch has at most 2^k workers, with
 * a random k from 0 to 8, so small numbers are more frequent. */
static struct launch choose(const struct counts *c, uint64_t *random)
{
    if (c->launches == 0)
        return (struct launch){ .workers = 1, .traced = true };
    const uint64_t most = 1ULL << pick(random, 9);
    const uint64_t workers = 1 + pick(random, most), limit = most_workers();
    return (struct launch){ .workers = (int)(workers < limit ? workers : limit),
                            .traced = pick(random, 2) == 0 };
}

static void complain(const struct launch *l, const char *what)
{
    printf(
        "FAILED with %d workers: %s (exit status %d, %d descriptors and %d children at the end, %d others)\n",
        l->workers, what, WIFEXITED(l->status) ? WEXITSTATUS(l->status) : -1, l->last.fds, l->last.children,
        l->others);
    fflush(stdout);
}

static void judge(struct counts *c, const struct launch *l, double ms)
{
    const bool hung = !l->ended, leak = l->traced && !hung && l->last.fds > c->measure.fds && c->launches > 0;
    const bool failed = !hung && l->status != 0;
    if (c->launches == 0)
        c->measure = l->last;
    c->launches++;
    c->traced += l->traced;
    c->workers += l->workers;
    c->hung += hung;
    c->failed += failed;
    c->leftovers += l->others > 0;
    c->zombies += l->last.children > 0;
    c->leaks += leak;
    c->worst_ms = ms > c->worst_ms ? ms : c->worst_ms;
    if (hung || failed || leak || l->others > 0 || l->last.children > 0)
        complain(l, hung ? "hung" : failed ? "failed" : leak ? "leaked descriptors" : "left processes");
}

static bool is_bad(const struct counts *c)
{
    return c->hung + c->failed + c->leftovers + c->zombies + c->leaks > 0;
}

static void print(FILE *out, const struct counts *c, int of)
{
    fprintf(out,
            "Launches: %d of %d, with %d workers: %d hung, %d failed, %d left processes, %d left zombies, "
            "%d leaked descriptors\n"
            "%d launches traced, longest %.0f ms\n",
            c->launches, of, c->workers, c->hung, c->failed, c->leftovers, c->zombies, c->leaks, c->traced,
            c->worst_ms);
    fflush(out);
}

/* Return false if only one launch has run and fewer than two processes were examined. The guardian and the agent must
 * be examined, because all later launches are compared with the counts of the first launch. */
static bool is_measure(const struct counts *c)
{
    return c->launches != 1 || c->measure.processes >= 2;
}

static int run_all(const char *ddprun, int launches, uint64_t seed)
{
    struct counts c = { 0 };
    uint64_t random = seed * 0x9E3779B97F4A7C15ULL + 1, next_ms = clock_ms() + PROGRESS_MS;
    while (c.launches < launches) {
        struct launch l = choose(&c, &random);
        const uint64_t begin_us = clock_us();
        const bool ran = run_launch(ddprun, &l);
        judge(&c, &l, (double)(clock_us() - begin_us) / 1000);
        tree_kill(LIMIT_MS);
        if (!ran || !is_measure(&c)) {
            printf("skipped, because processes cannot be traced here: %s\n", strerror(errno));
            return CANNOT_TRACE;
        }
        if (clock_ms() >= next_ms) {
            print(stderr, &c, launches);
            next_ms = clock_ms() + PROGRESS_MS;
        }
    }
    print(stdout, &c, launches);
    printf("guardian and agent held %d descriptors in their last moment\n", c.measure.fds);
    return is_bad(&c) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct option known[] = { { "launches", 1, NULL, 'l' }, { "seed", 1, NULL, 's' }, { 0 } };
    int launches = 100;
    uint64_t seed = 1;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'l')
            launches = atoi(optarg);
        else if (c == 's')
            seed = strtoull(optarg, NULL, 0);
        else
            optind = argc;
    }
    if (optind + 1 != argc || launches < 1 || !tree_open()) {
        fprintf(stderr, "usage: launches [--launches=N] [--seed=N] DDPRUN\n");
        return EXIT_USAGE_ERROR;
    }
    return run_all(argv[optind], launches, seed);
}

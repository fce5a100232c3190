/* survivor.c -- a worker that tries to outlive its launcher.
 *
 *     survivor KIND [HOG_RANK HOG_DELAY_MS]
 *
 * KIND is a row of `kinds`. A worker writes a line with "ready" when all processes of the worker have started. The
 * worker of rank HOG_RANK ignores KIND. After the delay this worker allocates memory, until the kernel's out-of-memory
 * killer ends the worker.
 *
 * The rank is read from any launcher's variables, so that other launchers can be tested as well. */
#include "launched.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CHAINS = 32 /* number of chains on each of two ranks */,
    CHURN = 16,
    HOG_STEP = 1 << 20,
    HOG_STEPS = 4096,
    FAILED = 111
};

static void say(const char *line)
{
    if (write(STDOUT_FILENO, line, strlen(line)) < 0)
        _exit(FAILED);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

_Noreturn static void stay(void)
{
    for (;;)
        pause();
}

static void ignore_polite_signals(void)
{
    static const int polite[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };
    for (size_t i = 0; i < sizeof(polite) / sizeof(polite[0]); i++)
        signal(polite[i], SIG_IGN);
}

static void be_plain(void)
{
    say("ready\n");
    stay();
}

/* Start two children with a child each, all in the worker's process group. */
static void be_forking(void)
{
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            fork();
            stay();
        }
    }
    be_plain();
}

/* Detach from the parent, and from the launcher's process group and session, as a daemon does. */
static void start_daemon(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    ignore_polite_signals();
    stay();
}

static void be_daemons(void)
{
    start_daemon();
    start_daemon();
    be_plain();
}

static void be_deaf(void)
{
    ignore_polite_signals();
    if (fork() == 0)
        stay();
    be_plain();
}

static void be_stopped(void)
{
    pid_t child = fork();
    if (child == 0)
        stay();
    kill(child, SIGSTOP);
    say("ready\n");
    raise(SIGSTOP);
    stay();
}

/* Start a PID namespace, whose first process ignores every signal from outside except SIGKILL and SIGSTOP. */
static void be_namespace(void)
{
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        say("no pid namespace to be had; an ordinary child instead\n");
    if (fork() == 0) {
        if (fork() == 0)
            setsid();
        stay();
    }
    be_plain();
}

/* Start data loaders that keep stdout open after their parent has ended. Rank 0 does not end, so the job
 * continues. */
static void be_loader(void)
{
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            setsid();
            ignore_polite_signals();
            stay();
        }
    say("ready\n");
    if (launched_rank() == 0)
        stay();
    _exit(0);
}

/* Run a chain of processes: each process forks the next one and exits. If fork fails, for example because of a limit,
 * the process waits and tries again, so that the chain does not end. */
_Noreturn static void run_chain(void)
{
    for (;;) {
        setsid();
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid < 0)
            sleep_ms(1);
    }
}

static void be_chains(void)
{
    for (int i = 0; i < CHAINS && launched_rank() < 2; i++)
        if (fork() == 0)
            run_chain();
    signal(SIGCHLD, SIG_IGN); /* so that the kernel reaps the first process of each chain */
    be_plain();
}

/* Start short-lived children again and again, so that the launcher finds pids whose processes are already gone. */
static void be_churning(void)
{
    ignore_polite_signals();
    say("ready\n");
    for (;;) {
        for (int i = 0; i < CHURN; i++) {
            if (fork() == 0) {
                sleep_ms(1);
                _exit(0);
            }
        }
        while (wait(NULL) > 0)
            continue;
    }
}

static void on_any_signal(int sig)
{
    (void)sig;
    static const char line[] = "touched\n";
    if (write(STDOUT_FILENO, line, sizeof(line) - 1) < 0)
        _exit(FAILED);
}

/* Act as a process of another job, which the launcher must not signal. Print a line at every signal that can be
 * caught. */
static void be_bystander(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGCHLD)
            signal(sig, on_any_signal);
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            if (i == 0)
                setsid();
            stay();
        }
    be_plain();
}

_Noreturn static void be_hog(long delay_ms)
{
    say("ready\n");
    sleep_ms(delay_ms);
    for (int i = 0; i < HOG_STEPS; i++) {
        char *p = mmap(NULL, HOG_STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            break;
        memset(p, i, HOG_STEP);
    }
    say("no limit of memory was met\n");
    stay();
}

static const struct {
    const char *name;
    void (*be)(void);
} kinds[] = {
    { "plain", be_plain },    { "forks", be_forking },   { "daemon", be_daemons },
    { "deaf", be_deaf },      { "stopped", be_stopped }, { "pidns", be_namespace },
    { "loader", be_loader },  { "chains", be_chains },   { "bystander", be_bystander },
    { "churn", be_churning },
};

int main(int argc, char **argv)
{
    if (argc >= 4 && launched_rank() == atoi(argv[2]))
        be_hog(atol(argv[3]));
    for (size_t i = 0; argc >= 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            kinds[i].be();
    fprintf(stderr, "survivor: what is '%s'?\n", argc >= 2 ? argv[1] : "");
    return 2;
}

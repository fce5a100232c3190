/* guardian.c -- see guardian.h.
 *
 * The guardian is kept so small that nothing in it can go wrong: no thread, no loop library, no
 * allocation on its way. It sleeps in sigwaitinfo; every event it knows is a signal. The agent sits
 * in a session of its own, so a Ctrl-C comes to the guardian alone and is forwarded once.
 *
 * Parent-death signals are not used between the two: SIGKILL for the agent would let grandchildren
 * escape. */
#include "guardian.h"

#include "base/log.h"
#include "descendants.h"
#include "exit_codes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SWEEP_LIMIT_MS = 5000 };

struct guardian {
    pid_t agent;
    int lifeline[2]; /* the agent reads, nobody writes, the guardian holds the other end */
    sigset_t watched;
};

/* What is forwarded. What the user told us to ignore (nohup, a background job of sh) stays ignored. */
static void watch_signals(sigset_t *watched)
{
    static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT };
    sigemptyset(watched);
    sigaddset(watched, SIGCHLD);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++) {
        struct sigaction now;
        if (sigaction(forwarded[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(watched, forwarded[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would let children vanish without a status */
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, watched, NULL);
}

/* Ctrl-Z: first everybody behind us, then ourselves, so the shell gets its prompt back with the job
 * at rest. */
static void stop_for_a_while(const struct guardian *g)
{
    kill(g->agent, SIGTSTP);
    raise(SIGSTOP);
    kill(g->agent, SIGCONT);
}

/* An agent that somebody has stopped would not hear it, and the user would wait for ever. */
static void forward(const struct guardian *g, int sig)
{
    kill(g->agent, sig);
    if (sig != SIGCONT)
        kill(g->agent, SIGCONT);
}

/* Wait for signals until the agent has ended; returns its wait status. The agent is looked at after
 * each signal, not only after SIGCHLD: signals of one kind do not queue, and a SIGCHLD may have
 * come before we began to wait. */
static int watch_agent(const struct guardian *g)
{
    for (;;) {
        int status, sig = sigwaitinfo(&g->watched, NULL);
        if (waitpid(g->agent, &status, WNOHANG) == g->agent)
            return status;
        if (sig == SIGTSTP)
            stop_for_a_while(g);
        else if (sig > 0 && sig != SIGCHLD)
            forward(g, sig);
    }
}

static void say_agent_died(pid_t agent, int sig)
{
    const char *name = sigabbrev_np(sig);
    log_error("the agent process (pid %d) was killed by signal %d (SIG%s); everything it had started has "
              "been killed",
              (int)agent, sig, name != NULL ? name : "?");
}

/* Whatever the other has left is our child now. */
static void sweep(struct contain *contain)
{
    struct buf names = { 0 };
    contain_kill(contain);
    if (descendants_kill_all(SWEEP_LIMIT_MS)) {
        contain_remove(contain);
        return;
    }
    descendants_names(&names);
    log_error("cannot be killed, they hang in the kernel: %.*s", (int)names.len, (const char *)names.data);
    buf_free(&names);
}

/* In the child. It keeps no end of the lifeline that could be written: the pipe must end when the
 * guardian does. */
static int become_agent(struct guardian *g, guardian_body body, void *arg)
{
    close(g->lifeline[1]);
    setsid();
    descendants_adopt(); /* not inherited by fork */
    return body(arg, g->lifeline[0]);
}

/* In the guardian. The sweep is for every end of the agent: one that has left by itself has swept
 * already, and then this finds nobody. */
static int watch_over(struct guardian *g, struct contain *contain)
{
    close(g->lifeline[0]);
    int status = watch_agent(g);
    sweep(contain);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    say_agent_died(g->agent, WTERMSIG(status));
    return EXIT_CODE_SIGNAL + WTERMSIG(status);
}

int guardian_run(guardian_body body, void *arg, struct contain *contain)
{
    struct guardian g;
    watch_signals(&g.watched);
    if (!descendants_adopt() || pipe2(g.lifeline, O_CLOEXEC) != 0 || (g.agent = fork()) < 0) {
        log_error("cannot start the agent process: %s", strerror(errno));
        return EXIT_CODE_DDPRUN;
    }
    if (g.agent == 0)
        return become_agent(&g, body, arg);
    return watch_over(&g, contain);
}

int guardian_is_gone(struct contain *contain)
{
    sweep(contain);
    return EXIT_CODE_SIGNAL + SIGKILL;
}

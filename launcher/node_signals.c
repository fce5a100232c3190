/* node_signals.c -- see node.h. Signals come from the guardian, which forwards the user's, and from children
 * that have ended. The death of the guardian shows as the end of a pipe. */
#include "node.h"

#include "descendants.h"
#include "guardian.h"

#include <signal.h>

/* The first request is graceful, the second means now: the core counts them. */
static void stop_asked(struct node *n, int sig)
{
    if (agent_state(n->agent) == AGENT_DONE) {
        node_leave_output(n);
        return;
    }
    announce_stop(&n->announce, sig, agent_stop_signal(n->agent) == 0);
    node_feed(n, (struct agent_event){ .type = AGENT_STOP, .signal = sig });
}

/* Ctrl-Z reaches the guardian, which stops itself after telling us. We go on: the store and the
 * output live here. */
static void on_signal(uv_signal_t *handle, int sig)
{
    struct node *n = handle->data;
    if (sig == SIGCHLD)
        node_reap(n);
    else if (sig == SIGTSTP) /* not SIGTSTP itself: a worker may ignore that, and would go on alone */
        descendants_signal(SIGSTOP);
    else if (sig == SIGCONT)
        descendants_signal(SIGCONT);
    else
        stop_asked(n, sig);
    node_pump(n);
}

/* The guardian is dead, killed most likely. There is nobody to report to; what matters is that
 * nothing stays behind. */
static void on_lifeline(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct node *n = poll->data;
    node_finish(n, guardian_is_gone(n->contain));
}

/* Signals that the guardian forwards, and our children's. What the user wants ignored stays so. */
static void watch(struct node *n)
{
    static const int watched[NODE_SIGNALS] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT };
    sigset_t none;
    for (int i = 0; i < NODE_SIGNALS; i++) {
        struct sigaction now;
        uv_signal_init(&n->loop, &n->signals[i]);
        n->signals[i].data = n;
        if (sigaction(watched[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            uv_signal_start(&n->signals[i], on_signal, watched[i]);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void node_watch_signals(struct node *n, int lifeline)
{
    uv_poll_init(&n->loop, &n->lifeline, lifeline);
    n->lifeline.data = n;
    uv_poll_start(&n->lifeline, UV_READABLE | UV_DISCONNECT, on_lifeline);
    watch(n);
}

/* A closed handle gives its signal the default action back, and one more Ctrl-C would cut the report in two. */
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

void node_close_signals(struct node *n)
{
    block_signals();
    uv_close((uv_handle_t *)&n->lifeline, NULL);
    for (int i = 0; i < NODE_SIGNALS; i++)
        uv_close((uv_handle_t *)&n->signals[i], NULL);
}

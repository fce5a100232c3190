/* node_status.c -- see node_core.h. The user has asked what the job does: the kernel and the store are asked, then it is
 * printed, as notes. The store answers in a moment or, when it is what hangs, not at all; that is waited for a second. */
#include "node/node_core.h"

#include "contain/procfs.h"
#include "report/status.h"

#include "base/clock.h"

#include <stdlib.h>

enum { STORE_PATIENCE_MS = 1000 };

/* As ps shows it; 0 when it is gone. */
static char state_of(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) ? stat.state : '\0';
}

/* From one of two callers, the answer or the timer, whichever comes first; `status_asked` is for the answer that
 * comes late and must not print everything again. Without memory for the states nothing is printed: a job is not
 * worth less for that. */
static void print(struct node *n, const struct cJSON *answer)
{
    struct buf text = { 0 };
    char *states = calloc((size_t)n->plan->nproc, 1);
    const struct status_facts facts = { .plan = n->plan,
                                        .agent = n->agent,
                                        .started_ms = n->started_ms,
                                        .now_ms = clock_ms(),
                                        .states = states,
                                        .answer = answer };
    n->status_asked = false;
    uv_timer_stop(&n->status_timer);
    for (int i = 0; states != NULL && i < n->plan->nproc; i++)
        states[i] = n->pids[i] != 0 ? state_of(n->pids[i]) : '\0';
    for (int i = 0; states != NULL && status_line(&facts, i, &text); i++) {
        output_note(n->output, "%.*s", (int)text.len, (const char *)text.data);
        text.len = 0;
    }
    buf_free(&text);
    free(states);
}

/* A store that does not answer is part of what the user wants to know, so the rest is shown without it. */
static void on_no_answer(uv_timer_t *timer)
{
    print(timer->data, NULL);
}

void node_on_status(void *user, const struct cJSON *answer)
{
    struct node *n = user;
    if (n->waiting_asked) {
        n->waiting_asked = false;
        hear_unfinished(answer, n->plan->node_rank, n->unfinished);
        announce_waiting_for_end(&n->announce, n->unfinished, n->agent);
    }
    if (n->status_asked)
        print(n, answer);
}

/* Asked again before the store has answered, it is printed once: who is impatient presses Ctrl-\ twice. */
void node_status(struct node *n, const struct signal_heard *heard)
{
    announce_status(&n->announce, heard);
    n->status_asked = true;
    if (store_link_ask_status(n->link))
        uv_timer_start(&n->status_timer, on_no_answer, STORE_PATIENCE_MS, 0);
    else
        print(n, NULL);
}

void node_open_status(struct node *n)
{
    uv_timer_init(&n->loop, &n->status_timer);
    n->status_timer.data = n;
}

/* node_tell.c -- see node_core.h. Wishes that are words: for the store, which tells the other nodes, and for the user.
 *
 * A failure is told twice. `failed` goes out as soon as a worker has ended, since the other nodes compute
 * in vain until they hear of it; `cause` follows when its last lines are in, which may take a moment longer
 * than its end, and makes the others' reports as good as ours. */
#include "node/node_core.h"
#include "node/port_hold.h"

#include "agent/ending.h"
#include "report/report_attempts.h"
#include "report/program_see.h"
#include "report/report_cause.h"
#include "report/start_words.h"

#include "base/clock.h"
#include "base/log.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- to the store --------------------------------------------------------------------------------------- */

/* With its path, and what is wrong with it here: on the other nodes it may well be there. With `remedy` what helps, too. */
static bool start_words(const struct node *n, int error, bool remedy, struct buf *out)
{
    static struct program_look look; /* paths make it too large for a stack */
    const char *failed = n->spawner.failed;
    const bool is_script = failed != NULL && failed == n->plan->script;
    const struct start_failure failure = { .error = error,
                                           .program = is_script ? failed : n->plan->workers[0].argv[0],
                                           .path = env_find(n->plan->facts->environ_block, "PATH"),
                                           .look = &look };
    memset(&look, 0, sizeof(look));
    if (is_script)
        program_see_script(failed, &look);
    else if (failed != NULL && strchr(failed, '/') != NULL)
        program_see(failed, &look);
    bool ok = start_cause(&failure, out);
    const size_t len = out->len;
    ok = ok && (!remedy || (buf_printf(out, "; ") && start_remedy(&failure, out)));
    if (out->len == len + 2) /* no remedy is known */
        out->len = len;
    return ok && buf_append(out, "", 1);
}

void node_say_not_started(const struct node *n, int error)
{
    struct buf words = { 0 };
    if (start_words(n, error, true, &words))
        log_error("%s", (const char *)words.data);
    buf_free(&words);
}

static bool failure_words(const struct node *n, int local_rank, struct buf *out)
{
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    if (w->verdict == WORKER_NOT_STARTED)
        return buf_printf(out, "could not be started: ") && start_words(n, w->error, false, out);
    return attempt_words(w, evidence_of(n->evidence, local_rank), out);
}

/* The first failure here, as the other nodes are to read it. `error` is only sent of a worker that was never
 * started: how the others ended is in signal or code. */
static void describe_failure(const struct node *n, struct cause *c)
{
    const int first = agent_first_failure(n->agent);
    const struct agent_worker *w = agent_worker(n->agent, first);
    const struct plan_worker *who = &n->plan->workers[first];
    struct buf words = { 0 };
    *c = (struct cause){ .rank = who->rank,
                         .local_rank = first,
                         .pid = w->pid,
                         .exit_code = w->exit_code,
                         .signal = w->signal,
                         .victim = w->verdict == WORKER_VICTIM,
                         .error = w->verdict == WORKER_NOT_STARTED ? w->error : 0 };
    if (failure_words(n, first, &words))
        snprintf(c->words, sizeof(c->words), "%s", (const char *)words.data);
    if (who->log_dir != NULL)
        snprintf(c->log, sizeof(c->log), "%s", who->log_dir);
    buf_free(&words);
}

/* Lines that end with a newline each. Cut to what the rendezvous takes, here as well as there. */
static void add_lines(struct cause *c, const char *text, size_t n)
{
    for (size_t i = 0; i < n && c->n_lines < CAUSE_LINES_MAX; i++) {
        const size_t len = strcspn(text, "\n");
        snprintf(c->lines[c->n_lines++], CAUSE_WORDS_MAX, "%.*s", (int)len, text);
        text += len + 1;
    }
}

static void tell_failed(struct node *n)
{
    struct cause c;
    describe_failure(n, &c);
    store_link_tell(n->link, say_failure("failed", &c, agent_never_again(n->agent)));
}

/* Now that its last words are in. They come from stderr; from stdout when it has said nothing there, see
 * cause_last_lines. */
static void tell_cause(struct node *n)
{
    struct cause c;
    struct buf lines = { 0 };
    bool from_stdout;
    const struct report r = { .plan = n->plan,
                              .agent = n->agent,
                              .stdout_tails = output_tails(n->output, STD_OUT),
                              .stderr_tails = output_tails(n->output, STD_ERR) };
    describe_failure(n, &c);
    const size_t got = cause_last_lines(&r, c.local_rank, CAUSE_LINES_MAX, &lines, &from_stdout);
    c.from_stdout = got > 0 && from_stdout;
    if (got > 0 && buf_append(&lines, "", 1))
        add_lines(&c, (const char *)lines.data, got);
    store_link_tell(n->link, say_failure("cause", &c, agent_never_again(n->agent)));
    buf_free(&lines);
}

/* Whoever waits in a barrier for this rank hears the reason before the others are signalled. An end with 0
 * may wait for more of its kind: nobody is kept from going on by it. */
static void tell_exited(struct node *n, int local_rank)
{
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    cJSON *json = say_exited(node_rank(n, local_rank), w->pid, w->exit_code, w->signal);
    if (w->told_to_stop)
        cJSON_AddTrueToObject(json, "told");
    if (w->exit_code == 0 && w->signal == 0)
        store_link_mention(n->link, json);
    else
        store_link_tell(n->link, json);
}

/* -1 stands for "rank 0 is not here", and is not sent. */
static void tell_stopped(struct node *n)
{
    const int rank0 = node_rank(n, 0) == 0 ? agent_rank0_code(n->agent) : -1;
    store_link_tell(n->link, say_stopped(agent_is_stuck(n->agent), agent_max_code(n->agent), rank0));
}

/* A signal whose sender is not known goes without one. */
static void tell_leave(struct node *n)
{
    struct buf by = { 0 };
    if (agent_stop_signal(n->agent) != 0 && signal_sender_text(&n->stop_heard, &by) && buf_append(&by, "", 1))
        store_link_tell(n->link, say_leave(agent_stop_signal(n->agent), (const char *)by.data));
    else
        store_link_tell(n->link, say_leave(agent_stop_signal(n->agent), ""));
    buf_free(&by);
}

/* --- for the report ------------------------------------------------------------------------------------- */

/* Times are put together from ours and the store's difference: clocks of two machines are never compared. */
static void note_elsewhere(const struct node *n, struct failed_attempt *a)
{
    const struct cause *c = &n->cause;
    a->rank = c->rank;
    a->local_rank = c->local_rank;
    a->node_rank = c->node_rank;
    a->verdict = c->error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED;
    a->exit_code = cause_code(c);
    a->worker_started_ms = n->attempt_started_ms;
    a->failed_ms = n->attempt_started_ms + c->after_ms;
    snprintf(a->host, sizeof(a->host), "%s", c->host);
    snprintf(a->words, sizeof(a->words), "%s", c->words);
}

/* Evidence is forgotten when the next attempt begins; its words are kept. */
static void note_here(const struct node *n, struct failed_attempt *a)
{
    const int first = agent_first_failure(n->agent);
    const struct agent_worker *w = agent_worker(n->agent, first);
    struct cause c;
    describe_failure(n, &c);
    a->rank = c.rank;
    a->local_rank = first;
    a->node_rank = n->plan->node_rank;
    a->verdict = w->verdict;
    a->exit_code = ending_code(w);
    a->worker_started_ms = w->started_ms;
    a->failed_ms = w->ended_ms;
    snprintf(a->host, sizeof(a->host), "%s", n->plan->facts->host);
    snprintf(a->words, sizeof(a->words), "%s", c.words);
}

/* A round that ended because the job grows has not failed. Asked for at several moments of an attempt's
 * end, it notes each attempt once. */
void node_note_failed(struct node *n)
{
    struct failed_attempt a = { .attempt = agent_attempt(n->agent),
                                .started_ms = n->attempt_started_ms,
                                .ended_ms = clock_ms(),
                                .step = n->step };
    const bool elsewhere = node_cause_is_elsewhere(n);
    const size_t count = n->failed.len / sizeof(a);
    const struct failed_attempt *all = (const struct failed_attempt *)n->failed.data;
    if (count > 0 && all[count - 1].attempt == a.attempt)
        return;
    if (elsewhere && cause_code(&n->cause) != 0)
        note_elsewhere(n, &a);
    else if (!elsewhere && agent_first_failure(n->agent) >= 0)
        note_here(n, &a);
    else
        return;
    buf_append(&n->failed, &a, sizeof(a));
}

/* --- to the user ---------------------------------------------------------------------------------------- */

/* By its length the list tells whether this attempt has been noted: if not, nobody failed, and the line
 * says so. */
static void say_restart(struct node *n)
{
    const size_t before = n->failed.len;
    n->gathers_ms = clock_ms();
    node_note_failed(n);
    if (n->failed.len > before)
        node_keep_flights(n);
    if (n->failed.len > before)
        announce_restart(&n->announce, n->agent, (const struct failed_attempt *)(n->failed.data + before),
                         n->next_attempt);
    else
        announce_again(&n->announce, &n->cause);
}

static void say_dying(struct node *n, int local_rank)
{
    output_note(n->output,
                "another rank was lost: rank %d (pid %d) is ending, and the kernel still frees its memory or "
                "writes its "
                "core file; waiting for that, at most %d s",
                node_rank(n, local_rank), agent_worker(n->agent, local_rank)->pid, AGENT_DYING_MS / 1000);
}

/* For whom, the store knows. When it is no longer waited, there is no time to ask it again. */
static void say_waiting(struct node *n)
{
    n->waiting_asked = agent_state(n->agent) != AGENT_DONE && store_link_ask_status(n->link);
    if (!n->waiting_asked)
        announce_waiting_for_end(&n->announce, n->unfinished, n->agent);
}

static void tell_user(struct node *n, struct agent_wish wish)
{
    switch (wish.type) {
    case WISH_SAY_DYING:
        say_dying(n, wish.local_rank);
        break;
    case WISH_SAY_WAITING:
        say_waiting(n);
        break;
    case WISH_SAY_RESTART:
        say_restart(n);
        break;
    default: /* node_wishes.c has done it */
        break;
    }
}

/* The core names the wish, and it is told in full here, from the same facts that the report will use. */
void node_tell(struct node *n, struct agent_wish wish)
{
    switch (wish.type) {
    case WISH_TELL_FAILED:
        tell_failed(n);
        break;
    case WISH_TELL_EXITED:
        tell_exited(n, wish.local_rank);
        break;
    case WISH_TELL_CAUSE:
        tell_cause(n);
        break;
    case WISH_TELL_STOPPED:
        tell_stopped(n);
        break;
    case WISH_TELL_DONE:
        store_link_tell(n->link, say("done"));
        break;
    case WISH_LEAVE:
        tell_leave(n);
        break;
    case WISH_JOIN:
        node_offer_port(n);
        store_link_join(n->link);
        break;
    default:
        tell_user(n, wish);
        break;
    }
}

void node_offer_port(struct node *n)
{
    int port = 0;
    if (n->held_port >= 0)
        close(n->held_port);
    n->held_port = n->plan->rank0_store ? port_hold(&port) : -1;
    if (n->plan->rank0_store && n->held_port < 0)
        output_note(n->output, "warning: no free port for the workers' store on rank 0: %s", strerror(errno));
    plan_offer_port(n->plan, port);
}

/* report_cause.c -- see report_cause.h. The words themselves are in tables: spawn_error_text.c for a program
 * that could not be started, exit_text.c for the end of one that ran, hints.c for what it wrote last. */
#include "report/report_cause.h"

#include "agent/failure.h"
#include "base/text.h"
#include "report/hints.h"
#include "report/spawn_error_text.h"
#include "tables/text.h"

#include "diagnosis/findings.h"

/* Lines that are searched for hints: more than are shown, because Python puts the reason before a long
 * trace of threads. */
enum { HINT_LINES = 50 };

int cause_first(const struct report *r)
{
    return r->elsewhere != NULL ? -1 : agent_first_failure(r->agent);
}

const struct agent_worker *cause_worker(const struct report *r)
{
    int first = cause_first(r);
    return first >= 0 ? agent_worker(r->agent, first) : NULL;
}

/* By the monotonic clock, counted back from one look at the wall clock: times stay in order even when somebody
 * sets that. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms)
{
    return r->ended_unix_ms - (r->ended_ms - ms);
}

/* --- headline ------------------------------------------------------------------------------------------- */

static const struct program_look not_looked_at;

static struct start_failure start_failure(const struct report *r, const struct agent_worker *w)
{
    const struct program_look *look = r->look != NULL ? r->look : &not_looked_at;
    return (struct start_failure){ .error = w->error,
                                   .program = look->is_python_file ? look->path : r->plan->workers[0].argv[0],
                                   .path = r->path,
                                   .look = look };
}

/* How it ended, for every reader: here, on the other nodes and in the list of attempts. */
static bool put_words(const struct report *r, const struct agent_worker *w, struct buf *out)
{
    if (w->verdict != WORKER_NOT_STARTED)
        return end_headline(w, r->evidence, out);
    const struct start_failure failure = start_failure(r, w);
    return buf_printf(out, "could not be started: ") && start_cause(&failure, out);
}

static enum finding_code finding_of(enum worker_verdict verdict)
{
    return verdict == WORKER_NOT_STARTED ? FINDING_PROGRAM_MISSING_ON_NODE : FINDING_WORKER_FAILED;
}

/* The one place that fills the record. `error` is only set for a worker that was never started: how the others ended is in
 * signal or code. */
static void fill_failure(const struct report *r, int local_rank, struct failure *f)
{
    const struct agent_worker *w = agent_worker(r->agent, local_rank);
    const struct plan_worker *who = &r->plan->workers[local_rank];
    struct buf words = { 0 };
    *f = (struct failure){ .node_rank = r->plan->node_rank,
                           .rank = who->rank,
                           .local_rank = local_rank,
                           .pid = w->pid,
                           .exit_code = w->exit_code,
                           .signal = w->signal,
                           .error = w->verdict == WORKER_NOT_STARTED ? w->error : 0,
                           .after_ms = w->ended_ms - w->started_ms,
                           .victim = w->verdict == WORKER_VICTIM,
                           .peak_rss = r->evidence != NULL ? (int64_t)r->evidence->peak_rss : 0 };
    if (!f->victim)
        text_copy(f->code, sizeof(f->code), finding_code_name(finding_of(w->verdict)));
    text_copy(f->no_retry, sizeof(f->no_retry), no_restart_word(agent_never_again(r->agent)));
    text_copy(f->host, sizeof(f->host), r->plan->facts->host);
    text_copy(f->log, sizeof(f->log), who->log_dir);
    if (put_words(r, w, &words) && buf_append(&words, "", 1))
        text_copy(f->words, sizeof(f->words), (const char *)words.data);
    buf_free(&words);
}

const struct failure *cause_failure(const struct report *r, struct failure *room)
{
    const int first = cause_first(r);
    if (first < 0)
        return r->elsewhere;
    fill_failure(r, first, room);
    return room;
}

bool cause_has_left(const struct report *r, enum finding_code code)
{
    return r->left_waiting != NULL && r->left_waiting[0] != '\0' && r->left_code == code;
}

/* Its exit code says that this worker is only a victim, and it is known of whom. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f)
{
    return f != NULL && f->rank >= 0 && f->victim && cause_has_left(r, FINDING_RANK_LEFT_EARLY);
}

bool cause_put_left(const struct report *r, struct buf *out)
{
    return buf_printf(out, "%s [%s]", r->left_waiting, finding_code_name(r->left_code));
}

static const char *or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

const char *cause_code_name(const struct report *r, const struct failure *f)
{
    if (cause_is_left_waiting(r, f))
        return finding_code_name(FINDING_RANK_LEFT_EARLY);
    return or_null(f != NULL ? f->code : r->store_code);
}

/* Rank, host and how it ended stand in one line, for whoever searches a log of many jobs. Of a node, and of a job, the words say
 * all. Only the agent knows when its own worker began. */
static bool failure_headline(const struct report *r, const struct failure *f, struct buf *out)
{
    const bool here = r->elsewhere == NULL;
    char after[TIME_TEXT_MAX];
    if (f->rank < 0)
        return buf_printf(out, "%s", f->words);
    bool ok = buf_printf(out, "rank %d on %s %s%s", f->rank, f->host,
                         f->error != 0                      ? ""
                         : here && r->plan->world_size == 1 ? "failed: "
                                                            : "failed first: ",
                         f->words);
    if (here && f->error != 0)
        return ok;
    return ok && buf_printf(out, ", %s after %s start", words_time(after, f->after_ms), here ? "its" : "the");
}

bool cause_never_began(const struct report *r)
{
    for (int i = 0; i < r->plan->nproc; i++)
        if (agent_worker(r->agent, i)->verdict != WORKER_PENDING)
            return false;
    return true;
}

/* In the order of what a reader wants to know first: what broke, here or elsewhere, who stopped it, all went well. */
bool cause_headline(const struct report *r, struct buf *out)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    int stop = agent_stop_signal(r->agent);
    char name[ENDING_MAX], after[TIME_TEXT_MAX];
    if (cause_is_left_waiting(r, f))
        return cause_put_left(r, out);
    if (f != NULL)
        return failure_headline(r, f, out);
    if (r->store_lost != NULL)
        return buf_printf(out, "lost the store of the job at %s:%d%s: %s", r->plan->master_addr,
                          r->plan->master_port, r->store_node != NULL ? r->store_node : "", r->store_lost);
    words_time(after, r->ended_ms - r->started_ms);
    if (stop == 0 && cause_never_began(r))
        return buf_printf(out, "the job ended without this node, which waited for %s", after);
    if (stop == 0)
        return buf_printf(out, "%s ended with 0 after %s", r->plan->nproc == 1 ? "the worker" : "all workers",
                          after);
    signal_name(name, stop);
    return buf_printf(out, "stopped by ") &&
           (r->stop != NULL ? signal_heard_text(r->stop, out) : buf_printf(out, "%s", name)) &&
           buf_printf(out, " after %s", after);
}

/* --- why, and what helps -------------------------------------------------------------------------------- */

/* For a program that could not be started the headline has said it all. Who gave up waiting is not the one to be looked at. */
bool cause_why(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (cause_has_left(r, FINDING_SETUP_GIVEN_UP))
        return cause_put_left(r, out);
    return w == NULL || w->verdict == WORKER_NOT_STARTED || end_cause(w, r->evidence, out);
}

bool cause_remedy(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (w == NULL)
        return true;
    if (w->verdict != WORKER_NOT_STARTED)
        return end_remedy(w, r->evidence, out);
    const struct start_failure failure = start_failure(r, w);
    return start_remedy(&failure, out);
}

bool cause_core(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (w == NULL || w->verdict == WORKER_NOT_STARTED)
        return true;
    return end_core(w, r->evidence, r->plan->workers[0].argv[0], out);
}

/* --- last words ----------------------------------------------------------------------------------------- */

/* What of a line is visible on a terminal: what stands behind its last \r. */
static bool add_visible(const char *line, size_t len, struct buf *out)
{
    while (len > 0 && line[len - 1] == '\r')
        len--;
    const char *cr = len > 0 ? memrchr(line, '\r', len) : NULL;
    if (cr != NULL) {
        len -= (size_t)(cr + 1 - line);
        line = cr + 1;
    }
    return buf_append(out, line, len) && buf_append(out, "\n", 1);
}

/* The last lines of one stream, as a terminal would have shown them. */
static size_t visible_lines(const struct tail *tail, size_t max, struct buf *out)
{
    struct buf raw = { 0 };
    size_t n = tail_lines(tail, max, &raw);
    const char *p = (const char *)raw.data;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        size_t len =
            (size_t)((const char *)memchr(p, '\n', raw.len - (size_t)(p - (const char *)raw.data)) - p);
        ok = add_visible(p, len, out);
        p += len + 1;
    }
    buf_free(&raw);
    return ok ? n : 0;
}

/* As another node has reported them. */
static size_t reported_lines(const struct failure *f, size_t max, struct buf *out)
{
    const size_t n = (size_t)f->n_lines, skip = n > max ? n - max : 0;
    for (size_t i = skip; i < n; i++)
        buf_printf(out, "%s\n", f->lines[i]);
    return n - skip;
}

/* stdout only when stderr is silent: most programs that fail say so there, and one
 * that only prints its log to stdout has its reason there. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout)
{
    const int first = cause_first(r);
    *from_stdout = r->elsewhere != NULL && r->elsewhere->from_stdout;
    if (r->elsewhere != NULL)
        return reported_lines(r->elsewhere, max, out);
    size_t n = r->stderr_tails != NULL && first >= 0 ? visible_lines(&r->stderr_tails[first], max, out) : 0;
    *from_stdout = n == 0;
    if (n == 0 && r->stdout_tails != NULL && first >= 0)
        n = visible_lines(&r->stdout_tails[first], max, out);
    return n;
}

static struct hint_facts hint_facts(const struct report *r)
{
    const struct plan *plan = r->plan;
    const struct env_sources env = { plan->cli->env.items, plan->cli->env.n, plan->facts->environ_block };
    return (struct hint_facts){ .python = r->python,
                                .no_gpu = plan->facts->physical_gpus == 0,
                                .rank0_store = plan->rank0_store,
                                .standalone = plan->cli->standalone,
                                .gloo_interface = env_sources_find(&env, "GLOO_SOCKET_IFNAME") != NULL };
}

/* The error file speaks first: it is the worker's own summary. */
bool cause_hint(const struct report *r, struct buf *out)
{
    const struct hint_facts facts = hint_facts(r);
    struct buf lines = { 0 };
    bool from_stdout, ok = true;
    const size_t before = out->len;
    if (r->error != NULL)
        ok = hint_for(slice_str(r->error->message), &facts, out);
    if (out->len == before)
        cause_last_lines(r, HINT_LINES, &lines, &from_stdout);
    if (lines.len > 0)
        ok = ok && hint_for(buf_slice(&lines), &facts, out);
    buf_free(&lines);
    return ok;
}

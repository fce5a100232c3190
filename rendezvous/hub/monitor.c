/* monitor.c -- see monitor.h.
 *
 * All nodes get the same text.
 *
 * Everything is told once: who has been told hears what is new, and nothing when nothing is. A node that comes later has
 * heard none of it; it gets all of it with the next news, or when it has waited as long as the others before they did.
 *
 * What was told last is kept as numbers and not as text: times in the text grow from look to look, and
 * 18 KB for each job that waits would be paid by all that are well. Two findings with the same digest cost
 * one word too few, which "time is up" makes good. */
#include "hub/monitor.h"

#include "diagnosis/screen.h"
#include "hub/look.h"
#include "hub/session.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* What is known now, and what of it has not been told. 36 KB are too much for a stack. */
struct findings_now {
    struct diagnosis all, news;
    uint64_t digest[DIAGNOSIS_MAX]; /* of each of `all`; 0 = no reason to speak */
    bool trouble;                   /* something in `all` is more than a note */
};

/* --- what is worth a word ------------------------------------------------------------------------------- */

/* FNV-1a's step. Nobody gains by a collision here, so nothing stronger is needed. */
static uint64_t mix(uint64_t digest, const char *text)
{
    for (; *text != '\0'; text++)
        digest = (digest ^ (unsigned char)*text) * 0x100000001b3ull;
    return digest;
}

/* Notes go along with what is wrong, and are no reason to speak. A stranger is one in a job that waits for somebody: a
 * node that was started wrongly looks like that. A new name among those that are missing is no news: the counts of
 * `waiting` tell it. */
static uint64_t digest_of(const struct finding *f)
{
    if (!finding_is_trouble(f->code) && f->code != FINDING_FOREIGN_CLIENT)
        return 0;
    const uint64_t digest = mix(1, finding_code_name(f->code));
    return finding_is_count(f->code) ? digest : mix(digest, f->subject);
}

static bool was_told(const struct schedule_state *w, uint64_t digest)
{
    for (uint32_t i = 0; i < w->n_told && i < SCHEDULE_TOLD_MAX; i++)
        if (w->told[i] == digest)
            return true;
    return false;
}

static void sort_out(const struct schedule_state *w, struct findings_now *now)
{
    now->trouble = false;
    for (uint32_t i = 0; i < now->all.n; i++) {
        const struct finding *f = &now->all.list[i];
        now->digest[i] = digest_of(f);
        now->trouble = now->trouble || finding_is_trouble(f->code);
        if (now->digest[i] != 0 && !was_told(w, now->digest[i]))
            now->news.list[now->news.n++] = *f;
    }
    if (!now->trouble)
        now->news.n = 0;
}

/* What is over by now, and comes again, is news again. */
static void keep(struct schedule_state *w, const struct findings_now *now)
{
    w->n_told = 0;
    for (uint32_t i = 0; now->trouble && i < now->all.n; i++)
        if (now->digest[i] != 0)
            w->told[w->n_told++] = now->digest[i];
}

/* --- telling -------------------------------------------------------------------------------------------- */

/* A push "findings" to be filled, and as text. */
static cJSON *begin_push(bool is_final)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "findings");
    cJSON_AddBoolToObject(o, "final", is_final);
    return o;
}

/* NULL when memory was too short for it to be whole; yours (cJSON_free). */
static char *end_push(cJSON *o, bool whole)
{
    char *text = whole ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return text;
}

/* What is told, and the two texts it is told in: printed when the first node is to get it, for every node the same. A look
 * every few seconds mostly finds nobody who has not heard it. tell() frees them. */
struct telling {
    const struct snapshot *s;
    const struct findings_now *now;
    char *all, *news;
};

static const char *all_of(struct telling *t)
{
    if (t->all == NULL) {
        cJSON *o = begin_push(t->s->is_final);
        t->all = end_push(o, screen_add(o, t->s, &t->now->all));
    }
    return t->all;
}

static const char *news_of(struct telling *t)
{
    const struct findings_now *now = t->now;
    if (t->news == NULL && now->news.n > 0) {
        cJSON *o = begin_push(false);
        t->news = end_push(o, screen_add_news(o, t->s, &now->news, now->all.n - now->news.n));
    }
    return t->news;
}

static void push(struct hub *hub, struct session *s, const char *text)
{
    if (text != NULL)
        hub_push_text(hub, s, slice_str(text));
}

/* It has waited as long as nobody is told anything. */
static bool has_waited(const struct session *s, const struct snapshot *now, uint64_t now_ms)
{
    return now->waited_ms >= schedule[SITUATION_NODES_MISSING].first_ms &&
           now_ms - s->as_node->joined_ms >= schedule[SITUATION_NODES_MISSING].first_ms;
}

static bool gets_all(const struct job *job, const struct session *s, const struct telling *t)
{
    const bool heard_all = s->as_node->told_wait == job->watch.wait;
    return t->s->is_final || (!heard_all && (t->now->news.n > 0 || has_waited(s, t->s, job->hub->now_ms)));
}

/* Spares hear it too: a user may sit at any of the terminals. */
static void tell_nodes(struct job *job, struct telling *t)
{
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (!s->is_node)
            continue;
        if (gets_all(job, s, t)) {
            s->as_node->told_wait = job->watch.wait;
            push(job->hub, s, all_of(t));
        } else if (s->as_node->told_wait == job->watch.wait) {
            push(job->hub, s, news_of(t));
        }
    }
}

/* The event log gets one by one what is new, and all at the end. */
static void tell(struct job *job, const struct snapshot *s, const struct findings_now *now)
{
    const struct diagnosis *log = s->is_final ? &now->all : &now->news;
    struct telling t = { .s = s, .now = now };
    tell_nodes(job, &t);
    for (uint32_t i = 0; i < log->n; i++)
        events_finding(job, &log->list[i]);
    cJSON_free(t.all);
    cJSON_free(t.news);
}

/* The i-th; all of them go along with the last. */
static void tell_line(struct job *job, const struct diagnosis *d, uint32_t i)
{
    static const struct diagnosis none;
    cJSON *o = begin_push(false);
    const bool whole = screen_add_line(o, &d->list[i]) && screen_add_findings(o, i + 1 == d->n ? d : &none);
    char *text = end_push(o, whole);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->is_node)
            push(job->hub, s, text);
    }
    cJSON_free(text);
}

/* Memory that is short leaves the user with the verdict alone. */
static void look(struct job *job, bool is_final)
{
    struct look l;
    struct findings_now *now = calloc(1, sizeof(*now));
    if (now == NULL || !look_at_job(job, &l)) {
        free(now);
        return;
    }
    l.snapshot.is_final = is_final;
    diagnose_job(&l.snapshot, &now->all);
    sort_out(&job->watch, now);
    if (is_final || now->trouble)
        tell(job, &l.snapshot, now);
    keep(&job->watch, now);
    look_free(&l);
    free(now);
}

/* Only what is new is kept beside what was told: a rank that computes now and sleeps then is told once. The oldest gives
 * way. */
static void keep_more(struct schedule_state *w, const struct findings_now *now)
{
    for (uint32_t i = 0; i < now->all.n; i++)
        if (now->digest[i] != 0 && !was_told(w, now->digest[i]))
            w->told[w->n_told++ % SCHEDULE_TOLD_MAX] = now->digest[i];
}

static void tell_news(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    sort_out(&job->watch, now);
    if (now->news.n > 0)
        tell(job, s, now);
    keep_more(&job->watch, now);
}

/* A job whose ranks only start one after the other is left alone. */
static void tell_torch(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    const uint64_t waited_ms = diagnose_torch_waits(s);
    const bool is_crowded = diagnose_torch_crowd(s);
    const bool is_due = is_crowded || (waited_ms > 0 && waited_ms >= schedule_torch_limit(&job->watch));
    schedule_torch_seen(job, s->crowd.n > 0 ? schedule[SITUATION_TORCH_WAITS].first_ms : waited_ms, is_due);
    if (!is_due)
        return;
    diagnose_job(s, &now->all);
    tell_news(job, s, now);
}

/* The name of a barrier is used once: not which barrier it is counts, but why who comes to it. */
static bool shows_the_way(const struct finding *f)
{
    return digest_of(f) != 0 && f->code != FINDING_BARRIER_WAITS;
}

static bool somebody_is_stopped(const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (s->ranks[i].proc_state == 'T' && !s->ranks[i].exited)
            return true;
    return false;
}

/* The same ranks keep the others waiting in the same way, no longer than before: a screen for each epoch would only be
 * noise. */
static bool is_the_jobs_way(const struct job *job, const struct snapshot *s, const struct diagnosis *d,
                            uint64_t waited_ms)
{
    if (!schedule_is_usual(&job->watch, waited_ms) || somebody_is_stopped(s))
        return false;
    for (uint32_t i = 0; i < d->n; i++)
        if (shows_the_way(&d->list[i]) && !schedule_knows(&job->watch, digest_of(&d->list[i])))
            return false;
    return true;
}

static void tell_still(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    const uint64_t in_call_ms = diagnose_still_waits(s), in_barrier_ms = diagnose_barrier_waits(s);
    const uint64_t waited_ms = in_call_ms > in_barrier_ms ? in_call_ms : in_barrier_ms;
    bool is_due = diagnose_stands_still(s, schedule[SITUATION_STANDS_STILL].first_ms) ||
                  diagnose_barrier_hangs(s, schedule[SITUATION_STANDS_STILL].first_ms);
    if (is_due) {
        diagnose_job(s, &now->all);
        is_due = !is_the_jobs_way(job, s, &now->all, waited_ms);
    }
    schedule_still_seen(job, waited_ms, is_due);
    if (!is_due)
        return;
    tell_news(job, s, now);
    for (uint32_t i = 0; i < now->all.n; i++)
        if (shows_the_way(&now->all.list[i]))
            schedule_learn(&job->watch, digest_of(&now->all.list[i]));
}

static void look_with(struct job *job,
                      void (*then)(struct job *job, const struct snapshot *s, struct findings_now *now))
{
    struct look l;
    struct findings_now *now = calloc(1, sizeof(*now));
    if (now != NULL && look_at_job(job, &l)) {
        then(job, &l.snapshot, now);
        look_free(&l);
    }
    free(now);
}

/* Who they are that nobody knows was asked when the first of them came; whose answer is late is told as it is. */
static void look_at_torch(struct job *job)
{
    look_with(job, tell_torch);
}

/* A node whose address is translated is mended one by one, and told but once; else the latest is the news. */
static uint32_t first_line(const struct diagnosis *d, enum finding_code code)
{
    return code == FINDING_ADDRESS_TRANSLATED ? 0 : d->n - 1;
}

/* Different numbers of workers are legal, and seldom meant; so are nodes behind a router that translates addresses; a late
 * node may be one that everybody waits for. One line, no
 * screen, if it is still true. */
static void note(struct job *job, enum finding_code code)
{
    struct look l;
    struct diagnosis *d = malloc(sizeof(*d));
    if (d != NULL && look_at_job(job, &l)) {
        diagnose_job(&l.snapshot, d);
        for (uint32_t i = diagnosis_keep(d, code) ? first_line(d, code) : d->n; i < d->n; i++)
            tell_line(job, d, i);
        look_free(&l);
    }
    free(d);
}

void monitor_run(struct job *job)
{
    const struct schedule_due due = schedule_due(job);
    if (due.compares) {
        note(job, FINDING_NPROC_UNEVEN);
        note(job, FINDING_ADDRESS_TRANSLATED);
    }
    if (due.trouble)
        note(job, FINDING_PORTS_CLOSED);
    if (due.spares)
        note(job, FINDING_LATE_NODE_IS_SPARE);
    if (due.torch)
        look_at_torch(job);
    if (due.still)
        look_with(job, tell_still);
    if (due.looks)
        look(job, due.is_final);
}

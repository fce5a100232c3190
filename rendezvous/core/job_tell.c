/* job_tell.c -- see job_tell.h. All nodes get the same text.
 *
 * Everything is told once: who has been told hears what is new, and nothing when nothing is. A node that comes later has
 * heard none of it; it gets all of it with the next news, or when it has waited as long as the others before they did.
 *
 * What was told last is kept as numbers and not as text: times in the text grow from look to look, and
 * 18 KB for each job that waits would be paid by all that are well. Two findings with the same digest cost
 * one word too few, which "time is up" makes good. */
#include "core/job_tell.h"

#include "core/job_look.h"
#include "core/screen.h"
#include "core/session.h"

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

/* Who comes and who is still missing is told by the counts of `waiting`; a new name in these is no news. */
static bool names_count(enum finding_code code)
{
    return code != FINDING_NODE_NEVER_CAME && code != FINDING_TOO_FEW_NODES && code != FINDING_TOO_FEW_LEFT;
}

/* Notes go along with what is wrong, and are no reason to speak. A stranger is one in a job that waits for somebody: a
 * node that was started wrongly looks like that. */
static uint64_t digest_of(const struct finding *f)
{
    if (!finding_is_trouble(f->code) && f->code != FINDING_FOREIGN_CLIENT)
        return 0;
    const uint64_t digest = mix(1, finding_code_name(f->code));
    return names_count(f->code) ? mix(digest, f->subject) : digest;
}

static bool was_told(const struct job_watch *w, uint64_t digest)
{
    for (uint32_t i = 0; i < w->n_told; i++)
        if (w->told[i] == digest)
            return true;
    return false;
}

static void sort_out(const struct job_watch *w, struct findings_now *now)
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
static void keep(struct job_watch *w, const struct findings_now *now)
{
    w->n_told = 0;
    for (uint32_t i = 0; now->trouble && i < now->all.n; i++)
        if (now->digest[i] != 0)
            w->told[w->n_told++] = now->digest[i];
}

/* --- telling -------------------------------------------------------------------------------------------- */

/* A push "findings" to be filled, and as text: it is printed once, however many nodes there are. */
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

static char *print_all(const struct snapshot *s, const struct findings_now *now)
{
    cJSON *o = begin_push(s->is_final);
    return end_push(o, screen_add(o, s, &now->all));
}

static char *print_news(const struct snapshot *s, const struct findings_now *now)
{
    cJSON *o = begin_push(false);
    return end_push(o, screen_add_news(o, s, &now->news, now->all.n - now->news.n));
}

static void push(struct hub *hub, struct session *s, const char *text)
{
    if (text != NULL)
        hub_push_text(hub, s, slice_str(text));
}

/* It has waited as long as nobody is told anything. */
static bool has_waited(const struct session *s, const struct snapshot *now, uint64_t now_ms)
{
    return now->waited_ms >= JOB_WATCH_FIRST_MS && now_ms - s->as_node->joined_ms >= JOB_WATCH_FIRST_MS;
}

/* Spares hear it too: a user may sit at any of the terminals. */
static void tell_nodes(struct job *job, const struct snapshot *now, const char *all, const char *news)
{
    const uint32_t wait = job->watch.wait;
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (!s->is_node)
            continue;
        if (now->is_final ||
            (s->as_node->told_wait != wait && (news != NULL || has_waited(s, now, job->hub->now_ms)))) {
            s->as_node->told_wait = wait;
            push(job->hub, s, all);
        } else if (s->as_node->told_wait == wait) {
            push(job->hub, s, news);
        }
    }
}

/* The event log gets one by one what is new, and all at the end. */
static void tell(struct job *job, const struct snapshot *s, const struct findings_now *now)
{
    const struct diagnosis *log = s->is_final ? &now->all : &now->news;
    char *all = print_all(s, now), *news = now->news.n > 0 ? print_news(s, now) : NULL;
    tell_nodes(job, s, all, news);
    for (uint32_t i = 0; i < log->n; i++)
        job_events_finding(job, &log->list[i]);
    cJSON_free(all);
    cJSON_free(news);
}

/* Of several the latest. */
static void tell_line(struct job *job, const struct diagnosis *d)
{
    cJSON *o = begin_push(false);
    const bool whole = screen_add_line(o, &d->list[d->n - 1]) && screen_add_findings(o, d);
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
    struct job_look l;
    struct findings_now *now = calloc(1, sizeof(*now));
    if (now == NULL || !job_look(job, &l)) {
        free(now);
        return;
    }
    l.snapshot.is_final = is_final;
    diagnose_job(&l.snapshot, &now->all);
    sort_out(&job->watch, now);
    if (is_final || now->trouble)
        tell(job, &l.snapshot, now);
    keep(&job->watch, now);
    job_look_free(&l);
    free(now);
}

/* Different numbers of workers are legal, and seldom meant; a late node may be one that everybody waits for. One line, no
 * screen, if it is still true. */
static void note(struct job *job, enum finding_code code)
{
    struct job_look l;
    struct diagnosis *d = malloc(sizeof(*d));
    if (d != NULL && job_look(job, &l)) {
        diagnose_job(&l.snapshot, d);
        if (diagnosis_keep(d, code))
            tell_line(job, d);
        job_look_free(&l);
    }
    free(d);
}

void job_tell_if_due(struct job *job)
{
    const struct job_watch_due due = job_watch_due(job);
    if (due.compares)
        note(job, FINDING_NPROC_UNEVEN);
    if (due.trouble)
        note(job, FINDING_PORTS_CLOSED);
    if (due.spares)
        note(job, FINDING_LATE_NODE_IS_SPARE);
    if (due.looks)
        look(job, due.is_final);
}

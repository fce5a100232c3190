/* job_tell.c -- see job_tell.h. All nodes get the same text.
 *
 * What was told last is kept as a number and not as a text: times in the text grow from look to look, and
 * 18 KB for each job that waits would be paid by all that are well. Two states with the same digest cost
 * one word too few, which "time is up" makes good. */
#include "core/job_tell.h"

#include "core/job_look.h"
#include "core/screen.h"
#include "core/session.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* --- what is worth a word ------------------------------------------------------------------------------- */

/* FNV-1a's step. Nobody gains by a collision here, so nothing stronger is needed. */
static uint64_t mix(uint64_t digest, const char *text)
{
    for (; *text != '\0'; text++)
        digest = (digest ^ (unsigned char)*text) * 0x100000001b3ull;
    return digest;
}

/* Who comes and who is still missing is told by the counts of `waiting`; a new name in these two is no news. */
static bool names_count(enum finding_code code)
{
    return code != FINDING_NODE_NEVER_CAME && code != FINDING_TOO_FEW_NODES;
}

/* 0 when nothing is wrong. Notes go along with what is, and are no reason to speak. */
static uint64_t digest_of(const struct diagnosis *d)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->list[i];
        if (!finding_is_trouble(f->code))
            continue;
        digest = mix(digest + 1, finding_code_name(f->code));
        if (names_count(f->code))
            digest = mix(digest, f->subject);
    }
    return digest;
}

/* --- telling -------------------------------------------------------------------------------------------- */

/* Spares hear it too: a user may sit at any of the terminals. */
static void push_to_nodes(struct job *job, const cJSON *o)
{
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->is_node)
            hub_push(job->hub, s, o);
    }
}

/* A message that memory was too short for is not sent by halves; the findings go to the event log one by
 * one in any case. */
static void tell(struct job *job, const struct snapshot *s, const struct diagnosis *d)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "findings");
    cJSON_AddBoolToObject(o, "final", s->is_final);
    if (screen_add(o, s, d))
        push_to_nodes(job, o);
    for (uint32_t i = 0; i < d->n; i++)
        job_events_finding(job, &d->list[i]);
    cJSON_Delete(o);
}

static void tell_line(struct job *job, const struct diagnosis *d)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "findings");
    cJSON_AddFalseToObject(o, "final");
    cJSON_AddStringToObject(o, "text", d->list[d->n - 1].sentence); /* of several the latest */
    if (screen_add_findings(o, d))
        push_to_nodes(job, o);
    cJSON_Delete(o);
}

/* Memory that is short leaves the user with the verdict alone. */
static void look(struct job *job, bool is_final)
{
    struct job_look l;
    struct diagnosis *d = malloc(sizeof(*d));
    if (d == NULL || !job_look(job, &l)) {
        free(d);
        return;
    }
    l.snapshot.is_final = is_final;
    diagnose_job(&l.snapshot, d);
    const uint64_t digest = digest_of(d);
    if (is_final || (digest != 0 && digest != job->watch.told))
        tell(job, &l.snapshot, d);
    job->watch.told = digest;
    job_look_free(&l);
    free(d);
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
    if (due.spares)
        note(job, FINDING_LATE_NODE_IS_SPARE);
    if (due.looks)
        look(job, due.is_final);
}

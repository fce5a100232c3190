/* control_why.c -- the calls `why` (what is wrong?), `notice` (a node says what it has found on itself) and `trouble` (a
 * rank says what it has met).
 *
 * `why` looks at the job when it is asked, and nothing is kept for it. Anybody may ask: an operator on
 * another machine, a launcher whose user has pressed a key. */
#include "hub/control_calls.h"

#include "hub/job_look.h"
#include "hub/json.h"
#include "diagnosis/screen.h"

#include <stdio.h>
#include <stdlib.h>

/* The look borrows from the job, so it is let go before anything else is worked off. */
bool control_why(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    struct job_look look;
    struct diagnosis *d = malloc(sizeof(*d)); /* 18 KB are much for a stack */
    struct job *job = control_job(hub, s, request);
    bool ok = job != NULL && d != NULL && job_look(job, &look);
    if (ok) {
        diagnose_job(&look.snapshot, d);
        ok = screen_add(answer, &look.snapshot, d);
        job_look_free(&look);
    }
    free(d);
    return ok;
}

/* Texts of a peer: cut to what a finding holds, and shown as they are only when they are plain. The others
 * are told soon: a node that is short of /dev/shm may be the reason they will wait. */
bool control_notice(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    const char *code, *subject, *sentence, *advice = "";
    if (!control_is_node(hub, s) || !json_text(request, "code", FINDING_SUBJECT_MAX - 1, &code, &hub->err) ||
        !json_text(request, "subject", FINDING_SUBJECT_MAX - 1, &subject, &hub->err) ||
        !json_text(request, "sentence", FINDING_TEXT_MAX - 1, &sentence, &hub->err) ||
        !json_text_or(request, "advice", FINDING_TEXT_MAX - 1, &advice, &hub->err))
        return false;
    struct job *job = s->job;
    notices_add(&job->notices, code, subject, sentence, advice);
    job_watch_hurry(job);
    job_touch(job);
    return true;
}

/* What ranks may say; the others are for the store to find out, or for agents. */
static bool is_of_ranks(enum finding_code code)
{
    return code == FINDING_PORTS_CLOSED;
}

static void subject_of(const struct session *s, char subject[FINDING_SUBJECT_MAX])
{
    struct rank_facts facts;
    facts_of_rank(s->job, s->rank, &facts);
    if (facts.host != NULL)
        snprintf(subject, FINDING_SUBJECT_MAX, "rank %u (%.100s, pid %d)", s->rank, facts.host, facts.pid);
    else
        snprintf(subject, FINDING_SUBJECT_MAX, "rank %u", s->rank);
}

/* Whose rank it is was said with IDENTIFY, and is not asked again; the sentence and the advice are our table's. The first
 * is told to all at once, the others to who asks; all are forgotten with the attempt. */
bool control_trouble(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    const char *code, *words;
    char subject[FINDING_SUBJECT_MAX];
    struct finding f;
    if (!json_text(request, "code", FINDING_SUBJECT_MAX - 1, &code, &hub->err) ||
        !json_text(request, "words", FINDING_TEXT_MAX - 1, &words, &hub->err))
        return false;
    if (s->role != ROLE_WORKER || !is_of_ranks(finding_by_name(code))) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "only ranks say `trouble`, and '%.60s' is none that they say", code);
        return false;
    }
    subject_of(s, subject);
    finding_make(&f, finding_by_name(code), subject, "words", words, NULL);
    if (s->job->troubles.count == 0) /* a rack that is cut off comes at once */
        job_watch_trouble(s->job);
    notices_add(&s->job->troubles, code, f.subject, f.sentence, f.advice);
    job_touch(s->job);
    return true;
}

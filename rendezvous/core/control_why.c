/* control_why.c -- the calls `why` (what is wrong?) and `notice` (a node says what it has found on itself).
 *
 * `why` looks at the job when it is asked, and nothing is kept for it. Anybody may ask: an operator on
 * another machine, a launcher whose user has pressed a key. */
#include "core/control.h"

#include "core/job_look.h"
#include "core/json.h"
#include "core/screen.h"

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
    if (!json_text(request, "code", FINDING_SUBJECT_MAX - 1, &code, &hub->err) ||
        !json_text(request, "subject", FINDING_SUBJECT_MAX - 1, &subject, &hub->err) ||
        !json_text(request, "sentence", FINDING_TEXT_MAX - 1, &sentence, &hub->err) ||
        !json_text_or(request, "advice", FINDING_TEXT_MAX - 1, &advice, &hub->err))
        return false;
    struct job *job = control_job(hub, s, request);
    if (job == NULL)
        return false;
    notices_add(&job->notices, code, subject, sentence, advice);
    job_watch_hurry(job);
    job_touch(job);
    return true;
}

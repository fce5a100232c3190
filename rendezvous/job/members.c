/* members.c -- see members.h.
 *
 * The facts of all ranks are one array, indexed by rank and allocated when an attempt is declared. All fields of an
 * unknown rank are zero. Each rank has its own copy of the host name; for 100,000 ranks the copies need 2 MB. */
#include "job/members.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t members_cost(uint32_t world_size)
{
    return (uint64_t)world_size * sizeof(struct member);
}

void members_free(struct members *m)
{
    for (uint32_t rank = 0; rank < m->world_size; rank++) {
        free(m->member[rank].host);
        free(m->member[rank].error);
    }
    free(m->member);
    quota_release(m->quota, members_cost(m->world_size));
    m->member = NULL;
    m->world_size = 0;
    m->known = false;
}

/* Allocate the new array before freeing the old array, so that the old attempt is kept if memory is short. */
bool members_begin(struct members *m, const struct job_name *name, bool by_agent)
{
    if (!quota_use(m->quota, members_cost(name->world_size)))
        return false;
    struct member *member = calloc(name->world_size, sizeof(*member));
    if (member == NULL) {
        quota_release(m->quota, members_cost(name->world_size));
        return false;
    }
    for (uint32_t rank = 0; rank < name->world_size; rank++)
        list_init(&member[rank].sessions);
    members_free(m);
    m->attempt = name->attempt;
    m->world_size = name->world_size;
    m->member = member;
    m->by_agent = by_agent;
    m->known = true;
    return true;
}

/* Check the bounds, because a peer may send any rank. */
struct member *members_at(const struct members *m, uint32_t rank)
{
    return rank < m->world_size ? &m->member[rank] : NULL;
}

/* Record host and pid, and replace an earlier pid. The agent reports the process that it has started, which may be a
 * wrapper script. The worker later reports its own pid. */
bool member_place(struct member *member, const char *host, int pid)
{
    if (pid != 0)
        member->pid = pid;
    if (host == NULL || (member->host != NULL && strcmp(member->host, host) == 0))
        return true;
    char *copy = strdup(host);
    if (copy == NULL)
        return false;
    free(member->host);
    member->host = copy;
    return true;
}

/* Record the state of the process. If the state has changed, clear stop_reported, because each stop of a process is
 * reported once. */
void member_set_state(struct member *member, char proc_state, int cpu_percent, const char *wchan,
                      uint64_t now_ms)
{
    if (member->proc_state != proc_state) {
        member->state_since_ms = now_ms;
        member->stop_reported = false;
    }
    member->proc_state = proc_state;
    member->cpu_percent = (int16_t)(cpu_percent > INT16_MAX ? INT16_MAX : cpu_percent < 0 ? -1 : cpu_percent);
    snprintf(member->wchan, sizeof(member->wchan), "%s", wchan != NULL ? wchan : "");
}

/* Copy and cut a text from a peer. Replace bytes that could control a terminal. */
void member_error(struct member *member, const char *error)
{
    free(member->error);
    member->error = NULL;
    if (error == NULL || error[0] == '\0' || (member->error = malloc(MEMBER_ERROR_MAX)) == NULL)
        return;
    text_copy(member->error, MEMBER_ERROR_MAX, error);
    text_disarm(member->error, strlen(member->error), '\0');
}

/* Record the progress that a worker reports. Replace unprintable bytes of `call` by '?', because `call` comes from a
 * peer. */
void member_step(struct member *member, int64_t step, uint64_t call_seq, const char *call, uint64_t now_ms)
{
    member->has_steps = true;
    member->step = step;
    member->call_seq = call_seq;
    member->stepped_ms = now_ms;
    snprintf(member->call, sizeof(member->call), "%s", call != NULL ? call : "");
    for (char *c = member->call; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            *c = '?';
}

bool member_has_left(const struct member *member)
{
    return member->exited && !member->stop_requested && member->exit_code == 0 && member->signal == 0;
}

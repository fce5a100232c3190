/* torch_watch.c -- see torch_watch.h.
 *
 * The three hooks stand behind requests that a busy store gets a million times a second. Each asks first for what nearly
 * all others fail (a name, a few bytes of a prefix), and only a client that passes gets the memory for notes. */
#include "core/torch_watch.h"

#include "core/session.h"

#include <stdlib.h>

/* Who waits again so soon has only had a time-out of its own: torch's barriers wait in turns of ten seconds. */
enum {
    AGAIN_MS = 2000,
    OWNERS_MAX = 6, /* in an attempt: no more are told, and an agent looks at its whole machine for each */
};

/* NULL when memory is short: then nothing is noted, and a look sees less. */
static struct torch_client *client_of(struct session *s)
{
    if (s->torch == NULL)
        s->torch = calloc(1, sizeof(*s->torch));
    return s->torch;
}

void torch_client_free(struct torch_client *client)
{
    if (client == NULL)
        return;
    free(client->owner);
    free(client);
}

void torch_on_process(struct session *s, int pid, bool by_agent)
{
    struct torch_client *torch = client_of(s);
    if (torch != NULL && (by_agent || torch->pid == 0))
        torch->pid = pid;
}

/* --- barriers ------------------------------------------------------------------------------------------- */

static struct torch_meet *meet_of_id(struct job *job, uint32_t id)
{
    struct torch_meet *meet = &job->meets.meet[id % TORCH_MEETS_MAX];
    return id != 0 && meet->id == id ? meet : NULL;
}

/* The latest first, as it is nearly always meant. */
static struct torch_meet *find_meet(struct job *job, struct slice key)
{
    struct torch_meets *meets = &job->meets;
    for (uint32_t i = 0; i < TORCH_MEETS_MAX && i < meets->last_id; i++) {
        struct torch_meet *meet = &meets->meet[(meets->last_id - i) % TORCH_MEETS_MAX];
        if (slice_equal(torch_meet_key(meet), key))
            return meet;
    }
    return NULL;
}

static struct torch_meet *make_meet(struct job *job, struct slice key)
{
    const uint32_t id = ++job->meets.last_id;
    struct torch_meet *meet = &job->meets.meet[id % TORCH_MEETS_MAX];
    *meet = (struct torch_meet){ .id = id, .len = (uint32_t)key.len };
    memcpy(meet->key, key.data, key.len);
    return meet;
}

/* More than there are ranks: with a barrier that all come to, that is never right. */
static bool is_crowded(const struct job *job, struct slice key, int64_t count)
{
    struct torch_key read;
    return job->members.known && count > job->members.world_size && torch_key_read(key, &read) && read.of_all;
}

/* No agent has vouched for it. */
static void ask_owner(struct job *job, struct session *s)
{
    if (job->meets.owners_asked < OWNERS_MAX && s->torch != NULL &&
        (s->torch->meet != 0 || s->torch->rank != 0) && list_is_empty(&s->by_rank) &&
        vouch_ask_owner(job->hub, s))
        job->meets.owners_asked++;
}

/* One too many has come: who it is, and with the first of them all that were there before. Anybody may bring this about, as
 * often as he likes, so the walk is made once for each look. */
static void suspect(struct session *newcomer)
{
    struct job *job = newcomer->job;
    ask_owner(job, newcomer);
    if (job_watch_torch_is_crowded(job))
        return;
    LIST_EACH(node, &job->sessions)
    {
        ask_owner(job, LIST_ENTRY(node, struct session, in_job));
    }
    job_watch_torch(job, true);
    job_touch(job);
}

static void count_in(struct session *s, struct torch_meet *meet, int64_t delta)
{
    s->torch->polls = true;
    s->torch->meet = meet->id;
    if (delta <= 0)
        return;
    s->waits_since_ms = s->job->hub->now_ms;
    if (is_crowded(s->job, torch_meet_key(meet), meet->count))
        suspect(s);
    job_watch_torch(s->job, false);
    job_touch(s->job);
}

void torch_on_add(struct session *s, struct slice key, int64_t delta, int64_t sum)
{
    if (key.len > TORCH_MEET_KEY_MAX || !torch_key_counts(key) || client_of(s) == NULL)
        return;
    struct torch_meet *meet = find_meet(s->job, key);
    if (meet == NULL)
        meet = make_meet(s->job, key);
    meet->count = sum;
    count_in(s, meet, delta);
}

const struct torch_meet *torch_polled(const struct session *s)
{
    const struct job *job = s->job;
    if (s->torch == NULL || !s->torch->polls || job == NULL)
        return NULL;
    const struct torch_meet *meet = meet_of_id(s->job, s->torch->meet);
    return meet != NULL && !(job->members.known && meet->count == job->members.world_size) ? meet : NULL;
}

/* --- addresses ------------------------------------------------------------------------------------------ */

/* A rank gives its address once in an attempt. When it is there already, either the same process has begun anew or two
 * claim to be the same rank; who they are is asked, and then it is looked at. */
void torch_on_set(struct session *s, struct slice key)
{
    struct torch_key read;
    if (!torch_key_may_set_up(key) || !torch_key_read(key, &read) || read.rank < 0 || client_of(s) == NULL ||
        strcmp(read.group, "0") != 0 || torch_key_when(&read) == TORCH_LATER)
        return;
    s->torch->rank = (uint32_t)read.rank + 1;
    if (store_get(s->job->store, key).len > 0)
        suspect(s);
}

/* --- waits ---------------------------------------------------------------------------------------------- */

void torch_on_wait(struct session *s)
{
    struct slice name;
    struct torch_key read;
    if (!facts_awaited(s, 0, &name) || !torch_key_read(name, &read) || client_of(s) == NULL)
        return;
    struct torch_client *torch = s->torch;
    const uint64_t now_ms = s->job->hub->now_ms;
    const uint32_t awaited = table_hash(name);
    if (torch->awaited != awaited || now_ms - torch->left_ms > AGAIN_MS)
        torch->since_ms = now_ms;
    torch->awaited = awaited;
    s->waits_since_ms = torch->since_ms;
    if (torch_key_when(&read) == TORCH_LATER)
        return;
    job_watch_torch(s->job, false);
    job_touch(s->job);
}

void torch_on_leave(struct session *s)
{
    if (s->torch != NULL)
        s->torch->left_ms = s->job->hub->now_ms;
}

/* Whoever waits for it waits in vain; that need not be told in ten seconds only. */
void torch_on_exit(struct job *job)
{
    job_watch_torch_exit(job);
}

void torch_forget(struct job *job)
{
    job->meets = (struct torch_meets){ 0 };
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->torch == NULL)
            continue;
        free(s->torch->owner);
        *s->torch = (struct torch_client){ .pid = s->torch->pid };
    }
}

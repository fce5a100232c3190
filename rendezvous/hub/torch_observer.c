/* torch_observer.c -- see torch_observer.h.
 *
 * The hooks stand behind requests that a busy store gets a million times a second. Each asks first for what nearly
 * all others fail (a name, a few bytes of a prefix), and only a client that passes gets the memory for notes. */
#include "hub/torch_observer.h"

#include "diagnosis/torch_keys.h"
#include "hub/session.h"

/* Who waits again so soon has only had a time-out of its own: torch's barriers wait in turns of ten seconds. */
enum {
    AGAIN_MS = 2000,
    OWNERS_MAX = 6, /* in an attempt: no more are told, and an agent looks at its whole machine for each */
};

/* --- barriers ------------------------------------------------------------------------------------------- */

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
        peer_ask_owner(job->hub, s))
        job->meets.owners_asked++;
}

/* One too many has come: who it is, and with the first of them all that were there before. Anybody may bring this about, as
 * often as he likes, so the walk is made once for each look. */
static void suspect(struct session *newcomer)
{
    struct job *job = newcomer->job;
    ask_owner(job, newcomer);
    if (schedule_torch_is_crowded(job))
        return;
    LIST_EACH(node, &job->sessions)
    {
        ask_owner(job, LIST_ENTRY(node, struct session, in_job));
    }
    schedule_torch(job, true);
    job_touch(job);
}

/* Who only asks, and sees the right count, goes on; whatever is counted later is no business of his. */
static bool goes_on(const struct job *job, const struct torch_meet *meet, int64_t delta)
{
    return delta == 0 && job->members.known && meet->count == job->members.world_size;
}

static void count_in(struct session *s, struct torch_meet *meet, int64_t delta)
{
    s->torch->polls = !goes_on(s->job, meet, delta);
    s->torch->meet = meet->id;
    if (delta <= 0)
        return;
    s->waits_since_ms = s->torch->tried_ms = s->job->hub->now_ms;
    if (is_crowded(s->job, torch_meet_key(meet), meet->count))
        suspect(s);
    schedule_torch(s->job, false);
    job_touch(s->job);
}

/* A counter has changed, or was read (delta 0). */
static void on_count(void *user, struct slice key, int64_t delta, int64_t sum)
{
    struct session *s = ((struct hub *)user)->feeding;
    if (s == NULL || key.len > TORCH_MEET_KEY_MAX || !torch_key_counts(key) ||
        torch_client_at(&s->torch) == NULL)
        return;
    struct torch_meet *meet = torch_meets_find(&s->job->meets, key);
    if (meet == NULL)
        meet = torch_meets_make(&s->job->meets, key);
    meet->count = sum;
    count_in(s, meet, delta);
}

/* --- addresses ------------------------------------------------------------------------------------------ */

/* A rank gives its address once in an attempt. When it is there already, either the same process has begun anew or two
 * claim to be the same rank; who they are is asked, and then it is looked at. */
static void on_set(void *user, struct slice key, bool anew)
{
    struct session *s = ((struct hub *)user)->feeding;
    struct torch_key read;
    if (s == NULL || !torch_key_may_set_up(key) || !torch_key_read(key, &read) || read.rank < 0 ||
        torch_client_at(&s->torch) == NULL || strcmp(read.group, "0") != 0 ||
        torch_key_when(&read) == TORCH_LATER)
        return;
    s->torch->rank = (uint32_t)read.rank + 1;
    if (anew)
        suspect(s);
}

/* --- waits ---------------------------------------------------------------------------------------------- */

/* Who waits is at it again, whatever it gave up before. */
static void note_wait(struct session *s, uint32_t awaited, const struct torch_key *key)
{
    struct torch_client *torch = s->torch;
    const uint64_t now_ms = s->job->hub->now_ms;
    if (torch->awaited != awaited || torch->left_ms == 0 || now_ms - torch->left_ms > AGAIN_MS)
        torch->since_ms = now_ms;
    torch->awaited = awaited;
    torch->left_ms = 0;
    torch->waits = true;
    torch->key = *key;
    torch->key.name = (struct slice){ 0 };
    s->waits_since_ms = torch->since_ms;
    if (torch_key_when(key) == TORCH_SETUP)
        torch->tried_ms = now_ms;
}

static void on_wait(void *user, struct store_waiter *waiter)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    struct slice name;
    struct torch_key read;
    (void)user;
    if (s->torch != NULL)
        s->torch->waits = false;
    if (!facts_awaited(s, 0, &name) || !torch_key_read(name, &read)) {
        if (s->torch != NULL)
            s->torch->left_ms = 0;
        return;
    }
    if (torch_client_at(&s->torch) == NULL)
        return;
    note_wait(s, table_hash(name), &read);
    if (torch_key_when(&read) == TORCH_LATER)
        return;
    schedule_torch(s->job, false);
    job_touch(s->job);
}

/* The first key tells enough: those of one setup are asked for together. */
static void on_found(void *user, struct store_waiter *waiter, struct slice keys)
{
    const struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    struct slice first;
    (void)user;
    struct torch_key read;
    if (s->torch != NULL && wire_next(&keys, &first) && torch_key_may_set_up(first) &&
        torch_key_read(first, &read) && torch_key_when(&read) == TORCH_SETUP)
        s->torch->tried_ms = s->job->hub->now_ms;
}

void torch_observe(struct job *job)
{
    const struct store_observer observer = { .user = job->hub,
                                             .prefixes = torch_key_prefixes,
                                             .written = on_set,
                                             .counted = on_count,
                                             .waits = on_wait,
                                             .found = on_found };
    store_observe(job->store, &observer);
    job->is_observed = true;
}

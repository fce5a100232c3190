/* pytorch.c -- what PyTorch's ranks wait for, and whether more of them have come than belong there. See diagnosis.h.
 *
 * PyTorch itself counts: it says after half an hour that 4 workers of 2 have come, or 3 of 4, and not who. Here the same
 * is said while it happens, with names. Groups of some ranks are left to the general findings: who belongs to them the
 * store is not told. */
#include "base/text.h"
#include "diagnosis/text.h"

#include <stdio.h>

enum { CLAIMS_SHOWN = 6, WHO_MAX = 500, TAIL_MAX = 90 /* of what counts the others */ };

/* --- what they wait for --------------------------------------------------------------------------------- */

static bool is_torch_wait(const struct snapshot_wait *wait, struct torch_key *key)
{
    return !wait->is_barrier && wait->waiting > 0 && torch_key_read(wait->name, key) &&
           torch_key_when(key) != TORCH_LATER && torch_key_is_for_all(key);
}

bool diagnose_is_torch_wait(const struct snapshot_wait *wait)
{
    struct torch_key key;
    return is_torch_wait(wait, &key);
}

uint64_t diagnose_torch_waits(const struct snapshot *s)
{
    struct torch_key key;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < s->n_waits; i++)
        if (is_torch_wait(&s->waits[i], &key) && s->waits[i].for_ms >= longest)
            longest = s->waits[i].for_ms + 1; /* 0 is "nobody" */
    return longest;
}

static const char *words_of(words out, const struct torch_key *key,
                            bool (*put)(const struct torch_key *key, struct buf *out))
{
    struct buf text = { 0 };
    put(key, &text);
    snprintf(out, WORDS_LEN, "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    return out;
}

static void setup_unfinished(struct diagnosis *d, const struct snapshot *s, const struct snapshot_wait *w,
                             const struct torch_key *key)
{
    words setup, what, who, time, arrived, members, last;
    const bool is_beyond = key->rank >= (int64_t)s->n_ranks;
    const enum finding_code code = is_beyond ? FINDING_GROUP_BEYOND_JOB : FINDING_SETUP_UNFINISHED;
    struct finding *f = diagnosis_slot(d, code);
    if (f != NULL)
        finding_make(f, code, words_of(setup, key, torch_key_put_setup), "what",
                     words_of(what, key, torch_key_put), "arrived", number(arrived, w->waiting), "members",
                     number(members, s->n_ranks), "missing", absent_ranks(who, s), "time",
                     duration(time, w->for_ms), "last", number(last, s->n_ranks - 1), NULL);
}

bool diagnose_torch_setup(struct diagnosis *d, const struct snapshot *s, const struct snapshot_wait *w)
{
    struct torch_key key;
    if (!is_torch_wait(w, &key) || torch_key_when(&key) != TORCH_SETUP)
        return false;
    if (s->crowd.n == 0 || s->crowd.is_double) /* else nobody is missing there */
        setup_unfinished(d, s, w, &key);
    return true;
}

/* --- more than belong there ----------------------------------------------------------------------------- */

/* "rank 0 (n1, pid 71)", "pid 75, started by rank 0 (n1)", "pid 90 on n1 (python x.py ...), as rank 0" */
static void put_claim(const struct snapshot_claim *c, struct buf *out)
{
    words who;
    if (c->is_child)
        buf_printf(out, "pid %d, started by rank %lld", c->pid, (long long)c->rank);
    else if (c->is_ours)
        buf_printf(out, "rank %lld (%s%spid %d)", (long long)c->rank, c->host != NULL ? c->host : "",
                   c->host != NULL ? ", " : "", c->pid);
    else if (c->owner[0] != '\0')
        buf_printf(out, "%s", c->owner);
    else if (c->pid != 0)
        buf_printf(out, "pid %d at ", c->pid);
    else
        buf_printf(out, "a process at ");
    if (!c->is_ours && c->owner[0] == '\0')
        text_put(out, c->address, sizeof(who));
    if (!c->is_ours && c->rank >= 0)
        buf_printf(out, ", as rank %lld", (long long)c->rank);
}

/* False when it does not fit any more in `room`: nothing is added then. The first is cut instead. */
static bool add_claim(const struct snapshot_claim *c, bool is_first, size_t room, struct buf *out)
{
    const size_t before = out->len;
    buf_printf(out, is_first ? "" : "; ");
    put_claim(c, out);
    if (out->len <= room)
        return true;
    out->len = is_first ? room : before;
    return is_first;
}

/* Behind the last one nobody is counted. */
static size_t room_for(const struct snapshot_crowd *crowd, uint32_t shown)
{
    return shown + 1 == crowd->n && crowd->count <= crowd->n ? WHO_MAX - 1 : WHO_MAX - TAIL_MAX;
}

/* Those that do not belong there are the news, so they are named first. */
static uint32_t put_some_claims(const struct snapshot_crowd *crowd, struct buf *out)
{
    uint32_t shown = 0;
    for (int ours = 0; ours <= 1; ours++)
        for (uint32_t i = 0; i < crowd->n; i++) {
            const struct snapshot_claim *c = &crowd->claims[i];
            if ((c->is_ours && !c->is_child) != (bool)ours)
                continue;
            if (shown == CLAIMS_SHOWN || !add_claim(c, shown == 0, room_for(crowd, shown), out))
                return shown;
            shown++;
        }
    return shown;
}

/* Whose connection is not there any more may be somebody else, or one of these that has begun anew. */
static void put_claims(const struct snapshot_crowd *crowd, struct buf *out)
{
    const uint32_t shown = put_some_claims(crowd, out);
    const unsigned long long others = crowd->count > crowd->n ? crowd->count - crowd->n : 0;
    if (crowd->n > shown)
        buf_printf(out, "; and %u more", crowd->n - shown);
    if (others > 0)
        buf_printf(out, "; and %llu that %s gone, or the same once more", others, others == 1 ? "is" : "are");
}

static bool has_strangers(const struct snapshot_crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->n; i++)
        if (!crowd->claims[i].is_ours)
            return true;
    return false;
}

/* Somebody knows who they are; whom nobody knows may yet turn out to be a worker whose agent is slow. */
bool diagnose_torch_crowd(const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->crowd.n; i++) {
        const struct snapshot_claim *c = &s->crowd.claims[i];
        if (!c->is_ours && (c->owner[0] != '\0' || c->pid != 0))
            return true;
    }
    return false;
}

/* A process that counts a second time is no second process. */
static const char *come(const struct snapshot_crowd *crowd)
{
    return crowd->count > crowd->n ? "times somebody has come" : "processes of this job take part";
}

static const char *belong(words out, const struct snapshot *s)
{
    if (s->crowd.is_double)
        snprintf(out, WORDS_LEN, "some of them as the same rank");
    else
        snprintf(out, WORDS_LEN, "and it has %u rank%s", s->world_size, s->world_size == 1 ? "" : "s");
    return out;
}

void diagnose_torch_too_many(struct diagnosis *d, const struct snapshot *s)
{
    char who[WHO_MAX];
    words setup, count, ranks;
    struct buf text = { 0 };
    const enum finding_code code = has_strangers(&s->crowd) ? FINDING_STORE_SHARED : FINDING_GROUP_TOO_LARGE;
    struct finding *f = s->crowd.n > 0 ? diagnosis_slot(d, code) : NULL;
    if (f == NULL)
        return;
    put_claims(&s->crowd, &text);
    snprintf(who, sizeof(who), "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    finding_make(f, code, words_of(setup, &s->crowd.key, torch_key_put_setup), "count",
                 number(count, s->crowd.count), "come", come(&s->crowd), "belong", belong(ranks, s), "who",
                 who, NULL);
}

/* admission.c -- see admission.h.
 *
 * Connections arrive in the order of time, so the list of silent ones stays sorted without work. A connection leaves it with
 * its first request, therefore the search at a full table looks at silent connections only. */
#include "server/admission.h"

#include <stdlib.h>
#include <string.h>

void admission_init(struct admission *a, uint32_t max, uint32_t self)
{
    a->max = max;
    a->self = self;
    for (int i = 0; i < ADMISSION_BUCKETS; i++)
        LIST_INIT(&a->bucket[i]);
    TAILQ_INIT(&a->silent);
}

static bool is_limited(const struct admission *a, const struct admission_key *key)
{
    return !key->is_uid || (key->uid != 0 && key->uid != a->self);
}

uint32_t admission_limit(const struct admission *a, const struct admission_key *key)
{
    if (!is_limited(a, key))
        return a->max;
    return key->is_uid ? a->max - a->max / 2 : a->max - a->max / 8;
}

static bool is_same(const struct admission_key *x, const struct admission_key *y)
{
    return x->is_uid == y->is_uid && x->uid == y->uid &&
           memcmp(x->address, y->address, sizeof(x->address)) == 0;
}

/* FNV-1a. Chosen collisions cost a walk over as many sources, each of which needs an address of its own. */
static struct admission_sources *find_bucket(struct admission *a, const struct admission_key *key)
{
    uint32_t hash = 2166136261u ^ key->uid;
    for (size_t i = 0; i < sizeof(key->address); i++)
        hash = (hash ^ key->address[i]) * 16777619u;
    return &a->bucket[(hash ^ hash >> 16) % ADMISSION_BUCKETS];
}

static struct admission_source *find_source(struct admission *a, const struct admission_key *key)
{
    struct admission_sources *bucket = find_bucket(a, key);
    struct admission_source *s;
    LIST_FOREACH(s, bucket, link)
    if (is_same(&s->key, key))
        return s;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->key = *key;
    LIST_INSERT_HEAD(bucket, s, link);
    return s;
}

static void release_source(struct admission_source *s)
{
    if (s->open > 0)
        return;
    LIST_REMOVE(s, link);
    free(s);
}

enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                      const struct admission_key *key, uint64_t now_ms)
{
    struct admission_source *s = find_source(a, key);
    if (s == NULL)
        return ADMISSION_NO_MEMORY;
    const bool is_full = s->open >= admission_limit(a, key);
    if (is_full || (is_limited(a, key) && a->limited >= a->max - a->max / 8)) {
        release_source(s);
        return is_full ? ADMISSION_FULL : ADMISSION_CROWDED;
    }
    s->open++;
    a->limited += is_limited(a, key);
    *e = (struct admission_entry){ .source = s, .since_ms = now_ms, .is_silent = true };
    TAILQ_INSERT_TAIL(&a->silent, e, link);
    return ADMISSION_OK;
}

void admission_spoke(struct admission *a, struct admission_entry *e)
{
    if (e->is_silent)
        TAILQ_REMOVE(&a->silent, e, link);
    e->is_silent = false;
}

void admission_close(struct admission *a, struct admission_entry *e)
{
    admission_spoke(a, e);
    if (e->source == NULL)
        return;
    e->source->open--;
    a->limited -= is_limited(a, &e->source->key);
    release_source(e->source);
    e->source = NULL;
}

struct admission_entry *admission_oldest_silent(const struct admission *a, enum admission_verdict verdict,
                                                const struct admission_key *key, uint64_t now_ms)
{
    struct admission_entry *e;
    TAILQ_FOREACH(e, &a->silent, link)
    {
        if (now_ms < e->since_ms + ADMISSION_SILENT_MS)
            return NULL; /* all behind it are younger */
        if (verdict == ADMISSION_FULL ? is_same(&e->source->key, key)
                                      : verdict != ADMISSION_CROWDED || is_limited(a, &e->source->key))
            return e;
    }
    return NULL;
}

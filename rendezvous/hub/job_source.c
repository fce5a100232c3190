/* job_source.c -- the sources that declare jobs, see job_source.h. */
#include "hub/job_source.h"
#include "hub/session.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_MAX = 64, NETWORK_BYTES = 8 };

struct job_source {
    struct table_node node; /* in hub->sources, by key */
    struct quota share;     /* of hub->quota; its jobs have shares of it */
    uint32_t jobs;
    char key[KEY_MAX];
};

/* One host may use every address of its /64 network. */
static bool format_network(struct slice address, char key[static KEY_MAX])
{
    char text[INET6_ADDRSTRLEN + 2];
    uint8_t bytes[16];
    snprintf(text, sizeof(text), "%.*s", (int)address.len, (const char *)address.data);
    text[strcspn(text, "]%")] = '\0';
    if (text[0] != '[' || inet_pton(AF_INET6, text + 1, bytes) != 1)
        return false;
    int n = snprintf(key, KEY_MAX, "net ");
    for (int i = 0; i < NETWORK_BYTES; i++)
        n += snprintf(key + n, (size_t)(KEY_MAX - n), "%02x", bytes[i]);
    return true;
}

static void format_key(const struct session *s, char key[static KEY_MAX])
{
    struct slice address = session_address(s);
    if (s->uid != SESSION_NO_UID)
        snprintf(key, KEY_MAX, "uid %u", s->uid);
    else if (!format_network(address, key))
        snprintf(key, KEY_MAX, "%.*s", (int)address.len, (const char *)address.data);
}

struct job_source *job_source_of(struct hub *hub, const struct session *s)
{
    char key[KEY_MAX];
    format_key(s, key);
    const uint32_t hash = table_hash(slice_str(key));
    struct table_node *node = table_find(&hub->sources, slice_str(key), hash);
    if (node != NULL)
        return TABLE_ENTRY(node, struct job_source, node);
    struct job_source *source = calloc(1, sizeof(*source));
    if (source == NULL)
        return NULL;
    snprintf(source->key, sizeof(source->key), "%s", key);
    source->share.whole = &hub->quota;
    source->node =
        (struct table_node){ .key = source->key, .key_len = (uint32_t)strlen(source->key), .hash = hash };
    table_put(&hub->sources, &source->node);
    return source;
}

void job_source_release(struct hub *hub, struct job_source *source)
{
    if (source == NULL || source->jobs > 0)
        return;
    table_remove(&hub->sources, &source->node);
    free(source);
}

bool job_source_has_room(const struct job_source *source, uint64_t bytes)
{
    return quota_left(&source->share) >= bytes;
}

void job_set_source(struct job *job, struct job_source *source)
{
    struct job_source *before = job->source;
    quota_move(&job->share, source != NULL ? &source->share : &job->hub->quota);
    job->source = source;
    if (source != NULL)
        source->jobs++;
    if (before != NULL)
        before->jobs--;
    job_source_release(job->hub, before);
}

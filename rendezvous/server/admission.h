/* admission.h -- limit the connections of each source, and choose the connection that is closed when descriptors run out.
 *
 * A source is a user where the kernel names it, otherwise an address; the /64 network counts for IPv6. Each limit is a share
 * of all connections, so a job with thousands of ranks at one address needs a descriptor limit and nothing else. Pure. */
#ifndef RENDEZVOUS_ADMISSION_H
#define RENDEZVOUS_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
    ADMISSION_SILENT_MS = 1000, /* a younger connection may still send its first request */
    ADMISSION_BUCKETS = 256,
};

/* Zeroed before it is filled, so that memcmp compares it. */
struct admission_key {
    bool is_uid;
    uint32_t uid;
    uint8_t address[16]; /* IPv4 as IPv4 in IPv6; without the last 8 bytes for IPv6 */
};

struct admission_source {
    LIST_ENTRY(admission_source) link;
    struct admission_key key;
    uint32_t open;
};

/* Of one connection; lives inside an object of the caller. */
struct admission_entry {
    TAILQ_ENTRY(admission_entry) link;
    struct admission_source *source; /* NULL = not counted */
    uint64_t since_ms;
    bool is_silent;
};
TAILQ_HEAD(admission_entries, admission_entry);
LIST_HEAD(admission_sources, admission_source);

struct admission {
    uint32_t max;     /* connections of all sources */
    uint32_t self;    /* the user whose connections, like root's, have no limit of their own */
    uint32_t limited; /* open connections of all other sources */
    struct admission_sources bucket[ADMISSION_BUCKETS];
    struct admission_entries silent; /* without a request, the oldest first */
};

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_FULL, /* the source has its share */
    ADMISSION_CROWDED, /* all limited sources together have theirs, 7/8: the rest is for root and the store's user */
    ADMISSION_NO_MEMORY
};

void admission_init(struct admission *a, uint32_t max, uint32_t self);

/* How many connections this source may have: half of all for another user of this host, 7/8 for an address. */
uint32_t admission_limit(const struct admission *a, const struct admission_key *key);

/* Count a new connection. It is not counted unless ADMISSION_OK. */
enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                      const struct admission_key *key, uint64_t now_ms);

/* It has sent a request. */
void admission_spoke(struct admission *a, struct admission_entry *e);

/* It is closing. May be called any number of times. */
void admission_close(struct admission *a, struct admission_entry *e);

/* Find the oldest connection that has sent no request for ADMISSION_SILENT_MS and whose end would change the verdict about
 * `key`: one of the same source (FULL), of any limited source (CROWDED), or any at all (OK: no descriptor is left; `key` may be
 * NULL). NULL = none. */
struct admission_entry *admission_oldest_silent(const struct admission *a, enum admission_verdict verdict,
                                                const struct admission_key *key, uint64_t now_ms);

#endif

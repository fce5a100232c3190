/* refusals.h -- nodes that were not let into a job: the agents' counterpart of rejects.h.
 *
 * An agent that is refused prints why and ends. On the other nodes, which wait for it, that is the answer to "why does
 * node 3 not come?", so the last of them are kept, the same one only once. */
#ifndef RENDEZVOUS_REFUSALS_H
#define RENDEZVOUS_REFUSALS_H

#include "job/rendezvous.h"

enum { REFUSALS_MAX = 32 };

struct refusal {
    enum rdzv_refused code;
    char job[RDZV_TEXT_MAX], host[RDZV_TEXT_MAX], boot_id[RDZV_TEXT_MAX];
    char sentence[3 * RDZV_WORDS_MAX];
    int32_t node_rank; /* that it asked for, -1 = any */
    int pid;
    uint32_t times;
    uint64_t first_ms, last_ms;
};

/* `count` rows, the oldest gives way. Zeroed before first use. */
struct refusals {
    struct refusal row[REFUSALS_MAX];
    uint32_t count;
};

void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms);

#endif

/* torch_watch.h -- what PyTorch's ranks of a job do while their process groups come together.
 *
 * Two things cannot be seen afterwards, when somebody asks, and are therefore noted when they happen: who has counted in a
 * store-based barrier, which torch 1.13 then asks for a hundred times a second instead of waiting; and as which rank a client
 * has given its address. With them a look tells who is missing, and whether more have come than there are ranks.
 *
 * What is noted decides nothing but when the job is looked at (job_watch.h). It is forgotten with the attempt. */
#ifndef RENDEZVOUS_TORCH_WATCH_H
#define RENDEZVOUS_TORCH_WATCH_H

#include "core/torch_keys.h"

struct job;
struct session;
struct snapshot;
struct snapshot_claim;

enum { TORCH_MEETS_MAX = 16, TORCH_MEET_KEY_MAX = 160 };

/* A barrier in which somebody has counted. */
struct torch_meet {
    uint32_t id;  /* 0 = free; later ones have higher ids */
    uint32_t len; /* of the key */
    int64_t count;
    char key[TORCH_MEET_KEY_MAX];
};

/* Embedded in a job, zeroed before first use. The oldest gives way: ranks meet in one after the other. */
struct torch_meets {
    uint32_t last_id;
    uint32_t owners_asked; /* in this attempt */
    struct torch_meet meet[TORCH_MEETS_MAX];
};

/* Of a session that has used one of PyTorch's keys, or whose process is known. It is apart since a store may have a hundred
 * thousand idle sessions. */
struct torch_client {
    uint32_t meet;    /* the one it has counted in last, 0 = none */
    uint32_t rank;    /* 1 + that of the default group as which it has given its address, 0 = none */
    uint32_t awaited; /* a hash of the key that it has waited for last */
    int pid;          /* as its agent says, else it itself; 0 = unknown */
    bool polls;       /* its last request has asked for the count of `meet` */
    bool asked;       /* agents were asked whose it is if it is none of their workers */
    uint64_t since_ms, left_ms; /* that wait: since when, and when it was given up last */
    char *owner;                /* owned: an agent's words for a process that is no worker; NULL = none */
};

/* By an agent's word, or by its own, which counts as long as there is no other. */
void torch_on_process(struct session *s, int pid, bool by_agent);
/* A counter has changed, or was read (delta 0). */
void torch_on_add(struct session *s, struct slice key, int64_t delta, int64_t sum);
/* Before the key gets its value. */
void torch_on_set(struct session *s, struct slice key);
/* It waits from now on. Who only goes on waiting for the same has done so since the first time. */
void torch_on_wait(struct session *s);
/* It gives its wait up without having been answered. */
void torch_on_leave(struct session *s);
/* A process of the job has ended. */
void torch_on_exit(struct job *job);
void torch_client_free(struct torch_client *client);
/* The attempt has ended: what is left is which process a client is. */
void torch_forget(struct job *job);

/* The barrier whose count it asks for again and again; NULL = none, or it is complete. */
const struct torch_meet *torch_polled(const struct session *s);
static inline struct slice torch_meet_key(const struct torch_meet *meet)
{
    return slice_of(meet->key, meet->len);
}

/* torch_crowd.c: those who take part in something that has more members than ranks, or the same rank twice, into the
 * snapshot; *claims is yours (free). False when memory is short. */
bool torch_crowd(const struct job *job, struct snapshot *snapshot, struct snapshot_claim **claims);

#endif

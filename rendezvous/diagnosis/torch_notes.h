/* torch_notes.h -- notes of what PyTorch's ranks of a job do while their process groups come together.
 *
 * Two things cannot be seen afterwards, when somebody asks, and are therefore noted when they happen: who has counted in a
 * store-based barrier, which torch 1.13 then asks for a hundred times a second instead of waiting; and as which rank a client
 * has given its address. With them a look tells who is missing, and whether more have come than there are ranks.
 *
 * Written by torch_watch.c, forgotten with the attempt. */
#ifndef RENDEZVOUS_TORCH_NOTES_H
#define RENDEZVOUS_TORCH_NOTES_H

#include "diagnosis/torch_keys.h"

#include <stdbool.h>
#include <stdint.h>

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

/* Of a session that has used one of PyTorch's keys. It is apart since a store may have a hundred thousand idle sessions. */
struct torch_client {
    uint32_t meet;    /* the one it has counted in last, 0 = none */
    uint32_t rank;    /* 1 + that of the default group as which it has given its address, 0 = none */
    uint32_t awaited; /* a hash of the key that it has waited for last */
    bool polls;       /* its last request has asked for the count of `meet`, which was not the right one */
    bool waits;       /* what it waits for, or has waited for last, is one of PyTorch's keys: `awaited` */
    bool asked;       /* agents were asked whose it is if it is none of their workers */
    uint64_t since_ms, left_ms; /* that wait: since when, and when it was given up last; 0 = it was not */
    uint64_t tried_ms;          /* when it began a setup last, or went on with one; 0 = never */
    struct torch_key key;       /* what it is for, without its name */
    char *owner;                /* owned: an agent's words for a process that is no worker; NULL = none */
};

/* The notes at *at, made if there are none. NULL when memory is short: then nothing is noted, and a look sees less. */
struct torch_client *torch_client_at(struct torch_client **at);
/* Back to NULL. */
void torch_client_free(struct torch_client **at);

static inline struct slice torch_meet_key(const struct torch_meet *meet)
{
    return slice_of(meet->key, meet->len);
}

/* NULL = it is not known, or not any more. */
struct torch_meet *torch_meets_find(struct torch_meets *meets, struct slice key);
const struct torch_meet *torch_meets_of_id(const struct torch_meets *meets, uint32_t id);
/* `key` has TORCH_MEET_KEY_MAX bytes at most. */
struct torch_meet *torch_meets_make(struct torch_meets *meets, struct slice key);

#endif

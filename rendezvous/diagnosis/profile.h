/* profile.h -- a pure module that finds the rank for which all other ranks wait, from many samples of a running job
 * (--profile_ranks). All ranks need the same time for a step, because each collective waits for the slowest rank. But
 * the slowest rank itself waits least in collectives. */
#ifndef RENDEZVOUS_DIAGNOSIS_PROFILE_H
#define RENDEZVOUS_DIAGNOSIS_PROFILE_H

#include "diagnosis/spot.h"

struct diagnosis;
struct snapshot_rank;
struct snapshot;

enum {
    /* time between samples in ms; with this value, if one of four ranks is 20 % slower than the others, the profile
     * finds this rank within a minute */
    PROFILE_EVERY_MS = 500,
    PROFILE_WINDOW = 600,     /* number of samples in a window (5 min); a new window begins with new counts */
    PROFILE_RANKS_MAX = 4096, /* maximum number of ranks of a job with a profile; a rank needs about 1.4 KB */
    PROFILE_PLACES = 8,       /* maximum number of counted places per rank; a new place replaces the rarest */
};

struct profile_place {
    uint64_t hash; /* hash of file and function */
    uint32_t n;
    char words[SPOT_PLACE_MAX];
};

/* A rank, and the evidence that it is slow. In a sample, k of n ranks wait. If all ranks are equally fast, each rank
 * waits with probability p = k / n. Two hypotheses about a rank are compared. A slow rank waits with probability 0.1 p.
 * Any other rank waits with a probability of at least 0.85 p. For each rank, the profile multiplies the likelihood
 * ratios of the samples.
 *
 * Ville's inequality limits false reports. If a rank is not slow, its product exceeds 1 / A in a window with a
 * probability of at most A. So the product can be checked after every sample. The lower limit of the product,
 * least_evidence, increases this probability by less than 1 % of its value. */
struct profile_rank {
    uint32_t seen, waits; /* seen: number of samples with this rank; waits: number in which it waits */
    double evidence;      /* product of the likelihood ratios of this window */
    bool is_slow;         /* the rank was found slow in this window */
    bool was_slow;        /* the rank was found slow in the previous window */
    struct profile_place places[PROFILE_PLACES]; /* the most frequent places outside of collectives */
};

/* The profile of a job. A zeroed struct contains no profile. */
struct profile {
    struct profile_rank *ranks; /* owned */
    uint32_t n;
    uint32_t samples; /* number of samples in this window */
    uint64_t moves;   /* digest of the last sample: moved_ms, and the steps and calls of all ranks */
    bool in_wait;     /* in the last sample, some ranks waited and others did not */
};

/* Begin a profile of `n` ranks. Return false if memory is short, or if `n` exceeds PROFILE_RANKS_MAX. The caller
 * calls profile_free in any case. */
bool profile_begin(struct profile *p, uint32_t n);
void profile_free(struct profile *p);

/* Add a sample. `rows` has the stacks of all ranks (record/stacks.h). `facts` has the facts about all ranks, such as
 * collectives of libddp. `moved_ms` is the time of the job's last progress. Return true if a rank has become slow.
 *
 * Only the first sample of each wait is evidence. A sample in which a rank imports a library is left out. At the start
 * of a job, imports take longer on some ranks, and all other ranks wait in the first collective. */
bool profile_add(struct profile *p, const cJSON *rows, const struct snapshot_rank *facts, uint64_t moved_ms);

/* Add one finding RANK_SLOW about all slow ranks of s->profile. */
void diagnose_slow(struct diagnosis *d, const struct snapshot *s);

/* Return the place outside of collectives where a rank is most often; "" = unknown. The profile owns the text. */
const char *profile_place(const struct profile_rank *r);

#endif

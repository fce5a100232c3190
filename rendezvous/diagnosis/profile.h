/* profile.h -- which rank makes the others wait: counts over many samples of a job that runs (--profile_ranks). Pure.
 *
 * All ranks of a job take the same time for a step, because each collective waits for the slowest rank. The slow rank is the
 * one that waits least inside collectives. A sample in which k of n ranks wait is evidence: if the ranks are equal, a
 * given rank is among those that do not wait with probability (n - k) / n. For each rank the profile multiplies the likelihood
 * ratios of "waits a tenth as often as its share" against "waits at least 0.85 times its share". By Ville's inequality such a
 * product passes 1 / a in a window with probability a at most, however often one looks; so repeated looks need no correction.
 * (The floor least_evidence adds less than a hundredth of that.) */
#ifndef RENDEZVOUS_DIAGNOSIS_PROFILE_H
#define RENDEZVOUS_DIAGNOSIS_PROFILE_H

#include "diagnosis/spot.h"

struct diagnosis;
struct rank_facts;
struct snapshot;

enum {
    PROFILE_EVERY_MS =
        500,              /* from one sample to the next: +20 % on one of four ranks shows within a minute */
    PROFILE_WINDOW = 600, /* samples; then the counts begin again */
    PROFILE_RANKS_MAX = 4096,
    PROFILE_PLACES = 8, /* of a rank; the rarest gives way */
};

struct profile_place {
    uint64_t hash; /* of file and function */
    uint32_t n;
    char words[SPOT_PLACE_MAX];
};

struct profile_rank {
    uint32_t seen, waits;                        /* samples of this window */
    double evidence;                             /* product of likelihood ratios */
    bool is_slow;                                /* found in this window */
    bool was_slow;                               /* found in the window before, so the users know */
    struct profile_place places[PROFILE_PLACES]; /* outside of collectives */
};

/* Zeroed: no profile. */
struct profile {
    struct profile_rank *ranks; /* owned */
    uint32_t n;
    uint32_t samples; /* of this window */
    uint64_t moves;   /* digest of how far the job was in the last sample */
    bool in_wait;     /* some ranks waited in it, and others did not */
};

/* Begin with `n` ranks. False when memory is short or there are more than PROFILE_RANKS_MAX; free it in any case. */
bool profile_begin(struct profile *p, uint32_t n);
void profile_free(struct profile *p);

/* Count a sample: rows of record/stacks.h, and the facts of all ranks, which say where ranks of libddp are. `moved_ms` is the time
 * of the job's last sign of progress. All samples of one wait are one piece of
 * evidence, because the same rank is late in all of them. Return true if a rank is slow that was not slow before. */
bool profile_add(struct profile *p, const cJSON *rows, const struct rank_facts *facts, uint64_t moved_ms);

/* Add RANK_SLOW for the slow ranks of s->profile, if there are any. */
void diagnose_slow(struct diagnosis *d, const struct snapshot *s);

/* Return the place where a rank is most often outside of collectives; "" = not known. */
const char *profile_place(const struct profile_rank *r);

#endif

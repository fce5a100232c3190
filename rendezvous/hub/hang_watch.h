/* hang_watch.h -- when a job is suspected to hang, and when the suspicion is a verdict. Pure.
 *
 *     no sign of progress for the limit -> three samples of the stacks, a pause between two -> the same verdict twice -> report
 *
 * The limit is --hang_timeout, else HANG_FACTOR times the longest pause that the job has made so far, and at least
 * HANG_LEAST_MS. A suspicion costs a few ms of each worker's node, so it may be wrong. A report must not: each sign of
 * progress ends the suspicion, and a pause becomes one of the job's usual ones. */
#ifndef RENDEZVOUS_HUB_HANG_WATCH_H
#define RENDEZVOUS_HUB_HANG_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HANG_LEAST_MS = 30000,
    HANG_QUIET_FACTOR = 3, /* of the limit, for a job that has never shown a sign of progress */
    HANG_FACTOR = 5,
    HANG_APART_MS = 6500, /* from one sample to the next */
    HANG_AGAIN_MAX_MS =
        300000 /* from a suspicion without a verdict to the next, which doubles from the limit */
};

/* Zeroed: no round runs. */
struct hang_watch {
    uint64_t limit_ms; /* 0 = adaptive */
    bool is_off;
    bool runs;           /* a round does, */
    uint64_t began_ms;   /* ... since then */
    uint64_t moved_ms;   /* the last sign of progress, or the begin */
    uint64_t longest_ms; /* the longest pause between two signs */
    bool has_signals;    /* there was one */
    uint64_t due_ms;     /* of the next sample; 0 = none */
    uint32_t samples;    /* of this suspicion */
    uint32_t in_vain;    /* suspicions without a verdict since the last sign */
    uint64_t verdict;    /* digest of the last two samples' one; 0 = none */
    bool is_told;        /* the verdict was reported, and nothing has moved since */
};

/* A round begins; limit and switch stay. */
void hang_watch_begin(struct hang_watch *w, uint64_t now_ms);
/* No round runs any more. */
void hang_watch_end(struct hang_watch *w);

/* Record progress of `ago_ms` ago. Return false if later progress is recorded already. */
bool hang_watch_moved(struct hang_watch *w, uint64_t ago_ms, uint64_t now_ms);

/* Return when the next sample is due, UINT64_MAX = never. */
uint64_t hang_watch_deadline(const struct hang_watch *w);

/* True if a sample is due now; it is not due again afterwards. */
bool hang_watch_due(struct hang_watch *w, uint64_t now_ms);

/* True if the last two samples belong to the present suspicion. */
bool hang_watch_compares(const struct hang_watch *w);

/* End the suspicion without a verdict. */
void hang_watch_skip(struct hang_watch *w, uint64_t now_ms);

/* A sample has arrived. `verdict` is the digest of the verdict on it and the one before it; 0 = none, and for the first sample. True:
 * report the verdict now, once. */
bool hang_watch_sampled(struct hang_watch *w, uint64_t verdict, uint64_t now_ms);

#endif

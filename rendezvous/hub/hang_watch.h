/* hang_watch.h -- a pure module that decides when a job is suspected to hang and when to report the hang. A wrong
 * suspicion costs only a few ms on each node. But a report needs the same verdict on two pairs of samples, because a
 * wrong report misleads the user. */
#ifndef RENDEZVOUS_HUB_HANG_WATCH_H
#define RENDEZVOUS_HUB_HANG_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HANG_LEAST_MS = 30000, /* shortest limit without --hang_timeout */
    HANG_QUIET_FACTOR = 3, /* before any progress, the shortest limit is HANG_QUIET_FACTOR * HANG_LEAST_MS */
    HANG_FACTOR = 5,       /* the limit is HANG_FACTOR times the longest pause so far */
    HANG_APART_MS = 6000,  /* ms from one sample to the next */
    /* Time in ms between samples before the first sign of progress. A report needs three samples, which
     * take 42 s, so a checkpoint of 40 s is not reported. */
    HANG_QUIET_APART_MS = 21000,
    /* Time in ms from the third sample to the next. If the third sample gave no certain verdict, the next sample
     * replaces the third sample. If the third sample gave another verdict than the second, the next sample confirms the
     * new verdict. This time is short, so that a hang is reported within 15 s after the limit. */
    HANG_CONFIRM_MS = 1000,
    /* Longest pause in ms between two suspicions. Each pause is twice as long as the previous one. */
    HANG_AGAIN_MAX_MS = 300000
};

/* The state of the watch. A zeroed struct means that no round is running.
 *
 *     no sign of progress for the limit -> 3 or 4 samples of stacks, with pauses -> the same verdict twice -> report
 *
 * A rank that sleeps, wakes and sleeps again may be slow, so a verdict about such a rank needs 8 samples. The limit is
 * --hang_timeout. Without the option the limit is HANG_FACTOR times the longest pause of the job so far, and at least
 * HANG_LEAST_MS. */
struct hang_watch {
    uint64_t limit_ms;   /* time in ms without progress until a suspicion; 0 = computed from longest_ms */
    bool is_off;         /* true with --hang_timeout=off: no suspicion begins */
    bool runs;           /* true while a round runs */
    uint64_t began_ms;   /* start of the round */
    uint64_t moved_ms;   /* last progress; before any progress: last hang_watch_joined(), or began_ms */
    uint64_t longest_ms; /* the longest pause between two signs of progress */
    bool has_signals;    /* this round has shown a sign of progress */
    uint64_t due_ms;     /* time of the next sample; 0 if no sample is due */
    uint32_t samples;    /* number of samples taken in this suspicion */
    bool retries;        /* the third sample lacked a verdict or flight records; the next one replaces it */
    bool retried;        /* the third sample of this suspicion was replaced, or will be replaced */
    uint32_t in_vain;    /* number of suspicions without a verdict since the last sign of progress */
    uint32_t compared;   /* number of the suspicions in `in_vain` whose samples were compared */
    uint64_t verdict;    /* digest of the verdict on the last two samples; 0 if there was no verdict */
    bool is_reported;    /* the verdict was reported, and no progress has followed */
    uint64_t hint; /* digest of the last hint (uncertain verdict) since the last progress; 0 = no hint */
};

/* Start the watch of a new round, and reset all fields except limit_ms and is_off. */
void hang_watch_begin(struct hang_watch *w, uint64_t now_ms);
/* Stop the watch at the end of a round. */
void hang_watch_end(struct hang_watch *w);

/* Record progress that happened `ago_ms` ago. Each sign of progress ends the suspicion. Return false if later progress
 * is already recorded. */
bool hang_watch_moved(struct hang_watch *w, uint64_t ago_ms, uint64_t now_ms);

/* Record that a process has joined a process group. This is not progress, because the program is still starting. But
 * the time limit starts again, and the pause before the next suspicion is reset. Otherwise suspicions during a slow
 * start would make this pause longer and delay the first report. Return false if no round is running, or if the round
 * has already shown progress. */
bool hang_watch_joined(struct hang_watch *w, uint64_t now_ms);

/* Return the time of the next sample, or UINT64_MAX if no sample is due. */
uint64_t hang_watch_deadline(const struct hang_watch *w);

/* Return true if a sample is due now, and set the time of the next sample. */
bool hang_watch_due(struct hang_watch *w, uint64_t now_ms);

/* Return true if the current suspicion has two samples to compare. Also return true if a hint (uncertain verdict) was
 * found since the last progress. */
bool hang_watch_compares(const struct hang_watch *w);

/* End the suspicion without a verdict. */
void hang_watch_skip(struct hang_watch *w, uint64_t now_ms);

/* The verdict from the comparison of a sample with the previous sample. */
struct hang_verdict {
    uint64_t digest; /* 0 = no verdict */
    bool is_certain; /* a verdict that is not certain is a hint */
    /* true if the sleeping rank has run several times between the two samples, or if the time between the samples is
     * too short to exclude this */
    bool wakes;
};

/* Record a sample. Return true if the caller must report the verdict or the hint, because the previous sample gave the
 * same result. After a reported verdict, nothing is reported until the next progress. After a reported hint, only
 * another hint or a verdict is reported. */
bool hang_watch_sampled(struct hang_watch *w, struct hang_verdict verdict, uint64_t now_ms);

#endif

/* shm_words.h -- what is wrong between ranks, told from the control page. Reads marks of ranks that may be
 * at work, so it believes nothing that it reads: a torn mark makes a strange sentence, never a crash. */
#ifndef WORKER_SHM_WORDS_H
#define WORKER_SHM_WORDS_H

#include "cpu/shm_control.h"

/* "rank 2 (pid 123 on host) has ended while rank 0 waited in all_reduce #17 (f32 x 1024, sum)"; of a rank that was not in a call
 * "... has ended; the last call of rank 0 was all_reduce #17 (f32 x 1024, sum)" */
ddp_status words_ended(const struct shm_control *control, int rank, int ended, bool in_call,
                       struct ddp_err *err);

/* The ranks that have not arrived at phase `phase`, with what they do and what they did last. */
ddp_status words_missing(const struct shm_control *control, int world, int rank, uint32_t phase,
                         uint32_t waited_ms, struct ddp_err *err);

/* Compare what all ranks have called. DDP_OK, or DDP_ERR_MISMATCH with rank 0's call and the first that
 * differs. */
ddp_status words_compare(const struct shm_control *control, int world, struct ddp_err *err);

#endif

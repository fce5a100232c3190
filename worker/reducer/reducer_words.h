/* reducer_words.h -- what a program hears that calls the reducer in a wrong order: which parameters, by name, and in which
 * buckets. Each returns DDP_ERR_ARG. Pure. */
#ifndef WORKER_REDUCER_REDUCER_WORDS_H
#define WORKER_REDUCER_REDUCER_WORDS_H

#include "reducer/reducer_core.h"

ddp_status words_no_such(const struct reducer_core *core, size_t i, struct ddp_err *err);
ddp_status words_twice(const struct reducer_core *core, size_t i, struct ddp_err *err);
ddp_status words_not_expected(const struct reducer_core *core, size_t i, struct ddp_err *err);
ddp_status words_no_forward(const struct reducer_core *core, size_t i, struct ddp_err *err);
ddp_status words_unready(const struct reducer_core *core, struct ddp_err *err);
ddp_status words_unfinished(const struct reducer_core *core, struct ddp_err *err);
ddp_status words_nothing_begun(struct ddp_err *err);

#endif

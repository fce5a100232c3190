/* verify.h -- checks that the model, the reducer's options and the optimizer are equal on all ranks. Each rank first
 * checks its own data, before any collective, so that its error can name the wrong argument. */
#ifndef WORKER_REDUCER_VERIFY_H
#define WORKER_REDUCER_VERIFY_H

#include "ddp/group.h"
#include "ddp/optim.h"
#include "ddp/reducer.h"

/* --- on one rank ----------------------------------------------------------------------------------------- */

/* Read the options. If `given` is NULL, use the defaults. The text of DDP_ERR_ARG names the wrong option and its
 * value. */
ddp_status reducer_options_read(const ddp_reducer_options *given, ddp_reducer_options *out,
                                struct ddp_err *err);

/* Check whether all options support gradients on a device. If an option works only on the host, return
 * DDP_ERR_UNSUPPORTED; the text names this option. */
ddp_status reducer_check_device(const ddp_reducer_options *options, struct ddp_err *err);

/* Check the names, data and shapes of a list. `what` is "parameter" or "buffer". If an option multiplies the gradients
 * by a fraction, reducer_check_types rejects parameters of integer types. */
ddp_status reducer_check_list(const char *what, const ddp_param *list, size_t n, struct ddp_err *err);
ddp_status reducer_check_types(const ddp_param *params, size_t n, const ddp_reducer_options *options,
                               struct ddp_err *err);

/* --- on all ranks ---------------------------------------------------------------------------------------- */

enum { MODEL_LISTS = 2 };

/* The data that reducer_verify compares. All pointers are borrowed. */
struct model {
    const ddp_param *list[MODEL_LISTS]; /* the parameters, then the buffers */
    size_t count[MODEL_LISTS];
    const ddp_reducer_options *options; /* only options that must be equal on all ranks are compared */
};

/* Compare counts, names, shapes, types and options with rank 0; collective. If the models differ, all ranks return
 * DDP_ERR_MISMATCH, and the text names the first difference and its rank. */
ddp_status reducer_verify(ddp_group *group, const struct model *model);

/* Compare the optimizer's hyperparameters; collective. If a hyperparameter differs, all ranks return
 * DDP_ERR_MISMATCH, and the text names the first such hyperparameter and both values. */
ddp_status zero1_same_optim(ddp_group *group, const ddp_optim *optim);

/* Compare the decay flags of all ranks; collective. `no_decay` has one flag for each of n parameters, or is NULL if all
 * parameters have weight decay. If flags differ, all ranks return DDP_ERR_MISMATCH, and the text names the first
 * parameter with different flags. */
ddp_status zero1_same_decay(ddp_group *group, const unsigned char *no_decay, const ddp_param *params,
                            size_t n);

#endif

/* zero1_same.c -- see zero1_same.h. A rank with another rate would update its share by it, and no other rank could ever see
 * that: the parameters agree all along. So everybody's numbers are gathered once, and all find the same difference. */
#include "reducer/zero1_same.h"

#include "core/context.h"

#include <stdlib.h>

/* field, and which rules look at it */
#define OPTIM_FIELDS(X)           \
    X(rule, true)                 \
    X(lr, true)                   \
    X(weight_decay, true)         \
    X(momentum, rule == DDP_SGD)  \
    X(dampening, rule == DDP_SGD) \
    X(nesterov, rule == DDP_SGD)  \
    X(beta1, rule != DDP_SGD)     \
    X(beta2, rule != DDP_SGD)     \
    X(eps, rule != DDP_SGD)       \
    X(step, true)

enum {
#define X(field, counts) FIELD_##field,
    OPTIM_FIELDS(X)
#undef X
        FIELDS
};

static const char *const field_names[] = {
#define X(field, counts) #field,
    OPTIM_FIELDS(X)
#undef X
};

/* What the rule does not look at is 0, whatever it is. */
static void numbers_of(const ddp_optim *optim, double numbers[FIELDS])
{
    const ddp_rule rule = optim->rule;
#define X(field, counts) numbers[FIELD_##field] = (counts) ? (double)optim->field : 0;
    OPTIM_FIELDS(X)
#undef X
}

/* `all`: a row for each rank, of numbers that ddp_optim_check has let pass there, so none is a NaN. */
static ddp_status compare(const double *all, size_t world, struct ddp_err *err)
{
    for (size_t k = FIELDS; k < world * FIELDS; k++) {
        const size_t field = k % FIELDS;
        if (all[k] != all[field])
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "optimiser: %s differs: rank 0 has %.17g, rank %zu has %.17g", field_names[field],
                            all[field], k / FIELDS, all[k]);
    }
    return DDP_OK;
}

ddp_status zero1_same_optim(ddp_group *group, const ddp_optim *optim)
{
    const size_t world = (size_t)ddp_world_size(group->ctx);
    double mine[FIELDS], *all = calloc(world, sizeof(mine));
    struct ddp_err err;
    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: no memory for %zu ranks", world);
        return ctx_fail(group->ctx, &err);
    }
    numbers_of(optim, mine);
    ddp_status status = ddp_all_gather(group, mine, all, FIELDS, DDP_F64, NULL, NULL);
    if (status == DDP_OK && compare(all, world, &err) != DDP_OK)
        status = ctx_fail(group->ctx, &err);
    free(all);
    return status;
}

/* --- which parameters decay ------------------------------------------------------------------------------------- */

/* `all`: n flags of each rank. */
static ddp_status compare_decay(const unsigned char *all, size_t world, const ddp_param *params, size_t n,
                                struct ddp_err *err)
{
    for (size_t k = n; k < world * n; k++) {
        if (all[k] != all[k % n])
            return ddp_fail(
                err, DDP_ERR_MISMATCH,
                "optimiser: no_decay of parameter %zu \"%.100s\" differs: rank 0 has %d, rank %zu has %d",
                k % n, params[k % n].name, all[k % n], k / n, all[k]);
    }
    return DDP_OK;
}

ddp_status zero1_same_decay(ddp_group *group, const unsigned char *no_decay, const ddp_param *params,
                            size_t n)
{
    const size_t world = (size_t)ddp_world_size(group->ctx);
    unsigned char *mine = calloc(world + 1, n);
    struct ddp_err err;
    if (mine == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: no memory for %zu ranks", world);
        return ctx_fail(group->ctx, &err);
    }
    unsigned char *all = mine + n;
    for (size_t i = 0; i < n && no_decay != NULL; i++)
        mine[i] = no_decay[i] != 0;
    ddp_status status = ddp_all_gather(group, mine, all, n, DDP_U8, NULL, NULL);
    if (status == DDP_OK && compare_decay(all, world, params, n, &err) != DDP_OK)
        status = ctx_fail(group->ctx, &err);
    free(mine);
    return status;
}

/* reducer_words.c -- see reducer_words.h. Parameters are named, since nobody knows them by number; eight of them are enough
 * to see which layer it is. */
#include "reducer/reducer_words.h"

#include <stdio.h>
#include <string.h>

enum { LISTED = 8, LIST = 720 };

ddp_status words_no_such(const struct reducer_core *core, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG, "reducer: there is no parameter %zu, 0 to %zu was expected", i,
                    core->n - 1);
}

/* Twice in one step would reduce a half-written bucket; it mostly means that the last step was not finished. */
ddp_status words_twice(const struct reducer_core *core, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: parameter %zu \"%.100s\" (bucket %zu) is marked ready twice in one step; was "
                    "ddp_reducer_finish left out?",
                    i, core->params[i].name, core->plan->bucket_of[i]);
}

ddp_status words_not_expected(const struct reducer_core *core, size_t i, struct ddp_err *err)
{
    if (i >= core->n)
        return words_no_such(core, i, err);
    return ddp_fail(
        err, DDP_ERR_ARG,
        "reducer: parameter %zu \"%.100s\" (bucket %zu) is marked unused, but all must be used; set "
        "ddp_reducer_options.find_unused on all ranks",
        i, core->params[i].name, core->plan->bucket_of[i]);
}

static void list_param(const struct reducer_core *core, size_t i, char list[LIST])
{
    size_t used = strlen(list);
    snprintf(list + used, LIST - used, "%s%zu \"%.40s\" (bucket %zu)", used > 0 ? ", " : "", i,
             core->params[i].name, core->plan->bucket_of[i]);
}

/* Returns how many are not ready; `list` names the first of them. */
static size_t list_unready(const struct reducer_core *core, char list[LIST])
{
    size_t missing = 0;
    list[0] = '\0';
    for (size_t i = 0; i < core->n; i++)
        if (!core->ready[i] && missing++ < LISTED)
            list_param(core, i, list);
    return missing;
}

/* Only with uneven inputs: else a step may begin so. */
ddp_status words_no_forward(const struct reducer_core *core, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: parameter %zu \"%.100s\" is marked, but no step was begun; with "
                    "ddp_reducer_options.uneven call ddp_reducer_forward before the backward pass",
                    i, core->params[i].name);
}

/* A layer that took no part in the loss is the usual cause. */
ddp_status words_unready(const struct reducer_core *core, struct ddp_err *err)
{
    char list[LIST];
    size_t missing = list_unready(core, list);
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: finish, but %zu of %zu parameters were not marked ready: %s%s", missing,
                    core->n, list, missing > LISTED ? ", and others" : "");
}

/* The other ranks wait in a bucket that this one has not launched: going on would only move the error elsewhere. */
ddp_status words_unfinished(const struct reducer_core *core, struct ddp_err *err)
{
    char list[LIST];
    size_t missing = core->sync ? list_unready(core, list) : 0;
    if (missing == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "reducer: forward, but the last step was not ended; call ddp_reducer_finish");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "reducer: forward, but the last step was not ended: bucket %zu of %zu is next, and %zu of %zu "
        "parameters were not marked ready: %s%s",
        core->launched, core->plan->count, missing, core->n, list, missing > LISTED ? ", and others" : "");
}

/* Otherwise nothing tells this from a step in which every parameter is unused. */
ddp_status words_nothing_begun(struct ddp_err *err)
{
    return ddp_fail(
        err, DDP_ERR_ARG,
        "reducer: finish, but no step was begun; call ddp_reducer_forward before the backward pass");
}

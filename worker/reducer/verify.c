/* verify.c -- see verify.h. Usually one all_gather of counts and a hash shows that all models are equal. If models
 * differ, all ranks compare their descriptions of parameters, buffers and options with rank 0's. All ranks make the
 * same calls, because a collective that only some ranks call would hang. */
#include "reducer/verify.h"

#include "base/buf.h"
#include "core/context.h"
#include "reducer/reduce.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- options ------------------------------------------------------------------------------------------ */

/* The options that must be equal on all ranks. Columns: name, and value as an integer. */
#define REDUCER_COMPARED(X)                               \
    X(first_bucket_bytes, (int64_t)o->first_bucket_bytes) \
    X(bucket_cap_bytes, (int64_t)o->bucket_cap_bytes)     \
    X(keep_buffers, o->keep_buffers)                      \
    X(keep_order, o->keep_order)                          \
    X(find_unused, o->find_unused)                        \
    X(uneven, (int64_t)o->uneven)                         \
    X(wire, o->compress ? (int64_t)o->wire + 1 : 0)       \
    X(predivide, (int64_t)(o->predivide * 1e9))           \
    X(hook, o->hook != NULL)

enum {
#define X(name, value) COMPARED_##name,
    REDUCER_COMPARED(X)
#undef X
        COMPARED_OPTIONS
};

/* PyTorch's default sizes of the first bucket and of all other buckets. If the order in which the gradients become
 * ready is known, the first bucket is reduced first. Its small size then lets the reduction begin early. Otherwise the
 * first bucket is reduced last, and its small size makes the final wait short. For 25 MiB the fixed cost of a call is
 * negligible. */
enum { FIRST_BUCKET = 1 << 20, BUCKET_CAP = 25 << 20 };

static const char *const option_names[] = {
#define X(name, value) #name,
    REDUCER_COMPARED(X)
#undef X
};

static const char *reducer_option_name(size_t which)
{
    return which < COMPARED_OPTIONS ? option_names[which] : "?";
}

static int64_t reducer_option_value(const ddp_reducer_options *o, size_t which)
{
    const int64_t values[] = {
#define X(name, value) value,
        REDUCER_COMPARED(X)
#undef X
    };
    return which < COMPARED_OPTIONS ? values[which] : 0;
}

/* Check the values of the options. A wrong value is an error, because a silent default would hide the mistake. */
static ddp_status check_values(const ddp_reducer_options *o, struct ddp_err *err)
{
    if (o->overlap < DDP_OVERLAP_AUTO || o->overlap > DDP_OVERLAP_ON)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: overlap=%d: expected a value of ddp_overlap",
                        (int)o->overlap);
    if (o->uneven < DDP_UNEVEN_NO || o->uneven > DDP_UNEVEN_STOP)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: uneven=%d: expected a value of ddp_uneven",
                        (int)o->uneven);
    if (o->compress && o->wire != DDP_F16 && o->wire != DDP_BF16)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: wire=%s: expected DDP_F16 or DDP_BF16 if compress is set",
                        ddp_dtype_name(o->wire));
    if (!(o->predivide >= 0 && o->predivide <= 1e9))
        return ddp_fail(err, DDP_ERR_ARG, "reducer: predivide=%g: expected 0 or a factor up to 1e9",
                        o->predivide);
    if (o->hook != NULL && (o->compress || o->predivide > 0))
        return ddp_fail(err, DDP_ERR_ARG,
                        "reducer: %s: expected 0 with a hook, because the hook replaces the all-reduce",
                        o->compress ? "compress" : "predivide");
    return DDP_OK;
}

/* Read the options. `size` is the size of the struct in the caller's header. With an older header the newer options
 * get their defaults. */
ddp_status reducer_options_read(const ddp_reducer_options *given, ddp_reducer_options *out,
                                struct ddp_err *err)
{
    *out = (ddp_reducer_options)DDP_REDUCER_OPTIONS_INIT;
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(*out)))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_reducer_options.size=%zu: initialize the struct with DDP_REDUCER_OPTIONS_INIT",
                        given->size);
    if (given != NULL)
        memcpy(out, given, given->size);
    if (out->first_bucket_bytes == 0)
        out->first_bucket_bytes = FIRST_BUCKET;
    if (out->bucket_cap_bytes == 0)
        out->bucket_cap_bytes = BUCKET_CAP;
    return check_values(out, err);
}

static ddp_status wrong_shape(const char *what, const ddp_param *p, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: %s %zu \"%.100s\" has %zu elements, but the product of its shape is different",
                    what, i, p->name, p->count);
}

/* Check that the product of a parameter's shape is its number of elements. A product that overflows is an error. */
static ddp_status check_shape(const char *what, const ddp_param *p, size_t i, struct ddp_err *err)
{
    size_t product = 1;
    if (p->dims == 0)
        return DDP_OK;
    if (p->dims > DDP_MAX_DIMS || p->shape == NULL)
        return ddp_fail(err, DDP_ERR_ARG,
                        "reducer: %s %zu \"%.100s\" has %zu dimensions%s; expected a shape of 0 to %d "
                        "dimensions",
                        what, i, p->name, p->dims, p->shape == NULL ? " but no shape" : "", DDP_MAX_DIMS);
    for (size_t d = 0; d < p->dims; d++)
        if (__builtin_mul_overflow(product, p->shape[d], &product))
            return wrong_shape(what, p, i, err);
    return product == p->count ? DDP_OK : wrong_shape(what, p, i, err);
}

ddp_status reducer_check_list(const char *what, const ddp_param *list, size_t n, struct ddp_err *err)
{
    if (list == NULL && n > 0)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: the list of %ss is NULL, but its length is %zu", what, n);
    for (size_t i = 0; i < n; i++) {
        if (list[i].name == NULL || (list[i].data == NULL && list[i].count > 0))
            return ddp_fail(err, DDP_ERR_ARG, "reducer: %s %zu has no %s", what, i,
                            list[i].name == NULL ? "name" : "data");
        if (check_shape(what, &list[i], i, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* Reject options for which the CPU would have to compute in device memory. */
ddp_status reducer_check_device(const ddp_reducer_options *options, struct ddp_err *err)
{
    const char *what = options->compress                      ? "compress"
                       : options->predivide > 0               ? "predivide"
                       : options->uneven == DDP_UNEVEN_ACTIVE ? "DDP_UNEVEN_ACTIVE"
                                                              : NULL;
    if (what == NULL)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "reducer: %s is not supported for gradients on a device; use %s instead", what,
                    options->compress || options->predivide > 0 ? "a hook (ddp_reducer_options.hook)"
                                                                : "DDP_UNEVEN_WORLD");
}

/* Return an error if an option multiplies the gradients by a fraction and a parameter has an integer type. */
ddp_status reducer_check_types(const ddp_param *params, size_t n, const ddp_reducer_options *options,
                               struct ddp_err *err)
{
    bool fractions = options->predivide > 0 || options->uneven == DDP_UNEVEN_ACTIVE;
    for (size_t i = 0; i < n && fractions; i++)
        if (!values_are_real(params[i].dtype))
            return ddp_fail(err, DDP_ERR_ARG,
                            "reducer: parameter %zu \"%.100s\" is %s; %s needs a floating-point type", i,
                            params[i].name, ddp_dtype_name(params[i].dtype),
                            options->predivide > 0 ? "predivide" : "DDP_UNEVEN_ACTIVE");
    return DDP_OK;
}

/* --- models of all ranks ------------------------------------------------------------------------------ */

/* The calls of reducer_verify. All ranks know all counts and hashes, so all make the same calls:
 *
 *     all_gather   counts and hash of each rank                   usually all are equal, and no further call follows
 *     broadcast    rank 0's cards: parameters, buffers, options   each rank records its card of the first difference
 *     all_gather   recorded card of each rank                     the lowest rank with a difference is reported
 *     broadcast    rank 0's card of the reported entry            all ranks report the same text */

/* The first message of each rank: the lengths of the model's lists, and a hash of all cards (struct card). */
struct summary {
    int64_t counts[MODEL_LISTS];
    int64_t hash;
};

/* The description of one parameter, buffer or option. Ranks exchange and compare cards as bytes. Cards have a fixed
 * size, so no peer controls how much memory a rank allocates. */
struct card {
    char name[200];
    int64_t index; /* position in the list `list`; NONE if no difference from rank 0 was found */
    int64_t count; /* number of elements, or value of an option; NONE if the list has no entry `index` */
    int64_t shape[DDP_MAX_DIMS];
    int32_t dims, dtype;
    int32_t list; /* 0 for a parameter, 1 for a buffer, OPTIONS for an option */
};

enum { NONE = -1, OPTIONS = MODEL_LISTS };

static const char *const list_names[] = { "parameter", "buffer", "option" };

/* Return the number of entries in a list. The lists of parameters and of buffers may be shorter or longer on other
 * ranks. All ranks have the same number of options. */
static size_t length_of(const struct model *model, int list)
{
    return list == OPTIONS ? (size_t)COMPARED_OPTIONS : model->count[list];
}

/* Describe a parameter. Shorten a name that is too long. */
static void describe_param(struct card *card, const ddp_param *param)
{
    snprintf(card->name, sizeof(card->name), "%s", param->name);
    card->count = (int64_t)param->count;
    card->dtype = (int32_t)param->dtype;
    card->dims = (int32_t)param->dims;
    /* Never write beyond `shape`, even if `dims` was not checked. */
    for (size_t d = 0; d < param->dims && d < DDP_MAX_DIMS; d++)
        card->shape[d] = (int64_t)param->shape[d];
}

/* Fill the card of entry i. The entry may be missing on this rank. Set the padding to zero, because cards are
 * compared and hashed as bytes. */
static void card_of(struct card *card, const struct model *model, int list, size_t i)
{
    memset(card, 0, sizeof(*card));
    card->list = list;
    card->index = (int64_t)i;
    card->count = NONE;
    if (i >= length_of(model, list))
        return;
    if (list == OPTIONS) {
        snprintf(card->name, sizeof(card->name), "%s", reducer_option_name(i));
        card->count = reducer_option_value(model->options, i);
    } else {
        describe_param(card, &model->list[list][i]);
    }
}

static struct summary summarize(const struct model *model)
{
    uint64_t hash = HASH_START;
    struct summary summary = { { 0 }, 0 };
    struct card card;

    for (int list = 0; list <= OPTIONS; list++) {
        for (size_t i = 0; i < length_of(model, list); i++) {
            card_of(&card, model, list, i);
            hash = hash_bytes(hash, &card, sizeof(card));
        }
    }
    for (int list = 0; list < MODEL_LISTS; list++)
        summary.counts[list] = (int64_t)model->count[list];
    summary.hash = (int64_t)hash;
    return summary;
}

/* Return true if two cards are equal. card_of sets all bytes of a card, also the padding. */
static bool same_card(const struct card *a, const struct card *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* Write the type with the shape ("f32 10x30"), or with the number of elements if the card has no shape ("f32 x 300").
 * The card may come from a peer, so limit `dims`. */
static void shape_text(char *text, size_t room, const struct card *card)
{
    int dims = card->dims < 0 || card->dims > DDP_MAX_DIMS ? 0 : card->dims;
    int used = snprintf(text, room, "%s ", ddp_dtype_name((ddp_dtype)card->dtype));
    if (dims == 0)
        snprintf(text + used, room - (size_t)used, "x %" PRId64, card->count);
    for (int d = 0; d < dims && (size_t)used < room; d++)
        used += snprintf(text + used, room - (size_t)used, "%s%" PRId64, d > 0 ? "x" : "", card->shape[d]);
}

enum { TEXT = 400 };

/* Describe the card in `text`, for example as "\"fc1.weight\" (f32 x 100)", and return `text`. */
static const char *card_text(char text[TEXT], const struct card *card)
{
    char shape[180];
    if (card->list == OPTIONS)
        snprintf(text, TEXT, "%" PRId64, card->count);
    else if (card->count == NONE)
        snprintf(text, TEXT, "no such %s", list_names[card->list]);
    else {
        shape_text(shape, sizeof(shape), card);
        snprintf(text, TEXT, "\"%.*s\" (%s)", (int)sizeof(card->name) - 1, card->name, shape);
    }
    return text;
}

/* Compare the first n entries of a list with those of rank 0; collective. A card describes one entry. If *mine has no
 * difference yet (index NONE), set *mine to this rank's card of the first entry that differs. If this rank's list is
 * longer than n, entry n counts as a difference. */
static ddp_status compare_cards(ddp_group *group, const struct model *model, int list, size_t n,
                                struct card *mine)
{
    struct card own, roots;
    for (size_t i = 0; i < n; i++) {
        card_of(&own, model, list, i);
        roots = own;
        ddp_status status = ddp_broadcast(group, &roots, sizeof(roots), DDP_U8, 0, NULL, NULL);
        if (status != DDP_OK)
            return status;
        if (mine->index == NONE && !same_card(&own, &roots))
            *mine = own;
    }
    if (mine->index == NONE && length_of(model, list) > n)
        card_of(mine, model, list, n);
    return DDP_OK;
}

/* Compare all lists with rank 0's lists. All ranks use the lengths of rank 0's lists, because all ranks must call
 * the same broadcasts. */
static ddp_status find_difference(ddp_group *group, const struct model *model, const struct summary *root,
                                  struct card *mine)
{
    ddp_status status = DDP_OK;
    memset(mine, 0, sizeof(*mine));
    mine->index = NONE;
    for (int list = 0; list < MODEL_LISTS && status == DDP_OK; list++)
        status = compare_cards(group, model, list, (size_t)root->counts[list], mine);
    if (status == DDP_OK)
        status = compare_cards(group, model, OPTIONS, COMPARED_OPTIONS, mine);
    return status;
}

/* Report the difference between rank 0 and rank `who`: "parameter 3 differs" or "option find_unused differs". */
static void word_difference(struct ddp_err *err, const struct card *root, const struct card *other, int who)
{
    char other_text[TEXT], roots[TEXT], number[24];
    snprintf(number, sizeof(number), "%" PRId64, other->index);
    ddp_fail(err, DDP_ERR_MISMATCH, "reducer: %s %s differs: rank 0 has %s, rank %d has %s",
             list_names[other->list],
             other->list == OPTIONS ? reducer_option_name((size_t)other->index) : number,
             card_text(roots, root), who, card_text(other_text, other));
}

/* Report the first rank that differs, with the same text on all ranks; collective. `all` has room for a card of each
 * rank. */
static ddp_status name_difference(ddp_group *group, const struct model *model, const struct card *mine,
                                  struct card *all)
{
    int world = ddp_world_size(group->ctx), who = 0;
    struct card root;
    struct ddp_err err;

    ddp_status status = ddp_all_gather(group, mine, all, sizeof(*mine), DDP_U8, NULL, NULL);
    if (status != DDP_OK)
        return status;
    while (who < world - 1 && all[who].index == NONE)
        who++;
    /* Check the list number before it is used as an index, because the number comes from a peer. */
    all[who].list = all[who].list < 0 || all[who].list > OPTIONS ? 0 : all[who].list;
    card_of(&root, model, all[who].list, (size_t)all[who].index);
    status = ddp_broadcast(group, &root, sizeof(root), DDP_U8, 0, NULL, NULL);
    if (status != DDP_OK)
        return status;
    root.list = all[who].list;
    word_difference(&err, &root, &all[who], who);
    return ctx_fail(group->ctx, &err);
}

static ddp_status find_and_name(ddp_group *group, const struct model *model, const struct summary *root)
{
    struct card mine, *all = calloc((size_t)ddp_world_size(group->ctx), sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: out of memory to compare parameters");
        return ctx_fail(group->ctx, &err);
    }
    ddp_status status = find_difference(group, model, root, &mine);
    if (status == DDP_OK)
        status = name_difference(group, model, &mine, all);
    free(all);
    return status;
}

ddp_status reducer_verify(ddp_group *group, const struct model *model)
{
    size_t world = (size_t)ddp_world_size(group->ctx);
    struct summary mine = summarize(model), root = mine, *all = calloc(world, sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: out of memory for %zu ranks", world);
        return ctx_fail(group->ctx, &err);
    }
    ddp_status status =
        ddp_all_gather(group, &mine, all, sizeof(mine) / sizeof(int64_t), DDP_I64, NULL, NULL);
    bool same = true;
    for (size_t r = 1; r < world; r++)
        same = same && memcmp(&all[0], &all[r], sizeof(all[0])) == 0;
    root = all[0];
    free(all);
    if (status != DDP_OK || same)
        return status;
    return find_and_name(group, model, &root);
}

/* --- optimizers of all ranks -------------------------------------------------------------------------- */

/* All ranks must use the same hyperparameters. Otherwise a rank with another learning rate would update its share
 * differently, and no rank would detect the mistake. */

/* Columns: a field, and the condition under which the rule of the optimizer uses the field. */
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

/* Write the hyperparameters to `numbers`. Write 0 for each hyperparameter that the rule does not use. */
static void numbers_of(const ddp_optim *optim, double numbers[FIELDS])
{
    const ddp_rule rule = optim->rule;
#define X(field, counts) numbers[FIELD_##field] = (counts) ? (double)optim->field : 0;
    OPTIM_FIELDS(X)
#undef X
}

/* Compare the hyperparameters of all ranks. `all` has a row for each rank. No value is a NaN, because
 * ddp_optim_check has rejected NaNs on each rank. */
static ddp_status compare_optims(const double *all, size_t world, struct ddp_err *err)
{
    for (size_t k = FIELDS; k < world * FIELDS; k++) {
        const size_t field = k % FIELDS;
        if (all[k] != all[field])
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "optimizer: %s differs: rank 0 has %.17g, rank %zu has %.17g", field_names[field],
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
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: out of memory for %zu ranks", world);
        return ctx_fail(group->ctx, &err);
    }
    numbers_of(optim, mine);
    ddp_status status = ddp_all_gather(group, mine, all, FIELDS, DDP_F64, NULL, NULL);
    if (status == DDP_OK && compare_optims(all, world, &err) != DDP_OK)
        status = ctx_fail(group->ctx, &err);
    free(all);
    return status;
}

/* --- parameters with weight decay --------------------------------------------------------------------- */

/* Compare the decay flags of all ranks. `all` has n flags for each rank. */
static ddp_status compare_decay(const unsigned char *all, size_t world, const ddp_param *params, size_t n,
                                struct ddp_err *err)
{
    for (size_t k = n; k < world * n; k++) {
        if (all[k] != all[k % n])
            return ddp_fail(
                err, DDP_ERR_MISMATCH,
                "optimizer: no_decay of parameter %zu \"%.100s\" differs: rank 0 has %d, rank %zu has %d",
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
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: out of memory for %zu ranks", world);
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

/* reducer_verify.c -- see reducer_verify.h.
 *
 * Normally one all_gather of a count and a hash says that all is well. Only when it does not, rank 0's
 * list is gone through card by card to find who differs where. Cards have a fixed size: no rank allocates
 * by a number that another one sent.
 *
 *     all_gather  (counts, hash)          equal everywhere: done, the usual case
 *     broadcast   card 0, 1, 2 ...        rank 0's parameters, buffers, options; each rank keeps the first that it has
 *                                         otherwise
 *     all_gather  that card               the lowest rank with a difference is the one that is named
 *     broadcast   rank 0's card for it    so that all ranks can say both sides
 *
 * All ranks take the same way, because all of them see the same summaries: a check that only some ranks make would
 * hang the others, which is the very error it is there to find. */
#include "reducer/reducer_verify.h"

#include "core/context.h"
#include "reducer/reducer_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct summary {
    int64_t counts[MODEL_LISTS];
    int64_t hash;
};

struct card {
    char name[200];
    int64_t index; /* in its list; NONE in an answer "I have no difference" */
    int64_t count; /* elements, or an option's value; NONE when the rank has none of this number */
    int64_t shape[DDP_MAX_DIMS];
    int32_t dims, dtype;
    int32_t list; /* which one: OPTIONS are behind the lists of the model */
};

enum { NONE = -1, OPTIONS = MODEL_LISTS };

static const char *const list_names[] = { "parameter", "buffer", "option" };

/* Every rank has the same options by name, so only the lists of the model differ in length. */
static size_t length_of(const struct model *model, int list)
{
    return list == OPTIONS ? (size_t)COMPARED_OPTIONS : model->count[list];
}

/* A long name loses its end, on all ranks alike; dims has its limit in reducer_check_list(), and here for whoever forgets
 * that. */
static void describe(struct card *card, const ddp_param *param)
{
    snprintf(card->name, sizeof(card->name), "%s", param->name);
    card->count = (int64_t)param->count;
    card->dtype = (int32_t)param->dtype;
    card->dims = (int32_t)param->dims;
    for (size_t d = 0; d < param->dims && d < DDP_MAX_DIMS; d++)
        card->shape[d] = (int64_t)param->shape[d];
}

/* Also for an index that this rank does not have. Zeroed with its padding, as it is compared and hashed by bytes. */
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
        describe(card, &model->list[list][i]);
    }
}

/* Not against an attacker, against a mistake: 64 bits are plenty for that. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* Over cards, so that what is compared in the end is what was hashed. */
static struct summary summarise(const struct model *model)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
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

static bool same_card(const struct card *a, const struct card *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* "f32 10x30", "f32 x 300". A peer's numbers are printed, not used: dims is limited. */
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

/* "\"fc1.weight\" (f32 x 100)" */
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

/* Go through rank 0's cards together; my first difference, or index NONE. */
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

/* Lists one after the other, by rank 0's lengths, so that all ranks take part in the same broadcasts. */
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

/* "parameter 3", "option find_unused" */
static void say(struct ddp_err *err, const struct card *root, const struct card *other, int who)
{
    char ours[TEXT], roots[TEXT], number[24];
    snprintf(number, sizeof(number), "%" PRId64, other->index);
    ddp_fail(err, DDP_ERR_MISMATCH, "reducer: %s %s differs: rank 0 has %s, rank %d has %s",
             list_names[other->list],
             other->list == OPTIONS ? reducer_option_name((size_t)other->index) : number,
             card_text(roots, root), who, card_text(ours, other));
}

/* Everybody hears of the first rank that differs, and tells the same story. `all`: a card for each rank. */
static ddp_status tell(ddp_group *group, const struct model *model, const struct card *mine, struct card *all)
{
    int world = ddp_world_size(group->ctx), who = 0;
    struct card root;
    struct ddp_err err;

    ddp_status status = ddp_all_gather(group, mine, all, sizeof(*mine), DDP_U8, NULL, NULL);
    if (status != DDP_OK)
        return status;
    while (who < world - 1 && all[who].index == NONE)
        who++;
    all[who].list = all[who].list < 0 || all[who].list > OPTIONS ? 0 : all[who].list;
    card_of(&root, model, all[who].list, (size_t)all[who].index);
    status = ddp_broadcast(group, &root, sizeof(root), DDP_U8, 0, NULL, NULL);
    if (status != DDP_OK)
        return status;
    root.list = all[who].list;
    say(&err, &root, &all[who], who);
    return ctx_fail(group->ctx, &err);
}

/* Only reached when summaries differ, which they do on all ranks alike: everybody sees the same list of
 * them. */
static ddp_status explain(ddp_group *group, const struct model *model, const struct summary *root)
{
    struct card mine, *all = calloc((size_t)ddp_world_size(group->ctx), sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: no memory to compare parameters");
        return ctx_fail(group->ctx, &err);
    }
    ddp_status status = find_difference(group, model, root, &mine);
    if (status == DDP_OK)
        status = tell(group, model, &mine, all);
    free(all);
    return status;
}

ddp_status reducer_verify(ddp_group *group, const struct model *model)
{
    size_t world = (size_t)ddp_world_size(group->ctx);
    struct summary mine = summarise(model), root = mine, *all = calloc(world, sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: no memory for %zu ranks", world);
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
    return explain(group, model, &root);
}

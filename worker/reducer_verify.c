/* reducer_verify.c -- see reducer_verify.h.
 *
 * Normally one all_gather of a count and a hash says that all is well. Only when it does not, rank 0's
 * list is gone through card by card to find who differs where. Cards have a fixed size: no rank allocates
 * by a number that another one sent.
 *
 *     all_gather  (count, hash)           equal everywhere: done, the usual case
 *     broadcast   card 0, 1, 2 ...        rank 0's list; each rank keeps the first that it has otherwise
 *     all_gather  that card               the lowest rank with a difference is the one that is named
 *     broadcast   rank 0's card for it    so that all ranks can say both sides
 *
 * All ranks take the same way, because all of them see the same summaries: a check that only some ranks make would
 * hang the others, which is the very error it is there to find. */
#include "reducer_verify.h"

#include "ctx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct summary {
    int64_t count;
    int64_t hash;
};

struct card {
    char name[200];
    int64_t index; /* of the parameter; NONE in an answer "I have no difference" */
    int64_t count; /* elements; NONE when the rank has no such parameter */
    int32_t dtype;
};

enum { NONE = -1 };

/* Not against an attacker, against a mistake: 64 bits are plenty for that. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* The final NUL of a name is hashed along, so that "ab","c" and "a","bc" differ. */
static struct summary summarise(const ddp_param *params, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++) {
        hash = hash_bytes(hash, params[i].name, strlen(params[i].name) + 1);
        hash = hash_bytes(hash, &params[i].count, sizeof(params[i].count));
        hash = hash_bytes(hash, &params[i].dtype, sizeof(params[i].dtype));
    }
    return (struct summary){ (int64_t)n, (int64_t)hash };
}

/* Also for an index that this rank does not have. */
static struct card card_of(const ddp_param *params, size_t n, size_t i)
{
    struct card card = { .index = (int64_t)i, .count = NONE };
    if (i < n) {
        snprintf(card.name, sizeof(card.name), "%s", params[i].name);
        card.count = (int64_t)params[i].count;
        card.dtype = (int32_t)params[i].dtype;
    }
    return card;
}

static bool same_card(const struct card *a, const struct card *b)
{
    return strncmp(a->name, b->name, sizeof(a->name)) == 0 && a->count == b->count && a->dtype == b->dtype;
}

/* "\"fc1.weight\" (f32 x 100)" */
static const char *card_text(char text[256], const struct card *card)
{
    if (card->count == NONE)
        return strcpy(text, "no such parameter");
    snprintf(text, 256, "\"%.*s\" (%s x %" PRId64 ")", (int)sizeof(card->name) - 1, card->name,
             ddp_dtype_name((ddp_dtype)card->dtype), card->count);
    return text;
}

/* Go through rank 0's list together; my first difference, or index NONE. */
static ddp_status find_difference(ddp_group *group, const ddp_param *params, size_t n, int64_t root_count,
                                  struct card *mine)
{
    *mine = (struct card){ .index = NONE };
    for (int64_t i = 0; i < root_count; i++) {
        struct card own = card_of(params, n, (size_t)i), roots = own;
        ddp_status status = ddp_broadcast(group, &roots, sizeof(roots), DDP_U8, 0, NULL, NULL);
        if (status != DDP_OK)
            return status;
        if (mine->index == NONE && !same_card(&own, &roots))
            *mine = own;
    }
    if (mine->index == NONE && (int64_t)n > root_count)
        *mine = card_of(params, n, (size_t)root_count);
    return DDP_OK;
}

/* Everybody hears of the first rank that differs, and tells the same story. `all`: a card for each rank. */
static ddp_status tell(ddp_group *group, const ddp_param *params, size_t n, const struct card *mine,
                       struct card *all)
{
    int world = ddp_world_size(group->ctx), who = 0;
    char ours[256], roots[256];
    struct ddp_err err;

    ddp_status status = ddp_all_gather(group, mine, all, sizeof(*mine), DDP_U8, NULL, NULL);
    if (status != DDP_OK)
        return status;
    while (who < world - 1 && all[who].index == NONE)
        who++;
    struct card root = card_of(params, n, (size_t)all[who].index);
    status = ddp_broadcast(group, &root, sizeof(root), DDP_U8, 0, NULL, NULL);
    if (status != DDP_OK)
        return status;
    ddp_fail(&err, DDP_ERR_MISMATCH, "reducer: parameter %" PRId64 " differs: rank 0 has %s, rank %d has %s",
             all[who].index, card_text(roots, &root), who, card_text(ours, &all[who]));
    return ctx_fail(group->ctx, &err);
}

/* Only reached when summaries differ, which they do on all ranks alike: everybody sees the same list of
 * them. */
static ddp_status explain(ddp_group *group, const ddp_param *params, size_t n, int64_t root_count)
{
    struct card mine, *all = calloc((size_t)ddp_world_size(group->ctx), sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: no memory to compare parameters");
        return ctx_fail(group->ctx, &err);
    }
    ddp_status status = find_difference(group, params, n, root_count, &mine);
    if (status == DDP_OK)
        status = tell(group, params, n, &mine, all);
    free(all);
    return status;
}

ddp_status reducer_verify(ddp_group *group, const ddp_param *params, size_t n)
{
    size_t world = (size_t)ddp_world_size(group->ctx);
    struct summary mine = summarise(params, n), *all = calloc(world, sizeof(*all));
    struct ddp_err err;

    if (all == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "reducer: no memory for %zu ranks", world);
        return ctx_fail(group->ctx, &err);
    }
    ddp_status status = ddp_all_gather(group, &mine, all, 2, DDP_I64, NULL, NULL);
    bool same = true;
    for (size_t r = 1; r < world; r++)
        same = same && memcmp(&all[0], &all[r], sizeof(all[0])) == 0;
    int64_t root_count = all[0].count;
    free(all);
    if (status != DDP_OK || same)
        return status;
    return explain(group, params, n, root_count);
}

/* shm_join.c -- see shm_join.h.
 *
 * Rank 0 gathers the cards of all ranks, looks whether they can share memory at all, makes the page and
 * gives its description to the others through the store. When it cannot, it gives them the reason instead,
 * so that everybody fails at once and with the same words, and nobody by time-out. */
#include "cpu/shm_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "shm";

/* The boot id tells kernels apart even where every host is called "localhost"; the pid namespace tells
 * containers apart, between which /proc/<pid> and pidfds would mean other processes. */
static ddp_status check_same_host(const struct bootstrap_card *cards, int world, struct ddp_err *err)
{
    for (int r = 1; r < world; r++) {
        bool same_boot = strcmp(cards[0].boot_id, cards[r].boot_id) == 0;
        if (same_boot && cards[0].pid_namespace == cards[r].pid_namespace)
            continue;
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "rank 0 is on %s and rank %d on %s%s: the cpu backend joins only ranks of one host that see each "
            "other's processes",
            cards[0].host, r, cards[r].host, same_boot ? ", in another container" : "");
    }
    return DDP_OK;
}

/* The pids go in before anybody can see the page: every rank needs them to watch the others from the
 * first barrier on. */
static ddp_status make_page(const struct bootstrap_card *cards, int world, struct segment *out,
                            struct segment_offer *offer, struct ddp_err *err)
{
    ddp_status status = check_same_host(cards, world, err);
    if (status == DDP_OK)
        status = segment_create(out, shm_total_bytes(world), err);
    if (status != DDP_OK)
        return status;
    struct shm_control *control = out->base;
    for (int r = 0; r < world; r++)
        control->ranks[r].pid = cards[r].pid;
    snprintf(control->host, sizeof(control->host), "%s", cards[0].host);
    return segment_describe(out, offer, err);
}

/* Rank 0's part. Whatever fails here, the others are told. */
static ddp_status lead(const struct bootstrap *b, struct bootstrap_card *cards, struct segment *out,
                       struct ddp_err *err)
{
    struct segment_offer offer;
    ddp_status status = bootstrap_meet(b, cards, err);
    if (status == DDP_OK)
        status = make_page(cards, b->world_size, out, &offer, err);
    if (status == DDP_OK)
        return bootstrap_give(b, key, &offer, sizeof(offer), err);
    bootstrap_refuse(b, key, err);
    return status;
}

/* Everybody else's part. The size of the page is computed, not received. A page that cannot be had may have
 * been taken back by a rank 0 that failed meanwhile: then it is its reason that counts. */
static ddp_status follow(const struct bootstrap *b, struct segment *out, struct ddp_err *err)
{
    struct segment_offer offer;
    struct ddp_err refusal;
    ddp_status status = bootstrap_meet(b, NULL, err);
    if (status == DDP_OK)
        status = bootstrap_take(b, key, &offer, sizeof(offer), err);
    if (status != DDP_OK)
        return status;
    status = segment_attach(out, &offer, shm_total_bytes(b->world_size), err);
    if (status == DDP_OK || bootstrap_take(b, key, &offer, sizeof(offer), &refusal) == DDP_OK)
        return status;
    *err = refusal;
    return err->code;
}

ddp_status shm_join(const struct bootstrap *bootstrap, struct segment *out, struct ddp_err *err)
{
    int world = bootstrap->world_size;
    *out = (struct segment){ .fd = -1 };
    if (world > SHM_WORLD_MAX)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "a world of %d ranks: the cpu backend joins at most %d on a host", world,
                        SHM_WORLD_MAX);
    if (bootstrap->rank != 0)
        return follow(bootstrap, out, err);
    struct bootstrap_card *cards = calloc((size_t)world, sizeof(*cards));
    if (cards == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d ranks", world);
    ddp_status status = lead(bootstrap, cards, out, err);
    free(cards);
    if (status != DDP_OK)
        segment_close(out);
    return status;
}

ddp_status shm_joined(const struct bootstrap *bootstrap, struct segment *segment, struct ddp_err *err)
{
    segment_hide(segment);
    return bootstrap_clear(bootstrap, key, err);
}

void shm_take_back(const struct bootstrap *bootstrap, const struct ddp_err *reason)
{
    if (bootstrap->rank == 0)
        bootstrap_refuse(bootstrap, key, reason);
}

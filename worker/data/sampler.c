/* sampler.c -- see ddp/sampler.h.
 *
 * ddp_sampler_resume computes the whole order of an epoch at once, because torch's shuffle is sequential: the k-th
 * index depends on all earlier draws. The order takes 4 bytes per sample. Padding is not stored: position p of the
 * padded list is position p modulo n of the order. */
#include "ddp/sampler.h"

#include "base/not_null.h"
#include "ddp/random.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

enum { KNOWN_FLAGS = DDP_SAMPLER_SHUFFLE | DDP_SAMPLER_DROP_LAST | DDP_SAMPLER_NO_PAD };

struct ddp_sampler {
    uint64_t n, world, rank;
    uint64_t seed;
    unsigned flags;
    uint64_t first; /* position where this epoch began; 0 if the epoch was not resumed */
    uint64_t len;   /* number of this rank's samples from `first` to the end */
    uint64_t next;  /* number of samples that ddp_sampler_next has returned */
    uint32_t order[];
};

/* Return true if `whole` is a multiple of `part`. */
static bool divides(uint64_t part, uint64_t whole)
{
    return whole % part == 0;
}

/* Return the number of this rank's samples. With DDP_SAMPLER_DROP_LAST, round n / world down. If n is not a multiple of
 * world, torch computes ceil((n - world) / world), which is the same number. With DDP_SAMPLER_NO_PAD, the first n %
 * world ranks have one sample more. */
static uint64_t samples_of_rank(const ddp_sampler *s)
{
    const uint64_t n = s->n - s->first;
    if (s->flags & DDP_SAMPLER_NO_PAD)
        return n / s->world + (s->rank < n % s->world);
    if ((s->flags & DDP_SAMPLER_DROP_LAST) || divides(s->world, n))
        return n / s->world;
    return n / s->world + 1;
}

/* Shuffle as torch.randperm(n) does. Step i draws from [i, n). As in torch, each draw is the remainder of a random
 * number, so small indices are slightly more likely. The order must equal torch's order. */
static void shuffle(uint32_t *order, uint64_t n, uint64_t seed)
{
    ddp_random random;
    ddp_random_seed(&random, seed);
    for (uint64_t i = 0; i + 1 < n; i++) {
        uint64_t other = i + ddp_random_next(&random) % (n - i);
        uint32_t held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
}

/* Begin an epoch at sample `done`. Each shuffle starts from the sorted list, because torch shuffles a new list in
 * every epoch. */
void ddp_sampler_resume(ddp_sampler *s, uint64_t epoch, uint64_t done)
{
    for (uint64_t i = 0; i < s->n; i++)
        s->order[i] = (uint32_t)i;
    if (s->flags & DDP_SAMPLER_SHUFFLE)
        shuffle(s->order, s->n, s->seed + epoch);
    s->first = done < s->n ? done : s->n;
    s->len = samples_of_rank(s);
    s->next = 0;
}

void ddp_sampler_set_epoch(ddp_sampler *s, uint64_t epoch)
{
    ddp_sampler_resume(s, epoch, 0);
}

/* Check the arguments. Reject more than INT32_MAX samples, because an index has 32 bits here. */
static ddp_status check_sampler(uint64_t n, int world_size, int rank, unsigned flags, struct ddp_err *err)
{
    if (n < 1 || n > INT32_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "sampler: %" PRIu64 " samples: expected a number from 1 to %d", n,
                        INT32_MAX);
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return ddp_fail(err, DDP_ERR_ARG,
                        "sampler: rank %d, world size %d: expected a rank from 0 to the world size - 1", rank,
                        world_size);
    if (flags & ~(unsigned)KNOWN_FLAGS)
        return ddp_fail(err, DDP_ERR_ARG, "sampler: unknown flags 0x%x", flags & ~(unsigned)KNOWN_FLAGS);
    if ((flags & DDP_SAMPLER_DROP_LAST) && (flags & DDP_SAMPLER_NO_PAD))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "sampler: DDP_SAMPLER_DROP_LAST and DDP_SAMPLER_NO_PAD cannot be combined; set only one of them");
    return DDP_OK;
}

/* Create a sampler. The struct and the order are in one block of memory. The order of epoch 0 is computed here, so that
 * a program that never sets an epoch gets epoch 0, as with torch. */
ddp_status ddp_sampler_create(uint64_t n, int world_size, int rank, uint64_t seed, unsigned flags,
                              ddp_sampler **out, struct ddp_err *err)
{
    NOT_NULL(out, err);
    *out = NULL;
    ddp_status status = check_sampler(n, world_size, rank, flags, err);
    if (status != DDP_OK)
        return status;
    ddp_sampler *s = malloc(sizeof(*s) + n * sizeof(s->order[0]));
    if (s == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "sampler: out of memory for the order of %" PRIu64 " samples", n);
    s->n = n;
    s->world = (uint64_t)world_size;
    s->rank = (uint64_t)rank;
    s->seed = seed;
    s->flags = flags;
    ddp_sampler_set_epoch(s, 0);
    *out = s;
    return DDP_OK;
}

void ddp_sampler_free(ddp_sampler *s)
{
    free(s);
}

uint64_t ddp_sampler_len(const ddp_sampler *s)
{
    return s->len;
}

/* Set *index to the next sample and return 1. At the end return 0. Rank r has the positions s->first + r, s->first +
 * r + world ... of the padded list. Positions n and above are padding. */
int ddp_sampler_next(ddp_sampler *s, uint64_t *index, int *is_pad)
{
    if (s->next == s->len)
        return 0;
    uint64_t position = s->first + s->rank + s->next++ * s->world;
    *index = s->order[position % s->n];
    if (is_pad != NULL)
        *is_pad = position >= s->n;
    return 1;
}

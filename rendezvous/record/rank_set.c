/* rank_set.c -- see rank_set.h.
 *
 *     SET  = PART { "," PART }
 *     PART = RANK | RANK "-" RANK
 *
 * The set has one bit for each rank, so that a look-up is fast: ddprun checks a rank for each line of output. A number
 * is compared with the limit after each digit, so it cannot overflow. */
#include "record/rank_set.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BITS = 64 };

static size_t words_of(int limit)
{
    return ((size_t)limit + WORD_BITS - 1) / WORD_BITS;
}

bool rank_set_init(struct rank_set *set, int limit)
{
    *set = (struct rank_set){ .bits = calloc(words_of(limit), sizeof(uint64_t)), .limit = limit };
    if (set->bits == NULL)
        set->limit = 0;
    return set->bits != NULL;
}

void rank_set_free(struct rank_set *set)
{
    free(set->bits);
    *set = (struct rank_set){ 0 };
}

void rank_set_add(struct rank_set *set, int rank)
{
    if (rank >= 0 && rank < set->limit)
        set->bits[rank / WORD_BITS] |= UINT64_C(1) << rank % WORD_BITS;
}

bool rank_set_has(const struct rank_set *set, int rank)
{
    return rank >= 0 && rank < set->limit && (set->bits[rank / WORD_BITS] >> rank % WORD_BITS & 1) != 0;
}

int rank_set_highest(const struct rank_set *set)
{
    for (size_t word = words_of(set->limit); word-- > 0;)
        if (set->bits[word] != 0)
            return (int)word * WORD_BITS + WORD_BITS - 1 - __builtin_clzll(set->bits[word]);
    return -1;
}

/* --- reading -------------------------------------------------------------------------------------------- */

bool rank_read(const char **at, int limit, int *rank)
{
    if (!isdigit((unsigned char)**at))
        return false;
    *rank = 0;
    while (isdigit((unsigned char)**at)) {
        *rank = *rank * 10 + (*(*at)++ - '0');
        if (*rank >= limit)
            return false;
    }
    return true;
}

/* Parse one PART and the comma after it. After a comma a number must follow, because "0," is usually a list that a
 * script has cut. */
static bool read_part(const char **at, struct rank_set *set)
{
    int first, last;
    if (!rank_read(at, set->limit, &first))
        return false;
    last = first;
    if (**at == '-') {
        (*at)++;
        if (!rank_read(at, set->limit, &last) || last < first)
            return false;
    }
    for (int rank = first; rank <= last; rank++)
        rank_set_add(set, rank);
    if (**at == ',' && (*at)[1] != '\0')
        (*at)++;
    else if (**at != '\0')
        return false;
    return true;
}

/* Parse into a temporary set, so that an error does not change the caller's set. */
ddp_status rank_set_parse(struct rank_set *set, const char *text, int limit, struct ddp_err *err)
{
    struct rank_set read;
    if (!rank_set_init(&read, limit))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    bool ok = *text != '\0';
    while (ok && *text != '\0')
        ok = read_part(&text, &read);
    if (!ok) {
        rank_set_free(&read);
        return ddp_fail(err, DDP_ERR_ARG, "ranks from 0 to %d, such as 0,2-5", limit - 1);
    }
    rank_set_free(set);
    *set = read;
    return DDP_OK;
}

/* --- printing ------------------------------------------------------------------------------------------- */

/* Print consecutive ranks as one range, such as "2-5". */
bool rank_set_print_each(rank_at_fn rank_at, const void *user, int n, size_t max, struct buf *out)
{
    const size_t begin = out->len;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        int first = rank_at(user, i), last = first;
        if (first < 0)
            continue;
        while (i + 1 < n && rank_at(user, i + 1) == last + 1) {
            last++;
            i++;
        }
        const char *comma = out->len > begin ? "," : "";
        if (out->len - begin > max)
            return buf_printf(out, ",...");
        ok = last > first ? buf_printf(out, "%s%d-%d", comma, first, last)
                          : buf_printf(out, "%s%d", comma, first);
    }
    return ok;
}

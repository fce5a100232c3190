/* flight.c -- see flight.h.
 *
 * All ranks make the same calls in the same order, so a number identifies a call. The ranks diverged at the
 * lowest number at which two records differ; all later differences follow from that. If none differ, the
 * other ranks wait for the rank with the lowest last number. */
#include "ctl/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 160 };

/* --- reading -------------------------------------------------------------------------------------------- */

static double number_or(const cJSON *o, const char *name, double missing)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    const bool fits = cJSON_IsNumber(item) && item->valuedouble > -9e18 && item->valuedouble < 9e18;
    return fits ? item->valuedouble : missing;
}

/* Return a count; 0 for anything that is not a count. */
static uint64_t count_of(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 9e18
               ? (uint64_t)item->valuedouble
               : 0;
}

static int small_or(const cJSON *o, const char *name, int missing)
{
    const double n = number_or(o, name, missing);
    return n > -2e9 && n < 2e9 ? (int)n : missing;
}

static void copy_text(char *out, size_t size, const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    snprintf(out, size, "%s", text != NULL ? text : "");
}

static const cJSON *item_of(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

/* "cpu:all_reduce" -> "all_reduce", because all ranks of a job have the same backend. */
static void read_name(struct flight_entry *e, const cJSON *row)
{
    copy_text(e->name, sizeof(e->name), item_of(row, "profiling_name"));
    const char *colon = strchr(e->name, ':');
    if (colon != NULL)
        memmove(e->name, colon + 1, strlen(colon));
}

static struct flight_entry read_entry(const cJSON *row)
{
    const cJSON *sizes = cJSON_GetArrayItem(cJSON_GetArrayItem(item_of(row, "input_sizes"), 0), 0);
    struct flight_entry e = { .seq = count_of(item_of(row, "collective_seq_id")),
                              .n = count_of(sizes),
                              .created_ns = (int64_t)number_or(row, "time_created_ns", 0),
                              .completed_ns = (int64_t)number_or(row, "time_discovered_completed_ns", 0),
                              .root = small_or(row, "root", 0) };
    read_name(&e, row);
    copy_text(e.dtype, sizeof(e.dtype), cJSON_GetArrayItem(item_of(row, "input_dtypes"), 0));
    copy_text(e.op, sizeof(e.op), item_of(row, "reduce_op"));
    copy_text(e.state, sizeof(e.state), item_of(row, "state"));
    return e;
}

static int by_seq(const void *a, const void *b)
{
    const struct flight_entry *x = a, *y = b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static ddp_status read_calls(struct flight_dump *d, const cJSON *entries, struct ddp_err *err)
{
    const cJSON *row;
    const int count = cJSON_GetArraySize(entries);
    if (count > FLIGHT_CALLS_MAX)
        return ddp_fail(err, DDP_ERR_CORRUPT, "%d entries; expected at most %d", count, FLIGHT_CALLS_MAX);
    d->calls = calloc((size_t)count + 1, sizeof(*d->calls));
    if (d->calls == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d calls", count);
    cJSON_ArrayForEach(row, entries)
    {
        if (d->n < (size_t)count)
            d->calls[d->n++] = read_entry(row);
    }
    qsort(d->calls, d->n, sizeof(*d->calls), by_seq);
    return DDP_OK;
}

static ddp_status read_dump(struct flight_dump *d, const cJSON *json, struct ddp_err *err)
{
    const char *format = cJSON_GetStringValue(item_of(json, "format"));
    if (format == NULL || strcmp(format, "ddp-flight") != 0)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "not a flight record of libddp: \"format\" is not \"ddp-flight\"");
    d->rank = small_or(json, "rank", -1);
    d->world_size = small_or(json, "world_size", 0);
    if (d->rank < 0 || d->world_size <= d->rank)
        return ddp_fail(err, DDP_ERR_CORRUPT, "invalid rank: %d of a world of %d", d->rank, d->world_size);
    d->pid = small_or(json, "pid", 0);
    d->attempt = small_or(json, "attempt", 0);
    d->step = (int64_t)number_or(json, "step", -1);
    d->time_ns = (int64_t)number_or(json, "time_ns", 0);
    copy_text(d->host, sizeof(d->host), item_of(json, "host"));
    copy_text(d->job, sizeof(d->job), item_of(json, "job"));
    copy_text(d->why, sizeof(d->why), item_of(json, "why"));
    return read_calls(d, item_of(json, "entries"), err);
}

ddp_status flight_dump_read(struct flight_dump *d, struct slice text, struct ddp_err *err)
{
    *d = (struct flight_dump){ 0 };
    const char *end = text.data;
    cJSON *json = cJSON_ParseWithLengthOpts(text.data, text.len, &end, 0);
    ddp_status status = json != NULL ? read_dump(d, json, err)
                                     : ddp_fail(err, DDP_ERR_CORRUPT,
                                                "offset %zu of %zu: it is not JSON; was the file cut off?",
                                                (size_t)(end - (const char *)text.data), text.len);
    cJSON_Delete(json);
    if (status != DDP_OK)
        flight_dump_free(d);
    return status;
}

void flight_dump_free(struct flight_dump *d)
{
    free(d->calls);
    *d = (struct flight_dump){ 0 };
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static const struct flight_entry *call_at(const struct flight_dump *d, uint64_t seq)
{
    const struct flight_entry key = { .seq = seq };
    return d->n > 0 ? bsearch(&key, d->calls, d->n, sizeof(*d->calls), by_seq) : NULL;
}

static const struct flight_entry *last_call(const struct flight_dump *d)
{
    static const struct flight_entry none = { .name = "no call" };
    return d->n > 0 ? &d->calls[d->n - 1] : &none;
}

static bool same_call(const struct flight_entry *a, const struct flight_entry *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0 && strcmp(a->op, b->op) == 0 &&
           a->n == b->n && a->root == b->root;
}

/* Format "all_reduce #17 (f32 x 1024, sum)". */
static const char *call_words(char out[TEXT_MAX], const struct flight_entry *e)
{
    char root[24] = "";
    if (e->root != 0)
        snprintf(root, sizeof(root), ", root %d", e->root);
    if (e->seq == 0)
        snprintf(out, TEXT_MAX, "%s", e->name);
    else if (e->dtype[0] == '\0')
        snprintf(out, TEXT_MAX, "%s #%llu", e->name, (unsigned long long)e->seq);
    else
        snprintf(out, TEXT_MAX, "%s #%llu (%s x %llu%s%s%s)", e->name, (unsigned long long)e->seq, e->dtype,
                 (unsigned long long)e->n, e->op[0] != '\0' ? ", " : "", e->op, root);
    return out;
}

static bool is_completed(const struct flight_entry *e)
{
    return strcmp(e->state, "completed") == 0;
}

/* --- where the ranks diverge
 * ----------------------------------------------------------------------------- */

/* Return the lowest number at which `d` differs from `first`; 0 = they agree in all calls that both have. */
static uint64_t parts_at(const struct flight_dump *first, const struct flight_dump *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct flight_entry *other = call_at(first, d->calls[i].seq);
        if (other != NULL && !same_call(other, &d->calls[i]))
            return d->calls[i].seq;
    }
    return 0;
}

/* Return the lowest number at which two records differ. The first record may not cover the range of two
 * others that differ, so each is also compared with the one before it. */
static uint64_t parting(const struct flight_dump *dumps, size_t n)
{
    uint64_t lowest = 0;
    for (size_t i = 1; i < n; i++) {
        const uint64_t seqs[] = { parts_at(&dumps[0], &dumps[i]), parts_at(&dumps[i - 1], &dumps[i]) };
        for (size_t k = 0; k < 2; k++)
            if (seqs[k] != 0 && (lowest == 0 || seqs[k] < lowest))
                lowest = seqs[k];
    }
    return lowest;
}

/* True if a record before `i` has the same call at that number. */
static bool is_listed(const struct flight_dump *dumps, size_t i, uint64_t seq)
{
    const struct flight_entry *mine = call_at(&dumps[i], seq);
    for (size_t k = 0; k < i; k++) {
        const struct flight_entry *other = call_at(&dumps[k], seq);
        if (other != NULL && same_call(other, mine))
            return true;
    }
    return false;
}

static cJSON *add_group(cJSON *groups, const struct flight_entry *e)
{
    char text[TEXT_MAX];
    cJSON *group = cJSON_CreateObject();
    cJSON_AddStringToObject(group, "call", call_words(text, e));
    cJSON *ranks = cJSON_AddArrayToObject(group, "ranks");
    if (!cJSON_AddItemToArray(groups, group))
        cJSON_Delete(group);
    return ranks;
}

/* Add each different call with the ranks that made it. */
static void add_parting(cJSON *answer, const struct flight_dump *dumps, size_t n, uint64_t seq)
{
    cJSON *groups = cJSON_AddArrayToObject(answer, "differ");
    for (size_t i = 0; i < n; i++) {
        const struct flight_entry *mine = call_at(&dumps[i], seq);
        if (mine == NULL || is_listed(dumps, i, seq))
            continue;
        cJSON *ranks = add_group(groups, mine);
        for (size_t k = i; k < n; k++) {
            const struct flight_entry *other = call_at(&dumps[k], seq);
            if (other != NULL && same_call(mine, other))
                cJSON_AddItemToArray(ranks, cJSON_CreateNumber(dumps[k].rank));
        }
    }
}

/* --- which ranks are behind
 * ------------------------------------------------------------------------------ */

static const struct flight_dump *furthest(const struct flight_dump *dumps, size_t n)
{
    const struct flight_dump *most = &dumps[0];
    for (size_t i = 1; i < n; i++)
        if (last_call(&dumps[i])->seq > last_call(most)->seq)
            most = &dumps[i];
    return most;
}

/* Add the latest call of any rank once, then the ranks that have reached it and those that have not. */
static void add_behind(cJSON *answer, const struct flight_dump *dumps, size_t n)
{
    char text[TEXT_MAX];
    const struct flight_entry *front = last_call(furthest(dumps, n));
    cJSON_AddStringToObject(answer, "front", call_words(text, front));
    cJSON *there = cJSON_AddArrayToObject(answer, "there"),
          *behind = cJSON_AddArrayToObject(answer, "behind");
    for (size_t i = 0; i < n; i++)
        cJSON_AddItemToArray(last_call(&dumps[i])->seq == front->seq ? there : behind,
                             cJSON_CreateNumber(dumps[i].rank));
}

static void add_rank(cJSON *rows, const struct flight_dump *d)
{
    char text[TEXT_MAX];
    const struct flight_entry *last = last_call(d);
    const int64_t since_ns = is_completed(last) ? last->completed_ns : last->created_ns;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "rank", d->rank);
    cJSON_AddStringToObject(row, "host", d->host);
    cJSON_AddNumberToObject(row, "pid", d->pid);
    if (d->step >= 0)
        cJSON_AddNumberToObject(row, "step", (double)d->step);
    cJSON_AddStringToObject(row, "call", call_words(text, last));
    cJSON_AddStringToObject(row, "state", last->state);
    if (since_ns > 0 && d->time_ns >= since_ns)
        cJSON_AddNumberToObject(row, "since_ms", (double)((d->time_ns - since_ns) / 1000000));
    cJSON_AddStringToObject(row, "why", d->why);
    if (!cJSON_AddItemToArray(rows, row))
        cJSON_Delete(row);
}

/* Add the ranks without a record, because the culprit is often one of them. */
static void add_missing(cJSON *answer, const struct flight_dump *dumps, size_t n)
{
    enum { LISTED = 1024 };
    cJSON *missing = cJSON_AddArrayToObject(answer, "missing");
    size_t at = 0;
    int listed = 0;
    for (int rank = 0; rank < dumps[0].world_size && listed < LISTED; rank++) {
        while (at < n && dumps[at].rank < rank)
            at++;
        if (at < n && dumps[at].rank == rank)
            continue;
        cJSON_AddItemToArray(missing, cJSON_CreateNumber(rank));
        listed++;
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct flight_dump *x = a, *y = b;
    return x->rank - y->rank;
}

cJSON *flight_compare(struct flight_dump *dumps, size_t n)
{
    cJSON *answer = cJSON_CreateObject();
    if (n == 0)
        return answer;
    qsort(dumps, n, sizeof(*dumps), by_rank);
    const uint64_t seq = parting(dumps, n);
    cJSON_AddStringToObject(answer, "job", dumps[0].job);
    cJSON_AddNumberToObject(answer, "attempt", dumps[0].attempt);
    cJSON_AddNumberToObject(answer, "world_size", dumps[0].world_size);
    add_missing(answer, dumps, n);
    if (seq != 0)
        add_parting(answer, dumps, n, seq);
    add_behind(answer, dumps, n);
    cJSON *rows = cJSON_AddArrayToObject(answer, "ranks");
    for (size_t i = 0; i < n; i++)
        add_rank(rows, &dumps[i]);
    return answer;
}

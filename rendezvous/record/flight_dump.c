/* flight_dump.c -- see flight_dump.h. All ranks of a process group make the same calls in the same order, so the group
 * and the number identify a call. If the records of two ranks differ, the first call that differs causes all later
 * differences. If no calls differ, the rank whose last call has the lowest number is behind. */
#include "record/flight_dump.h"

#include "base/text.h"
#include "record/pickle.h"
#include "record/stacks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reading -------------------------------------------------------------------------------------------- */

static double number_or(const cJSON *o, const char *name, double missing)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    const bool fits = cJSON_IsNumber(item) && item->valuedouble > -9e18 && item->valuedouble < 9e18;
    return fits ? item->valuedouble : missing;
}

/* Return the number in `item`, or 0 if `item` is not a positive number. */
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

/* Read the name of a call without its backend: "cpu:all_reduce" -> "all_reduce". The backend is left out, because all
 * ranks of a job have the same backend. */
static void read_name(struct flight_entry *e, const cJSON *row)
{
    copy_text(e->name, sizeof(e->name), item_of(row, "profiling_name"));
    const char *colon = strchr(e->name, ':');
    if (colon != NULL)
        memmove(e->name, colon + 1, strlen(colon));
}

/* Return the number of elements of a tensor, or 0 without a tensor. The shape is a list of lengths. */
static uint64_t read_elements(const cJSON *shape)
{
    const cJSON *length;
    uint64_t n = cJSON_GetArraySize(shape) > 0;
    cJSON_ArrayForEach(length, shape)
    {
        if (__builtin_mul_overflow(n, count_of(length), &n))
            return UINT64_MAX;
    }
    return n;
}

/* Return true if a file belongs to Python or to a package. All other files are the user's code. */
static bool is_library(const char *path)
{
    return strstr(path, "/site-packages/") != NULL || strstr(path, "/dist-packages/") != NULL ||
           strstr(path, "/lib/python") != NULL || path[0] == '<';
}

/* Find the innermost frame of the user's code. */
static void read_place(struct flight_entry *e, const cJSON *row)
{
    /* PyTorch's records begin with the innermost frame */
    const cJSON *frame;
    cJSON_ArrayForEach(frame, item_of(row, "frames"))
    {
        const char *path = cJSON_GetStringValue(item_of(frame, "filename"));
        const char *name = cJSON_GetStringValue(item_of(frame, "name"));
        if (path == NULL || name == NULL || is_library(path))
            continue;
        const char *slash = strrchr(path, '/');
        snprintf(e->place, sizeof(e->place), "%.40s (%.64s:%d)", name, slash != NULL ? slash + 1 : path,
                 small_or(frame, "line", 0));
        return;
    }
}

/* Add a text with its NUL to a hash (64-bit FNV-1a), and return the new hash. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    while (*text++ != '\0');
    return hash;
}

/* Return the hash of the frames that read_frames keeps, or 0 if there is no frame. */
static uint64_t hash_frames(const cJSON *frames)
{
    char line[16];
    uint64_t hash = 14695981039346656037u;
    const cJSON *frame;
    int n = 0;
    cJSON_ArrayForEach(frame, frames)
    {
        const char *path = cJSON_GetStringValue(item_of(frame, "filename"));
        const char *name = cJSON_GetStringValue(item_of(frame, "name"));
        if (n++ == FLIGHT_FRAMES_MAX)
            break;
        snprintf(line, sizeof(line), "%d", small_or(frame, "line", 0));
        hash =
            hash_text(hash_text(hash_text(hash, path != NULL ? path : ""), name != NULL ? name : ""), line);
    }
    return n > 0 ? hash : 0;
}

/* Return the end of a path, short enough for STACK_FILE_MAX. The result does not begin in the middle of a UTF-8
 * character. */
static const char *end_of_path(const char *path)
{
    const size_t len = strlen(path);
    path += len < STACK_FILE_MAX ? 0 : len - STACK_FILE_MAX + 1;
    while (((unsigned char)*path & 0xc0) == 0x80)
        path++;
    return path;
}

/* Copy the known members of each frame, cut long texts, and mark the frames of the user's code. The caller owns the
 * result. */
static cJSON *read_frames(const cJSON *frames)
{
    char function[STACK_NAME_MAX];
    cJSON *rows = cJSON_CreateArray();
    const cJSON *frame;
    int n = 0;
    cJSON_ArrayForEach(frame, frames)
    {
        const char *path = cJSON_GetStringValue(item_of(frame, "filename"));
        cJSON *row = n++ < FLIGHT_FRAMES_MAX ? cJSON_CreateObject() : NULL;
        if (row == NULL)
            break;
        path = path != NULL ? path : "";
        text_copy(function, sizeof(function), cJSON_GetStringValue(item_of(frame, "name")));
        cJSON_AddStringToObject(row, "function", function);
        cJSON_AddStringToObject(row, "file", end_of_path(path));
        cJSON_AddNumberToObject(row, "line", small_or(frame, "line", 0));
        cJSON_AddBoolToObject(row, "user", path[0] != '\0' && !is_library(path));
        json_append(rows, row);
    }
    return rows;
}

/* Return the frames of a call, or NULL if flight_dump_read has kept no frames for it. */
static const cJSON *frames_of(const struct flight_dump *d, const struct flight_entry *e)
{
    for (size_t i = 0; e->stack != 0 && i < d->n_stacks; i++)
        if (d->stacks[i].hash == e->stack)
            return d->stacks[i].frames;
    return NULL;
}

/* Keep the stack of a call, unless the record already has this stack or has no room. */
static void keep_stack(struct flight_dump *d, struct flight_entry *e, const cJSON *frames)
{
    e->stack = hash_frames(frames);
    if (e->stack == 0 || frames_of(d, e) != NULL || d->n_stacks == FLIGHT_STACKS_MAX)
        return;
    d->stacks = d->stacks != NULL ? d->stacks : calloc(FLIGHT_STACKS_MAX, sizeof(*d->stacks));
    if (d->stacks != NULL)
        d->stacks[d->n_stacks++] = (struct flight_stack){ e->stack, read_frames(frames) };
}

/* Read the state. Gloo leaves the state at "scheduled" and sets "retired" for completed calls. */
static void read_state(struct flight_entry *e, const cJSON *row)
{
    copy_text(e->state, sizeof(e->state), item_of(row, "state"));
    if (cJSON_IsTrue(item_of(row, "retired")))
        snprintf(e->state, sizeof(e->state), "completed");
}

/* Read the group, which a record stores as [name, description]. The group of all ranks gets the name "". Recognize this
 * group by its description, because its name differs between versions of PyTorch. The description is "world" in libddp
 * and "default_pg" in PyTorch. Any other group keeps its name. */
static void read_group(struct flight_entry *e, const cJSON *group)
{
    const char *description = cJSON_GetStringValue(cJSON_GetArrayItem(group, 1));
    if (description == NULL || (strcmp(description, "default_pg") != 0 && strcmp(description, "world") != 0))
        copy_text(e->group, sizeof(e->group), cJSON_GetArrayItem(group, 0));
}

/* Read the total number of elements in the outputs of an all_gather. This number is equal on all ranks, even if their
 * inputs differ, because each rank gets all inputs. Skip all other calls. Some of the skipped calls may have different
 * outputs on different ranks. Every other skipped call has outputs as large as its inputs, and has_same_inputs compares
 * the inputs. */
static void read_outputs(struct flight_entry *e, const cJSON *sizes)
{
    const cJSON *shape;
    if (strstr(e->name, "all_gather") == NULL || strstr(e->name, "coalesced") != NULL)
        return;
    cJSON_ArrayForEach(shape, sizes)
    {
        if (__builtin_add_overflow(e->n_out, read_elements(shape), &e->n_out))
            e->n_out = UINT64_MAX;
    }
}

static struct flight_entry read_entry(const cJSON *row)
{
    struct flight_entry e = { .seq = count_of(item_of(row, "collective_seq_id")),
                              .n = read_elements(cJSON_GetArrayItem(item_of(row, "input_sizes"), 0)),
                              .created_ns = (int64_t)number_or(row, "time_created_ns", 0),
                              .completed_ns = (int64_t)number_or(row, "time_discovered_completed_ns", 0),
                              .root = small_or(row, "root", 0) };
    read_group(&e, item_of(row, "process_group"));
    read_name(&e, row);
    read_outputs(&e, item_of(row, "output_sizes"));
    read_place(&e, row);
    read_state(&e, row);
    copy_text(e.dtype, sizeof(e.dtype), cJSON_GetArrayItem(item_of(row, "input_dtypes"), 0));
    copy_text(e.op, sizeof(e.op), item_of(row, "reduce_op"));
    return e;
}

static int by_call(const void *a, const void *b)
{
    const struct flight_entry *x = a, *y = b;
    const int groups = strcmp(x->group, y->group);
    return groups != 0 ? groups : (x->seq > y->seq) - (x->seq < y->seq);
}

static int by_call_and_order(const void *a, const void *b)
{
    const struct flight_entry *x = a, *y = b;
    const int calls = by_call(a, b);
    return calls != 0 ? calls : (x->order > y->order) - (x->order < y->order);
}

static bool is_completed(const struct flight_entry *e)
{
    return strcmp(e->state, "completed") == 0;
}

/* Return true for the entry that PyTorch appends to the parts of a coalesced call. Only this entry shows the progress
 * of the call. */
static bool is_coalesced(const struct flight_entry *e)
{
    return strcmp(e->name, "coalesced") == 0;
}

static void copy_progress(struct flight_entry *to, const struct flight_entry *from)
{
    memcpy(to->state, from->state, sizeof(to->state));
    to->completed_ns = from->completed_ns;
}

/* Sort the calls by group and number. Entries with equal groups and numbers are parts of one coalesced call: keep only
 * the first part. */
void flight_dump_sort(struct flight_dump *d)
{
    size_t kept = 0;
    if (d->n > 0)
        qsort(d->calls, d->n, sizeof(*d->calls), by_call_and_order);
    for (size_t i = 0; i < d->n; i++)
        if (kept == 0 || by_call(&d->calls[kept - 1], &d->calls[i]) != 0)
            d->calls[kept++] = d->calls[i];
        else if (is_coalesced(&d->calls[i]))
            copy_progress(&d->calls[kept - 1], &d->calls[i]);
    d->n = kept;
}

/* --- sends and receives ----------------------------------------------------------------------------------- */

/* Return true if the entry is a send or a receive, or if it is the end of a coalesced call that consists of sends and
 * receives. Also compare the name, because PyTorch before 2.2 does not write "is_p2p". */
static bool is_p2p(const cJSON *row, const struct flight_entry *e)
{
    return cJSON_IsTrue(item_of(row, "is_p2p")) || strncmp(e->name, "send ", 5) == 0 ||
           strncmp(e->name, "recv ", 5) == 0;
}

/* Convert `member`, a rank within a group, to the rank in the job. The record has the ranks of a group as text, such as
 * "[0, 2, 4]". Return -1 if the text is missing or too short. */
static int rank_of_member(const cJSON *groups, const cJSON *row, long member)
{
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(item_of(row, "process_group"), 0));
    const cJSON *group = name != NULL ? item_of(groups, name) : NULL;
    const char *ranks = cJSON_GetStringValue(item_of(group, "ranks"));
    for (; ranks != NULL && (ranks = strpbrk(ranks, "0123456789")) != NULL; member--) {
        const long rank = strtol(ranks, (char **)&ranks, 10);
        if (member == 0)
            return rank < 1 << 20 ? (int)rank : -1;
    }
    return -1;
}

/* Read the peer of "send 0->1" or "recv 0<-1". These numbers are ranks within the group. Rename the call, so that it
 * shows the rank in the job: "send to rank 5". "recv 0<-?" receives from any rank. */
static void read_peer(struct flight_entry *e, const cJSON *groups, const cJSON *row)
{
    const bool is_send = strncmp(e->name, "send", 4) == 0;
    const char *arrow = strstr(e->name, is_send ? "->" : "<-"), *digits = arrow != NULL ? arrow + 2 : "";
    char *end;
    const long member = strtol(digits, &end, 10);
    e->kind = is_send ? FLIGHT_SEND : FLIGHT_RECEIVE;
    e->peer = isdigit((unsigned char)*digits) ? rank_of_member(groups, row, member) : -1;
    if (e->peer >= 0)
        snprintf(e->name, sizeof(e->name), is_send ? "send to rank %d" : "receive from rank %d", e->peer);
}

/* Add a send or a receive. A coalesced call has an entry for each part, and then the entry "coalesced". All these
 * entries have the same number. Only the entry "coalesced" has the progress, so copy the progress to the parts. */
static void add_p2p(struct flight_dump *d, struct flight_entry *e, const cJSON *groups, const cJSON *row)
{
    e->seq = count_of(item_of(row, "p2p_seq_id"));
    if (!is_coalesced(e)) {
        read_peer(e, groups, row);
        d->p2p[d->n_p2p++] = *e;
        return;
    }
    for (size_t i = d->n_p2p; i-- > 0 && by_call(&d->p2p[i], e) == 0;)
        copy_progress(&d->p2p[i], e);
}

/* Drop completed sends and receives, and shrink the array. No rank waits in a completed call. */
static void drop_completed_p2p(struct flight_dump *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n_p2p; i++)
        if (!is_completed(&d->p2p[i]))
            d->p2p[kept++] = d->p2p[i];
    struct flight_entry *smaller = realloc(d->p2p, (kept + 1) * sizeof(*smaller));
    d->p2p = smaller != NULL ? smaller : d->p2p;
    d->n_p2p = kept;
}

/* Read the stacks of all calls, the last call first. If there is not enough room, the stacks of the earliest calls are
 * missing. The latest calls matter more, because they show where a rank hangs. `rows` has a row for each entry. */
static void read_stacks(struct flight_dump *d, const cJSON *const *rows)
{
    for (size_t i = d->n, k = d->n_p2p; i > 0 || k > 0;) {
        const bool is_later = i == 0 || (k > 0 && d->p2p[k - 1].order > d->calls[i - 1].order);
        struct flight_entry *e = is_later ? &d->p2p[--k] : &d->calls[--i];
        keep_stack(d, e, item_of(rows[e->order], "frames"));
    }
}

/* Read the entries. `groups` contains the ranks of each process group; NULL if unknown. */
static ddp_status read_calls(struct flight_dump *d, const cJSON *entries, const cJSON *groups,
                             struct ddp_err *err)
{
    const cJSON *row;
    const int count = cJSON_GetArraySize(entries);
    uint32_t order = 0;
    if (count > FLIGHT_CALLS_MAX)
        return ddp_fail(err, DDP_ERR_CORRUPT, "%d entries: expected at most %d", count, FLIGHT_CALLS_MAX);
    const cJSON **rows = calloc((size_t)count + 1, sizeof(const cJSON *));
    d->calls = calloc((size_t)count + 1, sizeof(*d->calls));
    d->p2p = calloc((size_t)count + 1, sizeof(*d->p2p));
    if (d->calls == NULL || d->p2p == NULL || rows == NULL) {
        free(rows);
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d calls", count);
    }
    cJSON_ArrayForEach(row, entries)
    {
        struct flight_entry e = read_entry(row);
        e.order = order;
        rows[order++] = row;
        if (is_p2p(row, &e))
            add_p2p(d, &e, groups, row);
        else
            d->calls[d->n++] = e;
    }
    drop_completed_p2p(d);
    read_stacks(d, rows);
    free(rows);
    flight_dump_sort(d);
    return DDP_OK;
}

static ddp_status read_libddp(struct flight_dump *d, const cJSON *json, struct ddp_err *err)
{
    d->rank = small_or(json, "rank", -1);
    d->world_size = small_or(json, "world_size", 0);
    if (d->rank < 0 || d->world_size <= d->rank)
        return ddp_fail(err, DDP_ERR_CORRUPT, "invalid rank: %d, with world size %d", d->rank, d->world_size);
    d->pid = small_or(json, "pid", 0);
    d->attempt = small_or(json, "attempt", 0);
    d->step = (int64_t)number_or(json, "step", -1);
    d->time_ns = (int64_t)number_or(json, "time_ns", 0);
    copy_text(d->host, sizeof(d->host), item_of(json, "host"));
    copy_text(d->job, sizeof(d->job), item_of(json, "job"));
    copy_text(d->why, sizeof(d->why), item_of(json, "why"));
    return read_calls(d, item_of(json, "entries"), NULL, err);
}

/* Return the number at the end of a file's name or before one of its extensions: "logs/flight_torch_12.json.1" -> 12.
 * Return -1 if the name has no number there. A number that follows a dot is an extension. */
static int rank_of_file(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
    size_t begin = strlen(name) + 1;
    while (begin > 0) {
        const size_t end = begin - 1; /* index of the NUL or of a dot */
        begin = end;
        while (begin > 0 && isdigit((unsigned char)name[begin - 1]))
            begin--;
        if (begin < end && (begin == 0 || name[begin - 1] != '.'))
            return end - begin < 8 ? atoi(name + begin) : -1;
        while (begin > 0 && name[begin - 1] != '.')
            begin--;
    }
    return -1;
}

/* Return the highest rank of a process group, whose ranks are text such as "[0, 1, 2]". Return -1 if the text names
 * no rank. */
static int highest_rank(const cJSON *group)
{
    const char *ranks = cJSON_GetStringValue(item_of(group, "ranks"));
    int highest = -1;
    while (ranks != NULL && (ranks = strpbrk(ranks, "0123456789")) != NULL) {
        const long rank = strtol(ranks, (char **)&ranks, 10);
        if (rank > highest && rank < 1 << 20)
            highest = (int)rank;
    }
    return highest;
}

/* Read PyTorch's record, which has no host, no process and no world size. Derive a lower limit of the world size: the
 * highest rank in the record or in the name of the file, plus 1. */
static ddp_status read_torch(struct flight_dump *d, const cJSON *json, const char *file, struct ddp_err *err)
{
    const cJSON *group;
    d->rank = small_or(json, "rank", rank_of_file(file));
    d->step = -1;
    if (d->rank < 0)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "the file's name must end with the rank, such as flight_torch_12");
    d->world_size = d->rank + 1;
    cJSON_ArrayForEach(group, item_of(json, "pg_config"))
    {
        const int highest = highest_rank(group);
        if (highest >= d->world_size)
            d->world_size = highest + 1;
    }
    snprintf(d->why, sizeof(d->why), "PyTorch");
    return read_calls(d, item_of(json, "entries"), item_of(json, "pg_config"), err);
}

static ddp_status read_dump(struct flight_dump *d, const cJSON *json, const char *file, struct ddp_err *err)
{
    const char *format = cJSON_GetStringValue(item_of(json, "format"));
    if (format != NULL && strcmp(format, "ddp-flight") == 0)
        return read_libddp(d, json, err);
    /* PyTorch's JSON of a rank without calls does not have the member "entries" */
    if (cJSON_IsString(item_of(json, "version")) &&
        (cJSON_IsArray(item_of(json, "entries")) || cJSON_IsObject(item_of(json, "pg_config"))))
        return read_torch(d, json, file, err);
    return ddp_fail(err, DDP_ERR_CORRUPT,
                    "not a flight record: expected libddp's \"format\":\"ddp-flight\", or PyTorch's "
                    "\"version\" and \"entries\"");
}

static cJSON *parse_text(struct slice text, struct ddp_err *err)
{
    const char *end = text.data;
    if (pickle_is(text))
        return pickle_read(text, err);
    cJSON *json = cJSON_ParseWithLengthOpts(text.data, text.len, &end, 0);
    if (json == NULL && text.len > 0 && *(const char *)text.data != '{')
        ddp_fail(err, DDP_ERR_CORRUPT, "not a flight record: neither JSON nor a pickle");
    else if (json == NULL)
        ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu of %zu: invalid JSON: the file may be truncated",
                 (size_t)(end - (const char *)text.data), text.len);
    return json;
}

ddp_status flight_dump_read(struct flight_dump *d, const char *file, struct slice text, struct ddp_err *err)
{
    *d = (struct flight_dump){ 0 };
    cJSON *json = parse_text(text, err);
    ddp_status status = json != NULL ? read_dump(d, json, file, err) : DDP_ERR_CORRUPT;
    cJSON_Delete(json);
    if (status != DDP_OK)
        flight_dump_free(d);
    return status;
}

void flight_dump_free(struct flight_dump *d)
{
    for (size_t i = 0; i < d->n_stacks; i++)
        cJSON_Delete(d->stacks[i].frames);
    free(d->stacks);
    free(d->calls);
    free(d->p2p);
    *d = (struct flight_dump){ 0 };
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Return the call of `d` with the group and number of `call`, or NULL. */
static const struct flight_entry *call_at(const struct flight_dump *d, const struct flight_entry *call)
{
    return d->n > 0 ? bsearch(call, d->calls, d->n, sizeof(*d->calls), by_call) : NULL;
}

/* Return true if call `i` is the last call of its group in this record. */
static bool ends_group(const struct flight_dump *d, size_t i)
{
    return i + 1 == d->n || strcmp(d->calls[i].group, d->calls[i + 1].group) != 0;
}

static const struct flight_entry no_call = { .name = "no call" };

/* Return the last call of a rank in a group, or NULL if the rank made no call in this group. */
static const struct flight_entry *last_in_group(const struct flight_dump *d, const char *group)
{
    size_t low = 0, high = d->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(d->calls[middle].group, group) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && strcmp(d->calls[low - 1].group, group) == 0 ? &d->calls[low - 1] : NULL;
}

/* Return the latest call of a rank: the last call in any group, or the last open send or receive. */
static const struct flight_entry *last_call(const struct flight_dump *d)
{
    const struct flight_entry *last = &no_call;
    for (size_t i = 0; i < d->n; i++)
        if (ends_group(d, i) && (last == &no_call || d->calls[i].order > last->order))
            last = &d->calls[i];
    if (d->n_p2p > 0 && (last == &no_call || d->p2p[d->n_p2p - 1].order > last->order))
        last = &d->p2p[d->n_p2p - 1];
    return last;
}

/* Return true if a collective requires inputs of equal sizes on all ranks. */
static bool has_equal_sizes(const struct flight_entry *e)
{
    return strstr(e->name, "all_to_all") == NULL && strstr(e->name, "gather") == NULL &&
           strstr(e->name, "scatter") == NULL;
}

/* Return true if two calls are equal apart from their outputs. In PyTorch, some collectives allow inputs of different
 * sizes (has_equal_sizes). */
static bool has_same_inputs(const struct flight_entry *a, const struct flight_entry *b)
{
    /* Only PyTorch's calls have a `place`. A call without a `place` is from libddp, which requires equal sizes for all
     * calls. */
    return strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0 && strcmp(a->op, b->op) == 0 &&
           a->root == b->root && (a->n == b->n || (a->place[0] != '\0' && !has_equal_sizes(a)));
}

static bool same_call(const struct flight_entry *a, const struct flight_entry *b)
{
    return has_same_inputs(a, b) && a->n_out == b->n_out;
}

/* Return true if two calls differ in a fact that must be equal on all ranks. Ignore the sizes of the outputs if the
 * size is unknown for one of the two calls. */
static bool is_other_call(const struct flight_entry *a, const struct flight_entry *b)
{
    return !has_same_inputs(a, b) || (a->n_out != b->n_out && a->n_out != 0 && b->n_out != 0);
}

/* Return true if call `a` is earlier than call `b`. Calls of one group are ordered by number. Calls of different
 * groups are ordered by time. */
static bool is_earlier(const struct flight_entry *a, const struct flight_entry *b)
{
    return strcmp(a->group, b->group) == 0 ? a->seq < b->seq : a->created_ns < b->created_ns;
}

const char *flight_call_words(char out[FLIGHT_CALL_WORDS], const struct flight_entry *e)
{
    char root[24] = "", outputs[40] = "", group[FLIGHT_GROUP_MAX + 12] = "";
    if (e->root != 0)
        snprintf(root, sizeof(root), ", root %d", e->root);
    if (e->n_out != 0)
        snprintf(outputs, sizeof(outputs), ", output x %llu", (unsigned long long)e->n_out);
    if (e->group[0] != '\0')
        snprintf(group, sizeof(group), " of group %s", e->group);
    if (e->seq == 0)
        snprintf(out, FLIGHT_CALL_WORDS, "%s", e->name);
    else if (e->dtype[0] == '\0')
        snprintf(out, FLIGHT_CALL_WORDS, "%s #%llu%s", e->name, (unsigned long long)e->seq, group);
    else
        snprintf(out, FLIGHT_CALL_WORDS, "%s #%llu%s (%s x %llu%s%s%s%s)", e->name,
                 (unsigned long long)e->seq, group, e->dtype, (unsigned long long)e->n, outputs,
                 e->op[0] != '\0' ? ", " : "", e->op, root);
    return out;
}

/* --- open calls ------------------------------------------------------------------------------------------- */

static int by_age(const void *a, const void *b)
{
    const struct flight_entry *const *x = a, *const *y = b;
    return ((*x)->order < (*y)->order) - ((*x)->order > (*y)->order);
}

/* Return the first call of the group of `last` that is not completed, or `last` if all earlier calls are completed. */
static const struct flight_entry *first_open(const struct flight_dump *d, const struct flight_entry *last)
{
    const struct flight_entry *open = last;
    for (size_t i = (size_t)(last - d->calls) + 1; i-- > 0 && strcmp(d->calls[i].group, last->group) == 0;)
        if (!is_completed(&d->calls[i]))
            open = &d->calls[i];
    return open;
}

/* Choose the groups whose last calls are the latest. Choose at most FLIGHT_OPEN_MAX / 2 groups, because each group may
 * add two calls to `calls`. If the group of all ranks has calls, always choose this group, too. If necessary, this
 * group replaces the chosen group whose last call is the oldest. */
size_t flight_open_calls(const struct flight_dump *d, const struct flight_entry *calls[FLIGHT_OPEN_MAX])
{
    const struct flight_entry **lasts = calloc(d->n + 1, sizeof(*lasts));
    size_t n_lasts = 0, n = 0;
    for (size_t i = 0; lasts != NULL && i < d->n; i++)
        if (ends_group(d, i))
            lasts[n_lasts++] = &d->calls[i];
    if (n_lasts > 0)
        qsort(lasts, n_lasts, sizeof(*lasts), by_age);
    const size_t kept = n_lasts < FLIGHT_OPEN_MAX / 2 ? n_lasts : FLIGHT_OPEN_MAX / 2;
    for (size_t i = kept; i < n_lasts; i++)
        if (lasts[i]->group[0] == '\0')
            lasts[kept - 1] = lasts[i];
    for (size_t i = kept; i-- > 0;) {
        const struct flight_entry *open = first_open(d, lasts[i]);
        if (open != lasts[i])
            calls[n++] = open;
        calls[n++] = lasts[i];
    }
    free(lasts);
    return n;
}

static bool is_in_state(const struct flight_dump *d, const struct flight_entry *call, const char *state)
{
    const struct flight_entry *mine = call_at(d, call);
    return mine != NULL && strcmp(mine->state, state) == 0;
}

bool flight_is_scheduled(const struct flight_dump *d, const struct flight_entry *call)
{
    return is_in_state(d, call, "scheduled");
}

/* Find a call that only some GPUs have started. For each rank, check only the first call that is not completed, because
 * a GPU executes the calls of a group in order. */
const struct flight_entry *flight_half_started(const struct flight_dump *dumps, size_t n)
{
    const struct flight_entry *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct flight_entry *last = last_in_group(&dumps[i], "");
        const struct flight_entry *open = last != NULL ? first_open(&dumps[i], last) : NULL;
        if (open != NULL && strcmp(open->state, "started") == 0 && (found == NULL || open->seq < found->seq))
            found = open;
    }
    for (size_t i = 0; found != NULL && i < n; i++)
        if (flight_is_scheduled(&dumps[i], found))
            return found;
    return NULL;
}

/* --- divergence of the ranks ---------------------------------------------------------------------------- */

/* Return the earliest call of `d` that differs from the call of `first` with the same number, or NULL. */
static const struct flight_entry *first_difference(const struct flight_dump *first,
                                                   const struct flight_dump *d)
{
    const struct flight_entry *earliest = NULL;
    for (size_t i = 0; i < d->n; i++) {
        const struct flight_entry *other = call_at(first, &d->calls[i]);
        if (other != NULL && is_other_call(other, &d->calls[i]) &&
            (earliest == NULL || is_earlier(&d->calls[i], earliest)))
            earliest = &d->calls[i];
    }
    return earliest;
}

/* Return the earliest call in which two records differ. Compare each record with the first record and with the previous
 * record. The first record alone may lack the calls in which two other records differ. */
static const struct flight_entry *parting(const struct flight_dump *dumps, size_t n)
{
    const struct flight_entry *earliest = NULL;
    for (size_t i = 1; i < n; i++) {
        const struct flight_entry *calls[] = { first_difference(&dumps[0], &dumps[i]),
                                               first_difference(&dumps[i - 1], &dumps[i]) };
        for (size_t k = 0; k < 2; k++)
            if (calls[k] != NULL && (earliest == NULL || is_earlier(calls[k], earliest)))
                earliest = calls[k];
    }
    return earliest;
}

/* Return true if a record with an index below `i` has the same call as `mine`. The call is then already listed. */
static bool is_listed(const struct flight_dump *dumps, size_t i, const struct flight_entry *mine)
{
    for (size_t k = 0; k < i; k++) {
        const struct flight_entry *other = call_at(&dumps[k], mine);
        if (other != NULL && same_call(other, mine))
            return true;
    }
    return false;
}

static cJSON *add_group(cJSON *groups, const struct flight_entry *e)
{
    char text[FLIGHT_CALL_WORDS];
    cJSON *group = cJSON_CreateObject();
    cJSON_AddStringToObject(group, "call", flight_call_words(text, e));
    if (e->place[0] != '\0')
        cJSON_AddStringToObject(group, "at", e->place);
    cJSON *ranks = cJSON_AddArrayToObject(group, "ranks");
    if (!cJSON_AddItemToArray(groups, group))
        cJSON_Delete(group);
    return ranks;
}

/* Find each rank's call that has the same group and number as `call`. If several ranks made equal calls, add the call
 * only once, with these ranks. */
static void add_parting(cJSON *answer, const struct flight_dump *dumps, size_t n,
                        const struct flight_entry *call)
{
    cJSON *groups = cJSON_AddArrayToObject(answer, "differ");
    for (size_t i = 0; i < n; i++) {
        const struct flight_entry *mine = call_at(&dumps[i], call);
        if (mine == NULL || is_listed(dumps, i, mine))
            continue;
        cJSON *ranks = add_group(groups, mine);
        for (size_t k = i; k < n; k++) {
            const struct flight_entry *other = call_at(&dumps[k], mine);
            if (other != NULL && same_call(mine, other))
                cJSON_AddItemToArray(ranks, cJSON_CreateNumber(dumps[k].rank));
        }
    }
}

/* --- ranks that are behind ------------------------------------------------------------------------------ */

/* Return the last call that any rank has made in a group, or no_call. */
static const struct flight_entry *front_of(const struct flight_dump *dumps, size_t n, const char *group)
{
    const struct flight_entry *front = &no_call;
    for (size_t i = 0; i < n; i++) {
        const struct flight_entry *last = last_in_group(&dumps[i], group);
        if (last != NULL && last->seq > front->seq)
            front = last;
    }
    return front;
}

/* Return true if a rank has calls in the group, but its last call in this group is earlier than `front`. A rank without
 * calls in the group does not count as behind, because the rank is not a member, or its record has lost these calls. */
static bool is_behind(const struct flight_dump *d, const struct flight_entry *front)
{
    const struct flight_entry *last = last_in_group(d, front->group);
    return last != NULL && last->seq < front->seq;
}

/* Return true if some rank has not completed the call. If all ranks have completed a call, no rank waits in it. */
static bool waits_in(const struct flight_dump *dumps, size_t n, const struct flight_entry *call)
{
    for (size_t i = 0; i < n; i++) {
        const struct flight_entry *mine = call_at(&dumps[i], call);
        if (mine != NULL && !is_completed(mine))
            return true;
    }
    return false;
}

static bool has_rank_behind(const struct flight_dump *dumps, size_t n, const struct flight_entry *front)
{
    for (size_t i = 0; i < n; i++)
        if (is_behind(&dumps[i], front))
            return true;
    return false;
}

/* Return the call in which ranks most likely wait. This is the last call of a group, if some rank has not completed
 * this call and another rank has not reached this call. If several groups have such a call, return the oldest. If no
 * group has such a call, return the last call of the default group. */
static const struct flight_entry *furthest(const struct flight_dump *dumps, size_t n)
{
    const struct flight_entry *front = NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dumps[i].n; k++) {
            const struct flight_entry *call = &dumps[i].calls[k];
            if (ends_group(&dumps[i], k) && (front == NULL || call->created_ns < front->created_ns) &&
                front_of(dumps, n, call->group)->seq == call->seq && has_rank_behind(dumps, n, call) &&
                waits_in(dumps, n, call))
                front = call;
        }
    return front != NULL ? front : front_of(dumps, n, "");
}

/* Add the call in which ranks wait, the ranks that have reached this call, and the ranks that are behind. The other
 * ranks wait for the ranks that are behind, unless the records already differ in an earlier call. */
static void add_behind(cJSON *answer, const struct flight_dump *dumps, size_t n)
{
    char text[FLIGHT_CALL_WORDS];
    const struct flight_entry *front = furthest(dumps, n);
    cJSON_AddStringToObject(answer, "front", flight_call_words(text, front));
    cJSON_AddBoolToObject(answer, "waits", waits_in(dumps, n, front));
    cJSON *there = cJSON_AddArrayToObject(answer, "there"),
          *behind = cJSON_AddArrayToObject(answer, "behind");
    for (size_t i = 0; i < n; i++)
        if (is_behind(&dumps[i], front))
            cJSON_AddItemToArray(behind, cJSON_CreateNumber(dumps[i].rank));
        else if (front == &no_call || last_in_group(&dumps[i], front->group) != NULL)
            cJSON_AddItemToArray(there, cJSON_CreateNumber(dumps[i].rank));
}

/* --- waits for a peer --------------------------------------------------------------------------------------- */

/* A send and its receive have no common number. So a send matches a receive if each of the two calls names the rank of
 * the other call as its peer. */

static const struct flight_dump *record_of(const struct flight_dump *dumps, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        if (dumps[i].rank == rank)
            return &dumps[i];
    return NULL;
}

/* Return true if `peer` has an open send or receive that matches the call `e`, which `rank` has made. A receive that
 * accepts a message of any rank matches every send. */
static bool has_match(const struct flight_dump *peer, const struct flight_entry *e, int rank)
{
    for (size_t i = 0; peer != NULL && i < peer->n_p2p; i++) {
        const struct flight_entry *other = &peer->p2p[i];
        if (other->kind != e->kind && (other->peer == rank || other->peer < 0) &&
            strcmp(other->group, e->group) == 0)
            return true;
    }
    return false;
}

/* Add one call of each rank: its first open send or receive without a matching open call of the peer. Also add the last
 * call of this peer. */
static void add_peers(cJSON *answer, const struct flight_dump *dumps, size_t n)
{
    char text[FLIGHT_CALL_WORDS];
    cJSON *rows = cJSON_AddArrayToObject(answer, "peers");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dumps[i].n_p2p; k++) {
            const struct flight_entry *e = &dumps[i].p2p[k];
            const struct flight_dump *peer = record_of(dumps, n, e->peer);
            if (e->peer < 0 || has_match(peer, e, dumps[i].rank))
                continue;
            cJSON_AddItemToArray(add_group(rows, e), cJSON_CreateNumber(dumps[i].rank));
            cJSON *row = cJSON_GetArrayItem(rows, cJSON_GetArraySize(rows) - 1);
            cJSON_AddNumberToObject(row, "peer", e->peer);
            if (peer != NULL)
                cJSON_AddStringToObject(row, "peer_call", flight_call_words(text, last_call(peer)));
            break;
        }
}

/* --- sides ------------------------------------------------------------------------------------------------ */

/* Add a copy of the frames of a call to `o`. The frames are copied, because the answer is still used after the records
 * are freed. */
static void add_stack(cJSON *o, const struct flight_dump *d, const struct flight_entry *e)
{
    const cJSON *frames = frames_of(d, e);
    cJSON *copy = frames != NULL ? cJSON_Duplicate(frames, true) : NULL;
    if (copy != NULL && !cJSON_AddItemToObject(o, "stack", copy))
        cJSON_Delete(copy);
}

/* Sides of a comparison. A side consists of the ranks that made the same call with the same stack. */
struct sides {
    const struct flight_entry *calls[FLIGHT_SIDES_MAX];
    cJSON *ranks[FLIGHT_SIDES_MAX]; /* arrays in the JSON answer, which owns them */
    size_t n;
};

/* Add a rank to its side. Create the side if it is new. Skip a rank if its call has no frames. */
static void add_to_side(cJSON *rows, struct sides *sides, const struct flight_dump *d,
                        const struct flight_entry *e)
{
    size_t i = 0;
    if (e == NULL || frames_of(d, e) == NULL)
        return;
    while (i < sides->n && (sides->calls[i]->stack != e->stack || by_call(sides->calls[i], e) != 0 ||
                            !same_call(sides->calls[i], e)))
        i++;
    if (i == FLIGHT_SIDES_MAX)
        return;
    if (i == sides->n) {
        sides->calls[sides->n++] = e;
        sides->ranks[i] = add_group(rows, e);
        add_stack(cJSON_GetArrayItem(rows, (int)i), d, e);
    }
    json_append(sides->ranks[i], cJSON_CreateNumber(d->rank));
}

/* Group the ranks into sides by call and stack (struct sides), and add the list "sides" to `answer`. If `differ` is not
 * NULL, use each rank's call with the same group and number as `differ`. If `differ` is NULL, use each rank's last
 * call, and begin the list "sides" with the sides of the ranks that are behind. */
static void add_sides(cJSON *answer, const struct flight_dump *dumps, size_t n,
                      const struct flight_entry *differ)
{
    struct sides sides = { .n = 0 };
    size_t stacks = 0;
    for (size_t i = 0; i < n; i++)
        stacks += dumps[i].n_stacks;
    if (stacks == 0)
        return;
    cJSON *rows = cJSON_CreateArray();
    const struct flight_entry *front = furthest(dumps, n);
    for (size_t i = 0; rows != NULL && differ != NULL && i < n; i++)
        add_to_side(rows, &sides, &dumps[i], call_at(&dumps[i], differ));
    for (size_t i = 0; rows != NULL && differ == NULL && i < 2 * n; i++)
        if (is_behind(&dumps[i % n], front) == (i < n))
            add_to_side(rows, &sides, &dumps[i % n], last_call(&dumps[i % n]));
    if (sides.n == 0 || !cJSON_AddItemToObject(answer, "sides", rows))
        cJSON_Delete(rows);
}

static void add_rank(cJSON *rows, const struct flight_dump *d)
{
    char text[FLIGHT_CALL_WORDS];
    const struct flight_entry *last = last_call(d);
    const int64_t since_ns = is_completed(last) ? last->completed_ns : last->created_ns;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "rank", d->rank);
    if (d->host[0] != '\0')
        cJSON_AddStringToObject(row, "host", d->host);
    if (d->pid > 0)
        cJSON_AddNumberToObject(row, "pid", d->pid);
    if (d->step >= 0)
        cJSON_AddNumberToObject(row, "step", (double)d->step);
    cJSON_AddStringToObject(row, "call", flight_call_words(text, last));
    cJSON_AddStringToObject(row, "state", last->state);
    if (since_ns > 0 && d->time_ns >= since_ns)
        cJSON_AddNumberToObject(row, "since_ms", (double)((d->time_ns - since_ns) / 1000000));
    cJSON_AddStringToObject(row, "why", d->why);
    if (last->place[0] != '\0')
        cJSON_AddStringToObject(row, "at", last->place);
    add_stack(row, d, last);
    if (!cJSON_AddItemToArray(rows, row))
        cJSON_Delete(row);
}

/* Add the ranks without a record, because a rank without a record often causes the hang. */
static void add_missing(cJSON *answer, const struct flight_dump *dumps, size_t n)
{
    enum { LISTED = 1 << 20 }; /* the limit of --rank; needed because a file may contain any world size */
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
    for (size_t i = 1; i < n; i++)
        if (dumps[0].world_size < dumps[i].world_size)
            dumps[0].world_size = dumps[i].world_size;
    const struct flight_entry *differ = parting(dumps, n);
    if (dumps[0].job[0] != '\0') {
        cJSON_AddStringToObject(answer, "job", dumps[0].job);
        cJSON_AddNumberToObject(answer, "attempt", dumps[0].attempt);
    }
    cJSON_AddNumberToObject(answer, "world_size", dumps[0].world_size);
    add_missing(answer, dumps, n);
    if (differ != NULL)
        add_parting(answer, dumps, n, differ);
    add_behind(answer, dumps, n);
    add_peers(answer, dumps, n);
    add_sides(answer, dumps, n, differ);
    cJSON *rows = cJSON_AddArrayToObject(answer, "ranks");
    for (size_t i = 0; i < n; i++)
        add_rank(rows, &dumps[i]);
    return answer;
}

/* tables.c -- see tables.h. Each cell is formatted twice: to measure its column, and to print it. This is simpler than
 * storing cells. */
#include "ctl/tables.h"

#include "record/stacks.h"
#include "base/text.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 16, RANKS_BYTES = 60, GAP = 2 };

/* --- cells ---------------------------------------------------------------------------------------------- */

/* Append the text of a field, or nothing if it is missing or of another type. Return false if memory is short. */
typedef bool (*ctl_cell)(const cJSON *row, const char *field, struct buf *out);

struct ctl_column {
    const char *title; /* NULL ends the list */
    const char *field;
    ctl_cell cell;
    bool right; /* aligned to the right, for numbers */
};

static bool ctl_cell_text(const cJSON *row, const char *field, struct buf *out)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, field));
    const size_t start = out->len;
    if (text == NULL || text[0] == '\0')
        return true;
    if (!buf_append(out, text, strlen(text)))
        return false;
    text_disarm(out->data + start, out->len - start, '\0');
    return true;
}

/* Append a number. JSON numbers are doubles, which are exact for whole numbers up to 2^53, and no number here is
 * larger. */
static bool ctl_cell_number(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(row, field);
    return !cJSON_IsNumber(number) || buf_printf(out, "%.0f", number->valuedouble);
}

static bool ctl_cell_duration(const cJSON *row, const char *field, struct buf *out)
{
    /* 30,000 years in ms; a larger value is invalid, and may be too large for uint64_t */
    const double most = 1e15;
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(row, field);
    if (!cJSON_IsNumber(ms) || !(ms->valuedouble >= 0 && ms->valuedouble < most))
        return true;
    return text_append_ms(out, (uint64_t)ms->valuedouble);
}

/* Append names in quotes, because a key may contain blanks and commas. */
static bool ctl_cell_names(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(row, field);
    const char *comma = "";
    bool ok = true;
    cJSON_ArrayForEach(item, list)
    {
        if (ok && cJSON_IsString(item))
            ok = buf_printf(out, "%s'%s'", comma, item->valuestring);
        comma = ", ";
    }
    return ok;
}

/* Return the rank in `item`, or -1 if `item` contains no valid rank. Check the number, because a store may send any
 * number. */
static int rank_of(const cJSON *item)
{
    const cJSON *number = cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "rank") : item;
    return cJSON_IsNumber(number) && number->valueint >= 0 && number->valueint < INT_MAX ? number->valueint
                                                                                         : -1;
}

/* Append ranks. Consecutive ranks become "first-last", because a job may have thousands of ranks. */
static bool ctl_cell_ranks(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(row, field);
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    const size_t start = out->len;
    bool ok = true;
    while (ok && item != NULL) {
        const int first = rank_of(item);
        int last = first;
        while ((item = item->next) != NULL && rank_of(item) == last + 1)
            last++;
        if (out->len - start > RANKS_BYTES)
            return buf_printf(out, ",...");
        ok = buf_printf(out, "%s%d", out->len > start ? "," : "", first) &&
             (last == first || buf_printf(out, "-%d", last));
    }
    return ok;
}

/* --- the order of the rows ------------------------------------------------------------------------------ */

/* A row and its sort key. A store sends keys and waiters in any order. */
struct sorted_row {
    const cJSON *row;
    const cJSON *by;
    int place; /* position in the store's list; rows with equal sort keys keep this order */
};

static int compare_rows(const void *a, const void *b)
{
    const struct sorted_row *x = a, *y = b;
    int order = cJSON_IsNumber(y->by) - cJSON_IsNumber(x->by); /* numbers first, then texts, then rows without
                                                                * a value */
    if (order == 0 && cJSON_IsNumber(x->by))
        order = (x->by->valuedouble > y->by->valuedouble) - (x->by->valuedouble < y->by->valuedouble);
    else if (order == 0 && cJSON_IsString(x->by) && cJSON_IsString(y->by))
        order = strcmp(x->by->valuestring, y->by->valuestring);
    return order != 0 ? order : x->place - y->place;
}

/* Return a malloc'ed array of the rows, sorted by `field`, and set *n to their number. Return NULL if memory is
 * short. */
static struct sorted_row *sort_rows(const cJSON *rows, const char *field, int *n)
{
    const int all = cJSON_GetArraySize(rows);
    struct sorted_row *sorted = malloc((size_t)(all > 0 ? all : 1) * sizeof(*sorted));
    const cJSON *row;
    *n = 0;
    if (sorted == NULL)
        return NULL;
    cJSON_ArrayForEach(row, rows)
    {
        sorted[*n] = (struct sorted_row){ row, cJSON_GetObjectItemCaseSensitive(row, field), *n };
        ++*n;
    }
    qsort(sorted, (size_t)*n, sizeof(*sorted), compare_rows);
    return sorted;
}

/* --- the table ------------------------------------------------------------------------------------------ */

/* Format a cell into the empty buffer `cell`. An empty cell becomes a dash, so that awk can split the line. */
static bool make_cell(const struct ctl_column *column, const cJSON *row, struct buf *cell)
{
    cell->len = 0;
    return column->cell(row, column->field, cell) && (cell->len > 0 || buf_append(cell, "-", 1));
}

/* Measure each column: its width is the width of its title or of its widest cell, whichever is larger. */
static bool measure(const struct ctl_column *columns, const struct sorted_row *rows, int n, struct buf *cell,
                    size_t width[COLUMNS_MAX])
{
    for (size_t i = 0; i < COLUMNS_MAX && columns[i].title != NULL; i++)
        width[i] = strlen(columns[i].title);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < COLUMNS_MAX && columns[i].title != NULL; i++) {
            if (!make_cell(&columns[i], rows[r].row, cell))
                return false;
            if (cell->len > width[i])
                width[i] = cell->len;
        }
    }
    return true;
}

/* Append a cell. Do not pad the last column, so that lines have no trailing blanks. */
static bool append_cell(const struct ctl_column *column, struct slice text, size_t width, struct buf *out)
{
    const bool last = column[1].title == NULL;
    const int fill = (int)(width - text.len), gap = last ? 0 : GAP;
    return buf_printf(out, "%*s", column->right ? fill : 0, "") && buf_append(out, text.data, text.len) &&
           buf_printf(out, "%*s%s", column->right || last ? gap : fill + gap, "", last ? "\n" : "");
}

static bool print(const struct ctl_column *columns, const struct sorted_row *rows, int n, struct buf *cell,
                  const size_t *width, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < COLUMNS_MAX && columns[i].title != NULL; i++)
        ok = append_cell(&columns[i], slice_str(columns[i].title), width[i], out);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; ok && i < COLUMNS_MAX && columns[i].title != NULL; i++)
            ok = make_cell(&columns[i], rows[r].row, cell) &&
                 append_cell(&columns[i], buf_slice(cell), width[i], out);
    }
    return ok;
}

/* Append a line of titles, then a line for each object in the array `rows`, sorted by the first column. Return false
 * if memory is short. */
static bool ctl_table(const struct ctl_column *columns, const cJSON *rows, struct buf *out)
{
    size_t width[COLUMNS_MAX];
    struct buf cell = { 0 };
    int n;
    struct sorted_row *sorted = sort_rows(rows, columns->field, &n);
    bool ok = sorted != NULL && measure(columns, sorted, n, &cell, width) &&
              print(columns, sorted, n, &cell, width, out);
    buf_free(&cell);
    free(sorted);
    return ok;
}

/* --- answers -------------------------------------------------------------------------------------------- */

/* Each list has a table of its columns and their fields.
 *
 *     BARRIER     AGE  TIME LEFT  ARRIVED  MISSING
 *     epoch-3  32.0 s     28.0 s  0,2-7    1
 *     epoch-4   1.2 s          -  1        0,2-7
 *
 * A missing field is shown as "-", and an unknown field is not shown, because the store may be older or newer than this
 * program. */

/* --- columns of each list ------------------------------------------------------------------------------- */

/* Append how a member's process ended: "exit 1", "signal 9". */
static bool cell_end(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(row, field);
    const cJSON *signal = cJSON_GetObjectItemCaseSensitive(row, "signal");
    if (cJSON_IsNumber(signal))
        return buf_printf(out, "signal %.0f", signal->valuedouble);
    return !cJSON_IsNumber(code) || buf_printf(out, "exit %.0f", code->valuedouble);
}

/* Append the state of the process, as its agent reports it (proc(5)): "T", "R 99 %", "D nfs_wait". */
static bool cell_does(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *cpu = cJSON_GetObjectItemCaseSensitive(row, "cpu");
    const char *wchan = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "wchan"));
    bool ok = ctl_cell_text(row, field, out);
    if (cJSON_IsNumber(cpu) && cpu->valuedouble > 0)
        ok = ok && buf_printf(out, " %.0f %%", cpu->valuedouble);
    return ok && (wchan == NULL || buf_printf(out, " %s", wchan));
}

/* Append the state of a rank. Print "never_connected" as "not connected", because a program may work without the
 * store. */
static bool cell_state(const cJSON *row, const char *field, struct buf *out)
{
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, field));
    if (state != NULL && strcmp(state, "never_connected") == 0)
        return buf_printf(out, "not connected");
    return ctl_cell_text(row, field, out);
}

/* Append the key or barrier that a rank waits for in the store, or the collective of libddp that the rank is in. */
static bool cell_waits(const cJSON *row, const char *field, struct buf *out)
{
    return ctl_cell_text(row, cJSON_HasObjectItem(row, field) ? field : "call", out);
}

/* Append the percentage of samples in which the rank waited in a collective. Append nothing if the job runs without
 * --profile_ranks. */
static bool cell_percent(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *percent = cJSON_GetObjectItemCaseSensitive(row, field);
    return !cJSON_IsNumber(percent) || buf_printf(out, "%.0f %%", percent->valuedouble);
}

/* Append a value. The store sends binary values as hex digits. */
static bool cell_value(const cJSON *row, const char *field, struct buf *out)
{
    const char *hex = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "hex"));
    return hex != NULL ? buf_printf(out, "0x%s", hex) : ctl_cell_text(row, field, out);
}

/* Append how many keys the store has omitted from a waiter's list. */
static bool append_more(const cJSON *row, struct buf *out)
{
    const cJSON *more = cJSON_GetObjectItemCaseSensitive(row, "more");
    return !cJSON_IsNumber(more) || buf_printf(out, ", and %.0f more", more->valuedouble);
}

/* Append the keys of a WAIT, or the name of a barrier. If PyTorch waits for a key, the purpose of the key comes first.
 * For a client without a rank, append the description of its process, if an agent has sent one. */
static bool cell_awaited(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *torch = cJSON_GetObjectItemCaseSensitive(row, "torch");
    bool ok = torch == NULL || (ctl_cell_text(torch, "text", out) && buf_printf(out, ": "));
    const size_t before = out->len;
    ok = ok && ctl_cell_names(row, field, out) && append_more(row, out) &&
         (out->len > before || ctl_cell_text(row, "barrier", out));
    return ok && (!cJSON_HasObjectItem(row, "owner") ||
                  (buf_printf(out, "; client: ") && ctl_cell_text(row, "owner", out)));
}

/* clang-format off */

static const struct ctl_column member_columns[] = {
    { "RANK",       "rank",      ctl_cell_number,   true },
    { "STATE",      "state",     cell_state,        false },
    { "HOST",       "host",      ctl_cell_text,     false },
    { "PID",        "pid",       ctl_cell_number,   true },
    { "LAST HEARD", "silent_ms", ctl_cell_duration, true },
    { "DOES",       "proc",      cell_does,         false },
    { "STEP",       "step",      ctl_cell_number,   true },
    { "MOVED",      "beat_ms",   ctl_cell_duration, true },
    { "END",        "exit_code", cell_end,          false },
    { "WAITS FOR",  "waits_for", cell_waits,        false },
    { 0 },
};

static const struct ctl_column top_columns[] = {
    { "RANK",      "rank",         ctl_cell_number,   true },
    { "HOST",      "host",         ctl_cell_text,     false },
    { "PID",       "pid",          ctl_cell_number,   true },
    { "STEP",      "step",         ctl_cell_number,   true },
    { "DOES",      "proc",         cell_does,         false },
    { "WAITS",     "waits",        cell_percent,      true },
    { "MOSTLY IN", "place",        ctl_cell_text,     false },
    { "WAITS FOR", "waits_for",    cell_waits,        false },
    { 0 },
};

static const struct ctl_column flight_columns[] = {
    { "RANK",      "rank",     ctl_cell_number,   true },
    { "HOST",      "host",     ctl_cell_text,     false },
    { "PID",       "pid",      ctl_cell_number,   true },
    { "STEP",      "step",     ctl_cell_number,   true },
    { "LAST CALL", "call",     ctl_cell_text,     false },
    { "STATE",     "state",    ctl_cell_text,     false },
    { "SINCE",     "since_ms", ctl_cell_duration, true },
    { "RECORD",    "why",      ctl_cell_text,     false },
    { 0 },
};

/* Columns for PyTorch's records, which contain the line of code, but neither host nor process. */
static const struct ctl_column flight_code_columns[] = {
    { "RANK",      "rank",  ctl_cell_number, true },
    { "LAST CALL", "call",  ctl_cell_text,   false },
    { "STATE",     "state", ctl_cell_text,   false },
    { "CALLED IN", "at",    ctl_cell_text,   false },
    { 0 },
};

static const struct ctl_column job_columns[] = {
    { "JOB",         "job",         ctl_cell_text,   false },
    { "ATTEMPT",     "attempt",     ctl_cell_number, true },
    { "WORLD",       "world_size",  ctl_cell_number, true },
    { "KEYS",        "keys",        ctl_cell_number, true },
    { "CONNECTIONS", "connections", ctl_cell_number, true },
    { 0 },
};

static const struct ctl_column reject_columns[] = {
    { "FROM",        "source",  ctl_cell_text,     false },
    { "SPEAKS",      "kind",    ctl_cell_text,     false },
    { "FIRST BYTES", "first",   ctl_cell_text,     false },
    { "JOB",         "job",     ctl_cell_text,     false },
    { "TIMES",       "times",   ctl_cell_number,   true },
    { "LAST",        "last_ms", ctl_cell_duration, true },
    { "WHY",         "why",     ctl_cell_text,     false },
    { 0 },
};

static const struct ctl_column refused_columns[] = {
    { "HOST",  "host",     ctl_cell_text,     false },
    { "PID",   "pid",      ctl_cell_number,   true },
    { "JOB",   "job",      ctl_cell_text,     false },
    { "CODE",  "code",     ctl_cell_text,     false },
    { "TIMES", "times",    ctl_cell_number,   true },
    { "LAST",  "last_ms",  ctl_cell_duration, true },
    { "WHY",   "sentence", ctl_cell_text,     false },
    { 0 },
};

static const struct ctl_column node_columns[] = {
    { "NODE",      "node_rank", ctl_cell_number,   true },
    { "HOST",      "host",      ctl_cell_text,     false },
    { "ADDRESS",   "addr",      ctl_cell_text,     false },
    { "PID",       "pid",       ctl_cell_number,   true },
    { "WORKERS",   "nproc",     ctl_cell_number,   true },
    { "STATE",     "state",     ctl_cell_text,     false },
    { "JOINED",    "joined_ms", ctl_cell_duration, true },
    { "LAST BEAT", "heard_ms",  ctl_cell_duration, true },
    { 0 },
};

static const struct ctl_column key_columns[] = {
    { "KEY",   "key",   ctl_cell_text,   false },
    { "SIZE",  "size",  ctl_cell_number, true },
    { "VALUE", "value", cell_value,      false },
    { 0 },
};

static const struct ctl_column waiter_columns[] = {
    { "RANK",      "rank",     ctl_cell_number,   true },
    { "HOST",      "host",     ctl_cell_text,     false },
    { "PID",       "pid",      ctl_cell_number,   true },
    { "PEER",      "peer",     ctl_cell_text,     false },
    { "OP",        "op",       ctl_cell_text,     false },
    { "SINCE",     "since_ms", ctl_cell_duration, true },
    { "WAITS FOR", "keys",     cell_awaited,      false },
    { 0 },
};

static const struct ctl_column barrier_columns[] = {
    { "BARRIER",   "name",    ctl_cell_text,     false },
    { "AGE",       "age_ms",  ctl_cell_duration, true },
    { "TIME LEFT", "left_ms", ctl_cell_duration, true },
    { "ARRIVED",   "arrived", ctl_cell_ranks,    false },
    { "MISSING",   "missing", ctl_cell_ranks,    false },
    { 0 },
};

/* clang-format on */

/* Return the number in `field`, or 0. */
static double number(const cJSON *object, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* Print a note if the store has left out rows. */
static bool append_cut(const cJSON *answer, struct buf *out)
{
    const bool cut = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "cut"));
    return !cut || buf_printf(out, "... this list is incomplete, because the store has more entries\n");
}

/* Print a list as a table. If the list has no entries, print the sentence `empty` instead. */
static bool append_rows(const cJSON *answer, const char *name, const struct ctl_column *columns,
                        const char *empty, struct buf *out)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(answer, name);
    return cJSON_GetArraySize(rows) > 0 ? ctl_table(columns, rows, out) : buf_printf(out, "%s\n", empty);
}

/* Print the only list of an answer, then the note of append_cut(). Do not use this function for an answer with two
 * lists. The member "cut" is about both lists, so the note must follow the second list. */
static bool append_list(const cJSON *answer, const char *name, const struct ctl_column *columns,
                        const char *empty, struct buf *out)
{
    return append_rows(answer, name, columns, empty, out) && append_cut(answer, out);
}

/* --- status --------------------------------------------------------------------------------------------- */

/* Append a size in powers of 1024. */
static bool append_bytes(struct buf *out, double bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    for (; bytes >= 1024 && unit < sizeof(units) / sizeof(*units) - 1; unit++)
        bytes /= 1024;
    return buf_printf(out, unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

/* Append "1 key", "2 keys". */
static bool append_count(struct buf *out, double n, const char *what)
{
    return buf_printf(out, "%.0f %s%s", n, what, n == 1 ? "" : "s");
}

/* Append the job. A stand-alone store has no job until a client sets a job. */
static bool append_job(const cJSON *answer, struct buf *out)
{
    const char *job = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "job"));
    if (job == NULL)
        return buf_printf(out, "job       none yet\n");
    return buf_printf(out, "job       %s, attempt %.0f, world size %.0f\n", job, number(answer, "attempt"),
                      number(answer, "world_size"));
}

/* Append "state running, 1 restart". Leave out the round, because append_job prints the number of the attempt, and the
 * number of the round is always 1 higher. */
static bool append_state(const cJSON *answer, struct buf *out)
{
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "state"));
    if (state == NULL)
        return true;
    return buf_printf(out, "state     %s, ", state) &&
           append_count(out, number(answer, "restarts"), "restart") && buf_printf(out, "\n");
}

/* Return the words for the store's counter `name`. If this program does not know the counter, return `name`. */
static const char *counter_words(const char *name)
{
    static const char *const words[][2] = {
        { "closed_by_us", "connections closed by the store" },
        { "rejected", "connections rejected" },
        { "refused_no_fd", "shortages of file descriptors" },
        { "cut_off_slow_reader", "slow readers disconnected" },
        { "accept_overflows", "overflows of the accept queue" },
        { "open_files_limit", "limit of open files" },
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(name, words[i][0]) == 0)
            return words[i][1];
    return name;
}

/* Append all counters above 0, in the store's order. */
static bool append_counters(const cJSON *counters, struct buf *out)
{
    const cJSON *item;
    const char *before = "counters  ";
    bool ok = true;
    cJSON_ArrayForEach(item, counters)
    {
        if (!cJSON_IsNumber(item) || item->valuedouble == 0)
            continue;
        ok = ok && buf_printf(out, "%s%s %.0f", before, counter_words(item->string), item->valuedouble);
        before = ", ";
    }
    return ok && (*before == ',' ? buf_printf(out, "\n") : true);
}

/* Print a summary, then the table of the nodes and the table of the ranks. Leave out an empty table. */
bool ctl_format_status(const cJSON *answer, struct buf *out)
{
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(answer, "members");
    bool ok = append_job(answer, out) && append_state(answer, out) && buf_printf(out, "store     ") &&
              append_count(out, number(answer, "keys"), "key") && buf_printf(out, ", ") &&
              append_bytes(out, number(answer, "bytes"));
    if (ok && number(answer, "max_bytes") > 0)
        ok = buf_printf(out, " of ") && append_bytes(out, number(answer, "max_bytes"));
    ok = ok && buf_printf(out, "; ") && append_count(out, number(answer, "connections"), "connection") &&
         buf_printf(out, ", %.0f waiting; ", number(answer, "waiters")) &&
         append_count(out, number(answer, "barriers"), "open barrier") && buf_printf(out, "\n");
    ok = ok && append_counters(cJSON_GetObjectItemCaseSensitive(answer, "counters"), out);
    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(answer, "nodes")) > 0)
        ok = ok && buf_printf(out, "\n") && append_rows(answer, "nodes", node_columns, "", out);
    if (cJSON_GetArraySize(members) > 0)
        ok = ok && buf_printf(out, "\n") && append_rows(answer, "members", member_columns, "", out);
    return ok && append_cut(answer, out);
}

bool ctl_format_top(const cJSON *answer, struct buf *out)
{
    return append_job(answer, out) && append_state(answer, out) && buf_printf(out, "\n") &&
           append_list(answer, "members", top_columns, "no rank has started", out);
}

/* --- cause ---------------------------------------------------------------------------------------------- */

/* Print the text that the store has sent, so that ddpctl and all nodes print the same text. */
bool ctl_format_why(const cJSON *answer, struct buf *out)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "text"));
    return buf_printf(out, "%s\n", text != NULL ? text : "the store reports no reason");
}

/* --- the lists ------------------------------------------------------------------------------------------ */

bool ctl_format_jobs(const cJSON *answer, struct buf *out)
{
    return append_list(answer, "jobs", job_columns, "no jobs", out);
}

bool ctl_format_rejects(const cJSON *answer, struct buf *out)
{
    const cJSON *refused = cJSON_GetObjectItemCaseSensitive(answer, "refused");
    bool ok = append_rows(answer, "rejects", reject_columns, "no connection was rejected", out);
    if (cJSON_GetArraySize(refused) == 0)
        return ok;
    return ok && buf_printf(out, "\n") && append_rows(answer, "refused", refused_columns, "", out);
}

bool ctl_format_keys(const cJSON *answer, struct buf *out)
{
    return append_list(answer, "keys", key_columns, "no keys", out);
}

bool ctl_format_waiters(const cJSON *answer, struct buf *out)
{
    return append_list(answer, "waiters", waiter_columns,
                       "no client waits for a key or barrier of the store; 'ddpctl status' shows the ranks",
                       out);
}

/* Append a line such as "node 1 (n1) has not answered" for each missing node. */
static bool append_missing(const cJSON *answer, struct buf *out)
{
    const cJSON *node;
    bool ok = true;
    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(answer, "missing"))
    {
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(node, "host"));
        ok = ok && buf_printf(out, "node %.0f (%s) has not answered\n", number(node, "node_rank"),
                              host != NULL ? host : "-");
    }
    return ok;
}

bool ctl_format_stacks(const cJSON *answer, struct buf *out)
{
    const size_t before = out->len;
    const bool cut = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "cut"));
    const bool ok = stacks_text(cJSON_GetObjectItemCaseSensitive(answer, "stacks"), out) &&
                    (!cut || buf_printf(out, "... and more; pass --rank=RANKS to print other ranks\n")) &&
                    append_missing(answer, out);
    return ok && (out->len > before || buf_printf(out, "no worker runs\n"));
}

bool ctl_format_barriers(const cJSON *answer, struct buf *out)
{
    return append_list(answer, "barriers", barrier_columns, "no barrier is open", out);
}

/* Print the result of a cancel. The answer has only "ok", which the caller has checked. */
bool ctl_format_cancelled(const cJSON *answer, struct buf *out)
{
    (void)answer;
    return buf_printf(out, "cancelled\n");
}

/* --- flight records ------------------------------------------------------------------------------------- */

/* Append "rank 3" or "ranks 0-2". */
static bool append_ranks(const cJSON *object, const char *field, struct buf *out)
{
    const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(object, field));
    return buf_printf(out, n == 1 ? "rank " : "ranks ") && ctl_cell_ranks(object, field, out);
}

static bool has_some(const cJSON *object, const char *field)
{
    return cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(object, field)) > 0;
}

static bool has_text(const cJSON *object, const char *field)
{
    return cJSON_IsString(cJSON_GetObjectItemCaseSensitive(object, field));
}

/* Append the calls that have the same number but differ between ranks. Append the ranks of each call, too. */
static bool append_parting(const cJSON *answer, struct buf *out)
{
    const cJSON *group;
    const char *between = "differ    ";
    bool ok = true;
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(answer, "differ"))
    {
        ok = ok && buf_printf(out, "%s", between) && append_ranks(group, "ranks", out) &&
             buf_printf(out, " called ") && ctl_cell_text(group, "call", out) &&
             (!has_text(group, "at") || (buf_printf(out, " in ") && ctl_cell_text(group, "at", out)));
        between = "; ";
    }
    return ok && (*between == ';' ? buf_printf(out, "\n") : true);
}

/* Report that no rank with a record is behind. A rank without a record, or without a call in the group, may still be
 * behind. So only a complete set of records proves that no rank is behind. */
static bool append_none_behind(const cJSON *answer, struct buf *out)
{
    const char *front = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "front"));
    if (front != NULL && strcmp(front, "no call") == 0)
        return buf_printf(out, "behind    unknown; the records contain no call in the group of all ranks\n");
    const bool is_complete = !has_some(answer, "missing") &&
                             cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(answer, "there")) ==
                                 cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(answer, "ranks"));
    if (has_some(answer, "differ")) /* the last calls differ, and append_parting has printed them */
        return buf_printf(out, "behind    %s\n",
                          is_complete ? "none" : "none of the ranks that have a record");
    const bool ok = !is_complete ? buf_printf(out, "behind    none of the ranks that have a record; ") &&
                                       append_ranks(answer, "there", out) && buf_printf(out, " reached ")
                                 : buf_printf(out, "behind    none; all ranks reached ");
    return ok && ctl_cell_text(answer, "front", out) && buf_printf(out, "\n");
}

/* Append each rank that waits in a send while its peer does not wait in the matching receive. Also append each rank
 * that waits in a receive while its peer does not wait in the matching send. */
static bool append_peers(const cJSON *answer, struct buf *out)
{
    const cJSON *row;
    bool ok = true;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(answer, "peers"))
    {
        ok = ok && buf_printf(out, "waits     ") && append_ranks(row, "ranks", out) &&
             buf_printf(out, " in ") && ctl_cell_text(row, "call", out) &&
             (!has_text(row, "at") || (buf_printf(out, " in ") && ctl_cell_text(row, "at", out))) &&
             buf_printf(out, "; last call of rank %.0f: ", number(row, "peer")) &&
             (has_text(row, "peer_call") ? ctl_cell_text(row, "peer_call", out)
                                         : buf_printf(out, "unknown, no record")) &&
             buf_printf(out, "\n");
    }
    return ok;
}

/* Append the innermost frames of the user's code. Print the names of files without directories. */
static bool append_user_frames(const cJSON *stack, struct buf *out)
{
    enum { SHOWN = 5 };
    const cJSON *frame;
    int n = 0;
    bool ok = true;
    cJSON_ArrayForEach(frame, stack)
    {
        const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(frame, "file"));
        if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(frame, "user")) || file == NULL || n++ >= SHOWN)
            continue;
        const char *slash = strrchr(file, '/');
        ok = ok && buf_printf(out, "  > ") && ctl_cell_text(frame, "function", out) &&
             buf_printf(out, "  %s:", slash != NULL ? slash + 1 : file) &&
             ctl_cell_number(frame, "line", out) && buf_printf(out, "\n");
    }
    return n <= SHOWN ? ok : ok && buf_printf(out, "    and %d more\n", n - SHOWN);
}

/* Append the stack of each side below its call. A side is a call and the ranks that made this call with the same stack.
 * A side without frames of the user's code is left out. */
static bool append_sides(const cJSON *answer, struct buf *out)
{
    const cJSON *side;
    bool ok = true;
    cJSON_ArrayForEach(side, cJSON_GetObjectItemCaseSensitive(answer, "sides"))
    {
        if (has_text(side, "at"))
            ok = ok && buf_printf(out, "\n") && append_ranks(side, "ranks", out) && buf_printf(out, " in ") &&
                 ctl_cell_text(side, "call", out) && buf_printf(out, "\n") &&
                 append_user_frames(cJSON_GetObjectItemCaseSensitive(side, "stack"), out);
    }
    return ok;
}

/* Print the suspected ranks and their stacks first, then the last call of each rank. */
bool ctl_format_flight(const cJSON *answer, struct buf *out)
{
    const bool has_job = has_text(answer, "job");
    bool ok = (has_job ? append_job(answer, out)
                       : buf_printf(out, "records   of PyTorch, world size %.0f\n",
                                    number(answer, "world_size"))) &&
              append_parting(answer, out);
    if (has_some(answer, "behind"))
        ok = ok && buf_printf(out, "behind    ") && append_ranks(answer, "behind", out) &&
             buf_printf(out, "; ") && append_ranks(answer, "there", out) && buf_printf(out, " reached ") &&
             ctl_cell_text(answer, "front", out) && buf_printf(out, "\n");
    else
        ok = ok && append_none_behind(answer, out);
    ok = ok && append_peers(answer, out);
    if (has_some(answer, "missing"))
        ok = ok && buf_printf(out, "missing   no record of ") && append_ranks(answer, "missing", out) &&
             buf_printf(out, has_some(answer, "behind") ? "\n" : "; check these ranks first\n");
    return ok && append_sides(answer, out) && buf_printf(out, "\n") &&
           append_list(answer, "ranks", has_job ? flight_columns : flight_code_columns, "no records", out);
}

/* --- ctl jobs --------------------------------------------------------------------------------------------- */

/* This section reads no files: ddpctl.c passes the records of running jobs. */

static bool is_wanted(const struct ctl_job *job, const char *id)
{
    return id == NULL || strcmp(job->id, id) == 0;
}

/* Append a table of jobs with the columns ADDRESS, PID, AGE and JOB (the job id). The job id is last, because it may
 * have any length. */
static bool list_jobs(const struct ctl_job *jobs, size_t n, const char *id, struct buf *list)
{
    bool ok = buf_printf(list, "%-24s %8s %10s  %s\n", "ADDRESS", "PID", "AGE", "JOB");
    for (size_t i = 0; i < n && ok; i++) {
        const unsigned long long s = jobs[i].age_ms / 1000;
        if (is_wanted(&jobs[i], id))
            ok = buf_printf(list, "%-24s %8d %4llu:%02llu:%02llu  %s\n", jobs[i].store, jobs[i].pid, s / 3600,
                            s / 60 % 60, s % 60, jobs[i].id);
    }
    if (list->len > 0)
        text_disarm(list->data, list->len, '\n');
    return ok;
}

ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err)
{
    size_t matches = 0;
    bool one_store = true;
    *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const bool same_store = *found == NULL || strcmp((*found)->store, jobs[i].store) == 0;
        if (!is_wanted(&jobs[i], id) ||
            (*found != NULL && same_store && strcmp((*found)->id, jobs[i].id) == 0))
            continue;
        one_store = one_store && same_store;
        *found = &jobs[i];
        matches++;
    }
    if (matches == 1)
        return DDP_OK;
    if (matches > 1 && !list_jobs(jobs, n, id, list))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (matches > 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s%.128s: several of your jobs run on this machine; choose one with %s",
                        id != NULL ? "--job=" : "store", id != NULL ? id : "",
                        one_store    ? "--job"
                        : id == NULL ? "--addr or --job"
                                     : "--addr");
    return ddp_fail(
        err, DDP_ERR_ARG,
        "%s%.128s: you have no %srunning job on this machine, and neither DDPRUN_STORE_ADDR nor "
        "MASTER_ADDR with MASTER_PORT is set; set --addr HOST:PORT (ddprun's default port is 29500, "
        "ddp-rendezvous's 29400)",
        id != NULL ? "--job=" : "store", id != NULL ? id : "", id != NULL ? "such " : "");
}

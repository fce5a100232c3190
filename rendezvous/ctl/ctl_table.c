/* ctl_table.c -- see ctl_table.h.
 *
 * Each cell is made twice, once to measure its column and once to be printed; that is simpler than keeping
 * them. */
#include "ctl/ctl_table.h"

#include "base/text.h"

#include <limits.h>
#include <stdlib.h>

enum { COLUMNS_MAX = 16, RANKS_BYTES = 60, GAP = 2 };

/* --- cells ---------------------------------------------------------------------------------------------- */

bool ctl_cell_text(const cJSON *row, const char *field, struct buf *out)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, field));
    return text == NULL || buf_append(out, text, strlen(text));
}

/* JSON knows only doubles; up to 2^53, which no count here reaches, they are exact integers. */
bool ctl_cell_number(const cJSON *row, const char *field, struct buf *out)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(row, field);
    return !cJSON_IsNumber(number) || buf_printf(out, "%.0f", number->valuedouble);
}

bool ctl_cell_duration(const cJSON *row, const char *field, struct buf *out)
{
    const double most = 1e15; /* 30,000 years: what is above has been made up, and would not fit an integer */
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(row, field);
    if (!cJSON_IsNumber(ms) || !(ms->valuedouble >= 0 && ms->valuedouble < most))
        return true;
    return text_put_ms(out, (uint64_t)ms->valuedouble);
}

/* In quotes, because a key may have blanks and commas. */
bool ctl_cell_names(const cJSON *row, const char *field, struct buf *out)
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

/* -1 when it is none. The store is not believed: what it sends may be any number. */
static int rank_of(const cJSON *item)
{
    const cJSON *number = cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "rank") : item;
    return cJSON_IsNumber(number) && number->valueint >= 0 && number->valueint < INT_MAX ? number->valueint
                                                                                         : -1;
}

/* Runs of neighbours become "first-last": a job has thousands of ranks, of which usually few are of
 * interest. */
bool ctl_cell_ranks(const cJSON *row, const char *field, struct buf *out)
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

/* A store lists its keys and waiters in no order. Here they are sorted by the first column, so that two looks
 * at a job that hangs can be compared. */
struct sorted_row {
    const cJSON *row;
    const cJSON *by;
    int place; /* in the store's list, decides between equals */
};

static int compare(const void *a, const void *b)
{
    const struct sorted_row *x = a, *y = b;
    int order = cJSON_IsNumber(y->by) - cJSON_IsNumber(x->by); /* numbers first, then texts, then nothing */
    if (order == 0 && cJSON_IsNumber(x->by))
        order = (x->by->valuedouble > y->by->valuedouble) - (x->by->valuedouble < y->by->valuedouble);
    else if (order == 0 && cJSON_IsString(x->by) && cJSON_IsString(y->by))
        order = strcmp(x->by->valuestring, y->by->valuestring);
    return order != 0 ? order : x->place - y->place;
}

/* malloc'ed, yours; *n rows. NULL when memory is short. */
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
    qsort(sorted, (size_t)*n, sizeof(*sorted), compare);
    return sorted;
}

/* --- the table ------------------------------------------------------------------------------------------ */

/* An empty cell would make a row hard to read, and to cut with awk, so it is a dash. Make the cell in the
 * empty buffer `cell`. */
static bool make(const struct ctl_column *column, const cJSON *row, struct buf *cell)
{
    cell->len = 0;
    return column->cell(row, column->field, cell) && (cell->len > 0 || buf_append(cell, "-", 1));
}

/* Each column is as wide as its widest cell or its title. */
static bool measure(const struct ctl_column *columns, const struct sorted_row *rows, int n, struct buf *cell,
                    size_t width[COLUMNS_MAX])
{
    for (size_t i = 0; i < COLUMNS_MAX && columns[i].title != NULL; i++)
        width[i] = strlen(columns[i].title);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < COLUMNS_MAX && columns[i].title != NULL; i++) {
            if (!make(&columns[i], rows[r].row, cell))
                return false;
            if (cell->len > width[i])
                width[i] = cell->len;
        }
    }
    return true;
}

/* The last column is not filled up: lines have no blanks at their end. */
static bool put_cell(const struct ctl_column *column, struct slice text, size_t width, struct buf *out)
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
        ok = put_cell(&columns[i], slice_str(columns[i].title), width[i], out);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; ok && i < COLUMNS_MAX && columns[i].title != NULL; i++)
            ok =
                make(&columns[i], rows[r].row, cell) && put_cell(&columns[i], buf_slice(cell), width[i], out);
    }
    return ok;
}

bool ctl_table(const struct ctl_column *columns, const cJSON *rows, struct buf *out)
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

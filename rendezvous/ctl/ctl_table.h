/* ctl_table.h -- JSON rows as a table with aligned columns, for people. */
#ifndef RENDEZVOUS_CTL_TABLE_H
#define RENDEZVOUS_CTL_TABLE_H

#include "base/buf.h"

#include <cjson/cJSON.h>

/* Append the text of one field. A field that is missing or of another type is nothing, and shown as "-".
 * False when memory is short. */
typedef bool (*ctl_cell)(const cJSON *row, const char *field, struct buf *out);

struct ctl_column {
    const char *title; /* NULL ends the list */
    const char *field;
    ctl_cell cell;
    bool right; /* numbers stand at the right edge of their column */
};

/* One line of titles, and one for each object in the array `rows`, sorted by the first column. False when
 * memory is short. */
bool ctl_table(const struct ctl_column *columns, const cJSON *rows, struct buf *out);

/* Kinds of cells. */
bool ctl_cell_text(const cJSON *row, const char *field, struct buf *out);
bool ctl_cell_number(const cJSON *row, const char *field, struct buf *out);
bool ctl_cell_duration(const cJSON *row, const char *field, struct buf *out); /* of milliseconds: "1.2 s" */
bool ctl_cell_names(const cJSON *row, const char *field, struct buf *out);    /* of strings: "'/a', '/b'" */
bool ctl_cell_ranks(const cJSON *row, const char *field,
                    struct buf *out); /* of ranks, or objects with one: "0-2,5" */

#endif

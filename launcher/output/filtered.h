/* filtered.h -- one more file for the lines of all workers that contain one of some words
 * (--duplicate_stdout_filters, --duplicate_stderr_filters). */
#ifndef LAUNCHER_FILTERED_H
#define LAUNCHER_FILTERED_H

#include "lines/lines.h"
#include "output/console.h"

/* A stream's part in it. Zeroed = it has none. */
struct filtered {
    struct sinks *sinks;
    int sink; /* of the file, which others write to as well */
    const struct cli_filters *words;
    const struct console_stream *console; /* what the prefix tells is known there */
    struct lines lines;
    struct buf out; /* lines made from one read */
};

/* `which` as in the plan. Does nothing where there is no such file. Free it also after an error. */
ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err);
void filtered_free(struct filtered *f);

void filtered_feed(struct filtered *f, struct slice bytes);

/* The stream has ended. */
void filtered_finish(struct filtered *f);

bool filtered_is_behind(const struct filtered *f, bool resume);

#endif

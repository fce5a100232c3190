/* log_file.h -- one log file on disk: created once, never over another, rotated by size.
 *
 * Used by one thread, the writer's, after it was made; only log_file_news is for others. With a limit the
 * full file gets a number and a new one takes its name: `out.log.1` is the oldest part, `out.log` the
 * newest; put together in that order they are what was written, byte for byte. A file that somebody has
 * deleted is made again. */
#ifndef LAUNCHER_LOG_FILE_H
#define LAUNCHER_LOG_FILE_H

#include "cli/cli.h"
#include "output/writer.h"

struct log_file;

/* Create the file, with the directories above it. NULL: err says why and what to do. Yours; the target's `close`
 * frees it. */
struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err);

/* What a user should hear of, once; LOG_NO_NEWS mostly. From any thread, until it is closed. */
enum log_news {
    LOG_NO_NEWS,
    LOG_MADE_AGAIN, /* it was deleted, and is there again */
    LOG_DELETED,    /* it was deleted, and cannot be made again: what comes goes where it has gone */
    LOG_NOT_ROTATED /* it is over its limit, because it cannot be renamed */
};
enum log_news log_file_news(struct log_file *f);

/* It as the target of a writer's slot. */
struct writer_target log_file_target(struct log_file *f);

#endif

/* profile.c -- see profile.h.
 *
 * After each step, all ranks send the begin and end times of their phases to rank 0. So one file shows which rank
 * waits for which other rank, and the file is readable even after a crash. */
#include "train/profile.h"

#include "base/clock.h"
#include "train/files.h"
#include "train/library.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_words[PHASES] = {
#define X(name, words, key) words,
    PHASE_LIST(X)
#undef X
};
const char *const phase_key[PHASES] = {
#define X(name, words, key) key,
    PHASE_LIST(X)
#undef X
};

void phases_start(struct phases *p)
{
    for (int i = 0; i < PHASES; i++)
        p->us[i] = 0;
    p->count = 0;
    p->depth = 0;
}

void phases_begin(struct phases *p, enum phase phase, uint64_t now_us)
{
    assert(p->depth < PHASES_DEPTH);
    p->open[p->depth].phase = phase;
    p->open[p->depth].begin_us = now_us;
    p->open[p->depth].inside_us = 0;
    p->depth++;
}

/* End the current phase. If the clock went backwards, count no time. */
void phases_end(struct phases *p, uint64_t now_us)
{
    assert(p->depth > 0);
    p->depth--;
    uint64_t begin_us = p->open[p->depth].begin_us;
    uint64_t us = now_us > begin_us ? now_us - begin_us : 0;
    uint64_t inside_us = p->open[p->depth].inside_us;
    p->us[p->open[p->depth].phase] += us > inside_us ? us - inside_us : 0;
    if (p->depth > 0)
        p->open[p->depth - 1].inside_us += us;
    if (p->count < PHASES_PIECES && (p->depth == 0 || us >= PHASES_SHORT_US))
        p->piece[p->count++] = (struct phases_piece){ p->open[p->depth].phase, begin_us, begin_us + us };
}

/* --- trace ------------------------------------------------------------------------------------------------ */

/* The trace file has the format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev), with one JSON object per
 * line. A killed run leaves a list without its end, and viewers accept such a list.
 *
 *     [
 *     {"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
 *     {"name":"forward","ph":"X","pid":0,"tid":0,"ts":12,"dur":340,"args":{"step":1}}, */

/* The text before the first line and the text after the last line. The text after the last line begins with an empty
 * object, because each line before it ends with a comma. */
static const char trace_begin[] = "[\n", trace_end[] = "{}]\n";

/* Write the line with the name of a rank. Each name in the trace is "rank N" or a constant of this file, so names need
 * no escapes. */
static void trace_rank(FILE *to, int rank)
{
    fprintf(to, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
            rank, rank);
}

static void trace_piece(FILE *to, int rank, const struct phases_piece *p, uint64_t step)
{
    fprintf(to,
            "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%" PRIu64 ",\"dur\":%" PRIu64
            ",\"args\":{\"step\":%" PRIu64 "}},\n",
            phase_words[p->phase < PHASES ? p->phase : 0], rank, p->begin_us, p->end_us - p->begin_us, step);
}

static ddp_status begin_file(struct profile *p, struct ddp_err *err)
{
    p->file = files_open("--profile", p->path, "we", err);
    if (p->file == NULL)
        return err->code;
    fputs(trace_begin, p->file);
    for (int rank = 0; rank < ddp_world_size(p->ctx); rank++)
        trace_rank(p->file, rank);
    return DDP_OK;
}

ddp_status profile_open(struct profile *p, const char *path, ddp_ctx *ctx, struct ddp_err *err)
{
    size_t world = (size_t)ddp_world_size(ctx);
    *p = (struct profile){ .path = path, .ctx = ctx };
    if (path == NULL)
        return DDP_OK;
    p->shift_us = (int64_t)(clock_unix_us() - clock_us());
    if (ddp_rank(ctx) != 0)
        return DDP_OK;
    p->all = calloc(world * PHASES_PIECES, sizeof(*p->all));
    p->count = calloc(world, sizeof(*p->count));
    if (p->all == NULL || p->count == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the trace of %zu ranks", world);
    return begin_file(p, err);
}

/* Gather structs as bytes. All ranks run the same program, so a struct has the same layout on all ranks. */
static ddp_status gather(struct profile *p, const void *mine, void *all, size_t bytes, struct ddp_err *err)
{
    return library(ddp_gather(ddp_world(p->ctx), mine, all, bytes, DDP_U8, 0, NULL, NULL), err);
}

ddp_status profile_step(struct profile *p, const struct phases *phases, uint64_t step, struct ddp_err *err)
{
    struct phases_piece mine[PHASES_PIECES] = { 0 };
    if (p->path == NULL)
        return DDP_OK;
    for (uint64_t i = 0; i < phases->count; i++) {
        mine[i] = phases->piece[i];
        mine[i].begin_us += (uint64_t)p->shift_us;
        mine[i].end_us += (uint64_t)p->shift_us;
    }
    ddp_status status = gather(p, &phases->count, p->count, sizeof(phases->count), err);
    if (status == DDP_OK)
        status = gather(p, mine, p->all, sizeof(mine), err);
    if (status != DDP_OK || p->file == NULL)
        return status;
    for (int rank = 0; rank < ddp_world_size(p->ctx); rank++) {
        for (uint64_t i = 0; i < p->count[rank] && i < PHASES_PIECES; i++)
            trace_piece(p->file, rank, &p->all[(size_t)rank * PHASES_PIECES + i], step);
    }
    return fflush(p->file) == 0 ? DDP_OK : files_not_written("--profile", p->path, err);
}

ddp_status profile_close(struct profile *p, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (p->file != NULL) {
        fputs(trace_end, p->file);
        if (fclose(p->file) != 0)
            status = files_not_written("--profile", p->path, err);
    }
    free(p->all);
    free(p->count);
    *p = (struct profile){ 0 };
    return status;
}

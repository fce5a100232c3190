/* loader_core.c -- see loader_core.h. */
#include "data/loader_core.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ALIGN = 256, TIMEOUT_MS = 300000, AHEAD_PER_THREAD = 2 };
static const size_t MOST_BYTES = SIZE_MAX / 4;

/* --- options ----------------------------------------------------------------------------------------------- */

/* One row for each number that has limits. */
static ddp_status check_numbers(const ddp_loader_options *o, struct ddp_err *err)
{
    const struct {
        const char *name;
        uint64_t value, least, most;
    } rows[] = {
        { "batch", o->batch, 1, INT32_MAX },
        { "arrays", o->arrays, 1, DDP_LOADER_ARRAYS },
        { "streams", (uint64_t)o->streams, 0, DDP_LOADER_STREAMS },
        { "threads", (uint64_t)o->threads, 0, DDP_LOADER_THREADS },
        { "ahead", o->ahead, 0, DDP_LOADER_BATCHES },
        { "held", o->held, 0, DDP_LOADER_BATCHES },
        { "timeout_ms", (uint64_t)o->timeout_ms, 0, INT32_MAX },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return ddp_fail(err, DDP_ERR_ARG, "loader: %s is %" PRId64 ", expected %" PRIu64 " to %" PRIu64,
                            rows[i].name, (int64_t)rows[i].value, rows[i].least, rows[i].most);
    }
    return DDP_OK;
}

static ddp_status check(const ddp_loader_options *o, struct ddp_err *err)
{
    if (o->size != sizeof(*o))
        return ddp_fail(err, DDP_ERR_ARG,
                        "loader: begin with ddp_loader_options o = DDP_LOADER_OPTIONS_INIT");
    if (o->fill == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "loader: `fill` is NULL: who reads the samples?");
    if ((o->alloc == NULL) != (o->release == NULL))
        return ddp_fail(err, DDP_ERR_ARG, "loader: `alloc` and `release` are given both or not at all");
    return check_numbers(o, err);
}

static void complete(ddp_loader_options *o)
{
    o->streams = o->streams == 0 ? 1 : o->streams;
    o->held = o->held == 0 ? 1 : o->held;
    o->timeout_ms = o->timeout_ms == 0 ? TIMEOUT_MS : o->timeout_ms;
    if (o->threads == 0)
        o->ahead = 0; /* nobody would make them */
    else if (o->ahead == 0)
        o->ahead = (size_t)o->threads * AHEAD_PER_THREAD;
}

/* --- memory ------------------------------------------------------------------------------------------------ */

/* Where the arrays of a slot begin, and that all of it is less than memory can hold. */
static ddp_status lay_out(struct loader_core *core, struct ddp_err *err)
{
    const ddp_loader_options *o = &core->options;
    core->slots = o->ahead + o->held;
    const size_t most = MOST_BYTES / core->slots;
    for (size_t a = 0; a < o->arrays; a++) {
        const size_t left = core->slot_bytes < most ? most - core->slot_bytes : 0;
        core->array_at[a] = core->slot_bytes;
        if (o->row_bytes[a] == 0 || o->row_bytes[a] > left / o->batch)
            return ddp_fail(
                err, DDP_ERR_ARG,
                "loader: array %zu has %zu rows of %zu bytes, expected 1 byte to what memory can hold", a,
                o->batch, o->row_bytes[a]);
        core->slot_bytes += (o->row_bytes[a] * o->batch + ALIGN - 1) / ALIGN * ALIGN;
    }
    return DDP_OK;
}

/* The sampler checks samples, world size and ranks. */
static ddp_status make_samplers(struct loader_core *core, struct ddp_err *err)
{
    const ddp_loader_options *o = &core->options;
    core->sampler = calloc((size_t)o->streams, sizeof(*core->sampler));
    if (core->sampler == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "loader: no memory for %d streams", o->streams);
    ddp_status status = DDP_OK;
    for (int i = 0; i < o->streams && status == DDP_OK; i++)
        status = ddp_sampler_create(o->samples, o->world_size, o->rank + i, o->seed, o->sampler_flags,
                                    &core->sampler[i], err);
    return status;
}

ddp_status loader_core_open(struct loader_core *core, const ddp_loader_options *options, struct ddp_err *err)
{
    *core = (struct loader_core){ 0 };
    ddp_status status = check(options, err);
    if (status != DDP_OK)
        return status;
    core->options = *options;
    complete(&core->options);
    status = lay_out(core, err);
    if (status == DDP_OK)
        status = make_samplers(core, err);
    if (status != DDP_OK)
        loader_core_close(core);
    return status;
}

void loader_core_close(struct loader_core *core)
{
    for (int i = 0; core->sampler != NULL && i < core->options.streams; i++)
        ddp_sampler_free(core->sampler[i]);
    free(core->sampler);
    core->sampler = NULL;
}

/* --- an epoch ---------------------------------------------------------------------------------------------- */

/* Streams take turns, so all have as many batches as the longest: with NO_PAD the others' last one may be empty. The first is
 * never shorter than those behind it. */
void loader_core_start(struct loader_core *core, uint64_t epoch, uint64_t done)
{
    const ddp_loader_options *o = &core->options;
    for (int i = 0; i < o->streams; i++)
        ddp_sampler_resume(core->sampler[i], epoch, done);
    const uint64_t longest = ddp_sampler_len(core->sampler[0]);
    core->epoch = epoch;
    core->total = (longest / o->batch + (longest % o->batch != 0)) * (uint64_t)o->streams;
    core->released = core->given = core->taken = 0;
}

void loader_core_stop(struct loader_core *core)
{
    core->total = core->taken;
}

bool loader_core_ask(struct loader_core *core, uint64_t *number)
{
    if (core->given + 1 > core->options.held)
        core->released = core->given + 1 - core->options.held;
    *number = core->given;
    return core->given < core->total;
}

void loader_core_give(struct loader_core *core)
{
    core->given++;
}

bool loader_core_take(struct loader_core *core, uint64_t *number)
{
    if (core->taken == core->total || core->taken >= core->released + core->slots)
        return false;
    *number = core->taken++;
    return true;
}

void loader_core_draw(struct loader_core *core, uint64_t number, uint64_t *index, unsigned char *is_pad,
                      ddp_batch *batch)
{
    const int stream = (int)(number % (uint64_t)core->options.streams);
    size_t rows = 0;
    int pad = 0;
    for (; rows < core->options.batch && ddp_sampler_next(core->sampler[stream], &index[rows], &pad); rows++)
        is_pad[rows] = (unsigned char)pad;
    batch->number = number;
    batch->stream = stream;
    batch->rows = rows;
}

ddp_loader_row loader_core_row(const struct loader_core *core, const ddp_batch *batch, size_t row)
{
    ddp_loader_row r = { .index = batch->index[row], .epoch = core->epoch, .is_pad = batch->is_pad[row] };
    ddp_philox_seed(&r.luck, core->options.seed, core->epoch, r.index);
    for (size_t a = 0; a < core->options.arrays; a++)
        r.to[a] = (char *)batch->array[a] + row * core->options.row_bytes[a];
    return r;
}

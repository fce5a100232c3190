/* loader_threads.c -- runs epochs of a loader with 0 and with 4 threads, and ends some epochs in the middle. The
 * program prints `same` if all batches were equal. This is a plain program, so that it can run under
 * ThreadSanitizer. */
#include "ddp/context.h"
#include "ddp/loader.h"
#include "ddp/sampler.h"

#include <stdio.h>
#include <stdlib.h>

enum { EPOCHS = 6, SAMPLES = 500 };

static void need(ddp_status status)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "loader_threads: %s\n", ddp_last_error());
    exit(1);
}

static ddp_status fill(void *user, ddp_loader_row *row, struct ddp_err *err)
{
    uint32_t *to = row->to[0];
    (void)user;
    for (int i = 0; i < 16; i++)
        to[i] = ddp_philox_next(&row->luck) ^ (uint32_t)row->index;
    return row->index < SAMPLES ? DDP_OK : ddp_fail(err, DDP_ERR_LIMIT, "sample beyond the end");
}

/* Read epochs with an even number to the end, and only some batches of the other epochs. */
static uint64_t digest(int threads)
{
    ddp_loader *loader;
    const ddp_batch *batch;
    uint64_t hash = 14695981039346656037u;
    ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
    o.samples = SAMPLES;
    o.sampler_flags = DDP_SAMPLER_SHUFFLE;
    o.batch = 8;
    o.arrays = 1;
    o.row_bytes[0] = 16 * sizeof(uint32_t);
    o.fill = fill;
    o.threads = threads;
    need(ddp_loader_create(&o, &loader));
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        need(ddp_loader_start(loader, epoch, 0));
        for (uint64_t left = epoch % 2 == 0 ? SAMPLES : epoch; left > 0; left--) {
            need(ddp_loader_next(loader, &batch));
            if (batch == NULL)
                break;
            for (size_t i = 0; i < batch->rows * 16; i++)
                hash = (hash ^ ((const uint32_t *)batch->array[0])[i]) * 1099511628211u;
        }
    }
    need(ddp_loader_free(loader));
    return hash;
}

int main(void)
{
    puts(digest(0) == digest(4) ? "same" : "different");
    return 0;
}

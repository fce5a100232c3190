/* manager.c -- see ddp/ckpt.h: a directory of checkpoints and a thread that writes them. The caller's thread owns the
 * copy of the blocks while the state is IDLE, and the writer owns the copy while the state is BUSY. So neither thread
 * holds the lock while it copies or writes blocks. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/not_null.h"
#include "base/timed_call.h"
#include "checkpoint/directory.h"
#include "checkpoint/file.h"
#include "core/context.h"
#include "core/error.h"
#include "checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NAME: maximum length of a block's name in bytes, with the NUL. KEEP_LAST and TIMEOUT_MS: the defaults of options that
 * are 0. */
enum { NAME = 64, KEEP_LAST = 3, TIMEOUT_MS = 600000, MOST_TIMEOUT_MS = 1u << 31 };

/* IDLE: the writer has no job; BUSY: the writer has a job; STOP: the writer must end. The writer has at most one
 * job: a checkpoint to write. */
enum state { IDLE, BUSY, STOP };

/* A copy of the blocks, so that the program can continue while the thread writes. The memory is allocated at the first
 * save and reused until the manager is closed. A save that needs more memory replaces the old memory. */
struct copy {
    ddp_ckpt_point point;
    ddp_ckpt_block *blocks; /* the blocks point into `names` and `data` */
    char (*names)[NAME];
    char *data;
    size_t n, room_blocks, room; /* n: blocks in use; room_blocks: allocated blocks; room: bytes of `data` */
};

struct ddp_ckpts {
    ddp_ckpts_options options; /* options.dir is owned */
    struct ckpt_dir dir;
    struct copy copy;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* protects `state` and `outcome` */
    pthread_cond_t changed;
    enum state state;
    struct ddp_err outcome; /* error of the last job, if no call has returned it yet; otherwise DDP_OK */
};

/* --- the writer ----------------------------------------------------------------------------------------- */

/* Write one checkpoint. Remove old checkpoints only after the new checkpoint was written. Otherwise a full disk could
 * cost the last good checkpoint. */
static ddp_status write_and_tidy(const ddp_ckpts *c, const ddp_ckpt_point *point,
                                 const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    struct ddp_err why = { 0 };
    if (ckpt_dir_write(&c->dir, point, blocks, n, &why) != DDP_OK) {
        ddp_wrap(&why, "checkpoint of step %" PRIu64 " not written (earlier checkpoints are unchanged)",
                 point->step);
        return ddp_fail(err, why.code, "%s", why.msg);
    }
    ckpt_dir_tidy(&c->dir, point->step, c->options.keep_last, c->options.keep_every);
    return DDP_OK;
}

/* Write one checkpoint after the other until the state is STOP. Release the lock while a checkpoint is written. */
static void *writer(void *user)
{
    ddp_ckpts *c = user;
    pthread_mutex_lock(&c->lock);
    while (c->state != STOP) {
        if (c->state == IDLE) {
            /* ddp_ckpts_save and ddp_ckpts_close wake this thread. */
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        struct ddp_err err = { 0 };
        ddp_status status = write_and_tidy(c, &c->copy.point, c->copy.blocks, c->copy.n, &err);
        pthread_mutex_lock(&c->lock);
        c->outcome = status == DDP_OK ? (struct ddp_err){ 0 } : err;
        c->state = IDLE;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Start the writer at the first save. */
static ddp_status start_writer(ddp_ckpts *c, struct ddp_err *err)
{
    if (c->has_thread)
        return DDP_OK;
    char why[FORK_ERROR_MAX];
    int failed = thread_start(&c->thread, writer, c);
    c->has_thread = failed == 0;
    return failed == 0 ? DDP_OK
                       : ddp_fail(err, DDP_ERR_NOMEM, "%s: cannot start the writing thread: %s", c->dir.path,
                                  fork_error_text(failed, why));
}

/* --- waiting -------------------------------------------------------------------------------------------- */

/* Wait until the writer has no job. Return the error of the last job, only once. */
static ddp_status wait_idle(ddp_ckpts *c, struct ddp_err *err)
{
    const struct timespec until = clock_after_us((uint64_t)c->options.timeout_ms * 1000);
    ddp_status status;
    int failed = 0;
    pthread_mutex_lock(&c->lock);
    while (c->state == BUSY && failed == 0)
        failed = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    if (c->state == BUSY)
        status = ddp_fail(err, DDP_ERR_TIMEOUT,
                          "%s: step %" PRIu64 " is still being written after %g s; check the file "
                          "system, or raise timeout_ms",
                          c->dir.path, c->copy.point.step, c->options.timeout_ms / 1000.0);
    else if (c->outcome.code != DDP_OK)
        status = ddp_fail(err, c->outcome.code, "%s", c->outcome.msg);
    else
        status = DDP_OK;
    if (c->state != BUSY)
        c->outcome = (struct ddp_err){ 0 };
    pthread_mutex_unlock(&c->lock);
    return status;
}

static void set_state(ddp_ckpts *c, enum state state)
{
    pthread_mutex_lock(&c->lock);
    c->state = state;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

ddp_status ddp_ckpts_wait(ddp_ckpts *c, struct ddp_err *err)
{
    if (c == NULL)
        return null_argument(err, __func__, "ckpts");
    return wait_idle(c, err);
}

/* --- open and close ------------------------------------------------------------------------------------- */

/* Copy the caller's options and fill in defaults. If the caller was compiled with an older header, its struct (`size`
 * bytes) is shorter. The members that the older struct lacks are 0. */
static ddp_status read_ckpts_options(const ddp_ckpts_options *given, ddp_ckpts_options *out,
                                     struct ddp_err *err)
{
    *out = (ddp_ckpts_options)DDP_CKPTS_OPTIONS_INIT;
    if (given == NULL || given->size < sizeof(given->size) || given->size > sizeof(*out))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_ckpts_options: initialize the struct with DDP_CKPTS_OPTIONS_INIT");
    memcpy(out, given, given->size);
    if (out->dir == NULL || out->dir[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_ckpts_options: `dir` is NULL or empty; set the directory of the checkpoints");
    if (out->timeout_ms > MOST_TIMEOUT_MS)
        return ddp_fail(err, DDP_ERR_ARG, "ddp_ckpts_options: timeout_ms is %" PRIu32 ": expected at most %u",
                        out->timeout_ms, MOST_TIMEOUT_MS);
    out->keep_last = out->keep_last != 0 ? out->keep_last : KEEP_LAST;
    out->timeout_ms = out->timeout_ms != 0 ? out->timeout_ms : TIMEOUT_MS;
    return DDP_OK;
}

/* Initialize the lock and the condition. Timeouts use the monotonic clock, so a change of the date does not affect
 * them. */
static void init_lock(ddp_ckpts *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Open a directory. No thread is started yet, because a program that only loads a checkpoint needs no thread. */
ddp_status ddp_ckpts_open(const ddp_ckpts_options *given, ddp_ckpts **out, struct ddp_err *err)
{
    NOT_NULL(out, err);
    ddp_ckpts_options options;
    *out = NULL;
    ddp_status status = read_ckpts_options(given, &options, err);
    if (status != DDP_OK)
        return status;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "%s: checkpoints need a little-endian machine",
                        options.dir);
    ddp_ckpts *c = calloc(1, sizeof(*c));
    char *dir = strdup(options.dir);
    if (c == NULL || dir == NULL) {
        free(c);
        free(dir);
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory", options.dir);
    }
    c->options = options;
    c->options.dir = dir;
    c->dir = (struct ckpt_dir){ dir, options.warn, options.user };
    init_lock(c);
    *out = c;
    return DDP_OK;
}

/* Free the copy's memory. reserve_copy may allocate memory again. */
static void free_copy(struct copy *copy)
{
    free(copy->blocks);
    free(copy->names);
    free(copy->data);
    *copy = (struct copy){ .blocks = NULL };
}

/* Close the manager and free the struct. After a timeout free nothing, because the writer still uses the struct. */
ddp_status ddp_ckpts_close(ddp_ckpts *c, struct ddp_err *err)
{
    if (c == NULL)
        return DDP_OK;
    ddp_status status = wait_idle(c, err);
    if (status == DDP_ERR_TIMEOUT)
        return status;
    if (c->has_thread) {
        set_state(c, STOP);
        pthread_join(c->thread, NULL);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free_copy(&c->copy);
    free((char *)c->options.dir);
    free(c);
    return status;
}

/* --- saving --------------------------------------------------------------------------------------------- */

/* Check that the numbers of `point` are small enough for the manifest. */
static ddp_status check_point(const ddp_ckpt_point *point, struct ddp_err *err)
{
#define X(name, words)                                                                                    \
    if (point->name > MANIFEST_LARGEST)                                                                   \
        return ddp_fail(err, DDP_ERR_ARG, "checkpoint: %s is %" PRIu64 ": expected at most 10^15", #name, \
                        point->name);
    DDP_CKPT_POINT_LIST(X)
#undef X
    return DDP_OK;
}

/* Get memory for a copy of n blocks; `total` is the sum of their sizes in bytes. Keep the old memory if it is
 * large enough. Return false if memory is short. */
static bool reserve_copy(struct copy *copy, size_t n, size_t total)
{
    if (n <= copy->room_blocks && total <= copy->room)
        return true;
    free_copy(copy);
    copy->blocks = calloc(n, sizeof(*copy->blocks));
    copy->names = calloc(n, sizeof(*copy->names));
    copy->data = malloc(total + 1);
    if (copy->blocks == NULL || copy->names == NULL || copy->data == NULL) {
        free_copy(copy);
        return false;
    }
    copy->room_blocks = n;
    copy->room = total;
    return true;
}

/* Copy the blocks. Copy the names too, because the caller may free its names before the thread reads the copy. */
static void fill_copy(struct copy *copy, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks, size_t n)
{
    char *to = copy->data;
    copy->point = *point;
    copy->n = n;
    for (size_t i = 0; i < n; i++) {
        snprintf(copy->names[i], NAME, "%s", blocks[i].name);
        copy->blocks[i] = (ddp_ckpt_block){ copy->names[i], to, blocks[i].bytes };
        if (blocks[i].bytes > 0)
            memcpy(to, blocks[i].data, blocks[i].bytes);
        to += blocks[i].bytes;
    }
}

/* Save a checkpoint. If the copy would exceed max_bytes, or if memory is short, make no copy and wait until the
 * checkpoint is on the disk. */
ddp_status ddp_ckpts_save(ddp_ckpts *c, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks, size_t n,
                          struct ddp_err *err)
{
    if (c == NULL)
        return null_argument(err, __func__, "ckpts");
    NOT_NULL(point, err);
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status == DDP_OK)
        status = check_point(point, err);
    if (status == DDP_OK)
        status = wait_idle(c, err);
    if (status != DDP_OK)
        return status;
    const size_t total = ckpt_total_bytes(blocks, n);
    const bool allowed = c->options.max_bytes == 0 || total <= c->options.max_bytes;
    struct ddp_err ignored = { 0 }; /* if no thread starts, this call writes the checkpoint itself */
    if (!allowed || !reserve_copy(&c->copy, n, total) || start_writer(c, &ignored) != DDP_OK)
        return write_and_tidy(c, point, blocks, n, err);
    fill_copy(&c->copy, point, blocks, n);
    set_state(c, BUSY);
    return DDP_OK;
}

/* --- loading -------------------------------------------------------------------------------------------- */

/* Load the newest checkpoint that is not damaged. Any error except damage ends the search, because such an error may
 * be temporary. */
static ddp_status load_newest(const ddp_ckpts *c, const uint64_t *steps, size_t n_steps,
                              const ddp_ckpt_block *blocks, size_t n, ddp_ckpt_point *point,
                              struct ddp_err *err)
{
    struct ddp_err newest = { 0 }, now = { 0 };
    for (size_t i = n_steps; i-- > 0;) {
        ddp_status status = ckpt_dir_read(&c->dir, steps[i], blocks, n, point, &now);
        if (status != DDP_OK && status != DDP_ERR_CORRUPT)
            ddp_fail(err, status, "%s", now.msg);
        if (status != DDP_ERR_CORRUPT)
            return status;
        ddp_wrap(&now, "checkpoint of step %" PRIu64 " skipped", steps[i]);
        ckpt_dir_warn(&c->dir, &now);
        if (newest.code == DDP_OK)
            newest = now;
    }
    if (n_steps == 1)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "%s: the only checkpoint is damaged: %s; remove the checkpoint to start from the "
                        "beginning",
                        c->dir.path, newest.msg);
    return ddp_fail(err, DDP_ERR_CORRUPT,
                    "%s: all %zu checkpoints are damaged (the newest: %s); remove the checkpoints to start "
                    "from the beginning",
                    c->dir.path, n_steps, newest.msg);
}

/* Load the newest checkpoint. If the writer is busy, wait until it has finished. If the last write failed, return the
 * error of that write. */
ddp_status ddp_ckpts_load(ddp_ckpts *c, const ddp_ckpt_block *blocks, size_t n, ddp_ckpt_point *point,
                          int *found, struct ddp_err *err)
{
    if (c == NULL)
        return null_argument(err, __func__, "ckpts");
    NOT_NULL(point, err);
    NOT_NULL(found, err);
    uint64_t *steps = NULL;
    size_t n_steps = 0;
    *found = 0;
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status == DDP_OK)
        status = wait_idle(c, err);
    if (status == DDP_OK)
        status = ckpt_dir_list(&c->dir, &steps, &n_steps, err);
    if (status == DDP_OK && n_steps > 0) {
        status = load_newest(c, steps, n_steps, blocks, n, point, err);
        *found = status == DDP_OK;
    }
    free(steps);
    return status;
}

/* The result of the load on rank 0. Rank 0 broadcasts this struct before the blocks. `words` is the text of an
 * error. */
struct load_result {
    int64_t status, found;
    ddp_ckpt_point point;
    char words[1024];
};

/* Load a checkpoint on rank 0, and fill in *result. After an error, *result contains the error. The caller broadcasts
 * *result even then, because the other ranks wait for *result. */
static void load_on_root(ddp_ckpts *c, const ddp_ckpt_block *blocks, size_t n, struct load_result *result)
{
    struct ddp_err err = { 0 };
    int found = 0;
    result->status = c != NULL ? (int64_t)ddp_ckpts_load(c, blocks, n, &result->point, &found, &err)
                               : ddp_fail(&err, DDP_ERR_ARG, "ddp_ckpts_resume: `ckpts` is NULL on rank 0");
    result->found = found;
    memcpy(result->words, err.msg, sizeof(result->words));
}

/* Load a checkpoint on rank 0 and broadcast the blocks. Blocks are sent one by one, so that no rank needs memory for
 * a second model. */
ddp_status ddp_ckpts_resume(ddp_ckpts *c, ddp_group *group, const ddp_ckpt_block *blocks, size_t n,
                            ddp_ckpt_point *point, int *found)
{
    NOT_NULL(group, NULL);
    NOT_NULL(point, NULL);
    NOT_NULL(found, NULL);
    struct load_result result = { 0 };
    struct ddp_err err;
    *found = 0;
    if (ddp_rank(group->ctx) == 0)
        load_on_root(c, blocks, n, &result);
    ddp_status status = ddp_broadcast(group, &result, sizeof(result), DDP_U8, 0, NULL, NULL);
    if (status == DDP_OK && result.status != DDP_OK) {
        ddp_fail(&err, (ddp_status)result.status, "%.*s", (int)sizeof(result.words) - 1, result.words);
        return ctx_fail(group->ctx, &err);
    }
    for (size_t i = 0; i < n && status == DDP_OK && result.found; i++)
        status = ddp_broadcast(group, blocks[i].data, blocks[i].bytes, DDP_U8, 0, NULL, NULL);
    if (status == DDP_OK && result.found) {
        *point = result.point;
        *found = 1;
    }
    return status;
}

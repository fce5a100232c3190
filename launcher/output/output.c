/* output.c -- see output.h.
 *
 * Happy path: output_round makes the files -> output_open makes pipes -> streams are read, lines queued
 * -> the writer's thread writes, wakes the loop (on_progress) -> end of file -> output_drain -> idle.
 *
 * It can go wrong when: a sink is slower than the workers (their streams wait, see stream.c); stdout or
 * stderr is closed by its reader (the pipes behind it are closed, so the workers get SIGPIPE, as if they
 * had written there themselves); a disk is full (told once, the job goes on); somebody outside the job
 * holds a pipe open (given up after the drain time). */
#include "output/output.h"

#include "output/disk_watch.h"
#include "output/doorbell.h"
#include "output/logdir.h"
#include "output/patient_write.h"
#include "output/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    UPDATE_MS = 1000,    /* how often a progress bar becomes a line of a log */
    REDRAW_MS = 100,     /* ... and is drawn anew on a terminal */
    LAST_MS = 2000,      /* for a reader of the last line that does not read */
    UNREAD_MS = 5000,    /* how long a sink may take nothing when the workers are gone */
    WATCH_MS = 250,      /* ... and how often that is looked at */
    DISK_TOLD_MS = 5000, /* a disk that does not answer for so long is reported */
    DISK_LOOK_MS = 2000,
    TOLD_FILES_MAX = 4
};

struct output {
    struct output_options options;
    struct sinks *sinks;
    struct console console;
    struct stream_group group;
    struct stream *streams; /* two for each worker */
    struct tail *tails;     /* collected for output_tails */
    struct doorbell progress;
    uv_timer_t update, drain, fold, disk;
    int open_handles;
    int told_files;                /* warnings about log files */
    bool draining, given_up;       /* nobody takes what is still there */
    bool finishing, finished_well; /* see output_finish */
    bool told_waiting;
    bool told_hung;             /* the disk does not answer */
    bool looking;               /* for failures: what that ends is not the end of all until it is over */
    uint64_t written, moved_ms; /* by the sinks, and when that last changed */
};

static int n_streams(const struct output *o)
{
    return 2 * o->options.plan->nproc;
}

static struct stream *stream_of(struct output *o, int local_rank, int which)
{
    return &o->streams[2 * local_rank + (which == STD_ERR)];
}

/* --- progress bars -------------------------------------------------------------------------------------- */

/* A progress bar writes many updates per second and no newline. One per second is enough for a log;
 * the last one before a newline or the end is never lost, lines.h keeps it. The timer runs only
 * while there is a bar. */
static void on_update_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    for (int i = 0; i < n_streams(o); i++)
        if (o->streams[i].to_console)
            console_stream_update(&o->streams[i].console);
}

static void on_bar(void *user, bool screen)
{
    struct output *o = user;
    if (!uv_is_active((uv_handle_t *)&o->update))
        uv_timer_start(&o->update, on_update_time, screen ? REDRAW_MS : UPDATE_MS, 0);
}

/* --- folded lines --------------------------------------------------------------------------------------- */

static void on_fold_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    console_fold_time(&o->console);
}

/* Rounded up: a timer that is early would have to run twice. The other console's lines may be due before. */
static void on_fold_waits(void *user, uint64_t us)
{
    struct output *o = user;
    uint64_t ms = us / 1000 + 1;
    if (!uv_is_active((uv_handle_t *)&o->fold) || uv_timer_get_due_in(&o->fold) > ms)
        uv_timer_start(&o->fold, on_fold_time, ms, 0);
}

/* --- sinks ---------------------------------------------------------------------------------------------- */

/* Nobody reads our stdout (stderr) any more: the workers shall know. Streams that a file wants are
 * read on. */
static void console_is_closed(struct output *o, int sink)
{
    for (int i = 0; i < n_streams(o); i++) {
        struct stream *s = &o->streams[i];
        if (s->to_console && s->console.sink == sink && s->file == STREAM_NO_SINK)
            stream_end(s);
    }
}

/* What a user should hear about a sink. With many files on one full disk the first few stand for all. */
static void tell(struct output *o, const struct sink_event *e)
{
    static const char *const what[] = { [SINK_RECOVERED] = "can be written again",
                                        [SINK_MADE_AGAIN] = "was deleted; it is made again, and begins anew",
                                        [SINK_DELETED] =
                                            "was deleted and cannot be made again; what comes for it "
                                            "is lost",
                                        [SINK_NOT_ROTATED] = "cannot be renamed to rotate it; it grows on" };
    const bool waits = o->options.plan->cli->log_policy == LOG_BLOCK &&
                       (e->error == ENOSPC || e->error == EDQUOT) && !o->draining;
    if (e->sink >= SINK_FILES && ++o->told_files > TOLD_FILES_MAX) {
        if (o->told_files == TOLD_FILES_MAX + 1)
            output_note(o, "warning: more log files have such trouble; their names are left out here");
    } else if (e->news != SINK_FAILED) {
        output_note(o, "%s%s %s", e->news == SINK_RECOVERED ? "" : "warning: ", e->name, what[e->news]);
    } else if (e->sink != SINK_STDERR || e->error == 0) {
        output_note(o, "warning: cannot write %s: %s; %s", e->name,
                    e->error != 0 ? strerror(e->error) : "it takes less than what comes for it",
                    e->error == EPIPE ? "its reader is gone, and workers that write on get SIGPIPE"
                    : waits ? "workers that write to it wait until there is room (--log_policy=block)"
                            : "what comes for it is lost and counted until that is over");
    }
}

/* A stream that is closed for it may be the last, and idle is the end of this object: so that is told afterwards only. */
static void look_for_failures(struct output *o)
{
    struct sink_event e;
    o->looking = true;
    while (sinks_next_event(o->sinks, &e)) {
        if (e.news == SINK_FAILED && e.error == EPIPE && e.sink < SINK_FILES)
            console_is_closed(o, e.sink);
        tell(o, &e);
    }
    o->looking = false;
}

/* Nothing more can come (pipes are closed) and nothing is on its way (queues are empty), or that has been given
 * up. */
static bool is_idle(const struct output *o)
{
    return o->draining && !o->looking && o->group.open == 0 && (o->given_up || sinks_empty(o->sinks));
}

/* Idle is told once, from whatever came last: a pipe's end, or the writer's. A write may fail as the last
 * thing that happens. So when all seems to be written we look for failures once more, and what is said
 * about them has to be written, too. */
static void look_for_idle(struct output *o)
{
    if (is_idle(o))
        look_for_failures(o);
    if (!is_idle(o))
        return;
    o->draining = false;
    uv_timer_stop(&o->drain);
    o->options.idle(o->options.user);
}

static void on_stream_ended(void *user)
{
    struct output *o = user;
    if (o->group.open == 0)
        console_fold_finish(&o->console);
    look_for_idle(o);
}

/* Several wake-ups may be one, so nothing is said about which sink it was: all are looked at. */
static void on_progress(void *user)
{
    struct output *o = user;
    look_for_failures(o);
    for (int i = 0; i < n_streams(o); i++)
        stream_resume(&o->streams[i]);
    look_for_idle(o);
}

/* On the writer's thread. */
static void wake_loop(void *user)
{
    const struct output *o = user;
    doorbell_ring(&o->progress);
}

/* Report once that a log file's disk does not answer, and once that it answers again. */
static void on_disk_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    char path[DISK_PATH_MAX];
    const bool hung = disk_hangs(DISK_TOLD_MS, path);
    if (hung && !o->told_hung)
        output_note(
            o,
            "warning: %s: the file system has not answered for %d s; output for it waits in memory%s; two "
            "Ctrl-C end the job without it",
            path, DISK_TOLD_MS / 1000,
            o->options.plan->cli->log_policy == LOG_BLOCK ? ", then the workers wait (--log_policy=block)"
                                                          : ", then it is lost (--log_policy=drop)");
    else if (!hung && o->told_hung)
        output_note(o, "%s: the file system answers again",
                    o->options.plan->log_root != NULL ? o->options.plan->log_root : "log files");
    o->told_hung = hung;
}

/* --- the object ----------------------------------------------------------------------------------------- */

/* The one place that frees: when the last of the handles is gone, no callback can come any more. */
static void handle_closed(uv_handle_t *handle)
{
    struct output *o = handle->data;
    if (--o->open_handles > 0)
        return;
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_free(&o->streams[i]);
    free(o->streams);
    free(o->tails);
    free(o->group.chunk);
    buf_free(&o->group.merged);
    console_free(&o->console);
    free(o);
}

/* Before anything that can fail, so that output_close() ends whatever there is, also half of it. */
static bool init_handles(struct output *o)
{
    uv_loop_t *loop = o->options.loop;
    uv_timer_init(loop, &o->update);
    uv_timer_init(loop, &o->drain);
    uv_timer_init(loop, &o->fold);
    uv_timer_init(loop, &o->disk);
    o->update.data = o->drain.data = o->fold.data = o->disk.data = o;
    const bool has_bell = doorbell_open(&o->progress, loop, on_progress, o);
    o->open_handles = 4 + has_bell;
    return has_bell;
}

/* One buffer for all reads: streams are read one after the other, and 512 buffers of their own would be 32 MiB. */
static void init_group(struct output *o)
{
    o->group = (struct stream_group){ .loop = o->options.loop,
                                      .plan = o->options.plan,
                                      .sinks = o->sinks,
                                      .console = &o->console,
                                      .chunk = malloc(STREAM_READ_BYTES),
                                      .ended = on_stream_ended,
                                      .bar = on_bar,
                                      .user = o };
}

/* Events are for programs, which want each; one worker has nobody to share a line with. */
static bool fold_lines(struct output *o)
{
    const struct cli *cli = o->options.plan->cli;
    if (!cli->fold || cli->json || o->options.plan->nproc == 1)
        return true;
    return console_fold(&o->console, on_fold_waits, o);
}

ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err)
{
    struct output *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the workers' output");
    o->options = *options;
    const bool has_bell = init_handles(o);
    o->sinks =
        sinks_new(options->plan->cli->log_policy == LOG_DROP ? WRITER_DROP : WRITER_BLOCK, wake_loop, o);
    console_init(&o->console, options->plan, o->sinks, options->started_ms);
    init_group(o);
    const size_t n = (size_t)n_streams(o);
    o->streams = calloc(n, sizeof(*o->streams));
    o->tails = calloc(n, sizeof(*o->tails));
    if (has_bell && o->streams != NULL && o->tails != NULL && o->group.chunk != NULL && o->sinks != NULL &&
        fold_lines(o)) {
        if (options->plan->log_root != NULL || options->plan->cli->log_file != NULL)
            uv_timer_start(&o->disk, on_disk_time, DISK_LOOK_MS, DISK_LOOK_MS);
        *out = o;
        return DDP_OK;
    }
    output_close(o);
    return ddp_fail(err, DDP_ERR_NOMEM, "no %s for the workers' output",
                    has_bell ? "memory" : "file descriptor left ('ulimit -n')");
}

/* Pipes that somebody outside the job still holds are given up: they belong to an attempt that is over. */
static void forget_attempt(struct output *o)
{
    for (int i = 0; i < n_streams(o); i++) {
        stream_end_with_rest(&o->streams[i]);
        stream_free(&o->streams[i]);
        o->streams[i] = (struct stream){ 0 };
    }
    sinks_end_files(o->sinks);
}

ddp_status output_round(struct output *o, const struct plan_round *round, struct ddp_err *err)
{
    forget_attempt(o);
    ddp_status status = plan_round(o->options.plan, round, err);
    if (status == DDP_OK)
        status = logdir_attempt(o->options.plan, err);
    for (int i = 0; i < n_streams(o) && status == DDP_OK; i++)
        status = stream_init(&o->streams[i], &o->group, i / 2, i % 2 == 0 ? STD_OUT : STD_ERR, err);
    return status;
}

/* Both pipes or none: on an error those that are open already are closed, as after a birth that failed. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err)
{
    fds[1] = -1;
    fds[0] = stream_open(stream_of(o, local_rank, STD_OUT), err);
    if (fds[0] >= 0)
        fds[1] = stream_open(stream_of(o, local_rank, STD_ERR), err);
    if (fds[1] >= 0)
        return DDP_OK;
    output_spawned(fds);
    return err->code;
}

/* The worker has its copies. Ours must go, or the end of the pipe would never come. Descriptors up to 2 are our
 * own. */
void output_spawned(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] > STDERR_FILENO)
            close(fds[i]);
}

void output_started(struct output *o, int local_rank, pid_t pid)
{
    console_stream_started(&stream_of(o, local_rank, STD_OUT)->console, pid);
    console_stream_started(&stream_of(o, local_rank, STD_ERR)->console, pid);
}

void output_note(struct output *o, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    console_note(&o->console, text);
}

void output_put(struct output *o, const struct buf *lines)
{
    sinks_put(o->sinks, SINK_STDOUT, buf_slice(lines));
}

void output_line(struct output *o, const struct buf *line)
{
    console_line(&o->console, buf_slice(line));
}

void output_last_line(struct output *o, const struct buf *line)
{
    int error = o->console.midline ? patient_write(STDERR_FILENO, slice_str("\n"), LAST_MS) : 0;
    o->console.midline = false;
    if (error == 0)
        error = patient_write(STDERR_FILENO, buf_slice(line), LAST_MS);
    (void)error; /* nobody is left to tell */
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Pipes that somebody outside the job keeps open, and those that nobody reads because a sink is behind. What is
 * in them is taken: the last words of a worker must reach the report. */
static void end_all(struct output *o)
{
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_end_with_rest(&o->streams[i]);
}

/* A job that went well waits for its reader (a pager) as long as that takes, and says so. After a failure, and
 * between two attempts, somebody waits for us: who takes nothing for a while is given up. */
static void look_for_progress(struct output *o)
{
    const uint64_t now = clock_ms(), written = sinks_written(o->sinks);
    if (written != o->written) {
        o->written = written;
        o->moved_ms = now;
    }
    if (now - o->moved_ms < UNREAD_MS)
        return;
    if (!o->finishing || !o->finished_well)
        o->given_up = true;
    else if (!o->told_waiting)
        output_note(o,
                    "all workers have ended, and %llu bytes of their output wait for a reader; Ctrl-C ends "
                    "without them",
                    (unsigned long long)sinks_queued(o->sinks));
    o->told_waiting = true;
    look_for_idle(o);
}

static void on_watch_time(uv_timer_t *timer)
{
    look_for_progress(timer->data);
}

/* At the end of all nobody waits for a full disk any more. */
static void on_drain_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    end_all(o);
    if (!o->draining)
        return;
    if (o->finishing)
        sinks_wait_no_more(o->sinks);
    o->given_up = !(o->finishing && o->finished_well) && disk_hangs(DISK_HUNG_MS, NULL);
    look_for_idle(o);
    if (!o->draining)
        return;
    o->written = sinks_written(o->sinks);
    o->moved_ms = clock_ms();
    uv_timer_start(&o->drain, on_watch_time, WATCH_MS, WATCH_MS);
}

/* Told before the drain: what there is to wait for at the end depends on how the job has ended. */
void output_finish(struct output *o, bool well)
{
    o->finishing = true;
    o->finished_well = well;
}

/* Mostly the pipes are at their end already and this is over at once; the timer is for those that somebody holds
 * open. */
void output_drain(struct output *o, uint64_t limit_ms)
{
    o->draining = true;
    o->given_up = o->told_waiting = false;
    uv_timer_start(&o->drain, on_drain_time, limit_ms, 0);
    look_for_idle(o);
}

bool output_is_midline(const struct output *o)
{
    return o->console.midline;
}

bool output_loss(struct output *o, size_t i, struct loss *loss)
{
    return sinks_loss(o->sinks, i, loss);
}

const struct tail *output_tails(struct output *o, int which)
{
    const int nproc = o->options.plan->nproc;
    struct tail *tails = o->tails + (which == STD_ERR ? nproc : 0);
    for (int i = 0; i < nproc; i++)
        tails[i] = stream_of(o, i, which)->tail; /* a view: the stream keeps the memory */
    return tails;
}

const struct tail *output_last_words(struct output *o, int local_rank)
{
    struct stream *s = stream_of(o, local_rank, STD_ERR);
    stream_catch_up(s);
    return &s->tail;
}

/* The threads end before the handles: they wake the loop by one of them. */
void output_close(struct output *o)
{
    if (o == NULL)
        return;
    o->draining = false;
    end_all(o);
    sinks_free(o->sinks);
    o->sinks = NULL;
    if (o->progress.fd >= 0)
        doorbell_close(&o->progress, handle_closed);
    uv_close((uv_handle_t *)&o->update, handle_closed);
    uv_close((uv_handle_t *)&o->drain, handle_closed);
    uv_close((uv_handle_t *)&o->fold, handle_closed);
    uv_close((uv_handle_t *)&o->disk, handle_closed);
}

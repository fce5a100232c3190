/* stdin.c -- see stdin.h. The first part is pure and records which reader still needs which bytes. The second part
 * handles pipes, files and terminals. Each chunk is read only after all readers have received the previous chunk, so
 * that memory stays bounded. */
#include "node/stdin.h"

#include "base/limits.h"
#include "base/syscalls.h"
#include "contain/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum fan_state {
    FAN_ABSENT,   /* the worker does not read the input */
    FAN_EXPECTED, /* the worker will be started; no chunk is read before the start */
    FAN_OPEN,     /* the worker runs and reads */
    FAN_CLOSED    /* the worker has received all input, has closed its stdin, or could not be started */
};

struct fan_reader {
    enum fan_state state;
    size_t done; /* bytes of the current chunk that this reader has received */
};

/* Records which workers read the input (the readers), and how much each reader has received. The input is read in
 * chunks: a chunk has the bytes of one read, and each reader gets the whole chunk. The fan_ functions do no input or
 * output. */
struct fan {
    struct fan_reader *readers; /* owned, `n` elements, by local rank */
    int n;
    size_t len;  /* bytes of the current chunk */
    bool ended;  /* the input has ended; no further chunk follows */
    bool drains; /* read and drop the input while no reader is open */
};

/* Initialize `fan` for `n` readers, all in the state FAN_ABSENT. Return false if memory is short. */
static bool fan_init(struct fan *fan, int n)
{
    *fan = (struct fan){ .readers = calloc((size_t)n, sizeof(*fan->readers)), .n = n };
    if (fan->readers == NULL)
        fan->n = 0;
    return fan->readers != NULL;
}

static void fan_free(struct fan *fan)
{
    free(fan->readers);
    *fan = (struct fan){ 0 };
}

/* Record that a reader will start. Until this reader has started, no input is read. fan_open and fan_close record the
 * start and the end. */
static void fan_expect(struct fan *fan, int reader)
{
    fan->readers[reader] = (struct fan_reader){ .state = FAN_EXPECTED };
}

/* Open a reader. The new reader gets the current chunk from its beginning, even if the chunk was read for earlier
 * workers, which have ended. */
static void fan_open(struct fan *fan, int reader)
{
    fan->readers[reader] = (struct fan_reader){ .state = FAN_OPEN };
}

/* Close a reader. Call this also if a worker cannot be started. Otherwise the other readers would get no input,
 * because no chunk is read before all expected readers have started. */
static void fan_close(struct fan *fan, int reader)
{
    if (fan->readers[reader].state != FAN_ABSENT)
        fan->readers[reader].state = FAN_CLOSED;
}

/* Drop the current chunk, because no reader needs it any more. */
static void fan_forget(struct fan *fan)
{
    fan->len = 0;
    for (int i = 0; i < fan->n; i++)
        fan->readers[i].done = 0;
}

/* Return true if the next chunk may be read. Return false if the input has ended. Also return false while an expected
 * reader has not started, or while an open reader has not received the whole current chunk. If no reader is open,
 * return true only if `drains` is true, because the chunk is then read only to drop it. If `drains` is false, the
 * unread input stays for a process that reads stdin later. */
static bool fan_wants(const struct fan *fan)
{
    bool has_reader = false;
    for (int i = 0; i < fan->n; i++) {
        const struct fan_reader *r = &fan->readers[i];
        if (r->state == FAN_EXPECTED || (r->state == FAN_OPEN && r->done < fan->len))
            return false;
        has_reader |= r->state == FAN_OPEN;
    }
    return (has_reader || fan->drains) && !fan->ended;
}

/* Record that a chunk of `len` bytes was read. If `len` is 0, the input has ended. */
static void fan_fill(struct fan *fan, size_t len)
{
    fan_forget(fan);
    fan->len = len;
    fan->ended = len == 0;
}

/* Return the number of bytes that `reader` still needs from the chunk, and set *at to their offset in the chunk. */
static size_t fan_due(const struct fan *fan, int reader, size_t *at)
{
    const struct fan_reader *r = &fan->readers[reader];
    *at = r->done;
    return r->state == FAN_OPEN ? fan->len - r->done : 0;
}

/* Record that `reader` has received `len` more bytes. */
static void fan_gave(struct fan *fan, int reader, size_t len)
{
    fan->readers[reader].done += len;
}

/* Return true if a reader's pipe can be closed: the input has ended, and the reader has received all bytes. */
static bool fan_is_over(const struct fan *fan, int reader)
{
    const struct fan_reader *r = &fan->readers[reader];
    return fan->ended && r->state == FAN_OPEN && r->done == fan->len;
}

enum input_way {
    INPUT_NONE,   /* no worker reads the input */
    INPUT_DIRECT, /* the only reader inherits the input */
    INPUT_COPIED  /* this process reads the input and writes to a pipe for each reader */
};

/* Choose how the input is passed on. A single reader inherits the input if possible, so that line editing and seeking
 * work as without ddprun. If two readers inherited the input, each would get only a part of the bytes. */
static enum input_way input_way(int n_readers, bool terminal, bool background)
{
    if (n_readers == 0)
        return INPUT_NONE;
    return n_readers == 1 && !(terminal && background) ? INPUT_DIRECT : INPUT_COPIED;
}

/* --- input ------------------------------------------------------------------------------------------------ */

/* Other processes, such as the shell, share ddprun's stdin and its flags, so ddprun never makes stdin non-blocking.
 * libuv would make stdin non-blocking. So if stdin can be polled, ddprun polls stdin through a separate epoll set. A
 * plain file is read at once if its data is in memory, otherwise by libuv's threads.
 *
 * The kernel stops a background process that reads from its terminal (SIGTTIN), but not the agent, because the agent
 * has another session. So before each read from a terminal, the agent checks whether the guardian is in the
 * foreground. */

enum {
    CHUNK = 64 * 1024, /* bytes of one read; a pipe holds this many bytes */
    RECHECK_MS = 300   /* time between two checks whether the job is in the foreground again */
};

/* ddprun's end of a worker's pipe. The close callback frees the struct. */
struct pipe_end {
    uv_poll_t poll;
    struct input *input;
    int local_rank, fd;
};

struct input {
    uv_loop_t *loop;
    const struct plan *plan;
    pid_t guardian; /* the process group of the guardian shows whether the job is in the foreground */
    enum input_way way;
    struct fan fan;
    struct pipe_end **ends; /* by local rank; NULL if closed */
    int source, null;       /* descriptors of the input and of /dev/null */
    bool terminal;          /* stdin is a terminal */
    bool closing;           /* input_close() was called */

    bool polled;      /* `source` can be polled; false for a file, and for a device that is always ready */
    bool regular;     /* `source` is a regular file */
    int epoll;        /* epoll set that contains `source` */
    uv_poll_t ready;  /* polls `epoll`, which is readable when `source` is readable */
    uv_timer_t later; /* starts the next read, or the next check whether the job is in the foreground */
    uv_fs_t request;  /* the read of a file */
    bool reading;     /* `request` is in progress */
    char *chunk;      /* CHUNK bytes for one read */
};

static void give(struct input *in, int local_rank);
static void read_if_wanted(struct input *in);
static void go_on(struct input *in);

/* --- the terminal ----------------------------------------------------------------------------------------- */

/* Return true if another process group is in the foreground of the terminal. */
static bool in_background(const struct input *in)
{
    return in->terminal && procfs_in_background(in->guardian);
}

/* --- to the workers --------------------------------------------------------------------------------------- */

static void free_end(uv_handle_t *handle)
{
    free(handle->data);
}

/* Close the pipe's descriptor at once, so that the worker detects the end of its input. libuv's handle is freed later,
 * by free_end. */
static void close_end(struct input *in, int local_rank)
{
    struct pipe_end *end = in->ends[local_rank];
    fan_close(&in->fan, local_rank);
    in->ends[local_rank] = NULL;
    if (end == NULL)
        return;
    uv_close((uv_handle_t *)&end->poll, free_end);
    close(end->fd);
}

/* Continue a write to a pipe that was full. */
static void on_room(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events; /* the write in give() detects a closed pipe */
    struct pipe_end *end = poll->data;
    struct input *in = end->input;
    give(in, end->local_rank);
    read_if_wanted(in);
}

/* Write as much as the pipe accepts. A worker that has closed its stdin gets no more input. */
static void give(struct input *in, int local_rank)
{
    struct pipe_end *end = in->ends[local_rank];
    size_t at, due = end != NULL ? fan_due(&in->fan, local_rank, &at) : 0;
    ssize_t n = due > 0 ? write(end->fd, in->chunk + at, due) : 0;
    if (n > 0)
        fan_gave(&in->fan, local_rank, (size_t)n);
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || fan_is_over(&in->fan, local_rank))
        close_end(in, local_rank);
    else if (end != NULL && fan_due(&in->fan, local_rank, &at) > 0)
        uv_poll_start(&end->poll, UV_WRITABLE, on_room);
    else if (end != NULL)
        uv_poll_stop(&end->poll);
}

/* --- reading stdin ---------------------------------------------------------------------------------------- */

/* Send the workers the chunk that a thread has read from a file. The input may be closed meanwhile. */
static void on_file_read(uv_fs_t *request)
{
    struct input *in = request->data;
    ssize_t n = request->result;
    in->reading = false;
    uv_fs_req_cleanup(request);
    if (in->closing)
        return;
    fan_fill(&in->fan, n > 0 ? (size_t)n : 0);
    go_on(in);
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void on_later(uv_timer_t *timer)
{
    go_on(timer->data);
}

/* Read the input. A failed read counts as the end of the input. */
static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct input *in = poll->data;
    (void)status, (void)events;
    if (in_background(in)) {
        uv_poll_stop(poll);
        uv_timer_start(&in->later, on_later, RECHECK_MS, 0);
        return;
    }
    ssize_t n = read(in->source, in->chunk, CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    fan_fill(&in->fan, n > 0 ? (size_t)n : 0);
    go_on(in);
}

/* Read input that the kernel has in memory. Such a read is faster than libuv's threads. Return false if no byte
 * was read. Linux 5.9 and 5.10 may report a wrong end of file here. So the end is detected only by a read that may
 * block. */
static bool read_at_once(struct input *in)
{
    const struct iovec into = { .iov_base = in->chunk, .iov_len = CHUNK };
    const ssize_t n = sys_preadv2(in->source, &into, 1, -1, RWF_NOWAIT);
    if (n < 0 || (n == 0 && in->regular))
        return false;
    fan_fill(&in->fan, (size_t)n);
    uv_timer_start(&in->later, on_later, 0, 0);
    return true;
}

/* Read a chunk. If a read cannot be started, the input ends. */
static void input_read(struct input *in)
{
    if (in->polled) {
        uv_poll_start(&in->ready, UV_READABLE, on_ready);
        return;
    }
    if (read_at_once(in))
        return;
    uv_buf_t into = uv_buf_init(in->chunk, CHUNK);
    in->request.data = in;
    in->reading = uv_fs_read(in->loop, &in->request, in->source, &into, 1, -1, on_file_read) == 0;
    if (!in->reading)
        fan_fill(&in->fan, 0);
}

/* Continue after any event: write what the pipes accept. If every reader has received the chunk, read the next
 * chunk. */
static void go_on(struct input *in)
{
    for (int i = 0; i < in->fan.n && in->way == INPUT_COPIED && !in->reading; i++)
        give(in, i);
    read_if_wanted(in);
}

/* Read the next chunk if every reader has received the current chunk. Otherwise stop polling stdin: unread data in
 * stdin would wake the loop again and again. */
static void read_if_wanted(struct input *in)
{
    if (in->way != INPUT_COPIED || in->closing || in->reading)
        return;
    if (fan_wants(&in->fan))
        input_read(in);
    else if (in->polled)
        uv_poll_stop(&in->ready);
}

/* --- workers start and end -------------------------------------------------------------------------------- */

static bool open_copied(struct input *in);

/* Return how many workers of this node read the input. */
static int count_readers(const struct plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->nproc; i++)
        n += plan_gets_input(plan, i);
    return n;
}

/* Return true if a worker of another node reads the input. */
static bool has_other_readers(const struct plan *plan)
{
    const struct cli_input *input = &plan->cli->input;
    const int first = plan->workers[0].rank;
    bool found = input->all && plan->world_size > plan->nproc;
    for (int r = rank_set_highest(&input->ranks); r >= 0; r--)
        found = found || (rank_set_has(&input->ranks, r) && (r < first || r >= first + plan->nproc));
    return found;
}

/* Begin an attempt. Drop the unsent rest of the current chunk. The input of the attempt's workers begins with the next
 * chunk. With --hosts, all nodes get the same input, as fast as the slowest node reads it. So a node without readers
 * must read and drop the input. */
ddp_status input_attempt(struct input *in, struct ddp_err *err)
{
    const struct cli *cli = in->plan->cli;
    char remedy[FILES_REMEDY_MAX];
    const int highest = rank_set_highest(&cli->input.ranks);
    if (highest >= in->plan->world_size && cli->nnodes.min == cli->nnodes.max)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--stdin: rank %d does not exist; list only ranks up to %d, the highest rank of the job", highest,
            in->plan->world_size - 1);
    in->fan.drains = cli->one_console && has_other_readers(in->plan);
    if (in->way != INPUT_COPIED)
        in->way = in->fan.drains ? INPUT_COPIED
                                 : input_way(count_readers(in->plan), in->terminal, in_background(in));
    if (in->way == INPUT_COPIED && in->chunk == NULL) {
        in->chunk = malloc(CHUNK);
        if (in->chunk == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM, "workers' input: cannot open: out of memory");
        if (!open_copied(in))
            return ddp_fail(err, DDP_ERR_IO, "workers' input: cannot open: %s%s", strerror(errno),
                            files_remedy(errno, remedy));
    }
    fan_forget(&in->fan);
    for (int i = 0; i < in->fan.n; i++) {
        close_end(in, i);
        if (plan_gets_input(in->plan, i))
            fan_expect(&in->fan, i);
    }
    return DDP_OK;
}

/* Open a worker's pipe and return the worker's end. Only ddprun's end is non-blocking. */
static int open_pipe(struct input *in, int local_rank)
{
    int fds[2];
    struct pipe_end *end = malloc(sizeof(*end));
    if (end == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        free(end);
        return -1;
    }
    *end = (struct pipe_end){ .input = in, .local_rank = local_rank, .fd = fds[1] };
    uv_poll_init(in->loop, &end->poll, end->fd);
    end->poll.data = end;
    in->ends[local_rank] = end;
    return fds[0];
}

/* Return the stdin of a worker. A worker without input gets /dev/null. If its stdin were closed, the first file that
 * the worker opens would become its stdin. */
int input_open(struct input *in, int local_rank)
{
    if (!plan_gets_input(in->plan, local_rank))
        return in->null;
    return in->way == INPUT_DIRECT ? STDIN_FILENO : open_pipe(in, local_rank);
}

/* Close the worker's end of the pipe, but keep /dev/null and an inherited stdin open. If the worker could not be
 * started, close ddprun's end, too. Otherwise ddprun would wait for the start of this worker, and the other workers
 * would get no input. */
void input_spawned(struct input *in, int local_rank, int fd, bool runs)
{
    if (fd > STDERR_FILENO && fd != in->null)
        close(fd);
    if (!runs)
        close_end(in, local_rank);
    else if (in->ends[local_rank] != NULL)
        fan_open(&in->fan, local_rank);
    go_on(in);
}

/* Close the pipe of a worker that has ended. The next read may have waited only for this worker, so try to continue. */
void input_ended(struct input *in, int local_rank, bool failed)
{
    in->fan.drains = in->fan.drains && !failed;
    close_end(in, local_rank);
    go_on(in);
}

/* --- the beginning and the end ---------------------------------------------------------------------------- */

/* Return a new descriptor for stdin. If stdin is a file, duplicate the descriptor, so that ddprun and other processes
 * share the position in the file. Otherwise open stdin again, because only a new open file has its own flags. If
 * opening fails, duplicate the descriptor. */
static int open_source(bool is_file)
{
    int fd = is_file ? -1 : open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 ? fd : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
}

/* Open the input for copying. A file is not polled, because epoll rejects files. */
static bool open_copied(struct input *in)
{
    struct epoll_event event = { .events = EPOLLIN };
    struct stat is;
    in->regular = fstat(STDIN_FILENO, &is) == 0 && S_ISREG(is.st_mode);
    in->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (in->epoll < 0)
        return false;
    bool is_file = epoll_ctl(in->epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0;
    if (!is_file)
        epoll_ctl(in->epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
    in->source = open_source(is_file);
    in->polled = in->source >= 0 && epoll_ctl(in->epoll, EPOLL_CTL_ADD, in->source, &event) == 0;
    uv_poll_init(in->loop, &in->ready, in->epoll);
    uv_timer_init(in->loop, &in->later);
    in->ready.data = in->later.data = in;
    return in->source >= 0;
}

ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX];
    struct input *in = calloc(1, sizeof(*in));
    *out = in;
    if (in == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "workers' input: cannot open: out of memory");
    *in = (struct input){ .loop = loop, .plan = plan, .guardian = guardian, .source = -1, .epoll = -1 };
    in->terminal = isatty(STDIN_FILENO) == 1;
    in->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    in->ends = calloc((size_t)plan->nproc, sizeof(struct pipe_end *));
    if (in->ends == NULL || !fan_init(&in->fan, plan->nproc))
        return ddp_fail(err, DDP_ERR_NOMEM, "workers' input: cannot open: out of memory");
    if (in->null < 0)
        return ddp_fail(err, DDP_ERR_IO, "workers' input: cannot open: %s%s", strerror(errno),
                        files_remedy(errno, remedy));
    return DDP_OK;
}

/* Close the input. If a thread is reading, on_file_read runs later and detects `closing`. */
void input_close(struct input *in)
{
    if (in == NULL || in->closing)
        return;
    in->closing = true;
    for (int i = 0; i < in->fan.n; i++)
        close_end(in, i);
    if (in->ready.data == NULL) /* open_copied() has opened no handles */
        return;
    uv_close((uv_handle_t *)&in->ready, NULL);
    uv_close((uv_handle_t *)&in->later, NULL);
    if (in->reading)
        uv_cancel((uv_req_t *)&in->request);
}

void input_free(struct input *in)
{
    if (in == NULL)
        return;
    for (int i = 0; i < 3; i++) {
        int fd = (int[]){ in->source, in->epoll, in->null }[i];
        if (fd >= 0)
            close(fd);
    }
    fan_free(&in->fan);
    free(in->ends);
    free(in->chunk);
    free(in);
}

/* starter.c -- see remote.h: runs a remote shell for each host and carries what the relays print.
 *
 *     WAITING -> STARTING -> HERE -> PROBING -> READY -> RUNNING -> ENDED
 *
 * At most AT_ONCE hosts start at a time. When all hosts are ready, the starter sends the job to every relay. The
 * first host listens at the store's port, and the other hosts probe that port. A host that fails before RUNNING
 * ends the start. Later the nodes of the job stop each other through the store, so the starter only waits. */
#include "remote/remote.h"

#include "auth/secret.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/list.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "base/version.h"
#include "ddp/context.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "output/output.h"
#include "tables/prefix.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <uv.h>

/* TELL_MS: interval between messages about hosts that have not started. START_MS: until a host must have answered;
 * longer than ssh's ConnectTimeout. PROBED_MS: until a host must have answered the probe, which takes 2 s.
 * LAST_MS: until a remote shell that must end is killed. DRAIN_MS: how long the streams of an exited remote shell
 * may stay open without a byte. */
enum {
    AT_ONCE = 32,
    TELL_MS = 5000,
    START_MS = 60000,
    PROBED_MS = 15000,
    LAST_MS = 30000,
    DRAIN_MS = 2000,
    STDERR_KEPT = 8192,
    NAMES_MAX = 8,
    FOLDED_RANKS_MAX = 1 << 20,
    SHIP_BYTES_PER_MS = 100, /* slowest connection that is worth waiting for */
    FDS_OF_OURS = 64,
    FDS_PER_HOST = 3
};

enum peer_state {
    PEER_WAITING,
    PEER_STARTING,
    PEER_HERE,
    PEER_PROBING,
    PEER_READY,
    PEER_RUNNING,
    PEER_ENDED
};

/* stdout or stderr of a remote shell. */
struct peer_stream {
    uv_pipe_t pipe;
    struct merge merge; /* whole lines */
    bool open;
};

struct peer {
    struct starter *starter;
    const struct host_spec *host;
    enum peer_state state;
    uv_process_t process;
    uv_pipe_t in;
    struct peer_stream out, err;
    struct buf head; /* the remote shell's stderr before the job runs */
    struct remote_answer answer;
    bool is_shipping;     /* its shell is reading the program of --ship, and no messages yet */
    char *reached;        /* addresses of the first host that this host reached; NULL = not probed yet */
    uint64_t deadline_ms; /* when STARTING or PROBING must have ended */
    uint64_t active_ms;   /* when the streams had their last byte, or the remote shell exited */
    int exit_code;        /* of the remote shell, set when it has exited */
    bool has_exited;
    bool exited_early;      /* before the relay began to send log files */
    struct collected files; /* with --collect_logs */
    bool sends;             /* the job has ended there, and the relay sends its log files */
    int said_code; /* exit code that the relay reported, or -1; differs from exit_code if the shell was killed */
};

struct starter {
    const struct start_facts *facts;
    struct secret *secret; /* made after the fork, because a fork does not copy the secret's page */
    struct peer *peers;
    int n, n_running, n_ended, n_starting;
    uv_loop_t loop;
    uv_timer_t beat;
    uv_poll_t lifeline, signals;
    uv_poll_t input;
    uv_timer_t fold_timer;
    struct fold *folds[2]; /* with --fold, of stdout and stderr; NULL until the first line of a worker */
    int fold_ranks;
    struct prefix folded;    /* prefix of a line of several ranks */
    struct line_row rows[2]; /* stdout and stderr, for these lines */
    struct buf fold_out[2];  /* lines to be printed */
    struct wakeup written;   /* wakes the loop when the sinks have written output */
    struct sinks *sinks;
    bool paused;               /* reading has stopped, because the console is slow */
    uv_handle_type input_type; /* kind of the user's stdin; unknown = ended or not read */
    uv_fs_t file;
    char input_bytes[32768];
    int signals_fd, lifeline_fd, input_fd;
    int exit_code;    /* the starter's exit code; -1 = no host has failed */
    uint64_t tell_ms; /* when the next message lists the hosts that have not started */
    uint64_t kill_ms; /* when the remaining remote shells are killed; 0 = not set */
    int stops;        /* how often the user has asked to stop the job */
    bool closing;
    bool collects;                    /* the relays send the log files at the end */
    bool collected;                   /* the user knows what has arrived */
    char *log_root;                   /* where they are stored */
    char token[REMOTE_TOKEN_MAX];     /* of the answers FILES and ROOM */
    struct buf held;                  /* output of the first host that may be a part of an answer ROOM */
    uint64_t input_sent, input_taken; /* bytes of the user's stdin */
    bool input_waits;                 /* for room on the first host */
};

/* --- output -------------------------------------------------------------------------------------------------- */

static void put(struct starter *s, int sink, const struct buf *bytes)
{
    if (bytes->len > 0)
        sinks_put(s->sinks, sink, buf_slice(bytes));
}

/* --- equal lines of several hosts ------------------------------------------------------------------------------ */

/* console.c does the same on one node. */

static void put_folded(struct starter *s)
{
    for (int i = 0; i < 2; i++) {
        put(s, i == 0 ? SINK_STDOUT : SINK_STDERR, &s->fold_out[i]);
        s->fold_out[i].len = 0;
    }
}

static void finish_folds(struct starter *s)
{
    for (int i = 0; i < 2 && s->folds[i] != NULL; i++)
        fold_finish(s->folds[i]);
    put_folded(s);
}

/* Append the prefix of a line that several ranks have printed. */
static bool put_ranks_prefix(struct starter *s, const struct fold_line *line, struct buf *out)
{
    char time[PREFIX_TIME_MAX], elapsed[PREFIX_TIME_MAX];
    struct prefix_values values = { 0 };
    struct buf ranks = { 0 };
    prefix_time(time, line->at.unix_us);
    prefix_elapsed(elapsed, line->at.since_us);
    bool ok = fold_print_ranks(line->ranks, &ranks) && buf_append(&ranks, "", 1);
    values.of[PREFIX_RANK] = (const char *)ranks.data;
    values.of[PREFIX_TIME] = time;
    values.of[PREFIX_ELAPSED] = elapsed;
    values.of[PREFIX_STREAM] = line->origin == &s->folds[0] ? "stdout" : "stderr";
    values.of[PREFIX_ROLE_NAME] = s->facts->cli->role;
    ok = ok && (s->folded.ranked || buf_printf(out, "[%s] ", values.of[PREFIX_RANK])) &&
         prefix_render(&s->folded, &values, PREFIX_NO_COLOUR, out);
    buf_free(&ranks);
    return ok;
}

static void on_folded(void *user, const struct fold_line *line)
{
    struct starter *s = user;
    const int i = line->origin == &s->folds[1];
    struct buf prefix = { 0 };
    if (line->ranks == NULL)
        line_show(&s->fold_out[i], &s->rows[i], line->prefix, line->text, line->kind);
    else if (put_ranks_prefix(s, line, &prefix))
        line_show(&s->fold_out[i], &s->rows[i], buf_slice(&prefix), line->text, line->kind);
    buf_free(&prefix);
}

static void on_fold_time(uv_timer_t *timer)
{
    struct starter *s = timer->data;
    const uint64_t now = clock_us();
    uint64_t next = FOLD_NOTHING;
    for (int i = 0; i < 2 && s->folds[i] != NULL; i++) {
        const uint64_t due = fold_flush(s->folds[i], now);
        next = due < next ? due : next;
    }
    put_folded(s);
    if (next != FOLD_NOTHING && !s->closing)
        uv_timer_start(timer, on_fold_time, (next - now) / 1000 + 1, 0);
}

/* Create the folds at the first line of a worker, because that line has the number of ranks. */
static bool open_folds(struct starter *s, int ranks)
{
    if (ranks > FOLDED_RANKS_MAX)
        return false;
    for (int i = 0; i < 2; i++)
        if (s->folds[i] == NULL)
            s->folds[i] = fold_new(ranks, on_folded, s);
    s->fold_ranks = s->fold_ranks > 0 ? s->fold_ranks : ranks;
    return s->folds[0] != NULL && s->folds[1] != NULL;
}

/* Append a line that is not folded, or a piece of a line, without its mark. A terminal gets no control characters of a
 * worker, because the node has printed to a pipe and has not escaped them. */
static void put_unfolded(struct starter *s, int i, struct slice line)
{
    struct marked_line m;
    finish_folds(s);
    if (line_unmark(line, &m)) {
        buf_append(&s->fold_out[i], m.prefix.data, m.prefix.len);
        line = m.text;
    }
    if (s->rows[i].escape)
        escape_put(&s->fold_out[i], line);
    else
        buf_append(&s->fold_out[i], line.data, line.len);
}

static void fold_one(struct starter *s, int i, struct slice line)
{
    struct marked_line m;
    if (line_unmark(line, &m) && open_folds(s, m.world_size) && m.rank < s->fold_ranks) {
        const struct fold_line f = { .text = m.text,
                                     .prefix = m.prefix,
                                     .at = { clock_unix_us(), clock_us() },
                                     .rank = m.rank,
                                     .origin = &s->folds[i] };
        if (fold_put(s->folds[i], &f) && !uv_is_active((uv_handle_t *)&s->fold_timer))
            uv_timer_start(&s->fold_timer, on_fold_time, FOLD_QUIET_US / 1000, 0);
        return;
    }
    put_unfolded(s, i, line); /* of ddprun, or of a rank outside of the job */
    buf_append(&s->fold_out[i], "\n", 1);
}

/* Return true if lines are printed as they arrive. JSON needs no escapes. A single host without prefixes may have a single
 * worker, whose bytes are passed on unchanged. */
static bool is_unchanged(const struct starter *s, int i)
{
    const struct cli *cli = s->facts->cli;
    return cli->json || (!cli->fold && (!s->rows[i].escape || (cli->prefix == PREFIX_OFF && s->n == 1)));
}

/* Print lines of a host, or fold them. A line of ddprun itself has no mark and is printed at once. */
static void put_lines(struct starter *s, int sink, const struct buf *lines)
{
    const int i = sink == SINK_STDERR;
    const uint8_t *at = lines->data, *end = at + lines->len, *newline;
    if (is_unchanged(s, i)) {
        put(s, sink, lines);
        return;
    }
    for (; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
        fold_one(s, i, slice_of(at, (size_t)(newline - at)));
    if (at < end) /* a piece of a long line */
        put_unfolded(s, i, slice_of(at, (size_t)(end - at)));
    put_folded(s);
}

/* Parse the prefix for lines of several ranks. */
static bool open_fold_prefix(struct starter *s)
{
    const struct cli *cli = s->facts->cli;
    struct ddp_err err;
    ddp_status status = DDP_OK;
    for (int i = 0; i < 2; i++)
        s->rows[i].escape = isatty(i == 0 ? STDOUT_FILENO : STDERR_FILENO) == 1;
    if (!cli->fold || cli->prefix == PREFIX_OFF)
        return true;
    if (cli->timestamps)
        status = prefix_add(&s->folded, "${time} ", &err);
    if (status == DDP_OK)
        status =
            prefix_add(&s->folded, cli->prefix_template != NULL ? cli->prefix_template : "[${rank}] ", &err);
    if (status != DDP_OK)
        log_error("--log_line_prefix_template=%.60s: %s", cli->prefix_template, err.msg);
    return status == DDP_OK;
}

/* Print a finding in the format of a node's reports. The finding may contain words of a host that is not trusted. */
static void print_finding(struct starter *s, const struct finding *f)
{
    struct buf out = { 0 };
    finish_folds(s);
    if (buf_printf(&out, "ddprun: %s\nddprun:   try      %s\nddprun:   finding  %s\n", f->sentence, f->advice,
                   finding_code_name(f->code))) {
        text_disarm(out.data, out.len, '\n');
        put(s, SINK_STDERR, &out);
    }
    buf_free(&out);
}

static void read_streams(struct starter *s);

/* --- messages ------------------------------------------------------------------------------------------------ */

struct send {
    uv_write_t request;
    struct buf bytes;
};

static void on_sent(uv_write_t *request, int status)
{
    struct send *send = request->data;
    (void)status; /* if the pipe is broken, the remote shell's exit follows */
    buf_free(&send->bytes);
    free(send);
}

static void send_message(struct peer *p, enum remote_message kind, struct slice body)
{
    struct send *send = calloc(1, sizeof(*send));
    if (send == NULL || !remote_put(&send->bytes, kind, body) || p->state == PEER_WAITING ||
        p->state == PEER_ENDED || p->has_exited || p->is_shipping) {
        if (send != NULL)
            buf_free(&send->bytes);
        free(send);
        return;
    }
    send->request.data = send;
    const uv_buf_t bytes = uv_buf_init((char *)send->bytes.data, (unsigned)send->bytes.len);
    if (uv_write(&send->request, (uv_stream_t *)&p->in, &bytes, 1, on_sent) != 0)
        on_sent(&send->request, UV_EPIPE);
}

/* Send the program. All hosts get the same bytes, which are not copied. */
static void send_program(struct peer *p)
{
    struct send *send = calloc(1, sizeof(*send));
    const struct slice program = p->starter->facts->ship;
    const uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)program.data, (unsigned)program.len);
    if (send == NULL)
        return;
    p->is_shipping = true;
    p->deadline_ms += program.len / SHIP_BYTES_PER_MS;
    send->request.data = send;
    if (uv_write(&send->request, (uv_stream_t *)&p->in, &bytes, 1, on_sent) != 0)
        on_sent(&send->request, UV_EPIPE);
}

static void send_text(struct peer *p, enum remote_message kind, const char *text)
{
    send_message(p, kind, slice_str(text));
}

static void send_to_all(struct starter *s, enum remote_message kind, const char *text)
{
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state != PEER_ENDED)
            send_text(&s->peers[i], kind, text);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

/* Close the stdin of every relay. Each relay then ends the job on its host. A relay that has log files to send needs
 * its stdin and gets a message instead. */
static void end_all(struct starter *s)
{
    if (s->kill_ms == 0)
        s->kill_ms = clock_ms() + LAST_MS;
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        if (p->state == PEER_WAITING) {
            p->state = PEER_ENDED;
            s->n_ended++;
        } else if (p->state == PEER_RUNNING && s->collects) {
            send_text(p, REMOTE_END, "");
        } else if (!p->has_exited && !uv_is_closing((uv_handle_t *)&p->in)) {
            uv_close((uv_handle_t *)&p->in, NULL);
        }
    }
}

static void fail(struct starter *s, const struct finding *f)
{
    if (s->exit_code < 0) {
        print_finding(s, f);
        s->exit_code = EXIT_CODE_DDPRUN;
    }
    end_all(s);
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* --- log files ------------------------------------------------------------------------------------------------- */

/* Report where the log files are, and which are missing. */
static void report_files(struct starter *s)
{
    struct buf out = { 0 };
    char size[SIZE_TEXT_MAX];
    uint64_t files = 0, bytes = 0;
    bool ok = true;
    s->collected = true;
    for (int i = 0; i < s->n; i++) {
        const struct collected *c = &s->peers[i].files;
        files += c->files;
        bytes += c->bytes;
        if (!c->ended || c->why[0] != '\0')
            ok = ok &&
                 buf_printf(&out, "ddprun: %s: log files are missing here, and are in %s_node%d there (%s)\n",
                            s->peers[i].host->name, s->log_root, i,
                            c->why[0] != '\0' ? c->why : "it did not send all of them");
    }
    if (!s->facts->cli->quiet)
        ok = ok && buf_printf(&out, "ddprun: %" PRIu64 " log files of %d host%s are in %s (%s)\n", files,
                              s->n, s->n == 1 ? "" : "s", s->log_root, words_size(size, bytes));
    if (ok)
        put(s, SINK_STDERR, &out);
    buf_free(&out);
}

/* Return true while a relay sends files. *sent and *total get the bytes of all hosts. */
static bool count_files(const struct starter *s, int *hosts, uint64_t *sent, uint64_t *total)
{
    *hosts = 0;
    *sent = *total = 0;
    for (int i = 0; i < s->n; i++) {
        const struct peer *p = &s->peers[i];
        *sent += p->files.bytes;
        *total += p->files.total_bytes;
        *hosts += p->sends && p->state == PEER_RUNNING;
    }
    return *hosts > 0;
}

/* Report the progress of a long transfer. */
static void tell_files(struct starter *s)
{
    struct buf out = { 0 };
    char sent_text[SIZE_TEXT_MAX], total_text[SIZE_TEXT_MAX];
    int hosts;
    uint64_t sent, total;
    if (s->facts->cli->quiet || clock_ms() < s->tell_ms || !count_files(s, &hosts, &sent, &total))
        return;
    s->tell_ms = clock_ms() + TELL_MS;
    if (buf_printf(&out, "ddprun: log files: %s of %s received, %d host%s still sending\n",
                   words_size(sent_text, sent), words_size(total_text, total), hosts, hosts == 1 ? "" : "s"))
        put(s, SINK_STDERR, &out);
    buf_free(&out);
}

/* Search whole lines for the answer FILES. The bytes after the answer are files. Remove the answer and these bytes from
 * `lines`. */
static void find_files(struct peer *p, struct buf *lines)
{
    struct starter *s = p->starter;
    static const char mark[] = REMOTE_ANSWER "files ";
    struct remote_answer answer;
    for (size_t from = 0; s->collects && from < lines->len;) {
        const uint8_t *at = memmem(lines->data + from, lines->len - from, mark, strlen(mark));
        const uint8_t *end = at != NULL ? memchr(at, '\n', lines->len - (size_t)(at - lines->data)) : NULL;
        if (end == NULL)
            return;
        from = (size_t)(end + 1 - lines->data);
        if (!remote_parse_answer(slice_of(at, (size_t)(end - at)), &answer) ||
            strcmp(answer.token, s->token) != 0)
            continue;
        p->sends = true;
        p->said_code = answer.port;
        s->tell_ms = clock_ms() + TELL_MS;
        collect_take(&p->files, slice_of(end + 1, lines->len - from));
        collect_take(&p->files, buf_slice(&p->out.merge.rest));
        p->out.merge.rest.len = 0;
        if (p == &s->peers[0])
            collect_take(&p->files, buf_slice(&s->held));
        lines->len = (size_t)(at - lines->data);
        if (lines->len > 0 && lines->data[lines->len - 1] != '\n' && s->n > 1)
            buf_append(lines, "\n", 1);
        return;
    }
}

/* Choose the token and create the directory. An error must appear before the job starts, not after days. */
static bool open_files(struct starter *s)
{
    unsigned char random[(REMOTE_TOKEN_MAX - 1) / 2];
    struct buf root = { 0 };
    struct ddp_err err;
    s->collects = s->facts->log_name != NULL;
    if (sys_getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        log_error("the system has no random numbers");
        return false;
    }
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(s->token + 2 * i, 3, "%02x", random[i]);
    if (!s->collects)
        return true;
    if (!buf_printf(&root, "%s/%s", s->facts->cli->log_dir, s->facts->log_name) ||
        !buf_append(&root, "", 1)) {
        log_error("--collect_logs: out of memory");
        return false;
    }
    s->log_root = (char *)root.data;
    if (logdir_make(s->log_root, true, &err) == DDP_OK)
        return true;
    log_error("--collect_logs: %s", err.msg);
    return false;
}

static void open_files_of(struct peer *p, int rank)
{
    char folder[COLLECT_FOLDER_MAX];
    struct buf path = { 0 };
    if (!p->starter->collects)
        return;
    collect_folder(rank, p->host, folder);
    if (buf_printf(&path, "%s/%s", p->starter->log_root, folder) && buf_append(&path, "", 1))
        p->files.dir = (char *)path.data;
    else
        snprintf(p->files.why, sizeof(p->files.why), "out of memory");
}

/* Close all handles when every remote shell has ended and all output is written. The loop then ends. */
static void finish_if_done(struct starter *s)
{
    if (s->n_ended < s->n || s->closing)
        return;
    finish_folds(s);
    if (s->collects && !s->collected && s->n_running > 0)
        report_files(s);
    if ((s->kill_ms == 0 || clock_ms() < s->kill_ms) && !sinks_empty(s->sinks))
        return;
    s->closing = true;
    wakeup_close(&s->written, NULL);
    uv_walk(&s->loop, close_handle, NULL);
}

/* --- the job runs ------------------------------------------------------------------------------------------- */

/* The user's stdin goes to the first host. The starter reads on when the job has taken earlier bytes, so a large file
 * needs little memory, and the rest stays unread. */

static void give_room(uv_handle_t *handle, size_t size, uv_buf_t *bytes)
{
    (void)handle;
    *bytes = uv_buf_init(malloc(size), (unsigned)size);
}

static void read_input(struct starter *s);

/* Send input to the first host. `len` 0 ends the job's stdin. */
static void send_input(struct starter *s, const char *bytes, size_t len)
{
    if (len == 0)
        s->input_type = UV_UNKNOWN_HANDLE;
    s->input_sent += len;
    send_message(&s->peers[0], REMOTE_INPUT, slice_of(bytes, len));
    if (len > 0 && !s->closing)
        read_input(s);
}

static void on_input_ready(uv_poll_t *poll, int status, int events)
{
    struct starter *s = poll->data;
    (void)status, (void)events;
    const ssize_t n = read(STDIN_FILENO, s->input_bytes, sizeof(s->input_bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    uv_poll_stop(poll);
    send_input(s, s->input_bytes, n > 0 ? (size_t)n : 0);
}

static void on_file_input(uv_fs_t *request)
{
    struct starter *s = request->data;
    const ssize_t n = request->result;
    uv_fs_req_cleanup(request);
    send_input(s, s->input_bytes, n > 0 ? (size_t)n : 0);
}

static void read_input(struct starter *s)
{
    s->input_waits = s->input_sent - s->input_taken >= REMOTE_INPUT_WINDOW;
    if (s->input_waits)
        return;
    if (s->input_type == UV_NAMED_PIPE) {
        uv_poll_start(&s->input, UV_READABLE, on_input_ready);
    } else if (s->input_type == UV_FILE) {
        const uv_buf_t room = uv_buf_init(s->input_bytes, sizeof(s->input_bytes));
        s->file.data = s;
        uv_fs_read(&s->loop, &s->file, STDIN_FILENO, &room, 1, -1, on_file_input);
    }
}

/* Watch stdin through an epoll descriptor. libuv makes each watched descriptor non-blocking, and other programs
 * may share stdin. */
static bool open_pipe_input(struct starter *s)
{
    struct epoll_event readable = { .events = EPOLLIN };
    s->input_fd = epoll_create1(EPOLL_CLOEXEC);
    s->input.data = s;
    return s->input_fd >= 0 && epoll_ctl(s->input_fd, EPOLL_CTL_ADD, STDIN_FILENO, &readable) == 0 &&
           uv_poll_init(&s->loop, &s->input, s->input_fd) == 0;
}

/* Start reading the user's stdin unless it is a terminal: reading a terminal in the background would stop this
 * process. */
static void open_input(struct starter *s)
{
    s->input_type = uv_guess_handle(STDIN_FILENO);
    if (s->input_type == UV_NAMED_PIPE && !open_pipe_input(s))
        s->input_type = UV_UNKNOWN_HANDLE;
    if (s->input_type == UV_NAMED_PIPE || s->input_type == UV_FILE)
        read_input(s);
    else
        send_input(s, "", 0);
}

/* Choose the address of the store and start the job on all hosts, which are ready. */
static void run_job(struct starter *s)
{
    const struct cli *cli = s->facts->cli;
    const char **reached = calloc((size_t)s->n, sizeof(*reached));
    char address[ENDPOINT_HOST_MAX] = "", digits[SECRET_TEXT];
    struct finding f;
    for (int i = 1; reached != NULL && i < s->n; i++)
        reached[i - 1] = s->peers[i].reached;
    if (cli->origin[OPT_MASTER_ADDR] > FROM_DEFAULT)
        snprintf(address, sizeof(address), "%s", cli->master_addr);
    else if (reached != NULL)
        start_choose_address(s->peers[0].answer.addresses, reached, s->n - 1, address);
    free(reached);
    if (address[0] == '\0') {
        int i = 1;
        while (i < s->n - 1 && s->peers[i].reached[0] != '\0')
            i++;
        finding_make(&f, FINDING_NO_COMMON_ADDRESS, s->peers[0].host->name, "other", s->peers[i].host->name,
                     "addresses", s->peers[0].answer.addresses, NULL);
        fail(s, &f);
        return;
    }
    secret_format(s->secret, digits);
    const struct start_meeting meeting = { .nodes = s->n,
                                           .address = address,
                                           .port = s->peers[0].answer.port,
                                           .secret = digits,
                                           .token = s->token };
    for (int i = 0; i < s->n; i++) {
        struct buf body = { 0 };
        if (start_job(s->facts, s->peers[i].host, i, &meeting, &body))
            send_message(&s->peers[i], REMOTE_JOB, buf_slice(&body));
        buf_free(&body);
        s->peers[i].state = PEER_RUNNING;
        s->n_running++;
    }
    secret_wipe(digits);
    open_input(s);
}

/* --- the start ------------------------------------------------------------------------------------------------ */

static void start_more(struct starter *s);
static void send_listen(struct peer *first);

/* Move every host to its next state where possible. Start the job when all hosts are ready. */
static void advance(struct starter *s)
{
    struct peer *first = &s->peers[0];
    int ready = 0;
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        struct buf body = { 0 };
        if (p->state == PEER_HERE && (p == first || s->facts->cli->origin[OPT_MASTER_ADDR] > FROM_DEFAULT)) {
            p->state = PEER_READY;
        } else if (p->state == PEER_HERE && first->answer.port > 0 && first->state == PEER_READY) {
            p->state = PEER_PROBING;
            p->deadline_ms = clock_ms() + PROBED_MS;
            if (buf_printf(&body, "%d %s %s", first->answer.port, first->answer.token,
                           first->answer.addresses))
                send_message(p, REMOTE_PROBE, buf_slice(&body));
            buf_free(&body);
        }
        ready += p->state == PEER_READY;
    }
    start_more(s);
    if (ready == s->n && s->exit_code < 0)
        run_job(s);
}

/* Fail the start if the relay has another version, because that version may not accept the options of this ddprun. */
static bool check_version(struct peer *p, const struct remote_answer *answer)
{
    char words[128];
    struct finding f;
    if (version_matches(answer->version, DDP_VERSION))
        return true;
    snprintf(words, sizeof(words), "its ddprun is version %s, and this one is %s", answer->version,
             DDP_VERSION);
    finding_make(&f, FINDING_HOST_NOT_READY, p->host->name, "words", words, NULL);
    fail(p->starter, &f);
    return false;
}

/* Process an answer of the relay. The first host sends HERE twice; the second HERE contains the port. */
static void take_answer(struct peer *p, const struct remote_answer *answer)
{
    struct starter *s = p->starter;
    const bool has_arrived = answer->news == REMOTE_HERE && p->is_shipping;
    p->is_shipping = p->is_shipping && !has_arrived;
    if (has_arrived && p == &s->peers[0])
        send_listen(p);
    if (answer->news == REMOTE_HERE && p->state == PEER_STARTING && check_version(p, answer)) {
        if (p == &s->peers[0] && s->n > 1 && answer->port == 0)
            return;
        p->answer = *answer;
        p->state = PEER_HERE;
        s->n_starting--;
    } else if (answer->news == REMOTE_REACHED && p->state == PEER_PROBING) {
        p->reached = strdup(answer->addresses);
        p->state = p->reached != NULL ? PEER_READY : p->state;
    }
    advance(s);
}

/* Parse the stdout lines that arrive before the job runs. Lines that are not answers come from a login shell and
 * are dropped. */
static void take_head(struct peer *p, struct slice bytes)
{
    struct remote_answer answer;
    const uint8_t *end;
    if (p->out.merge.rest.len > REMOTE_LINE_MAX || !buf_append(&p->out.merge.rest, bytes.data, bytes.len))
        return;
    while ((end = memchr(p->out.merge.rest.data, '\n', p->out.merge.rest.len)) != NULL) {
        const size_t len = (size_t)(end - (const uint8_t *)p->out.merge.rest.data);
        if (remote_parse_answer(slice_of(p->out.merge.rest.data, len), &answer))
            take_answer(p, &answer);
        buf_consume(&p->out.merge.rest, len + 1);
    }
}

/* Remove the relay's last answer from the job's output. The answer may follow an unfinished line of the job. */
static void take_last_answer(struct peer *p, struct buf *lines)
{
    struct remote_answer answer;
    size_t at = lines->len;
    while (at > 1 && ((const char *)lines->data)[at - 2] != '\n')
        at--;
    at -= at > 0;
    if (lines->len == 0 ||
        !remote_parse_answer(slice_of((const uint8_t *)lines->data + at, lines->len - at - 1), &answer))
        return;
    p->said_code = answer.news == REMOTE_ENDED ? answer.port : p->said_code;
    lines->len = at + answer.before;
    if (answer.before > 0 && p->starter->n > 1)
        buf_append(lines, "\n", 1); /* ends the job's line, because a line of another host may follow */
}

/* Remove the answers ROOM from the output of the first host. Each of them lets the starter read more input. */
static bool take_room(struct starter *s, struct slice bytes, struct buf *out)
{
    uint64_t taken = s->input_taken;
    const bool ok =
        buf_append(&s->held, bytes.data, bytes.len) && remote_remove_room(&s->held, s->token, out, &taken);
    if (taken > s->input_taken && taken <= s->input_sent)
        s->input_taken = taken;
    if (s->input_waits)
        read_input(s);
    return ok;
}

static void take_bytes(struct peer *p, bool is_err, struct slice bytes)
{
    struct buf lines = { 0 }, clean = { 0 };
    if (p->sends && !is_err) {
        collect_take(&p->files, bytes);
        return;
    }
    if (p->state != PEER_RUNNING && p->state != PEER_ENDED) {
        if (!is_err)
            take_head(p, bytes);
        else if (p->head.len < STDERR_KEPT)
            buf_append(&p->head, bytes.data, bytes.len);
        return;
    }
    bool ok = true;
    if (p == &p->starter->peers[0] && !is_err) {
        ok = take_room(p->starter, bytes, &clean);
        bytes = buf_slice(&clean);
    }
    ok = merge_feed(is_err ? &p->err.merge : &p->out.merge, bytes, &lines) && ok;
    if (!is_err)
        find_files(p, &lines);
    if (!is_err && !p->sends)
        take_last_answer(p, &lines);
    if (ok)
        put_lines(p->starter, is_err ? SINK_STDERR : SINK_STDOUT, &lines);
    buf_free(&lines);
    buf_free(&clean);
    read_streams(p->starter);
}

static void end_peer(struct peer *p);

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct peer *p = stream->data;
    const bool is_err = stream == (uv_stream_t *)&p->err.pipe;
    struct peer_stream *which = is_err ? &p->err : &p->out;
    p->active_ms = clock_ms();
    if (n > 0)
        take_bytes(p, is_err, slice_of(bytes->base, (size_t)n));
    free(bytes->base);
    if (n >= 0)
        return;
    which->open = false;
    uv_close((uv_handle_t *)stream, NULL);
    end_peer(p);
}

/* Stop reading while the console is slow. The workers then block on output, and the starter buffers nothing. */
static void read_streams(struct starter *s)
{
    const bool behind = sinks_is_behind(s->sinks, SINK_STDOUT, s->paused) ||
                        sinks_is_behind(s->sinks, SINK_STDERR, s->paused);
    if (behind == s->paused)
        return;
    s->paused = behind;
    for (int i = 0; i < s->n; i++) {
        struct peer_stream *streams[] = { &s->peers[i].out, &s->peers[i].err };
        for (int k = 0; k < 2; k++)
            if (streams[k]->open && behind)
                uv_read_stop((uv_stream_t *)&streams[k]->pipe);
            else if (streams[k]->open)
                uv_read_start((uv_stream_t *)&streams[k]->pipe, give_room, on_bytes);
    }
}

/* Mark the host as ended after its remote shell has exited and both streams have closed. Report a failure. */
static void end_peer(struct peer *p)
{
    struct starter *s = p->starter;
    struct buf lines = { 0 };
    struct finding f;
    char words[32];
    if (!p->has_exited || p->out.open || p->err.open || p->state == PEER_ENDED)
        return;
    const bool ran = p->state == PEER_RUNNING;
    const int exit_code = p->sends && !p->exited_early ? p->said_code : p->exit_code;
    p->state = PEER_ENDED;
    s->n_ended++;
    if (merge_finish(&p->err.merge, &lines))
        put_lines(s, SINK_STDERR, &lines);
    lines.len = 0;
    if (ran && !p->sends && p == &s->peers[0] && merge_feed(&p->out.merge, buf_slice(&s->held), &lines))
        put_lines(s, SINK_STDOUT, &lines);
    lines.len = 0;
    if (ran && merge_finish(&p->out.merge, &lines))
        put_lines(s, SINK_STDOUT, &lines);
    buf_free(&lines);
    if (!ran && s->exit_code < 0) {
        buf_append(&p->head, "", 1);
        start_explain(s->facts, p->host, p->exit_code, p->head.len > 1 ? (const char *)p->head.data : "", &f);
        fail(s, &f);
    } else if (ran && s->kill_ms == 0 && p->said_code != exit_code) {
        snprintf(words, sizeof(words), "exit status %d", p->exit_code);
        s->exit_code = -1; /* forget the code of a host that ended earlier as a consequence */
        finding_make(&f, FINDING_HOST_LOST, p->host->name, "words", words, NULL);
        fail(s, &f);
    } else if (ran && s->exit_code < 0 && exit_code != 0) {
        s->exit_code = exit_code;
    }
    finish_if_done(s);
}

static void on_exit_of_shell(uv_process_t *process, int64_t status, int signal)
{
    struct peer *p = process->data;
    p->has_exited = true;
    p->exited_early = !p->sends;
    p->active_ms = clock_ms();
    p->exit_code = signal != 0 ? 255 : (int)status;
    close_handle((uv_handle_t *)process, NULL);
    close_handle((uv_handle_t *)&p->in, NULL);
    end_peer(p);
}

static void spawn_shell(struct peer *p)
{
    struct starter *s = p->starter;
    struct ddp_err err;
    struct finding f;
    char **argv;
    uv_stdio_container_t stdio[3];
    uv_pipe_t *pipes[3] = { &p->in, &p->out.pipe, &p->err.pipe };
    if (start_command(s->facts, p->host, &argv, &err) != DDP_OK) {
        finding_make(&f, FINDING_HOST_NOT_READY, p->host->name, "words", err.msg, NULL);
        fail(s, &f);
        return;
    }
    for (int i = 0; i < 3; i++) {
        uv_pipe_init(&s->loop, pipes[i], 0);
        pipes[i]->data = p;
        stdio[i].flags = UV_CREATE_PIPE | (i == 0 ? UV_READABLE_PIPE : UV_WRITABLE_PIPE);
        stdio[i].data.stream = (uv_stream_t *)pipes[i];
    }
    /* Ctrl-C in the terminal must not signal the remote shell, so it runs in a new session. The starter passes the
     * signal on as a message. */
    const uv_process_options_t options = { .file = argv[0],
                                           .args = argv,
                                           .stdio = stdio,
                                           .stdio_count = 3,
                                           .exit_cb = on_exit_of_shell,
                                           .flags = UV_PROCESS_DETACHED };
    p->process.data = p;
    p->state = PEER_STARTING;
    p->deadline_ms = clock_ms() + START_MS;
    s->n_starting++;
    const int rc = uv_spawn(&s->loop, &p->process, &options);
    if (rc != 0) {
        p->state = PEER_ENDED;
        s->n_ended++;
        p->has_exited = true;
        for (int i = 0; i < 3; i++)
            uv_close((uv_handle_t *)pipes[i], NULL);
        start_explain(s->facts, p->host, -1, uv_strerror(rc), &f);
        fail(s, &f);
    } else {
        p->out.open = uv_read_start((uv_stream_t *)&p->out.pipe, give_room, on_bytes) == 0;
        p->err.open = uv_read_start((uv_stream_t *)&p->err.pipe, give_room, on_bytes) == 0;
        if (start_ships(s->facts, p->host))
            send_program(p);
    }
    start_free(argv);
}

/* Let the first host hold the port of the store. */
static void send_listen(struct peer *first)
{
    const struct cli *cli = first->starter->facts->cli;
    char port[8];
    snprintf(port, sizeof(port), "%d", cli->origin[OPT_MASTER_PORT] > FROM_DEFAULT ? cli->master_port : 0);
    if (first->starter->n > 1)
        send_text(first, REMOTE_LISTEN, port);
}

static void start_more(struct starter *s)
{
    for (int i = 0; i < s->n && s->n_starting < AT_ONCE && s->exit_code < 0; i++)
        if (s->peers[i].state == PEER_WAITING) {
            spawn_shell(&s->peers[i]);
            if (i == 0)
                send_listen(&s->peers[0]);
        }
}

/* --- signals and time ----------------------------------------------------------------------------------------- */

/* Pass a signal to all hosts. While the job runs on a host, the signal does not end the transfer from other hosts. */
static void send_signal(struct starter *s, const char *number)
{
    bool runs = false;
    for (int i = 0; i < s->n; i++)
        runs = runs || (s->peers[i].state == PEER_RUNNING && !s->peers[i].sends);
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state != PEER_ENDED && !(runs && s->peers[i].sends))
            send_text(&s->peers[i], REMOTE_SIGNAL, number);
}

/* Pass a signal to all hosts. The nodes decide what the signal does. */
static void take_signal(struct starter *s, int number)
{
    char text[8];
    const bool stop = signals_act(s->facts->cli->stop_signals, number) == SIGNAL_STOP;
    snprintf(text, sizeof(text), "%d", number);
    s->stops += stop;
    if (s->n_running == 0 && stop) {
        s->exit_code = s->exit_code < 0 ? 128 + number : s->exit_code;
        end_all(s);
        finish_if_done(s);
        return;
    }
    send_signal(s, text);
    if (s->stops >= 2 && s->kill_ms == 0)
        s->kill_ms = clock_ms() + LAST_MS;
}

static void on_lifeline(uv_poll_t *poll, int status, int events)
{
    struct starter *s = poll->data;
    struct signal_heard heard;
    ssize_t got;
    (void)status, (void)events;
    while ((got = read(s->lifeline_fd, &heard, sizeof(heard))) == (ssize_t)sizeof(heard))
        take_signal(s, heard.signal);
    if (got == 0) { /* the guardian has died */
        uv_poll_stop(poll);
        s->exit_code = EXIT_CODE_DDPRUN;
        s->collects = false;
        end_all(s);
        finish_if_done(s);
    }
}

static void on_signals(uv_poll_t *poll, int status, int events)
{
    struct starter *s = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (read(s->signals_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCONT)
            take_signal(s, (int)info.ssi_signo);
}

/* Close the streams of an exited remote shell if another process keeps them open, for example a master connection
 * of ssh. A paused host stays open, because unread bytes may remain. */
static void drain_peer(struct peer *p, uint64_t now)
{
    struct peer_stream *streams[] = { &p->out, &p->err };
    const bool is_late = p->starter->kill_ms != 0 && now >= p->starter->kill_ms;
    if (p->starter->paused)
        p->active_ms = now;
    if (!p->has_exited || p->state == PEER_ENDED || (now < p->active_ms + DRAIN_MS && !is_late))
        return;
    for (int i = 0; i < 2; i++)
        if (streams[i]->open) {
            streams[i]->open = false;
            uv_close((uv_handle_t *)&streams[i]->pipe, NULL);
        }
    end_peer(p);
}

static void check_deadlines(struct starter *s)
{
    const uint64_t now = clock_ms();
    for (int i = 0; i < s->n && s->kill_ms != 0 && s->stops < 2; i++)
        if (s->peers[i].sends && s->peers[i].state == PEER_RUNNING && now < s->peers[i].active_ms + LAST_MS)
            s->kill_ms = now + LAST_MS; /* files arrive */
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        const bool asked = p->state == PEER_STARTING || p->state == PEER_PROBING;
        struct finding f;
        char words[64], shell[START_SHELL_MAX];
        if (asked && !p->has_exited && now >= p->deadline_ms && s->exit_code < 0) {
            snprintf(words, sizeof(words), "no answer%s within %d s",
                     p->state == PEER_PROBING ? " to the probe" : "",
                     (p->state == PEER_PROBING ? PROBED_MS : START_MS) / 1000);
            finding_make(&f, FINDING_HOST_NOT_REACHED, p->host->name, "words", words, "shell",
                         start_shell(s->facts->cli, p->host, shell), NULL);
            fail(s, &f);
            uv_process_kill(&p->process, SIGTERM);
        }
        if (s->kill_ms != 0 && now >= s->kill_ms && p->state != PEER_ENDED && !p->has_exited) {
            log_error("%s: the remote shell has not ended and is killed; check this host for remaining "
                      "processes of the job",
                      p->host->name);
            uv_process_kill(&p->process, SIGKILL);
        }
        drain_peer(p, now);
    }
}

/* Print which hosts have not started yet, every TELL_MS. */
static void tell_waiting(struct starter *s)
{
    struct buf names = { 0 }, out = { 0 };
    int waits = 0;
    if (s->facts->cli->quiet || s->n_running > 0 || s->exit_code >= 0 || clock_ms() < s->tell_ms)
        return;
    s->tell_ms = clock_ms() + TELL_MS;
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state != PEER_READY && waits++ < NAMES_MAX)
            buf_printf(&names, " %s", s->peers[i].host->name);
    if (buf_printf(&out, "ddprun: waiting for %d of %d hosts:%.*s%s\n", waits, s->n, (int)names.len,
                   names.len > 0 ? (const char *)names.data : "", waits > NAMES_MAX ? " ..." : ""))
        put(s, SINK_STDERR, &out);
    buf_free(&names);
    buf_free(&out);
}

static void on_beat(uv_timer_t *timer)
{
    struct starter *s = timer->data;
#ifdef __SANITIZE_THREAD__
    raise(
        SIGCHLD); /* ThreadSanitizer loses a signal that interrupts it; libuv then looks for ended children again */
#endif
    send_to_all(s, REMOTE_BEAT, "");
    tell_waiting(s);
    tell_files(s);
    check_deadlines(s);
    finish_if_done(s);
}

static void on_written(void *user)
{
    struct starter *s = user;
    read_streams(s);
    finish_if_done(s);
}

static void ring(void *user)
{
    wakeup_ring(&((struct starter *)user)->written);
}

/* --- from start to end ------------------------------------------------------------------------------------------ */

/* Raise the descriptor limit towards the number that `hosts` hosts need, at most to the hard limit. */
static void raise_fd_limit(int hosts)
{
    struct rlimit limit;
    const rlim_t need = FDS_OF_OURS + FDS_PER_HOST * (rlim_t)hosts;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return;
    limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static bool open_starter(struct starter *s, int lifeline)
{
    sigset_t watched;
    raise_fd_limit(s->n);
    sigemptyset(&watched);
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signal_rows[i].act != SIGNAL_NONE && signal_rows[i].act != SIGNAL_CHILD)
            sigaddset(&watched, signal_rows[i].number);
    sigset_t child; /* stays unblocked, because libuv catches SIGCHLD with a handler */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    s->signals_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->lifeline_fd = lifeline;
    if (s->signals_fd < 0 || uv_loop_init(&s->loop) != 0 ||
        !wakeup_open(&s->written, &s->loop, on_written, s))
        return false;
    s->sinks = sinks_new(WRITER_BLOCK, ring, s);
    uv_timer_init(&s->loop, &s->beat);
    uv_timer_init(&s->loop, &s->fold_timer);
    uv_poll_init(&s->loop, &s->lifeline, lifeline);
    uv_poll_init(&s->loop, &s->signals, s->signals_fd);
    s->beat.data = s->lifeline.data = s->signals.data = s->fold_timer.data = s;
    return s->sinks != NULL && uv_timer_start(&s->beat, on_beat, REMOTE_BEAT_MS, REMOTE_BEAT_MS) == 0 &&
           uv_poll_start(&s->lifeline, UV_READABLE, on_lifeline) == 0 &&
           uv_poll_start(&s->signals, UV_READABLE, on_signals) == 0;
}

static void close_starter(struct starter *s)
{
    uv_loop_close(&s->loop);
    sinks_free(s->sinks);
    secret_free(s->secret);
    for (int i = 0; i < s->n; i++) {
        merge_free(&s->peers[i].out.merge);
        merge_free(&s->peers[i].err.merge);
        buf_free(&s->peers[i].head);
        collect_close(&s->peers[i].files);
        free(s->peers[i].reached);
    }
    free(s->peers);
    buf_free(&s->held);
    free(s->log_root);
    for (int i = 0; i < 2; i++) {
        fold_free(s->folds[i]);
        buf_free(&s->fold_out[i]);
    }
    close(s->signals_fd);
    if (s->input_fd >= 0)
        close(s->input_fd);
}

int starter_run(void *arg, int lifeline)
{
    const struct starter_job *job = arg;
    struct starter s = {
        .facts = job->facts, .n = job->n, .exit_code = -1, .tell_ms = clock_ms() + TELL_MS, .input_fd = -1
    };
    struct ddp_err err;
    if (secret_make(&s.secret, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_CODE_DDPRUN;
    }
    if (!open_fold_prefix(&s) || !open_files(&s))
        return EXIT_CODE_DDPRUN;
    s.peers = calloc((size_t)job->n, sizeof(*s.peers));
    if (s.peers == NULL || !open_starter(&s, lifeline)) {
        log_error("cannot start %d hosts: out of memory or descriptors", job->n);
        return EXIT_CODE_DDPRUN;
    }
    for (int i = 0; i < s.n; i++) {
        s.peers[i].starter = &s;
        s.peers[i].said_code = -1;
        s.peers[i].host = &job->hosts[i];
        open_files_of(&s.peers[i], i);
    }
    start_more(&s);
    finish_if_done(&s);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    close_starter(&s);
    return s.exit_code < 0 ? EXIT_CODE_OK : s.exit_code;
}

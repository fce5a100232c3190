/* starter.c -- see remote.h. The starter runs a remote shell for each host, and prints the output of the relays. If a
 * host fails before its state is RUNNING, the starter ends the job on all hosts. Later the starter only passes on
 * input, output, findings and log files, because the nodes of the job stop each other through the store. */
#include "remote/remote.h"

#include "auth/secret.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "base/options.h"
#include "contain/procfs.h"
#include "ddp/context.h"
#include "output/console.h"
#include "output/log_files.h"
#include "output/output.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
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

/* STATUS_MS: interval of the messages about hosts that have not started
 * LAST_MS: time that a remote shell has to exit after end_all(), or after the end of the job on its host. After this
 * time, the starter kills the remote shell. See last_ms.
 * OUTPUT_LAST_MS: after the remote shells are killed, the starter waits at most this time for a stuck terminal or disk
 * that does not accept the last output
 * BRANCH_LAST_MS: after the end of the last host, the starter kills the branches that have not ended after this time
 * BRANCH_SILENT_MS: before the job runs, a branch ends if the starter is silent for this time */
enum {
    AT_ONCE = 32,
    STATUS_MS = 5000,
    LAST_MS = 30000,
    OUTPUT_LAST_MS = 1000,
    BRANCH_LAST_MS = 2000,
    BRANCH_SILENT_MS = 60000,
    STDERR_KEPT = 8192,
    NAMES_MAX = 8,
    FDS_OF_OURS = 64, /* descriptors of the starter that belong to no host */
    FDS_PER_HOST = 3
};

/* The slots of host i: SLOT_RELAY for the link to the relay, and SLOT_BRANCH for the link to the branch. */
#define SLOT_RELAY(i)  (2 * (i))
#define SLOT_BRANCH(i) (2 * (i) + 1)

/* The states of a host:
 *
 *     WAITING -> STARTING -> HERE -> PROBING -> READY -> RUNNING -> ENDED
 *
 * The first host listens on the store's port. The other hosts probe this port, unless --master_addr is set. When all
 * hosts are READY, the starter sends the job to every relay. */
enum peer_state {
    PEER_WAITING,
    PEER_STARTING,
    PEER_HERE,
    PEER_PROBING,
    PEER_READY,
    PEER_RUNNING,
    PEER_ENDED
};

struct peer {
    struct starter *starter;
    const struct host_spec *host;
    enum peer_state state;
    int above;             /* index of the host that starts this host; -1 for the starter */
    bool has_children;     /* this host starts other hosts */
    int n_starting;        /* number of hosts in the state STARTING that this host starts */
    struct link *link;     /* link to the relay; NULL before the relay's start */
    struct link *trunk;    /* link to the branch, which starts other hosts; NULL if this host has no branch */
    struct merge out, err; /* join the pieces of the job's output into whole lines */
    /* bytes of the shell's stdout that are not printed yet, because they may be a part of an answer */
    struct buf held;
    struct buf head;             /* the remote shell's stderr before the job runs */
    struct buf greeting;         /* the shell's stdout before the job runs, without the relay's answers */
    struct remote_answer answer; /* the relay's last answer of the kind HERE */
    bool is_shipping;            /* the remote shell still reads the program of --ship, so send no messages */
    char *reached; /* the first host's addresses that this host reached; NULL until they are reported */
    uint64_t deadline_ms;    /* when the state STARTING or PROBING must have ended */
    uint64_t started_ms;     /* start of the remote shell */
    uint64_t active_ms;      /* time of the shell's last output, or of its exit if the exit was later */
    bool has_failed;         /* the relay could not start the job and has printed why */
    bool exited_early;       /* the remote shell exited before the relay began to send log files */
    struct collected *files; /* received log files, with --collect_logs; borrowed */
    bool sends;              /* the job has ended on this host, and the relay sends its log files */
    uint64_t over_ms;        /* when the job and the transfer of its log files ended; 0 until then */
    bool reads_input;        /* the user's stdin is sent to this host */
    uint64_t input_taken;    /* how many bytes of the user's stdin the job's pipe on this host has accepted */
    bool killed_late;        /* the remote shell outlived the job and was killed */
    /* exit code that the relay has sent in its last answer; -1 until this answer arrives. The exit code of the remote
     * shell may be different */
    int reported_code;
};

struct starter {
    const struct start_facts *facts;
    struct secret *secret; /* created after the fork, because a fork does not copy the secret's page */
    struct peer *peers;
    struct links *links;
    int n;
    int n_running;   /* number of hosts that have received the job */
    uint64_t job_ms; /* when the starter sent the job to the hosts; 0 before that */
    int n_ended;     /* number of hosts in the state ENDED */
    int n_starting;  /* number of hosts in the state STARTING that the starter itself starts */
    uv_loop_t loop;
    uv_timer_t beat;
    uv_poll_t lifeline; /* the pipe from the guardian; EOF means that the guardian has died */
    uv_poll_t signals;
    uv_poll_t input;                /* the user's stdin */
    struct buf finished;            /* the event `finished` of a node, which is printed at the end */
    const struct peer *finished_of; /* the node that has sent `finished`; NULL before that */
    bool is_finished_own;           /* "ended_by" in `finished` is null: no other node has ended the job */
    uv_timer_t fold_timer;          /* expires when the console must print a waiting line */
    struct hosts_console console;
    struct wakeup written; /* wakes the loop when the sinks have written output */
    struct sinks *sinks;
    bool paused;           /* no output is read, because the console is slow */
    bool has_probed_again; /* probe_again() was called: the hosts probe for the second time */
    bool reported_flat;    /* start_flat() has printed its message */
    /* type of the user's stdin; UV_UNKNOWN_HANDLE if stdin has ended or is not read */
    uv_handle_type input_type;
    uv_fs_t file; /* read request for a stdin that is a file */
    char input_bytes[32768];
    int signals_fd, lifeline_fd, input_fd;
    int exit_code; /* -1 while no host has failed */
    /* the host whose exit code is preferred as the exit code of the job: the first host whose ddprun ended before the
     * first round, or host 0 if there is no such host */
    const struct peer *decides;
    bool has_passed_end; /* the other hosts were informed that ddprun has ended on a host */
    bool is_of_host;     /* `exit_code` is the exit code of a host */
    /* time of the next message about progress */
    uint64_t status_ms;
    uint64_t kill_ms; /* when the remaining remote shells are killed; 0 if not set */
    uint64_t end_ms;  /* when the last host ended; 0 before that */
    int stops;        /* how many signals of the user have requested to stop the job */
    int first_stop;   /* the first signal that requested a stop; 0 before it arrives */
    struct stop_memory stop_memory;
    bool closing;
    bool collects;  /* --collect_logs is set, so the relays send the log files at the end of the job */
    bool collected; /* the report about log files was printed */
    struct collection collection;
    char token[REMOTE_TOKEN_MAX]; /* random token that the message JOB contains; see enum remote_news */
    uint64_t input_sent; /* how many bytes of the user's stdin were sent to each host that reads stdin */
    bool input_waits;    /* no more input is sent until the job has read earlier input */
    bool input_rests;    /* another job of the user's shell is in the terminal's foreground */
    int source;          /* descriptor of the user's stdin */
};

/* --- output -------------------------------------------------------------------------------------------------- */

static void write_sink(struct starter *s, int sink, const struct buf *bytes)
{
    if (bytes->len > 0)
        sinks_write(s->sinks, sink, buf_slice(bytes));
}

static void on_fold_time(uv_timer_t *timer)
{
    struct starter *s = timer->data;
    hosts_console_time(&s->console);
}

static void on_fold_waits(void *user, uint64_t us)
{
    struct starter *s = user;
    if (!s->closing && !uv_is_active((uv_handle_t *)&s->fold_timer))
        uv_timer_start(&s->fold_timer, on_fold_time, us / 1000 + 1, 0);
}

/* Return true if the line is the event `finished` of a node. Set *is_own to true if "ended_by" is null in the event's
 * report. Null means that no failure of another node has ended the job. */
static bool parse_finished(struct slice line, bool *is_own)
{
    static const char word[] = "\"finished\"";
    if (((const char *)line.data)[0] != '{' || memmem(line.data, line.len, word, sizeof(word) - 1) == NULL)
        return false; /* do not parse a line without `word`, because the parser is slow */
    cJSON *o = cJSON_ParseWithLength(line.data, line.len);
    const cJSON *report = cJSON_GetObjectItemCaseSensitive(o, "report");
    const char *event = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "event"));
    const bool found = event != NULL && strcmp(event, "finished") == 0;
    *is_own = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(report, "ended_by"));
    cJSON_Delete(o);
    return found;
}

/* Keep one event `finished`, which is printed at the end. Prefer the events of nodes whose own worker has ended the
 * job. If several events are equally preferred, keep the event of the node with the lowest rank. */
static void keep_finished(struct peer *p, struct slice line, bool is_own)
{
    struct starter *s = p->starter;
    if (s->finished_of != NULL && is_own <= s->is_finished_own &&
        (is_own != s->is_finished_own || p >= s->finished_of))
        return;
    s->finished.len = 0;
    s->finished_of = p;
    s->is_finished_own = is_own;
    buf_append(&s->finished, line.data, line.len);
}

/* Print lines that contain no event `finished`. */
static void print_plain_lines(struct starter *s, int sink, const char *from, const char *to)
{
    if (from < to)
        hosts_console_print(&s->console, sink, slice_of(from, (size_t)(to - from)));
}

/* Return true if the line is a hint: the line after a message of a host's ddprun, or the last row of a report. */
static bool is_hint(struct slice line)
{
    return slice_begins_with(line, "ddprun:   (ddprun explain ") ||
           slice_begins_with(line, "           (ddprun explain ");
}

/* Return true if this line of a host must not be printed now:
 *   - with --json, an event `finished`, because only one such event is printed, at the end
 *   - the hint of a host's ddprun if the user has already seen a hint */
static bool is_withheld(struct peer *p, int sink, struct slice line)
{
    bool is_own;
    if (sink == SINK_STDERR)
        return is_hint(line) && !log_hint_is_due();
    if (!parse_finished(line, &is_own))
        return false;
    keep_finished(p, line, is_own);
    return true;
}

static void print_host_lines(struct peer *p, int sink, const struct buf *lines)
{
    struct starter *s = p->starter;
    const struct start_facts *f = s->facts;
    const bool may_withhold = sink == SINK_STDERR ? f->terminal : f->cli->json;
    const char *at = (const char *)lines->data, *end = at + lines->len, *from = at, *newline;
    for (; may_withhold && at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at = newline + 1) {
        if (!is_withheld(p, sink, slice_of(at, (size_t)(newline + 1 - at))))
            continue;
        print_plain_lines(s, sink, from, at);
        from = newline + 1;
    }
    print_plain_lines(s, sink, from, end);
}

/* Print a finding in the format of a node's reports. The finding may contain text from a host that is not trusted, so
 * control characters are replaced. */
static void print_finding(struct starter *s, const struct finding *f)
{
    struct buf out = { 0 };
    const char *code = finding_code_name(f->code);
    hosts_console_finish(&s->console);
    bool ok = buf_printf(&out, "ddprun: %s\nddprun:   try      %s\nddprun:   finding  %s\n", f->sentence,
                         f->advice, code);
    if (log_hint_is_due())
        ok = ok && buf_printf(&out, "ddprun:   (ddprun explain %s)\n", code);
    if (ok) {
        text_disarm(out.data, out.len, '\n');
        write_sink(s, SINK_STDERR, &out);
    }
    buf_free(&out);
}

static void read_streams(struct starter *s);
static void print_stop(struct starter *s, const struct received_signal *received, const char *effect);

/* --- messages ------------------------------------------------------------------------------------------------ */

static bool has_exited(const struct peer *p)
{
    return p->link != NULL && link_has_exited(p->link);
}

/* Send a message, unless the host has ended or its remote shell still reads the program of --ship. Return false if the
 * body is too long or memory is short. */
static bool send_message(struct peer *p, enum remote_message kind, struct slice body)
{
    struct buf out = { 0 };
    const bool ok = remote_encode(&out, kind, body);
    if (ok && p->link != NULL && p->state != PEER_ENDED && !p->is_shipping)
        link_send(p->link, buf_slice(&out));
    buf_free(&out);
    return ok;
}

static void send_to_branches(struct starter *s, enum remote_message kind, const char *text)
{
    struct buf out = { 0 };
    if (remote_encode(&out, kind, slice_str(text)))
        for (int i = 0; i < s->n; i++)
            if (s->peers[i].trunk != NULL)
                link_send(s->peers[i].trunk, buf_slice(&out));
    buf_free(&out);
}

static void send_text(struct peer *p, enum remote_message kind, const char *text)
{
    send_message(p, kind, slice_str(text));
}

static void send_to_all(struct starter *s, enum remote_message kind, const char *text)
{
    send_to_branches(s, kind, text);
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state != PEER_ENDED)
            send_text(&s->peers[i], kind, text);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

/* Return the time in ms from end_all() until the remaining remote shells are killed. Before the job runs, a short
 * --grace shortens this time. */
static uint64_t last_ms(const struct starter *s)
{
    const uint64_t grace_ms = s->facts->cli->grace_ms;
    return s->n_running == 0 && grace_ms < LAST_MS ? grace_ms : LAST_MS;
}

/* End the job on all hosts: close the stdin of every relay. With --collect_logs, a relay that runs the job gets the
 * message END instead, because the relay needs its stdin until the log files are sent. If a relay has not answered yet,
 * its remote shell may wait for the host. So also send SIGTERM to this shell. */
static void end_all(struct starter *s)
{
    if (s->kill_ms == 0)
        s->kill_ms = clock_ms() + last_ms(s);
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        if (p->state == PEER_WAITING) {
            p->state = PEER_ENDED;
            s->n_ended++;
        } else if (p->state == PEER_RUNNING && s->collects) {
            send_text(p, REMOTE_END, "");
        } else if (p->link != NULL) {
            link_close(p->link);
            if (p->state == PEER_STARTING)
                link_kill(p->link, SIGTERM);
        }
    }
}

/* Print the finding, and end the job on all hosts. Only the first failure is printed. */
static void fail(struct starter *s, const struct finding *f)
{
    if (s->exit_code < 0) {
        print_finding(s, f);
        s->exit_code = EXIT_CODE_DDPRUN;
        s->is_of_host = false;
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

static void report_files(struct starter *s)
{
    struct buf out = { 0 };
    s->collected = true;
    if (collection_report(&s->collection, s->facts->cli->quiet, &out))
        write_sink(s, SINK_STDERR, &out);
    buf_free(&out);
}

/* Report the progress of a long transfer. */
static void print_files_progress(struct starter *s)
{
    struct buf out = { 0 };
    int sending = 0;
    for (int i = 0; i < s->n; i++)
        sending += s->peers[i].sends && s->peers[i].state == PEER_RUNNING;
    if (s->facts->cli->quiet || clock_ms() < s->status_ms || sending == 0)
        return;
    s->status_ms = clock_ms() + STATUS_MS;
    if (collection_progress(&s->collection, sending, &out))
        write_sink(s, SINK_STDERR, &out);
    buf_free(&out);
}

/* Begin to receive log files after the answer FILES, which contains `exit_code`. If the job's output does not end with
 * a newline, append a newline, so that output of another host begins on a new line. */
static void begin_files(struct peer *p, int exit_code, struct buf *lines)
{
    struct starter *s = p->starter;
    const bool open = p->out.midline || p->out.rest.len > 0;
    p->sends = true;
    p->reported_code = exit_code;
    s->status_ms = clock_ms() + STATUS_MS;
    if (open && merge_add(&p->out, slice_str("\n"), lines) && s->n == 1)
        lines->len--;
    collect_store(p->files, buf_slice(&p->held));
    p->held.len = 0;
}

/* Fill s->token with random digits. With --collect_logs, also create the directory of the log files. If this fails, the
 * user sees the error before the job starts, not at the end of the job. */
static bool open_files(struct starter *s, const struct host_spec *hosts)
{
    unsigned char random[(REMOTE_TOKEN_MAX - 1) / 2];
    struct ddp_err err;
    s->collects = s->facts->log_name != NULL;
    if (sys_getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        log_error("getrandom: cannot start the job: %s; check the seccomp profile of the container",
                  strerror(errno));
        return false;
    }
    text_hex(s->token, random, sizeof(random));
    if (!s->collects || collection_open(&s->collection, s->facts->cli->log_dir, s->facts->log_name, hosts,
                                        s->n, &err) == DDP_OK)
        return true;
    log_error("--collect_logs: %s", err.msg);
    return false;
}

/* Close all handles if every remote shell has ended and all output is written. The loop then ends. */
static void finish_if_done(struct starter *s)
{
    if (s->n_ended < s->n || s->closing)
        return;
    if (s->end_ms == 0)
        s->end_ms = clock_ms();
    if (!links_close(s->links, clock_ms() >= s->end_ms + BRANCH_LAST_MS))
        return;
    hosts_console_finish(&s->console);
    write_sink(s, SINK_STDOUT, &s->finished);
    s->finished.len = 0;
    if (s->collects && !s->collected && s->n_running > 0)
        report_files(s);
    if ((s->kill_ms == 0 || clock_ms() < s->kill_ms + OUTPUT_LAST_MS) && !sinks_empty(s->sinks))
        return;
    s->closing = true;
    wakeup_close(&s->written, NULL);
    uv_walk(&s->loop, close_handle, NULL);
}

/* --- the job runs ------------------------------------------------------------------------------------------- */

/* Read the user's stdin for the hosts that --stdin names. On each of these hosts, some sent bytes may wait until the
 * job reads them. Stop reading while REMOTE_INPUT_WINDOW or more bytes wait on any of these hosts. */

static void read_input(struct starter *s);

/* Send input to the hosts whose ranks read stdin. If `len` is 0, end the job's stdin. */
static void send_input(struct starter *s, const char *bytes, size_t len)
{
    if (len == 0)
        s->input_type = UV_UNKNOWN_HANDLE;
    s->input_sent += len;
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].reads_input)
            send_message(&s->peers[i], REMOTE_INPUT, slice_of(bytes, len));
    if (len > 0 && !s->closing)
        read_input(s);
}

/* Read a pipe or a terminal. Read nothing while another job of the user's shell is in the terminal's foreground,
 * because the user types for that job. on_beat tries again. */
static void on_input_ready(uv_poll_t *poll, int status, int events)
{
    struct starter *s = poll->data;
    (void)status, (void)events;
    s->input_rests = s->input_type == UV_TTY && procfs_in_background(getppid());
    if (s->input_rests) {
        uv_poll_stop(poll);
        return;
    }
    const ssize_t n = read(s->source, s->input_bytes, sizeof(s->input_bytes));
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

/* Return true if the starter may send more input: on each host that gets input, fewer than REMOTE_INPUT_WINDOW sent
 * bytes wait for the job's pipe. Ignore hosts whose job has ended. Return false if the job has ended on all hosts that
 * get input. */
static bool wants_input(const struct starter *s)
{
    bool wants = false;
    for (int i = 0; i < s->n; i++) {
        const struct peer *p = &s->peers[i];
        if (!p->reads_input || p->state != PEER_RUNNING || p->sends || p->reported_code >= 0)
            continue;
        if (s->input_sent - p->input_taken >= REMOTE_INPUT_WINDOW)
            return false;
        wants = true;
    }
    return wants;
}

static void read_input(struct starter *s)
{
    s->input_waits = !wants_input(s);
    if (s->input_waits)
        return;
    if (s->input_type == UV_NAMED_PIPE || s->input_type == UV_TTY) {
        uv_poll_start(&s->input, UV_READABLE, on_input_ready);
    } else if (s->input_type == UV_FILE) {
        const uv_buf_t room = uv_buf_init(s->input_bytes, sizeof(s->input_bytes));
        s->file.data = s;
        uv_fs_read(&s->loop, &s->file, STDIN_FILENO, &room, 1, -1, on_file_input);
    }
}

/* Watch stdin through an epoll descriptor. libuv makes each watched descriptor non-blocking, and a non-blocking stdin
 * would break other programs that share this stdin. A terminal is opened again as non-blocking, because another process
 * may read the typed text first, and a blocking read would then stop the loop. A terminal of another user (after su)
 * cannot be opened, so the job has no input. */
static bool open_polled_input(struct starter *s)
{
    struct epoll_event readable = { .events = EPOLLIN };
    const int tty =
        s->input_type == UV_TTY ? open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if (s->input_type == UV_TTY && tty < 0)
        return false;
    s->source = tty >= 0 ? tty : STDIN_FILENO;
    s->input_fd = epoll_create1(EPOLL_CLOEXEC);
    s->input.data = s;
    return s->input_fd >= 0 && epoll_ctl(s->input_fd, EPOLL_CTL_ADD, s->source, &readable) == 0 &&
           uv_poll_init(&s->loop, &s->input, s->input_fd) == 0;
}

static void open_input(struct starter *s)
{
    s->input_type = uv_guess_handle(STDIN_FILENO);
    const bool is_polled = s->input_type == UV_NAMED_PIPE || s->input_type == UV_TTY;
    if (is_polled && !open_polled_input(s))
        s->input_type = UV_UNKNOWN_HANDLE;
    if (s->input_type == UV_NAMED_PIPE || s->input_type == UV_TTY || s->input_type == UV_FILE)
        read_input(s);
    else
        send_input(s, "", 0);
}

/* Ask a host to probe the addresses of the first host. */
static void send_probe(struct peer *p)
{
    const struct remote_answer *to = &p->starter->peers[0].answer;
    struct buf body = { 0 };
    p->state = PEER_PROBING;
    p->deadline_ms = clock_ms() + start_limit_ms(p->starter->facts, p->host, true);
    if (buf_printf(&body, "%d %s %s", to->port, to->token, to->addresses))
        send_message(p, REMOTE_PROBE, buf_slice(&body));
    buf_free(&body);
}

/* Let all hosts probe once more. In the first probe, a host reports only addresses that answer soon, so two hosts may
 * report different addresses. In the second probe, each host waits for all addresses. */
static void probe_again(struct starter *s)
{
    s->has_probed_again = true;
    for (int i = 1; i < s->n; i++) {
        free(s->peers[i].reached);
        s->peers[i].reached = NULL;
        send_probe(&s->peers[i]);
    }
}

/* Make the finding HOST_NOT_READY about a host. `words` is the reason. */
static void find_not_ready(const struct peer *p, const char *words, struct finding *f)
{
    char time[TEXT_MS_MAX];
    finding_make(f, FINDING_HOST_NOT_READY, p->host->name, "words", words, "time",
                 text_ms(clock_ms() - p->started_ms, time), NULL);
}

/* Fail, because the first host has no address that all other hosts can reach. */
static void fail_without_address(struct starter *s)
{
    const struct peer *first = &s->peers[0];
    char unreached[200] = "", time[TEXT_MS_MAX];
    struct finding f;
    int i = 1;
    while (i < s->n && s->peers[i].reached[0] != '\0')
        i++;
    if (s->n == 1)
        find_not_ready(first, "this host has no network address, not even on the interface lo", &f);
    else {
        if (i < s->n)
            snprintf(unreached, sizeof(unreached), "; %.80s cannot reach any address of %.80s",
                     s->peers[i].host->name, first->host->name);
        finding_make(&f, FINDING_NO_COMMON_ADDRESS, first->host->name, "addresses", first->answer.addresses,
                     "unreached", unreached, "time", text_ms(clock_ms() - first->started_ms, time), NULL);
    }
    fail(s, &f);
}

/* Fail, because the message JOB cannot be sent. */
static void fail_without_message(struct peer *p)
{
    struct finding f;
    find_not_ready(p,
                   "the job's command line and environment variables exceed 4 MiB, or the host where "
                   "ddprun was started is out of memory",
                   &f);
    fail(p->starter, &f);
}

/* Choose the address of the store, and send the job to all hosts. */
static void run_job(struct starter *s)
{
    const struct cli *cli = s->facts->cli;
    const char **reached = calloc((size_t)s->n, sizeof(*reached));
    char address[ENDPOINT_HOST_MAX] = "", digits[SECRET_TEXT], silent[24];
    for (int i = 1; reached != NULL && i < s->n; i++)
        reached[i - 1] = s->peers[i].reached;
    if (cli->origin[OPT_MASTER_ADDR] > FROM_DEFAULT)
        snprintf(address, sizeof(address), "%s", cli->master_addr);
    else if (reached != NULL)
        start_choose_address(s->peers[0].answer.addresses, reached, s->n - 1, address);
    free(reached);
    if (address[0] == '\0') {
        if (s->n > 1 && !s->has_probed_again)
            probe_again(s);
        else
            fail_without_address(s);
        return;
    }
    secret_format(s->secret, digits);
    const struct start_meeting meeting = { .nodes = s->n,
                                           .address = address,
                                           .port = s->peers[0].answer.port,
                                           .secret = digits,
                                           .token = s->token };
    bool ok = true;
    s->job_ms = clock_ms();
    for (int i = 0; ok && i < s->n; i++) {
        struct buf body = { 0 };
        ok = start_job(s->facts, s->peers[i].host, i, s->peers[i].reads_input, &meeting, &body) &&
             send_message(&s->peers[i], REMOTE_JOB, buf_slice(&body));
        buf_free(&body);
        if (!ok)
            fail_without_message(&s->peers[i]);
        else
            s->peers[i].state = PEER_RUNNING;
        s->n_running += ok;
    }
    secret_wipe(digits);
    if (!ok)
        return;
    snprintf(silent, sizeof(silent), "%" PRIu64, start_silent_ms(cli));
    send_to_branches(s, REMOTE_BRANCH, silent);
    open_input(s);
}

/* --- the start ------------------------------------------------------------------------------------------------ */

static void start_more(struct starter *s);
static void send_listen(struct peer *first);

/* Move each host that can continue to its next state. If all hosts are READY, start the job. */
static void advance(struct starter *s)
{
    struct peer *first = &s->peers[0];
    int ready = 0;
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        if (p->state == PEER_HERE && (p == first || s->facts->cli->origin[OPT_MASTER_ADDR] > FROM_DEFAULT)) {
            p->state = PEER_READY;
        } else if (p->state == PEER_HERE && first->answer.port > 0 && first->state == PEER_READY) {
            send_probe(p);
        }
        ready += p->state == PEER_READY;
    }
    start_more(s);
    if (ready == s->n && s->exit_code < 0)
        run_job(s);
}

/* Fail if relay and starter have different versions, because the relay may not accept all options of the starter. */
static bool check_version(struct peer *p, const struct remote_answer *answer)
{
    char words[128];
    struct finding f;
    if (version_matches(answer->version, DDP_VERSION))
        return true;
    snprintf(words, sizeof(words), "%s, but the host where ddprun was started has version %s",
             answer->version, DDP_VERSION);
    finding_make(&f, FINDING_HOST_VERSION_DIFFERS, p->host->name, "words", words, NULL);
    fail(p->starter, &f);
    return false;
}

static void end_start(struct peer *p, struct finding *f);

/* Use the relay of a host with children as a branch, which starts the relays of the children. Then start a second
 * relay, which runs the job on the host itself. */
static void start_branch(struct peer *p)
{
    struct starter *s = p->starter;
    const int i = (int)(p - s->peers);
    struct finding f;
    p->trunk = p->link;
    link_carry(p->trunk, BRANCH_SILENT_MS);
    p->link = link_start_on(p->trunk, SLOT_RELAY(i), p, NULL, 0);
    if (p->link == NULL) {
        find_not_ready(p, "out of memory on the host where ddprun was started", &f);
        end_start(p, &f);
        return;
    }
    if (i == 0)
        send_listen(p);
    start_more(s);
}

/* Return the counter `n_starting` that includes this host. The counter belongs to the starter or to the host that
 * starts this host. */
static int *starting_with(struct peer *p)
{
    return p->above < 0 ? &p->starter->n_starting : &p->starter->peers[p->above].n_starting;
}

/* Process an answer from the relay before the job runs. In a job of several hosts, the first host sends HERE twice:
 * only the second HERE contains the port. */
static void process_answer(struct peer *p, const struct remote_answer *answer)
{
    struct starter *s = p->starter;
    const bool is_here = answer->news == REMOTE_HERE && p->state == PEER_STARTING;
    const bool has_arrived = is_here && p->is_shipping;
    p->is_shipping = p->is_shipping && !has_arrived;
    if (is_here && !check_version(p, answer))
        return;
    if (is_here && p->has_children && p->trunk == NULL) {
        start_branch(p);
        return;
    }
    if (has_arrived && p == &s->peers[0])
        send_listen(p);
    if (is_here) {
        if (p == &s->peers[0] && s->n > 1 && answer->port == 0)
            return;
        p->answer = *answer;
        p->state = PEER_HERE;
        --*starting_with(p);
    } else if (answer->news == REMOTE_REACHED && p->state == PEER_PROBING) {
        p->reached = strdup(answer->addresses);
        p->state = p->reached != NULL ? PEER_READY : p->state;
    }
    advance(s);
}

/* Parse the stdout lines that arrive before the job runs. Keep lines that a login shell has printed, because nologin
 * prints its error on stdout. */
static void parse_head(struct peer *p, struct slice bytes)
{
    struct remote_answer answer;
    const uint8_t *end;
    if (p->out.rest.len > REMOTE_LINE_MAX || !buf_append(&p->out.rest, bytes.data, bytes.len))
        return;
    while ((end = memchr(p->out.rest.data, '\n', p->out.rest.len)) != NULL) {
        const size_t len = (size_t)(end - (const uint8_t *)p->out.rest.data);
        if (remote_parse_answer(slice_of(p->out.rest.data, len), &answer))
            process_answer(p, &answer);
        else if (p->greeting.len < STDERR_KEPT)
            buf_append(&p->greeting, p->out.rest.data, len + 1);
        buf_consume(&p->out.rest, len + 1);
    }
}

/* Find the relay's last answer (ENDED or FAILED) in whole lines, and return the offset of the answer's line. Return
 * lines.len if no answer contains s->token. Check every line, because a remote shell that outlives the job may print
 * lines after the answer. */
static size_t find_last_answer(const struct starter *s, struct slice lines, struct remote_answer *answer)
{
    const char *begin = lines.data, *end = begin + lines.len, *at = begin, *newline;
    if (lines.len == 0 || memchr(begin, REMOTE_ANSWER[0], lines.len) == NULL)
        return lines.len;
    for (; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
        if (remote_parse_answer(slice_of(at, (size_t)(newline - at)), answer) &&
            strcmp(answer->token, s->token) == 0)
            return (size_t)(at - begin);
    return lines.len;
}

/* Remove the relay's last answer from the job's output. The answer may follow an unfinished line of the job. */
static void remove_last_answer(struct peer *p, struct buf *lines)
{
    struct remote_answer answer;
    const size_t at = find_last_answer(p->starter, buf_slice(lines), &answer);
    if (at == lines->len)
        return;
    if (answer.news == REMOTE_ENDED || answer.news == REMOTE_FAILED)
        p->reported_code = answer.port;
    p->has_failed = answer.news == REMOTE_FAILED;
    lines->len = at + answer.before;
    if (answer.before > 0 && p->starter->n > 1)
        buf_append(lines, "\n", 1); /* another host's line may follow */
}

/* Send a finding of a host to other hosts. The first finding that reports the end of a host's ddprun goes to all other
 * hosts. If the first round has not begun, ddprun then ends on these hosts. A later finding of this kind is passed on
 * only if this finding stops the job (news.stops).
 *
 * A finding of another kind goes only to the first host, which prints the finding. The other hosts do not get such a
 * finding, because the number of findings may be large: with 1,000 hosts, a blocked port causes 1,000 findings. */
static void pass_finding(const struct peer *from, struct slice line)
{
    struct starter *s = from->starter;
    struct news news;
    if (!decode_news(line, &news) || (news.ends && s->has_passed_end && !news.stops))
        return;
    s->has_passed_end = s->has_passed_end || news.ends;
    for (int i = 0; i < (news.ends ? s->n : 1); i++)
        if (&s->peers[i] != from && s->peers[i].state == PEER_RUNNING && !s->peers[i].sends)
            send_message(&s->peers[i], REMOTE_NEWS, line);
}

/* Handle the findings of the host `from`, one in each line. The first host whose ddprun ends determines the exit code
 * of the job. The other hosts end only as a consequence. */
static void handle_findings(struct peer *from, struct slice lines)
{
    struct starter *s = from->starter;
    const char *at = lines.data, *end = at + lines.len, *newline;
    for (; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1) {
        const bool had_end = s->has_passed_end;
        pass_finding(from, slice_of(at, (size_t)(newline - at)));
        if (s->has_passed_end && !had_end)
            s->decides = from;
    }
}

/* Report to the other hosts that ddprun has ended on the host of `p`. Before the first round, ddprun then ends on the
 * other hosts, too, because the job cannot begin. During a round, the other hosts ignore this report and wait for the
 * report of the store. */
static void pass_end(const struct peer *p, int exit_code)
{
    struct buf line = { 0 };
    struct finding f;
    char words[32], time[TEXT_MS_MAX];
    snprintf(words, sizeof(words), "exit code %d", exit_code);
    finding_make(&f, FINDING_HOST_ENDED, p->host->name, "words", words, "time",
                 text_ms(clock_ms() - p->starter->job_ms, time), NULL);
    if (p->starter->stops == 0 && remote_encode_end(p->host->name, &f, false, &line))
        pass_finding(p, buf_slice(&line));
    buf_free(&line);
}

/* Handle and remove the answers ROOM, FINDING and FILES in a host's output. After an answer ROOM, read more of the
 * user's stdin. Set *files to the exit code in FILES, or to -1. */
static bool remove_answers(struct peer *p, struct slice bytes, struct buf *out, int *files)
{
    struct starter *s = p->starter;
    uint64_t taken = 0;
    *files = -1;
    struct buf findings = { 0 };
    const bool ok = buf_append(&p->held, bytes.data, bytes.len) &&
                    remote_split(&p->held, s->token, out, &taken, &findings, files);
    handle_findings(p, buf_slice(&findings));
    buf_free(&findings);
    if (taken > p->input_taken && taken <= s->input_sent)
        p->input_taken = taken;
    if (s->input_waits)
        read_input(s);
    return ok;
}

/* Handle output of a host: log files, the output of the job, or lines before the job runs. */
static void handle_bytes(struct peer *p, bool is_err, struct slice bytes)
{
    struct buf lines = { 0 }, clean = { 0 };
    if (p->sends && !is_err) {
        collect_store(p->files, bytes);
        return;
    }
    if (p->state != PEER_RUNNING && p->state != PEER_ENDED) {
        if (!is_err)
            parse_head(p, bytes);
        else if (p->head.len < STDERR_KEPT)
            buf_append(&p->head, bytes.data, bytes.len);
        return;
    }
    bool ok = true;
    int files = -1;
    if (!is_err) {
        ok = remove_answers(p, bytes, &clean, &files);
        bytes = buf_slice(&clean);
    }
    ok = merge_add(is_err ? &p->err : &p->out, bytes, &lines) && ok;
    if (files >= 0 && p->starter->collects)
        begin_files(p, files, &lines);
    if (!is_err && !p->sends)
        remove_last_answer(p, &lines);
    if (ok)
        print_host_lines(p, is_err ? SINK_STDERR : SINK_STDOUT, &lines);
    buf_free(&lines);
    buf_free(&clean);
    read_streams(p->starter);
}

/* Stop reading the output of the hosts while the console is slow. The workers then block in their writes, and the
 * starter needs no memory for their output. */
static void read_streams(struct starter *s)
{
    const bool behind = sinks_is_behind(s->sinks, SINK_STDOUT, s->paused) ||
                        sinks_is_behind(s->sinks, SINK_STDERR, s->paused);
    if (behind == s->paused)
        return;
    s->paused = behind;
    links_pause(s->links, behind);
}

static const char *name_above(const struct peer *p)
{
    return p->above < 0 ? NULL : p->starter->peers[p->above].host->name;
}

/* Make the finding about a relay that did not start. If `error` is NULL, use the remote shell's stderr as the
 * error. If stderr is empty, use the shell's stdout. */
static void explain_start(struct peer *p, int exit_code, const char *error, struct finding *f)
{
    struct buf *text = p->head.len > 0 ? &p->head : &p->greeting;
    if (error == NULL && buf_append(text, "", 1))
        error = (const char *)text->data;
    start_explain(p->starter->facts, p->host, name_above(p), exit_code, error != NULL ? error : "",
                  clock_ms() - p->started_ms, f);
}

/* Let the starter itself start a host that another host could not start. The starter also starts all hosts that are
 * still WAITING, because starts by other hosts would probably fail, too. If the user has requested the tree with
 * --ssh_fanout, do nothing. Return true if the host starts again. */
static bool start_flat(struct peer *p)
{
    struct starter *s = p->starter;
    struct finding f;
    struct buf out = { 0 };
    if (p->above < 0 || p->state != PEER_STARTING || p->trunk != NULL || s->exit_code >= 0 ||
        cli_gives(s->facts->cli, OPT_SSH_FANOUT))
        return false;
    explain_start(p, link_exit_code(p->link), NULL, &f);
    if (f.code != FINDING_HOST_HOP_FAILED)
        return false;
    if (!s->reported_flat && !s->facts->cli->quiet &&
        buf_printf(&out, "ddprun: %s; %s now starts all remaining hosts directly\n", f.sentence,
                   s->facts->host)) {
        text_disarm(out.data, out.len, '\n');
        write_sink(s, SINK_STDERR, &out);
    }
    buf_free(&out);
    s->reported_flat = true;
    --*starting_with(p);
    p->state = PEER_WAITING;
    p->is_shipping = false;
    p->link = NULL;
    p->head.len = p->greeting.len = p->out.rest.len = 0;
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state == PEER_WAITING)
            s->peers[i].above = -1;
    start_more(s);
    return true;
}

/* Report that a host was lost while the job ran, because the host's remote shell has ended. `link` is the link to this
 * shell. Send this reason to the other hosts before the job ends on these hosts.
 *
 * If the user has requested to stop the job, the host does not count as lost, and the whole job ends. In this case, the
 * request has probably ended the remote shell, because systemd and batch systems send the signal to remote shells,
 * too. */
static void lose_host(struct peer *p, const struct link *link)
{
    struct starter *s = p->starter;
    const struct received_signal *last = &s->stop_memory.last;
    struct finding f;
    struct buf line = { 0 };
    char words[HOST_NAME_SIZE + 64], time[TEXT_MS_MAX];
    if (s->stops > 0) {
        snprintf(words, sizeof(words), ": the remote shell of %s has ended, too, so the job ends",
                 p->host->name);
        print_stop(s, last, words);
        s->exit_code = s->exit_code < 0 ? EXIT_CODE_SIGNAL + last->signal : s->exit_code;
        end_all(s);
        return;
    }
    snprintf(words, sizeof(words), "exit status %d", link_exit_code(link));
    finding_make(&f, FINDING_HOST_LOST, p->host->name, "words", words, "time",
                 text_ms(clock_ms() - s->job_ms, time), NULL);
    if (remote_encode_end(p->host->name, &f, true, &line))
        pass_finding(p, buf_slice(&line));
    buf_free(&line);
    /* If another host has ended earlier, s->exit_code may be the exit code of that host. That host probably ended
     * because of this loss. So discard the exit code, because fail() reports the lost host only while s->exit_code is
     * -1. */
    s->exit_code = -1;
    fail(s, &f);
}

/* Handle the end of a host: its remote shell has exited, and all output of the shell was read. Report a failure, if
 * any. */
static void end_peer(struct peer *p)
{
    struct starter *s = p->starter;
    struct buf lines = { 0 };
    struct finding f;
    if (p->state == PEER_ENDED || start_flat(p))
        return;
    const bool ran = p->state == PEER_RUNNING;
    const bool has_reported = (p->sends && !p->exited_early) || p->killed_late;
    /* true: the user has requested a stop twice, and check_deadlines() has killed the relay, which had not answered */
    const bool was_killed = s->stops > 1 && p->reported_code < 0 && clock_ms() >= s->kill_ms;
    const int exit_code = has_reported ? p->reported_code
                          : was_killed ? EXIT_CODE_SIGNAL + s->first_stop
                                       : link_exit_code(p->link);
    p->state = PEER_ENDED;
    s->n_ended++;
    if (merge_finish(&p->err, &lines))
        print_host_lines(p, SINK_STDERR, &lines);
    lines.len = 0;
    if (ran && !p->sends && merge_add(&p->out, buf_slice(&p->held), &lines))
        print_host_lines(p, SINK_STDOUT, &lines);
    lines.len = 0;
    if (ran && merge_finish(&p->out, &lines))
        print_host_lines(p, SINK_STDOUT, &lines);
    buf_free(&lines);
    if (!ran && s->exit_code < 0) {
        explain_start(p, link_exit_code(p->link), NULL, &f);
        fail(s, &f);
    } else if (ran && s->kill_ms == 0 && p->reported_code != exit_code) {
        lose_host(p, p->link);
    } else if (ran && exit_code != 0 &&
               (s->exit_code < 0 || (s->is_of_host && s->kill_ms == 0 && p == s->decides))) {
        /* Prefer the exit code of s->decides, because other hosts may have ended only because s->decides ended. */
        s->exit_code = exit_code;
        s->is_of_host = true;
    }
    if (ran && p->has_failed)
        end_all(s); /* without this call, the other nodes would wait for this node */
    else if (ran && exit_code != 0)
        pass_end(p, exit_code);
    finish_if_done(s);
}

/* Return true if `p` is `above`, or a host below `above` in the tree. */
static bool is_below(const struct peer *p, const struct peer *above)
{
    while (p != above && p->above >= 0)
        p = &p->starter->peers[p->above];
    return p == above;
}

/* Handle the end of the branch of host `p`. The branch is the process that starts the hosts below `p`. If `p` or a host
 * below `p` has not ended, report a failed start. If the job already runs, report `p` as lost instead. */
static void end_branch(struct peer *p)
{
    struct starter *s = p->starter;
    struct finding f;
    bool early = false;
    for (int i = 0; i < s->n; i++)
        early = early || (s->peers[i].state != PEER_ENDED && is_below(&s->peers[i], p));
    if (early && s->kill_ms == 0 && s->n_running == 0 && s->exit_code < 0) {
        explain_start(p, link_exit_code(p->trunk), NULL, &f);
        fail(s, &f);
    } else if (early && s->kill_ms == 0) {
        lose_host(p, p->trunk);
    }
    finish_if_done(s);
}

static void on_link_output(void *peer, struct link *link, bool is_err, struct slice bytes)
{
    struct peer *p = peer;
    (void)link; /* stderr of a branch is printed like stderr of the host's relay */
    p->active_ms = clock_ms();
    handle_bytes(p, is_err, bytes);
}

/* Handle the exit of a process. If the exit code of a branch is not 0, the branch or its remote shell has failed, so
 * call end_branch() at once. If the exit code is 0, on_link_over() calls end_branch() after all messages of the branch
 * are read. */
static void on_link_exited(void *peer, struct link *link)
{
    struct peer *p = peer;
    p->active_ms = clock_ms();
    if (link == p->trunk && link_exit_code(link) != 0)
        end_branch(p);
    else if (link == p->link)
        p->exited_early = !p->sends;
}

static void on_link_over(void *peer, struct link *link)
{
    struct peer *p = peer;
    if (link == p->trunk)
        end_branch(p);
    else if (link == p->link)
        end_peer(p);
}

/* End the start of the job, because the process for a host could not be created. `f` is the finding for the user. */
static void end_start(struct peer *p, struct finding *f)
{
    p->state = PEER_ENDED;
    p->starter->n_ended++;
    fail(p->starter, f);
}

/* Report that this host cannot run the remote shell. `error` is an errno. */
static void report_no_shell(const struct peer *p, const char *program, int error)
{
    char why[FORK_ERROR_MAX], remedy[FILES_REMEDY_MAX];
    const bool is_wrong = error == ENOENT || error == EACCES || error == ENOTDIR || error == ENOEXEC;
    /* For ENOMEM, fork_error_text() already gives a remedy. In this case, files_remedy() gets 0 and adds no remedy. */
    log_error("--remote_shell: this host cannot run %.200s to start %s: %s%s", program, p->host->name,
              fork_error_text(error, why),
              is_wrong ? "; install the remote shell here, or correct --remote_shell"
                       : files_remedy(error == ENOMEM ? 0 : error, remedy));
}

/* Use a remote shell to start the relay of a host. The remote shell runs on the starter's host, or on the host above in
 * the tree. */
static void spawn_shell(struct peer *p)
{
    struct starter *s = p->starter;
    const int i = (int)(p - s->peers), slot = p->has_children ? SLOT_BRANCH(i) : SLOT_RELAY(i);
    const bool ships = start_ships(s->facts, p->host);
    const struct slice program = ships ? s->facts->ship : slice_str("");
    int error = UV_ENOMEM;
    struct ddp_err err;
    struct finding f;
    char **argv;
    p->started_ms = clock_ms();
    if (start_command(s->facts, p->host, &argv, &err) != DDP_OK) {
        find_not_ready(p, err.msg, &f);
        fail(s, &f);
        return;
    }
    p->state = PEER_STARTING;
    p->is_shipping = ships;
    p->deadline_ms = p->started_ms + start_limit_ms(s->facts, p->host, false);
    ++*starting_with(p);
    if (p->above < 0)
        p->link = link_start(s->links, slot, p, argv, program, &error);
    else
        p->link = link_start_on(s->peers[p->above].trunk, slot, p, argv, program.len);
    if (p->link == NULL && p->above < 0 && s->exit_code < 0) {
        report_no_shell(p, argv[0], -error);
        s->exit_code = EXIT_CODE_DDPRUN;
    }
    if (p->link == NULL) {
        explain_start(p, -1, uv_strerror(error), &f);
        end_start(p, &f);
    }
    start_free(argv);
}

/* Let the first host listen on the port of the store, to answer the probes of the other hosts. */
static void send_listen(struct peer *first)
{
    const struct cli *cli = first->starter->facts->cli;
    char port[8];
    snprintf(port, sizeof(port), "%d", cli->origin[OPT_MASTER_PORT] > FROM_DEFAULT ? cli->master_port : 0);
    if (first->starter->n > 1)
        send_text(first, REMOTE_LISTEN, port);
}

/* Start hosts that are WAITING. The starter, and each host with children, starts at most AT_ONCE hosts at the same
 * time. */
static void start_more(struct starter *s)
{
    for (int i = 0; i < s->n && s->exit_code < 0; i++) {
        struct peer *p = &s->peers[i];
        const struct link *branch = p->above < 0 ? NULL : s->peers[p->above].trunk;
        if (p->state != PEER_WAITING || *starting_with(p) >= AT_ONCE ||
            (p->above >= 0 && (branch == NULL || link_has_exited(branch))))
            continue;
        spawn_shell(p);
        if (i == 0 && !p->has_children)
            send_listen(p);
    }
}

/* --- signals and time ----------------------------------------------------------------------------------------- */

/* Send a signal to the relays. While the job runs on any host, skip relays that send log files, because the signal
 * would end the transfer. */
static void send_signal(struct starter *s, const char *number)
{
    bool runs = false;
    for (int i = 0; i < s->n; i++)
        runs = runs || (s->peers[i].state == PEER_RUNNING && !s->peers[i].sends);
    send_to_branches(s, REMOTE_SIGNAL, number);
    for (int i = 0; i < s->n; i++)
        if (s->peers[i].state != PEER_ENDED && !(runs && s->peers[i].sends))
            send_text(&s->peers[i], REMOTE_SIGNAL, number);
}

/* Report a stop signal. The starter prints this report itself, because either no host runs the job yet, or the starter
 * has lost the connection to a host. */
static void print_stop(struct starter *s, const struct received_signal *received, const char *effect)
{
    struct buf from = { 0 }, out = { 0 };
    if (!s->facts->cli->quiet && received_signal_text(received, &from) &&
        buf_printf(&out, "ddprun: %.*s%s\n", (int)from.len, (const char *)from.data, effect))
        write_sink(s, SINK_STDERR, &out);
    buf_free(&from);
    buf_free(&out);
}

static void check_deadlines(struct starter *s);

/* Handle a signal from the user. Usually, forward the signal to all hosts, where each node decides about the effect of
 * the signal. While no host runs the job, a stop signal cancels the start, and a second stop signal kills the remote
 * shells. Drop copies of a stop signal, because the nodes would count a copy as a second request. */
static void forward_signal(struct starter *s, const struct received_signal *received)
{
    char text[8];
    const bool stop = signals_act(s->facts->cli->stop_signals, received->signal) == SIGNAL_STOP;
    const bool is_new = stop && signals_is_new_stop(&s->stop_memory, received, clock_ms());
    if (stop && !is_new)
        return;
    snprintf(text, sizeof(text), "%d", received->signal);
    s->stops += stop;
    s->first_stop = s->first_stop == 0 && stop ? received->signal : s->first_stop;
    if (s->n_running == 0 && stop) {
        print_stop(s, received,
                   s->stops > 1
                       ? " again: killing the remote shells"
                       : ": the start of the hosts is cancelled; a second signal kills the remote shells");
        s->exit_code = s->exit_code < 0 ? 128 + received->signal : s->exit_code;
        end_all(s);
        if (s->stops > 1)
            s->kill_ms = clock_ms();
        check_deadlines(s);
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
    struct received_signal received;
    ssize_t got;
    (void)status, (void)events;
    while ((got = read(s->lifeline_fd, &received, sizeof(received))) == (ssize_t)sizeof(received))
        forward_signal(s, &received);
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
    while (read(s->signals_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        struct received_signal received = {
            .signal = (int)info.ssi_signo,
            .sender = procfs_sender(info.ssi_code, (pid_t)info.ssi_pid, info.ssi_uid),
        };
        if (info.ssi_signo != SIGCONT)
            forward_signal(s, &received);
    }
}

/* Return true if the job and its transfer of log files have ended, but the remote shell still runs LAST_MS later. The
 * time does not count while reading is paused, because the shell may then wait until its output is read. */
static bool outlives_job(struct peer *p, uint64_t now)
{
    const bool is_over = p->sends ? p->files->ended || p->files->stopped : p->reported_code >= 0;
    if (is_over && (p->over_ms == 0 || p->starter->paused))
        p->over_ms = now;
    return p->over_ms != 0 && now >= p->over_ms + LAST_MS && p->state != PEER_ENDED && !has_exited(p);
}

static void check_deadlines(struct starter *s)
{
    const uint64_t now = clock_ms();
    for (int i = 0; i < s->n && s->kill_ms != 0 && s->stops < 2; i++)
        if (s->peers[i].sends && s->peers[i].over_ms == 0 && s->peers[i].state == PEER_RUNNING &&
            now < s->peers[i].active_ms + LAST_MS)
            s->kill_ms = now + LAST_MS; /* log files still arrive, so no shell is killed yet */
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peers[i];
        const bool asked = p->state == PEER_STARTING || p->state == PEER_PROBING;
        struct finding f;
        if (asked && !has_exited(p) && now >= p->deadline_ms && s->exit_code < 0) {
            start_explain_late(s->facts, p->host, p->trunk == NULL ? name_above(p) : NULL,
                               p->state == PEER_PROBING, &f);
            fail(s, &f);
            if (p->state == PEER_PROBING) /* in STARTING, fail() has already sent SIGTERM (end_all) */
                link_kill(p->link, SIGTERM);
        }
        if (outlives_job(p, now)) {
            p->killed_late = true;
            link_kill(p->link, SIGKILL);
        }
        if (s->kill_ms != 0 && now >= s->kill_ms && p->state != PEER_ENDED && !has_exited(p)) {
            if (s->n_running > 0 && s->stops < 2)
                log_error(
                    "%s: the remote shell was killed, because it did not end within %d s; check that host "
                    "for remaining processes of the job",
                    p->host->name, LAST_MS / 1000);
            for (struct peer *at = p; at != NULL; at = at->above < 0 ? NULL : &s->peers[at->above])
                link_kill(at->trunk != NULL ? at->trunk : at->link, SIGKILL);
        }
    }
    links_drain(s->links, s->kill_ms != 0 && now >= s->kill_ms);
}

/* Print which hosts have not started yet, at most once every STATUS_MS. */
static void print_waiting_hosts(struct starter *s)
{
    struct buf names = { 0 }, out = { 0 };
    int waits = 0;
    uint64_t limit_ms = 0;
    if (s->facts->cli->quiet || s->n_running > 0 || s->exit_code >= 0 || clock_ms() < s->status_ms)
        return;
    s->status_ms = clock_ms() + STATUS_MS;
    for (int i = 0; i < s->n; i++) {
        const struct peer *p = &s->peers[i];
        const uint64_t of_ms = start_limit_ms(s->facts, p->host, p->state == PEER_PROBING);
        if (p->state == PEER_READY)
            continue;
        limit_ms = of_ms > limit_ms ? of_ms : limit_ms;
        if (waits++ < NAMES_MAX)
            buf_printf(&names, " %s", p->host->name);
    }
    if (buf_printf(&out, "ddprun: waiting for %d of %d hosts, at most %.10g s each:%.*s%s\n", waits, s->n,
                   (double)limit_ms / 1000, (int)names.len, names.len > 0 ? (const char *)names.data : "",
                   waits > NAMES_MAX ? " ..." : ""))
        write_sink(s, SINK_STDERR, &out);
    buf_free(&names);
    buf_free(&out);
}

static void on_beat(uv_timer_t *timer)
{
    struct starter *s = timer->data;
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer may lose a SIGCHLD; this SIGCHLD makes libuv check its children again */
    raise(SIGCHLD);
#endif
    send_to_all(s, REMOTE_BEAT, "");
    print_waiting_hosts(s);
    print_files_progress(s);
    if (s->input_rests || s->input_waits)
        read_input(s);
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

/* Raise the limit of descriptors for `hosts` hosts, at most to the hard limit. */
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
    static const struct link_hooks hooks = { on_link_output, on_link_exited, on_link_over };
    sigset_t watched;
    raise_fd_limit(s->n);
    sigemptyset(&watched);
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signal_rows[i].act != SIGNAL_NONE && signal_rows[i].act != SIGNAL_CHILD)
            sigaddset(&watched, signal_rows[i].number);
    sigset_t child; /* contains only SIGCHLD, which is unblocked because libuv has a handler for SIGCHLD */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    s->signals_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->lifeline_fd = lifeline;
    s->links = links_new(&s->loop, 2 * s->n, &hooks);
    if (s->signals_fd < 0 || s->links == NULL || uv_loop_init(&s->loop) != 0 ||
        !wakeup_open(&s->written, &s->loop, on_written, s))
        return false;
    s->sinks = s->console.folds.sinks = sinks_new(WRITER_BLOCK, ring, s);
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
    links_free(s->links);
    sinks_free(s->sinks);
    secret_free(s->secret);
    for (int i = 0; i < s->n; i++) {
        buf_free(&s->peers[i].held);
        merge_free(&s->peers[i].out);
        merge_free(&s->peers[i].err);
        buf_free(&s->peers[i].head);
        buf_free(&s->peers[i].greeting);
        free(s->peers[i].reached);
    }
    free(s->peers);
    collection_close(&s->collection);
    hosts_console_free(&s->console);
    buf_free(&s->finished);
    close(s->signals_fd);
    if (s->input_fd >= 0)
        close(s->input_fd);
    if (s->source > STDERR_FILENO)
        close(s->source);
}

/* Return true if the job has exactly one worker. Return false if only the host knows the number of its workers. */
static bool has_one_worker(const struct starter_job *job)
{
    bool reads;
    return job->n == 1 && start_readers(job->facts->cli, job->hosts, 1, &reads) == 1;
}

int starter_run(void *arg, int lifeline)
{
    const struct starter_job *job = arg;
    struct starter s = {
        .facts = job->facts, .n = job->n, .exit_code = -1, .status_ms = clock_ms() + STATUS_MS, .input_fd = -1
    };
    struct ddp_err err;
    if (secret_make(&s.secret, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_CODE_DDPRUN;
    }
    if (hosts_console_init(&s.console, s.facts->cli, has_one_worker(job), on_fold_waits, &s, &err) !=
        DDP_OK) {
        log_error("--log_line_prefix_template=%.60s: %s", s.facts->cli->prefix_template, err.msg);
        return EXIT_CODE_DDPRUN;
    }
    if (!open_files(&s, job->hosts))
        return EXIT_CODE_DDPRUN;
    s.peers = calloc((size_t)job->n, sizeof(*s.peers));
    if (s.peers == NULL || !open_starter(&s, lifeline)) {
        char remedy[FILES_REMEDY_MAX];
        log_error("%d hosts: cannot start: no memory or no file descriptor is left%s", job->n,
                  files_remedy(EMFILE, remedy));
        return EXIT_CODE_DDPRUN;
    }
    int *above = malloc((size_t)s.n * sizeof(*above));
    bool *reads = calloc((size_t)s.n, sizeof(*reads));
    if (reads != NULL)
        start_readers(s.facts->cli, job->hosts, s.n, reads);
    if (above != NULL)
        start_tree(s.facts, job->hosts, s.n, above);
    for (int i = 0; i < s.n; i++) {
        s.peers[i].starter = &s;
        s.peers[i].above = above != NULL ? above[i] : -1;
        if (s.peers[i].above >= 0)
            s.peers[s.peers[i].above].has_children = true;
        s.peers[i].reported_code = -1;
        s.peers[i].reads_input = reads != NULL && reads[i];
        s.peers[i].host = &job->hosts[i];
        s.peers[i].files = s.collects ? &s.collection.of[i] : NULL;
    }
    free(above);
    free(reads);
    s.decides = &s.peers[0];
    start_more(&s);
    finish_if_done(&s);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    close_starter(&s);
    return s.exit_code < 0 ? EXIT_CODE_OK : s.exit_code;
}

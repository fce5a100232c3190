/* relay.c -- see remote.h. A remote shell runs `ddprun --relay` on each host, and the relay is the parent of the host's
 * ddprun. The relay runs until this child has ended, because the remote shell returns the relay's exit status. If the
 * relay dies, the kernel kills the child (PR_SET_PDEATHSIG), and the child's agent then ends the workers. */
#include "remote/remote.h"

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/procfs.h"
#include "ddp/context.h"
#include "base/endpoint.h"
#include "net/store_host.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* FIRST_MS: until the message JOB arrives, the relay ends if the starter is silent for longer than this time.
 * AT_ONCE_MS: after a lost connection, time from the first SIGTERM to the second SIGTERM, which makes ddprun kill its
 * workers.
 * KILL_MS: time from the first SIGTERM to SIGKILL. After a signal to the relay, --grace is added to this time.
 * PLACE_MS: time in which the file systems of the job's directories must answer.
 * PROBE_MS: time in which the addresses of the first host must answer.
 * PROBE_MORE_MS: minimum time to wait for a better address after the first answer. */
enum {
    FIRST_MS = 60000,
    PLACE_MS = 10000,
    PROBE_MS = 2000,
    PROBE_MORE_MS = 20,
    AT_ONCE_MS = 500,
    KILL_MS = 10000,
    PROBES_MAX = 128
};

struct relay {
    struct buf in;                    /* received bytes that do not form a complete message yet */
    struct buf input;                 /* bytes that the child's stdin pipe has not accepted yet */
    bool input_ended;                 /* no more bytes are appended to `input` */
    uint64_t taken;                   /* bytes of input that the child's pipe has accepted */
    uint64_t taken_reported;          /* value of `taken` in the last answer ROOM */
    int signals;                      /* a signalfd */
    int listener;                     /* socket that answers probes; -1 if not open */
    int news;                         /* socket to the host's ddprun for findings; -1 if not open */
    struct buf findings;              /* bytes of FINDING answers that stdout has not accepted yet */
    int child_in;                     /* write end of the child's stdin pipe; -1 if closed */
    char token[REMOTE_TOKEN_MAX];     /* the token that the relay sends to each probe */
    pid_t child;                      /* the host's ddprun, or the sender of log files; 0 without a child */
    uint64_t started_ms;              /* when the relay was started */
    uint64_t job_ms;                  /* when the host's ddprun was started; 0 before that */
    char *collect;                    /* owned; log directory of the job; NULL without --collect_logs */
    char job_token[REMOTE_TOKEN_MAX]; /* the token in the message JOB; "" until JOB arrives */
    bool has_probed;                  /* the relay has answered a message PROBE */
    bool had_job;                     /* the host's ddprun was started */
    bool sends;                       /* the child is the sender of log files */
    bool must_end;                    /* the starter has sent END */
    int job_code;                     /* exit code of the job; set before its log files are sent */
    bool rests; /* Ctrl-Z has stopped the job and the starter, so silence of the starter is not a failure */
    uint64_t silent_ms;        /* the relay ends the job if the starter is silent for longer than this */
    uint64_t last_received_ms; /* when the starter's last message arrived */
    uint64_t end_ms;           /* when the relay first requested the child's end; 0 before that */
    uint64_t grace_ms;         /* --grace of the job */
    int terms;                 /* how often the relay has requested the child's end */
    int passed;                /* last signal that has asked the child to stop the job; initially 0 */
    int first_passed;          /* first signal that has asked the child to stop the job; initially 0 */
    bool has_request;          /* the starter has sent a signal that asks the child to stop the job */
    bool knows_reason;         /* the starter has sent the finding that ends the job */
    bool has_signal;           /* a signal has requested the end of the relay */
    const char *failed;        /* why messages are no longer read from stdin; NULL while messages are read */
    int exit_code;             /* the relay's exit code; -1 until it is known */
    uint64_t branch_ms; /* a branch ends if the starter is silent for this time; 0 until BRANCH arrives */
};

/* Make a finding about this host. The sentence names the time since `since_ms`. */
static void find_host(enum finding_code code, const char *words, uint64_t since_ms, struct finding *f)
{
    char host[256] = "this host", time[TEXT_MS_MAX];
    gethostname(host, sizeof(host) - 1);
    finding_make(f, code, host, "words", words, "time", text_ms(clock_ms() - since_ms, time), NULL);
}

/* Print a finding about this host. `what` names the step or the file that failed, and `why` gives the reason. */
static void report_host(const struct relay *r, enum finding_code code, const char *what, const char *why,
                        struct finding *f)
{
    char words[512];
    snprintf(words, sizeof(words), "%s: %s", what, why);
    find_host(code, words, r->started_ms, f);
    log_error("%s", f->sentence);
    log_info("  try      %s", f->advice);
    log_info("  finding  %s", finding_code_name(f->code));
    log_explain(finding_code_name(f->code));
}

/* Print a finding and end the relay, because this host cannot start the job. The starter sends the finding to the
 * other hosts as the reason why the job ends. */
static void fail_host(struct relay *r, enum finding_code code, const char *what, const char *why)
{
    struct remote_answer a = { .news = REMOTE_FINDING, .version = DDP_VERSION };
    struct finding f;
    struct buf line = { 0 };
    report_host(r, code, what, why, &f);
    r->exit_code = EXIT_CODE_DDPRUN;
    if (r->job_token[0] != '\0' && remote_encode_end(f.subject, &f, true, &line)) {
        memcpy(a.token, r->job_token, sizeof(a.token));
        snprintf(a.addresses, sizeof(a.addresses), "%.*s", (int)line.len, (const char *)line.data);
        remote_print_answer(&a, &r->findings);
    }
    buf_free(&line);
}

/* Print a finding and end the relay. Derive the code of the finding from `why`, the reason of the failure
 * (start_code). */
static void not_ready(struct relay *r, const char *what, const char *why)
{
    fail_host(r, start_code(why), what, why);
}

/* --- answers ------------------------------------------------------------------------------------------------- */

static void send_answer(struct relay *r, const struct remote_answer *answer)
{
    struct buf out = { 0 };
    size_t sent = 0;
    if (!remote_print_answer(answer, &out))
        r->exit_code = EXIT_CODE_DDPRUN;
    while (sent < out.len) {
        const ssize_t n = write(STDOUT_FILENO, (const char *)out.data + sent, out.len - sent);
        if (n < 0 && errno != EINTR) {
            r->exit_code = EXIT_CODE_DDPRUN;
            break;
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    buf_free(&out);
}

/* List this host's addresses, separated by blanks: first the network addresses, then the loopback addresses. A
 * loopback address works if all names in --hosts are names of this machine. */
static void list_addresses(char *out, size_t size)
{
    struct own_address own[OWN_ADDRESSES_MAX];
    const int n = own_addresses(own);
    size_t used = 0;
    out[0] = '\0';
    for (int loopback = 0; loopback < 2; loopback++)
        for (int i = 0; i < n; i++)
            if (endpoint_is_loopback(own[i].text) == (loopback == 1) &&
                strncmp(own[i].text, "fe80:", 5) != 0 && used + strlen(own[i].text) + 2 < size)
                used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? " " : "", own[i].text);
}

static void send_news(struct relay *r, enum remote_news news, int port, const char *addresses)
{
    struct remote_answer a = { .news = news, .port = port, .version = DDP_VERSION };
    snprintf(a.token, sizeof(a.token), "%s", r->job_token[0] != '\0' ? r->job_token : r->token);
    snprintf(a.addresses, sizeof(a.addresses), "%s", addresses);
    send_answer(r, &a);
}

static void send_here(struct relay *r, int port)
{
    char addresses[REMOTE_LINE_MAX / 2];
    list_addresses(addresses, sizeof(addresses));
    send_news(r, REMOTE_HERE, port, addresses);
}

/* --- findings ------------------------------------------------------------------------------------------------- */

/* Write to stdout without blocking. Return false if not all bytes were written. If stdout is a pipe, open the pipe a
 * second time with O_NONBLOCK. The descriptor of stdout itself must not become O_NONBLOCK, because the job uses the
 * same stdout. */
static bool write_at_once(struct slice bytes)
{
    struct stat st;
    const bool is_pipe = fstat(STDOUT_FILENO, &st) == 0 && S_ISFIFO(st.st_mode);
    const int own = is_pipe ? open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    ssize_t n = own >= 0 ? write(own, bytes.data, bytes.len)
                         : send(STDOUT_FILENO, bytes.data, bytes.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (own >= 0)
        close(own);
    else if (n < 0 && errno == ENOTSOCK)
        n = write(STDOUT_FILENO, bytes.data, bytes.len);
    return n == (ssize_t)bytes.len;
}

/* Read the findings of the host's ddprun, and queue an answer FINDING for each finding. */
static void read_findings(struct relay *r)
{
    struct remote_answer a = { .news = REMOTE_FINDING, .version = DDP_VERSION };
    ssize_t n = 0;
    memcpy(a.token, r->job_token, sizeof(a.token));
    while (r->news >= 0 && (n = recv(r->news, a.addresses, NEWS_MAX, MSG_DONTWAIT)) > 0) {
        a.addresses[n] = '\0';
        if (strlen(a.addresses) == (size_t)n && strchr(a.addresses, '\n') == NULL)
            remote_print_answer(&a, &r->findings);
    }
    if (r->news >= 0 && n == 0) {
        close(r->news);
        r->news = -1;
    }
}

/* Send the queued findings, unless the child process is sending log files to the same stdout. If `waits` is true, wait
 * until stdout accepts the findings. */
static void send_findings(struct relay *r, bool waits)
{
    while (!r->sends && r->findings.len > 0) {
        const uint8_t *newline = memchr(r->findings.data, '\n', r->findings.len);
        const size_t len = newline != NULL ? (size_t)(newline + 1 - r->findings.data) : r->findings.len;
        if (!write_at_once(slice_of(r->findings.data, len)) &&
            (!waits || write(STDOUT_FILENO, r->findings.data, len) != (ssize_t)len))
            return;
        buf_consume(&r->findings, len);
    }
}

/* --- probes ---------------------------------------------------------------------------------------------------- */

/* The text that a probe sends to get the token. The relay sends the token only to a client that has sent this text. An
 * agent that searches for the store may also connect to the relay. This agent does not send the text, and would report
 * a token as an unknown service. */
static const char probe_text[] = "ddprun probe";

/* Listen on the master port to answer probes. The store of the job uses this port later. The kernel reports a
 * connection when its first bytes have arrived, or after about one second. So answer_probe does not wait when it
 * reads. */
static void handle_LISTEN(struct relay *r, struct slice body)
{
    char text[16];
    unsigned char random[(REMOTE_TOKEN_MAX - 1) / 2];
    const int wait_s = 1;
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    int port = atoi(text);
    r->listener = port_hold(&port);
    if (r->listener < 0 ||
        setsockopt(r->listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait_s, sizeof(wait_s)) != 0 ||
        listen(r->listener, PROBES_MAX) != 0 || fcntl(r->listener, F_SETFL, O_NONBLOCK) != 0 ||
        sys_getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        not_ready(r, "cannot listen on the master port", strerror(errno));
        return;
    }
    text_hex(r->token, random, sizeof(random));
    send_here(r, port);
}

static void answer_probe(const struct relay *r)
{
    const int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    char got[sizeof(probe_text)];
    if (read(fd, got, sizeof(got)) == (ssize_t)strlen(probe_text) &&
        memcmp(got, probe_text, strlen(probe_text)) == 0)
        (void)!write(fd, r->token, strlen(r->token));
    close(fd);
}

struct probe {
    const char *address;
    int fd;           /* -1 if the probe has ended */
    bool asked, good; /* asked: probe_text was sent; good: the token was received */
    char got[REMOTE_TOKEN_MAX];
    size_t n;
};

static void probe_begin(struct probe *p, const char *address, const char *port)
{
    const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *at = NULL;
    *p = (struct probe){ .address = address, .fd = -1 };
    if (getaddrinfo(address, port, &hints, &at) != 0)
        return;
    p->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd >= 0 && connect(p->fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
        close(p->fd);
        p->fd = -1;
    }
    freeaddrinfo(at);
}

/* Send probe_text to the connected address. Then read the token. The probe fails if the token is different or
 * incomplete. */
static void probe_continue(struct probe *p, const char *token)
{
    const ssize_t got = p->asked ? read(p->fd, p->got + p->n, sizeof(p->got) - 1 - p->n)
                                 : write(p->fd, probe_text, strlen(probe_text));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (!p->asked && got == (ssize_t)strlen(probe_text)) {
        p->asked = true;
        return;
    }
    p->n += p->asked && got > 0 ? (size_t)got : 0;
    p->good = p->n == strlen(token) && memcmp(p->got, token, p->n) == 0;
    if (!p->asked || got <= 0 || p->good || p->n == sizeof(p->got) - 1) {
        close(p->fd);
        p->fd = -1;
    }
}

/* Return true if the best address has sent the token. The best address is the first address whose probe has not
 * failed. */
static bool is_best_known(const struct probe *probes, int n)
{
    int i = 0;
    while (i < n && probes[i].fd < 0 && !probes[i].good)
        i++;
    return i < n && probes[i].good;
}

/* Wait until every probe has ended or PROBE_MS is over. If `waits_for_all` is false, stop earlier: as soon as the best
 * address is known, or some time after the first answer. This time is twice the time until the first answer, but at
 * least PROBE_MORE_MS. Without this early stop, each start would wait PROBE_MS for an address that no packet
 * reaches. */
static void probe_all(struct probe *probes, int n, const char *token, bool waits_for_all)
{
    const uint64_t from_ms = clock_ms();
    uint64_t until_ms = from_ms + PROBE_MS;
    bool answered = waits_for_all;
    for (uint64_t now = from_ms; now < until_ms && (waits_for_all || !is_best_known(probes, n));
         now = clock_ms()) {
        struct pollfd fds[REMOTE_ADDRESSES_MAX];
        struct probe *of[REMOTE_ADDRESSES_MAX];
        nfds_t open = 0;
        for (int i = 0; i < n; i++)
            if (probes[i].fd >= 0) {
                of[open] = &probes[i];
                fds[open++] =
                    (struct pollfd){ .fd = probes[i].fd, .events = probes[i].asked ? POLLIN : POLLOUT };
            }
        if (open == 0 || poll(fds, open, (int)(until_ms - now)) == 0)
            break;
        for (nfds_t i = 0; i < open; i++) {
            if (fds[i].revents != 0)
                probe_continue(of[i], token);
            if (of[i]->good && !answered) {
                const uint64_t at_ms = clock_ms(), more_ms = 2 * (at_ms - from_ms);
                const uint64_t end_ms = at_ms + (more_ms > PROBE_MORE_MS ? more_ms : PROBE_MORE_MS);
                until_ms = end_ms < until_ms ? end_ms : until_ms;
                answered = true;
            }
        }
    }
    for (int i = 0; i < n; i++)
        if (probes[i].fd >= 0)
            close(probes[i].fd);
}

/* Connect to all addresses of the first host at the same time, and report the addresses that sent the token. The
 * starter sends a second PROBE if no address is reachable from all hosts. For the second PROBE, wait for all addresses;
 * for the first, stop earlier (see probe_all). */
static void handle_PROBE(struct relay *r, struct slice body)
{
    char text[REMOTE_LINE_MAX + 1], *rest, *address;
    char reached[REMOTE_LINE_MAX] = "";
    struct probe probes[REMOTE_ADDRESSES_MAX];
    int n = 0;
    size_t used = 0;
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    const char *port = strtok_r(text, " ", &rest), *token = port != NULL ? strtok_r(NULL, " ", &rest) : NULL;
    if (token == NULL || strlen(token) >= REMOTE_TOKEN_MAX)
        return;
    while (n < REMOTE_ADDRESSES_MAX && (address = strtok_r(NULL, " ", &rest)) != NULL)
        probe_begin(&probes[n++], address, port);
    probe_all(probes, n, token, r->has_probed);
    r->has_probed = true;
    for (int i = 0; i < n; i++)
        if (probes[i].good)
            used += (size_t)snprintf(reached + used, sizeof(reached) - used, "%s%s", used > 0 ? " " : "",
                                     probes[i].address);
    send_news(r, REMOTE_REACHED, 0, reached);
}

/* --- the job -------------------------------------------------------------------------------------------------- */

/* Replace the forked child by the host's ddprun, with `input` as stdin and `news` as NEWS_FD. Execute /proc/self/exe,
 * because the file of --ship was removed and its path is not safe. */
static void exec_job(pid_t relay, char **argv, int input, int news)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (getppid() != relay || dup2(input, STDIN_FILENO) < 0)
        _exit(EXIT_CODE_DDPRUN);
    if (news == NEWS_FD)
        fcntl(news, F_SETFD, 0);
    else if (news >= 0)
        dup2(news, NEWS_FD);
    execv("/proc/self/exe", argv);
    _exit(EXIT_CODE_DDPRUN);
}

static bool set_environment(const cJSON *env)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, env)
    {
        const char *text = cJSON_GetStringValue(item), *is = text != NULL ? strchr(text, '=') : NULL;
        char *name = is != NULL ? strndup(text, (size_t)(is - text)) : NULL;
        const bool ok = name != NULL && setenv(name, is + 1, 1) == 0;
        free(name);
        if (!ok)
            return false;
    }
    return true;
}

/* Return the strings of a JSON array as a list that ends with NULL. `array` owns the strings, and the caller frees the
 * list. Return NULL if the array is empty, an item is not a string, or memory is short. */
static char **texts_of(const cJSON *array)
{
    const int n = cJSON_GetArraySize(array);
    char **texts = n > 0 ? calloc((size_t)n + 1, sizeof(*texts)) : NULL;
    for (int i = 0; texts != NULL && i < n; i++) {
        texts[i] = cJSON_GetStringValue(cJSON_GetArrayItem(array, i));
        if (texts[i] == NULL) {
            free(texts);
            return NULL;
        }
    }
    return texts;
}

/* Start the host's ddprun. The first line of its stdin contains `secret`, unless `secret` is "". If `input` is true,
 * the job's input follows. If `input` is false, stdin then ends. */
static void spawn_job(struct relay *r, char **argv, const char *secret, bool input)
{
    char line[80], why[FORK_ERROR_MAX];
    int ends[2] = { -1, -1 }, news[2] = { -1, -1 };
    if (pipe2(ends, O_CLOEXEC) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, news) != 0) {
        not_ready(r, "cannot start ddprun", strerror(errno));
        return;
    }
    const pid_t relay = getpid();
    r->job_ms = clock_ms();
    r->child = fork();
    const int error = errno;
    if (r->child == 0)
        exec_job(relay, argv, ends[0], news[1]);
    close(ends[0]);
    close(news[1]);
    r->child_in = ends[1];
    r->news = news[0];
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    if (r->child < 0) {
        r->child = 0;
        not_ready(r, "cannot start ddprun", fork_error_text(error, why));
        return;
    }
    snprintf(line, sizeof(line), "%.64s\n", secret);
    if (secret[0] != '\0' && write(ends[1], line, strlen(line)) != (ssize_t)strlen(line))
        not_ready(r, "cannot write the secret to ddprun's stdin", strerror(errno));
    r->had_job = true;
    r->input_ended = !input;
}

/* Write a temporary file in the directory, and close the file, because NFS reports a full quota in close. The file
 * gets a name only if the file system does not support unnamed files. If the disk or the quota is full, store the
 * error in `why`, for example "No space left on device (0 bytes and 7 inodes free)". Otherwise store "". */
static void probe_disk(const char *directory, char why[WRITE_ERROR_MAX])
{
    static const char bytes[4096];
    char path[PATH_MAX];
    int error = 0;
    int fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    const bool is_named = fd < 0 && errno == EOPNOTSUPP;
    snprintf(path, sizeof(path), "%.4000s/.ddprun-XXXXXX", directory);
    if (is_named)
        fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || write(fd, bytes, sizeof(bytes)) < 0)
        error = errno;
    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = errno;
    if (fd >= 0 && is_named)
        unlink(path);
    why[0] = '\0';
    if (error == ENOSPC || error == EDQUOT)
        path_error_text(error, directory, NULL, why);
}

/* The directories of the job. A thread checks the directories, because a file server may hang. */
struct place {
    char *directory, *log_dir;                               /* owned; log_dir is NULL without log files */
    int error;                                               /* errno of chdir */
    char log_why[WRITE_ERROR_MAX], own_why[WRITE_ERROR_MAX]; /* disk errors of `log_dir` and `directory` */
};

static void place_free(void *user)
{
    struct place *p = user;
    free(p->directory);
    free(p->log_dir);
    free(p);
}

/* Change to the directory, and check the disks of the directory and of the log files. If the log directory does not
 * exist yet, check its nearest parent that exists. */
static void place_enter(void *user)
{
    struct place *p = user;
    char path[PATH_MAX];
    if (chdir(p->directory) != 0) {
        p->error = errno;
        return;
    }
    snprintf(path, sizeof(path), "%s", p->log_dir != NULL ? p->log_dir : ".");
    while (access(path, F_OK) != 0 && strcmp(path, ".") != 0) {
        char *slash = strrchr(path, '/');
        if (slash != NULL)
            slash[slash == path] = '\0';
        else
            snprintf(path, sizeof(path), ".");
    }
    if (p->log_dir != NULL)
        probe_disk(path, p->log_why);
    probe_disk(".", p->own_why);
}

/* Change to the directory of the job within PLACE_MS. If the disk for the log files is full, end the relay. If only
 * the disk of the directory is full, print a finding and continue. The job may write to other directories. */
static void enter_directory(struct relay *r, const char *directory, const char *log_dir)
{
    char why[80];
    struct place *p = calloc(1, sizeof(*p));
    if (p != NULL)
        *p = (struct place){ .directory = strdup(directory),
                             .log_dir = log_dir != NULL ? strdup(log_dir) : NULL };
    if (p == NULL || p->directory == NULL || (log_dir != NULL && p->log_dir == NULL)) {
        not_ready(r, directory, strerror(ENOMEM));
    } else if (!timed_call_run(place_enter, place_free, p, PLACE_MS)) {
        snprintf(why, sizeof(why), "the file system has not answered within %d s", PLACE_MS / 1000);
        not_ready(r, directory, why);
        return; /* the thread still uses `p`, and frees it later */
    } else if (p->error == ENOENT) {
        fail_host(r, FINDING_HOST_LACKS_DIRECTORY, directory, strerror(ENOENT));
    } else if (p->error != 0) {
        not_ready(r, directory, strerror(p->error));
    } else if (p->log_why[0] != '\0') {
        not_ready(r, log_dir, p->log_why);
    } else if (p->own_why[0] != '\0') {
        report_host(r, start_code(p->own_why), directory, p->own_why, &(struct finding){ 0 });
    }
    if (p != NULL)
        place_free(p);
}

/* Raise a soft limit of this process to the soft limit of the starter. If the hard limit is lower, raise the soft
 * limit to the hard limit, and print a message unless `quiet` is true. `name` is the limit's name in limits.conf, and
 * `object` is what the limit counts, such as "open files". */
static void raise_limit(int resource, const cJSON *wanted, const char *name, const char *object, bool quiet)
{
    struct rlimit limit;
    char host[256] = "this host", cap[24];
    if (!cJSON_IsNumber(wanted) || getrlimit(resource, &limit) != 0)
        return;
    const rlim_t want = wanted->valuedouble == REMOTE_UNLIMITED ? RLIM_INFINITY : (rlim_t)wanted->valuedouble;
    if (limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(resource, &limit);
    if (quiet || limit.rlim_cur == want)
        return;
    gethostname(host, sizeof(host) - 1);
    snprintf(cap, sizeof(cap), "%llu", (unsigned long long)want);
    log_info("%s allows %llu %s, but the host where ddprun was started allows %s; raise '%s' in "
             "/etc/security/limits.conf on %s",
             host, (unsigned long long)limit.rlim_cur, object,
             want == RLIM_INFINITY ? "an unlimited number" : cap, name, host);
}

static void raise_limits(const cJSON *o)
{
    const bool quiet = cJSON_IsTrue(cJSON_GetObjectItem(o, "quiet"));
#define X(id, name, object) raise_limit(RLIMIT_##id, cJSON_GetObjectItem(o, name), name, object, quiet);
    REMOTE_LIMITS(X)
#undef X
}

/* Set the directory, the variables, the limits and the umask of this process. The host's ddprun inherits all four. */
static bool prepare_host(struct relay *r, const cJSON *o)
{
    const cJSON *umask_item = cJSON_GetObjectItem(o, "umask");
    const char *directory = cJSON_GetStringValue(cJSON_GetObjectItem(o, "directory"));
    const char *log_dir = cJSON_GetStringValue(cJSON_GetObjectItem(o, "log_dir"));
    if (directory == NULL) {
        not_ready(r, "the message JOB", "the member 'directory' is missing");
    } else if (!set_environment(cJSON_GetObjectItem(o, "env"))) {
        not_ready(r, "the variables of the job", "out of memory" MEMORY_REMEDY);
    } else {
        const char *terminal = getenv("DDPRUN_TERMINAL"); /* see is_shown() in main.c */
        log_on_terminal(terminal != NULL && terminal[0] != '\0');
        enter_directory(r, directory, log_dir);
    }
    if (r->exit_code >= 0)
        return false;
    raise_limits(o);
    if (cJSON_IsNumber(umask_item))
        umask((mode_t)umask_item->valueint & 0777);
    return true;
}

static void handle_JOB(struct relay *r, struct slice body)
{
    cJSON *o = cJSON_ParseWithLength(body.data, body.len);
    const cJSON *silent = cJSON_GetObjectItem(o, "silent_ms");
    const char *secret = cJSON_GetStringValue(cJSON_GetObjectItem(o, "secret"));
    const char *collect = cJSON_GetStringValue(cJSON_GetObjectItem(o, "collect"));
    const char *token = cJSON_GetStringValue(cJSON_GetObjectItem(o, "token"));
    const cJSON *grace = cJSON_GetObjectItem(o, "grace_ms"); /* an older starter does not send grace_ms */
    char **argv = texts_of(cJSON_GetObjectItem(o, "argv"));
    if (r->listener >= 0)
        close(r->listener);
    r->listener = -1;
    if (r->job_token[0] == '\0')
        snprintf(r->job_token, sizeof(r->job_token), "%s", token != NULL ? token : "-");
    if (r->child != 0 || argv == NULL || secret == NULL || !cJSON_IsNumber(silent)) {
        not_ready(r, "the message JOB",
                  r->child != 0 ? "received twice" : "a required member is missing or has a wrong type");
    } else if (prepare_host(r, o)) {
        r->silent_ms = (uint64_t)silent->valuedouble;
        r->grace_ms = cJSON_IsNumber(grace) ? (uint64_t)grace->valuedouble : AT_ONCE_MS;
        r->collect = collect != NULL && token != NULL ? strdup(collect) : NULL;
        spawn_job(r, argv, secret, cJSON_IsTrue(cJSON_GetObjectItem(o, "input")));
    }
    free(argv);
    cJSON_Delete(o);
}

/* Record that a signal has asked the child to stop the job. */
static void note_passed(struct relay *r, int number)
{
    r->passed = number;
    r->first_passed = r->first_passed != 0 ? r->first_passed : number;
}

static void handle_SIGNAL(struct relay *r, struct slice body)
{
    char text[8];
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    int number = atoi(text);
    if (r->sends && number != SIGCONT) /* the child sends log files and handles no signal */
        number = signals_act(0, number) == SIGNAL_STOP ? SIGKILL : 0;
    if (number == SIGTSTP || number == SIGCONT)
        r->rests = number == SIGTSTP;
    const bool stops = r->child > 0 && signals_act(0, number) == SIGNAL_STOP;
    /* A batch system sends SIGTERM to the starter and to the relay. If the relay's SIGTERM has arrived first, end_child
     * has already sent SIGTERM to the child. Then do not pass on the starter's first SIGTERM, because the child would
     * count this SIGTERM as a second request and kill its workers. */
    const bool is_copy = stops && number == SIGTERM && r->passed == SIGTERM && !r->has_request;
    r->has_request = r->has_request || stops;
    if (r->child > 0 && number > 0 && !is_copy)
        kill(r->child, number);
    if (stops)
        note_passed(r, number);
}

/* Buffer input for the job. Do not wait until the job reads the input, because the relay must still receive messages
 * about signals. The buffer stays small, because the starter sends no input while REMOTE_INPUT_WINDOW bytes wait for
 * the child's pipe. */
static void handle_INPUT(struct relay *r, struct slice body)
{
    if (r->input_ended || r->child_in < 0)
        return;
    if (body.len == 0) {
        r->input_ended = true;
    } else if (r->input.len + body.len > REMOTE_INPUT_WINDOW + REMOTE_INPUT_MAX ||
               !buf_append(&r->input, body.data, body.len)) {
        log_warn("stdin of the job: out of memory, so the remaining input is lost" MEMORY_REMEDY);
        r->input_ended = true;
    }
}

/* Do nothing: process_messages has already recorded the time of the message. */
static void handle_BEAT(struct relay *r, struct slice body)
{
    (void)r, (void)body;
}

/* Send a finding to the host's ddprun. If the socket to ddprun is full, drop the finding, because the relay must not
 * block. */
static void handle_NEWS(struct relay *r, struct slice body)
{
    struct news news;
    r->knows_reason = r->knows_reason || (decode_news(body, &news) && news.stops);
    if (r->news >= 0)
        (void)!send(r->news, body.data, body.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void handle_END(struct relay *r, struct slice body)
{
    (void)body;
    r->must_end = true;
}

/* Report how many bytes of input the child's pipe has accepted, so that the starter sends more. Report nothing while
 * the sender of log files writes to the same stdout. */
static void send_room(struct relay *r)
{
    struct remote_answer a = { .news = REMOTE_ROOM, .version = DDP_VERSION };
    struct buf out = { 0 };
    if (r->sends || r->taken - r->taken_reported < REMOTE_INPUT_WINDOW / 2)
        return;
    memcpy(a.token, r->job_token, sizeof(a.token));
    snprintf(a.addresses, sizeof(a.addresses), "%" PRIu64, r->taken);
    if (remote_print_answer(&a, &out) && write_at_once(buf_slice(&out)))
        r->taken_reported = r->taken;
    buf_free(&out);
}

/* Record that the relay becomes a branch. The loop of relay_run then ends, and relay_run calls branch_run. */
static void handle_BRANCH(struct relay *r, struct slice body)
{
    char text[16];
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    const long ms = atol(text);
    if (r->child != 0 || ms <= 0)
        not_ready(r, "the message BRANCH",
                  r->child != 0 ? "received after the job had started" : "it contains no valid time in ms");
    else
        r->branch_ms = (uint64_t)ms;
}

/* --- the loop -------------------------------------------------------------------------------------------------- */

/* Write buffered input to the child's stdin. After the last byte of the input, close the child's stdin. */
static void write_input(struct relay *r)
{
    const ssize_t n = r->input.len > 0 ? write(r->child_in, r->input.data, r->input.len) : 0;
    if (n > 0) {
        buf_consume(&r->input, (size_t)n);
        r->taken += (uint64_t)n;
    }
    if ((n < 0 && errno != EAGAIN) || (r->input_ended && r->input.len == 0)) {
        close(r->child_in);
        r->child_in = -1;
        r->input_ended = true;
    }
}

/* Send the reason why the relay ends the job to the host's ddprun, which shows this reason in its report. */
static void send_reason(struct relay *r, const char *words)
{
    struct finding f;
    struct buf line = { 0 };
    find_host(FINDING_HOST_LOST, words, r->job_ms, &f);
    if (remote_encode_end(f.subject, &f, true, &line))
        handle_NEWS(r, buf_slice(&line));
    buf_free(&line);
}

/* Terminate the child. The first call sends SIGTERM. Later calls send a second SIGTERM, and finally SIGKILL, when these
 * signals are due. The second SIGTERM makes ddprun kill its workers. Send SIGCONT after each of these signals, because
 * a stopped process does not handle SIGTERM. `why` describes the failure of the connection to the starter. If `why` is
 * NULL, the connection has not failed, and the child reports SIGTERM as the reason.
 *
 * After a signal to the relay, ddprun gets the grace period of the workers. The second SIGTERM follows 5 s after this
 * period, because leftover processes get a separate grace period. In all other cases, the second SIGTERM follows
 * AT_ONCE_MS after the first.
 *
 * A batch system sends SIGTERM both to the starter and to the relay. So when the relay gets its own SIGTERM, the relay
 * may have already passed the starter's SIGTERM on to ddprun. In this case, omit the first SIGTERM of this function,
 * because ddprun would count this SIGTERM as the second. */
static void end_child(struct relay *r, const char *why)
{
    const uint64_t now = clock_ms();
    if (r->child == 0) {
        r->exit_code = EXIT_CODE_DDPRUN;
        return;
    }
    if (r->end_ms == 0)
        r->end_ms = now;
    const bool has_grace = r->has_signal && !r->sends;
    const uint64_t twice_ms = has_grace ? r->grace_ms + KILL_MS / 2 : AT_ONCE_MS;
    const uint64_t kill_ms = has_grace ? r->grace_ms + KILL_MS : KILL_MS;
    const int due = now >= r->end_ms + kill_ms ? 3 : now >= r->end_ms + twice_ms ? 2 : 1;
    if (r->terms < due) {
        /* If the child got a stop signal earlier, that signal has ended the job. The lost connection is then not the
         * reason for the end. */
        if (r->terms == 0 && !r->knows_reason && why != NULL && r->passed == 0)
            send_reason(r, why);
        r->terms = due;
        /* After the starter's SIGTERM, ddprun would count another SIGTERM as the second, and would kill its workers */
        if (due > 1 || !has_grace || r->passed != SIGTERM)
            kill(r->child, due == 3 ? SIGKILL : SIGTERM);
        if (has_grace)
            note_passed(r, SIGTERM);
        kill(r->child, SIGCONT); /* a stopped process does not handle SIGTERM */
    }
}

static void process_messages(struct relay *r)
{
    /* REMOTE_FILE_MESSAGES have no row here, because only the starter receives these messages. */
    static void (*const handlers[REMOTE_MESSAGE_KINDS])(struct relay *, struct slice) = {
#define X(id, ...) [REMOTE_##id] = handle_##id,
        REMOTE_MESSAGES(X)
#undef X
            [REMOTE_BRANCH] = handle_BRANCH,
    };
    enum remote_message kind;
    struct slice body;
    size_t size;
    int got = 1;
    while (r->exit_code < 0 && r->branch_ms == 0 &&
           (got = remote_decode(buf_slice(&r->in), &kind, &body, &size)) == 1) {
        r->last_received_ms = clock_ms();
        if (handlers[kind] != NULL)
            handlers[kind](r, body);
        buf_consume(&r->in, size);
    }
    if (got < 0) {
        log_error("stdin: not a message of 'ddprun --hosts'; --relay is not an option for users");
        r->in.len = 0;
        r->failed = "the relay has received an invalid message from the host where ddprun was started";
    }
}

static void read_messages(struct relay *r)
{
    char bytes[65536];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 || !buf_append(&r->in, bytes, (size_t)n))
        r->failed = "the connection to the host where ddprun was started has failed";
    else
        process_messages(r);
}

/* Send the log files of the job in a child process, so that the relay still reads messages. */
static void start_sender(struct relay *r)
{
    struct remote_answer a = { .news = REMOTE_FILES, .port = r->job_code, .version = DDP_VERSION };
    const pid_t relay = getpid();
    sigset_t none;
    memcpy(a.token, r->job_token, sizeof(a.token));
    r->sends = true;
    r->end_ms = 0;
    r->terms = 0;
    send_answer(r, &a);
    r->child = fork();
    if (r->child != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    _exit(getppid() == relay && collect_send(r->collect, STDOUT_FILENO) ? EXIT_CODE_OK : EXIT_CODE_DDPRUN);
}

/* Handle the end of the child. With --collect_logs, start the sender of log files after the host's ddprun has
 * ended. */
static void reap(struct relay *r)
{
    int status;
    if (r->child <= 0 || waitpid(r->child, &status, WNOHANG) != r->child)
        return;
    /* If a signal has killed ddprun, the launcher has failed, not the user's program. But if a stop signal arrives
     * before ddprun's guardian handles signals, the signal ends ddprun as requested. After several stop signals, the
     * exit code contains the first of them, because the first has stopped the job. */
    const bool is_stopped = WIFSIGNALED(status) && r->first_passed != 0 && !r->sends &&
                            signals_act(0, WTERMSIG(status)) == SIGNAL_STOP;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status)
                     : is_stopped      ? EXIT_CODE_SIGNAL + r->first_passed
                                       : EXIT_CODE_DDPRUN;
    r->child = 0;
    read_findings(r);
    send_findings(r, true);
    if (r->sends || r->collect == NULL) {
        r->exit_code = r->sends ? r->job_code : code;
        return;
    }
    r->job_code = code;
    start_sender(r);
    if (r->child < 0)
        r->exit_code = code;
}

static void read_signals(struct relay *r)
{
    struct signalfd_siginfo info;
    while (read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        r->has_signal = r->has_signal || info.ssi_signo != SIGCHLD;
    reap(r);
}

/* Return true if the starter has sent nothing for too long. Unread bytes on stdin count as received. */
static bool is_silent(const struct relay *r)
{
    return !r->rests && clock_ms() > r->last_received_ms + r->silent_ms && !remote_has_input();
}

enum { POLL_STDIN, POLL_SIGNALS, POLL_LISTENER, POLL_INPUT, POLL_NEWS, POLLS, TURN_MS = 250 };

int relay_run(void)
{
    struct relay r = { .listener = -1,
                       .news = -1,
                       .child_in = -1,
                       .token = "-",
                       .silent_ms = FIRST_MS,
                       .started_ms = clock_ms(),
                       .last_received_ms = clock_ms(),
                       .exit_code = -1 };
    const int watched[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP };
    sigset_t set;
    close(STDERR_FILENO + 1); /* with --ship, this descriptor is the program file of ddprun */
    sys_close_range(SHIPPED_LIBRARY_FD + ship_has_library(), UINT32_MAX, 0);
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    r.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r.signals < 0) {
        char remedy[FILES_REMEDY_MAX];
        log_error("signals: cannot watch: %s%s", strerror(errno), files_remedy(errno, remedy));
        return EXIT_CODE_DDPRUN;
    }
    send_here(&r, 0);
    while (r.exit_code < 0 && r.branch_ms == 0) {
        struct pollfd fds[POLLS] = {
            [POLL_STDIN] = { .fd = r.failed != NULL ? -1 : STDIN_FILENO, .events = POLLIN },
            [POLL_SIGNALS] = { .fd = r.signals, .events = POLLIN },
            [POLL_LISTENER] = { .fd = r.listener, .events = POLLIN },
            [POLL_INPUT] = { .fd = r.input.len > 0 || r.input_ended ? r.child_in : -1, .events = POLLOUT },
            [POLL_NEWS] = { .fd = r.child > 0 && !r.sends ? r.news : -1, .events = POLLIN }
        };
        poll(fds, POLLS, TURN_MS);
        if (fds[POLL_SIGNALS].revents != 0)
            read_signals(&r);
        if (fds[POLL_LISTENER].revents != 0)
            answer_probe(&r);
        if (fds[POLL_STDIN].revents != 0 && r.exit_code < 0)
            read_messages(&r);
        if (r.child_in >= 0 && (r.input.len > 0 || r.input_ended))
            write_input(&r);
        if (fds[POLL_NEWS].revents != 0)
            read_findings(&r);
        send_findings(&r, false);
        send_room(&r);
        const char *why = r.failed != NULL || !is_silent(&r)
                              ? r.failed
                              : "the host where ddprun was started has sent no message for too long";
        if (r.exit_code < 0 && (r.has_signal || why != NULL || (r.must_end && !r.sends)))
            end_child(&r, r.has_signal ? NULL : why);
    }
    const bool is_branch = r.exit_code < 0;
    send_findings(&r, true);
    const int exit_code = is_branch ? branch_run(r.signals, r.branch_ms, &r.in) : r.exit_code;
    if (!r.sends && !is_branch)
        send_news(&r, r.had_job ? REMOTE_ENDED : REMOTE_FAILED, exit_code, "");
    free(r.collect);
    buf_free(&r.findings);
    buf_free(&r.in);
    buf_free(&r.input);
    return exit_code;
}

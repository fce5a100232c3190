/* detach.c -- runs jobs without a terminal (--detach), and carries out the commands for these jobs; see guardian.h. A
 * supervisor that has left the terminal waits for the guardian, and answers requests on a socket in the runtime
 * directory. The job writes its output to a file, and a viewer (ddprun attach) reads this file. */
#include "node/guardian.h"

#include "base/clock.h"
#include "base/events.h"
#include "base/exit_codes.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "contain/job_record.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_PREFIX "detached-"

/* Each request and each answer is one message of the socket, so neither side has to split a stream. */
enum {
    REQUEST_MAX = 16,   /* bytes of a request, with a NUL: "info", "attach" or "stop" */
    ANSWER_MAX = 65536, /* bytes of an answer */
    COMMAND_MAX = 4096, /* bytes of a command line in an answer; a longer command line is cut */
    ID_MAX = 32,        /* characters of an id */
    /* maximum number of connections to a job; one of them is reserved for `stop` */
    VIEWERS_MAX = 32,
    ANSWER_MS = 2000,  /* how long a viewer waits for an answer */
    FOLLOW_MS = 100,   /* time between two reads of the output file by a viewer */
    TAIL_LINES = 10,   /* largest number of lines of earlier output that a viewer shows first */
    TAIL_MAX = 65536,  /* largest number of bytes of earlier output that a viewer shows first */
    COMMAND_SHOWN = 78 /* maximum bytes of a command line in a row of `ddprun list` */
};

/* The state of a supervisor. Before the parent forks the supervisor, the parent creates the output file and the
 * socket, and stores their names here. */
struct supervisor {
    const struct detached_job *job;
    pid_t guardian;
    int listener, signals;      /* descriptors: the listening socket, a signalfd */
    int stops;                  /* number of requests to stop the job */
    int viewers[VIEWERS_MAX];   /* connections of the viewers; -1 in a free entry */
    bool attached[VIEWERS_MAX]; /* the viewer waits for the end of the job */
    uint64_t started_us;        /* start of the job by the wall clock, in us since 1970 */
    /* Absolute paths of the output file and of the socket. */
    char output[PATH_MAX], socket[PATH_MAX];
};

/* Return true if the process that has connected to `fd` belongs to this user, or to root. */
static bool is_own_peer(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* Fill in the address of the socket `name` in the directory with the descriptor `dir`. sun_path has only 108 bytes, so
 * the path begins with the short link /proc/self/fd/N instead of the directory's path. */
static void detach_address(int dir, const char *name, struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(at->sun_path, sizeof(at->sun_path), "/proc/self/fd/%d/%s", dir, name);
}

/* --- the supervisor ------------------------------------------------------------------------------------------ */

/* The processes:
 *
 *     ddprun --detach     -> supervisor -> guardian -> agent -> workers
 *     ddprun attach, stop -> socket of the supervisor
 *
 * When the supervisor dies, the guardian gets SIGHUP, as if a terminal were closed. */

/* Return the length of `text`, cut to at most `max` bytes. Keep UTF-8 characters whole. */
static size_t cut_length(const char *text, size_t len, size_t max)
{
    size_t n = len < max ? len : max;
    while (n > 0 && n < len && (text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* Append the command line as one line, quoted for a shell. Write \n in place of a newline. */
static bool append_command(const struct detached_job *job, struct buf *out)
{
    bool ok = buf_printf(out, "ddprun");
    struct buf line = { 0 };
    for (char *const *word = job->argv + 1; ok && *word != NULL && line.len < COMMAND_MAX; word++)
        ok = buf_printf(&line, " ") && shell_word(&line, *word);
    const size_t n = cut_length((const char *)line.data, line.len, COMMAND_MAX);
    for (size_t i = 0; ok && i < n; i++)
        ok = line.data[i] == '\n' ? buf_append(out, "\\n", 2) : buf_append(out, &line.data[i], 1);
    ok = ok && (n == line.len || buf_printf(out, "..."));
    buf_free(&line);
    return ok && buf_append(out, "", 1);
}

/* Return the job as one line of JSON, or NULL if memory is short. The caller frees the line. */
static char *describe_job(const struct supervisor *s)
{
    char since[EVENT_TIME_MAX];
    struct buf command = { 0 };
    cJSON *o = cJSON_CreateObject();
    event_time(since, s->started_us);
    char *text = NULL;
    if (append_command(s->job, &command)) {
        /* `ddprun list` prints this text to a terminal */
        text_disarm(command.data, command.len - 1, '\0');
        if (json_add_text(o, "id", s->job->id) &&
            (s->job->rdzv_id == NULL || json_add_text(o, "rdzv_id", s->job->rdzv_id)) &&
            json_add_text(o, "state", s->stops > 0 ? "stopping" : "running") &&
            json_add_text(o, "since", since) && json_add_number(o, "pid", s->guardian) &&
            json_add_text(o, "output", s->output) && json_add_text(o, "command", (const char *)command.data))
            text = cJSON_PrintUnformatted(o);
    }
    buf_free(&command);
    cJSON_Delete(o);
    return text;
}

static void close_viewer(struct supervisor *s, int i)
{
    close(s->viewers[i]);
    s->viewers[i] = -1;
    s->attached[i] = false;
}

static int count_attached(const struct supervisor *s)
{
    int n = 0;
    for (int i = 0; i < VIEWERS_MAX; i++)
        n += s->attached[i];
    return n;
}

/* Answer each request with the description of the job. Before the answer to `stop`, send SIGINT to the guardian, as
 * Ctrl-C does. If VIEWERS_MAX - 1 viewers are attached, reject another `attach`, because `stop` needs a connection. */
static void answer_viewer(struct supervisor *s, int i)
{
    char request[REQUEST_MAX] = "";
    const ssize_t n = recv(s->viewers[i], request, sizeof(request) - 1, MSG_DONTWAIT);
    const bool attaches = n > 0 && strcmp(request, "attach") == 0;
    if (n <= 0 || (attaches && !s->attached[i] && count_attached(s) == VIEWERS_MAX - 1)) {
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            close_viewer(s, i);
        return;
    }
    if (strcmp(request, "stop") == 0) {
        s->stops++;
        kill(s->guardian, SIGINT);
    }
    s->attached[i] = s->attached[i] || attaches;
    char *text = describe_job(s);
    if (text == NULL || send(s->viewers[i], text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        close_viewer(s, i);
    cJSON_free(text);
}

/* Accept a connection. If the connecting process belongs to neither this user nor root, or if VIEWERS_MAX connections
 * are open, close the connection at once. */
static void accept_viewer(struct supervisor *s)
{
    int i = 0;
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (i < VIEWERS_MAX && s->viewers[i] >= 0)
        i++;
    if (fd >= 0 && i < VIEWERS_MAX && is_own_peer(fd))
        s->viewers[i] = fd;
    else if (fd >= 0)
        close(fd);
}

/* Print that the job has ended, and send its exit code to all attached viewers. A viewer that does not read gets no
 * message. */
static void send_end(struct supervisor *s, int code)
{
    char text[32];
    const int len = snprintf(text, sizeof(text), "ended %d", code);
    log_info("job %s has ended with exit code %d", s->job->id, code);
    for (int i = 0; i < VIEWERS_MAX; i++)
        if (s->viewers[i] >= 0 && s->attached[i])
            (void)!send(s->viewers[i], text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Serve viewers until the guardian has ended. Return the exit code of the job. Discard signals that would end this
 * process. A sender such as systemd signals all processes of a service, so the guardian gets the signal, too, and
 * reacts to it. */
static int supervise(struct supervisor *s)
{
    int status = 0;
    while (waitpid(s->guardian, &status, WNOHANG) == 0) {
        struct pollfd fds[2 + VIEWERS_MAX] = { { .fd = s->listener, .events = POLLIN },
                                               { .fd = s->signals, .events = POLLIN } };
        struct signalfd_siginfo info;
        for (int i = 0; i < VIEWERS_MAX; i++)
            fds[2 + i] = (struct pollfd){ .fd = s->viewers[i], .events = POLLIN };
        poll(fds, 2 + VIEWERS_MAX, -1);
        /* discard signals: a sender such as systemd signals the guardian, too */
        while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
            continue;
        for (int i = 0; i < VIEWERS_MAX; i++)
            if (fds[2 + i].revents != 0)
                answer_viewer(s, i);
        if (fds[0].revents != 0)
            accept_viewer(s);
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_SIGNAL + WTERMSIG(status);
    unlink(s->socket);
    send_end(s, code);
    return code;
}

/* Become the guardian of the job. Let the kernel send SIGHUP to the guardian when the supervisor dies. Return false if
 * the supervisor has already died. */
static bool become_guardian(pid_t supervisor, int listener)
{
    static const int wanted[] = { SIGHUP, SIGINT, SIGTERM };
    close(listener);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        /* nohup or a shell may have disabled this signal */
        signal(wanted[i], SIG_DFL);
    return prctl(PR_SET_PDEATHSIG, SIGHUP) == 0 && getppid() == supervisor;
}

/* Leave the terminal, so that no SIGHUP arrives when the terminal is closed. Replace all descriptors of the terminal,
 * because they would keep the terminal open. Input that is not a terminal stays open for the workers. */
static void leave_terminal(int output)
{
    setsid();
    if (isatty(STDIN_FILENO)) {
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, STDIN_FILENO);
        close(null);
    }
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close(output);
}

/* Block SIGCHLD and the signals that would end this process. Return a descriptor from which supervise() reads these
 * signals, or -1 with errno set on failure. The guardian restores the mask `before`. */
static int watch_guardian(sigset_t *before)
{
    static const int watched[] = { SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGQUIT };
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    signal(SIGCHLD, SIG_DFL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Fork the guardian, then run the supervisor and return its exit code. In the guardian, return -1. The parent exits
 * when the pipe `waits` is closed. */
static int run_detached(struct supervisor *s, int output, int waits)
{
    const pid_t supervisor = getpid();
    sigset_t before;
    leave_terminal(output);
    /* Closing the pipe allows the parent to exit. The terminal may be closed as soon as the parent has exited, so call
     * leave_terminal() before close(). */
    close(waits);
    /* Call listen() again, so that SO_PEERCRED gives viewers the pid of this process, not of its parent. */
    listen(s->listener, VIEWERS_MAX);
    s->signals = watch_guardian(&before);
    s->guardian = s->signals >= 0 ? fork() : -1;
    if (s->guardian == 0) {
        close(s->signals);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return become_guardian(supervisor, s->listener) ? -1 : EXIT_CODE_DDPRUN;
    }
    if (s->guardian > 0)
        return supervise(s);
    char why[FORK_ERROR_MAX];
    log_error("--detach: cannot start the job: %s", fork_error_text(errno, why));
    unlink(s->socket);
    return EXIT_CODE_DDPRUN;
}

/* Create the socket under a draft name, and rename the socket when it listens. `ddprun list` removes sockets that
 * refuse connections, so a socket that does not listen yet must not have its final name. Store the path of the runtime
 * directory in `dir_path`. */
static bool open_socket(struct supervisor *s, char dir_path[PATH_MAX])
{
    char draft[64], name[64];
    struct sockaddr_un at;
    const int dir = runtime_dir_make(dir_path);
    /* this mask denies other users access to the socket */
    const mode_t mask = umask(077);
    snprintf(draft, sizeof(draft), ".%.*s", ID_MAX, s->job->id);
    snprintf(name, sizeof(name), SOCKET_PREFIX "%.*s", ID_MAX, s->job->id);
    detach_address(dir, draft, &at);
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool ok = dir >= 0 && s->listener >= 0 &&
                    bind(s->listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
                    listen(s->listener, VIEWERS_MAX) == 0 && renameat(dir, draft, dir, name) == 0 &&
                    snprintf(s->socket, sizeof(s->socket), "%s/%s", dir_path, name) < (int)sizeof(s->socket);
    const int error = errno;
    umask(mask);
    if (!ok && dir >= 0)
        unlinkat(dir, draft, 0);
    if (dir >= 0)
        close(dir);
    errno = error;
    return ok;
}

/* Create the output file in the working directory. Return -1 and set errno on failure. */
static int open_output(struct supervisor *s)
{
    char dir[PATH_MAX];
    if (getcwd(dir, sizeof(dir)) == NULL ||
        snprintf(s->output, sizeof(s->output), "%s/ddprun-%s.out", dir, s->job->id) >= (int)sizeof(s->output))
        return -1;
    /* overwrite no file, and follow no link of another user */
    return open(s->output, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int detach_begin(const struct detached_job *job)
{
    struct supervisor s = { .job = job, .started_us = clock_unix_us(), .listener = -1 };
    const int output = open_output(&s);
    int left[2] = { -1, -1 };
    char none, why[WRITE_ERROR_MAX], runtime_dir[PATH_MAX];
    struct buf line = { 0 };
    for (int i = 0; i < VIEWERS_MAX; i++)
        s.viewers[i] = -1;
    if (output < 0) {
        log_error("%s: cannot create the file for the output (--detach): %s",
                  s.output[0] != '\0' ? s.output : "working directory",
                  path_error_text(errno, s.output, "start the job in another directory", why));
        return EXIT_CODE_DDPRUN;
    }
    if (!open_socket(&s, runtime_dir)) {
        log_error("%s: cannot create a socket in this runtime directory: %s; set XDG_RUNTIME_DIR to "
                  "another directory of this user",
                  runtime_dir, path_error_text(errno, runtime_dir, NULL, why));
        unlink(s.output);
        return EXIT_CODE_DDPRUN;
    }
    const pid_t supervisor = pipe2(left, O_CLOEXEC) == 0 ? fork() : -1;
    if (supervisor == 0) {
        close(left[0]);
        return run_detached(&s, output, left[1]);
    }
    close(output);
    close(s.listener);
    if (supervisor > 0) {
        /* Wait until the supervisor has left the terminal, because a shell or a user may close the terminal as soon
         * as this process has ended. */
        close(left[1]);
        while (read(left[0], &none, 1) < 0 && errno == EINTR)
            continue;
        close(left[0]);
    }
    if (supervisor < 0) {
        log_error("--detach: cannot start a process: %s", fork_error_text(errno, why));
        unlink(s.socket);
        unlink(s.output);
        return EXIT_CODE_DDPRUN;
    }
    if (!job->quiet)
        log_info("job %s runs in the background; its output is in %s; 'ddprun attach %s' shows the output, "
                 "'ddprun stop %s' stops the job",
                 job->id, s.output, job->id, job->id);
    return print_stdout(buf_printf(&line, "%s\n", job->id), &line) ? EXIT_CODE_OK : EXIT_CODE_DDPRUN;
}

/* --- requests of viewers -------------------------------------------------------------------------------------- */

/* Connect to the socket `name` of a supervisor. Remove the socket of a dead supervisor. Return -1 if no supervisor of
 * this user listens. */
static int connect_to(int dir, const char *name)
{
    struct sockaddr_un at;
    const struct timeval limit = { .tv_sec = ANSWER_MS / 1000 };
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    detach_address(dir, name, &at);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0) {
        if (is_own_peer(fd))
            return fd;
    } else if (errno == ECONNREFUSED) {
        unlinkat(dir, name, 0);
    }
    close(fd);
    return -1;
}

/* Send a request. Return the answer, a description of the job, or NULL on failure. The caller deletes the answer. */
static cJSON *ask_supervisor(int fd, const char *request)
{
    char *text = malloc(ANSWER_MAX);
    const ssize_t n = text != NULL && send(fd, request, strlen(request), MSG_NOSIGNAL) > 0
                          ? recv(fd, text, ANSWER_MAX, 0)
                          : -1;
    cJSON *o = n > 0 ? cJSON_ParseWithLength(text, (size_t)n) : NULL;
    free(text);
    return o;
}

/* Return a text member of a description, or "" if the member is missing. */
static const char *job_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
    return text != NULL ? text : "";
}

/* Called once for each background job. `job` is the description of the job, or NULL if the supervisor does not answer.
 * `fd` is the connection to the supervisor. The caller closes `fd` afterwards. Return false to end the visit. */
typedef bool (*job_visitor)(void *user, const char *id, const cJSON *job, int fd);

/* Visit the jobs of a runtime directory. A socket without a supervisor belongs to a dead job and is skipped. Return
 * false if the visitor has ended the visit. */
static bool visit_directory(int dir, job_visitor visit, void *user)
{
    const size_t prefix = strlen(SOCKET_PREFIX);
    const int copy = dup(dir);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    bool ok = true;
    for (const struct dirent *e; ok && d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, SOCKET_PREFIX, prefix) != 0 || strlen(e->d_name) > prefix + ID_MAX)
            continue;
        const int fd = connect_to(dir, e->d_name);
        if (fd < 0)
            continue;
        cJSON *job = ask_supervisor(fd, "info");
        ok = visit(user, e->d_name + prefix, job, fd);
        cJSON_Delete(job);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
    else if (copy >= 0)
        close(copy);
    return ok;
}

/* Visit the jobs of all runtime directories. Return false if the visitor has ended the visit. */
static bool visit_jobs(job_visitor visit, void *user)
{
    bool ok = true;
    for (int i = 0; ok && i < RUNTIME_DIRS; i++) {
        const int dir = runtime_dir_open(i);
        if (dir < 0)
            continue;
        ok = visit_directory(dir, visit, user);
        close(dir);
    }
    return ok;
}

struct job_search {
    const char *rdzv_id;
    int n;  /* number of jobs with the wanted --rdzv_id */
    int fd; /* connection to the supervisor of the first job with this --rdzv_id; -1 if `n` is 0 */
};

/* Count a job with the wanted --rdzv_id, and keep a connection to the first of these jobs. */
static bool compare_rdzv_id(void *user, const char *id, const cJSON *job, int fd)
{
    struct job_search *s = user;
    (void)id;
    if (strcmp(job_text(job, "rdzv_id"), s->rdzv_id) == 0 && s->n++ == 0)
        s->fd = dup(fd);
    return true;
}

/* Search all runtime directories for job `id` and connect to its supervisor. Return -1 if this user has no such job. */
static int connect_by_id(const char *id)
{
    char name[64];
    int fd = -1;
    snprintf(name, sizeof(name), SOCKET_PREFIX "%.*s", ID_MAX, id);
    for (int i = 0; fd < 0 && i < RUNTIME_DIRS && strlen(id) <= ID_MAX; i++) {
        const int dir = runtime_dir_open(i);
        if (dir < 0)
            continue;
        fd = connect_to(dir, name);
        close(dir);
    }
    return fd;
}

/* Connect to the supervisor of a job. `id` is the job's id or its --rdzv_id. If one job has this id and another job has
 * this --rdzv_id, choose the job with the id, because ids are unique. On failure, print the reason and return -1.
 * `command` is the name of the command, for the message. */
static int find_supervisor(const char *command, const char *id)
{
    struct job_search search = { .rdzv_id = id, .fd = -1 };
    if (id[0] == '\0') {
        log_error("%s: '%.64s' is not the id of a job; 'ddprun list' shows the ids", command, id);
        return -1;
    }
    const int fd = strchr(id, '/') == NULL ? connect_by_id(id) : -1;
    if (fd >= 0)
        return fd;
    visit_jobs(compare_rdzv_id, &search);
    if (search.n == 1 && search.fd >= 0)
        return search.fd;
    if (search.n > 1)
        log_error("%s: %d background jobs have --rdzv_id=%.128s; choose one by its id, which 'ddprun list' "
                  "shows",
                  command, search.n, id);
    else
        log_error(
            "%s: no background job has the id or --rdzv_id '%.128s'; 'ddprun list' shows the jobs; the file "
            "ddprun-ID.out keeps the output of an ended job",
            command, id);
    if (search.fd >= 0)
        close(search.fd);
    return -1;
}

/* --- ddprun list ---------------------------------------------------------------------------------------------- */

struct job_list {
    bool json;
    struct buf *out;
};

/* Append a row for a job. If its supervisor does not answer, the row has only the id and the state "silent". */
static bool list_job(void *user, const char *id, const cJSON *job, int fd)
{
    const struct job_list *list = user;
    char *text = list->json && job != NULL ? cJSON_PrintUnformatted(job) : NULL;
    const char *state = job != NULL ? job_text(job, "state") : "silent", *command = job_text(job, "command");
    const size_t len = strlen(command), shown = cut_length(command, len, COMMAND_SHOWN);
    bool ok;
    (void)fd;
    if (list->json)
        ok = job != NULL ? text != NULL && buf_printf(list->out, "%s\n", text)
                         : buf_printf(list->out, "{\"id\":\"%s\",\"state\":\"silent\"}\n", id);
    else
        ok = buf_printf(list->out, "%-10s%-10s%-21.19s%.*s%s\n", id, state, job_text(job, "since"),
                        (int)shown, command, shown < len ? "..." : "");
    cJSON_free(text);
    return ok;
}

bool detach_list(bool json, struct buf *out)
{
    struct buf rows = { 0 };
    bool ok = visit_jobs(list_job, &(struct job_list){ json, &rows });
    if (!json && rows.len > 0)
        ok = ok && buf_printf(out, "%-10s%-10s%-21s%s\n", "ID", "STATE", "SINCE (UTC)", "COMMAND");
    if (!json && ok && rows.len == 0)
        log_info("no jobs in the background");
    ok = ok && (rows.len == 0 || buf_append(out, rows.data, rows.len));
    buf_free(&rows);
    return ok;
}

/* --- ddprun stop ---------------------------------------------------------------------------------------------- */

/* Report that the supervisor has not answered a command. `reason` is a further possible reason (" or ..."), or "". */
static void report_silence(const char *command, const char *id, int fd, const char *reason)
{
    struct ucred supervisor = { 0 };
    socklen_t size = sizeof(supervisor);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &supervisor, &size);
    log_error(
        "%s: the supervisor of job %s (pid %d) does not answer, maybe because the job has just ended%s; if "
        "'ddprun list' shows the state 'silent', 'kill -9 %d' ends the job",
        command, id, (int)supervisor.pid, reason, (int)supervisor.pid);
}

int detach_stop(const char *id)
{
    const int fd = find_supervisor("stop", id);
    if (fd < 0)
        return EXIT_CODE_USAGE;
    cJSON *job = ask_supervisor(fd, "stop");
    const bool ok = job != NULL;
    if (ok)
        log_info("job %s received SIGINT, as from Ctrl-C; to kill the job, run 'ddprun stop %s' again",
                 job_text(job, "id"), job_text(job, "id"));
    else
        report_silence("stop", id, fd, "");
    close(fd);
    cJSON_Delete(job);
    return ok ? EXIT_CODE_OK : EXIT_CODE_DDPRUN;
}

/* --- ddprun attach -------------------------------------------------------------------------------------------- */

struct viewer {
    const char *id;
    int socket, file, signals; /* descriptors: the supervisor, the output file, a signalfd for Ctrl-C */
    bool escapes;              /* stdout is a terminal */
    char bytes[65536];         /* the first `kept` bytes were read, but not printed yet */
    size_t kept;
};

/* Print bytes of the job. If stdout is a terminal, escape control characters, because a worker could otherwise
 * control the terminal. Newlines stay as they are. Return false if stdout cannot be written. */
static bool view_bytes(const struct viewer *v, const char *bytes, size_t len)
{
    const char *at = bytes, *end = bytes + len;
    struct buf out = { 0 };
    bool ok = v->escapes || buf_append(&out, bytes, len);
    while (ok && v->escapes && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline != NULL ? newline : end;
        ok = escape_append(&out, slice_of(at, (size_t)(stop - at))) &&
             (newline == NULL || buf_append(&out, "\n", 1));
        at = stop + (newline != NULL);
    }
    return print_stdout(ok, &out);
}

/* Return the length of `bytes` without an incomplete character or colour code at the end. The caller keeps the cut
 * bytes until the rest arrives. Otherwise view_bytes() would print \xNN instead of the character or the colour. */
static size_t whole_length(const char *bytes, size_t len)
{
    enum { COLOUR_MAX = 40 };
    const size_t from = len > COLOUR_MAX ? len - COLOUR_MAX : 0;
    const char *esc = memrchr(bytes + from, '\033', len - from), *end = bytes + len;
    size_t at = len;
    if (esc != NULL) {
        const char *c = esc + 1 + (esc + 1 < end && esc[1] == '[');
        while (c < end && (isdigit((unsigned char)*c) || *c == ';' || *c == ':'))
            c++;
        if (c == end)
            return (size_t)(esc - bytes);
    }
    while (at > 0 && len - at < 3 && (bytes[at - 1] & 0xC0) == 0x80)
        at--;
    const bool is_cut = at > 0 && (bytes[at - 1] & 0xC0) == 0xC0 &&
                        utf8_sequence((const uint8_t *)bytes + at - 1, len - at + 1) == 0;
    return is_cut ? at - 1 : len;
}

/* Print the part of the file that is new since the last call. Return false if stdout cannot be written. */
static bool view_file(struct viewer *v)
{
    ssize_t n;
    while (v->kept < sizeof(v->bytes) &&
           (n = read(v->file, v->bytes + v->kept, sizeof(v->bytes) - v->kept)) > 0) {
        const size_t len = v->kept + (size_t)n, whole = v->escapes ? whole_length(v->bytes, len) : len;
        if (!view_bytes(v, v->bytes, whole))
            return false;
        v->kept = len - whole;
        memmove(v->bytes, v->bytes + whole, v->kept);
    }
    return true;
}

/* Move the file position to the beginning of the last TAIL_LINES lines, but at most TAIL_MAX bytes before the end. */
static void view_tail(const struct viewer *v)
{
    char bytes[TAIL_MAX];
    const off_t size = lseek(v->file, 0, SEEK_END), begin = size > TAIL_MAX ? size - TAIL_MAX : 0;
    const ssize_t n = pread(v->file, bytes, sizeof(bytes), begin);
    ssize_t at = n;
    for (int lines = 0; at > 0 && (lines += at < n && bytes[at - 1] == '\n') < TAIL_LINES;)
        at--;
    lseek(v->file, begin + (at > 0 ? at : 0), SEEK_SET);
}

/* Show the output until the job ends, or until Ctrl-C. If the job has ended, return its exit code, otherwise a code of
 * ddprun. Receive the supervisor's message first, then read the output file. The file is complete when "ended" has
 * arrived, so this read gets the rest of the output. */
static int view_job(struct viewer *v)
{
    char text[64];
    struct pollfd fds[] = { { .fd = v->socket, .events = POLLIN }, { .fd = v->signals, .events = POLLIN } };
    for (;;) {
        poll(fds, 2, FOLLOW_MS);
        const ssize_t n = fds[0].revents != 0 ? recv(v->socket, text, sizeof(text) - 1, MSG_DONTWAIT) : -1;
        if (!view_file(v))
            return EXIT_CODE_DDPRUN;
        if (fds[1].revents != 0) {
            log_info("detached from job %s, which continues; 'ddprun stop %s' stops the job", v->id, v->id);
            return EXIT_CODE_SIGNAL + SIGINT;
        }
        if (n == 0) {
            view_bytes(v, v->bytes, v->kept);
            log_error("the supervisor of job %s is gone, so the job ends", v->id);
            return EXIT_CODE_DDPRUN;
        }
        text[n > 0 ? n : 0] = '\0';
        if (strncmp(text, "ended ", 6) == 0)
            return view_bytes(v, v->bytes, v->kept) ? atoi(text + 6) : EXIT_CODE_DDPRUN;
    }
}

int detach_attach(const char *id)
{
    struct viewer v = { .id = id, .file = -1, .escapes = isatty(STDOUT_FILENO) == 1 };
    sigset_t interrupt;
    int code = EXIT_CODE_DDPRUN;
    char why[WRITE_ERROR_MAX];
    v.socket = find_supervisor("attach", id);
    if (v.socket < 0)
        return EXIT_CODE_USAGE;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, NULL);
    v.signals = signalfd(-1, &interrupt, SFD_CLOEXEC | SFD_NONBLOCK);
    cJSON *job = ask_supervisor(v.socket, "attach");
    if (job != NULL) {
        v.id = job_text(job, "id");
        v.file = open(job_text(job, "output"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (job == NULL) {
        report_silence("attach", id, v.socket, " or has too many viewers");
    } else if (v.signals < 0 || v.file < 0) {
        log_error("attach: cannot read the output of job %s: %s", v.id,
                  path_error_text(errno, job_text(job, "output"), "", why));
    } else {
        view_tail(&v);
        code = view_job(&v);
    }
    cJSON_Delete(job);
    if (v.file >= 0)
        close(v.file);
    close(v.signals);
    close(v.socket);
    return code;
}

/* run.c -- see run.h.
 *
 * One loop (pump) polls three descriptors: both output pipes and a pidfd. The pidfd shows the end of the program. The
 * pipes do not show this end, because a grandchild may keep the pipes open. After the end the loop reads the pipes for
 * DRAIN_MS more. The process is reaped only after its process group was killed, so that no other group can get the same
 * number. */
#include "run.h"

#include "base/buf.h"
#include "base/clock.h"
#include "procstat.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { REST_MS = 5 };

bool patience_left(struct patience *p)
{
    const uint64_t now_ms = clock_ms();
    if (p->until_ms == 0)
        p->until_ms = now_ms + PATIENCE_MS;
    if (now_ms >= p->until_ms)
        return false;
    poll(NULL, 0, REST_MS);
    return true;
}

bool patience_read(int fd, char *seen, unsigned long size, const char *text)
{
    for (size_t len = strlen(seen); strstr(seen, text) == NULL;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        const ssize_t n = poll(&wait, 1, PATIENCE_MS) == 1 ? read(fd, seen + len, size - 1 - len) : 0;
        if (n <= 0)
            return false;
        len += (size_t)n;
        seen[len] = '\0';
    }
    return true;
}

/* --- temp dir --------------------------------------------------------------------------------------------- */

void temp_dir_make(char *path)
{
    if (mkdtemp(path) != NULL)
        return;
    perror(path);
    abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void temp_dir_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char test_dir[] = "/tmp/ddp-test-XXXXXX";

void test_dir_open(void)
{
    temp_dir_make(test_dir);
}

void test_dir_close(void)
{
    temp_dir_remove(test_dir);
}

const char *test_path(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_dir, name);
    return path;
}

/* --- free port -------------------------------------------------------------------------------------------- */

/* Choose a port that the kernel does not assign to other sockets. The search begins at a port that depends on the
 * process id, because each test is a separate process and tests run at the same time. */

/* The range of ports from which free_port() chooses. It contains neither ddprun's port 29500 nor the ports that the
 * tests of port ranges use. The searches of two processes with adjacent pids begin APART ports apart. */
enum { LOWEST = 10000, HIGHEST = 19999, APART = 7 };

static bool is_free(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is = bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    close(fd);
    return is;
}

int free_port(void)
{
    static int given;
    const int count = HIGHEST - LOWEST + 1;
    for (int tries = 0; tries < count; tries++) {
        const int port = LOWEST + (int)(((long)getpid() * APART + given++) % count);
        if (is_free(port))
            return port;
    }
    cr_assert_fail("no port from %d to %d is free", LOWEST, HIGHEST);
    return -1;
}

const char *free_port_option(const char *option)
{
    static char text[96];
    snprintf(text, sizeof(text), "%s%d", option, free_port());
    return text;
}

/* --- run -------------------------------------------------------------------------------------------------- */

enum { DRAIN_MS = 500, PIPE_BYTES = 1 << 20, READ_BYTES = 64 * 1024 };

extern char **environ;

struct stream {
    int fd; /* read end, -1 after EOF */
    struct buf text;
};

struct run_process {
    pid_t pid;
    int pidfd;
    struct stream out, err;
    uint64_t deadline_ms;
    bool exited;
};

/* --- start --------------------------------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return len == strcspn(b, "=") && memcmp(a, b, len) == 0;
}

static bool is_changed(const char *entry, const char *const *changes)
{
    for (; *changes != NULL; changes++)
        if (same_name(entry, *changes))
            return true;
    return false;
}

/* Return the inherited environment with `changes` applied. The caller frees the list but not the strings. */
static const char **merged_env(const char *const *changes)
{
    static const char *const none[] = { NULL };
    size_t count = 0, n = 0;
    if (changes == NULL)
        changes = none;
    while (environ[count] != NULL)
        count++;
    for (const char *const *c = changes; *c != NULL; c++)
        count++;
    const char **env = calloc(count + 1, sizeof(*env));
    for (char **e = environ; env != NULL && *e != NULL; e++)
        if (!is_changed(*e, changes))
            env[n++] = *e;
    for (const char *const *c = changes; env != NULL && *c != NULL; c++)
        if (strchr(*c, '=') != NULL)
            env[n++] = *c;
    return env;
}

static int stdin_with(const char *text)
{
    if (text == NULL)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = memfd_create("stdin", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Execute the program in the child process. Code between fork and exec must make only system calls. */
_Noreturn static void become(const char *const argv[], const char **env, const char *cwd, const int fds[3])
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    if (cwd == NULL || chdir(cwd) == 0)
        execvpe(argv[0], (char *const *)argv, (char *const *)env);
    dprintf(STDERR_FILENO, "run: cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static bool open_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return true;
}

/* Open a pseudo-terminal: one end to read from, and two ends for the program's stdout and stderr. The terminal must not
 * change a newline to "\r\n". */
static bool open_terminal(int out[2], int err[2])
{
    struct termios raw = { 0 };
    cfmakeraw(&raw);
    if (openpty(&out[0], &out[1], NULL, &raw, NULL) != 0)
        return false;
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    fcntl(out[1], F_SETFD, FD_CLOEXEC);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    err[0] = -1;
    err[1] = fcntl(out[1], F_DUPFD_CLOEXEC, 0);
    return true;
}

struct run_process *run_start(const char *const argv[], const struct run_options *options)
{
    static const struct run_options defaults;
    const struct run_options *o = options != NULL ? options : &defaults;
    struct run_process *p = calloc(1, sizeof(*p));
    int out[2], err[2];
    if (p == NULL || !(o->terminal ? open_terminal(out, err) : open_pipe(out) && open_pipe(err))) {
        free(p);
        return NULL;
    }
    const char **env = merged_env(o->env);
    const int fds[3] = { stdin_with(o->stdin_text), out[1], err[1] };
    p->deadline_ms = clock_ms() + (uint64_t)(o->timeout_ms > 0 ? o->timeout_ms : PATIENCE_MS);
    p->pid = o->fork != NULL ? o->fork(o->place) : fork();
    if (p->pid == 0)
        become(argv, env, o->cwd, fds);
    free(env);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    p->out.fd = out[0];
    p->err.fd = err[0];
    setpgid(p->pid, p->pid); /* both parent and child do this, because either may run first */
    p->pidfd = pidfd_open(p->pid, 0);
    return p;
}

/* --- hanging ---------------------------------------------------------------------------------------------- */

enum { DEPTH_MAX = 8, CHILDREN_MAX = 32 };

/* Read the first line of a thread's file in /proc, without its newline. */
static void first_line(pid_t pid, int thread, const char *file, char *out, int size)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, thread, file);
    FILE *f = fopen(path, "re");
    if (f == NULL || fgets(out, size, f) == NULL)
        snprintf(out, (size_t)size, "?");
    out[strcspn(out, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

static void describe_thread(pid_t pid, int thread, struct buf *out)
{
    char stat[512], where[64], name[64];
    first_line(pid, thread, "stat", stat, sizeof(stat));
    first_line(pid, thread, "wchan", where, sizeof(where));
    first_line(pid, thread, "comm", name, sizeof(name));
    const char *state = strrchr(stat, ')'); /* skip the name, which may contain any character */
    buf_printf(out, "run: still there: %s, pid %d, thread %d, state%.2s, in %s\n", name, (int)pid, thread,
               state != NULL ? state + 1 : " ?", where);
}

static void describe_threads(pid_t pid, struct buf *out)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (struct dirent *e; (e = readdir(threads)) != NULL;)
        if (e->d_name[0] != '.')
            describe_thread(pid, atoi(e->d_name), out);
    closedir(threads);
}

static void describe(pid_t pid, int depth, struct buf *out)
{
    pid_t child;
    describe_threads(pid, out);
    for (int n = 0; depth < DEPTH_MAX && n < CHILDREN_MAX && (child = procstat_child(pid, n)) != 0; n++)
        describe(child, depth + 1, out);
}

/* Append a line for each thread of `pid` and of all its descendants. The line has the thread's state and the kernel
 * function in which the thread sleeps. */
static void hanging_describe(pid_t pid, struct buf *out)
{
    describe(pid, 0, out);
}

/* --- read ---------------------------------------------------------------------------------------------- */

/* Read once from the stream, and put a NUL after the text, so that the text is always a string. At the end of the file,
 * close the stream. */
static void stream_read(struct stream *s)
{
    uint8_t *to = s->fd < 0 ? NULL : buf_reserve(&s->text, READ_BYTES + 1);
    ssize_t n = to == NULL ? 0 : read(s->fd, to, READ_BYTES);
    if (to != NULL)
        to[n > 0 ? n : 0] = '\0';
    if (n > 0) {
        s->text.len += (size_t)n;
    } else if (s->fd >= 0 && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
        close(s->fd);
        s->fd = -1;
    }
}

static const char *stream_text(const struct stream *s)
{
    return s->text.data != NULL ? (const char *)s->text.data : "";
}

/* Wait for an event until `until_ms`, and process the event. Return false if the time is over. */
static bool pump(struct run_process *p, uint64_t until_ms)
{
    uint64_t now = clock_ms();
    struct pollfd fds[3] = { { p->out.fd, POLLIN, 0 }, { p->err.fd, POLLIN, 0 }, { p->pidfd, POLLIN, 0 } };
    if (now >= until_ms)
        return false;
    if (p->exited)
        fds[2].fd = -1;
    poll(fds, 3, (int)(until_ms - now));
    if (fds[0].revents != 0)
        stream_read(&p->out);
    if (fds[1].revents != 0)
        stream_read(&p->err);
    p->exited |= fds[2].revents != 0;
    return true;
}

static bool said(const struct stream *s, const char *text)
{
    return strstr(stream_text(s), text) != NULL;
}

/* Print the output for readers of the failed test, in addition to the test's own message. */
static void tell_what_came(const struct run_process *p, const char *text)
{
    struct buf words = { 0 };
    buf_printf(&words, "run: '%s' is missing\nrun: stdout: %s\nrun: stderr: %s\n", text, stream_text(&p->out),
               stream_text(&p->err));
    hanging_describe(p->pid, &words);
    fwrite(words.data, 1, words.len, stderr);
    buf_free(&words);
}

static bool until_text(struct run_process *p, const struct stream *s, const char *text, int timeout_ms)
{
    uint64_t until_ms = clock_ms() + (uint64_t)timeout_ms;
    while (!said(s, text) && !(p->exited && s->fd < 0) && pump(p, until_ms))
        continue;
    if (!said(s, text) && timeout_ms >= PATIENCE_MS)
        tell_what_came(p, text);
    return said(s, text);
}

bool run_until_output(struct run_process *process, const char *text, int timeout_ms)
{
    return until_text(process, &process->out, text, timeout_ms);
}

bool run_until_error(struct run_process *process, const char *text, int timeout_ms)
{
    return until_text(process, &process->err, text, timeout_ms);
}

const char *run_output(struct run_process *process)
{
    stream_read(&process->out);
    return stream_text(&process->out);
}

/* --- end ----------------------------------------------------------------------------------------------- */

pid_t run_pid(const struct run_process *process)
{
    return process->pid;
}

void run_signal(struct run_process *process, int signal)
{
    pidfd_send_signal(process->pidfd, signal, NULL, 0);
}

static char *take_text(struct stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    return s->text.data != NULL ? (char *)s->text.data : calloc(1, 1);
}

/* Append the state of process `p` and of its descendants to the stderr text of `p`. */
static void note_what_hangs(struct run_process *p)
{
    hanging_describe(p->pid, &p->err.text);
    if (buf_append(&p->err.text, "", 1)) /* keep the text terminated, without counting the NUL */
        p->err.text.len--;
}

/* Keep a text until the test ends, and return it. A static list keeps it reachable for LeakSanitizer. */
static char *keep_text(char *text)
{
    struct kept {
        struct kept *next;
        char *text;
    } *kept = malloc(sizeof(*kept));
    static _Atomic(struct kept *) all;
    if (kept != NULL) {
        *kept = (struct kept){ .next = atomic_load(&all), .text = text };
        while (!atomic_compare_exchange_weak(&all, &kept->next, kept))
            continue;
    }
    return text;
}

struct run_result run_wait(struct run_process *process)
{
    struct run_result r = { .exit_code = -1 };
    int status = 0;
    while (!process->exited && pump(process, process->deadline_ms))
        continue;
    r.timed_out = !process->exited;
    if (r.timed_out)
        note_what_hangs(process);
    kill(-process->pid, SIGKILL);
    uint64_t drain_until_ms = clock_ms() + DRAIN_MS;
    while ((process->out.fd >= 0 || process->err.fd >= 0) && pump(process, drain_until_ms))
        continue;
    waitpid(process->pid, &status, 0);
    close(process->pidfd);
    if (WIFEXITED(status))
        r.exit_code = WEXITSTATUS(status);
    else
        r.signal = WTERMSIG(status);
    r.out = keep_text(take_text(&process->out));
    r.err = keep_text(take_text(&process->err));
    free(process);
    return r;
}

struct run_result run_command(const char *const argv[], const struct run_options *options)
{
    struct run_process *p = run_start(argv, options);
    if (p == NULL)
        return (struct run_result){ .exit_code = 127,
                                    .out = keep_text(strdup("")),
                                    .err = keep_text(strdup("run: cannot fork\n")) };
    return run_wait(p);
}

/* --- places of programs -------------------------------------------------------------------------------- */

/* Set `path` to the build directory, from BUILD/tests/LAYER/test_x or BUILD/tests/unit/LAYER/test_x. */
static void build_dir(char path[static PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[len > 0 ? len : 0] = '\0';
    for (char *slash; (slash = strrchr(path, '/')) != NULL;) {
        *slash = '\0';
        if (strcmp(slash + 1, "tests") == 0)
            break;
    }
}

const char *bin(const char *program)
{
    enum { KEEP = 8 }; /* number of kept paths, so that one argv may name several programs */
    static char paths[KEEP][PATH_MAX + 64];
    static int next;
    char *path = paths[next++ % KEEP], dir[PATH_MAX];
    const char *build = getenv("DDP_BUILD");
    if (build == NULL)
        build_dir(dir);
    else if (realpath(build, dir) == NULL) /* absolute path, for programs that start in another directory */
        snprintf(dir, sizeof(dir), "%s", build);
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, program);
    return path;
}

bool bin_is_sanitized(void)
{
    static const char *const marks[] = { "__asan_init", "__tsan_init" };
    bool found = false;
    struct stat st;
    int fd = open(bin("ddprun"), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *text =
        fstat(fd, &st) == 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    for (size_t i = 0; text != MAP_FAILED && i < sizeof(marks) / sizeof(marks[0]); i++)
        found = found || memmem(text, (size_t)st.st_size, marks[i], strlen(marks[i])) != NULL;
    if (text != MAP_FAILED)
        munmap(text, (size_t)st.st_size);
    return found;
}

bool bin_is_open_to_nobody(void)
{
    struct run_result r =
        run_command((const char *const[]){ "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                           "test", "-x", bin("ddprun"), NULL },
                    NULL);
    const bool open = r.exit_code == 0;
    return open;
}

void bin_seek_no_leaks(void)
{
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
}

/* --- texts ------------------------------------------------------------------------------------------------ */

bool has_parts(const char *text, const char *parts)
{
    for (; *parts != '\0'; text++) {
        const size_t len = strcspn(parts, "|");
        char part[256];
        snprintf(part, sizeof(part), "%.*s", (int)len, parts);
        if ((text = strstr(text, part)) == NULL)
            return false;
        parts += len + (parts[len] == '|');
    }
    return true;
}

/* --- daemon ----------------------------------------------------------------------------------------------- */

/* Let a daemon run for up to 10 minutes, and not only for PATIENCE_MS, because the test itself has a time limit. */
static const struct run_options as_long_as_the_test = { .timeout_ms = 600000 };

static struct daemon wait_ready(struct run_process *process)
{
    struct daemon d = { .process = process };
    if (!run_until_output(process, "\n", PATIENCE_MS)) {
        struct run_result r = run_wait(process);
        cr_assert_fail("the daemon does not start: %s", r.err);
    }
    d.port = atoi(strrchr(run_output(process), ':') + 1);
    return d;
}

struct daemon daemon_start(const char *listen, const char *option)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", listen, option, NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

struct daemon daemon_start_insecure(const char *max_bytes)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", "127.0.0.1:0", "--insecure",
                           "--max-bytes",         max_bytes,  NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

struct daemon daemon_start_limited(int max_fds)
{
    char command[64];
    snprintf(command, sizeof(command), "ulimit -n %d; exec \"$0\" --listen 127.0.0.1:0", max_fds);
    const char *argv[] = { "/bin/sh", "-c", command, bin("ddp-rendezvous"), NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

void daemon_stop(struct daemon *d)
{
    run_signal(d->process, SIGTERM);
    struct run_result r = run_wait(d->process);
    cr_assert_eq(r.exit_code, 0, "the daemon ended with %d, signal %d: %s", r.exit_code, r.signal, r.err);
    d->process = NULL;
}

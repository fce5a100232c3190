/* tree.c -- see remote.h. This file runs the remote shells, directly or through branches. A branch makes no decisions
 * and only passes bytes, so that the starter handles all hosts in the same way. */
#include "remote/remote.h"

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/messages.h"

#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

/* DRAIN_MS: the streams of an exited process are closed if no byte arrives for this time. Another process, such as a
 * master connection of ssh, may hold these streams open.
 * END_MS: time from the first call of branch_end() until the branch kills its processes. A relay needs less time to end
 * a job after a lost connection. After a signal, a relay waits for --grace. The branch still kills its processes after
 * END_MS, even if --grace is longer.
 * LOST_MS: replaces END_MS if the starter was silent. This time is short, because the network is probably lost. */
enum {
    DRAIN_MS = 2000,
    END_MS = 15000,
    LOST_MS = 1000,
    TURN_MS = 250,     /* longest wait of the loop between two checks of the time limits */
    OUT_MAX = 1 << 18, /* limit of queued bytes for the starter; above the limit, a branch reads no output */
    TO_MAX = 64 << 20, /* limit of queued bytes for a process; above the limit, the process is killed */
    SLOT_BYTES = 2,    /* bytes of a slot in a message; see REMOTE_TREE_MESSAGES */
    EXIT_NOT_REACHED = 255 /* exit status of ssh if it cannot reach the host */
};

/* --- messages ----------------------------------------------------------------------------------------------- */

/* Append a message that begins with a slot. */
static bool append_slot(struct buf *out, enum remote_message kind, int slot, struct slice body)
{
    const uint8_t head[SLOT_BYTES] = { (uint8_t)(slot >> 8), (uint8_t)slot };
    struct buf whole = { 0 };
    const bool ok = buf_append(&whole, head, sizeof(head)) &&
                    (body.len == 0 || buf_append(&whole, body.data, body.len)) &&
                    remote_encode(out, kind, buf_slice(&whole));
    buf_free(&whole);
    return ok;
}

/* Remove the slot from the beginning of a message's body, and return the slot. Return -1 if the body is too short. */
static int parse_slot(struct slice *body)
{
    const uint8_t *at = body->data;
    if (body->len < SLOT_BYTES)
        return -1;
    *body = slice_of(at + SLOT_BYTES, body->len - SLOT_BYTES);
    return at[0] << 8 | at[1];
}

static long slice_number(struct slice text)
{
    char digits[16];
    snprintf(digits, sizeof(digits), "%.*s", (int)text.len, (const char *)text.data);
    return strtol(digits, NULL, 10);
}

/* --- a branch ------------------------------------------------------------------------------------------------ */

/* A process of a branch: a remote shell, or the relay of the branch's own host. */
struct carried {
    int slot;
    pid_t pid;            /* 0 if the process has ended */
    int ends[3];          /* the branch's ends of the pipes for stdin, stdout and stderr; -1 if closed */
    struct slice program; /* --ship: bytes of `mapped` to write to stdin before the bytes of `to` */
    struct slice mapped;  /* the mapped file of the program; empty without --ship */
    struct buf to;        /* bytes for stdin that are not written yet */
    bool in_ends;         /* close stdin after the last byte of `to` */
    int status;           /* exit status of the process; EXIT_NOT_REACHED if a signal ended it */
    uint64_t exited_ms;   /* time of the process's exit, or of its last output if the output came later */
    bool is_over;         /* the message EXIT was sent */
};

/* A branch: a relay that starts other hosts. */
struct branch {
    struct buf *in;       /* borrowed; received bytes that do not form a complete message yet */
    struct buf out;       /* bytes for the starter that are not written yet */
    struct carried *list; /* owned; an array of `n` processes */
    int n;
    int signals;        /* a signalfd */
    uint64_t silent_ms; /* the branch ends if the starter is silent for longer than this */
    uint64_t heard_ms;  /* when the starter's last message arrived */
    uint64_t kill_ms;   /* when to kill processes that still run; 0 until the branch begins to end */
    bool rests;         /* Ctrl-Z has stopped the starter, so its silence is expected */
    bool is_broken;     /* a write to stdout has failed, because stdout has no reader */
};

static void carried_close(struct carried *c, int end)
{
    if (c->ends[end] >= 0)
        close(c->ends[end]);
    c->ends[end] = -1;
}

/* Begin to end the branch: close the stdin of all its processes, so that the relays end the job. After `wait_ms`, the
 * branch kills the processes that still run. */
static void branch_end(struct branch *b, uint64_t wait_ms)
{
    const uint64_t kill_ms = clock_ms() + wait_ms;
    const bool has_begun = b->kill_ms != 0;
    if (!has_begun || kill_ms < b->kill_ms)
        b->kill_ms = kill_ms;
    if (has_begun)
        return;
    for (int i = 0; i < b->n; i++)
        carried_close(&b->list[i], 0);
}

static void unmap(struct slice bytes)
{
    if (bytes.len > 0)
        munmap((void *)(uintptr_t)bytes.data, bytes.len);
}

static void carried_unmap(struct carried *c)
{
    unmap(c->mapped);
    c->mapped = c->program = slice_of(NULL, 0);
}

static struct carried *branch_find(const struct branch *b, int slot)
{
    for (int i = 0; i < b->n; i++)
        if (b->list[i].slot == slot && !b->list[i].is_over)
            return &b->list[i];
    return NULL;
}

/* Replace the forked child by the command `argv`. If `argv` is empty, replace the child by a relay for this host. */
static void exec_carried(pid_t branch, char **argv, int pipes[3][2])
{
    static char *relay[] = { "ddprun", "--relay", NULL };
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (getppid() != branch || dup2(pipes[0][0], 0) < 0 || dup2(pipes[1][1], 1) < 0 ||
        dup2(pipes[2][1], 2) < 0)
        _exit(EXIT_NOT_REACHED);
    if (argv[0] != NULL && ship_has_library())
        fcntl(SHIPPED_LIBRARY_FD, F_SETFD, FD_CLOEXEC);
    if (argv[0] == NULL)
        execv("/proc/self/exe", relay);
    else
        execvp(argv[0], argv);
    fprintf(stderr, "ddprun: cannot run %s: %s\n", argv[0] != NULL ? argv[0] : "ddprun", strerror(errno));
    fflush(stderr);
    _exit(EXIT_NOT_REACHED);
}

/* Return the file from which the loader has read cJSON, or NULL if cJSON is a part of this program. */
static const char *library_path(void)
{
    Dl_info library, program;
    const bool ok = dladdr((void *)(uintptr_t)cJSON_Parse, &library) != 0 &&
                    dladdr((void *)(uintptr_t)ship_map, &program) != 0;
    return ok && library.dli_fbase != program.dli_fbase ? library.dli_fname : NULL;
}

bool ship_has_library(void)
{
    const char *path = library_path();
    return path != NULL && strcmp(path, SHIPPED_LIBRARY) == 0;
}

/* Map a private copy of a file. Return an empty slice and set errno after a failure. */
static struct slice map_file(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *at = fd >= 0 && fstat(fd, &st) == 0
                   ? mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)
                   : MAP_FAILED;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return at == MAP_FAILED ? slice_of(NULL, 0) : slice_of(at, (size_t)st.st_size);
}

/* Remove the table of sections from a mapped program. Return the number of bytes that the loader reads. */
static size_t keep_loaded(struct slice program)
{
    ElfW(Ehdr) *head = (ElfW(Ehdr) *)(uintptr_t)program.data;
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)(program.data + head->e_phoff);
    size_t loaded = 0;
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_offset + part[i].p_filesz > loaded)
            loaded = part[i].p_offset + part[i].p_filesz;
    head->e_shoff = head->e_shnum = head->e_shstrndx = 0;
    return loaded;
}

/* Replace the file name of the library `path` by SHIPPED_LIBRARY in a mapped program. The first match is in the table
 * of required libraries, because this table comes before the code. Return false if there is no match, or no space for
 * the new name. */
static bool rename_library(struct slice program, const char *path)
{
    char name[NAME_MAX + 2] = "";
    const char *slash = strrchr(path, '/');
    const int n = snprintf(name + 1, sizeof(name) - 1, "%s", slash != NULL ? slash + 1 : path);
    char *at = memmem(program.data, program.len, name, (size_t)n + 2);
    if (at == NULL || (size_t)n < sizeof(SHIPPED_LIBRARY) - 1)
        return false;
    memcpy(at + 1, SHIPPED_LIBRARY, sizeof(SHIPPED_LIBRARY));
    return true;
}

/* Map the bytes that --ship sends (see remote.h). If rename_library fails, return the reason: without the new name, the
 * shipped program would load cJSON from the other host, which may not have this library. rename_library fails if
 * LD_PRELOAD has loaded a cJSON library with another file name than the program requires. */
const char *ship_map(struct slice *bytes, size_t *library)
{
    const char *path = library_path();
    const struct slice program = map_file("/proc/self/exe");
    const bool is_named =
        program.len == 0 || path == NULL || ship_has_library() || rename_library(program, path);
    const bool needs_file = program.len > 0 && path != NULL && is_named;
    const struct slice file = needs_file ? map_file(path) : slice_of(NULL, 0);
    const size_t loaded = program.len > 0 ? keep_loaded(program) : 0;
    uint8_t *both = MAP_FAILED;
    if (program.len > 0 && is_named && (!needs_file || file.len > 0))
        both = mmap(NULL, loaded + file.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int error = errno;
    if (both != MAP_FAILED) {
        memcpy(both, program.data, loaded);
        if (file.len > 0)
            memcpy(both + loaded, file.data, file.len);
        *bytes = slice_of(both, loaded + file.len);
        *library = file.len;
    }
    unmap(program);
    unmap(file);
    if (!is_named)
        return "the loaded cJSON library is not the library with which ddprun was linked; unset LD_PRELOAD, "
               "or install ddprun on the hosts and leave out --ship";
    return both != MAP_FAILED ? NULL : strerror(error);
}

/* Map this program for --ship. The program must have `size` bytes, because the script on the next host reads exactly
 * `size` bytes. Return NULL, or the reason of a failure. */
static const char *map_own_program(struct carried *c, size_t size)
{
    size_t library;
    const char *why = ship_map(&c->mapped, &library);
    if (why != NULL)
        return why;
    c->program = c->mapped;
    return c->mapped.len == size ? NULL
                                 : "the ddprun files on this host and on the host where ddprun was started "
                                   "have different sizes; install the same build of ddprun on both";
}

/* Start the process. Return NULL on success. On failure, write the reason to `why` and return `why`. */
static const char *fork_carried(struct carried *c, char **argv, char why[FORK_ERROR_MAX])
{
    int pipes[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
    const pid_t branch = getpid();
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok = ok && pipe2(pipes[i], O_CLOEXEC) == 0;
    c->pid = ok ? fork() : -1;
    const int error = errno;
    if (c->pid == 0)
        exec_carried(branch, argv, pipes);
    for (int i = 0; i < 3; i++) {
        const int own = i == 0;
        if (pipes[i][!own] >= 0)
            close(pipes[i][!own]);
        c->ends[i] = pipes[i][own];
        if (c->ends[i] >= 0)
            fcntl(c->ends[i], F_SETFL, O_NONBLOCK);
    }
    return c->pid < 0 ? fork_error_text(error, why) : NULL;
}

/* Report to the starter that a process could not be created, because `step` has failed. The starter gets the same
 * messages as for a remote shell that exits with an error text. */
static void report_no_fork(struct branch *b, struct carried *c, const char *step, const char *why)
{
    char text[FORK_ERROR_MAX + 64], status[8];
    snprintf(text, sizeof(text), "ddprun: %s: %s\n", step, why);
    snprintf(status, sizeof(status), "%d", EXIT_NOT_REACHED);
    append_slot(&b->out, REMOTE_ERR, c->slot, slice_str(text));
    append_slot(&b->out, REMOTE_EXIT, c->slot, slice_str(status));
    for (int i = 0; i < 3; i++)
        carried_close(c, i);
    carried_unmap(c);
    c->pid = 0;
    c->is_over = true;
}

static void branch_OPEN(struct branch *b, int slot, struct slice body)
{
    char *at = (char *)(uintptr_t)body.data, *end = at + body.len, why[FORK_ERROR_MAX];
    int words = 0;
    if (body.len == 0 || end[-1] != '\0' || branch_find(b, slot) != NULL)
        return;
    for (const char *p = at; p < end; p += strlen(p) + 1)
        words++;
    struct carried *grown = realloc(b->list, (size_t)(b->n + 1) * sizeof(*grown));
    char **argv = calloc((size_t)words + 1, sizeof(*argv));
    b->list = grown != NULL ? grown : b->list;
    if (grown != NULL && argv != NULL) {
        struct carried *c = &b->list[b->n++];
        *c = (struct carried){ .slot = slot, .ends = { -1, -1, -1 } };
        const size_t ship = strtoul(at, NULL, 10);
        at += strlen(at) + 1;
        for (int i = 0; at < end; at += strlen(at) + 1)
            argv[i++] = at;
        const char *no_map = ship > 0 ? map_own_program(c, ship) : NULL;
        const char *no_fork = no_map == NULL ? fork_carried(c, argv, why) : NULL;
        if (c->pid <= 0)
            report_no_fork(b, c, no_map != NULL ? "--ship" : "cannot start a process",
                           no_map != NULL ? no_map : no_fork);
    }
    free(argv);
}

/* Send a signal to a process and to all processes of its group. A signal to the process alone would end a script, but
 * not the ssh that the script has started. */
static void kill_group(pid_t pid, int signal)
{
    if (kill(-pid, signal) != 0)
        kill(pid, signal); /* the process has no group yet */
}

static void branch_PASS(struct branch *b, int slot, struct slice body)
{
    struct carried *c = branch_find(b, slot);
    if (c == NULL || c->ends[0] < 0 || c->in_ends)
        return;
    if (c->to.len + body.len > TO_MAX || !buf_append(&c->to, body.data, body.len))
        /* the process does not read its stdin, and the bytes in `to` would fill the memory */
        kill_group(c->pid, SIGKILL);
}

static void branch_CLOSE(struct branch *b, int slot, struct slice body)
{
    struct carried *c = branch_find(b, slot);
    (void)body;
    if (c != NULL)
        c->in_ends = true;
}

static void branch_KILL(struct branch *b, int slot, struct slice body)
{
    const struct carried *c = branch_find(b, slot);
    if (c != NULL && c->pid > 0)
        kill_group(c->pid, (int)slice_number(body));
}

static void branch_handle(struct branch *b, enum remote_message kind, struct slice body)
{
    static void (*const handlers[REMOTE_MESSAGE_KINDS])(struct branch *, int, struct slice) = {
        [REMOTE_OPEN] = branch_OPEN,
        [REMOTE_PASS] = branch_PASS,
        [REMOTE_CLOSE] = branch_CLOSE,
        [REMOTE_KILL] = branch_KILL,
    };
    b->heard_ms = clock_ms();
    if (kind == REMOTE_BRANCH) {
        b->silent_ms = (uint64_t)slice_number(body);
    } else if (kind == REMOTE_SIGNAL) {
        const long number = slice_number(body);
        if (number == SIGTSTP || number == SIGCONT)
            b->rests = number == SIGTSTP;
    } else if (handlers[kind] != NULL) {
        const int slot = parse_slot(&body);
        handlers[kind](b, slot, body);
    }
}

static void branch_handle_all(struct branch *b)
{
    enum remote_message kind;
    struct slice body;
    size_t size, done = 0;
    int got;
    while ((got = remote_decode(slice_of(b->in->data + done, b->in->len - done), &kind, &body, &size)) == 1) {
        branch_handle(b, kind, body);
        done += size;
    }
    buf_consume(b->in, done);
    if (got < 0)
        branch_end(b, END_MS);
}

static void branch_read(struct branch *b)
{
    char bytes[65536];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !buf_append(b->in, bytes, (size_t)n))
        branch_end(b, END_MS);
    else
        branch_handle_all(b);
}

static void carried_write(struct carried *c)
{
    const bool ships = c->program.len > 0;
    const struct slice from = ships ? c->program : buf_slice(&c->to);
    const ssize_t n = from.len > 0 ? write(c->ends[0], from.data, from.len) : 0;
    if (n > 0 && ships)
        c->program = slice_of((const char *)from.data + n, from.len - (size_t)n);
    else if (n > 0)
        buf_consume(&c->to, (size_t)n);
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || (c->in_ends && c->to.len == 0 && c->program.len == 0))
        carried_close(c, 0);
}

/* Read output of a process from `ends[end]`, and add the output to the bytes that are queued for the starter. */
static void carried_read(struct branch *b, struct carried *c, int end)
{
    char bytes[REMOTE_PIECE_MAX];
    const ssize_t n = read(c->ends[end], bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        carried_close(c, end);
    else if (!append_slot(&b->out, end == 1 ? REMOTE_OUT : REMOTE_ERR, c->slot, slice_of(bytes, (size_t)n)))
        branch_end(b, END_MS);
    c->exited_ms = c->pid == 0 ? clock_ms() : 0;
}

/* Report the end of a process when all its output is read. If no byte arrives for DRAIN_MS after the exit, close the
 * pipes, because another process may hold the pipes open. */
static void carried_check(struct branch *b, struct carried *c)
{
    char status[8];
    int code;
    if (c->pid > 0 && waitpid(c->pid, &code, WNOHANG) == c->pid) {
        c->pid = 0;
        c->exited_ms = clock_ms();
        c->status = WIFEXITED(code) ? WEXITSTATUS(code) : EXIT_NOT_REACHED;
        carried_close(c, 0);
    }
    if (c->is_over || c->pid > 0)
        return;
    if (clock_ms() >= c->exited_ms + DRAIN_MS && b->out.len < OUT_MAX)
        carried_close(c, 1), carried_close(c, 2);
    if (c->ends[1] >= 0 || c->ends[2] >= 0)
        return;
    snprintf(status, sizeof(status), "%d", c->status);
    c->is_over = append_slot(&b->out, REMOTE_EXIT, c->slot, slice_str(status));
    buf_free(&c->to);
    carried_unmap(c);
}

static void branch_write(struct branch *b)
{
    const ssize_t n = write(STDOUT_FILENO, b->out.data, b->out.len);
    if (n > 0)
        buf_consume(&b->out, (size_t)n);
    if (n >= 0 || errno == EAGAIN || errno == EINTR)
        return;
    b->is_broken = true;
    branch_end(b, END_MS);
}

static void branch_read_signals(struct branch *b)
{
    struct signalfd_siginfo info;
    while (read(b->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            branch_end(b, END_MS);
}

/* Indexes in the array that each turn of the loop passes to poll(). The branch has three entries. From TURN_CARRIED on,
 * each process has three entries. */
enum { TURN_STDIN, TURN_SIGNALS, TURN_STDOUT, TURN_CARRIED };

static nfds_t branch_watch(const struct branch *b, struct pollfd *fds)
{
    fds[TURN_STDIN] = (struct pollfd){ .fd = b->kill_ms == 0 ? STDIN_FILENO : -1, .events = POLLIN };
    fds[TURN_SIGNALS] = (struct pollfd){ .fd = b->signals, .events = POLLIN };
    fds[TURN_STDOUT] = (struct pollfd){ .fd = b->out.len > 0 ? STDOUT_FILENO : -1, .events = POLLOUT };
    for (int i = 0; i < b->n; i++) {
        const struct carried *c = &b->list[i];
        struct pollfd *of = fds + TURN_CARRIED + (ptrdiff_t)3 * i;
        const bool writes = c->to.len > 0 || c->program.len > 0 || c->in_ends;
        of[0] = (struct pollfd){ .fd = writes ? c->ends[0] : -1, .events = POLLOUT };
        for (int end = 1; end < 3; end++)
            of[end] = (struct pollfd){ .fd = b->out.len < OUT_MAX ? c->ends[end] : -1, .events = POLLIN };
    }
    return (nfds_t)(TURN_CARRIED + 3 * b->n);
}

static void branch_turn(struct branch *b, struct pollfd *fds)
{
    const int n = b->n; /* a message may add a process, which has no entries in `fds` until the next turn */
    poll(fds, branch_watch(b, fds), TURN_MS);
    if (fds[TURN_SIGNALS].revents != 0)
        branch_read_signals(b);
    for (int i = 0; i < n; i++) {
        struct carried *c = &b->list[i];
        const struct pollfd *of = fds + TURN_CARRIED + (ptrdiff_t)3 * i;
        if (of[0].revents != 0 && c->ends[0] >= 0)
            carried_write(c);
        for (int end = 1; end < 3; end++)
            if (of[end].revents != 0 && c->ends[end] >= 0)
                carried_read(b, c, end);
        carried_check(b, c);
    }
    if (fds[TURN_STDIN].revents != 0)
        branch_read(b);
    if (b->out.len > 0 && !b->is_broken)
        branch_write(b);
    if (b->is_broken)
        b->out.len = 0; /* drop the output, so that the processes do not block and can end */
    if (!b->rests && clock_ms() > b->heard_ms + b->silent_ms && !remote_has_input())
        branch_end(b, LOST_MS);
}

/* Return true if the branch has ended, because all its processes have ended and all output is sent. If the time limit
 * of branch_end() is over, kill the processes that still run. If DRAIN_MS have also passed since then, return true even
 * if a process still runs. */
static bool branch_is_done(const struct branch *b)
{
    const uint64_t now = clock_ms();
    bool lives = false;
    if (b->kill_ms == 0)
        return false;
    for (int i = 0; i < b->n; i++) {
        lives = lives || !b->list[i].is_over;
        if (b->list[i].pid > 0 && now >= b->kill_ms)
            kill_group(b->list[i].pid, SIGKILL);
    }
    return (!lives && b->out.len == 0) || now >= b->kill_ms + DRAIN_MS;
}

bool remote_has_input(void)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&in, 1, 0) > 0;
}

int branch_run(int signals, uint64_t silent_ms, struct buf *in)
{
    struct branch b = { .in = in, .signals = signals, .silent_ms = silent_ms, .heard_ms = clock_ms() };
    struct pollfd *fds = NULL;
    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    branch_handle_all(&b);
    while (!branch_is_done(&b)) {
        struct pollfd *grown = realloc(fds, (size_t)(TURN_CARRIED + 3 * b.n) * sizeof(*fds));
        if (grown == NULL)
            break;
        fds = grown;
        branch_turn(&b, fds);
    }
    for (int i = 0; i < b.n; i++)
        buf_free(&b.list[i].to);
    free(fds);
    free(b.list);
    buf_free(&b.out);
    return EXIT_CODE_OK;
}

/* --- links of the starter -------------------------------------------------------------------------------------- */

struct link {
    struct links *all;
    struct link *next;
    void *peer; /* argument of the callbacks */
    /* link of the branch that runs the process; NULL if the process is a child of the starter */
    struct link *via;
    int slot;
    bool is_branch;  /* the process is a branch */
    bool is_bad;     /* the process is a branch that was killed because it sent an invalid message */
    bool is_closed;  /* stdin is closed */
    bool has_exited; /* `exit_code` is set */
    bool is_over;    /* the process has exited, and all its output was read */
    int exit_code;
    struct buf in; /* received bytes of a branch that do not form a complete message yet */
    /* used only if `via` is NULL */
    uint64_t active_ms; /* time of the last output, or of the process's exit if the exit was later */
    uv_process_t process;
    uv_pipe_t pipes[3]; /* stdin, stdout, stderr */
    bool open[3];       /* pipes[i] has not reached its end and is not closed; open[0] is not used */
};

struct links {
    uv_loop_t *loop;
    const struct link_hooks *hooks;
    struct link *first;  /* all links, the newest first; freed by links_free */
    struct link **slots; /* the newest link of each slot; the array has `n` elements */
    int n;
    bool paused; /* no output is read */
};

struct links *links_new(struct uv_loop_s *loop, int slots, const struct link_hooks *hooks)
{
    struct links *all = calloc(1, sizeof(*all));
    if (all != NULL)
        *all = (struct links){ .loop = loop, .hooks = hooks, .n = slots };
    if (all != NULL && (all->slots = calloc((size_t)slots, sizeof(*all->slots))) == NULL) {
        free(all);
        return NULL;
    }
    return all;
}

void links_free(struct links *all)
{
    if (all == NULL)
        return;
    for (struct link *l = all->first, *next; l != NULL; l = next) {
        next = l->next;
        buf_free(&l->in);
        free(l);
    }
    free(all->slots);
    free(all);
}

static struct link *link_new(struct links *all, int slot, void *peer)
{
    struct link *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return NULL;
    *l = (struct link){ .all = all, .next = all->first, .peer = peer, .slot = slot };
    all->first = all->slots[slot] = l;
    return l;
}

bool link_has_exited(const struct link *l)
{
    return l->has_exited;
}

int link_exit_code(const struct link *l)
{
    return l->exit_code;
}

/* End a link after its process has exited and all output of the process was read. If the process was a branch, also end
 * the links to the processes that the branch ran, because the starter cannot reach these processes any more. These
 * processes exit by themselves when their stdin ends. */
static void link_finish(struct link *l)
{
    struct links *all = l->all;
    if (l->is_over || !l->has_exited || l->open[1] || l->open[2])
        return;
    l->is_over = true;
    all->hooks->over(l->peer, l);
    for (struct link *of = all->first; of != NULL && l->is_branch; of = of->next)
        if (of->via == l && !of->is_over) {
            of->has_exited = true;
            of->exit_code = EXIT_NOT_REACHED;
            all->hooks->exited(of->peer, of);
            link_finish(of);
        }
}

/* Handle the bytes that a branch has sent: output and exits of its processes. After an invalid message, kill the
 * branch. */
static void link_read(struct link *branch, struct slice bytes)
{
    struct links *all = branch->all;
    enum remote_message kind;
    struct slice body;
    size_t size, done = 0;
    if (branch->is_bad)
        return;
    int got = buf_append(&branch->in, bytes.data, bytes.len) ? 1 : -1;
    while (got == 1 && (got = remote_decode(slice_of(branch->in.data + done, branch->in.len - done), &kind,
                                            &body, &size)) == 1) {
        const int slot = parse_slot(&body);
        struct link *l = slot >= 0 && slot < all->n ? all->slots[slot] : NULL;
        done += size;
        if (l == NULL || l->via != branch || l->is_over)
            continue;
        if (kind == REMOTE_EXIT) {
            l->exit_code = (int)slice_number(body);
            l->has_exited = true;
            all->hooks->exited(l->peer, l);
            link_finish(l);
        } else if (l->is_branch && kind == REMOTE_OUT) {
            link_read(l, body);
        } else if (kind == REMOTE_OUT || kind == REMOTE_ERR) {
            all->hooks->bytes(l->peer, l, kind == REMOTE_ERR, body);
        }
    }
    buf_consume(&branch->in, done);
    if (got >= 0)
        return;
    branch->is_bad = true;
    buf_free(&branch->in);
    link_kill(branch, SIGKILL);
}

static void on_link_room(uv_handle_t *handle, size_t size, uv_buf_t *bytes)
{
    (void)handle;
    *bytes = uv_buf_init(malloc(size), (unsigned)size);
}

static void on_link_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct link *l = stream->data;
    const int end = stream == (uv_stream_t *)&l->pipes[1] ? 1 : 2;
    l->active_ms = clock_ms();
    if (n > 0 && l->is_branch && end == 1)
        link_read(l, slice_of(bytes->base, (size_t)n));
    else if (n > 0)
        l->all->hooks->bytes(l->peer, l, end == 2, slice_of(bytes->base, (size_t)n));
    free(bytes->base);
    if (n >= 0)
        return;
    l->open[end] = false;
    uv_close((uv_handle_t *)stream, NULL);
    link_finish(l);
}

static void close_once(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void on_link_exit(uv_process_t *process, int64_t status, int signal)
{
    struct link *l = process->data;
    l->has_exited = true;
    l->active_ms = clock_ms();
    l->exit_code = signal != 0 ? EXIT_NOT_REACHED : (int)status;
    close_once((uv_handle_t *)process);
    close_once((uv_handle_t *)&l->pipes[0]);
    l->all->hooks->exited(l->peer, l);
    link_finish(l);
}

struct link_write {
    uv_write_t request;
    struct buf bytes;
};

static void on_link_sent(uv_write_t *request, int status)
{
    struct link_write *w = request->data;
    (void)status; /* an error needs no action here: the exit of the remote shell follows */
    buf_free(&w->bytes);
    free(w);
}

/* Write `bytes` to the stdin of the link's process, which is a child of the starter. on_link_sent frees `w`. `bytes`
 * must not change before on_link_sent is called. */
static void link_write(struct link *l, struct link_write *w, struct slice bytes)
{
    const uv_buf_t out = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
    w->request.data = w;
    if (uv_write(&w->request, (uv_stream_t *)&l->pipes[0], &out, 1, on_link_sent) != 0)
        on_link_sent(&w->request, UV_EPIPE);
}

void link_send(struct link *l, struct slice bytes)
{
    struct link_write *w;
    struct buf out = { 0 };
    if (l->has_exited || l->is_closed)
        return;
    if (l->via == NULL) {
        w = calloc(1, sizeof(*w));
        if (w != NULL && buf_append(&w->bytes, bytes.data, bytes.len))
            link_write(l, w, buf_slice(&w->bytes));
        else
            free(w);
        return;
    }
    while (bytes.len > 0) {
        const size_t n = bytes.len < REMOTE_PIECE_MAX ? bytes.len : REMOTE_PIECE_MAX;
        append_slot(&out, REMOTE_PASS, l->slot, slice_of(bytes.data, n));
        bytes = slice_of((const char *)bytes.data + n, bytes.len - n);
    }
    link_send(l->via, buf_slice(&out));
    buf_free(&out);
}

/* Send a message about link `l` to the branch that runs the process of `l`. Return false if memory is short. */
static bool link_order(const struct link *l, enum remote_message kind, struct slice body)
{
    struct buf out = { 0 };
    const bool ok = append_slot(&out, kind, l->slot, body);
    if (ok)
        link_send(l->via, buf_slice(&out));
    buf_free(&out);
    return ok;
}

struct link *link_start(struct links *all, int slot, void *peer, char **argv, struct slice program,
                        int *error)
{
    struct link *l = link_new(all, slot, peer);
    uv_stdio_container_t stdio[3];
    *error = UV_ENOMEM;
    if (l == NULL)
        return NULL;
    for (int i = 0; i < 3; i++) {
        uv_pipe_init(all->loop, &l->pipes[i], 0);
        l->pipes[i].data = l;
        stdio[i].flags = UV_CREATE_PIPE | (i == 0 ? UV_READABLE_PIPE : UV_WRITABLE_PIPE);
        stdio[i].data.stream = (uv_stream_t *)&l->pipes[i];
    }
    /* Ctrl-C in the terminal must not signal the remote shell, so the shell runs in a new session. The starter
     * sends the signal to the relays as a message. */
    const uv_process_options_t options = { .file = argv[0],
                                           .args = argv,
                                           .stdio = stdio,
                                           .stdio_count = 3,
                                           .exit_cb = on_link_exit,
                                           .flags = UV_PROCESS_DETACHED };
    l->process.data = l;
    *error = uv_spawn(all->loop, &l->process, &options);
    if (*error != 0) {
        l->has_exited = l->is_over = true;
        for (int i = 0; i < 3; i++)
            uv_close((uv_handle_t *)&l->pipes[i], NULL);
        return NULL;
    }
    for (int i = 1; i < 3; i++)
        l->open[i] = uv_read_start((uv_stream_t *)&l->pipes[i], on_link_room, on_link_bytes) == 0;
    struct link_write *w = program.len > 0 ? calloc(1, sizeof(*w)) : NULL;
    if (w != NULL) /* write `program` without a copy, because its bytes outlive all links */
        link_write(l, w, program);
    return l;
}

struct link *link_start_on(struct link *branch, int slot, void *peer, char *const *argv, size_t ship)
{
    struct link *l = link_new(branch->all, slot, peer);
    struct buf body = { 0 };
    bool ok = l != NULL && buf_printf(&body, "%zu%c", ship, 0);
    for (; ok && argv != NULL && *argv != NULL; argv++)
        ok = buf_append(&body, *argv, strlen(*argv) + 1);
    if (l != NULL) {
        l->via = branch;
        ok = ok && link_order(l, REMOTE_OPEN, buf_slice(&body));
        l->has_exited = l->is_over = !ok || branch->has_exited;
    }
    buf_free(&body);
    return l != NULL && !l->is_over ? l : NULL;
}

void link_carry(struct link *l, uint64_t silent_ms)
{
    struct buf out = { 0 };
    char text[16];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)silent_ms);
    l->is_branch = true;
    if (remote_encode(&out, REMOTE_BRANCH, slice_str(text)))
        link_send(l, buf_slice(&out));
    buf_free(&out);
}

void link_close(struct link *l)
{
    if (l->is_closed || l->has_exited)
        return;
    if (l->via != NULL)
        link_order(l, REMOTE_CLOSE, slice_str(""));
    else
        close_once((uv_handle_t *)&l->pipes[0]);
    l->is_closed = true;
}

void link_kill(struct link *l, int signal)
{
    char text[8];
    snprintf(text, sizeof(text), "%d", signal);
    if (l->has_exited)
        return;
    if (l->via != NULL)
        link_order(l, REMOTE_KILL, slice_str(text));
    else
        kill_group(uv_process_get_pid(&l->process), signal);
}

void links_pause(struct links *all, bool paused)
{
    if (paused == all->paused)
        return;
    all->paused = paused;
    for (struct link *l = all->first; l != NULL; l = l->next)
        for (int i = 1; i < 3 && l->via == NULL; i++)
            if (l->open[i] && paused)
                uv_read_stop((uv_stream_t *)&l->pipes[i]);
            else if (l->open[i])
                uv_read_start((uv_stream_t *)&l->pipes[i], on_link_room, on_link_bytes);
}

void links_drain(struct links *all, bool is_late)
{
    const uint64_t now = clock_ms();
    for (struct link *l = all->first; l != NULL; l = l->next) {
        if (all->paused)
            l->active_ms = now; /* while reading is paused, the time limit does not run */
        if (l->via != NULL || !l->has_exited || l->is_over || (now < l->active_ms + DRAIN_MS && !is_late))
            continue;
        for (int i = 1; i < 3; i++)
            if (l->open[i]) {
                l->open[i] = false;
                uv_close((uv_handle_t *)&l->pipes[i], NULL);
            }
        link_finish(l);
    }
}

bool links_close(struct links *all, bool is_late)
{
    bool over = true;
    for (struct link *l = all->first; l != NULL; l = l->next) {
        if (!l->is_over)
            link_close(l);
        if (!l->is_over && l->via == NULL && is_late)
            link_kill(l, SIGKILL);
        over = over && l->is_over;
    }
    return over;
}

/* job.c -- see job.h. This file builds a job's clean environment and its command line. In the command line, the path of
 * the worker program replaces WORKER. */
#include "job.h"

#include "base/buf.h"
#include "run.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 64, ENV_MAX = 32 };

/* Make "ddprun --standalone ARGS..." with the path of the worker program in place of WORKER. Leave out --standalone
 * if the first argument is --hosts or --hostfile. */
static void make_argv(const char *argv[ARGS_MAX], const char *const args[])
{
    int n = 0;
    argv[n++] = bin("ddprun");
    if (strncmp(args[0], "--host", 6) != 0)
        argv[n++] = "--standalone";
    for (; *args != NULL && n < ARGS_MAX - 1; args++)
        argv[n++] = strcmp(*args, WORKER) == 0 ? bin("tests/prog/worker") : *args;
    argv[n] = NULL;
}

/* Return true if the variable of `entry` ("NAME" or "NAME=value") is in `list`, which may be NULL. */
static bool is_named(const char *entry, const char *const *list)
{
    const size_t len = strcspn(entry, "=");
    for (; list != NULL && *list != NULL; list++)
        if (strcspn(*list, "=") == len && memcmp(*list, entry, len) == 0)
            return true;
    return false;
}

static void make_env(const char *env[ENV_MAX], const char *const *more)
{
    static const char *const clean[] = { "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", "NO_COLOR",
                                         "PYTHON_EXEC",       "VIRTUAL_ENV",          "RANK",
                                         "MASTER_ADDR",       "MASTER_PORT",          NULL };
    int n = 0;
    for (const char *const *e = clean; *e != NULL; e++)
        if (!is_named(*e, more))
            env[n++] = *e;
    for (; more != NULL && *more != NULL && n < ENV_MAX - 1; more++)
        env[n++] = *more;
    env[n] = NULL;
}

struct run_process *job_start(const char *const args[], const struct run_options *options)
{
    const char *argv[ARGS_MAX], *env[ENV_MAX];
    struct run_options o = options != NULL ? *options : (struct run_options){ 0 };
    make_argv(argv, args);
    make_env(env, o.env);
    o.env = env;
    /* A shell may start the test runner as a background job, in which these signals are ignored. */
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    return run_start(argv, &o);
}

struct run_result job_run(const char *const args[], const struct run_options *options)
{
    return run_wait(job_start(args, options));
}

char *job_dir(void)
{
    char *dir = strdup("/tmp/ddprun-test-XXXXXX");
    return dir != NULL && mkdtemp(dir) != NULL ? dir : NULL;
}

void job_dir_remove(char *dir)
{
    temp_dir_remove(dir);
    free(dir);
}

char *job_file(const char *dir, const char *name)
{
    char path[512];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NULL;
    for (char *to; (to = buf_reserve(&text, 4097)) != NULL;) {
        size_t n = fread(to, 1, 4096, f);
        to[n] = '\0';
        if (n == 0)
            break;
        text.len += n;
    }
    fclose(f);
    return (char *)text.data;
}

int job_count(const char *text, const char *line)
{
    int n = 0;
    const size_t len = strlen(line);
    for (const char *at = text; *at != '\0';) {
        const char *end = strchrnul(at, '\n');
        n += (size_t)(end - at) == len && memcmp(at, line, len) == 0;
        at = *end == '\n' ? end + 1 : end;
    }
    return n;
}

int job_count_text(const char *text, const char *piece)
{
    int n = 0;
    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece))
        n++;
    return n;
}

static char state_of(pid_t pid)
{
    char path[64], state = '?';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return '?';
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    fclose(f);
    return state;
}

bool job_until_state(pid_t pid, char state)
{
    struct patience p = { 0 };
    while (state_of(pid) != state)
        if (!patience_left(&p))
            return false;
    return true;
}

bool job_until_full(int reader)
{
    char path[64];
    struct patience p = { 0 };
    snprintf(path, sizeof(path), "/proc/self/fd/%d", reader);
    struct pollfd writer = { .fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLOUT };
    bool full = false;
    while (writer.fd >= 0 && !full && patience_left(&p))
        full = poll(&writer, 1, 0) == 0;
    close(writer.fd);
    return full;
}

void job_witness_open(struct job_witness *w)
{
    w->dir = job_dir();
    snprintf(w->path, sizeof(w->path), "%s/fifo", w->dir);
    snprintf(w->hold, sizeof(w->hold), "hold:%s", w->path);
    mkfifo(w->path, 0600);
    w->fd = open(w->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

bool job_witness_alone(struct job_witness *w)
{
    struct pollfd fd = { .fd = w->fd, .events = POLLIN };
    return poll(&fd, 1, PATIENCE_MS) == 1 && (fd.revents & POLLHUP) != 0;
}

bool job_witness_sees_some(struct job_witness *w)
{
    struct pollfd fd = { .fd = w->fd };
    return poll(&fd, 1, 0) == 0;
}

void job_witness_close(struct job_witness *w)
{
    close(w->fd);
    job_dir_remove(w->dir);
}

/* --- gate ------------------------------------------------------------------------------------------------- */

/* The gate is open when this file exists. */

static char *dir;

void gate_shut(void)
{
    char path[256];
    dir = job_dir();
    cr_assert_not_null(dir);
    snprintf(path, sizeof(path), "%s/gate", dir);
    setenv("GATE", path, 1);
}

void gate_open(void)
{
    const int fd = open(getenv("GATE"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0);
    close(fd);
}

void gate_gone(void)
{
    if (dir != NULL)
        job_dir_remove(dir);
    dir = NULL;
    unsetenv("GATE");
}

/* --- recorded lines --------------------------------------------------------------------------------------- */

enum { WORKERS_MAX = 256, BODY = 300 };

/* Return the rank in the prefix of a line. Set *number to the line's number and *used to the length of the prefix.
 * Return -1 if the line has no prefix. */
static int read_head(const char *line, bool coloured, int *number, int *used)
{
    int prefix, rank, n;
    *used = 0;
    if (coloured)
        n = sscanf(line, "\033[%*dm[%d]\033[0m <%d:%6d:%n", &prefix, &rank, number, used);
    else
        n = sscanf(line, "[%d] <%d:%6d:%n", &prefix, &rank, number, used);
    return n == 3 && *used > 0 && prefix == rank && rank < WORKERS_MAX ? rank : -1;
}

struct lines_seen lines_seen(char *text, bool coloured)
{
    struct lines_seen seen = { 0 };
    int next[WORKERS_MAX] = { 0 };
    char body[BODY + 2] = { 0 };
    memset(body, 'x', BODY / 2);
    memset(body + BODY / 2, 'y', BODY / 2);
    body[BODY] = '>';
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        int number, used;
        *end = '\0';
        int rank = read_head(line, coloured, &number, &used);
        bool ok = rank >= 0 && number == next[rank] && strcmp(line + used, body) == 0;
        if (ok)
            next[rank]++;
        seen.whole += ok;
        if (!ok && seen.torn++ == 0)
            snprintf(seen.first, sizeof(seen.first), "%s", line);
    }
    return seen;
}

/* --- torch ------------------------------------------------------------------------------------------------ */

const char *torch_python(void)
{
    const char *python = getenv("DDP_PYTHON");
    return python != NULL && *python != '\0' ? python : "/usr/bin/python3";
}

/* Return true if Python runs `program` without an error. A program that imports torch takes seconds. */
static bool python_says(const char *program)
{
    const char *argv[] = { torch_python(), "-c", program, NULL };
    struct run_result r = run_command(argv, NULL);
    bool yes = r.exit_code == 0;
    return yes;
}

void torch_skip_without(void)
{
    if (!python_says("import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"))
        cr_skip_test("skipped, because %s has no torch (package python3-torch)", torch_python());
}

void torch_skip_sanitized(void)
{
    if (bin_is_sanitized())
        cr_skip_test("skipped, because most of its time is PyTorch's, and the plain run has asked");
}

/* Return true if the version of the installed torch begins with one of `texts`, a Python tuple. */
static bool torch_version_begins(const char *texts)
{
    char program[512];
    snprintf(program, sizeof(program),
             "import importlib.util, os, runpy, sys\n"
             "at = os.path.dirname(importlib.util.find_spec('torch').origin)\n"
             "version = runpy.run_path(os.path.join(at, 'version.py'))['__version__']\n"
             "sys.exit(not version.startswith(%s))",
             texts);
    return python_says(program);
}

bool torch_is_old(void)
{
    return torch_version_begins("('1.',)");
}

char torch_dialect(void)
{
    if (torch_version_begins("('1.', '2.0.')"))
        return 'A';
    return torch_version_begins("('2.1.',)") ? 'B' : 'C';
}

/* Let PyTorch open a store with libuv, and check whether the error says that PyTorch was built without libuv. This
 * check takes seconds; ddprun itself only reads PyTorch's files. */
bool torch_refuses_stores(void)
{
    return !torch_is_old() && python_says("import sys\n"
                                          "from torch.distributed import TCPStore\n"
                                          "try:\n"
                                          "    TCPStore('127.0.0.1', 0, None, True, use_libuv=True)\n"
                                          "except Exception as error:\n"
                                          "    sys.exit('without libuv' not in str(error))\n"
                                          "sys.exit(1)");
}

void torch_skip_without_libuv(void)
{
    torch_skip_without();
    if (torch_refuses_stores())
        cr_skip_test(
            "skipped, because the torch of %s was built without libuv, so its TCPStore refuses other stores",
            torch_python());
}

int torch_number(const char *name, int usual)
{
    const char *text = getenv(name);
    const int number = text != NULL ? atoi(text) : 0;
    if (number > 0)
        return number;
    return bin_is_sanitized() ? (usual + 9) / 10 : usual;
}

const char *const *torch_env(void)
{
    static char exec[512];
    static const char *const env[] = { exec, "OMP_NUM_THREADS=1", NULL };
    snprintf(exec, sizeof(exec), "PYTHON_EXEC=%s", torch_python());
    return env;
}

const char *py_spy_path(void)
{
    static char path[8192];
    const char *old = getenv("PATH"), *folder = getenv("DDP_PY_SPY");
    snprintf(path, sizeof(path), "PATH=%s%s%s", old != NULL ? old : "/usr/bin:/bin",
             folder != NULL ? ":" : "", folder != NULL ? folder : "");
    const char *env[] = { path, NULL }, *argv[] = { "sh", "-c", "py-spy --version", NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .env = env });
    const int code = r.exit_code;
    if (code != 0)
        cr_skip_test("skipped, because there is no py-spy in PATH or $DDP_PY_SPY (pip install py-spy)");
    return path;
}

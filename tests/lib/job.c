/* job.c -- see job.h. */
#include "job.h"

#include "patience.h"
#include "temp_dir.h"

#include "base/buf.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 64, ENV_MAX = 32 };

/* "ddprun --standalone ARGS..." with WORKER replaced. */
static void make_argv(const char *argv[ARGS_MAX], const char *const args[])
{
    int n = 0;
    argv[n++] = bin("ddprun");
    argv[n++] = "--standalone";
    for (; *args != NULL && n < ARGS_MAX - 1; args++)
        argv[n++] = strcmp(*args, WORKER) == 0 ? bin("tests/prog/worker") : *args;
    argv[n] = NULL;
}

/* Is the variable of `entry` ("NAME" or "NAME=value") among `list`, which may be NULL? */
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
    static const char *const clean[] = {
        "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "PYTHON_EXEC", "RANK",
        "MASTER_ADDR",       "MASTER_PORT",          NULL
    };
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
    /* A test runner may have been started in the background by a shell, with these ignored. */
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

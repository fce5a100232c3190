/* peer_job.c -- see peer_job.h. Each process of a job has a cookie in its environment and is found by this cookie. So
 * no launcher can hide a process. */
#include "peer_job.h"

#include "tests/survivors/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 256 * 1024, LOOK_MS = 5, KILL_MS = 5000, TREE_KILL_MS = 10000 };

static char scratch[64], cookie[64];
static struct notes *notes;

static size_t read_proc(const char *pid, const char *file, char *text, size_t size)
{
    char path[320];
    size_t n = 0;
    snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[n] = '\0';
    return n;
}

/* Return true if a living process has the cookie. A zombie has no environment, so it does not count. */
static bool carries_cookie(const char *pid, const char *name)
{
    static char text[ENVIRONMENT_MAX];
    size_t n = read_proc(pid, "environ", text, sizeof(text));
    if (memmem(text, n, cookie, strlen(cookie)) == NULL)
        return false;
    if (name == NULL)
        return true;
    n = read_proc(pid, "comm", text, sizeof(text));
    return n > 0 && strncmp(text, name, n - 1) == 0;
}

/* Kill a process that has the cookie. Open a pidfd first, because the pid could be reused between check and signal. */
static void kill_carrier(const char *pid)
{
    int fd = pidfd_open(atoi(pid), 0);
    if (fd < 0)
        return;
    if (carries_cookie(pid, NULL))
        pidfd_send_signal(fd, SIGKILL, NULL, 0);
    close(fd);
}

static int scan(const char *name, bool and_kill)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc != NULL && (e = readdir(proc)) != NULL;) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !carries_cookie(e->d_name, name))
            continue;
        count++;
        if (and_kill)
            kill_carrier(e->d_name);
    }
    if (proc != NULL)
        closedir(proc);
    return count;
}

int peer_job_alive(const char *name)
{
    return scan(name, false);
}

static void kill_all(void)
{
    const int64_t until = notes_now() + (int64_t)KILL_MS * 1000000;
    while (scan(NULL, true) > 0 && notes_now() < until)
        poll(NULL, 0, LOOK_MS);
    if (!tree_kill(TREE_KILL_MS) || notes_now() >= until)
        fprintf(stderr,
                "processes are left that cannot be killed; `grep -lz %s /proc/[0-9]*/environ` names them\n",
                cookie);
}

_Noreturn static void become(char *const argv[], int output)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    putenv(cookie);
    setenv("TMPDIR", scratch, 1);
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

bool peer_job_start(struct peer_job *j, const struct peer *p, bool tagged, int workers,
                    const char *const args[])
{
    char *argv[PEER_ARGS];
    peer_argv(p, tagged, workers, args, argv);
    memset(notes, 0, sizeof(*notes));
    notes->workers = workers;
    *j = (struct peer_job){ .out = tmpfile() };
    if (j->out == NULL)
        return false;
    /* O_APPEND keeps each write whole, even if many processes inherit the file. */
    fcntl(fileno(j->out), F_SETFL, O_APPEND);
    fflush(NULL);
    j->launcher = fork();
    if (j->launcher == 0)
        become(argv, fileno(j->out));
    return j->launcher > 0;
}

bool peer_job_wait(struct peer_job *j, int ms)
{
    const int64_t until = notes_now() + (int64_t)ms * 1000000;
    for (;;) {
        tree_reap(j->launcher, &j->status, &j->ended);
        if (j->ended && j->ended_ns == 0)
            j->ended_ns = notes_now();
        int64_t left_ms = (until - notes_now() + 999999) / 1000000;
        if (j->ended || left_ms <= 0)
            return j->ended;
        poll(&(struct pollfd){ .fd = tree_events(), .events = POLLIN }, 1, (int)left_ms);
    }
}

bool peer_job_ready(struct peer_job *j, int ms)
{
    const int64_t until = notes_now() + (int64_t)ms * 1000000;
    for (int i = 0; i < notes->workers;) {
        if (notes->of[i].ready != 0)
            i++;
        else if (notes_now() > until || peer_job_wait(j, LOOK_MS))
            return false;
    }
    return true;
}

int peer_job_code(const struct peer_job *j)
{
    return WIFSIGNALED(j->status) ? 128 + WTERMSIG(j->status) : WEXITSTATUS(j->status);
}

void peer_job_text(struct peer_job *j, char *text, size_t size)
{
    size_t n = 0;
    for (ssize_t got; (got = pread(fileno(j->out), text + n, size - 1 - n, (off_t)n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
}

void peer_job_end(struct peer_job *j)
{
    kill_all();
    if (j->out != NULL)
        fclose(j->out);
    j->out = NULL;
}

const char *peer_jobs_scratch(void)
{
    return scratch;
}

struct notes *peer_jobs_notes(void)
{
    return notes;
}

/* Create the directory for the jobs' files, in memory if possible. A worker that writes a note must not wait for a
 * disk. */
static bool open_scratch(void)
{
    char path[sizeof(scratch) + 8];
    snprintf(scratch, sizeof(scratch), "%s/probes-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(scratch) == NULL)
        return false;
    snprintf(path, sizeof(path), "%s/notes", scratch);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*notes)) != 0)
        return false;
    notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    setenv(NOTES_ENV, path, 1);
    snprintf(cookie, sizeof(cookie), "PROBE_COOKIE=%d-%lld", (int)getpid(), (long long)notes_now());
    return notes != MAP_FAILED;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int run_child(int (*run)(int, char *[]), int argc, char *argv[])
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int rc = tree_open() ? run(argc, argv) : 1;
    fflush(NULL);
    return rc;
}

/* Wait until the child ends, or until this process gets a signal to end. Return the exit status of the child, or 128 +
 * the signal. The caller then kills the child and its jobs. */
static int wait_for_child(pid_t child, const sigset_t *awaited)
{
    int status = 0;
    for (;;) {
        int sig = sigwaitinfo(awaited, NULL);
        if (sig > 0 && sig != SIGCHLD)
            return 128 + sig;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == child)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

int peer_jobs_main(int (*run)(int argc, char *argv[]), int argc, char *argv[])
{
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGHUP);
    if (!tree_open() || sigprocmask(SIG_BLOCK, &awaited, NULL) != 0 || !open_scratch()) {
        fprintf(stderr, "no directory for the notes of the workers: %s\n", strerror(errno));
        return 1;
    }
    pid_t child = fork();
    if (child == 0)
        _exit(run_child(run, argc, argv));
    int rc = child > 0 ? wait_for_child(child, &awaited) : 1;
    if (child > 0)
        kill(child, SIGKILL);
    kill_all();
    nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return rc;
}

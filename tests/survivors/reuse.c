/* reuse.c -- checks that no stranger is signalled while process ids are reused all the time.
 *
 *     reuse [--jobs=N] DDPRUN WORKER
 *
 * In a new PID namespace with at most 400 pids, this program starts jobs of forking workers, and stops or kills them.
 * Meanwhile thousands of strangers (short-lived processes of no job) start and end. So a pid that ddprun has just read
 * soon belongs to a stranger. Every signal to a stranger is counted.
 *
 * Exit status 0: no stranger was signalled; 1: a stranger was signalled; 77: such a namespace is not available. This
 * namespace needs root and Linux 6.14, because older kernels limit pids only for the whole machine. */
#include "tree.h"

#include "base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PID_MAX = 400,
    SWARMS = 4,
    AT_ONCE = 8, /* number of short-lived processes that each swarm has at a time */
    JOB_MS = 15000,
    RESTS = 4,
    CANNOT = 77,
    HIT = 1,
    EXIT_USAGE_ERROR = 2
};

/* All processes share this struct. `strangers` counts the strangers that were started, and `hit` counts the signals to
 * strangers. `last_signal` is the latest of these signals. All swarms end when `over` is true. */
struct tally {
    _Atomic long strangers, hit;
    _Atomic int last_signal;
    _Atomic bool over;
};

static struct tally *tally;

static void on_signal(int sig)
{
    tally->last_signal = sig;
    tally->hit++;
}

static void catch_all(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGCHLD)
            signal(sig, on_signal);
}

/* Start a stranger with a short life. A signal to the stranger is counted by its handler. If the signal kills the
 * stranger, run_swarm() counts this signal. */
static void start_stranger(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        nanosleep(&(struct timespec){ .tv_nsec = rand() % 1000000 }, NULL);
        _exit(0);
    }
    tally->strangers += pid > 0;
}

_Noreturn static void run_swarm(int seed)
{
    int alive = 0, status;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    srand((unsigned)seed);
    catch_all();
    while (!tally->over) {
        for (; alive < AT_ONCE; alive++)
            start_stranger();
        if (waitpid(-1, &status, 0) > 0 && WIFSIGNALED(status))
            on_signal(WTERMSIG(status));
        alive--;
    }
    _exit(0);
}

static pid_t start_job(const char *ddprun, const char *worker, const char *kind)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int null = open("/dev/null", O_RDWR);
    tree_default_signals();
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    execl(ddprun, "ddprun", "--standalone", "--contain=plain", "--grace=50ms", "--nproc_per_node=2", worker,
          kind, (char *)NULL);
    _exit(127);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

/* Run a job. ddprun signals all processes of the job at SIGTSTP, at SIGCONT and at the end. Each time, a pid may be
 * reused after ddprun has read it. Every third job ends with a SIGKILL to the guardian. The agent then detects the end
 * of the lifeline (a pipe from the guardian to the agent) and ends the job. */
static void run_job(const char *ddprun, const char *worker, int i)
{
    static const char *const kinds[] = { "churn", "forks", "churn", "daemon" };
    const pid_t job = start_job(ddprun, worker, kinds[i % 4]);
    const uint64_t end = clock_ms() + JOB_MS;
    int status;
    bool ended = false;
    pause_ms(20 + rand() % 40);
    for (int n = 0; n < RESTS; n++) {
        kill(job, SIGTSTP);
        pause_ms(5);
        kill(job, SIGCONT);
        pause_ms(5);
    }
    kill(job, i % 3 == 0 ? SIGKILL : SIGTERM);
    while (!ended && tree_reap(job, &status, &ended) && clock_ms() < end)
        tree_wait(10);
}

static bool limit_is_of_the_namespace(void)
{
    struct utsname u;
    int major = 0, minor = 0;
    return uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 14));
}

static bool set_pid_max(void)
{
    char text[16];
    int fd = open("/proc/sys/kernel/pid_max", O_WRONLY | O_CLOEXEC);
    int len = snprintf(text, sizeof(text), "%d\n", PID_MAX);
    bool ok = fd >= 0 && write(fd, text, (size_t)len) == len;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Run as process 1 of the namespace. When this process ends, the kernel kills all other processes of the namespace. */
static int run_inside(const char *ddprun, const char *worker, int jobs)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0 || !set_pid_max() || !tree_open())
        return CANNOT;
    pid_t swarms[SWARMS];
    for (int i = 0; i < SWARMS; i++) {
        swarms[i] = fork();
        if (swarms[i] == 0)
            run_swarm(i);
    }
    srand(1);
    for (int i = 0; i < jobs; i++)
        run_job(ddprun, worker, i);
    tally->over = true;
    /* Wait for all swarms. The end of this process kills their strangers, and a swarm could count such a kill as a
     * signal to a stranger. */
    for (int i = 0; i < SWARMS; i++)
        waitpid(swarms[i], NULL, 0);
    return 0;
}

int main(int argc, char **argv)
{
    int jobs = 40, status;
    if (argc > 1 && sscanf(argv[1], "--jobs=%d", &jobs) == 1) {
        argc--;
        argv++;
    }
    if (argc != 3 || jobs < 1) {
        fprintf(stderr, "usage: reuse [--jobs=N] DDPRUN WORKER\n");
        return EXIT_USAGE_ERROR;
    }
    tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!limit_is_of_the_namespace() || unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) {
        printf("skipped, because a PID namespace with few numbers needs root and Linux 6.14\n");
        return CANNOT;
    }
    pid_t init = fork();
    if (init == 0)
        _exit(run_inside(argv[1], argv[2], jobs));
    waitpid(init, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
        printf("skipped, because the namespace could not be furnished\n");
        return CANNOT;
    }
    printf("%d jobs beside %ld strangers, each number used %ld times: %ld strangers were signalled", jobs,
           tally->strangers, tally->strangers / PID_MAX, tally->hit);
    if (tally->hit > 0)
        printf(", last by signal %d", tally->last_signal);
    if (WIFSIGNALED(status))
        printf("; FAILED: process 1 of the namespace was ended by signal %d", WTERMSIG(status));
    printf("\n");
    return tally->hit > 0 || !WIFEXITED(status) ? HIT : 0;
}

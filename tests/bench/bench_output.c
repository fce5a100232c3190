/* bench_output.c -- measures a launcher's output rate and memory, and the delay of a quiet worker's line.
 *
 *     bench_output DDPRUN FLOOD [MILLISECONDS]
 *
 * There are 64 workers (tests/prog/flood.c): 63 write without pause, and one quiet worker writes a line from time to
 * time. This line contains the time at which it was written. stdout is a file, which this program reads while the file
 * grows. The delay of a quiet line ends when this program reads the line. The first 300 ms do not count, because
 * workers are still being started. Memory is the largest resident set (VmHWM) of any process of the launcher.
 *
 * In a second run, 8 workers sleep. This run shows the memory of an idle launcher, as two sums over its processes. One
 * sum is of the resident sets, the other of the PSS, in which shared pages count once.
 *
 * The output is Markdown tables, and JSON lines on descriptor 3 if it is open. */
#include "timed.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REST_S = 3,
    SAMPLES_MAX = 100000,
    CHUNK = 1 << 20,
    LIMIT_MS = 60000,
    START_MS = 300,
    LOOK_MS = 100,
    LATE_MS = 5,
    BEHIND = 2 << 20,
    READS_MAX = 4,
    TRIES = 4,
    OTHERS_MAX = 64
};

struct flood {
    double mb_per_s, p50_ms, p99_ms, max_ms;
    long peak_kb;       /* memory of the largest process */
    size_t lines, late; /* counted lines of the quiet worker; lines that were read too late to count */
    bool ok;
};

/* --- processes ------------------------------------------------------------------------------------------ */

/* Start a measured process, without the reader's priority. */
static pid_t start(char *const argv[], int out_fd)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, 0);
    dup2(null, STDIN_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

/* Return the number of kB after `field` in /proc/PID/NAME, or 0 if the field is missing. */
static long kilobytes(pid_t pid, const char *name, const char *field)
{
    char path[64], line[256];
    long value = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    FILE *f = fopen(path, "r");
    while (f != NULL && value == 0 && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtol(line + strlen(field), NULL, 10);
    if (f != NULL)
        fclose(f);
    return value;
}

static pid_t parent_of(pid_t pid)
{
    return (pid_t)kilobytes(pid, "status", "PPid:");
}

/* List the launcher's processes: `top` and its descendants that are not the worker program. */
static size_t launcher_processes(pid_t top, const char *worker, pid_t pids[OTHERS_MAX])
{
    size_t n = 0;
    DIR *proc = opendir("/proc");
    pids[n++] = top;
    for (struct dirent *e; proc != NULL && n < OTHERS_MAX && (e = readdir(proc)) != NULL;) {
        char path[300], exe[512];
        pid_t pid = atoi(e->d_name), up = pid;
        if (pid <= 0 || pid == top)
            continue;
        for (int i = 0; i < 3 && up != top && up > 1; i++)
            up = parent_of(up);
        snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
        ssize_t len = up == top ? readlink(path, exe, sizeof(exe) - 1) : -1;
        exe[len > 0 ? len : 0] = '\0';
        if (len > 0 && strstr(exe, worker) == NULL)
            pids[n++] = pid;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}

/* --- under load ----------------------------------------------------------------------------------------- */

struct reader {
    int fd;
    char *chunk;
    size_t kept; /* number of bytes at the beginning of `chunk` that belong to an incomplete line */
    double *samples;
    size_t n;
    long long bytes;
    double from; /* lines that were printed before this time do not count */
    double here; /* when the file was last read */
    size_t late; /* lines that this program itself read too late */
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Read to the present end of the file. The file may grow faster than this program reads, so stop after READS_MAX reads.
 * This program reads a line too late if it got no CPU for a while, or still had many bytes to read. Do not count such
 * lines. */
static void read_on(struct reader *r)
{
    ssize_t n;
    struct stat st = { 0 };
    fstat(r->fd, &st);
    bool late = st.st_size - r->bytes > BEHIND;
    for (int i = 0; i < READS_MAX && (n = read(r->fd, r->chunk + r->kept, CHUNK)) > 0; i++) {
        char *p = r->chunk, *end = r->chunk + r->kept + n, *newline;
        const double now = timed_now();
        r->bytes += n;
        r->kept = 0;
        late = late || now - r->here > LATE_MS;
        r->here = now;
        while ((p = memchr(p, '\001', (size_t)(end - p))) != NULL) {
            newline = memchr(p, '\n', (size_t)(end - p));
            if (newline == NULL) {
                r->kept = (size_t)(end - p);
                memmove(r->chunk, p, r->kept);
                break;
            }
            const double said = strtod(p + 1, NULL) / 1e6;
            if (r->n < SAMPLES_MAX && said > r->from && !late)
                r->samples[r->n++] = now - said;
            r->late += said > r->from && late;
            p = newline;
        }
    }
    r->here = timed_now();
}

static void fill_in(struct flood *f, const struct reader *r, double ms)
{
    qsort(r->samples, r->n, sizeof(*r->samples), by_value);
    f->lines = r->n;
    f->late = r->late;
    f->mb_per_s = (double)r->bytes / 1e6 / (ms / 1e3);
    if (r->n > 0) {
        f->p50_ms = r->samples[r->n / 2];
        f->p99_ms = r->samples[r->n * 99 / 100];
        f->max_ms = r->samples[r->n - 1];
    }
}

/* Update f->peak_kb. Find the processes only once in a run, because a search in /proc takes longer than the latencies
 * that the run measures. */
static void check_memory(struct flood *f, pid_t pid, const char *worker)
{
    static pid_t of, pids[OTHERS_MAX];
    static size_t n;
    static double looked;
    if (of != pid)
        n = launcher_processes(of = pid, worker, pids);
    if (timed_now() - looked < LOOK_MS)
        return;
    looked = timed_now();
    for (size_t i = 0; i < n; i++) {
        long kb = kilobytes(pids[i], "status", "VmHWM:");
        f->peak_kb = kb > f->peak_kb ? kb : f->peak_kb;
    }
}

static struct flood run_flood(char *const argv[], const char *worker, const char *path)
{
    struct flood f = { 0 };
    struct stat st;
    int status = 0, out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    struct reader r = { .fd = open(path, O_RDONLY | O_CLOEXEC),
                        .chunk = malloc(CHUNK + 4096),
                        .samples = malloc(SAMPLES_MAX * sizeof(double)) };
    const double began = timed_now();
    pid_t pid = start(argv, out);
    double first = 0;
    bool ended = false;
    r.from = began + START_MS;
    while (pid > 0 && !(ended = waitpid(pid, &status, WNOHANG) != 0) && timed_now() - began < LIMIT_MS) {
        read_on(&r);
        first = first == 0 && r.bytes > 0 ? timed_now() : first;
        if (timed_now() - began > START_MS / 2)
            check_memory(&f, pid, worker);
        usleep(500);
    }
    if (pid > 0)
        kill(-pid, SIGKILL);
    if (pid > 0 && !ended)
        waitpid(pid, &status, 0);
    const double ms = timed_now() - first;
    read_on(&r);
    fstat(r.fd, &st);
    r.bytes = st.st_size;
    fill_in(&f, &r, ms);
    f.ok = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    close(out);
    close(r.fd);
    free(r.chunk);
    free(r.samples);
    unlink(path);
    return f;
}

/* Measure a launcher. If most lines were read too late, measure again, at most TRIES times in all. */
static struct flood run_fairly(char *const argv[], const char *worker, const char *path)
{
    struct flood f = run_flood(argv, worker, path);
    for (int tries = 1; tries < TRIES && f.lines < f.late; tries++)
        f = run_flood(argv, worker, path);
    return f;
}

static void flood_row(const char *who, const struct flood *f, FILE *json)
{
    printf("| %s | %.0f MB/s | %.1f MiB | %.1f ms | %.1f ms | %.1f ms | %zu of %zu |%s\n", who, f->mb_per_s,
           (double)f->peak_kb / 1024, f->p50_ms, f->p99_ms, f->max_ms, f->lines, f->lines + f->late,
           f->ok ? "" : " did not end well |");
    if (json != NULL)
        fprintf(json,
                "{\"bench\":\"output\",\"who\":\"%s\",\"mb_per_s\":%.1f,\"peak_kb\":%ld,\"lines\":%zu,\"not_"
                "counted\":%zu,"
                "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
                who, f->mb_per_s, f->peak_kb, f->lines, f->late, f->p50_ms, f->p99_ms, f->max_ms);
}

/* --- at rest -------------------------------------------------------------------------------------------- */

/* Measure the memory of a launcher whose workers only sleep. First wait for REST_S seconds, because the guardian
 * releases unused memory some time after its start. */
static void rest_row(const char *who, char *const argv[], FILE *json)
{
    long rss = 0, pss = 0;
    pid_t pids[OTHERS_MAX];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = start(argv, null);
    close(null);
    if (pid <= 0)
        return;
    sleep(REST_S);
    size_t n = launcher_processes(pid, "sleep", pids);
    for (size_t i = 0; i < n; i++) {
        rss += kilobytes(pids[i], "status", "VmRSS:");
        pss += kilobytes(pids[i], "smaps_rollup", "Pss:");
    }
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    printf("| %s | %zu | %.2f MB | %.2f MB |\n", who, n, (double)rss * 1024 / 1e6, (double)pss * 1024 / 1e6);
    if (json != NULL)
        fprintf(
            json,
            "{\"bench\":\"output_rest\",\"who\":\"%s\",\"processes\":%zu,\"rss_kb\":%ld,\"pss_kb\":%ld}\n",
            who, n, rss, pss);
}

int main(int argc, char *argv[])
{
    char *ms = argc > 3 ? argv[3] : "3000";
    if (argc < 3) {
        fprintf(stderr, "usage: bench_output DDPRUN FLOOD [MILLISECONDS]\n");
        return 2;
    }
    char path[256];
    const char *tmp = getenv("TMPDIR");
    setpriority(PRIO_PROCESS, 0, -20); /* so that no wait for a CPU counts as a delay; needs root */
    snprintf(path, sizeof(path), "%s/bench_output.%d", tmp != NULL ? tmp : "/tmp", (int)getpid());
    char *ours[] = { argv[1], "--standalone", "-q", "--nproc_per_node=64", argv[2], ms, NULL };
    char *hydra[] = { "mpiexec.hydra", "-prepend-rank", "-n", "64", argv[2], ms, NULL };
    char *ours_rest[] = { argv[1], "--standalone", "-q", "--nproc_per_node=8", "sleep", "30", NULL };
    char *hydra_rest[] = { "mpiexec.hydra", "-n", "8", "sleep", "30", NULL };
    FILE *json = results_open();

    printf("| 64 workers, 63 of them write without pause | carried | largest process | quiet worker's line, "
           "median | p99 | "
           "worst | of lines |\n|---|---|---|---|---|---|---|\n");
    struct flood f = run_fairly(ours, "flood", path);
    flood_row("ddprun", &f, json);
    if (timed_have("mpiexec.hydra")) {
        f = run_fairly(hydra, "flood", path);
        flood_row("mpiexec.hydra -prepend-rank", &f, json);
    } else {
        printf("| mpiexec.hydra -prepend-rank | skipped, because it is not installed |\n");
    }
    printf("\n| at rest with 8 workers, %d s after the start | processes | resident, added up | PSS "
           "|\n|---|---|---|---|\n",
           REST_S);
    rest_row("ddprun", ours_rest, json);
    if (timed_have("mpiexec.hydra"))
        rest_row("mpiexec.hydra", hydra_rest, json);
    if (json != NULL)
        fclose(json);
    return 0;
}

/* flight_shm.c -- see node.h and guardian.h: reads the last collective calls of each rank. A rank with libddp writes
 * its calls to shared memory, and PyTorch writes its calls to files. The size of the shared memory is sealed,
 * because the agent would get SIGBUS if a worker made the shared memory smaller. */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/timed_call.h"
#include "record/flight.h"
#include "base/syscalls.h"
#include "contain/procfs.h"
#include "contain/threads.h"
#include "node/node.h"
#include "output/disk_watch.h"

#include "net/dial.h"
#include "net/messages.h"
#include "record/flight_dump.h"
#include "report/exit_text.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Set the size of the memory file, and forbid later changes of the size. */
static bool seal(int fd, size_t bytes)
{
    return ftruncate(fd, (off_t)bytes) == 0 &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Map the file for reading only. On success, `pages` owns the descriptor `fd`. If mmap() fails, close `fd`. */
static void map(struct flight_shm *pages, int fd, int n)
{
    void *base = mmap(NULL, (size_t)n * FLIGHT_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED)
        *pages = (struct flight_shm){ .n = n, .fd = fd, .base = base };
    else
        close(fd);
}

void flight_shm_open(struct flight_shm *pages, int n)
{
    *pages = (struct flight_shm){ 0 };
    const int fd = n > 0 ? sys_memfd_create("ddprun-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (fd >= 0 && seal(fd, (size_t)n * FLIGHT_PAGE_BYTES))
        map(pages, fd, n);
    else if (fd >= 0)
        close(fd);
}

/* Map the same pages a second time, for a thread that may outlive the attempt. The thread closes this mapping itself.
 * If this process has no free descriptor, `out` gets no pages. */
static void flight_shm_share(const struct flight_shm *pages, struct flight_shm *out)
{
    *out = (struct flight_shm){ 0 };
    const int fd = pages->n > 0 ? fcntl(pages->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        map(out, fd, pages->n);
}

void flight_shm_close(struct flight_shm *pages)
{
    if (pages->n == 0)
        return;
    munmap(pages->base, (size_t)pages->n * FLIGHT_PAGE_BYTES);
    close(pages->fd);
    *pages = (struct flight_shm){ 0 };
}

struct flight_page flight_shm_first(const struct flight_shm *pages)
{
    struct flight_page page = { 0 };
    struct stat st;
    if (pages->n == 0 || fstat(pages->fd, &st) != 0)
        return page;
    page.pid = (int)getpid();
    page.fd = pages->fd;
    page.device = st.st_dev;
    page.inode = st.st_ino;
    return page;
}

const struct flight *flight_shm_page(const struct flight_shm *pages, int i)
{
    if (i >= pages->n)
        return NULL;
    const struct flight *f =
        (const struct flight *)(const void *)((const char *)pages->base + (size_t)i * FLIGHT_PAGE_BYTES);
    return flight_is_used(f) ? f : NULL;
}

/* --- the file of a record ------------------------------------------------------------------------------- */

/* Write worker `i`'s record to `path`, unless the worker has written its latest record itself. Return true if the file
 * has the record. */
static bool flight_shm_keep(const struct flight_shm *pages, int i, const char *path, const char *why)
{
    char temporary[PATH_MAX];
    const struct flight *f = flight_shm_page(pages, i);
    if (f == NULL || snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= PATH_MAX)
        return false;
    return (flight_is_kept(f) && access(path, F_OK) == 0) || flight_file_write(f, path, temporary, why);
}

/* --- at the end of an attempt ---------------------------------------------------------------------------- */

/* A rank that hangs or was killed writes no record, so the agent writes it from the shared memory. A thread writes the
 * files, because the file server may not answer. */

enum {
    WRITE_MS = 5000, /* limit for writing all records of this node */
    /* limit in place of WRITE_MS, if the user has requested a stop or a disk already hangs */
    STOPPED_WRITE_MS = 500,
    REASON_MAX = ENDING_MAX + 32, /* bytes of a reason, with the NUL */
};

/* The data of the thread that writes the records. The thread may outlive the node, so it uses only these copies. */
struct records {
    struct flight_shm pages;
    char pattern[PATH_MAX]; /* argument of flight_path() */
    bool kept;              /* at least one record was written to its file */
    int n;                  /* number of workers */
    struct record {
        int rank;
        char why[REASON_MAX];
    } each[];
};

/* Format the reason for writing a record, for example "written by ddprun: killed by SIGKILL (signal 9)". */
static void record_reason(const struct node *n, int local_rank, char why[REASON_MAX])
{
    char how[ENDING_MAX];
    ending_text(how, agent_worker(n->agent, local_rank));
    snprintf(why, REASON_MAX, "written by ddprun: %s", how);
}

static void records_free(void *user)
{
    struct records *records = user;
    flight_shm_close(&records->pages);
    free(records);
}

/* Copy the data that write_records() needs on its thread. Return NULL if memory is short or the node has no pages of
 * shared memory. */
static struct records *records_of(const struct node *n, const char *pattern)
{
    const size_t nproc = (size_t)n->plan->nproc;
    struct records *records = calloc(1, sizeof(*records) + nproc * sizeof(records->each[0]));
    if (records == NULL)
        return NULL;
    flight_shm_share(&n->run.pages, &records->pages);
    records->n = records->pages.n;
    for (int i = 0; i < records->n; i++) {
        records->each[i].rank = node_rank(n, i);
        record_reason(n, i, records->each[i].why);
    }
    if ((size_t)snprintf(records->pattern, PATH_MAX, "%s", pattern) < PATH_MAX && records->n > 0)
        return records;
    records_free(records);
    return NULL;
}

/* Write the records; this function runs on a separate thread. Between disk_begin() and disk_end(), the guardian can
 * report which directory hangs. */
static void write_records(void *user)
{
    struct records *records = user;
    char path[PATH_MAX];
    disk_begin(DISK_FLIGHTS, records->pattern);
    for (int i = 0; i < records->n; i++)
        if (flight_path(path, sizeof(path), records->pattern, records->each[i].rank) &&
            flight_shm_keep(&records->pages, i, path, records->each[i].why))
            records->kept = true;
    disk_end(DISK_FLIGHTS);
}

void node_keep_flights(struct node *n)
{
    const char *pattern = plan_flight(n->plan);
    struct records *records = pattern != NULL ? records_of(n, pattern) : NULL;
    if (records == NULL)
        return;
    /* a user who stops the job must not wait long, and a disk that hangs probably does not answer in time */
    const bool hurry = agent_stop_signal(n->agent) != 0 || disk_hangs(DISK_HUNG_MS, NULL);
    const int limit_ms = hurry ? STOPPED_WRITE_MS : WRITE_MS;
    if (!timed_call_run(write_records, records_free, records, limit_ms)) {
        output_note(n->out.output,
                    "warning: %s: cannot write the records of the ranks' last collective calls: the file "
                    "system has not answered for %g s; check the file system or set another --log_dir",
                    pattern, limit_ms / 1000.0);
        return;
    }
    n->out.kept_flights = n->out.kept_flights || records->kept;
    records_free(records);
}

/* --- PyTorch's records ------------------------------------------------------------------------------------ */

enum {
    DUMP_MAX = 16 << 20, /* bytes of a record of PyTorch; a longer file is ignored */
    UNANSWERED_MAX = 32  /* limit of connections that are printed for each worker */
};

/* Format the command line of the helper process. If the ranks write no records, the argument for the directory is "",
 * and the helper reports only connections. */
bool flight_helper_words(const struct node *n, int64_t age_ms, struct flight_helper *words)
{
    static char none[] = "";
    const bool has_records = n->plan->cli->flight_recorder && n->plan->flight != NULL;
    if (n->plan->nproc == 0)
        return false;
    snprintf(words->first, sizeof(words->first), "%d", node_rank(n, 0));
    snprintf(words->n, sizeof(words->n), "%d", n->plan->nproc);
    snprintf(words->age_ms, sizeof(words->age_ms), "%lld", (long long)age_ms);
    char *const argv[] = { "ddprun",
                           FLIGHT_HELPER_OPTION,
                           has_records ? n->plan->flight : none,
                           words->first,
                           words->n,
                           words->age_ms,
                           words->pids,
                           NULL };
    memcpy(words->argv, argv, sizeof(argv));
    return true;
}

/* Ask a rank for a new record by writing a byte to the FIFO of this rank. The next sample reads the record. PyTorch
 * with NCCL checks the FIFO once a second. If no process reads the FIFO, open() fails because of O_NONBLOCK, and
 * nothing happens. */
static void ask_rank(const char *dir, int rank)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof(path), "%s/" FLIGHT_PIPE_STEM "%d.pipe", dir, rank) >= PATH_MAX)
        return;
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
        (void)!write(fd, "1", 1);
    if (fd >= 0)
        close(fd);
}

static int64_t ms_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Return the time of the file server in ms since 1970: the modification time of a new file. The clock of this host may
 * differ, and the computed ages of records would then be wrong. Return the time of this host only if no file can be
 * created. */
static int64_t server_ms(const char *dir)
{
    char path[PATH_MAX];
    struct timespec now;
    struct stat st;
    clock_gettime(CLOCK_REALTIME, &now);
    if (snprintf(path, sizeof(path), "%s/.clock-XXXXXX", dir) >= PATH_MAX)
        return ms_of(now);
    const int fd = mkostemp(path, O_CLOEXEC);
    const bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (fd >= 0) {
        unlink(path);
        close(fd);
    }
    return ms_of(ok ? st.st_mtim : now);
}

/* Open a record that was written at `since_ms` or later. Return -1 if `path` is no such record. A rank creates the
 * file, and may create a link or a FIFO instead, so follow no link and do not block on a FIFO. */
static int open_dump(const char *path, int64_t since_ms, size_t *size)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= DUMP_MAX &&
        ms_of(st.st_mtim) >= since_ms) {
        *size = (size_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

/* Print the calls of a rank as one line of JSON. The reader ignores an incomplete last line, so it never gets only a
 * part of a rank's calls. Such a part would look like a rank that made fewer calls than the other ranks. Return false
 * if stdout cannot be written. */
static bool print_calls(int rank, const char *path, struct slice text)
{
    const struct flight_entry *calls[FLIGHT_OPEN_MAX];
    struct flight_dump dump;
    struct ddp_err err;
    if (flight_dump_read(&dump, path, text, &err) != DDP_OK)
        return true;
    cJSON *rows = cJSON_CreateArray();
    const size_t n = dump.rank == rank ? flight_open_calls(&dump, calls) : 0;
    for (size_t i = 0; i < n; i++)
        json_append(rows, encode_flight_call(rank, calls[i]));
    char *line = rows != NULL ? cJSON_PrintUnformatted(rows) : NULL;
    const bool ok = line != NULL && printf("%s\n", line) > 0 && fflush(stdout) == 0;
    cJSON_free(line);
    cJSON_Delete(rows);
    flight_dump_free(&dump);
    return ok;
}

/* Print the calls of one rank. A record that PyTorch is still writing cannot be parsed, and is left out. */
static bool print_rank(const char *dir, int rank, int64_t since_ms)
{
    char path[PATH_MAX];
    struct buf text = { 0 };
    size_t size;
    bool ok = true;
    if (snprintf(path, sizeof(path), "%s/" FLIGHT_TORCH_STEM "%d", dir, rank) >= PATH_MAX)
        return true;
    const int fd = open_dump(path, since_ms, &size);
    char *at = fd >= 0 ? buf_reserve(&text, size) : NULL;
    if (at != NULL && read(fd, at, size) == (ssize_t)size)
        ok = print_calls(rank, path, slice_of(at, size));
    if (fd >= 0)
        close(fd);
    buf_free(&text);
    return ok;
}

/* Print the connections in `each` that belong to a worker, one line of JSON per worker and connection. Set bit i of
 * *theirs if connection i belongs to a worker. `pids` are the pids of the workers, separated by commas. If `lost_bytes`
 * is not NULL, print connection i only if lost_bytes[i] is not 0. */
static bool print_peers(const char *pids, const struct unanswered *each, size_t n, const int *lost_bytes,
                        uint64_t *theirs)
{
    bool ok = true;
    char *next;
    for (; n > 0 && *pids != '\0'; pids = *next == ',' ? next + 1 : next) {
        const pid_t pid = (pid_t)strtol(pids, &next, 10);
        const uint64_t open = process_sockets(pid, each, n);
        *theirs |= open;
        for (size_t i = 0; ok && i < n && i < UNANSWERED_MAX; i++)
            if ((open >> i & 1) != 0 && (lost_bytes == NULL || lost_bytes[i] > 0))
                ok = printf("{\"pid\":%d,\"peer\":\"%s\",\"lost_bytes\":%d}\n", (int)pid, each[i].peer,
                            lost_bytes != NULL ? lost_bytes[i] : 0) > 0;
        if (next == pids)
            break;
    }
    return ok && fflush(stdout) == 0;
}

/* Return the index of the first connection that belongs to a worker and leads to the same host as connection `i`. Bit k
 * of `theirs` is 1 if connection k belongs to a worker. The caller passes only an `i` whose bit is 1, so the search
 * ends at `i` at the latest. */
static size_t find_same_host(const struct endpoint *to, size_t i, uint64_t theirs)
{
    size_t same = 0;
    while ((theirs >> same & 1) == 0 || strcmp(to[same].host, to[i].host) != 0)
        same++;
    return same;
}

/* Probe the paths to the peers of the workers, one after the other. Begin no probe after PROBES_MS, because the agent
 * kills this process after STACKS_PROCESS_MS at the latest. */
static void probe_paths(const struct unanswered *each, size_t n, uint64_t theirs,
                        int lost_bytes[UNANSWERED_MAX])
{
    enum { PROBES_MS = 500 };
    struct endpoint to[UNANSWERED_MAX];
    const uint64_t until_ms = clock_ms() + PROBES_MS;
    for (size_t i = 0; i < n && i < UNANSWERED_MAX; i++) {
        lost_bytes[i] = 0;
        if ((theirs >> i & 1) == 0)
            continue;
        if (endpoint_parse(each[i].peer, 1, &to[i], NULL) != DDP_OK)
            to[i].host[0] = '\0';
        const size_t same = find_same_host(to, i, theirs);
        if (same < i)
            lost_bytes[i] = lost_bytes[same];
        else if (to[i].host[0] != '\0' && clock_ms() < until_ms)
            (void)path_probe(to[i].host, &lost_bytes[i]);
    }
}

/* Read the records of the ranks and print them. Then ask the ranks for new records. */
static bool print_ranks(const char *dir, int first, int n, int64_t since_ms)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = print_rank(dir, first + i, since_ms);
    for (int i = 0; i < n; i++)
        ask_rank(dir, first + i);
    return ok;
}

/* Print the workers' connections whose peers do not acknowledge data, then the ranks' records. Then probe the paths to
 * these peers, and print the connections whose path loses large packets. Print the connections before the records,
 * because the file server of the records may never answer. The probes are last, because they may take so long that the
 * agent kills this process. */
int flight_helper_run(int argc, char **argv)
{
    if (argc != FLIGHT_HELPER_WORDS)
        return 1;
    const char *dir = argv[2], *pids = argv[6];
    const int n_ranks = dir[0] != '\0' ? atoi(argv[4]) : 0;
    struct buf found = { 0 };
    int lost_bytes[UNANSWERED_MAX];
    uint64_t theirs = 0;
    const size_t n = *pids != '\0' ? sockets_unanswered((pid_t)atoi(pids), &found) : 0;
    const struct unanswered *each = (const struct unanswered *)(const void *)found.data;
    /* Ignore SIGPIPE, because a rank may close the FIFO before ask_rank() writes to the FIFO. */
    signal(SIGPIPE, SIG_IGN);
    bool ok = print_peers(pids, each, n, NULL, &theirs);
    if (n_ranks > 0)
        ok = print_ranks(dir, atoi(argv[3]), n_ranks, server_ms(dir) - atoll(argv[5])) && ok;
    if (ok && theirs != 0) {
        probe_paths(each, n, theirs, lost_bytes);
        ok = print_peers(pids, each, n, lost_bytes, &theirs);
    }
    buf_free(&found);
    return ok ? 0 : 1;
}

/* host_checks.c -- see host_checks.h.
 *
 * Before the workers start, each limit is compared with the minimum that the workers need. A worker that reaches a
 * limit later gets a misleading error: "cannot create a pipe", a bus error, "cannot allocate memory" from a network
 * card. */
#include "report/host_checks.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/procfs.h"
#include "record/rank_set.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    FDS = 28,                  /* descriptors of guardian and agent, including descriptors of the store */
    FDS_PER_WORKER = 4,        /* per worker: two pipes, a pidfd, a connection to the store */
    PROCESSES = 3,             /* guardian, agent and the store's thread */
    SHM_PER_WORKER = 16 << 20, /* bytes in /dev/shm for buckets, NCCL and data loaders */
};

typedef char amount[SIZE_TEXT_MAX];

static const char *number(amount out, uint64_t n)
{
    snprintf(out, sizeof(amount), "%llu", (unsigned long long)n);
    return out;
}

/* Limits of this machine. shm_size and shm_free are 0 if unknown. */
struct host_facts {
    uint64_t nofile;  /* hard limit of open files, because the agent raises the soft limit */
    uint64_t nproc;   /* limit of processes of this user; HOST_NO_LIMIT for root */
    uint64_t memlock; /* soft limit of locked memory in bytes, which the workers inherit */
    bool has_infiniband;
    uint64_t shm_size, shm_free; /* bytes */
};

/* Check the limits of open files, processes and locked memory. Locked memory matters only with an InfiniBand card,
 * because the buffers of such a card must be locked. */
static void check_limits(const struct host_facts *f, uint64_t workers, const char *host, struct finding *out,
                         int *n)
{
    amount have, need;
    const uint64_t files = FDS + FDS_PER_WORKER * workers, processes = PROCESSES + workers;
    if (f->nofile < files)
        finding_make(&out[(*n)++], FINDING_LIMIT_NOFILE, host, "have", number(have, f->nofile), "number",
                     number(need, files), NULL);
    if (f->nproc < processes)
        finding_make(&out[(*n)++], FINDING_LIMIT_NPROC, host, "have", number(have, f->nproc), "number",
                     number(need, processes), NULL);
    if (f->has_infiniband && f->memlock != HOST_NO_LIMIT)
        finding_make(&out[(*n)++], FINDING_LIMIT_MEMLOCK, host, "have", words_size(have, f->memlock), NULL);
}

/* Check the free space of /dev/shm. A node with a single worker needs no shared memory. */
static void check_shm(const struct host_facts *f, uint64_t workers, const char *host, struct finding *out,
                      int *n)
{
    amount have, need, who;
    const uint64_t wanted = SHM_PER_WORKER * workers;
    if (f->shm_size == 0 || workers < 2 || f->shm_free >= wanted)
        return;
    snprintf(who, sizeof(who), "%llu workers", (unsigned long long)workers);
    finding_make(&out[(*n)++], FINDING_SHM_SMALL, host, "have", words_size(have, f->shm_free), "need",
                 words_size(need, wanted), "workers", who, NULL);
}

/* Find which limits are too low for the number of workers in `workers`. Store the findings in `out`, and return the
 * number of findings. */
static int host_findings(const struct host_facts *facts, int workers, const char *host,
                         struct finding out[HOST_FINDINGS_MAX])
{
    int n = 0;
    check_limits(facts, (uint64_t)workers, host, out, &n);
    check_shm(facts, (uint64_t)workers, host, out, &n);
    return n;
}

/* --- this machine ------------------------------------------------------------------------------------------ */

static uint64_t limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? HOST_NO_LIMIT : (uint64_t)limit;
}

/* Read the limits of this process. For open files the hard limit counts, because the agent raises the soft limit.
 * RLIMIT_NPROC does not apply to root. */
static void read_limits(struct host_facts *f)
{
    struct rlimit limit;
    f->nofile = f->nproc = f->memlock = HOST_NO_LIMIT;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        f->nofile = limit_of(limit.rlim_max);
    if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0)
        f->nproc = limit_of(limit.rlim_cur);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        f->memlock = limit_of(limit.rlim_cur);
}

/* Return true if the directory has entries other than "." and "..". /sys/class/infiniband exists even without a
 * card. */
static bool is_used(const char *path)
{
    DIR *dir = opendir(path);
    int entries = 0;
    while (dir != NULL && readdir(dir) != NULL)
        entries++;
    if (dir != NULL)
        closedir(dir);
    return entries > 2;
}

/* Read size and free space of /dev/shm. f_bavail excludes blocks that are reserved for root. */
static void read_shm(struct host_facts *f)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        return;
    f->shm_size = (uint64_t)fs.f_blocks * fs.f_frsize;
    f->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

int host_check_limits(int workers, const char *host, struct finding out[HOST_FINDINGS_MAX])
{
    struct host_facts facts = { .has_infiniband = is_used("/sys/class/infiniband") };
    read_limits(&facts);
    read_shm(&facts);
    return host_findings(&facts, workers, host, out);
}

static void log_findings(const struct finding *found, int n)
{
    for (int i = 0; i < n; i++) {
        const char *code = finding_code_name(found[i].code);
        log_warn("%s; %s [%s]", found[i].sentence, found[i].advice, code);
        log_explain(code);
    }
}

void host_warn(int workers, const char *host)
{
    struct finding found[HOST_FINDINGS_MAX];
    log_findings(found, host_check_limits(workers, host, found));
}

/* --- GPUs -------------------------------------------------------------------------------------------------- */

/* Other processes on a GPU take memory and time from the workers. A thread asks the driver, which may hang. */

enum { GPU_QUERY_MS = 200 }; /* longest wait of the workers' start for the driver */

/* Format "pid 4242 (user ann, 31 GiB) and 2 more processes". */
static void format_users(const struct gpu_users *users, char process[FINDING_SUBJECT_MAX])
{
    char bytes[SIZE_TEXT_MAX];
    const bool has_name = users->user[0] != '\0', has_size = users->bytes > 0;
    size_t n = (size_t)snprintf(process, FINDING_SUBJECT_MAX, "pid %d", users->pid);
    if (has_name || has_size)
        n += (size_t)snprintf(process + n, FINDING_SUBJECT_MAX - n, " (%s%s%s%s)", has_name ? "user " : "",
                              users->user, has_name && has_size ? ", " : "",
                              has_size ? words_size(bytes, users->bytes) : "");
    if (users->count > 1)
        snprintf(process + n, FINDING_SUBJECT_MAX - n, " and %d more process%s", users->count - 1,
                 users->count == 2 ? "" : "es");
}

/* Describe which processes use a GPU. `gpu` is the GPU's index or UUID, as in CUDA_VISIBLE_DEVICES. `ranks` is " (rank
 * 2)", or "" if ranks are not known yet. Return false if no process uses the GPU. */
static bool gpu_finding(const struct gpu_users *users, const char *gpu, const char *ranks, const char *host,
                        struct finding *out)
{
    char subject[FINDING_SUBJECT_MAX], process[FINDING_SUBJECT_MAX];
    if (users->count == 0)
        return false;
    format_users(users, process);
    finding_make(out, FINDING_GPU_BUSY, finding_gpu_name(subject, gpu, host), "ranks", ranks, "process",
                 process, NULL);
    return true;
}

/* Describe a compute mode that does not admit all workers of a GPU. Return false if the mode admits all workers. */
static bool gpu_mode_finding(const struct gpu_users *users, const char *gpu, int workers, const char *host,
                             struct finding *out)
{
    enum { PROHIBITED = 2, EXCLUSIVE_PROCESS = 3 };
    char subject[FINDING_SUBJECT_MAX], count[32];
    if (users->mode != PROHIBITED && (users->mode != EXCLUSIVE_PROCESS || workers + users->count < 2))
        return false;
    snprintf(count, sizeof(count), "%d worker%s", workers, workers == 1 ? "" : "s");
    finding_make(out, FINDING_GPU_MODE, finding_gpu_name(subject, gpu, host), "mode",
                 users->mode == PROHIBITED ? "Prohibited" : "Exclusive_Process", "admits",
                 users->mode == PROHIBITED ? "no process" : "one process", "workers", count, "needs",
                 workers == 1 ? "needs" : "need", "gpu", gpu, NULL);
    return true;
}

/* Data of the thread that asks the GPU driver. The thread may outlive the plan, so `job` and `names` are copies. */
struct gpu_query {
    bool runs; /* the workers run or have run */
    char job[LIMIT_TEXT];
    int world_size, first_rank, nproc; /* this node has `nproc` ranks, from `first_rank` on */
    int n;
    int workers[GPUS_MAX]; /* number of workers that use each GPU */
    char names[GPUS_MAX][GPU_NAME_MAX];
    struct gpu_users users[GPUS_MAX];
};

/* Return the value of a variable in the text of /proc/PID/environ, or "". */
static const char *environ_value(const struct buf *text, const char *name)
{
    const size_t len = strlen(name);
    const char *entry = (const char *)text->data;
    for (const char *end = entry + text->len; entry < end; entry += strlen(entry) + 1)
        if (strncmp(entry, name, len) == 0 && entry[len] == '=')
            return entry + len + 1;
    return "";
}

/* Return true if the environment of the process contains a rank of this job that belongs to another node. Another
 * agent on this host has then started the process. The job id alone proves nothing, because by default every job on
 * several nodes has the id "none". */
static bool has_rank_of_job(const struct gpu_query *query, int pid)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    const bool ok = procfs_read(path, &text);
    const int rank = ok ? atoi(environ_value(&text, "RANK")) : 0;
    const bool is_of_job = ok && strcmp(environ_value(&text, "DDPRUN_JOB"), query->job) == 0 &&
                           atoi(environ_value(&text, "WORLD_SIZE")) == query->world_size &&
                           (rank < query->first_rank || rank >= query->first_rank + query->nproc);
    buf_free(&text);
    return is_of_job;
}

/* Return true if the process runs the same program as this process. */
static bool is_ddprun(int pid)
{
    char path[64];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

/* Return the owner of a process on a GPU. If the process descends from an agent of the job on this host, the owner is
 * this job. Orphans of the workers still descend from the agent (PR_SET_CHILD_SUBREAPER). If no process with this pid
 * exists here, the owner is unknown: perhaps a worker has just ended, or the driver reports pids of another PID
 * namespace. */
static enum gpu_owner gpu_owner(const void *user, int pid)
{
    struct proc_stat stat = { .parent = pid };
    bool has_agent = false;
    /* Search the ancestors of the process for an agent. A process of an earlier job with the same id has no such
     * ancestor */
    for (pid_t at = pid; at > 0; at = stat.parent) {
        if (at == getpid())
            return GPU_OWNER_JOB;
        if (!procfs_stat(at, &stat)) {
            if (kill(at, 0) == 0 || errno != EPERM)
                return GPU_OWNER_UNKNOWN;
            break; /* another user's process, which /proc hides, so its ancestors are unknown */
        }
        has_agent = has_agent || (at != pid && is_ddprun(at));
    }
    return has_agent && has_rank_of_job(user, pid) ? GPU_OWNER_JOB : GPU_OWNER_OTHER;
}

void gpu_query_run(void *user)
{
    struct gpu_query *query = user;
    const struct gpu_owners owners = { .find = gpu_owner, .user = query };
    const char *names[GPUS_MAX];
    for (int i = 0; i < query->n; i++)
        names[i] = query->names[i];
    gpu_read_users(names, query->n, query->runs ? &owners : NULL, query->users);
}

/* Add a GPU if the list does not contain it yet. Several workers may share a GPU. */
static void gpu_query_add(struct gpu_query *query, const char *gpu)
{
    int i = 0;
    while (i < query->n && strcmp(query->names[i], gpu) != 0)
        i++;
    if (i == GPUS_MAX)
        return;
    if (i == query->n)
        snprintf(query->names[query->n++], GPU_NAME_MAX, "%s", gpu);
    query->workers[i]++;
}

struct gpu_query *gpu_query_new(const struct plan *plan, bool runs)
{
    struct gpu_query *query = plan->facts->physical_gpus > 0 ? calloc(1, sizeof(*query)) : NULL;
    for (int i = 0; query != NULL && i < plan->nproc; i++)
        if (plan->workers[i].gpu != NULL)
            gpu_query_add(query, plan->workers[i].gpu);
    if (query == NULL || query->n == 0) {
        free(query);
        return NULL;
    }
    query->runs = runs;
    snprintf(query->job, sizeof(query->job), "%s", plan->job);
    query->world_size = plan->world_size;
    query->first_rank = plan->workers[0].rank;
    query->nproc = plan->nproc;
    return query;
}

/* The workers of a GPU. */
struct gpu_ranks {
    const struct plan *plan;
    const char *gpu;
};

static int rank_on_gpu(const void *user, int local_rank)
{
    const struct gpu_ranks *g = user;
    const struct plan_worker *w = &g->plan->workers[local_rank];
    return w->gpu != NULL && strcmp(w->gpu, g->gpu) == 0 ? w->rank : -1;
}

/* Write " (rank 2)" or " (ranks 0,4)". */
static void write_gpu_ranks(const struct plan *plan, const char *gpu, char out[FINDING_SUBJECT_MAX])
{
    enum { TEXT_MAX = 40 };
    const struct gpu_ranks of = { plan, gpu };
    struct buf ranks = { 0 };
    const bool ok =
        rank_set_print_each(rank_on_gpu, &of, plan->nproc, TEXT_MAX, &ranks) && buf_append(&ranks, "", 1);
    const char *text = ok ? (const char *)ranks.data : "?";
    snprintf(out, FINDING_SUBJECT_MAX, " (rank%s %s)", strpbrk(text, ",-") != NULL ? "s" : "", text);
    buf_free(&ranks);
}

bool gpu_query_is_complete(const struct gpu_query *query)
{
    for (int i = 0; i < query->n; i++)
        if (query->users[i].unknown > 0)
            return false;
    return true;
}

int gpu_query_findings(const struct gpu_query *query, const struct plan *plan,
                       struct finding out[GPU_FINDINGS_MAX])
{
    char ranks[FINDING_SUBJECT_MAX] = "";
    int n = 0;
    for (int i = 0; i < query->n; i++) {
        if (query->runs)
            write_gpu_ranks(plan, query->names[i], ranks);
        if (n < GPU_FINDINGS_MAX)
            n += gpu_finding(&query->users[i], query->names[i], ranks, plan->facts->host, &out[n]);
        if (n < GPU_FINDINGS_MAX)
            n += gpu_mode_finding(&query->users[i], query->names[i], query->workers[i], plan->facts->host,
                                  &out[n]);
    }
    return n;
}

void gpu_query_answer(const struct gpu_query *query, const struct plan *plan, int local_rank,
                      struct gpu_answer *answer)
{
    const char *gpu = plan->workers[local_rank].gpu;
    *answer = (struct gpu_answer){ 0 };
    answer->n = gpu_query_findings(query, plan, answer->found);
    for (int i = 0; gpu != NULL && i < query->n; i++) {
        if (strcmp(query->names[i], gpu) != 0 || query->users[i].count == 0)
            continue;
        snprintf(answer->gpu, sizeof(answer->gpu), "%s", gpu);
        format_users(&query->users[i], answer->users);
    }
}

int gpu_find(const struct plan *plan, bool runs, int limit_ms, struct finding out[GPU_FINDINGS_MAX])
{
    struct gpu_query *query = gpu_query_new(plan, runs);
    if (query == NULL || !timed_call_run(gpu_query_run, free, query, limit_ms))
        return 0;
    const int n = gpu_query_findings(query, plan, out);
    free(query);
    return n;
}

int gpu_warn(const struct plan *plan, struct finding out[GPU_FINDINGS_MAX])
{
    const int n = gpu_find(plan, false, GPU_QUERY_MS, out);
    if (!plan->cli->quiet)
        log_findings(out, n);
    return n;
}

/* --- the loss of the store ------------------------------------------------------------------------------ */

/* Three findings name the real cause of a lost connection. Without these findings, the user would suspect the store,
 * because the store closes the connection of a silent node.
 * NODE_FROZEN: late timers show that this process was recently frozen for at least half of --node_timeout (stood_still
 * in net/store_link.c).
 * NODE_STOP_SLOW: the store's last message says that the workers of this node did not stop in time.
 * NODE_UNREACHABLE: the store's last message gives any other reason, for example that this node was silent. The network
 * has then lost the messages of this node. */

typedef char loss_text[FINDING_SUBJECT_MAX];

/* Format "this ddprun (node 1, n1, pid 77)". */
static const char *name_agent(loss_text out, const struct store_loss *l)
{
    if (l->node_rank >= 0)
        snprintf(out, sizeof(loss_text), "this ddprun (node %d, %.100s, pid %d)", l->node_rank, l->host,
                 l->pid);
    else
        snprintf(out, sizeof(loss_text), "this ddprun (%.100s, pid %d)", l->host, l->pid);
    return out;
}

/* Format the store's reason for dropping this node. */
static const char *drop_reason(loss_text out, const struct store_loss *l)
{
    char time[TEXT_MS_MAX];
    snprintf(out, sizeof(loss_text), "'%.100s' (--node_timeout is %s)", l->dropped,
             text_ms(l->node_timeout_ms, time));
    return out;
}

static const char *loss_words(char out[FINDING_SUBJECT_MAX * 2], const struct store_loss *l)
{
    loss_text reason;
    if (l->dropped[0] != '\0')
        snprintf(out, FINDING_SUBJECT_MAX * 2, "the store dropped this node with the reason %s",
                 drop_reason(reason, l));
    else
        snprintf(out, FINDING_SUBJECT_MAX * 2, "%.200s", l->how);
    return out;
}

bool store_loss_finding(const struct store_loss *l, struct finding *out)
{
    loss_text name, reason;
    char time[TEXT_MS_MAX];
    char why[FINDING_SUBJECT_MAX * 2];
    if (l->stood_ms == 0 && l->dropped[0] == '\0')
        return false;
    if (l->stood_ms > 0)
        finding_make(out, FINDING_NODE_FROZEN, name_agent(name, l), "time", text_ms(l->stood_ms, time),
                     "words", loss_words(why, l), NULL);
    else if (strcmp(l->dropped, DROPPED_STOP_SLOW) == 0)
        finding_make(out, FINDING_NODE_STOP_SLOW, name_agent(name, l), "time", text_ms(l->asked_ms, time),
                     NULL);
    else
        finding_make(out, FINDING_NODE_UNREACHABLE, name_agent(name, l), "reason", drop_reason(reason, l),
                     NULL);
    return true;
}

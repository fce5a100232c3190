/* cause.c -- see cause.h. The table of sentences in this file explains errors in a worker's last lines, so a new
 * explanation is only a new row. Two other files have such tables: spawn_error.c explains why a program could not be
 * started, and exit_text.c explains how a worker ended. */
#include "report/cause.h"

#include "agent/agent.h"
#include "base/text.h"
#include "diagnosis/findings.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Number of a worker's last lines that are searched for hints. The report shows fewer lines, but Python may print the
 * reason before the stacks of many threads. */
enum { HINT_LINES = 50 };

int cause_first(const struct report *r)
{
    return r->elsewhere != NULL ? -1 : agent_first_failure(r->agent);
}

const struct agent_worker *cause_worker(const struct report *r)
{
    int first = cause_first(r);
    return first >= 0 ? agent_worker(r->agent, first) : NULL;
}

/* Convert `ms`, a time of the agent's monotonic clock, to the wall clock. All times are converted with the same
 * reading of the wall clock. So the order of times is correct even if the wall clock is set during the job. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms)
{
    return r->ended_unix_ms - (r->ended_ms - ms);
}

/* --- headline ------------------------------------------------------------------------------------------- */

static const struct program_file not_examined;

static struct start_failure start_failure(const struct report *r, const struct agent_worker *w)
{
    const struct program_file *file = r->file != NULL ? r->file : &not_examined;
    return (struct start_failure){ .error = w->error,
                                   .program = file->is_python_file ? file->path : r->plan->workers[0].argv[0],
                                   .path = r->path,
                                   .file = file,
                                   .limits = r->evidence };
}

/* Append how a worker ended. The headline, the reports of other nodes and the list of attempts use this text. */
static bool append_ending(const struct report *r, const struct agent_worker *w, struct buf *out)
{
    if (w->verdict != WORKER_NOT_STARTED)
        return end_headline(w, r->evidence, out);
    const struct start_failure failure = start_failure(r, w);
    return buf_printf(out, FAILURE_NOT_STARTED) && start_cause(&failure, out);
}

static enum finding_code finding_of(enum worker_verdict verdict)
{
    return verdict == WORKER_NOT_STARTED ? FINDING_PROGRAM_MISSING_ON_NODE : FINDING_WORKER_FAILED;
}

/* Fill in `f`, the record of the failure of a worker. Set f->error only for a worker that never started. Other workers
 * have a signal or an exit code. */
static void fill_failure(const struct report *r, int local_rank, struct failure *f)
{
    const struct agent_worker *w = agent_worker(r->agent, local_rank);
    const struct plan_worker *who = &r->plan->workers[local_rank];
    struct buf words = { 0 };
    *f = (struct failure){ .node_rank = r->plan->node_rank,
                           .rank = who->rank,
                           .local_rank = who->local_rank,
                           .pid = w->pid,
                           .exit_code = w->exit_code,
                           .signal = w->signal,
                           .error = w->verdict == WORKER_NOT_STARTED ? w->error : 0,
                           .after_ms = w->ended_ms - w->started_ms,
                           .victim = w->verdict == WORKER_VICTIM,
                           .peak_rss = r->evidence != NULL ? (int64_t)r->evidence->peak_rss : 0 };
    if (!f->victim)
        text_copy(f->code, sizeof(f->code), finding_code_name(finding_of(w->verdict)));
    text_copy(f->no_retry, sizeof(f->no_retry), no_restart_word(agent_never_again(r->agent)));
    text_copy(f->host, sizeof(f->host), r->plan->facts->host);
    text_copy(f->log, sizeof(f->log), who->log_dir);
    if (append_ending(r, w, &words) && buf_append(&words, "", 1))
        text_copy(f->words, sizeof(f->words), (const char *)words.data);
    buf_free(&words);
}

const struct failure *cause_failure(const struct report *r, struct failure *room)
{
    const int first = cause_first(r);
    if (first < 0)
        return r->elsewhere;
    fill_failure(r, first, room);
    return room;
}

bool cause_has_left(const struct report *r, enum finding_code code)
{
    return r->left.sentence != NULL && r->left.sentence[0] != '\0' && r->left.code == code;
}

/* Return true if the failed worker is only a victim, and the store has reported a rank that left early or a connection
 * that broke. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f)
{
    return f != NULL && f->rank >= 0 && f->victim &&
           (cause_has_left(r, FINDING_RANK_EXITED_EARLY) || cause_has_left(r, FINDING_CONNECTION_BROKE));
}

bool cause_is_hang(const struct report *r)
{
    return r->hang != NULL && r->elsewhere != NULL && strcmp(r->elsewhere->why, "hangs") == 0 &&
           strcmp(r->elsewhere->code, finding_code_name(r->hang->code)) == 0;
}

bool cause_is_host(const struct report *r)
{
    return r->elsewhere != NULL && strcmp(r->elsewhere->why, FAILURE_HOST_LOST) == 0;
}

bool cause_append_left(const struct report *r, struct buf *out)
{
    return buf_printf(out, "%s [%s]", r->left.sentence, finding_code_name(r->left.code));
}

static const char *or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Return the code of a finding rather than an exit code, because a finding explains more. If neither the first failure
 * nor the loss of the store has a code, return the code of the hang. For example, the user has stopped the job during a
 * hang, or a worker gave up its wait. */
const char *cause_code_name(const struct report *r, const struct failure *f, char number[CAUSE_NUMBER_MAX])
{
    if (cause_is_left_waiting(r, f))
        return finding_code_name(r->left.code);
    const char *code = or_null(f != NULL ? f->code : r->store.code);
    if (code == NULL && r->hang != NULL)
        code = finding_code_name(r->hang->code);
    if (code != NULL)
        return code;
    const int exit_code = f != NULL ? failure_code(f) : agent_exit_code(r->agent);
    snprintf(number, CAUSE_NUMBER_MAX, "%d", exit_code);
    return exit_code != 0 ? number : NULL;
}

/* Return when the last attempt began, by the agent's clock. */
static uint64_t attempt_started_ms(const struct report *r)
{
    return r->n_failed > 0 ? r->failed[r->n_failed - 1].started_ms : r->started_ms;
}

/* Append one line with the rank, its host, and how and when the rank ended. A search through many logs then finds all
 * these facts at once. The time counts from the start of the worker if a worker of this node was started, else from the
 * start of the attempt. If a node has failed instead of a rank, append f->words and the time. If the job has failed,
 * append only f->words, because they contain a time. */
static bool failure_headline(const struct report *r, const struct failure *f, struct buf *out)
{
    const bool here = r->elsewhere == NULL;
    char after[TEXT_MS_MAX];
    if (f->rank < 0)
        return buf_printf(out, "%s", f->words) &&
               (f->node_rank < 0 || f->after_ms == 0 ||
                buf_printf(out, ", %s after the start", text_ms(f->after_ms, after)));
    bool ok = buf_printf(out, "rank %d on %s %s%s", f->rank, f->host,
                         f->error != 0                      ? ""
                         : here && r->plan->world_size == 1 ? "failed: "
                                                            : "failed first: ",
                         f->words);
    const bool never_started = here && f->error != 0;
    text_ms(never_started ? cause_worker(r)->ended_ms - attempt_started_ms(r) : f->after_ms, after);
    return ok && buf_printf(out, ", %s after %s start", after, here && !never_started ? "its" : "the");
}

bool cause_never_began(const struct report *r)
{
    for (int i = 0; i < r->plan->nproc; i++)
        if (agent_worker(r->agent, i)->verdict != WORKER_PENDING)
            return false;
    return true;
}

/* Append the headline. The first rule that applies decides:
 * - If the failed worker is only a victim, and the store has reported a rank that left early or a connection that
 *   broke, the headline is the store's sentence about this rank or this connection.
 * - If a rank, a node or the job has failed, the headline is about the first failure.
 * - If this node has lost the store, the headline is about this loss.
 * - If a signal has stopped the job, the headline names the signal and its sender.
 * - If no worker of this node was started, the headline is that the job has ended without this node.
 * - Otherwise the headline is that all workers have exited with code 0. */
bool cause_headline(const struct report *r, struct buf *out)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    int stop = agent_stop_signal(r->agent);
    char name[SIGNAL_NAME_MAX], after[TEXT_MS_MAX];
    if (cause_is_left_waiting(r, f))
        return cause_append_left(r, out);
    if (f != NULL)
        return failure_headline(r, f, out);
    /* the workers may end long after the loss of the store, because they have the grace period */
    text_ms((r->store.how != NULL ? r->store.lost_ms : r->ended_ms) - r->started_ms, after);
    if (r->store.how != NULL)
        return buf_printf(out, "lost the store of the job at %s:%d%s after %s: %s", r->plan->master_addr,
                          r->plan->master_port, r->store.node != NULL ? r->store.node : "", after,
                          r->store.how);
    if (stop == 0 && cause_never_began(r))
        return buf_printf(out, "the job ended without this node, which waited for %s", after);
    if (stop == 0)
        return buf_printf(out, "%s exited with code 0 after %s",
                          r->plan->nproc == 1 ? "the worker" : "all workers", after);
    signal_name(name, stop);
    return buf_printf(out, "stopped by ") &&
           (r->stop != NULL ? received_signal_text(r->stop, out) : buf_printf(out, "%s", name)) &&
           buf_printf(out, " after %s", after);
}

/* --- cause and remedy ----------------------------------------------------------------------------------- */

/* Append why the job ended. If a rank left init_process_group early, append the store's sentence about this rank,
 * because the failed workers are only victims of this rank. Otherwise append the cause of the first failure on this
 * node. If the worker that failed first could not be started, append nothing, because the headline already contains the
 * reason. Also append nothing if no worker of this node failed first. */
bool cause_why(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (cause_has_left(r, FINDING_INIT_ABANDONED))
        return cause_append_left(r, out);
    return w == NULL || w->verdict == WORKER_NOT_STARTED || end_cause(w, r->evidence, out);
}

/* Return the remedy if no worker has failed: for a hang, for a lost node, or for nodes that have not joined in time.
 * Return NULL if there is no remedy. */
static const char *remedy_without_worker(const struct report *r)
{
    const struct failure *f = r->elsewhere;
    if (cause_is_hang(r))
        return r->hang->advice;
    if (f == NULL || f->rank >= 0)
        return NULL;
    if (strcmp(f->why, "timeout") == 0)
        return r->plan->meeting.elastic
                   ? "check that ddprun runs on each missing node with the same --rdzv_id and "
                     "--rdzv_endpoint; if so, check the output of ddprun there"
                   : "check that ddprun runs on each missing node with its --node_rank and the same "
                     "--master_addr; if so, check the output of ddprun there";
    const enum finding_code code = finding_by_name(f->code);
    const bool is_lost = code == FINDING_NODE_LOST_SILENT || code == FINDING_NODE_LOST_CLOSED;
    return is_lost ? finding_advice(code) : NULL; /* the advice of these two codes contains no placeholder */
}

bool cause_remedy(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (w == NULL) {
        const char *remedy = remedy_without_worker(r);
        return remedy == NULL || buf_printf(out, "%s", remedy);
    }
    if (w->verdict != WORKER_NOT_STARTED)
        return end_remedy(w, r->evidence, out);
    const struct start_failure failure = start_failure(r, w);
    return start_remedy(&failure, out);
}

bool cause_core(const struct report *r, struct buf *out)
{
    const struct agent_worker *w = cause_worker(r);
    if (w == NULL || w->verdict == WORKER_NOT_STARTED)
        return true;
    return end_core(w, r->evidence, r->plan->workers[0].argv[0], out);
}

/* --- last lines ----------------------------------------------------------------------------------------- */

/* Append what a terminal shows of a line: the text after its last \r. */
static bool add_visible(const char *line, size_t len, struct buf *out)
{
    while (len > 0 && line[len - 1] == '\r')
        len--;
    const char *cr = len > 0 ? memrchr(line, '\r', len) : NULL;
    if (cr != NULL) {
        len -= (size_t)(cr + 1 - line);
        line = cr + 1;
    }
    return buf_append(out, line, len) && buf_append(out, "\n", 1);
}

/* Append the last lines of a stream as a terminal shows these lines. Return the number of lines. */
static size_t visible_lines(const struct tail *tail, size_t max, struct buf *out)
{
    struct buf raw = { 0 };
    size_t n = tail_lines(tail, max, &raw);
    const char *p = (const char *)raw.data;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        size_t len =
            (size_t)((const char *)memchr(p, '\n', raw.len - (size_t)(p - (const char *)raw.data)) - p);
        ok = add_visible(p, len, out);
        p += len + 1;
    }
    buf_free(&raw);
    return ok ? n : 0;
}

/* Append the last lines of the failed worker from the report of the worker's node. Return the number of lines. */
static size_t reported_lines(const struct failure *f, size_t max, struct buf *out)
{
    const size_t n = (size_t)f->n_lines, skip = n > max ? n - max : 0;
    for (size_t i = skip; i < n; i++)
        buf_printf(out, "%s\n", f->lines[i]);
    return n - skip;
}

/* Append the last lines of stderr, or of stdout if stderr is empty. Some programs log only to stdout. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout)
{
    const int first = cause_first(r);
    *from_stdout = r->elsewhere != NULL && r->elsewhere->from_stdout;
    if (r->elsewhere != NULL)
        return reported_lines(r->elsewhere, max, out);
    size_t n = r->stderr_tails != NULL && first >= 0 ? visible_lines(&r->stderr_tails[first], max, out) : 0;
    *from_stdout = n == 0;
    if (n == 0 && r->stdout_tails != NULL && first >= 0)
        n = visible_lines(&r->stdout_tails[first], max, out);
    return n;
}

/* --- hints ------------------------------------------------------------------------------------------------ */

/* Each row of the table of hints explains a piece of text that the C library, Python, PyTorch or NCCL prints. A row may
 * also require a second piece of text, or a fact about the failure. If several rows have the same piece, the first of
 * these rows that applies is used. */

/* The facts for the choice of a hint. A zeroed struct means that no fact is known. */
struct hint_facts {
    const char *host;    /* host of the failure, borrowed; NULL if the failure is on this node */
    const char *python;  /* path of the Python that ran the worker; borrowed; NULL if unknown */
    bool no_gpu;         /* this machine has no GPU */
    bool rank0_store;    /* --torch_store=rank0 applies */
    bool standalone;     /* --standalone is set */
    bool gloo_interface; /* GLOO_SOCKET_IFNAME is set */
    bool has_gpu_users;  /* the record of another node's failure lists the processes on the GPU */
    const struct worker_evidence *evidence; /* the worker's limits and memory; borrowed; NULL if unknown */
    const struct full_disk *full;           /* the full disk or quota that caused the worker's write error;
                                             * borrowed; NULL if unknown */
};

/* clang-format off */
#define LATE_RANK                                                                                            \
    "another rank did not enter this collective in time, because it is in another call, is busy, or has "  \
    "exited; to find this rank, start the job again and, while it hangs, run 'py-spy dump --pid PID' for " \
    "each rank"
static const char lost_rank[] =
    "the process at the other end exited or left the group while this process still needed the connection; check how the other ranks ended";

static const char no_gpu_here[] =
    "this machine has no GPU, which NCCL and CUDA need: on CPUs use init_process_group('gloo') and remove the calls of torch.cuda";
static const char lost_loader[] =
    "a process of Python's multiprocessing died, usually a DataLoader worker: check the free memory with 'free -h'{available}, the memory limit of the cgroup{memory} and the size of /dev/shm{shm}; with num_workers=0 the rank itself runs the loader's code and prints the error";

static bool lacks_gpu(const struct hint_facts *f)
{
    return f->no_gpu;
}

static bool knows_python(const struct hint_facts *f)
{
    return f->python != NULL;
}

static bool is_launchers_store(const struct hint_facts *f)
{
    return !f->rank0_store;
}

static bool is_standalone(const struct hint_facts *f)
{
    return f->standalone;
}

static bool has_gloo_interface(const struct hint_facts *f)
{
    return f->gloo_interface;
}

/* `sentence` may contain {python} and the other placeholders of append_hint(). */
static const struct hint {
    const char *piece, *sentence;
    const char *with;                                /* second piece that the text must contain; or NULL */
    bool (*applies)(const struct hint_facts *facts); /* returns true if the row applies; NULL means true */
    bool is_gpu_in_use;                              /* the hint says that another process may use the GPU */
} hints[] = {
    { .piece = "unrecognized arguments: --local-rank",
      "the script does not define this option; ddprun passes the local rank in LOCAL_RANK, and as an argument only with --pass_local_rank" },
    { .piece = "unrecognized arguments: --local_rank",
      "the script does not define this option; ddprun passes the local rank in LOCAL_RANK, and as an argument only with --pass_local_rank" },
    { .piece = "unrecognized arguments", "the script rejected its arguments: correct the arguments after PROGRAM on the command line" },
    { .piece = "without libuv support", "this PyTorch rejects the launcher's store; use --torch_store=rank0, so that rank 0 hosts a store for the workers",
      .applies = is_launchers_store },
    { .piece = "Address already in use",
      "another process uses the port that the program tried to open, perhaps a process of another job or of an earlier job; find that process with 'ss -ltnp'",
      .applies = is_standalone },
    { .piece = "Address already in use",
      "another process uses the port, perhaps a process of another job or of an earlier job; find that process with 'ss -ltnp', or use --standalone, which opens the store on a free port" },
    { .piece = "have NCCL built in", no_gpu_here, .applies = lacks_gpu },
    { .piece = "have NCCL built in", "this PyTorch was built without NCCL: install a PyTorch with CUDA, or use init_process_group('gloo')" },
    { .piece = "no GPUs found", no_gpu_here, .applies = lacks_gpu }, /* printed by PyTorch 1.13 to 2.14 */
    { .piece = "nccl2 requires at least one CUDA device", no_gpu_here, .applies = lacks_gpu }, /* printed by PyTorch 2.15 and later */
    { .piece = "Torch not compiled with CUDA enabled", no_gpu_here, .applies = lacks_gpu },
    { .piece = "'torch._C' has no attribute '_cuda_", no_gpu_here, .applies = lacks_gpu },
    { .piece = "No CUDA GPUs are available", no_gpu_here, .applies = lacks_gpu },
    { .piece = "Found no NVIDIA driver", no_gpu_here, .applies = lacks_gpu },
    { .piece = "NCCL error", no_gpu_here, .applies = lacks_gpu },
    { .piece = "no CUDA-capable device", no_gpu_here, .applies = lacks_gpu },
    { .piece = "CUDA out of memory", .is_gpu_in_use = true, .sentence = "the GPU's memory is full; 'nvidia-smi' shows whether another job or an old process uses this GPU too" },
    { .piece = "CUDA error: out of memory", .is_gpu_in_use = true, .sentence = "the GPU's memory is full; 'nvidia-smi' shows whether another job or an old process uses this GPU too" },
    { .piece = "invalid device ordinal",
      "the worker chose a GPU that does not exist: use LOCAL_RANK as the index, and start at most one worker for each GPU in CUDA_VISIBLE_DEVICES" },
    { .piece = "no CUDA-capable device", "no GPU is visible: CUDA_VISIBLE_DEVICES hides all GPUs, or the container was started without --gpus" },
    { .piece = "CUDA driver version is insufficient", "the GPU driver of this machine is too old for the CUDA version of the program: update the driver, or install a build for an older CUDA" },
    { .piece = "devices are busy or unavailable", .is_gpu_in_use = true, .sentence = "another process has reserved the GPU, or the GPU's compute mode allows no more processes; 'nvidia-smi -q -d COMPUTE,PIDS' shows the mode and the processes" },
    { .piece = "No space left on device", "a disk or /dev/shm is full{room}: delete files there, or write to another directory" },
    { .piece = "Disk quota exceeded", "a disk quota of this user is used up{room}: run 'quota -s' to see the quota, and delete files" },
    { .piece = "Too many open files", "the limit for open files{files} is too low, or the program has lowered it: raise the limit with 'ulimit -n' before ddprun, or in the program" },
    { .piece = "received 0 items of ancdata", "the limit for open files{files} is too low, or the program has lowered it: raise the limit with 'ulimit -n' before ddprun, or in the program" },
    { .piece = "Call to ibv_reg_mr", "the limit for locked memory{locked} is too low for InfiniBand: raise the limit with 'ulimit -l unlimited', or with LimitMEMLOCK=infinity in a systemd service" },
    { .piece = "Cannot allocate memory",
      "memory is used up, or a limit is too low: check the free memory with 'free -h'{available}, the memory limit of the cgroup{memory}, the limit of the address space with 'ulimit -v'{space}, and for InfiniBand the limit of locked memory with 'ulimit -l'{locked}{commit}" },
    { .piece = "can't start new thread", "a limit for processes and threads is too low: raise 'ulimit -u'{processes} or pids.max of the cgroup{pids}" },
    { .piece = "Resource temporarily unavailable", "most likely a limit for processes and threads is too low: raise 'ulimit -u'{processes} or pids.max of the cgroup{pids}" },
    { .piece = "is killed by signal: Bus error", "a DataLoader worker found no space in shared memory, usually /dev/shm{shm}: use 'docker run --shm-size=8g' (or --ipc=host), or fewer loader workers" },
    { .piece = "is killed by signal: Killed", "a DataLoader worker was killed, most likely because memory ran out: check the free memory with 'free -h'{available} and the memory limit of the cgroup{memory}, and use fewer loader workers, or a smaller batch" },
    { .piece = "ModuleNotFoundError", "{python}, which ran the program, lacks the module in the error message: install the module for this Python, or activate the virtual environment of the module (ddprun --dry_run prints why this Python was used)",
      .applies = knows_python },
    { .piece = "ModuleNotFoundError", "the Python that ran the program lacks the module in the error message; check which Python the first line of the script selects" },
    { .piece = "ImportError:", "an import failed in {python}, which ran the program; ddprun --dry_run prints why this Python was used",
      .applies = knows_python },
    { .piece = "is not a package",
      "a file of the program has the same name as an imported package, and Python imported the file instead: rename the file (a script called torch.py hides PyTorch)" },
    { .piece = "partially initialized module",
      "two modules import each other, or a file of the program has the same name as an imported package: rename the file (a script called torch.py hides PyTorch)" },
    { .piece = "error while loading shared libraries", "a shared library is missing: run 'ldd PROGRAM' to find its name; install the library, or add its directory to LD_LIBRARY_PATH" },
    { .piece = "version `GLIBC_", "the program needs a newer C library than this system has: build the program on this system, or use a newer container image" },
    { .piece = "\\r': No such file or directory", "the script has Windows line ends: convert them with sed -i 's/\\r$//' SCRIPT" },
    { .piece = "\r\342\200\231: No such file or directory", "the script has Windows line ends: convert them with sed -i 's/\\r$//' SCRIPT" },
    { .piece = "Connection refused", lost_loader, .with = "/multiprocessing/connection.py" },
    { .piece = "Connection refused",
      "no process listens at the address that the worker tried; if the worker wanted to reach ddprun's store, use MASTER_ADDR and MASTER_PORT; if the worker wanted to reach another rank, check that the other rank still runs, and that the other hosts can reach the interface in GLOO_SOCKET_IFNAME",
      .applies = has_gloo_interface },
    { .piece = "Connection refused", "no process listens at the address that the worker tried; if the worker wanted to reach ddprun's store, use MASTER_ADDR and MASTER_PORT; if the worker wanted to reach another rank, check that the other rank still runs; if the worker tried 127.0.0.1, but the other rank is on another host, set the interface that the hosts share, for example GLOO_SOCKET_IFNAME=eth0" },
    { .piece = "recv operation to complete", LATE_RANK },
    { .piece = "send operation to complete", LATE_RANK },
    { .piece = "caught collective operation timeout", LATE_RANK },
    { .piece = "Connection closed by peer", lost_rank },
    { .piece = "Connection reset by peer", lost_loader, .with = "/multiprocessing/connection.py" },
    { .piece = "Connection reset by peer", lost_loader, .with = "object type name: ConnectionResetError" },
    { .piece = "Connection reset by peer", lost_rank },
    { .piece = "ncclRemoteError", lost_rank },
    { .piece = "rank < size", "init_process_group received a world_size that is less than the number of ranks of this job: leave the argument out, so that PyTorch uses WORLD_SIZE" },
    { .piece = "terminate called without an active exception",
      "a C++ thread still ran when the process exited; the reason for the exit is the error above the line 'terminate called'; if there is no such error, call torch.distributed.destroy_process_group() at the end of the script" },
    { .piece = "Stale file handle", "the file no longer exists on the file server: mount the file system again" },
    { .piece = "Permission denied", "the worker's user has no permission for the file in the error: compare the output of 'id' with the owner and mode in 'ls -l'" },
};
/* clang-format on */

static bool contains(struct slice text, const char *piece)
{
    return text.len > 0 && memmem(text.data, text.len, piece, strlen(piece)) != NULL;
}

static bool fits(const struct hint *h, struct slice text, const struct hint_facts *facts)
{
    return (h->with == NULL || contains(text, h->with)) && (h->applies == NULL || h->applies(facts));
}

/* Return the last occurrence of `piece`, or NULL if `text` does not contain `piece`. */
static const uint8_t *last_place(struct slice text, const char *piece)
{
    const size_t len = strlen(piece);
    const uint8_t *last = NULL, *at = text.data, *end = at + text.len;
    while (text.len > 0 && (at = memmem(at, (size_t)(end - at), piece, len)) != NULL)
        last = at++;
    return last;
}

/* Return the row whose piece is last in the text, because programs print the reason of their exit last. If two
 * pieces begin at the same place, return the earlier row of the table. */
static const struct hint *find_hint(struct slice text, const struct hint_facts *facts)
{
    const struct hint *found = NULL;
    const uint8_t *last = NULL;
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        const uint8_t *at = last_place(text, hints[i].piece);
        if (at != NULL && (last == NULL || at > last) && fits(&hints[i], text, facts)) {
            last = at;
            found = &hints[i];
        }
    }
    return found;
}

/* Format free space as " (/data/x: 4 KiB and 7 inodes free; /dev/shm: 0 bytes and 5 inodes free)". Format a quota as
 * " (/data/x is on ext4 of /dev/sdb1, where user 1000 has 2 GiB of 2 GiB and 7 files)". */
static bool room_text(struct buf *out, const struct full_disk *full)
{
    char bytes[SIZE_TEXT_MAX], inodes[LIMIT_SHOWN];
    bool ok = true;
    for (int i = 0; full != NULL && i < full->n_rooms; i++) {
        const struct disk_room *room = &full->rooms[i];
        snprintf(inodes, sizeof(inodes), " and %llu inodes", (unsigned long long)room->inodes);
        ok = ok && buf_printf(out, "%s%s: %s%s free", i == 0 ? " (" : "; ", room->path,
                              words_size(bytes, room->bytes), room->inodes != UINT64_MAX ? inodes : "");
    }
    if (full != NULL && full->is_quota && (full->path[0] != '\0' || full->quota[0] != '\0'))
        ok = buf_printf(out, " (%s%s", full->path[0] != '\0' ? full->path : "the working directory",
                        full->quota);
    return ok && (out->len == 0 || buf_printf(out, ")")) && buf_append(out, "", 1);
}

/* Return the last line that contains `piece`, or an empty slice. */
static struct slice line_with(struct slice text, const char *piece)
{
    const char *at = (const char *)last_place(text, piece), *front = (const char *)text.data;
    if (at == NULL)
        return (struct slice){ 0 };
    const char *newline = memchr(at, '\n', (size_t)(front + text.len - at));
    const char *end = newline != NULL ? newline : front + text.len;
    const char *before = at > front ? memrchr(front, '\n', (size_t)(at - front)) : NULL;
    const char *begin = before != NULL ? before + 1 : front;
    return slice_of(begin, (size_t)(end - begin));
}

/* The quotes that Python, C programs and (in UTF-8) GNU programs print around file names. */
static const struct {
    const char *open, *close;
} quotes[] = { { "'", "'" }, { "\"", "\"" }, { "\342\200\230", "\342\200\231" } };

enum { N_QUOTES = sizeof(quotes) / sizeof(quotes[0]) };

/* Copy a path. Return false if the path is empty or too long. */
static bool copy_path(const char *from, const char *to, char path[PATH_MAX])
{
    return to > from && to - from < PATH_MAX && snprintf(path, PATH_MAX, "%.*s", (int)(to - from), from) > 0;
}

/* Copy the path at the start of the text. The path is in quotes, or is a word that contains a slash. */
static bool path_from(struct slice text, char path[PATH_MAX])
{
    const char *from = text.data, *end = from + text.len, *to = from;
    for (int i = 0; i < N_QUOTES; i++) {
        const size_t len = strlen(quotes[i].open);
        if (text.len <= len || memcmp(from, quotes[i].open, len) != 0)
            continue;
        to = memmem(from + len, text.len - len, quotes[i].close, strlen(quotes[i].close));
        return to != NULL && copy_path(from + len, to, path);
    }
    while (to < end && strchr(" \t\r,;)]'\"", *to) == NULL)
        to++;
    /* remove a colon that follows the path, as in "tar: /data/x: Cannot write: No space left on device" */
    to -= to > from && to[-1] == ':';
    return to - from > 1 && memchr(from, '/', (size_t)(to - from)) != NULL && copy_path(from, to, path);
}

/* Copy the path at the end of the text. The path is in quotes, or is a word that contains a slash. */
static bool path_until(struct slice text, char path[PATH_MAX])
{
    const char *front = text.data, *end = front + text.len, *from = end;
    for (int i = 0; i < N_QUOTES; i++) {
        const size_t len = strlen(quotes[i].close);
        if (text.len <= len || memcmp(end - len, quotes[i].close, len) != 0)
            continue;
        from = (const char *)last_place(slice_of(front, text.len - len), quotes[i].open);
        return from != NULL && copy_path(from + strlen(quotes[i].open), end - len, path);
    }
    while (from > front && strchr(" \t('\"=", from[-1]) == NULL)
        from--;
    return end - from > 1 && memchr(from, '/', (size_t)(end - from)) != NULL && copy_path(from, end, path);
}

/* Copy the first absolute path that follows a blank, a quote or a similar character. Skip the first word of the line,
 * because this word is usually the name of a program. */
static bool path_within(struct slice line, char path[PATH_MAX])
{
    const char *front = line.data;
    for (size_t i = 1; i < line.len; i++) {
        const bool is_quoted = front[i - 1] == '\'' || front[i - 1] == '"';
        if (front[i] == '/' && (is_quoted || strchr(" (=[", front[i - 1]) != NULL) &&
            path_from(slice_of(front + i - is_quoted, line.len - i + is_quoted), path))
            return true;
    }
    return false;
}

/* Find the path in the last line that contains the error `piece`. The path may be after the error ("No space left on
 * device: '/data/x'"), before the error ("write '/data/x': Disk quota exceeded"), or elsewhere in the line. */
static bool path_of_error(struct slice text, const char *piece, char path[PATH_MAX])
{
    const struct slice line = line_with(text, piece);
    const char *front = line.data, *at = (const char *)last_place(line, piece);
    if (at == NULL)
        return false;
    const char *after = at + strlen(piece), *end = front + line.len;
    return (end - after > 2 && memcmp(after, ": ", 2) == 0 &&
            path_from(slice_of(after + 2, (size_t)(end - after - 2)), path)) ||
           (at - front > 2 && memcmp(at - 2, ": ", 2) == 0 &&
            path_until(slice_of(front, (size_t)(at - front - 2)), path)) ||
           path_within(line, path);
}

/* Find an error about a full file system or a used-up quota. Return false if the text contains no such error. */
static bool hint_full_disk(struct slice text, struct full_disk *full)
{
    static const char no_space[] = "No space left on device", no_quota[] = "Disk quota exceeded";
    const uint8_t *space = last_place(text, no_space), *quota = last_place(text, no_quota);
    full->is_quota = quota != NULL && (space == NULL || quota > space);
    if (!path_of_error(text, full->is_quota ? no_quota : no_space, full->path))
        full->path[0] = '\0';
    return space != NULL || quota != NULL;
}

/* Return true if the hint needs values, such as free memory, that only the node of the failure has. */
static bool hint_has_values(const struct hint *h, const struct hint_facts *facts)
{
    return (h->is_gpu_in_use && !facts->has_gpu_users) || strchr(h->sentence, '{') != NULL;
}

/* Append the sentence of a hint, or nothing if `found` is NULL. Return false when memory is short. */
static bool append_hint(const struct hint *found, const struct hint_facts *facts, struct buf *out)
{
    static const struct worker_evidence nothing;
    const struct worker_evidence *e = facts->evidence != NULL ? facts->evidence : &nothing;
    char files[LIMIT_SHOWN], processes[LIMIT_SHOWN], pids[LIMIT_SHOWN], locked[LIMIT_SHOWN];
    char memory[2 * LIMIT_SHOWN], shm[2 * LIMIT_SHOWN], space[LIMIT_SHOWN], available[LIMIT_SHOWN],
        commit[COMMIT_SHOWN];
    struct buf room = { 0 };
    bool ok = room_text(&room, facts->full);
    const struct word words[] = { { "python", facts->python },
                                  { "room", (const char *)room.data },
                                  { "files", limit_text(files, e->open_files, false) },
                                  { "processes", limit_text(processes, e->processes, false) },
                                  { "pids", limit_text(pids, e->pids_max, false) },
                                  { "locked", limit_text(locked, e->locked, true) },
                                  { "memory", group_memory_text(memory, e) },
                                  { "shm", shm_text(shm, e) },
                                  { "available", available_text(available, e) },
                                  { "commit", commit_text(commit, e) },
                                  { "space", limit_text(space, e->address_space, true) } };
    ok = ok && (found == NULL || words_fill(out, found->sentence, words, sizeof(words) / sizeof(words[0])));
    if (ok && found != NULL && facts->host != NULL && hint_has_values(found, facts))
        ok = buf_printf(out, "; the report on %s has the details", facts->host);
    buf_free(&room);
    return ok;
}

/* Return true if the text says that another rank is gone. The program's own connections may break with the same
 * messages. So the text must also contain "gloo/transport/" or "ncclRemoteError". */
bool hint_is_of_lost_rank(struct slice text)
{
    const struct hint *found = find_hint(text, &(struct hint_facts){ 0 });
    return found != NULL && found->sentence == lost_rank &&
           (contains(text, "gloo/transport/") || contains(text, "ncclRemoteError"));
}

static struct hint_facts hint_facts(const struct report *r)
{
    const struct plan *plan = r->plan;
    const struct env_sources env = { plan->cli->env.items, plan->cli->env.n, plan->facts->environ_block };
    return (struct hint_facts){ .host = r->elsewhere != NULL ? r->elsewhere->host : NULL,
                                .python = r->python,
                                .evidence = r->evidence,
                                .full = r->full,
                                .has_gpu_users = r->elsewhere != NULL && r->elsewhere->gpu_users[0] != '\0',
                                .no_gpu = r->elsewhere == NULL && plan->facts->physical_gpus == 0,
                                .rank0_store = plan->rank0_store,
                                .standalone = plan->cli->standalone,
                                .gloo_interface = env_sources_find(&env, "GLOO_SOCKET_IFNAME") != NULL };
}

bool cause_full_disk(const struct report *r, struct full_disk *full)
{
    struct buf lines = { 0 };
    bool from_stdout, found = r->error != NULL && hint_full_disk(slice_str(r->error->message), full);
    if (!found && cause_last_lines(r, HINT_LINES, &lines, &from_stdout) > 0)
        found = hint_full_disk(buf_slice(&lines), full);
    buf_free(&lines);
    return found;
}

/* Return the hint for the error file. If no hint matches the error file, return the hint for the last lines, which
 * contain other text, too. Return NULL if the network failed, because a hint would wrongly blame a rank. */
static const struct hint *report_hint(const struct report *r, const struct hint_facts *facts)
{
    struct buf lines = { 0 };
    bool from_stdout;
    if (cause_has_left(r, FINDING_CONNECTION_BROKE))
        return NULL;
    const struct hint *found = r->error != NULL ? find_hint(slice_str(r->error->message), facts) : NULL;
    if (found == NULL && cause_last_lines(r, HINT_LINES, &lines, &from_stdout) > 0)
        found = find_hint(buf_slice(&lines), facts);
    buf_free(&lines);
    return found;
}

bool cause_is_gpu_in_use(const struct report *r)
{
    const struct hint_facts facts = hint_facts(r);
    const struct hint *found = report_hint(r, &facts);
    return found != NULL && found->is_gpu_in_use;
}

bool cause_hint(const struct report *r, struct buf *out)
{
    const struct hint_facts facts = hint_facts(r);
    return append_hint(report_hint(r, &facts), &facts, out);
}

/* --- errors at the start of Python ---------------------------------------------------------------------- */

/* Return true if `line` is an import or syntax error at the end of a traceback. `before` is the preceding line,
 * which is indented in a traceback. */
static bool is_import_exception(struct slice line, struct slice before)
{
    static const char *const names[] = { "ImportError:", "ModuleNotFoundError:", "SyntaxError:",
                                         "IndentationError:", "TabError:" };
    if (!slice_begins_with(before, " "))
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (slice_begins_with(line, names[i]))
            return true;
    return false;
}

/* Return a hash of the line. Never return 0, because hint_import_error returns 0 if there is no import error. */
static uint64_t value_in_line(struct slice line)
{
    const uint64_t hash = hash_bytes(HASH_START, line.data, line.len);
    return hash != 0 ? hash : 1;
}

/* Return a hash of the last import error, or 0. If another traceback follows, the program has caught the import
 * error, and the result is 0. */
uint64_t hint_import_error(struct slice text)
{
    uint64_t found = 0;
    struct slice before = { 0 };
    const char *at = text.data, *const end = text.len > 0 ? at + text.len : at;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const struct slice line = slice_of(at, (size_t)((newline != NULL ? newline : end) - at));
        const bool is_last = newline == NULL || newline + 1 == end;
        if (slice_begins_with(line, "Traceback (most recent call last)"))
            found = 0;
        if (is_import_exception(line, before) ||
            (is_last && contains(line, ": No module named ") && found == 0))
            found = value_in_line(line);
        before = line;
        at = newline != NULL ? newline + 1 : end;
    }
    return found;
}

/* hints.c -- see hints.h.
 *
 * One table from a piece of text to a sentence. The pieces are those of the programs that print
 * them (the C library, Python, PyTorch, NCCL); a sentence says what it means for the person at the launcher, and
 * nothing that the line says itself. A row may need a second piece of text, or a fact: of two rows for one piece the first
 * that fits counts. */
#include "report/hints.h"

#include "tables/text.h"

#include <stdint.h>
#include <stdio.h>

/* A node that was frozen finds a closed connection when it goes on, and would look for the fault in the store or in the
 * network. It knows better: its own timers rang too late, and the store has left it a last word. Without a pause of its
 * own that word means that the way between the two loses what this side says. */

typedef char loss_text[FINDING_SUBJECT_MAX];

/* "this ddprun (node 1, n1, pid 77)": the others name it so, but for the first words. */
static const char *who(loss_text out, const struct store_loss *l)
{
    if (l->node_rank >= 0)
        snprintf(out, sizeof(loss_text), "this ddprun (node %d, %.100s, pid %d)", l->node_rank, l->host,
                 l->pid);
    else
        snprintf(out, sizeof(loss_text), "this ddprun (%.100s, pid %d)", l->host, l->pid);
    return out;
}

static const char *verdict(char out[FINDING_SUBJECT_MAX * 2], const struct store_loss *l)
{
    if (l->dropped[0] != '\0')
        snprintf(out, FINDING_SUBJECT_MAX * 2, "it was given up as %.120s (--node_timeout is %.3g s)",
                 l->dropped, (double)l->node_timeout_ms / 1000);
    else
        snprintf(out, FINDING_SUBJECT_MAX * 2, "%.200s", l->how);
    return out;
}

bool store_loss_finding(const struct store_loss *l, struct finding *out)
{
    loss_text name, time;
    char why[FINDING_SUBJECT_MAX * 2];
    if (l->stood_ms == 0 && l->dropped[0] == '\0')
        return false;
    snprintf(time, sizeof(time), "%.3g s", (double)l->stood_ms / 1000);
    if (l->stood_ms > 0)
        finding_make(out, FINDING_NODE_STOOD_STILL, who(name, l), "time", time, "words", verdict(why, l),
                     NULL);
    else
        finding_make(out, FINDING_NODE_UNHEARD, who(name, l), "words", verdict(why, l), NULL);
    return true;
}

/* --- hints ------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define LATE_RANK                                                                                                         \
    "another rank did not come to this collective in time: it is in another call, busy, or gone; py-spy dump --pid PID, for each rank while it hangs, shows where"
static const char lost_rank[] =
    "the process at the other end has ended, or left the group, while this one still counted on it; see how the others ended";

static const char no_gpu_here[] =
    "this machine has no GPU, which NCCL and CUDA need: on CPUs use init_process_group('gloo') and leave out torch.cuda";
static const char lost_loader[] =
    "a process of Python's multiprocessing has died, as a rule a DataLoader worker: often for memory, or because /dev/shm is full; num_workers=0 runs its code in the rank itself and shows its error";

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

/* `sentence` may have the gap {python}. */
static const struct hint {
    const char *piece, *sentence;
    const char *with;                                /* stands somewhere in the text, too; NULL = no condition */
    bool (*applies)(const struct hint_facts *facts); /* NULL = no condition */
} hints[] = {
    { .piece = "unrecognized arguments: --local-rank",
      "the script's own option is missing, not one of ddprun's: ddprun gives the local rank in the variable LOCAL_RANK and adds no arguments" },
    { .piece = "unrecognized arguments: --local_rank",
      "the script's own option is missing, not one of ddprun's: ddprun gives the local rank in the variable LOCAL_RANK and adds no arguments" },
    { .piece = "unrecognized arguments", "the script did not accept its own arguments; ddprun passes on what stands behind PROGRAM, and adds nothing" },
    { .piece = "without libuv support", "this PyTorch refuses the launcher's store: --torch_store=rank0 lets rank 0 host one for the workers",
      .applies = is_launchers_store },
    { .piece = "Address already in use",
      "another process has the port that the program itself opened: a job on this machine, or what is left of one; ss -ltnp shows which",
      .applies = is_standalone },
    { .piece = "Address already in use",
      "another process has the port: a job on this machine, or what is left of one; ss -ltnp shows which, --standalone takes a free one for the store" },
    { .piece = "have NCCL built in", no_gpu_here, .applies = lacks_gpu },
    { .piece = "have NCCL built in", "this PyTorch was built without NCCL: install one with CUDA, or use init_process_group('gloo')" },
    { .piece = "no GPUs found", no_gpu_here, .applies = lacks_gpu }, /* torch 1.13 to 2.x */
    { .piece = "nccl2 requires at least one CUDA device", no_gpu_here, .applies = lacks_gpu }, /* from 2.15 on */
    { .piece = "Torch not compiled with CUDA enabled", no_gpu_here, .applies = lacks_gpu },
    { .piece = "'torch._C' has no attribute '_cuda_", no_gpu_here, .applies = lacks_gpu },
    { .piece = "No CUDA GPUs are available", no_gpu_here, .applies = lacks_gpu },
    { .piece = "Found no NVIDIA driver", no_gpu_here, .applies = lacks_gpu },
    { .piece = "NCCL error", no_gpu_here, .applies = lacks_gpu },
    { .piece = "no CUDA-capable device", no_gpu_here, .applies = lacks_gpu },
    { .piece = "CUDA out of memory", "the GPU's memory is full; nvidia-smi shows whether another job or an old process holds some of it" },
    { .piece = "CUDA error: out of memory", "the GPU's memory is full; nvidia-smi shows whether another job or an old process holds some of it" },
    { .piece = "invalid device ordinal",
      "the worker chose a GPU that does not exist: its index must be LOCAL_RANK, and no higher than the GPUs in CUDA_VISIBLE_DEVICES" },
    { .piece = "no CUDA-capable device", "no GPU is visible: CUDA_VISIBLE_DEVICES hides them, or the container was started without --gpus" },
    { .piece = "CUDA driver version is insufficient", "the driver on this machine is older than the CUDA that the program was built with" },
    { .piece = "No space left on device", "a disk or /dev/shm is full: df -h, df -i and df -h /dev/shm show which" },
    { .piece = "Disk quota exceeded", "the user's quota on that file system is used up: quota -s shows it" },
    { .piece = "Too many open files", "the limit for open files is too low: raise it with ulimit -n before ddprun" },
    { .piece = "received 0 items of ancdata", "the limit for open files is too low: raise it with ulimit -n before ddprun" },
    { .piece = "Call to ibv_reg_mr", "the limit for locked memory is too low for InfiniBand: ulimit -l unlimited, LimitMEMLOCK=infinity for a service" },
    { .piece = "Cannot allocate memory",
      "free memory, a cgroup's limit, ulimit -v, or (with InfiniBand) the limit for locked memory, ulimit -l: see which is low" },
    { .piece = "can't start new thread", "the limit for processes and threads is too low: ulimit -u, or pids.max of the cgroup" },
    { .piece = "Resource temporarily unavailable", "often the limit for processes and threads: ulimit -u, or pids.max of the cgroup" },
    { .piece = "is killed by signal: Bus error", "a DataLoader worker met a full /dev/shm: docker run --shm-size=8g (or --ipc=host), or fewer loader workers" },
    { .piece = "is killed by signal: Killed", "a DataLoader worker was killed, most likely for memory: use fewer loader workers, or a smaller batch" },
    { .piece = "ModuleNotFoundError", "{python}, which ran the program, lacks a module: install it there, or set PYTHON_EXEC to another Python",
      .applies = knows_python },
    { .piece = "ModuleNotFoundError", "the Python that the program chose lacks a module; the first line of a script names its Python" },
    { .piece = "ImportError:", "an import failed in {python}, which ran the program; set PYTHON_EXEC if another Python was meant",
      .applies = knows_python },
    { .piece = "is not a package",
      "the program has a file of its own with the name of the package that it imports, and Python found that one: rename it (a script called torch.py hides PyTorch)" },
    { .piece = "partially initialized module",
      "two modules import each other, or a file of the program has the name of the package that it imports: rename it (a script called torch.py hides PyTorch)" },
    { .piece = "error while loading shared libraries", "a library is not found: see ldd PROGRAM and LD_LIBRARY_PATH" },
    { .piece = "version `GLIBC_", "the program was built for a newer C library than this system has" },
    { .piece = "\\r': No such file or directory", "the script has Windows line ends: sed -i 's/\\r$//' SCRIPT" },
    { .piece = "\r\342\200\231: No such file or directory", "the script has Windows line ends: sed -i 's/\\r$//' SCRIPT" },
    { .piece = "Connection refused", lost_loader, .with = "/multiprocessing/connection.py" },
    { .piece = "Connection refused",
      "nobody listens at the address that it tried; ddprun's store is at MASTER_ADDR and MASTER_PORT; Gloo may have tried that of a process that has gone, or of an earlier group of the same name; GLOO_SOCKET_IFNAME must name an interface that the other hosts reach",
      .applies = has_gloo_interface },
    { .piece = "Connection refused", "nobody listens at the address that it tried; ddprun's store is at MASTER_ADDR and MASTER_PORT; Gloo may have tried that of a process that has gone, of an earlier group of the same name, or 127.0.0.1 for another host: GLOO_SOCKET_IFNAME=eth0, say, mends that" },
    { .piece = "recv operation to complete", LATE_RANK },
    { .piece = "send operation to complete", LATE_RANK },
    { .piece = "caught collective operation timeout", LATE_RANK },
    { .piece = "Connection closed by peer", lost_rank },
    { .piece = "Connection reset by peer", lost_loader, .with = "/multiprocessing/connection.py" },
    { .piece = "Connection reset by peer", lost_loader, .with = "object type name: ConnectionResetError" },
    { .piece = "Connection reset by peer", lost_rank },
    { .piece = "ncclRemoteError", lost_rank },
    { .piece = "rank < size", "init_process_group was given a world_size that is smaller than this job: without it, it takes that from WORLD_SIZE" },
    { .piece = "terminate called without an active exception",
      "a C++ thread still ran when the process ended: PyTorch's do now and then, less often if the program calls torch.distributed.destroy_process_group() before; why it ended is the error above 'terminate called', and if there is none, its script had come to its end" },
    { .piece = "Stale file handle", "a file server has lost the file: mount the file system again" },
    { .piece = "Permission denied", "the worker may not do that as this user; id and ls -l tell which right is missing" },
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

/* The last place of `piece`; NULL = it is nowhere. */
static const uint8_t *last_place(struct slice text, const char *piece)
{
    const size_t len = strlen(piece);
    const uint8_t *last = NULL, *at = text.data, *end = at + text.len;
    while (text.len > 0 && (at = memmem(at, (size_t)(end - at), piece, len)) != NULL)
        last = at++;
    return last;
}

/* The last place of any piece wins, because programs end with their reason; of two at one place the row
 * that comes first. */
static const struct hint *find(struct slice text, const struct hint_facts *facts)
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

bool hint_for(struct slice text, const struct hint_facts *facts, struct buf *out)
{
    const struct hint *found = find(text, facts);
    const struct word words[] = { { "python", facts->python } };
    return found == NULL || words_fill(out, found->sentence, words, 1);
}

/* A connection of the program's own may be reset as well: only a process group's means a rank. */
bool hint_is_of_lost_rank(struct slice text)
{
    const struct hint *found = find(text, &(struct hint_facts){ 0 });
    return found != NULL && found->sentence == lost_rank &&
           (contains(text, "gloo/transport/") || contains(text, "ncclRemoteError"));
}

/* --- errors at the start of Python ---------------------------------------------------------------------- */

static bool begins_with(struct slice line, const char *front)
{
    const size_t len = strlen(front);
    return line.len >= len && memcmp(line.data, front, len) == 0;
}

/* An exception stands unindented behind the indented last line of its traceback. */
static bool is_import_exception(struct slice line, struct slice before)
{
    static const char *const names[] = { "ImportError:", "ModuleNotFoundError:", "SyntaxError:",
                                         "IndentationError:", "TabError:" };
    if (!begins_with(before, " "))
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (begins_with(line, names[i]))
            return true;
    return false;
}

/* FNV-1a. */
static uint64_t number_of(struct slice line)
{
    const uint8_t *bytes = line.data;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < line.len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash != 0 ? hash : 1;
}

/* A later traceback, or another line of -m's kind, takes the place of what was found before. */
uint64_t hint_import_error(struct slice text)
{
    uint64_t found = 0;
    struct slice before = { 0 };
    const char *at = text.data, *const end = text.len > 0 ? at + text.len : at;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const struct slice line = slice_of(at, (size_t)((newline != NULL ? newline : end) - at));
        const bool is_last = newline == NULL || newline + 1 == end;
        if (begins_with(line, "Traceback (most recent call last)"))
            found = 0;
        if (is_import_exception(line, before) ||
            (is_last && contains(line, ": No module named ") && found == 0))
            found = number_of(line);
        before = line;
        at = newline != NULL ? newline + 1 : end;
    }
    return found;
}

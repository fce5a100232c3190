/* hints.c -- see hints.h. One table from a piece of text to a sentence. The pieces are those of the programs that print
 * them (the C library, Python, PyTorch, NCCL); a sentence says what it means for the person at the launcher, and
 * nothing that the line says itself. */
#include "report/hints.h"

#include <stdint.h>

/* clang-format off */
#define LATE_RANK                                                                                                         \
    "another rank did not come to this collective in time: it is in another call, busy, or gone; py-spy dump --pid PID, for each rank while it hangs, shows where"
static const char lost_rank[] =
    "the process at the other end has ended, or left the group, while this one still counted on it; see how the others ended";

static const struct {
    const char *piece, *sentence;
} hints[] = {
    { "unrecognized arguments: --local-rank",
      "the script's own option is missing, not one of ddprun's: ddprun gives the local rank in the variable LOCAL_RANK and adds no arguments" },
    { "unrecognized arguments: --local_rank",
      "the script's own option is missing, not one of ddprun's: ddprun gives the local rank in the variable LOCAL_RANK and adds no arguments" },
    { "unrecognized arguments", "the script did not accept its own arguments; ddprun passes on what stands behind PROGRAM, and adds nothing" },
    { "without libuv support", "this PyTorch refuses the launcher's store: --torch_store=rank0 lets rank 0 host one for the workers" },
    { "Address already in use",
      "another process has the port: a job on this machine, or what is left of one; ss -ltnp shows which, --standalone takes a free one for the store" },
    { "CUDA out of memory", "the GPU's memory is full; nvidia-smi shows whether another job or an old process holds some of it" },
    { "CUDA error: out of memory", "the GPU's memory is full; nvidia-smi shows whether another job or an old process holds some of it" },
    { "invalid device ordinal",
      "the worker chose a GPU that does not exist: its index must be LOCAL_RANK, and no higher than the GPUs in CUDA_VISIBLE_DEVICES" },
    { "no CUDA-capable device", "no GPU is visible: CUDA_VISIBLE_DEVICES hides them, or the container was started without --gpus" },
    { "CUDA driver version is insufficient", "the driver on this machine is older than the CUDA that the program was built with" },
    { "No space left on device", "a disk or /dev/shm is full: df -h, df -i and df -h /dev/shm show which" },
    { "Disk quota exceeded", "the user's quota on that file system is used up: quota -s shows it" },
    { "Too many open files", "the limit for open files is too low: raise it with ulimit -n before ddprun" },
    { "received 0 items of ancdata", "the limit for open files is too low: raise it with ulimit -n before ddprun" },
    { "Call to ibv_reg_mr", "the limit for locked memory is too low for InfiniBand: ulimit -l unlimited, LimitMEMLOCK=infinity for a service" },
    { "Cannot allocate memory",
      "free memory, a cgroup's limit, ulimit -v, or (with InfiniBand) the limit for locked memory, ulimit -l: see which is low" },
    { "can't start new thread", "the limit for processes and threads is too low: ulimit -u, or pids.max of the cgroup" },
    { "Resource temporarily unavailable", "often the limit for processes and threads: ulimit -u, or pids.max of the cgroup" },
    { "is killed by signal: Bus error", "a data loader met a full /dev/shm: docker run --shm-size=8g (or --ipc=host), or fewer loader workers" },
    { "is killed by signal: Killed", "a data loader was killed, most likely for memory: use fewer loader workers, or a smaller batch" },
    { "ModuleNotFoundError", "the Python of the workers lacks a module; $PYTHON_EXEC, else python3 in PATH, is the one that runs" },
    { "is not a package",
      "the program has a file of its own with the name of the package that it imports, and Python found that one: rename it (a script called torch.py hides PyTorch)" },
    { "partially initialized module",
      "two modules import each other, or a file of the program has the name of the package that it imports: rename it (a script called torch.py hides PyTorch)" },
    { "error while loading shared libraries", "a library is not found: see ldd PROGRAM and LD_LIBRARY_PATH" },
    { "version `GLIBC_", "the program was built for a newer C library than this system has" },
    { "\\r': No such file or directory", "the script has Windows line ends: sed -i 's/\\r$//' SCRIPT" },
    { "\r\342\200\231: No such file or directory", "the script has Windows line ends: sed -i 's/\\r$//' SCRIPT" },
    { "Connection refused", "nobody listens at the address that it tried; ddprun's store is at MASTER_ADDR and MASTER_PORT; Gloo may have tried that of a process that has gone, of an earlier group of the same name, or 127.0.0.1 for another host: GLOO_SOCKET_IFNAME=eth0, say, mends that" },
    { "recv operation to complete", LATE_RANK },
    { "send operation to complete", LATE_RANK },
    { "caught collective operation timeout", LATE_RANK },
    { "Connection closed by peer", lost_rank },
    { "Connection reset by peer", lost_rank },
    { "ncclRemoteError", lost_rank },
    { "rank < size", "init_process_group was given a world_size that is smaller than this job: without it, it takes that from WORLD_SIZE" },
    { "terminate called without an active exception",
      "a C++ thread still ran when the process ended: PyTorch's do now and then, less often if the program calls torch.distributed.destroy_process_group() before; why it ended is the error above 'terminate called', and if there is none, its script had come to its end" },
    { "Stale file handle", "a file server has lost the file: mount the file system again" },
    { "Permission denied", "the worker may not do that as this user; id and ls -l tell which right is missing" },
};
/* clang-format on */

/* The last place of any piece wins, because programs end with their reason; of two at one place the row
 * that comes first. */
const char *hint_for(struct slice text)
{
    const char *found = NULL;
    const uint8_t *last = NULL;
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        size_t len = strlen(hints[i].piece);
        const uint8_t *at = text.data, *end = at + text.len;
        while (text.len > 0 && (at = memmem(at, (size_t)(end - at), hints[i].piece, len)) != NULL) {
            if (last == NULL || at > last) {
                last = at;
                found = hints[i].sentence;
            }
            at++;
        }
    }
    return found;
}

/* A connection of the program's own may be reset as well: only a process group's means a rank. */
bool hint_is_of_lost_rank(struct slice text)
{
    static const char gloo[] = "gloo/transport/", nccl[] = "ncclRemoteError";
    return hint_for(text) == lost_rank && (memmem(text.data, text.len, gloo, sizeof(gloo) - 1) != NULL ||
                                           memmem(text.data, text.len, nccl, sizeof(nccl) - 1) != NULL);
}

/* peers.c -- see peers.h.
 *
 * kill(pid, 0) would not do: it succeeds for a zombie, and for a stranger who has got the number since. */
#include "cpu/peers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* pidfd_open(2) has no function in the C library of Debian 12. The descriptor is close-on-exec by itself. */
static int open_pidfd(int32_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* A peer that has ended and was waited for is found here; one that is still a zombie opens like a living one, and
 * the first look at the peers finds it. */
static ddp_status open_one(struct peers *peers, int32_t pid, int rank, struct ddp_err *err)
{
    peers->fds[rank] = (struct pollfd){ .fd = open_pidfd(pid), .events = POLLIN };
    if (peers->fds[rank].fd >= 0)
        return DDP_OK;
    if (errno == ESRCH)
        return ddp_fail(err, DDP_ERR_PEER_LOST, "rank %d (pid %d) has ended before all ranks had met", rank,
                        pid);
    return ddp_fail(err, DDP_ERR_IO, "watching rank %d (pid %d): pidfd_open: %s%s", rank, pid,
                    strerror(errno), errno == EMFILE ? " (raise the limit with `ulimit -n`)" : "");
}

/* One descriptor for each peer. That is 255 in a world of 256, below the usual limit of 1024. */
ddp_status peers_open(struct peers *peers, const int32_t *pids, int world, int rank, struct ddp_err *err)
{
    ddp_status status = DDP_OK;

    *peers = (struct peers){ calloc((size_t)world, sizeof(struct pollfd)), world };
    if (peers->fds == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d peers", world);
    for (int r = 0; r < world; r++)
        peers->fds[r].fd = -1;
    for (int r = 0; r < world && status == DDP_OK; r++)
        if (r != rank)
            status = open_one(peers, pids[r], r, err);
    if (status != DDP_OK)
        peers_close(peers);
    return status;
}

/* One system call for all peers. A zombie counts as ended: the kernel says so before its parent has
 * waited for it. */
int peers_ended(const struct peers *peers)
{
    if (poll(peers->fds, (nfds_t)peers->world, 0) <= 0)
        return -1;
    for (int r = 0; r < peers->world; r++)
        if (peers->fds[r].fd >= 0 && peers->fds[r].revents != 0)
            return r;
    return -1;
}

/* Any number of times, also for what peers_open() left half done. */
void peers_close(struct peers *peers)
{
    if (peers->fds == NULL)
        return;
    for (int r = 0; r < peers->world; r++)
        if (peers->fds[r].fd >= 0)
            close(peers->fds[r].fd);
    free(peers->fds);
    peers->fds = NULL;
}

/* The letter behind the command name in /proc/<pid>/stat; '?' when it cannot be read. */
static char state_letter(int32_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return '?';
    char *end = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

const char *peers_state(int32_t pid)
{
    switch (state_letter(pid)) {
    case 'R':
        return "runs";
    case 'S':
        return "sleeps";
    case 'D':
        return "hangs in a system call";
    case 'T':
    case 't':
        return "is stopped by a signal or a debugger";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        return "state unknown";
    }
}

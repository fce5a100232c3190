/* procfs.h -- parsers of small files of /proc, and signals to processes by pidfd. */
#ifndef LAUNCHER_CONTAIN_PROCFS_H
#define LAUNCHER_CONTAIN_PROCFS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The length of /proc/sys/kernel/random/boot_id, a UUID: pids and start times are valid for one boot only. */
enum { BOOT_ID_CHARS = 36 };

struct proc_stat {
    char state; /* R S D T Z X ... */
    int parent; /* 0 = outside this PID namespace */
    int group;
    int foreground;       /* the foreground group of its terminal; -1 = it has no terminal */
    unsigned flags;       /* the kernel's PF_... of its first thread */
    int threads;          /* threads that have not ended; of a zombie, itself included */
    uint64_t cpu_ticks;   /* used by all its threads */
    uint64_t start_ticks; /* clock ticks from boot to its start: with the pid they name a process */
};

/* Parse a line of that file; false for anything else. */
bool proc_stat_parse(const char *text, struct proc_stat *out);

/* True if the process has ended. A zombie only waits to be reaped, unless other threads of it still run: the state
 * only shows that its first thread has ended. */
static inline bool proc_stat_is_dead(const struct proc_stat *s)
{
    return (s->state == 'Z' && s->threads <= 1) || s->state == 'X';
}

/* True while the kernel cleans up the process: it ends by a signal, writes its core file, or frees its memory. A
 * first thread that has exited is a zombie, too, while the others work, so the state is not enough. */
static inline bool proc_stat_is_dying(const struct proc_stat *s)
{
    enum { EXITING = 0x4, DUMPS_CORE = 0x200, SIGNALED = 0x400 }; /* PF_... of linux/sched.h */
    return (s->flags & (DUMPS_CORE | SIGNALED)) != 0 || ((s->flags & EXITING) != 0 && s->state != 'Z');
}

/* --- pids ------------------------------------------------------------------------------------------------- */

/* The number of a process, and a handle on its present owner, because numbers are reused. */

/* Return a descriptor of the process that has this number now (Linux 5.3), which the caller closes; -1: errno. */
int pids_hold(pid_t pid);

/* Signal the process of the descriptor, even if its number is reused. False: errno. */
bool pids_signal(int pidfd, int signal);

/* True if both work here. Tested at each call. */
bool pids_can_hold(void);

/* Return the number that was assigned last; none above it is in use until they wrap around. -1: no process can be
 * created. */
pid_t pids_newest(void);

/* Read a whole file as text into `out`, with a NUL after its end (not counted); false when it is gone, longer than 1
 * MiB, or memory is short. The caller frees `out` in any case. */
bool procfs_read(const char *path, struct buf *out);

/* Read the first line of /proc/PID/`file`, cut to `size`, with unprintable bytes as '?', because a process may use
 * any name. "" when it cannot be read. */
void procfs_line(pid_t pid, const char *file, char *to, size_t size);

/* False when there is no such process. */
bool procfs_stat(pid_t pid, struct proc_stat *out);

/* Return the boot id of this machine, read once; "" when /proc does not have it. The agent uses the value that its
 * parent has read. */
const char *procfs_boot_id(void);

/* Return the start time of this process, read once, which separates it from another with its pid. 0 = not known. */
uint64_t procfs_own_start(void);

/* True if a process of this user may still live in the PID namespace with this number. Always true when not all
 * processes are visible: only in a machine's first namespace they are. */
bool procfs_namespace_lives(uint64_t number);

/* False when /proc is not mounted, or its numbers are those of another PID namespace. */
bool procfs_is_ours(void);

#endif

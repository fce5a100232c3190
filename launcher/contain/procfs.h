/* procfs.h -- small files of /proc. */
#ifndef LAUNCHER_CONTAIN_PROCFS_H
#define LAUNCHER_CONTAIN_PROCFS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The length of /proc/sys/kernel/random/boot_id, a UUID: pids and start times are worth something on one boot only. */
enum { BOOT_ID_CHARS = 36 };

struct proc_stat {
    char state; /* R S D T Z X ... */
    int parent; /* 0 = outside this PID namespace */
    int group;
    int foreground;       /* the group that its terminal listens to; -1 = it has no terminal */
    unsigned flags;       /* the kernel's PF_... of its first thread */
    int threads;          /* that have not ended; of a zombie, itself included */
    uint64_t cpu_ticks;   /* used by all its threads */
    uint64_t start_ticks; /* clock ticks from boot to its start: with the pid they name a process */
};

/* False when `text` is not such a line. */
bool proc_stat_parse(const char *text, struct proc_stat *out);

/* Has it ended? A zombie only waits to be reaped, unless other threads of it still run: its first thread has ended then, and
 * that alone is what the state tells. */
static inline bool proc_stat_is_dead(const struct proc_stat *s)
{
    return (s->state == 'Z' && s->threads <= 1) || s->state == 'X';
}

/* Does the kernel take it apart? It ends by a signal, writes its core file, or gives back what it had. A first thread that
 * has left by itself is a zombie, too, while the others work: that alone is no sign. */
static inline bool proc_stat_is_dying(const struct proc_stat *s)
{
    enum { EXITING = 0x4, DUMPS_CORE = 0x200, SIGNALED = 0x400 }; /* PF_... of linux/sched.h */
    return (s->flags & (DUMPS_CORE | SIGNALED)) != 0 || ((s->flags & EXITING) != 0 && s->state != 'Z');
}

/* --- pids ------------------------------------------------------------------------------------------------- */

/* The number of a process, and a handle on its present owner: numbers are reused. */

/* A descriptor of the process that has this number now (Linux 5.3), which the caller closes; -1: errno. */
int pids_hold(pid_t pid);

/* Signal the process of the descriptor, even if its number is reused. False: errno. */
bool pids_signal(int pidfd, int signal);

/* Do both work here? Looks each time. */
bool pids_can_hold(void);

/* The number that was given away last; none above it is in use until they wrap around. -1: no process can be made. */
pid_t pids_newest(void);

/* The whole of a file as text in `out`, with a NUL behind its end (not counted); false when it is gone, longer than
 * 1 MiB, or memory is short. The caller frees `out` in any case. */
bool procfs_read(const char *path, struct buf *out);

/* The first line of /proc/PID/`file`, cut to `size`, with unprintable bytes as '?': a process may use any name. ""
 * when it cannot be read. */
void procfs_line(pid_t pid, const char *file, char *to, size_t size);

/* False when there is no such process. */
bool procfs_stat(pid_t pid, struct proc_stat *out);

/* Of this boot of this machine, read once; "" when /proc does not tell. The agent reads what its parent has read. */
const char *procfs_boot_id(void);

/* When this process began, read once: the kernel's start time tells it from another with its pid. 0 = not known. */
uint64_t procfs_own_start(void);

/* May a process of this user still live in the PID namespace with this number? Always true for who does not see all of them: only
 * those in the first namespace of a machine do. */
bool procfs_namespace_lives(uint64_t number);

/* False when /proc is not mounted, or its numbers are those of another PID namespace. */
bool procfs_is_ours(void);

#endif

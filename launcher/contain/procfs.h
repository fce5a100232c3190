/* procfs.h -- parsers of small files of /proc, and signals to processes by pidfd. A pid alone does not identify a
 * process, because the kernel reuses pids. A pidfd identifies a process, and so does a pid together with its start time
 * and boot id. */
#ifndef LAUNCHER_CONTAIN_PROCFS_H
#define LAUNCHER_CONTAIN_PROCFS_H

#include "base/buf.h"
#include "tables/signals.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Number of characters of /proc/sys/kernel/random/boot_id, a UUID. Pids and start times are valid for one boot
 * only. */
enum { BOOT_ID_CHARS = 36 };

struct proc_stat {
    char state;     /* letter of the state, as in /proc/PID/stat: R, S, D, T, Z, X ... */
    int parent;     /* pid of the parent; 0 if the parent is in another PID namespace */
    int group;      /* id of the process group */
    int foreground; /* foreground process group of the process's terminal; -1 without a terminal */
    unsigned flags; /* the kernel's PF_... flags of the first thread */
    /* number of threads that have not ended; the kernel counts the first thread until the process is reaped */
    int threads;
    uint64_t cpu_ticks;   /* CPU time of all threads, in clock ticks (sysconf(_SC_CLK_TCK) per second) */
    uint64_t start_ticks; /* start time, in clock ticks since boot; pid and start time identify a process */
};

/* Parse the text of /proc/PID/stat. Return false if the text has another format. */
bool proc_stat_parse(const char *text, struct proc_stat *out);

/* Return true if the process has ended with all its threads. `state` is not enough, because it is the state of the
 * first thread, which may end before other threads. */
static inline bool proc_stat_is_dead(const struct proc_stat *s)
{
    return (s->state == 'Z' && s->threads <= 1) || s->state == 'X';
}

/* Return true if the kernel is ending the process: a signal has killed it, or the kernel writes its core file or
 * frees its memory. */
static inline bool proc_stat_is_dying(const struct proc_stat *s)
{
    enum { EXITING = 0x4, DUMPS_CORE = 0x200, SIGNALED = 0x400 }; /* PF_... of linux/sched.h */
    return (s->flags & (DUMPS_CORE | SIGNALED)) != 0 || ((s->flags & EXITING) != 0 && s->state != 'Z');
}

/* A TCP connection whose peer does not answer. ddprun or a worker has sent the same data at least UNANSWERED_TIMES
 * times, and the peer has not acknowledged this data. */
enum { UNANSWERED_TIMES = 4, PEER_TEXT_MAX = 64 };
struct unanswered {
    uint64_t inode;           /* inode number of the socket */
    char peer[PEER_TEXT_MAX]; /* "10.0.0.2:4711" */
};

/* Parse a line of /proc/PID/net/tcp or tcp6. Return true if the line shows a connection whose peer has not acknowledged
 * data that was sent several times. */
bool proc_tcp_parse(const char *line, struct unanswered *out);

/* --- pids ------------------------------------------------------------------------------------------------- */

/* A pidfd identifies a process even after its pid was reused. */

/* Return a descriptor of the process that has this pid now (Linux 5.3). The caller closes it. Return -1 and set errno
 * on failure. */
int pids_hold(pid_t pid);

/* Send a signal to the process of the descriptor. Return false and set errno on failure, for example if the process
 * has ended. */
bool pids_signal(int pidfd, int signal);

/* Return true if pids_hold and pids_signal both work here. Each call tests both functions again. */
bool pids_can_hold(void);

/* Start a process that exits at once, and return its pid, or -1 if no process can be created. Processes that start
 * later have higher pids, until pids wrap around. */
pid_t pids_newest(void);

/* Read a whole file as text into `out`, and add a NUL that `out->len` does not include. Return false if the file is
 * missing or longer than 1 MiB, or if memory is short. The caller frees `out` in any case. */
bool procfs_read(const char *path, struct buf *out);

/* Read the first line of /proc/PID/`file`, cut to `size`. Unprintable bytes become '?', because a process may choose
 * any name. Write "" if the file cannot be read. */
void procfs_line(pid_t pid, const char *file, char *to, size_t size);

/* Return the sender of a signal, from si_code, si_pid and si_uid. The sender's name is read at once, because the
 * sender may exit. */
struct signal_sender procfs_sender(int code, pid_t pid, unsigned uid);

/* Read /proc/PID/stat. Return false if the process does not exist. */
bool procfs_stat(pid_t pid, struct proc_stat *out);

/* Return true if `pid` has a terminal, but belongs to a process group that is not in the foreground of this
 * terminal. */
bool procfs_in_background(pid_t pid);

/* Return true if this process is in the first namespace of this kind, which the kernel creates when the machine starts.
 * The inode number of such a namespace is fixed (linux/proc_ns.h). */
enum first_namespace { FIRST_PID, FIRST_USER, FIRST_CGROUP };
bool procfs_in_first_namespace(enum first_namespace kind);

/* Return the boot id of this machine, or "" if /proc has no boot id. The file is read once; the agent inherits the
 * value from the guardian. The text is static. */
const char *procfs_boot_id(void);

/* Return the start time of this process, or 0 if it is unknown. The time is read only once. Pid and start time together
 * identify a process. */
uint64_t procfs_own_start(void);

/* Return true if the PID namespace `number` may still have processes. Only a process in the machine's first PID
 * namespace can check this, because only this namespace shows all processes. In any other namespace always return
 * true. */
bool procfs_namespace_lives(uint64_t number);

/* Return true if /proc is mounted and belongs to the PID namespace of this process. */
bool procfs_is_own(void);

#endif

/* proc_stat.h -- what a line of /proc/PID/stat says, as far as we need it. */
#ifndef LAUNCHER_PROC_STAT_H
#define LAUNCHER_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>

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

#endif

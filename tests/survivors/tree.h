/* tree.h -- all descendants of this process, from the kernel.
 *
 * The harness must find every survivor, independent of the code under test. So a trial runs below a process that adopts
 * orphans (PR_SET_CHILD_SUBREAPER). No process can leave this tree, not even by setsid, by a double fork or in a PID
 * namespace. wait() returns "no child" exactly when the last process is gone. Names, environments and lists of /proc
 * are not trusted. */
#ifndef TESTS_SURVIVORS_TREE_H
#define TESTS_SURVIVORS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Make this process adopt orphans. From here on SIGCHLD is blocked: poll tree_events(), or use tree_wait(). */
bool tree_open(void);

/* Wait until a process has ended or stopped, but for at most `ms` milliseconds. */
void tree_wait(int ms);

/* Return a descriptor that is readable when a process has ended; tree_reap empties it. */
int tree_events(void);

/* Reap all children that have ended. If `watched` is one of them, set `*status` and `*ended`. Return false when no
 * process is left. */
bool tree_reap(pid_t watched, int *status, bool *ended);

/* Return the number of live descendants (zombies do not count). Describe the first of them in `names`, one line each:
 * pid, state, name, the kernel function in which the process waits, and its arguments. These lines are only for
 * messages. */
size_t tree_count(char *names, size_t size);

/* Send SIGKILL to the children of this process until no descendant is left. A descendant whose parent has died becomes
 * a child of this process. Return false if a process is left after `limit_ms` milliseconds. */
bool tree_kill(uint64_t limit_ms);

/* Restore the default actions of all signals, and unblock all signals. Call this in a child before it executes another
 * program. Otherwise the program inherits ignored signals, for example from nohup. */
void tree_default_signals(void);

#endif

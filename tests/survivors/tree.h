/* tree.h -- all descendants of this process, from the kernel.
 *
 * A trial runs below a process that adopts orphans (PR_SET_CHILD_SUBREAPER), because no process can leave this tree.
 * wait() returns "no child" when the last one is gone. Names, environments and lists of /proc are not trusted. */
#ifndef TESTS_SURVIVORS_TREE_H
#define TESTS_SURVIVORS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Make this process adopt orphans. SIGCHLD is then blocked: use tree_events() or tree_wait(). */
bool tree_open(void);

/* Wait up to `ms` for the end or stop of a process. */
void tree_wait(int ms);

/* Return a descriptor that is readable after an end; tree_reap empties it. */
int tree_events(void);

/* Reap all ended children. If `watched` is one, set `*status` and `*ended`. Return false when no process is left. */
bool tree_reap(pid_t watched, int *status, bool *ended);

/* Return the number of live descendants, without zombies. Describe some in `names`, one line each, for messages
 * only. */
size_t tree_count(char *names, size_t size);

/* Send SIGKILL until no process is left. Return false after `limit_ms`. */
bool tree_kill(uint64_t limit_ms);

/* Restore and unblock all signals, in a child before it executes another program. */
void tree_default_signals(void);

#endif

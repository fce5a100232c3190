/* tree.h -- everything that came from this process, as the kernel knows it.
 *
 * The harness must find every survivor, under every name and in every place, independent of the code under
 * test. So a trial runs below a process that adopts orphans (PR_SET_CHILD_SUBREAPER): there is no way out of
 * its tree, neither by setsid nor by a double fork nor into a PID namespace, and wait() says "no child"
 * exactly when the last one is gone. No name, no environment, no list of /proc is trusted for that. */
#ifndef TESTS_SURVIVORS_TREE_H
#define TESTS_SURVIVORS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Become the one who adopts. From here on SIGCHLD is blocked: poll tree_events(), or use tree_wait(). */
bool tree_open(void);

/* Wait until a process has ended or halted, or for `ms`. */
void tree_wait(int ms);

/* Return a descriptor that is readable when a process has ended; tree_reap empties it. */
int tree_events(void);

/* Reap all that have ended; if `watched` was among them, set `*status` and `*ended`. Return false when no
 * process is left. */
bool tree_reap(pid_t watched, int *status, bool *ended);

/* How many descendants live (zombies are dead), and a line for each of the first: number, state, name, what it waits for
 * in the kernel, and its arguments. For words only. */
size_t tree_count(char *names, size_t size);

/* Send SIGKILL until no process is left; return false after `limit_ms`. */
bool tree_kill(uint64_t limit_ms);

/* In a child that is about to become another program: no signal is blocked or ignored, whatever this process was started
 * with (nohup, a shell's background). */
void tree_default_signals(void);

#endif

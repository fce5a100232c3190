/* tree.h -- everything that came from this process, as the kernel knows it.
 *
 * The harness must know of every survivor, whatever it calls itself and wherever it hides, and independent
 * of the code under test. So a trial runs below a process of its own that adopts orphans
 * (PR_SET_CHILD_SUBREAPER): there is no way out of its tree, neither by setsid nor by a double fork nor
 * into a PID namespace, and wait() says "no child" exactly when the last one is gone. No name, no
 * environment, no list of /proc is trusted for that. */
#ifndef TESTS_SURVIVORS_TREE_H
#define TESTS_SURVIVORS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Become the one who adopts. From here on SIGCHLD is blocked: poll tree_events(), or use tree_wait(). */
bool tree_open(void);

/* Until somebody has ended or halted, or so much time is over. */
void tree_wait(int ms);

/* A descriptor that is readable when somebody has ended; tree_reap empties it. */
int tree_events(void);

/* Take all who have ended; `*status` is set when `watched` was among them, and true comes back in `*ended`.
 * False: nobody is left at all. */
bool tree_reap(pid_t watched, int *status, bool *ended);

/* How many descendants live (zombies are dead), and a line for each of the first: number, state, name, what it waits for
 * in the kernel, and its arguments. For words only. */
size_t tree_count(char *names, size_t size);

/* SIGKILL until nobody is left; false after `limit_ms`. */
bool tree_kill(uint64_t limit_ms);

/* In a child that is about to become another program: no signal is blocked or ignored, whatever this process was started
 * with (nohup, a shell's background). */
void tree_default_signals(void);

#endif

/* signals.h -- the signals that guardian and agent wait for, and children that have ended.
 *
 * Guardian and agent listen to the same signals in the same way. */
#ifndef LAUNCHER_NODE_SIGNALS_H
#define LAUNCHER_NODE_SIGNALS_H

#include "tables/signals.h"

#include <signal.h>
#include <sys/types.h>

/* Block every signal of the table, so that it waits until it is fetched, and tell which. What the user told us to
 * ignore (nohup, a background job of sh) is not among them and stays ignored. Before there are threads. */
void signal_watch_block(sigset_t *watched);

/* Who sent it: fields si_code, si_pid and si_uid of the signal's information. The name is looked up here and now,
 * the sender may be gone in a moment. */
struct signal_sender signal_watch_sender(int code, int pid, unsigned uid);

/* --- exits ------------------------------------------------------------------------------------------------ */

/* In which order did the workers end?
 *
 * waitpid tells who has ended in the order of birth. When two fail within one turn of a busy loop, that would make the
 * lower rank the first cause, whoever it was. */

struct exits {
    int epoll; /* one pidfd for each living worker; -1 = this kernel cannot, or no descriptor was left */
};

void exits_open(struct exits *x);

/* `pid` is a child that nobody has waited for. Without a descriptor for it, its end is not told here. */
void exits_watch(struct exits *x, pid_t pid);

/* The next worker that has ended, earliest first, 0 = no more is known. Its status is still to be waited for. */
pid_t exits_next(struct exits *x);

void exits_close(struct exits *x);

#endif

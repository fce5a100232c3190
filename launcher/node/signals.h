/* signals.h -- the signals that guardian and agent wait for, in the same way. */
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

#endif

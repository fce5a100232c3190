/* signal_watch.h -- guardian and agent listen to the same signals in the same way. */
#ifndef LAUNCHER_SIGNAL_WATCH_H
#define LAUNCHER_SIGNAL_WATCH_H

#include "tables/signals.h"

#include <signal.h>

/* Block every signal of the table, so that it waits until it is fetched, and tell which. What the user told us to
 * ignore (nohup, a background job of sh) is not among them and stays ignored. Before there are threads. */
void signal_watch_block(sigset_t *watched);

/* Who sent it: fields si_code, si_pid and si_uid of the signal's information. The name is looked up here and now,
 * the sender may be gone in a moment. */
struct signal_sender signal_watch_sender(int code, int pid, unsigned uid);

#endif

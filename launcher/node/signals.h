/* signals.h -- the signals that guardian and agent wait for, and how both wait. */
#ifndef LAUNCHER_NODE_SIGNALS_H
#define LAUNCHER_NODE_SIGNALS_H

#include "tables/signals.h"

#include <signal.h>
#include <sys/types.h>

/* Block every signal of the table, so that it stays pending until it is read, and return the set. Signals that the
 * user has ignored (nohup, a background job of sh) are not in it and stay ignored. Call it before threads exist. */
void signal_watch_block(sigset_t *watched);

/* Return the sender: fields si_code, si_pid and si_uid of the signal's information. The name is read at once, because
 * the sender may exit at any moment. */
struct signal_sender signal_watch_sender(int code, int pid, unsigned uid);

#endif

/* ctl_watch.h -- the screen of `ddpctl --watch`: the same answer again and again, in place. */
#ifndef RENDEZVOUS_CTL_WATCH_H
#define RENDEZVOUS_CTL_WATCH_H

#include "base/slice.h"

/* Take the keyboard, when there is one: keys are then read one at a time and not shown. */
void ctl_watch_begin(void);
/* Show `text` in place of what was shown before; where stdout is no terminal, as a block behind it. False when it cannot
 * be written. */
bool ctl_watch_show(struct slice text);
/* Wait for a second. False: the user wants to end (q, Ctrl-C, Ctrl-D). */
bool ctl_watch_wait(void);
/* The terminal is as before. */
void ctl_watch_end(void);

#endif

/* ctl_timeline.h -- `ddpctl timeline`: event logs in, a page or a trace out. Needs no store. */
#ifndef RENDEZVOUS_CTL_TIMELINE_H
#define RENDEZVOUS_CTL_TIMELINE_H

#include "ctl/ctl_options.h"

/* False: what went wrong has been logged. */
bool ctl_timeline(const struct ctl_options *options);

#endif

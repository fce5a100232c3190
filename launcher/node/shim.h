/* shim.h -- `ddprun shim DIR`: a command torchrun, for front ends that start torchrun from PATH. */
#ifndef LAUNCHER_NODE_SHIM_H
#define LAUNCHER_NODE_SHIM_H

#include "base/buf.h"
#include "ddp/error.h"

/* Make DIR/torchrun start this ddprun. Create DIR if its parent exists. Append the shell line that puts DIR first in
 * PATH, unless DIR/torchrun is already the first torchrun. A torchrun that is no shim is an error. */
ddp_status shim_write(const char *dir, struct buf *out, struct ddp_err *err);

/* Remove DIR/torchrun if it is a shim. */
ddp_status shim_remove(const char *dir, struct ddp_err *err);

#endif

/* store_host.h -- start the store of a job inside the launcher: which address, which port. */
#ifndef LAUNCHER_STORE_HOST_H
#define LAUNCHER_STORE_HOST_H

#include "plan/plan.h"
#include "server/store_server.h"

enum { NOTE_MAX = 400 };

/* Start the store that the plan asks for and write its real port into the plan. When the default
 * port is in use on a job of one node, any free one is taken; `note` then says so (else it is "").
 * DDP_OK: *out is yours. */
ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err);

#endif

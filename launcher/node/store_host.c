/* store_host.c -- see store_host.h.
 *
 * The store listens on the master address alone. With one node that is 127.0.0.1, so nobody outside
 * can reach it. */
#include "node/store_host.h"

#include <stdio.h>

ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err)
{
    struct store_server_options options = { .host = plan->master_addr,
                                            .port = plan->master_port,
                                            .limits = HUB_LIMITS_DEFAULT,
                                            .log_peers = plan->cli->verbose };
    note[0] = '\0';
    ddp_status status = store_server_start(&options, out, err);
    if (status == DDP_ERR_IO && plan->meeting.port_may_change && options.port != 0) {
        struct ddp_err second;
        options.port = 0;
        /* Another port does not cure every error; then the first one is what the user should read. */
        if (store_server_start(&options, out, &second) == DDP_OK) {
            status = DDP_OK;
            snprintf(note, NOTE_MAX, "using port %d instead of %d: %.300s", store_server_port(*out),
                     plan->master_port, err->msg);
        }
    }
    if (status == DDP_OK)
        plan->master_port = store_server_port(*out);
    return status;
}

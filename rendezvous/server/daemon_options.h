/* daemon_options.h -- parses the command line of ddp-rendezvous. The module is pure, so that tests need no process. */
#ifndef RENDEZVOUS_DAEMON_OPTIONS_H
#define RENDEZVOUS_DAEMON_OPTIONS_H

#include "base/endpoint.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/options.h"
#include "diagnosis/findings.h"

#include <stdbool.h>

enum { DAEMON_DEFAULT_PORT = RDZV_DEFAULT_PORT };

enum daemon_action { DAEMON_SERVE, DAEMON_HELP, DAEMON_HELP_MAN, DAEMON_VERSION };

struct daemon_options {
    enum daemon_action action;
    struct endpoint listen;
    /* limit for the size of all keys, values and queues together; 0 = the default of the hub (HUB_LIMITS_DEFAULT) */
    uint64_t max_bytes;
    uint64_t keep_ms;         /* time that a job without connections is kept; 0 = the default of the hub */
    enum log_level log_level; /* LOG_INFO, or LOG_ERROR with --quiet */
    bool log_peers;           /* --verbose: log each connect and disconnect */
    bool torch21;
    bool insecure;
    bool encrypt;
    bool json;               /* with --version: print JSON */
    const char *events;      /* borrowed from argv; NULL = no event log */
    const char *secret_file; /* borrowed from argv; NULL = no secret */
};

/* Set the defaults, then parse argv[1..]. Return DDP_OK. If an argument is wrong, write a message for the user to
 * `err`, and return DDP_ERR_ARG. */
ddp_status daemon_options_parse(int argc, char *const argv[], struct daemon_options *out,
                                struct ddp_err *err);

/* Check whether other hosts can reach the store without a secret. If other hosts cannot, return FINDING_NONE and leave
 * `finding` unset. If other hosts can, return FINDING_STORE_IS_OPEN with --insecure, and FINDING_NO_SECRET without
 * --insecure. After FINDING_NO_SECRET the store must not start. */
enum finding_code daemon_options_check_open(const struct daemon_options *o, struct finding *finding);

/* Append the text for DAEMON_HELP or DAEMON_HELP_MAN to `out`. Return false if memory is short. */
bool daemon_options_text(enum daemon_action action, struct buf *out);

#endif

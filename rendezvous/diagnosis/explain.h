/* explain.h -- `ddprun explain CODE` and `ddpctl explain CODE`: the meaning, detection and remedy of a code.
 *
 * A code is the name of a finding ("RANK_STALLED", in any case) or an exit code of ddprun ("125"). Everything is
 * printed from the tables in findings.h and base/exit_codes.h. */
#ifndef RENDEZVOUS_EXPLAIN_H
#define RENDEZVOUS_EXPLAIN_H

#include "base/buf.h"
#include "ddp/error.h"

/* Append the explanation of `code`, or all codes with one line each when it is NULL. A part of a name lists the codes
 * that contain it. DDP_ERR_ARG: no such code; DDP_ERR_NOMEM. */
ddp_status explain_code(const char *code, struct buf *out, struct ddp_err *err);

#endif

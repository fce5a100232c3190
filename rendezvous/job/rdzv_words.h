/* rdzv_words.h -- the words of the rendezvous: why a round ends, why nothing follows, who is refused.
 *
 * One row each. The enums of rdzv.h, the words of the protocol (rdzv_*_word), the log and the report come
 * from here. Words and codes are stable: scripts and other versions read them. */
#ifndef RENDEZVOUS_RDZV_WORDS_H
#define RENDEZVOUS_RDZV_WORDS_H

#include "diagnosis/findings.h"
#include "base/events.h"

#define RDZV_STATES(X)                                                                                    \
    X(GATHERING, "gathering") /* waits for more nodes */                                                  \
    X(LAST_CALL, "last call") /* enough are here; a little longer for those on their way */               \
    X(RUNNING, "running")     /* a round is complete: workers run */                                      \
    X(STOPPING, "stopping")   /* all nodes were told to stop; waits until nothing of the round is left */ \
    X(BACKING_OFF, "backing off") /* another attempt will be made, not before the back-off is over */     \
    X(OVER, "over")               /* everybody knows how it ended */

/* Why a round ends. */
#define RDZV_WHYS(X)                                                             \
    X(DONE, "done")           /* every worker of every node ended with 0 */      \
    X(FAILED, "failed")       /* a worker failed by itself */                    \
    X(NODE_LOST, "node_lost") /* a node's connection is gone, or it is silent */ \
    X(NODE_LEFT, "node_left") /* a user or a scheduler stopped a node */         \
    X(GROW, "grow")           /* there are more nodes now */                     \
    X(TIMEOUT, "timeout")     /* not enough nodes in time */                     \
    X(REFUSED, "refused")     /* the store could not begin the attempt */

/* Why no further attempt is made. */
#define RDZV_NO_RESTARTS(X)                                                         \
    X(NONE, "")                       /* there is one, or nobody asked for any */   \
    X(USED_UP, "used_up")             /* --max_restarts */                          \
    X(CANNOT_START, "cannot_start")   /* the program cannot be executed */          \
    X(USAGE, "usage")                 /* it does not understand its command line */ \
    X(IMPORT, "import")               /* all of a node end with the same one */     \
    X(NO_PROGRESS, "no_progress")     /* --max_no_progress */                       \
    X(STOPPED, "stopped")             /* by the user */                             \
    X(UNKILLABLE, "unkillable")       /* something of the last attempt lives on */  \
    X(TOO_FEW_NODES, "too_few_nodes") /* not enough nodes (came back) in time */    \
    X(NOT_READY, "not_ready")         /* no memory for another key space */

/* What an event log holds. */
#define RDZV_RECORDS(X) EVENTS_OF_RENDEZVOUS(X)

/* Who may not join, and what to do about it: they are findings, and have their rows there. */
#define RDZV_REFUSALS(X) FINDINGS_OF_REFUSALS(X)

#endif

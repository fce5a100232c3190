/* dial_findings.h -- what can be wrong between a node and the store, one row each; the words are in diagnosis/findings.h.
 *
 * A row matches what a try has met: the stage where it ended, the error there, and how long that took; the first that
 * matches speaks. The order therefore matters where two rows have the same stage: the narrower one stands first.
 *
 * Columns: code, stage, error (0 = any), least milliseconds, sure (waiting will hardly cure it, so it is told at
 * once). */
#ifndef LAUNCHER_DIAL_FINDINGS_H
#define LAUNCHER_DIAL_FINDINGS_H

#include "diagnosis/findings.h"

#include <errno.h>
#include <netdb.h>

/* In this order; "route" is the kernel's choice of a way before the first packet. */
#define DIAL_STAGES_LIST(X) \
    X(RESOLVE, "resolve")   \
    X(ROUTE, "route")       \
    X(CONNECT, "connect")   \
    X(HELLO, "hello")

enum dial_stage {
#define X(id, name) STAGE_##id,
    DIAL_STAGES_LIST(X)
#undef X
        DIAL_STAGES
};

/* Errors that are not the system's: above all errno and EAI values. */
enum dial_error {
    DIAL_LOOPBACK = 10001, /* a name means this very machine, and should not */
    DIAL_REFUSED_HERE,     /* refused by a loopback address, and the store is elsewhere */
    HELLO_SILENT,          /* connected, and not a byte came */
    HELLO_CLOSED,          /* closed or reset without a byte */
    HELLO_HTTP,
    HELLO_TLS,
    HELLO_SSH,
    HELLO_TORCH, /* a c10d store that does not know our requests */
    HELLO_OTHER
};

/* clang-format off */
#define DIAL_FINDINGS(X)                                              \
    X(NAME_IS_LOOPBACK, RESOLVE, DIAL_LOOPBACK, 0, true)              \
    X(NAME_UNKNOWN, RESOLVE, EAI_NONAME, 0, false)                    \
    X(RESOLVER_DOWN, RESOLVE, EAI_AGAIN, 0, false)                    \
    X(RESOLVER_SILENT, RESOLVE, ETIMEDOUT, 0, false)                  \
    X(RESOLVE_FAILED, RESOLVE, 0, 0, false)                           \
    X(NO_ROUTE, ROUTE, ENETUNREACH, 0, false)                         \
    X(ROUTE_UNREACHABLE, ROUTE, EHOSTUNREACH, 0, false)               \
    X(ROUTE_PROHIBITED, ROUTE, EACCES, 0, false)                      \
    X(FAMILY_OFF, ROUTE, EADDRNOTAVAIL, 0, false)                     \
    X(ROUTE_FAILED, ROUTE, 0, 0, false)                               \
    X(MASTER_IS_LOOPBACK, CONNECT, DIAL_REFUSED_HERE, 0, false)       \
    X(CONNECT_REFUSED, CONNECT, ECONNREFUSED, 0, false)               \
    X(CONNECT_DROPPED, CONNECT, ETIMEDOUT, 0, false)                  \
    X(HOST_SILENT, CONNECT, EHOSTUNREACH, 1000, false)                \
    X(CONNECT_REJECTED, CONNECT, EHOSTUNREACH, 0, false)              \
    X(NET_UNREACHABLE, CONNECT, ENETUNREACH, 0, false)                \
    X(CONNECT_PROHIBITED, CONNECT, EACCES, 0, false)                  \
    X(NO_DESCRIPTORS, CONNECT, EMFILE, 0, true)                       \
    X(CONNECT_FAILED, CONNECT, 0, 0, false)                           \
    X(HELLO_UNANSWERED, HELLO, HELLO_SILENT, 0, false)                \
    X(HELLO_CUT, HELLO, HELLO_CLOSED, 0, false)                       \
    X(PORT_IS_HTTP, HELLO, HELLO_HTTP, 0, true)                       \
    X(PORT_IS_TLS, HELLO, HELLO_TLS, 0, true)                         \
    X(PORT_IS_SSH, HELLO, HELLO_SSH, 0, true)                         \
    X(PORT_IS_TORCH, HELLO, HELLO_TORCH, 0, true)                     \
    X(PORT_IS_FOREIGN, HELLO, HELLO_OTHER, 0, true)                   \
    X(HELLO_FAILED, HELLO, 0, 0, false)
/* clang-format on */

#endif

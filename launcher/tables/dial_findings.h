/* dial_findings.h -- what can be wrong between a node and the store, one row each.
 *
 * A row matches what a try has met: the stage where it ended, the error there, and how long that took; the first that
 * matches speaks. The order therefore matters where two rows have the same stage: the narrower one stands first.
 *
 * Columns: code, stage, error (0 = any), least milliseconds, sure (waiting will hardly cure it, so it is told at
 * once), sentence, advice. In the texts ${host} is the name as the user wrote it, ${at} the address and port that were
 * tried, ${address} the address alone, ${here} this node, ${took} how long it took, ${bytes} the first bytes of an
 * answer, ${hosts} the line of /etc/hosts. */
#ifndef LAUNCHER_DIAL_FINDINGS_H
#define LAUNCHER_DIAL_FINDINGS_H

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
#define DIAL_FINDINGS(X)                                                                                     \
    X(NAME_IS_LOOPBACK, RESOLVE, DIAL_LOOPBACK, 0, true,                                                     \
      "on ${here} the name '${host}' means ${address}, which is ${here} itself; the store is on another "    \
      "node${hosts}",                                                                                        \
      "remove that name from the line in /etc/hosts of ${here}, or give the address as a number on all "     \
      "nodes")                                                                                               \
    X(NAME_UNKNOWN, RESOLVE, EAI_NONAME, 0, false,                                                           \
      "${here} does not find the name '${host}' (no such name)",                                             \
      "check the spelling; the name of a new pod or machine takes a while: is it scheduled, and does the "   \
      "service have this name? A numeric address needs no name service")                                     \
    X(RESOLVER_DOWN, RESOLVE, EAI_AGAIN, 0, false,                                                           \
      "${here} cannot ask for the name '${host}': its name service does not answer",                         \
      "look at /etc/resolv.conf on ${here}, or give the address as a number")                                \
    X(RESOLVER_SILENT, RESOLVE, ETIMEDOUT, 0, false,                                                         \
      "${here} has asked its name service for '${host}', and has had no answer for ${took}",                 \
      "look at /etc/resolv.conf on ${here}, or give the address as a number")                                \
    X(RESOLVE_FAILED, RESOLVE, 0, 0, false,                                                                  \
      "${here} cannot find the address of '${host}' (${error})",                                             \
      "give the address as a number")                                                                        \
    X(NO_ROUTE, ROUTE, ENETUNREACH, 0, false,                                                                \
      "${here} has no route to ${address}",                                                                  \
      "is it the right network? 'ip route get ${address}' shows what ${here} would do; an interface may be " \
      "down, or a container has a network of its own")                                                       \
    X(ROUTE_UNREACHABLE, ROUTE, EHOSTUNREACH, 0, false,                                                      \
      "${here} has a route that declares ${address} unreachable",                                            \
      "'ip route get ${address}' on ${here} shows the rule")                                                 \
    X(ROUTE_PROHIBITED, ROUTE, EACCES, 0, false,                                                             \
      "${here} has a route or rule that prohibits ${address}",                                               \
      "'ip route get ${address}' and 'ip rule' on ${here} show it; a firewall's output rules may be it")     \
    X(FAMILY_OFF, ROUTE, EADDRNOTAVAIL, 0, false,                                                            \
      "${here} cannot use the address ${address}: its protocol is switched off here",                        \
      "give an address of the other family (IPv4 or IPv6), or switch it on")                                 \
    X(ROUTE_FAILED, ROUTE, 0, 0, false,                                                                      \
      "${here} has no way to ${address} (${error})",                                                         \
      "'ip route get ${address}' on ${here} shows what it would do")                                         \
    X(MASTER_IS_LOOPBACK, CONNECT, DIAL_REFUSED_HERE, 0, false,                                              \
      "${at} is ${here} itself, and nothing listens there; the store is on another node",                    \
      "give the address of the node that has the store, as the other nodes see it, on all nodes")            \
    X(CONNECT_REFUSED, CONNECT, ECONNREFUSED, 0, false,                                                      \
      "${at} is up and refuses after ${took}: nothing listens on that port",                                 \
      "is ddprun running there, with the same port? A store that listens on another address, and a "         \
      "firewall that rejects, look the same from here")                                                      \
    X(CONNECT_DROPPED, CONNECT, ETIMEDOUT, 0, false,                                                         \
      "${at} does not answer: no connection within ${took}, and no refusal either",                          \
      "a firewall or security group that drops packets to that port, a wrong address, or a machine that is " \
      "frozen; a firewall must let that one TCP port in")                                                    \
    X(HOST_SILENT, CONNECT, EHOSTUNREACH, 1000, false,                                                       \
      "no machine answers for ${address} on its network (the kernel gave up after ${took})",                 \
      "is that machine up, is the address right, is its cable or link up?")                                  \
    X(CONNECT_REJECTED, CONNECT, EHOSTUNREACH, 0, false,                                                     \
      "somebody on the way to ${at} says after ${took} that it must not be reached",                         \
      "a firewall rejects it (firewalld does so by default): let that TCP port in")                          \
    X(NET_UNREACHABLE, CONNECT, ENETUNREACH, 0, false,                                                       \
      "a router on the way to ${at} knows no way there",                                                     \
      "is it the right network? 'ip route get ${address}' shows the first step")                             \
    X(CONNECT_PROHIBITED, CONNECT, EACCES, 0, false,                                                         \
      "${here} is not allowed to connect to ${at}",                                                          \
      "a route, a firewall's output rule or a container's policy on ${here} prohibits it")                   \
    X(NO_DESCRIPTORS, CONNECT, EMFILE, 0, true,                                                              \
      "${here} has no file descriptor left for a connection",                                                \
      "'ulimit -n' raises the limit")                                                                        \
    X(CONNECT_FAILED, CONNECT, 0, 0, false,                                                                  \
      "the connection to ${at} fails after ${took} (${error})",                                              \
      "look at the network between ${here} and ${address}")                                                  \
    X(HELLO_UNANSWERED, HELLO, HELLO_SILENT, 0, false,                                                       \
      "${at} takes connections, but nobody there says a word within ${took}",                                \
      "its ddprun may be stopped or starved; or a proxy (a service mesh's sidecar) or another service has "  \
      "that port")                                                                                           \
    X(HELLO_CUT, HELLO, HELLO_CLOSED, 0, false,                                                              \
      "${at} takes connections and closes them at our first words",                                          \
      "a proxy or load balancer without a store behind it, or another service; in a service mesh switch "    \
      "the sidecar off for this job (sidecar.istio.io/inject: \"false\")")                                   \
    X(PORT_IS_HTTP, HELLO, HELLO_HTTP, 0, true,                                                              \
      "${at} is a web server or HTTP proxy and not a store: it says \"${bytes}\"",                           \
      "choose another port, or give the store's own address and not a proxy's")                              \
    X(PORT_IS_TLS, HELLO, HELLO_TLS, 0, true,                                                                \
      "${at} speaks TLS and is not a store",                                                                 \
      "choose another port; in a service mesh switch the sidecar off for this job "                          \
      "(sidecar.istio.io/inject: \"false\")")                                                                \
    X(PORT_IS_SSH, HELLO, HELLO_SSH, 0, true,                                                                \
      "${at} is an SSH server and not a store: it says \"${bytes}\"",                                        \
      "choose another port")                                                                                 \
    X(PORT_IS_TORCH, HELLO, HELLO_TORCH, 0, true,                                                            \
      "${at} is a store of PyTorch's (torchrun, or a script's own) and not of ddprun's",                     \
      "start ddprun on that node too, and not torchrun; or choose another port")                             \
    X(PORT_IS_FOREIGN, HELLO, HELLO_OTHER, 0, true,                                                          \
      "${at} is another service and not a store: it says \"${bytes}\"",                                      \
      "choose another port")                                                                                 \
    X(HELLO_FAILED, HELLO, 0, 0, false,                                                                      \
      "the connection to ${at} breaks at our first words (${error})",                                        \
      "look at the network between ${here} and ${address}")
/* clang-format on */

enum dial_finding {
    DIAL_NO_FINDING,
#define X(code, ...) FINDING_##code,
    DIAL_FINDINGS(X)
#undef X
        DIAL_FINDINGS_END
};

#endif

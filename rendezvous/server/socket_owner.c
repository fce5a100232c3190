/* socket_owner.c -- see socket_owner.h.
 *
 * diag_find requests one connection by its two addresses, because the kernel finds such a connection fast. If the
 * kernel module tcp_diag is missing, the kernel gives the same answer as for a socket that does not exist. So until
 * sock_diag has found a socket once, a "not found" is checked again in /proc/net/tcp. */
#include "server/socket_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- addresses -------------------------------------------------------------------------------------------- */

/* One end of a connection, in the form of a sock_diag request. */
struct end {
    int family;
    uint32_t address[4]; /* in network byte order; IPv4 uses only the first word */
    uint16_t port;       /* in network byte order */
    uint32_t scope;      /* index of the interface of a link-local address; 0 for any other address */
};

/* Convert a socket address to a struct end. Return false if the address is neither IPv4 nor IPv6. */
static bool end_of(const struct sockaddr *from, struct end *end)
{
    const struct sockaddr_in *v4 = (const void *)from;
    const struct sockaddr_in6 *v6 = (const void *)from;
    *end = (struct end){ .family = AF_INET };
    if (from->sa_family == AF_INET) {
        end->address[0] = v4->sin_addr.s_addr;
        end->port = v4->sin_port;
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    end->port = v6->sin6_port;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(end->address, &v6->sin6_addr.s6_addr[12], 4);
        return true;
    }
    end->family = AF_INET6;
    end->scope = v6->sin6_scope_id;
    memcpy(end->address, &v6->sin6_addr, sizeof(end->address));
    return true;
}

static bool is_loopback_end(const struct end *end)
{
    static const uint8_t v6_loopback[16] = { [15] = 1 };
    if (end->family == AF_INET)
        return ntohl(end->address[0]) >> 24 == IN_LOOPBACKNET;
    return memcmp(end->address, v6_loopback, sizeof(v6_loopback)) == 0;
}

/* Return the descriptor of a netlink socket, or -1. Open the socket if it is not open yet. */
static int netlink_socket(struct netlink *n, int protocol)
{
    if (!n->is_open) {
        n->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
        n->is_open = n->fd >= 0;
    }
    return n->is_open ? n->fd : -1;
}

/* Discard unread answers to earlier requests, and then send a request. The caller can read the answer at once, because
 * the kernel writes the answer before send returns. */
static bool netlink_ask(int fd, const struct nlmsghdr *question)
{
    char old[4096];
    while (fd >= 0 && recv(fd, old, sizeof(old), MSG_DONTWAIT) > 0)
        continue;
    return fd >= 0 && send(fd, question, question->nlmsg_len, 0) == (ssize_t)question->nlmsg_len;
}

enum socket_place { THIS_HOST, OTHER_HOST, PLACE_UNKNOWN /* netlink does not answer */ };

/* Find whether an address belongs to this host. Request the route to the address, as `ip route get` does. A route of
 * type RTN_LOCAL means this host. */
static enum socket_place place_by_route(struct socket_owners *o, const struct end *end)
{
    const uint16_t bytes = end->family == AF_INET ? 4 : 16;
    struct {
        struct nlmsghdr head;
        struct rtmsg body;
        struct rtattr interface_head;
        uint32_t interface;
        struct rtattr address_head;
        uint32_t address[4];
    } q = { .head = { .nlmsg_len = (uint32_t)(sizeof(q) - sizeof(q.address) + bytes),
                      .nlmsg_type = RTM_GETROUTE,
                      .nlmsg_flags = NLM_F_REQUEST },
            .body = { .rtm_family = (uint8_t)end->family, .rtm_dst_len = (uint8_t)(8 * bytes) },
            .interface_head = { .rta_len = RTA_LENGTH(sizeof(q.interface)), .rta_type = RTA_OIF },
            .interface = end->scope,
            .address_head = { .rta_len = (uint16_t)RTA_LENGTH(bytes), .rta_type = RTA_DST } };
    struct {
        struct nlmsghdr head;
        struct rtmsg body;
        char rest[1024];
    } reply;
    memcpy(q.address, end->address, bytes);
    const int fd = netlink_socket(&o->route, NETLINK_ROUTE);
    if (!netlink_ask(fd, &q.head))
        return PLACE_UNKNOWN;
    const ssize_t n = recv(fd, &reply, sizeof(reply), MSG_DONTWAIT);
    if (n < (ssize_t)sizeof(reply.head))
        return PLACE_UNKNOWN;
    const bool is_route =
        reply.head.nlmsg_type == RTM_NEWROUTE && n >= (ssize_t)NLMSG_LENGTH(sizeof(reply.body));
    return is_route && reply.body.rtm_type == RTN_LOCAL ? THIS_HOST : OTHER_HOST;
}

/* Return true if the address belongs to this host. The check uses this rule: if a packet goes to an address of this
 * host, the kernel takes this address also as the source of the packet. connect() of a UDP socket chooses the source
 * address without sending a packet.
 *
 * This check needs no netlink. But if this host has two IPv4 addresses in one network, the kernel takes the first
 * address as the source. The check then returns false for the second address. If no descriptor is left, return true.
 * This is the safe answer, because the user of a client is checked only if the client is on this host. */
static bool source_is(const struct end *end)
{
    struct sockaddr_storage to = { 0 }, from = { 0 };
    struct end chosen;
    socklen_t len = sizeof(from);
    to.ss_family = (sa_family_t)end->family;
    ((struct sockaddr_in *)&to)->sin_port = htons(9); /* any port works; sin6_port has the same offset */
    if (end->family == AF_INET)
        memcpy(&((struct sockaddr_in *)&to)->sin_addr, end->address, 4);
    else
        memcpy(&((struct sockaddr_in6 *)&to)->sin6_addr, end->address, sizeof(end->address));
    ((struct sockaddr_in6 *)&to)->sin6_scope_id = end->scope; /* no effect for IPv4, where scope is 0 */
    int fd = socket(end->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    const bool same = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
                      getsockname(fd, (struct sockaddr *)&from, &len) == 0 &&
                      end_of((struct sockaddr *)&from, &chosen) && chosen.family == end->family &&
                      memcmp(chosen.address, end->address, sizeof(end->address)) == 0;
    close(fd);
    return same;
}

/* Find whether an address belongs to this host. First check the route. If the result is not THIS_HOST, also check with
 * source_is(). */
static enum socket_place address_place(struct socket_owners *o, const struct sockaddr *address)
{
    struct end end;
    if (!end_of(address, &end))
        return address->sa_family == AF_UNIX ? THIS_HOST : OTHER_HOST;
    if (is_loopback_end(&end))
        return THIS_HOST;
    const enum socket_place place = place_by_route(o, &end);
    return place != THIS_HOST && source_is(&end) ? THIS_HOST : place;
}

/* Find whether a connection from `peer` to the local address `here` comes from this host. A connection to a loopback
 * address always comes from this host. */
static enum socket_place socket_peer_place(struct socket_owners *o, const struct sockaddr *peer,
                                           const struct sockaddr *here)
{
    struct end end;
    return end_of(here, &end) && is_loopback_end(&end) ? THIS_HOST : address_place(o, peer);
}

/* --- sock_diag -------------------------------------------------------------------------------------------- */

/* A request of sock_diag, in the format of linux/inet_diag.h. */
struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* A datagram from the kernel, which may contain several messages. */
union answer {
    struct nlmsghdr head;
    char room[16384];
};

/* Send a request to sock_diag. Without NLM_F_DUMP, request the one socket that has these two ends. The kernel finds
 * this socket in a hash table. With NLM_F_DUMP, request all sockets that have these two ports and one of `states`. A
 * port 0 then means any port. `states` has one bit for each TCP state. */
static bool diag_ask(struct socket_owners *o, const struct end *near, const struct end *far, uint16_t flags,
                     uint32_t states)
{
    struct question q = { .head = { .nlmsg_len = sizeof(q),
                                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                    .nlmsg_flags = NLM_F_REQUEST | flags },
                          .body = { .sdiag_family = (uint8_t)near->family,
                                    .sdiag_protocol = IPPROTO_TCP,
                                    .idiag_states = states,
                                    .id = { .idiag_sport = near->port,
                                            .idiag_dport = far->port,
                                            .idiag_if = near->scope,
                                            .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } } };
    memcpy(q.body.id.idiag_src, near->address, sizeof(near->address));
    memcpy(q.body.id.idiag_dst, far->address, sizeof(far->address));
    return netlink_ask(netlink_socket(&o->diag, NETLINK_SOCK_DIAG), &q.head);
}

/* TCP states in which a process may have the socket open. FIN_WAIT follows shutdown(2) or close(2). After close(2) the
 * socket has no inode, so diag_owner() checks the inode, too. */
enum { CONNECTED = 1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT | 1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 };

/* Read the owner of a socket that is in one of `states`. Return false if the socket has no inode, because a process
 * has closed it. */
static bool diag_owner(const struct nlmsghdr *head, uint32_t states, struct socket_owner *owner)
{
    const struct inet_diag_msg *msg = NLMSG_DATA(head);
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len < NLMSG_LENGTH(sizeof(*msg)) ||
        (states >> msg->idiag_state & 1) == 0 || msg->idiag_inode == 0)
        return false;
    *owner = (struct socket_owner){ .uid = msg->idiag_uid, .inode = msg->idiag_inode };
    return true;
}

/* Find the owner of a connection with sock_diag. sock_diag answers ENOENT if there is no such socket. But it also
 * answers ENOENT if the module tcp_diag is missing. So ENOENT is trusted only after an earlier request has found a
 * socket. Before that, return SOCKET_UNKNOWN, so that the caller reads /proc/net/tcp, too. */
static enum socket_state diag_find(struct socket_owners *o, const struct end *near, const struct end *far,
                                   struct socket_owner *owner)
{
    union answer reply;
    if (!diag_ask(o, near, far, 0, ~0u))
        return SOCKET_UNKNOWN;
    const ssize_t n = recv(o->diag.fd, &reply, sizeof(reply), MSG_DONTWAIT);
    if (n < (ssize_t)sizeof(reply.head))
        return SOCKET_UNKNOWN;
    if (reply.head.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
        o->is_answered = true;
        return diag_owner(&reply.head, CONNECTED, owner) ? SOCKET_OPEN : SOCKET_CLOSED;
    }
    const struct nlmsgerr *error = NLMSG_DATA(&reply.head);
    const bool not_found = reply.head.nlmsg_type == NLMSG_ERROR &&
                           n >= (ssize_t)NLMSG_LENGTH(sizeof(*error)) && error->error == -ENOENT;
    return not_found && o->is_answered ? SOCKET_CLOSED : SOCKET_UNKNOWN;
}

/* --- /proc/net/tcp ---------------------------------------------------------------------------------------- */

/* Format one end of a connection as in /proc/net/tcp: "0100007F:72D8", or with `mapped` as in tcp6. */
static void print_end(const struct end *end, bool mapped, char text[static 48])
{
    const uint32_t *a = end->address;
    const unsigned port = ntohs(end->port);
    if (end->family == AF_INET6)
        snprintf(text, 48, "%08X%08X%08X%08X:%04X", a[0], a[1], a[2], a[3], port);
    else if (mapped)
        snprintf(text, 48, "0000000000000000%08X%08X:%04X", htonl(0xffff), a[0], port);
    else
        snprintf(text, 48, "%08X:%04X", a[0], port);
}

/* Find the owner of a connection in one file of /proc/net. Read all lines until the connection is found, because the
 * file is not sorted. */
static enum socket_state table_find(const char *path, const struct end *near, const struct end *far,
                                    struct socket_owner *owner)
{
    const bool mapped = near->family == AF_INET && strstr(path, "tcp6") != NULL;
    char line[512], near_end[48], far_end[48], near_text[48], far_text[48];
    enum socket_state found = SOCKET_CLOSED;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return SOCKET_UNKNOWN;
    print_end(near, mapped, near_text);
    print_end(far, mapped, far_text);
    while (found == SOCKET_CLOSED && fgets(line, sizeof(line), file) != NULL) {
        unsigned state, uid;
        unsigned long inode;
        if (sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %u %*s %lu", near_end, far_end, &state, &uid,
                   &inode) == 5 &&
            strcmp(near_end, near_text) == 0 && strcmp(far_end, far_text) == 0 && inode != 0 && state < 32 &&
            (CONNECTED >> state & 1) != 0) {
            *owner = (struct socket_owner){ .uid = uid, .inode = inode };
            found = SOCKET_OPEN;
        }
    }
    fclose(file);
    return found;
}

/* Find the owner of a connection in /proc/net. For an IPv4 connection, read the file tcp6 after tcp, because the IPv4
 * connections of IPv6 sockets are listed in tcp6. */
static enum socket_state tables_find(const struct end *near, const struct end *far,
                                     struct socket_owner *owner)
{
    enum socket_state four = SOCKET_CLOSED;
    if (near->family == AF_INET)
        four = table_find("/proc/net/tcp", near, far, owner);
    if (four == SOCKET_OPEN)
        return four;
    const enum socket_state six = table_find("/proc/net/tcp6", near, far, owner);
    /* Without IPv6 there is no file tcp6, and `six` is SOCKET_UNKNOWN. */
    return near->family == AF_INET && six == SOCKET_UNKNOWN ? four : six;
}

/* --- the calls -------------------------------------------------------------------------------------------- */

enum socket_state socket_owner_find(struct socket_owners *o, const struct sockaddr *near,
                                    const struct sockaddr *far, struct socket_owner *owner)
{
    struct end from, to;
    if (!end_of(near, &from) || !end_of(far, &to) || from.family != to.family)
        return SOCKET_CLOSED;
    const enum socket_state state = diag_find(o, &from, &to, owner);
    return state != SOCKET_UNKNOWN ? state : tables_find(&from, &to, owner);
}

/* Search one family for a listener on the port. `state` and `owner` contain the result of the earlier searches. Return
 * the new state, or SOCKET_UNKNOWN if the kernel does not answer. */
static enum socket_state dump_listeners(struct socket_owners *o, int family, int port, uint32_t uid,
                                        enum socket_state state, struct socket_owner *owner)
{
    union answer reply;
    const struct end near = { .family = family, .port = htons((uint16_t)port) }, far = { 0 };
    if (!diag_ask(o, &near, &far, NLM_F_DUMP, 1u << TCP_LISTEN))
        return SOCKET_UNKNOWN;
    for (;;) {
        ssize_t n = recv(o->diag.fd, &reply, sizeof(reply), MSG_DONTWAIT);
        if (n <= 0)
            return SOCKET_UNKNOWN;
        for (const struct nlmsghdr *head = &reply.head; NLMSG_OK(head, n); head = NLMSG_NEXT(head, n)) {
            struct socket_owner found;
            if (head->nlmsg_type == NLMSG_DONE)
                return state;
            if (head->nlmsg_type == NLMSG_ERROR)
                return SOCKET_UNKNOWN;
            /* A listener of another user than `uid` has priority. */
            if (diag_owner(head, 1u << TCP_LISTEN, &found) && (state != SOCKET_OPEN || owner->uid == uid)) {
                *owner = found;
                state = SOCKET_OPEN;
            }
        }
    }
}

/* Find a socket that listens on the port. Search both families, because sock_diag lists IPv6 sockets separately, and
 * these sockets may accept IPv4 connections. */
enum socket_state socket_listener_find(struct socket_owners *o, int port, uint32_t uid,
                                       struct socket_owner *owner)
{
    const enum socket_state four = dump_listeners(o, AF_INET, port, uid, SOCKET_CLOSED, owner);
    if (four == SOCKET_UNKNOWN)
        return four;
    const enum socket_state six = dump_listeners(o, AF_INET6, port, uid, four, owner);
    return six != SOCKET_UNKNOWN ? six : four;
}

void socket_owners_close(struct socket_owners *o)
{
    if (o->diag.is_open)
        close(o->diag.fd);
    if (o->route.is_open)
        close(o->route.fd);
    *o = (struct socket_owners){ 0 };
}

/* --- uid gate --------------------------------------------------------------------------------------------- */

/* If a client closes its connection before the store accepts the connection, the user of the client is unknown. Such a
 * connection is rejected. Otherwise any user could send a request and close at once. */

static bool is_own_uid(int64_t uid)
{
    return uid == 0 || uid == (int64_t)geteuid();
}

/* Return true if the connection was reset. Two connections cannot have the same two addresses at the same time. So if
 * the connection still exists after the call of socket_owner_find(), this call has found the right owner. */
static bool is_reset(int fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    return getpeername(fd, (struct sockaddr *)&peer, &len) != 0;
}

const char *uid_gate_served(char out[static UID_GATE_SERVED_MAX])
{
    if (geteuid() == 0)
        return "root";
    snprintf(out, UID_GATE_SERVED_MAX, "uid %u and root", (unsigned)geteuid());
    return out;
}

/* Return true if this process, or the whole machine, cannot open another file. */
static bool has_no_descriptor(void)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const bool is_full = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if (fd >= 0)
        close(fd);
    return is_full;
}

/* Return true in three cases: the client is on another host; the gate is insecure; or the user of the client is known
 * and is root or the user of this process. If it is unknown on which host the client is, treat the client like a client
 * on this host. */
bool uid_gate_admits(struct uid_gate *g, int fd, const struct sockaddr *peer, int64_t *uid,
                     char why[static UID_GATE_WHY_MAX])
{
    struct sockaddr_storage at = { 0 };
    const struct sockaddr *here = (const struct sockaddr *)&at;
    struct socket_owner owner;
    socklen_t len = sizeof(at);
    *uid = -1;
    getsockname(fd, (struct sockaddr *)&at, &len);
    const enum socket_place place = socket_peer_place(&g->owners, peer, here);
    if (place == OTHER_HOST)
        return true;
    enum socket_state state = socket_owner_find(&g->owners, peer, here, &owner);
    if (state == SOCKET_OPEN && is_reset(fd))
        state = SOCKET_CLOSED;
    if (state == SOCKET_OPEN)
        *uid = owner.uid;
    if (g->insecure || (state == SOCKET_OPEN && is_own_uid(owner.uid)))
        return true;
    if (state == SOCKET_OPEN)
        snprintf(why, UID_GATE_WHY_MAX,
                 "connection of uid %u: this store serves only %s; if the client belongs to the job, use "
                 "--insecure to serve every user",
                 owner.uid, uid_gate_served((char[UID_GATE_SERVED_MAX]){ 0 }));
    else if (state == SOCKET_CLOSED && place == THIS_HOST)
        snprintf(why, UID_GATE_WHY_MAX,
                 "connection of an unknown user: the client has already closed the connection");
    else if (has_no_descriptor())
        snprintf(why, UID_GATE_WHY_MAX,
                 "cannot determine the user of the client: no file descriptor is left; raise 'ulimit -n'");
    else if (place == THIS_HOST)
        snprintf(why, UID_GATE_WHY_MAX,
                 "connection of an unknown user: the kernel has neither sock_diag nor /proc/net/tcp; use "
                 "--insecure to serve every user");
    else
        snprintf(
            why, UID_GATE_WHY_MAX,
            "cannot determine whether the client is on this host: the kernel does not answer on netlink; "
            "use --insecure to serve every user");
    return false;
}

void uid_gate_close(struct uid_gate *g)
{
    socket_owners_close(&g->owners);
}

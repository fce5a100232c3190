/* net_connect.c -- see net_connect.h. No function here waits, because the loops in net_join.c serve all dials (outgoing
 * connections) and the door (the listening port) together. */
#include "cpu/net_connect.h"

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "cpu/net_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the address of this rank ------------------------------------------------------------------------- */

/* Format an address of this host. Return false if other hosts cannot use the address, because its interface is down,
 * because it is no IP address, or because it is link-local. */
static bool address_of(const struct ifaddrs *i, char address[NET_ADDRESS])
{
    int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    if ((family != AF_INET && family != AF_INET6) || (i->ifa_flags & IFF_UP) == 0)
        return false;
    return getnameinfo(i->ifa_addr, len, address, NET_ADDRESS, NULL, 0, NI_NUMERICHOST) == 0 &&
           strchr(address, '%') == NULL;
}

/* Report an unknown interface. List the available names, because the user is usually on another machine. */
static ddp_status no_such_interface(const struct ifaddrs *all, const char *iface, struct ddp_err *err)
{
    char list[600] = "", address[NET_ADDRESS];
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        size_t used = strlen(list);
        if (address_of(i, address) && used + 100 < sizeof(list))
            snprintf(list + used, sizeof(list) - used, "%s%s (%s)", used ? ", " : "", i->ifa_name, address);
    }
    return ddp_fail(err, DDP_ERR_ENV,
                    "DDP_IFACE=%.63s: not an active interface or an address of this host; use one of: %s",
                    iface, list);
}

/* Set `address` to the address of the interface `iface`. If `iface` is itself an address of this host, copy this
 * address. If the interface has several addresses, take the first address in the list of getifaddrs, usually an IPv4
 * address. */
static ddp_status find_interface(const char *iface, char address[NET_ADDRESS], struct ddp_err *err)
{
    struct ifaddrs *all;
    ddp_status status = DDP_OK;

    if (getifaddrs(&all) != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot list the network interfaces: getifaddrs: %s",
                        strerror(errno));
    const struct ifaddrs *i = all;
    while (i != NULL &&
           !(address_of(i, address) && (strcmp(i->ifa_name, iface) == 0 || strcmp(address, iface) == 0)))
        i = i->ifa_next;
    if (i == NULL)
        status = no_such_interface(all, iface, err);
    freeifaddrs(all);
    return status;
}

/* Choose this rank's address. Without `iface`, use this host's address in the connection to the store, because other
 * hosts reach the store through the same network. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err)
{
    if (iface[0] != '\0')
        return find_interface(iface, address, err);
    return ddp_store_local_address(store, address, NET_ADDRESS, err);
}

static bool net_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "::ffff:127.", 11) == 0;
}

/* --- sockets ------------------------------------------------------------------------------------------ */

/* Parse a numeric address. A name is rejected, because a name server may be slow. */
static bool read_address(const char *address, int port, struct sockaddr_storage *out, socklen_t *len)
{
    const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found;
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(address, service, &hints, &found) != 0)
        return false;
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static int make_socket(const struct sockaddr_storage *addr)
{
    return socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Listen at `port`. Set SO_REUSEADDR, because the previous attempt may have used the same port. */
static int bind_and_listen(const char *address, int port)
{
    const int on = 1;
    struct sockaddr_storage addr;
    socklen_t len;

    if (!read_address(address, port, &addr, &len)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = make_socket(&addr);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    if (getsockname(fd, (struct sockaddr *)&own, &len) != 0)
        return -1;
    return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                           : ((struct sockaddr_in *)&own)->sin_port);
}

ddp_status net_listen(const char *address, const char *range, int local_rank, int *fd, int *port,
                      struct ddp_err *err)
{
    struct net_ports ports;
    ddp_status status = net_ports_parse(range, &ports, err);
    *fd = -1;
    if (status != DDP_OK)
        return status;
    for (int turn = 0, next; *fd < 0 && (next = net_ports_try(&ports, local_rank, turn)) >= 0; turn++) {
        *fd = bind_and_listen(address, next);
        if (*fd < 0 && errno != EADDRINUSE && errno != EACCES)
            break;
    }
    if (*fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot listen on any port of %s%s%s: %s%s", address,
                        range[0] ? ", DDP_PORT_RANGE=" : "", range, strerror(errno),
                        range[0] ? "; set DDP_PORT_RANGE to ports that are free" : "");
    *port = port_of(*fd);
    return DDP_OK;
}

/* Open a non-blocking socket and begin to connect to address:port. If `source` is not "", bind the socket to the
 * address `source`. Return 0, or -1 with errno. */
static int net_connect(const char *address, int port, const char *source, int *fd)
{
    struct sockaddr_storage to, from;
    socklen_t len, from_len;

    *fd = -1;
    if (!read_address(address, port, &to, &len)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    *fd = make_socket(&to);
    if (*fd < 0)
        return -1;
    if (source[0] != '\0' && read_address(source, 0, &from, &from_len) && from.ss_family == to.ss_family &&
        bind(*fd, (struct sockaddr *)&from, from_len) != 0)
        return -1;
    return connect(*fd, (struct sockaddr *)&to, len) == 0 || errno == EINPROGRESS ? 0 : -1;
}

/* --- dial: connect to a rank -------------------------------------------------------------------------- */

/* Limits for connecting. A try that fails with an error, for example a refusal, is repeated for REFUSED_MS. A try
 * without an answer is not repeated, because a firewall also drops the packets of later tries. */

enum {
    REFUSED_MS = 1000, /* a try that fails later than this time after the first try is not repeated */
    PAUSE_MS = 100,    /* time between two tries */
    SILENT_MS = 10000  /* time without an answer after which a dial fails; TCP sends four packets meanwhile */
};

/* Report an unreachable rank. Name both hosts and the direction, because the user must open ports between them. If the
 * rank is on another host but has a loopback address, give this address as the reason. */
static ddp_status unreachable(const struct net_dial *d, const char *how, struct ddp_err *err)
{
    char where[ENDPOINT_TEXT_MAX];
    bool lost = net_is_loopback(d->card.address) && strcmp(d->card.host, d->hello->host) != 0;

    return ddp_fail(
        err, DDP_ERR_IO,
        "rank %d on %s (%s) cannot connect to rank %d on %s at %s: %s; %s; allow connections from "
        "host %s to host %s, set DDP_PORT_RANGE=LOW-HIGH to ports that are open, or select another network "
        "with DDP_IFACE=INTERFACE_OR_ADDRESS (default: the network of the store)",
        d->hello->from, d->hello->host, d->address, d->link->rank, d->card.host,
        endpoint_print(d->card.address, d->card.port, where), how,
        lost ? "this address works only within one host" : "both hosts have reached the store",
        d->hello->host, d->card.host);
}

/* Report that the peer's address cannot be reached. Keep a short text for the report PORTS_CLOSED (net_join.c). */
static ddp_status closed(struct net_dial *d, const char *how, struct ddp_err *err)
{
    char where[ENDPOINT_TEXT_MAX];
    snprintf(d->closed, sizeof(d->closed), "cannot connect to rank %d on %.63s at %s: %.80s", d->link->rank,
             d->card.host, endpoint_print(d->card.address, d->card.port, where), how);
    return unreachable(d, how, err);
}

void net_dial_close(struct net_dial *dial)
{
    if (dial->fd >= 0)
        close(dial->fd);
    dial->fd = -1;
}

/* Begin to connect from d->source, an address of this host in the network that the user has chosen. If d->source is "",
 * the kernel chooses the route. */
static void start_dial(struct net_dial *d)
{
    d->try_ms = clock_ms();
    d->hello_sent = false;
    d->got = 0;
    d->error = net_connect(d->card.address, d->card.port, d->source, &d->fd) == 0 ? 0 : errno;
}

void net_dial_begin(struct net_dial *dial)
{
    dial->began_ms = clock_ms();
    start_dial(dial);
}

/* Return true if the connection is ready. The link then owns the socket. */
bool net_dial_done(const struct net_dial *dial)
{
    return dial->link->fd >= 0;
}

struct pollfd net_dial_poll(const struct net_dial *dial)
{
    return (struct pollfd){ .fd = dial->fd, .events = dial->hello_sent ? POLLIN : POLLOUT };
}

/* Return true if this process or this host lacks descriptors or memory. */
static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* Close the socket and schedule the next try, or fail after REFUSED_MS. Do not fail at the first refusal: if the peer
 * has ended, connections are refused before this rank detects the peer's end. The error about the end of the peer is
 * clearer than an error about a refusal. */
static ddp_status try_again(struct net_dial *d, int error, struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX], how[80];
    const double tried_s = (double)(clock_ms() - d->began_ms) / 1000.0;
    net_dial_close(d);
    snprintf(how, sizeof(how), "%.60s for %.1f s", strerror(error), tried_s);
    if (tried_s >= REFUSED_MS / 1000.0)
        return is_shortage(error)
                   ? ddp_fail(err, DDP_ERR_IO, "rank %d cannot open a socket for rank %d: %s%s",
                              d->hello->from, d->link->rank, strerror(error), files_remedy(error, remedy))
                   : closed(d, how, err);
    d->try_ms = clock_ms() + PAUSE_MS;
    return DDP_OK;
}

/* Check a connection in progress, and send the hello when the connection is established. SO_ERROR is 0 before and after
 * success, so only getpeername shows the success. If connect failed at once, d->error has its errno. */
static ddp_status check_connection(struct net_dial *d, struct ddp_err *err)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(int), peer_len = sizeof(peer);
    int error = d->error;
    uint8_t bytes[NET_HELLO];
    struct net_hello hello = *d->hello;

    if (error == 0 && getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error != 0)
        return try_again(d, error, err);
    if (getpeername(d->fd, (struct sockaddr *)&peer, &peer_len) != 0)
        return clock_ms() - d->try_ms < SILENT_MS ? DDP_OK : closed(d, "no answer for 10.0 s", err);
    hello.to = d->link->rank;
    hello.lane = d->link->lane;
    net_encode_hello(bytes, &hello);
    /* A new connection has room for a whole hello in its buffer. So if only a part was sent, the connection has
     * failed. */
    if (send(d->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
        return try_again(d, errno, err);
    d->hello_sent = true;
    return DDP_OK;
}

/* Read the answer to the hello. The wait has no time limit here, because the other rank may still be starting.
 * check_joining in net_join.c has the deadline. Read no byte after the answer, because later bytes belong to the
 * link. */
static ddp_status read_answer(struct net_dial *d, struct ddp_err *err)
{
    ssize_t n = recv(d->fd, d->answer + d->got, NET_ANSWER - d->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return DDP_OK;
    if (n <= 0)
        return try_again(d, n == 0 ? ECONNRESET : errno, err);
    d->got += (size_t)n;
    if (d->got < NET_ANSWER)
        return DDP_OK;
    enum net_answer answer = net_decode_answer(d->answer);
    if (answer != NET_WELCOME)
        return unreachable(d, net_answer_text(answer), err);
    memcpy(d->link->name, d->card.host, NET_HOST);
    d->link->pid = d->card.pid;
    endpoint_print(d->card.address, d->card.port, d->link->where);
    net_link_attach(d->link, d->fd);
    d->fd = -1;
    return DDP_OK;
}

ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err)
{
    if (net_dial_done(dial))
        return DDP_OK;
    if (dial->fd < 0 && clock_ms() < dial->try_ms)
        return DDP_OK;
    if (dial->fd < 0)
        start_dial(dial);
    if (!dial->hello_sent)
        return check_connection(dial, err);
    return read_answer(dial, err);
}

/* --- door: accept ranks ------------------------------------------------------------------------------- */

/* A guest is an accepted connection whose hello has not arrived yet. A guest may be a rank or, for example, a port
 * scanner. A guest keeps its place in the table of guests for at most HELLO_MS. */

enum {
    HELLO_MS = 5000,
    FIRST_MS = 500 /* ms for which a connection without a hello keeps its place in a full table */
};

void net_door_open(struct net_door *door, int fd, const struct net_hello *mine)
{
    *door = (struct net_door){ .fd = fd, .mine = mine };
    for (int i = 0; i < NET_GUESTS; i++)
        door->guests[i].fd = -1;
}

static void close_guest(struct net_guest *guest)
{
    close(guest->fd);
    guest->fd = -1;
}

void net_door_close(struct net_door *door)
{
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            close_guest(&door->guests[i]);
    if (door->fd >= 0)
        close(door->fd);
    door->fd = -1;
}

int net_door_polls(const struct net_door *door, struct pollfd *polls)
{
    int n = 0;
    polls[n++] = (struct pollfd){ .fd = door->fd, .events = door->is_starved ? 0 : POLLIN };
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            polls[n++] = (struct pollfd){ .fd = door->guests[i].fd, .events = POLLIN };
    return n;
}

/* --- guests ------------------------------------------------------------------------------------------- */

/* Return a free place. If no place is free, return the place of the oldest guest, or NULL if this guest is younger than
 * FIRST_MS. */
static struct net_guest *find_place(struct net_door *door)
{
    struct net_guest *oldest = &door->guests[0];
    for (int i = 0; i < NET_GUESTS; i++) {
        if (door->guests[i].fd < 0)
            return &door->guests[i];
        if (door->guests[i].since_ms < oldest->since_ms)
            oldest = &door->guests[i];
    }
    return clock_ms() - oldest->since_ms < FIRST_MS ? NULL : oldest;
}

/* Accept connections until the queue of the port is empty or the table of guests is full. One call accepts many
 * connections, because thousands of ranks may connect at once. Return true if the table is full; the queue may then
 * have more connections. Set is_starved if the table is full, or if descriptors or memory are short. */
static bool accept_some(struct net_door *door)
{
    struct net_guest *place;
    int fd = -1;
    while ((place = find_place(door)) != NULL &&
           (fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (place->fd >= 0)
            close_guest(place);
        *place = (struct net_guest){ .fd = fd, .since_ms = clock_ms() };
    }
    /* While is_starved is true, the next poll ignores the port. The port stays readable, so poll would otherwise return
     * at once again and again. */
    door->is_starved = place == NULL || is_shortage(errno);
    return place == NULL;
}

/* Return the link to the sender of `hello`. If this rank expects no connection from the sender, return NULL. */
static struct net_link *expected(struct net_links *links, const struct net_hello *hello)
{
    for (int i = 0; i < links->count; i++)
        if (links->list[i].rank == hello->from && links->list[i].lane == hello->lane)
            return &links->list[i];
    return NULL;
}

/* Answer a complete hello: accept the rank, or send the reason for the rejection and close the connection. */
static bool answer_hello(struct net_guest *guest, const struct net_hello *mine, struct net_links *links)
{
    struct net_hello hello;
    uint8_t bytes[NET_ANSWER];
    enum net_answer answer = net_decode_hello(guest->bytes, mine, &hello);
    struct net_link *link = expected(links, &hello);

    if (answer == NET_WELCOME && link == NULL)
        answer = NET_OTHER_RANK;
    if (answer == NET_WELCOME && link->fd >= 0)
        answer = NET_TWICE;
    net_encode_answer(bytes, answer);
    /* A new connection has room for the 8 bytes of an answer in its buffer. So if only a part was sent, the connection
     * has failed. */
    if (send(guest->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes) || answer != NET_WELCOME) {
        close_guest(guest);
        return false;
    }
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    if (getpeername(guest->fd, (struct sockaddr *)&peer, &len) == 0)
        endpoint_of_sockaddr((struct sockaddr *)&peer, link->where);
    link->pid = hello.pid;
    memcpy(link->name, hello.host, NET_HOST);
    net_link_attach(link, guest->fd);
    guest->fd = -1;
    return true;
}

/* Read a guest's hello. Return true if the guest was accepted. Read no byte after the hello, because later bytes
 * belong to the link. */
static bool read_guest(struct net_guest *guest, const struct net_hello *mine, struct net_links *links)
{
    ssize_t n = recv(guest->fd, guest->bytes + guest->got, NET_HELLO - guest->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (clock_ms() - guest->since_ms > HELLO_MS)
            close_guest(guest);
        return false;
    }
    if (n > 0)
        guest->got += (size_t)n;
    if (n <= 0 || !net_is_hello_prefix(guest->bytes, guest->got))
        close_guest(guest);
    else if (guest->got == NET_HELLO)
        return answer_hello(guest, mine, links);
    return false;
}

/* Read from all guests, also from those without data: a recv that finds no data costs less than a search for the guest
 * in the results of poll. Return the number of guests that were accepted as ranks. */
static int read_guests(struct net_door *door, struct net_links *links)
{
    int accepted = 0;
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            accepted += read_guest(&door->guests[i], door->mine, links);
    return accepted;
}

/* Read from the guests (connections without a complete hello) before the accept. Otherwise accept_some could close the
 * oldest guest although its hello has arrived. Then accept connections, and read from the guests again. If the table
 * was full but now has room, repeat the accept and the read. */
int net_door_serve(struct net_door *door, struct net_links *links)
{
    int accepted = read_guests(door, links);
    bool is_full;
    do {
        is_full = accept_some(door);
        accepted += read_guests(door, links);
    } while (is_full && find_place(door) != NULL);
    return accepted;
}

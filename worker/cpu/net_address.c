/* net_address.c -- see net_address.h. */
#include "cpu/net_address.h"

#include "base/endpoint.h"
#include "cpu/net_ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- which address -------------------------------------------------------------------------------------- */

/* An address of ours as text; false for what is neither IPv4 nor IPv6, and for link-local ones, which mean nothing
 * on another host. */
static bool address_of(const struct ifaddrs *i, char address[NET_ADDRESS])
{
    int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    if ((family != AF_INET && family != AF_INET6) || (i->ifa_flags & IFF_UP) == 0)
        return false;
    return getnameinfo(i->ifa_addr, len, address, NET_ADDRESS, NULL, 0, NI_NUMERICHOST) == 0 &&
           strchr(address, '%') == NULL;
}

/* With what there is, since the user who names one is on another machine than the one that lacks it. */
static ddp_status refuse(const struct ifaddrs *all, const char *iface, struct ddp_err *err)
{
    char list[600] = "", address[NET_ADDRESS];
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        size_t used = strlen(list);
        if (address_of(i, address) && used + 100 < sizeof(list))
            snprintf(list + used, sizeof(list) - used, "%s%s (%s)", used ? ", " : "", i->ifa_name, address);
    }
    return ddp_fail(err, DDP_ERR_ENV,
                    "DDP_IFACE=%.63s is no interface or address of this host that is up; there are: %s",
                    iface, list);
}

/* The name wins over its order in the list only by being found first: IPv4 comes before IPv6 there. */
static ddp_status find_interface(const char *iface, char address[NET_ADDRESS], struct ddp_err *err)
{
    struct ifaddrs *all;
    ddp_status status = DDP_OK;

    if (getifaddrs(&all) != 0)
        return ddp_fail(err, DDP_ERR_IO, "getifaddrs: %s", strerror(errno));
    const struct ifaddrs *i = all;
    while (i != NULL &&
           !(address_of(i, address) && (strcmp(i->ifa_name, iface) == 0 || strcmp(address, iface) == 0)))
        i = i->ifa_next;
    if (i == NULL)
        status = refuse(all, iface, err);
    freeifaddrs(all);
    return status;
}

/* The way to the store is known to work, and the other hosts have come by it, too. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err)
{
    if (iface[0] != '\0')
        return find_interface(iface, address, err);
    return ddp_store_local_address(store, address, NET_ADDRESS, err);
}

bool net_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "::ffff:127.", 11) == 0;
}

/* --- sockets -------------------------------------------------------------------------------------------- */

/* Numeric only, so nothing is asked of a name server. */
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

/* SO_REUSEADDR: a port of the range may have been used by the attempt before. */
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
        return ddp_fail(err, DDP_ERR_IO, "no port of %s to listen on for other hosts%s%s: %s", address,
                        range[0] ? ", DDP_PORT_RANGE=" : "", range, strerror(errno));
    *port = port_of(*fd);
    return DDP_OK;
}

int net_connect(const char *address, int port, const char *source, int *fd)
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

/* port_hold.c -- see port_hold.h. As PyTorch's server: IPv6 with IPv4 in it where there is IPv6, else IPv4. */
#include "node/port_hold.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

static bool bind_any(int fd, int family)
{
    const int yes = 1, no = 0;
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    const struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
        return false;
    if (family == AF_INET)
        return bind(fd, (const struct sockaddr *)&four, sizeof(four)) == 0;
    return setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) == 0 &&
           bind(fd, (const struct sockaddr *)&six, sizeof(six)) == 0;
}

/* The port lies at the same place in both kinds of address. */
static bool port_of(int fd, int *port)
{
    struct sockaddr_in6 at;
    socklen_t len = sizeof(at);
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return false;
    *port = ntohs(at.sin6_port);
    return true;
}

static int hold(int family, int *port)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind_any(fd, family) && port_of(fd, port))
        return fd;
    close(fd);
    return -1;
}

int port_hold(int *port)
{
    const int fd = hold(AF_INET6, port);
    return fd >= 0 ? fd : hold(AF_INET, port);
}

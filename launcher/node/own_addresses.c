/* own_addresses.c -- see own_addresses.h. As numbers, in the text that getnameinfo makes of resolved names too, so that
 * the two can be compared. */
#include "node/own_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

static socklen_t size_of(const struct sockaddr *addr)
{
    return addr->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                         : 0;
}

int own_addresses(struct own_address own[OWN_ADDRESSES_MAX])
{
    struct ifaddrs *list = NULL;
    int n = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *at = list; at != NULL && n < OWN_ADDRESSES_MAX; at = at->ifa_next) {
        const socklen_t size = at->ifa_addr != NULL ? size_of(at->ifa_addr) : 0;
        if (size == 0 || (at->ifa_flags & IFF_UP) == 0)
            continue;
        snprintf(own[n].interface, sizeof(own[n].interface), "%.15s", at->ifa_name);
        if (getnameinfo(at->ifa_addr, size, own[n].text, sizeof(own[n].text), NULL, 0, NI_NUMERICHOST) == 0)
            n++;
    }
    freeifaddrs(list);
    return n;
}

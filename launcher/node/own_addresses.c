/* own_addresses.c -- see own_addresses.h. As numbers, in the text that getnameinfo makes of resolved names too, so that
 * the two can be compared. */
#include "node/own_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static socklen_t size_of(const struct sockaddr *addr)
{
    return addr->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                         : 0;
}

/* Interfaces that are down have addresses, too, on which nobody can be reached. Without a list (no memory,
 * a strange kernel) nothing is ours, and the table of hosting.c decides as for another machine. */
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

/* With all that there are: the right one is to be copied from the message. */
static ddp_status refuse(const char *address, const struct own_address *own, int n, struct ddp_err *err)
{
    char list[400] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 own[i].text, own[i].interface);
    return ddp_fail(err, DDP_ERR_ARG, "--local_addr=%.64s is none of this machine's addresses, which are %s",
                    address, list);
}

/* All of 127/8 is ours, though only 127.0.0.1 is listed. */
ddp_status own_address_check(const char *address, struct ddp_err *err)
{
    struct own_address own[OWN_ADDRESSES_MAX];
    const int n = own_addresses(own);
    for (int i = 0; i < n; i++)
        if (strcmp(own[i].text, address) == 0)
            return DDP_OK;
    return strncmp(address, "127.", 4) == 0 ? DDP_OK : refuse(address, own, n, err);
}

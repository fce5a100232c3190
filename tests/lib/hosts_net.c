/* hosts_net.c -- see hosts_net.h.
 *
 *     HOSTS_V4, HOSTS_V6          HOSTS_NAT
 *
 *     node0 --- p0 .              node0 --- p0 --- br0 (10.9.0.254)
 *     node1 --- p1 -- br0                           |    all leave as 10.9.0.254, and nobody comes in or across
 *     node2 --- p2 '              node1 (10.8.1.2) --- p1 (10.8.1.254)
 *                                 node2 (10.8.2.2) --- p2 (10.8.2.254)
 *
 * All but the nodes is in the network namespace of the bridge, which is the router, too. */
#include "hosts_net.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 8192 };

/* Behind the router? */
static bool is_inside(enum hosts_kind kind, int index)
{
    return kind == HOSTS_NAT && index > 0;
}

void hosts_net_address(enum hosts_kind kind, struct host *h)
{
    if (kind == HOSTS_V6)
        snprintf(h->addr, sizeof(h->addr), "fd00::%x", (unsigned)h->index + 1);
    else if (is_inside(kind, h->index))
        snprintf(h->addr, sizeof(h->addr), "10.8.%d.2", h->index);
    else
        snprintf(h->addr, sizeof(h->addr), "10.9.0.%d", h->index + 1);
}

/* Our end of its cable: a port of the bridge, or of the router. */
static int put_port(const struct hosts *net, int i, char *text, size_t size)
{
    if (is_inside(net->kind, i))
        return snprintf(text, size, "addr add 10.8.%d.254/24 dev p%d\nlink set p%d up\n", i, i, i);
    return snprintf(text, size, "link set p%d master br0 up\n", i);
}

/* With one batch on the bridge's side. */
static bool lay_cables(const struct hosts *net)
{
    char text[TEXT];
    int n = snprintf(text, sizeof(text),
                     "nsenter -t %d -n ip -batch - <<'.'\nlink add br0 type bridge\nlink set br0 up\n",
                     (int)net->bridge);
    for (int i = 0; i < net->count; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "link add p%d type veth peer name eth0 netns %d\n",
                      i, (int)net->host[i].init);
        n += put_port(net, i, text + n, sizeof(text) - (size_t)n);
    }
    snprintf(text + n, sizeof(text) - (size_t)n, ".\n");
    return host_sh(NULL, "%s", text);
}

/* Without nodad an IPv6 address cannot be used for a second. */
static bool switch_on(const struct hosts *net, const struct host *h)
{
    char router[32] = "10.9.0.254";
    if (is_inside(net->kind, h->index))
        snprintf(router, sizeof(router), "10.8.%d.254", h->index);
    if (net->kind == HOSTS_V6)
        return host_sh(
            h, "ip -batch - <<'.'\nlink set lo up\naddr add %s/64 dev eth0 nodad\nlink set eth0 up\n.\n",
            h->addr);
    return host_sh(h,
                   "ip -batch - <<'.'\nlink set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n"
                   "route add default via %s\n.\n",
                   h->addr, router);
}

static bool translate(const struct hosts *net)
{
    return net->kind != HOSTS_NAT ||
           host_sh(NULL,
                   "nsenter -t %d -n sh -e <<'.'\n"
                   "ip addr add 10.9.0.254/24 dev br0\necho 1 >/proc/sys/net/ipv4/ip_forward\n"
                   "nft 'add table ip n; add chain ip n out { type nat hook postrouting priority 100; }; "
                   "add rule ip n out oifname br0 masquerade; "
                   "add chain ip n through { type filter hook forward priority 0; }; "
                   "add rule ip n through ct state new oifname != br0 drop'\n.\n",
                   (int)net->bridge);
}

static void tell_names(const struct hosts *net)
{
    char text[1024] = "127.0.0.1 localhost\n::1 localhost\n";
    for (int i = 0; i < net->count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s %s\n", net->host[i].addr,
                 net->host[i].name);
    for (int i = 0; i < net->count; i++)
        host_names(&net->host[i], text);
}

bool hosts_net_join(const struct hosts *net)
{
    bool ok = lay_cables(net) && translate(net);
    for (int i = 0; ok && i < net->count; i++)
        ok = switch_on(net, &net->host[i]);
    if (ok)
        tell_names(net);
    return ok;
}

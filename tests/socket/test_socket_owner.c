/* The kernel names the owner of each TCP socket of this host. The tests compare its answer with real connections of
 * several users, because the answer decides who may use the store. */
#include "server/socket_owner.c"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

TestSuite(socket_owner, .timeout = 60);

/* A connection over loopback: the client's end, the accepted end, and the addresses as an accepting program
 * sees them. */
struct pair {
    int listener, client, accepted;
    struct sockaddr_storage near, far; /* local and remote address of the client */
};

static void set_loopback(struct sockaddr_storage *at, const char *text, in_port_t port)
{
    struct sockaddr_in *v4 = (void *)at;
    struct sockaddr_in6 *v6 = (void *)at;
    *at = (struct sockaddr_storage){ 0 };
    v4->sin_port = port;
    at->ss_family = inet_pton(AF_INET, text, &v4->sin_addr) == 1 ? AF_INET : AF_INET6;
    if (at->ss_family == AF_INET6)
        cr_assert_eq(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
}

static int listen_on(const char *text, struct sockaddr_storage *bound)
{
    const int no = 0;
    socklen_t len = sizeof(*bound);
    set_loopback(bound, text, 0);
    int fd = socket(bound->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        cr_skip_test("skipped, because this kernel has no IPv6");
    if (bound->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (bind(fd, (struct sockaddr *)bound, sizeof(*bound)) != 0)
        cr_skip_test("skipped, because this host has no IPv6 address");
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)bound, &len), 0);
    return fd;
}

static int connect_to(const char *text, in_port_t port)
{
    struct sockaddr_storage to;
    set_loopback(&to, text, port);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void accept_pair(struct pair *p)
{
    socklen_t len = sizeof(p->near);
    p->accepted = accept(p->listener, (struct sockaddr *)&p->near, &len);
    cr_assert_geq(p->accepted, 0);
    len = sizeof(p->far);
    cr_assert_eq(getsockname(p->accepted, (struct sockaddr *)&p->far, &len), 0);
}

static struct pair open_pair(const char *listen_at, const char *connect_at)
{
    struct pair p;
    struct sockaddr_storage bound;
    p.listener = listen_on(listen_at, &bound);
    p.client = connect_to(connect_at, ((struct sockaddr_in *)&bound)->sin_port);
    accept_pair(&p);
    return p;
}

static void close_pair(struct pair *p)
{
    close(p->listener);
    close(p->accepted);
    close(p->client);
}

static enum socket_state find(struct socket_owners *o, const struct pair *p, struct socket_owner *owner)
{
    *owner = (struct socket_owner){ 0 };
    return socket_owner_find(o, (const struct sockaddr *)&p->near, (const struct sockaddr *)&p->far, owner);
}

/* The two methods of the lookup: sock_diag, and /proc/net/tcp. In the second row, the netlink socket has already failed
 * (its descriptor is -1), so the lookup must read /proc/net/tcp. */
static const struct socket_owners ways[] = { { .is_answered = false },
                                             { .diag = { .is_open = true, .fd = -1 } } };

static void expect_owner(const char *listen_at, const char *connect_at)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct socket_owners o = ways[i];
        struct socket_owner owner;
        struct pair p = open_pair(listen_at, connect_at);
        cr_assert_eq(find(&o, &p, &owner), SOCKET_OPEN, "way %zu", i);
        cr_expect_eq(owner.uid, geteuid());
        cr_expect_neq(owner.inode, 0);
        shutdown(p.accepted, SHUT_WR); /* the client's end is in CLOSE_WAIT, but still has an owner */
        cr_expect_eq(find(&o, &p, &owner), SOCKET_OPEN, "way %zu", i);
        close_pair(&p);
        socket_owners_close(&o);
    }
}

Test(socket_owner, of_a_connection_by_ipv4)
{
    expect_owner("127.0.0.1", "127.0.0.1");
}

Test(socket_owner, of_a_connection_by_ipv6)
{
    expect_owner("::1", "::1");
}

Test(socket_owner, of_an_ipv4_connection_to_an_ipv6_listener)
{
    expect_owner("::", "127.0.0.1");
}

Test(socket_owner, of_an_ipv6_socket_that_is_connected_by_ipv4)
{
    expect_owner("127.0.0.1", "::ffff:127.0.0.1");
}

/* A client may send a request, end its stream and then read the answer. */
Test(socket_owner, of_a_connection_that_is_half_closed)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct socket_owners o = ways[i];
        struct socket_owner owner;
        struct pair p = open_pair("127.0.0.1", "127.0.0.1");
        shutdown(p.client, SHUT_WR);
        cr_expect_eq(find(&o, &p, &owner), SOCKET_OPEN, "way %zu", i);
        cr_expect_eq(owner.uid, geteuid());
        close_pair(&p);
        socket_owners_close(&o);
    }
}

/* The kernel reports uid 0 for a closed socket. The lookup must not return root as the owner. */
Test(socket_owner, closed_sockets_have_none)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct socket_owners o = ways[i];
        struct socket_owner owner;
        struct pair p = open_pair("127.0.0.1", "127.0.0.1");
        close(p.client);
        p.client = -1;
        cr_expect_eq(find(&o, &p, &owner), SOCKET_CLOSED, "FIN_WAIT2, way %zu", i);
        close(p.accepted);
        p.accepted = -1;
        cr_expect_eq(find(&o, &p, &owner), SOCKET_CLOSED, "TIME_WAIT, way %zu", i);
        close_pair(&p);
        socket_owners_close(&o);
    }
}

/* A listener has this local address, but no connection does. The lookup must not return the owner of the listener. */
Test(socket_owner, a_listener_is_no_connection)
{
    struct socket_owners o = { 0 };
    struct socket_owner owner;
    struct sockaddr_storage bound, other;
    int fd = listen_on("127.0.0.1", &bound);
    set_loopback(&other, "127.0.0.1", htons(9));
    cr_assert_eq(
        socket_owner_find(&o, (const struct sockaddr *)&bound, (const struct sockaddr *)&other, &owner),
        SOCKET_CLOSED);
    close(fd);
    socket_owners_close(&o);
}

Test(socket_owner, another_user_is_named)
{
    struct sockaddr_storage bound;
    struct pair p = { .listener = listen_on("127.0.0.1", &bound), .client = -1 };
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can run a process of another user");
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setuid(NOBODY) != 0)
            _exit(1);
        connect_to("127.0.0.1", ((struct sockaddr_in *)&bound)->sin_port);
        for (;;)
            pause();
    }
    accept_pair(&p);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct socket_owners o = ways[i];
        struct socket_owner owner;
        cr_expect_eq(find(&o, &p, &owner), SOCKET_OPEN, "way %zu", i);
        cr_expect_eq(owner.uid, NOBODY, "way %zu", i);
        socket_owners_close(&o);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(p.listener);
    close(p.accepted);
}

/* --- listeners ---------------------------------------------------------------------------------------------------- */

static void expect_listener(const char *at)
{
    struct socket_owners o = { 0 };
    struct socket_owner owner = { .uid = NOBODY };
    struct sockaddr_storage bound;
    int fd = listen_on(at, &bound);
    const int port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    cr_assert_eq(socket_listener_find(&o, port, geteuid(), &owner), SOCKET_OPEN, "%s", at);
    cr_expect_eq(owner.uid, geteuid());
    close(fd);
    cr_expect_eq(socket_listener_find(&o, port, geteuid(), &owner), SOCKET_CLOSED, "%s", at);
    socket_owners_close(&o);
}

Test(socket_owner, of_a_listener)
{
    expect_listener("127.0.0.1");
    expect_listener("0.0.0.0");
}

Test(socket_owner, of_a_listener_by_ipv6)
{
    expect_listener("::");
}

Test(socket_owner, of_a_port_that_is_only_bound_is_nobody)
{
    struct socket_owners o = { 0 };
    struct socket_owner owner;
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_loopback(&at, "127.0.0.1", 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    cr_expect_eq(socket_listener_find(&o, ntohs(((struct sockaddr_in *)&at)->sin_port), geteuid(), &owner),
                 SOCKET_CLOSED);
    close(fd);
    socket_owners_close(&o);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static enum socket_place place_with(struct socket_owners *o, const char *peer, const char *here)
{
    struct sockaddr_storage from, to;
    set_loopback(&from, peer, htons(40000));
    set_loopback(&to, here, htons(29500));
    const enum socket_place place =
        socket_peer_place(o, (const struct sockaddr *)&from, (const struct sockaddr *)&to);
    socket_owners_close(o);
    return place;
}

static enum socket_place place_of(const char *peer)
{
    return place_with(&(struct socket_owners){ 0 }, peer, "192.0.2.1");
}

/* The addresses 192.0.2.x and 2001:db8:: are for documentation: no host has them. */
Test(socket_owner, own_addresses_are_of_this_host)
{
    cr_expect_eq(place_of("127.0.0.1"), THIS_HOST);
    cr_expect_eq(place_of("127.8.8.8"), THIS_HOST);
    cr_expect_eq(place_of("::1"), THIS_HOST);
    cr_expect_eq(place_of("::ffff:127.0.0.1"), THIS_HOST);
    cr_expect_eq(place_of("192.0.2.7"), OTHER_HOST);
    cr_expect_eq(place_of("2001:db8::7"), OTHER_HOST);
}

Test(socket_owner, what_arrives_at_a_loopback_address_is_of_this_host)
{
    cr_expect_eq(place_with(&(struct socket_owners){ 0 }, "192.0.2.7", "127.0.0.1"), THIS_HOST);
    cr_expect_eq(place_with(&(struct socket_owners){ 0 }, "192.0.2.7", "::ffff:127.0.0.1"), THIS_HOST);
    cr_expect_eq(place_with(&(struct socket_owners){ 0 }, "2001:db8::7", "::1"), THIS_HOST);
}

/* A sandbox may forbid netlink. */
Test(socket_owner, without_netlink_the_place_is_unknown)
{
    const struct socket_owners closed = { .route = { .is_open = true, .fd = -1 } };
    struct socket_owners o = closed;
    cr_expect_eq(place_with(&o, "192.0.2.7", "192.0.2.1"), PLACE_UNKNOWN);
    o = closed;
    cr_expect_eq(place_with(&o, "127.0.0.1", "192.0.2.1"), THIS_HOST);
}

/* Wait until the address belongs to this host. The kernel adds the route of a new IPv6 address a moment after the
 * address. */
static bool is_soon_of_this_host(const char *address)
{
    for (int i = 0; i < 500 && place_of(address) != THIS_HOST; i++)
        usleep(10 * 1000);
    return place_of(address) == THIS_HOST;
}

/* 10.9.0.8 is also an address of this host, although the kernel chooses 10.9.0.7 as the source of packets to this
 * network. */
Test(socket_owner, a_second_address_of_one_network_is_of_this_host)
{
    if (unshare(CLONE_NEWNET) != 0)
        cr_skip_test("skipped, because there is no network namespace: %s", strerror(errno));
    if (system("ip link set lo up && ip addr add 10.9.0.7/24 dev lo && ip addr add 10.9.0.8/24 dev lo && "
               "ip addr add fd09::7/64 dev lo && ip addr add fd09::8/64 dev lo") != 0)
        cr_skip_test("skipped, because there is no ip(8) that adds addresses");
    cr_expect_eq(place_of("10.9.0.7"), THIS_HOST);
    cr_expect_eq(place_of("10.9.0.8"), THIS_HOST);
    cr_expect(is_soon_of_this_host("fd09::8"));
    cr_expect_eq(place_of("10.8.0.9"), OTHER_HOST);
    cr_expect_eq(place_of("fd08::9"), OTHER_HOST);
}

/* --- the gate ---------------------------------------------------------------------------------------------------- */

/* Pass the accepted end to a gate that can open neither netlink nor /proc/net/tcp. */
static bool admits_without_kernel(struct pair *p, bool insecure, int64_t *uid,
                                  char why[static UID_GATE_WHY_MAX])
{
    struct uid_gate g = { .insecure = insecure };
    struct rlimit limit, none;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool admits = uid_gate_admits(&g, p->accepted, (const struct sockaddr *)&p->near, uid, why);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(!g.owners.diag.is_open && !g.owners.route.is_open);
    uid_gate_close(&g);
    return admits;
}

static void expect_refusal(const char *at)
{
    char why[UID_GATE_WHY_MAX] = "";
    struct pair p = open_pair(at, at);
    int64_t uid = 0;
    cr_expect_not(admits_without_kernel(&p, false, &uid, why), "%s", at);
    cr_expect_eq(uid, -1);
    cr_expect(strstr(why, "ulimit -n") != NULL && strstr(why, "--insecure") == NULL, "%s", why);
    cr_expect(admits_without_kernel(&p, true, &uid, why), "%s", at);
    cr_expect_eq(uid, -1);
    struct uid_gate g = { 0 };
    cr_expect(uid_gate_admits(&g, p.accepted, (const struct sockaddr *)&p.near, &uid, why), "%s", why);
    cr_expect_eq(uid, (int64_t)geteuid());
    uid_gate_close(&g);
    close_pair(&p);
}

Test(socket_owner, a_connection_whose_owner_the_kernel_does_not_report_is_refused)
{
    expect_refusal("127.0.0.1");
}

Test(socket_owner, an_ipv6_connection_whose_owner_the_kernel_does_not_report_is_refused)
{
    expect_refusal("::1");
}

/* Tests of the port that a rank opens for other hosts. The tests check which peers the rank accepts, how the rank
 * answers all other peers, and the error of a rank that cannot connect. */
#include "cpu/net_connect.c"
#include "ranks.h"

#include <criterion/criterion.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Rank 0 listens, and waits for rank 1 on lane 0 and for rank 2 on lane 1. */
static struct net_hello mine;
static struct net_door door;
static struct net_links links;
static int port;

static void open_door(void)
{
    struct ddp_err err;
    int fd;

    mine = (struct net_hello){ .run = "ddp/job/1", .host = "node0", .world = 3 };
    memset(mine.nonce, 7, NET_NONCE);
    cr_assert_eq(net_listen("127.0.0.1", "", 0, &fd, &port, &err), DDP_OK, "%s", err.msg);
    net_door_open(&door, fd, &mine);
    cr_assert_eq(net_links_open(&links, 2, 4, 0, &err), DDP_OK);
    links.list[0].rank = 1;
    links.list[1].rank = 2;
    links.list[1].lane = 1;
}

static void close_door(void)
{
    net_door_close(&door);
    net_links_close(&links);
}

TestSuite(net_door, .init = open_door, .fini = close_door, .timeout = 120);

static int connect_to_door(void)
{
    int fd;
    cr_assert_eq(net_connect("127.0.0.1", port, "", &fd), 0);
    cr_assert_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 5000), 1);
    return fd;
}

/* Wait once until a socket of the door is readable, and serve the door. */
static int serve_once(void)
{
    struct pollfd polls[1 + NET_GUESTS];
    cr_assert_gt(poll(polls, (nfds_t)net_door_polls(&door, polls), 5000), 0, "nothing comes");
    return net_door_serve(&door, &links);
}

static int guests(void)
{
    struct pollfd polls[1 + NET_GUESTS];
    return net_door_polls(&door, polls) - 1;
}

static struct net_hello hello_of(int rank, int lane)
{
    struct net_hello hello = mine;
    hello.from = rank;
    hello.to = 0;
    hello.lane = lane;
    hello.pid = 77;
    strcpy(hello.host, "node1");
    return hello;
}

/* Send `hello`, and return the answer. */
static enum net_answer say(const struct net_hello *hello)
{
    uint8_t bytes[NET_HELLO], answer[NET_ANSWER];
    int fd = connect_to_door();

    net_encode_hello(bytes, hello);
    cr_assert_eq(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
    for (int i = 0; i < 3 && poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) == 0; i++)
        serve_once();
    cr_assert_eq(recv(fd, answer, sizeof(answer), MSG_WAITALL), (ssize_t)sizeof(answer));
    close(fd);
    return net_decode_answer(answer);
}

Test(net_door, the_ranks_that_are_expected_are_let_in)
{
    const struct net_hello one = hello_of(1, 0), two = hello_of(2, 1);
    cr_assert_eq(say(&two), NET_WELCOME);
    cr_assert_eq(say(&one), NET_WELCOME);
    cr_assert_geq(links.list[0].fd, 0);
    cr_assert_geq(links.list[1].fd, 0);
    cr_assert_eq(links.list[0].pid, 77);
    cr_assert_str_eq(links.list[0].name, "node1");
    cr_assert_eq(strncmp(links.list[0].where, "127.0.0.1:", 10), 0);
}

/* With TCP_USER_TIMEOUT, the kernel would end the connection to a rank that is late and reads nothing. */
Test(net_door, a_link_has_no_time_limit_of_the_kernel)
{
    const struct net_hello one = hello_of(1, 0);
    unsigned limit_ms = 1;
    socklen_t len = sizeof(limit_ms);
    cr_assert_eq(say(&one), NET_WELCOME);
    cr_assert_eq(getsockopt(links.list[0].fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &len), 0);
    cr_assert_eq(limit_ms, 0);
}

Test(net_door, others_are_told_why_not)
{
    struct net_hello hello = hello_of(1, 1);
    cr_assert_eq(say(&hello), NET_OTHER_RANK);
    hello = hello_of(5, 0);
    cr_assert_eq(say(&hello), NET_OTHER_RANK);
    hello = hello_of(1, 0);
    hello.nonce[3] = 8;
    cr_assert_eq(say(&hello), NET_OTHER_RUN);
    cr_assert_eq(links.list[0].fd, -1);
}

Test(net_door, an_old_attempt_is_told_so_and_the_right_one_gets_in_after_it)
{
    struct net_hello old = hello_of(1, 0), right = hello_of(1, 0);
    strcpy(old.run, "ddp/job/0");
    cr_assert_eq(say(&old), NET_OTHER_RUN);
    cr_assert_eq(say(&right), NET_WELCOME);
    cr_assert_eq(say(&right), NET_TWICE);
}

Test(net_door, strangers_are_closed_with_their_first_byte)
{
    char byte;
    int fd = connect_to_door();
    cr_assert_eq(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    while (guests() > 0 || poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) == 0)
        cr_assert_eq(serve_once(), 0);
    cr_assert_leq(recv(fd, &byte, 1, 0), 0, "an answer to a stranger");
    close(fd);
}

/* If this process has no free descriptor, the connection stays in the queue. */
Test(net_door, a_port_without_descriptors_is_not_polled)
{
    struct pollfd polls[1 + NET_GUESTS];
    struct rlimit limit;
    int fd = connect_to_door();
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, limit.rlim_max }), 0);
    cr_expect_eq(net_door_serve(&door, &links), 0);
    cr_expect_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(net_door_polls(&door, polls) == 1 && polls[0].events == 0);
    net_door_serve(&door, &links);
    cr_expect(net_door_polls(&door, polls) == 2 && polls[0].events == POLLIN);
    close(fd);
}

/* Fill the table with guests that send nothing. */
static void fill_table(int fds[NET_GUESTS])
{
    for (int i = 0; i < NET_GUESTS; i++) {
        fds[i] = connect_to_door();
        serve_once();
    }
    cr_assert_eq(guests(), NET_GUESTS);
}

/* Make all guests older by FIRST_MS. Then a new connection may take the place of a guest without a hello. */
static void pass_first_time(void)
{
    for (int i = 0; i < NET_GUESTS; i++)
        door.guests[i].since_ms -= FIRST_MS;
}

/* Send the hello of `rank` on lane 0. Return `fd`. */
static int send_hello(int fd, int rank)
{
    const struct net_hello hello = hello_of(rank, 0);
    uint8_t bytes[NET_HELLO];
    net_encode_hello(bytes, &hello);
    cr_assert_eq(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
    return fd;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* Expect ranks 1 to n on lane 0. */
static void expect_ranks(int n)
{
    net_links_close(&links);
    cr_assert_eq(net_links_open(&links, n, 4, 0, &(struct ddp_err){ 0 }), DDP_OK);
    for (int i = 0; i < n; i++)
        links.list[i].rank = i + 1;
    mine.world = n + 1;
}

Test(net_door, more_ranks_than_places_get_in_at_once)
{
    enum { PEERS = 2 * NET_GUESTS + 16 };
    int fds[PEERS], accepted = 0;
    expect_ranks(PEERS);
    for (int i = 0; i < PEERS; i++)
        fds[i] = send_hello(connect_to_door(), i + 1);
    while (accepted < PEERS && guests() == 0)
        accepted += serve_once();
    cr_expect_eq(accepted, PEERS, "%d of %d", accepted, PEERS);
    close_all(fds, PEERS);
}

/* Strangers fill the table. The oldest stranger loses its place to the expected peer. */
Test(net_door, silent_strangers_do_not_keep_anybody_out)
{
    int fds[NET_GUESTS];
    fill_table(fds);
    const int right = send_hello(connect_to_door(), 1);
    pass_first_time();
    cr_expect_eq(net_door_serve(&door, &links), 1);
    cr_expect_geq(links.list[0].fd, 0);
    cr_expect_eq(guests(), NET_GUESTS - 1);
    close(right);
    close_all(fds, NET_GUESTS);
}

/* Between two calls of net_door_serve, all hellos arrive, and one more peer connects. */
Test(net_door, a_late_hello_is_read_before_its_guest_loses_its_place)
{
    int fds[NET_GUESTS + 1];
    expect_ranks(NET_GUESTS + 1);
    fill_table(fds);
    fds[NET_GUESTS] = connect_to_door();
    for (int i = 0; i <= NET_GUESTS; i++)
        send_hello(fds[i], i + 1);
    pass_first_time();
    cr_expect_eq(net_door_serve(&door, &links), NET_GUESTS + 1);
    close_all(fds, NET_GUESTS + 1);
}

static struct net_link far_link;

static struct net_dial dial_to(const struct net_hello *hello, int to)
{
    far_link = (struct net_link){ .fd = -1, .rank = 0, .lane = hello->lane };
    struct net_dial dial = { .link = &far_link,
                             .hello = hello,
                             .address = "127.0.0.1",
                             .source = "",
                             .card = { .address = "127.0.0.1", .host = "node0", .port = to },
                             .fd = -1 };
    return dial;
}

/* Serve the dial until it is done or fails. If `with_door` is true, also serve the door in each turn. */
static ddp_status dial_and_serve(struct net_dial *dial, bool with_door, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    net_dial_begin(dial);
    while (status == DDP_OK && !net_dial_done(dial)) {
        struct pollfd p = net_dial_poll(dial);
        poll(&p, 1, 20);
        if (with_door)
            net_door_serve(&door, &links);
        status = net_dial_serve(dial, err);
    }
    net_dial_close(dial);
    return status;
}

Test(net_door, a_dial_ends_with_a_link)
{
    const struct net_hello hello = hello_of(1, 0);
    struct net_dial dial = dial_to(&hello, port);
    struct ddp_err err;
    cr_assert_eq(dial_and_serve(&dial, true, &err), DDP_OK);
    cr_assert_geq(far_link.fd, 0);
    cr_assert_str_eq(far_link.name, "node0");
    close(far_link.fd);
}

static void expect_words(const struct ddp_err *err, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        cr_assert(strstr(err->msg, *parts) != NULL, "\"%s\" is not in: %s", *parts, err->msg);
}

Test(net_door, a_dial_with_an_old_nonce_is_told_what_it_is)
{
    struct net_hello hello = hello_of(1, 0);
    struct ddp_err err;
    hello.nonce[0] = 0;
    struct net_dial dial = dial_to(&hello, port);
    cr_assert_eq(dial_and_serve(&dial, true, &err), DDP_ERR_IO);
    expect_words(&err, (const char *const[]){ "different jobs", NULL });
}

Test(net_door, a_lack_of_descriptors_is_no_closed_port)
{
    const struct net_hello hello = hello_of(1, 0);
    struct net_dial dial = dial_to(&hello, port);
    struct rlimit limit;
    struct ddp_err err;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, limit.rlim_max }), 0);
    net_dial_begin(&dial);
    dial.began_ms -= 60000; /* the time for retries is over */
    const ddp_status status = net_dial_serve(&dial, &err);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(status, DDP_ERR_IO);
    expect_words(&err, (const char *const[]){ "rank 0", "ulimit -n", NULL });
    cr_assert_eq(dial.closed[0], '\0');
}

/* TCP has no route to a broadcast address. So connect(2) fails at once, and the socket does not keep the error. */
Test(net_door, what_the_kernel_refuses_at_once_is_its_own_words)
{
    const struct net_hello hello = hello_of(1, 0);
    struct net_dial dial = dial_to(&hello, port);
    struct ddp_err err;
    strcpy(dial.card.address, "255.255.255.255");
    cr_assert_eq(dial_and_serve(&dial, false, &err), DDP_ERR_IO);
    expect_words(&err, (const char *const[]){ "255.255.255.255", "unreachable", NULL });
}

/* After net_door_close, the port refuses connections, like a firewall that rejects packets. */
Test(net_door, a_refused_port_is_an_error_that_names_both_ends_and_the_knobs)
{
    const struct net_hello hello = hello_of(1, 0);
    struct net_dial dial = dial_to(&hello, port);
    struct ddp_err err;
    net_door_close(&door);
    cr_assert_eq(dial_and_serve(&dial, false, &err), DDP_ERR_IO);
    expect_words(&err, (const char *const[]){ "rank 1 on node1 (127.0.0.1) ", "0 on node0 at 127.0.0.1:",
                                              "Connection refused", "DDP_PORT_RANGE=", "DDP_IFACE=", NULL });
}

Test(net_door, something_else_on_the_port_is_told_apart)
{
    const struct net_hello hello = hello_of(1, 0);
    struct net_dial dial = dial_to(&hello, port);
    struct ddp_err err;
    ddp_status status = DDP_OK;

    net_dial_begin(&dial);
    while (status == DDP_OK && !dial.hello_sent)
        status = net_dial_serve(&dial, &err);
    int fd = accept(door.fd, NULL, NULL);
    cr_assert_eq(write(fd, "HTTP/1.1 400 Bad Request\r\n", 26), 26);
    while (status == DDP_OK)
        status = net_dial_serve(&dial, &err);
    cr_assert_eq(status, DDP_ERR_IO);
    expect_words(&err, (const char *const[]){ "a rank", NULL });
    net_dial_close(&dial);
    close(fd);
}

/* In these tests, a firewall opens the port of the store to the other hosts, but not the ports of ranks. Each test runs
 * in a new network namespace with a loopback and rules of nft, so each test needs root. */

#define PORTS "21100-21119"

enum { LOWEST = 21100, HIGHEST = 21119 };

static void bring_loopback_up(void)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &lo), 0);
    close(fd);
}

/* Make a private network in which no packet reaches the ports of ranks. */
static void close_ports(const char *how)
{
    char rules[256];
    if (unshare(CLONE_NEWNET) != 0)
        cr_skip_test("skipped, because a network namespace needs root");
    bring_loopback_up();
    snprintf(rules, sizeof(rules),
             "nft 'table inet t { chain in { type filter hook input priority 0; tcp dport " PORTS
             " tcp flags & (syn | ack) == syn %s; }; }' 2>/dev/null",
             how);
    if (system(rules) != 0)
        cr_skip_test("skipped, because nft is not there or cannot make rules");
}

/* Initialize a rank. Its host has a name of one letter: the letter of `user` at the index of the rank. */
static void init(struct rank *me)
{
    const char name[] = { ((const char *)me->user)[me->rank], '\0' };
    ddp_ctx *ctx = NULL;
    setenv("DDP_TEST_HOST", name, 1);
    setenv("DDP_PORT_RANGE", PORTS, 1);
    rank_keep(me, ddp_init_from_env(NULL, &ctx));
    ddp_finalize(ctx);
}

static void expect_all_told(const char *hosts, const char *const parts[])
{
    struct ranks run = ranks_run((int)strlen(hosts), init, RANKS_PLAIN_STORE, hosts);
    for (int r = 0; r < run.n; r++)
        ranks_expect_error(&run, r, DDP_ERR_IO, parts);
    ranks_free(&run);
}

Test(net_firewall, a_port_that_refuses_is_named_on_every_rank, .timeout = 120)
{
    close_ports("reject with tcp reset");
    expect_all_told("aabb", (const char *const[]){ "on b (127.0.0.1) cannot", "on a at 127.0.0.1:211",
                                                   "Connection refused", "DDP_PORT_RANGE=LOW-HIGH",
                                                   "DDP_IFACE", NULL });
}

Test(net_firewall, a_port_that_is_silent_is_named_long_before_the_time_to_start_is_over, .timeout = 120)
{
    close_ports("drop");
    expect_all_told("ab", (const char *const[]){ "rank 1 on b (127.0.0.1) ", "0 on a at 127.0.0.1:211",
                                                 "for 10.0 s", NULL });
}

/* Return true if a process in this network waits for an answer from one of the ports. */
static bool somebody_connects(void)
{
    char line[256];
    bool found = false;
    unsigned remote, state;
    FILE *f = fopen("/proc/self/net/tcp", "re");
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = sscanf(line, "%*d: %*x:%*x %*x:%x %x", &remote, &state) == 2 && remote >= LOWEST &&
                remote <= HIGHEST && state == TCP_SYN_SENT;
    if (f != NULL)
        fclose(f);
    return found;
}

static void *die_while_hosts_connect(void *unused)
{
    while (!somebody_connects())
        usleep(2000);
    raise(SIGKILL);
    return unused;
}

/* Kill rank 1 while the others still wait for connections. */
static void init_or_die(struct rank *me)
{
    pthread_t thread;
    if (me->rank == 1)
        pthread_create(&thread, NULL, die_while_hosts_connect, NULL);
    init(me);
}

Test(net_firewall, a_death_while_hosts_connect_is_told_to_all, .timeout = 120)
{
    close_ports("drop");
    struct ranks run = ranks_run(4, init_or_die, RANKS_PLAIN_STORE, "aabb");
    for (int r = 0; r < 4; r++)
        if (r != 1)
            ranks_expect_error(&run, r, DDP_ERR_PEER_LOST,
                               (const char *const[]){ "rank 1 (pid ", "has ended", NULL });
    ranks_free(&run);
}

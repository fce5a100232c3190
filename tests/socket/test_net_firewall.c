/* Hosts between which the port of the store is open and others are not. Each test is in a new network namespace, with
 * a loopback and rules of nft; that needs root. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS "21100-21119"

enum { LOWEST = 21100, HIGHEST = 21119 };

static void bring_loopback_up(void)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &lo), 0);
    close(fd);
}

/* A private network, in which no packet reaches the ports of ranks. */
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

/* The name of each rank's host is a letter of `user`. */
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
    expect_all_told("aabb", (const char *const[]){ "on b (127.0.0.1) cannot connect to rank ",
                                                   "on a at 127.0.0.1:211", "Connection refused",
                                                   "DDP_PORT_RANGE=LOW-HIGH", "DDP_IFACE", NULL });
}

Test(net_firewall, a_port_that_is_silent_is_named_long_before_the_time_to_start_is_over, .timeout = 120)
{
    close_ports("drop");
    expect_all_told(
        "ab", (const char *const[]){ "rank 1 on b (127.0.0.1) cannot connect to rank 0 on a at 127.0.0.1:211",
                                     "no answer for 10 s", NULL });
}

/* Does a process in this network wait for an answer of one of the ports? */
static bool somebody_connects(void)
{
    char line[256];
    bool found = false;
    unsigned port, state;
    FILE *f = fopen("/proc/self/net/tcp", "re");
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = sscanf(line, "%*d: %*x:%*x %*x:%x %x", &port, &state) == 2 && port >= LOWEST &&
                port <= HIGHEST && state == TCP_SYN_SENT;
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

/* Rank 1 is killed while the others still wait for connections. */
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

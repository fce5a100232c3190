/* hosts.h -- several hosts on one machine, for tests of jobs of many nodes: node0, node1 and so on.
 *
 *     struct hosts *net = hosts_open(2);           (skips the test where it cannot: it needs root)
 *     struct run_process *a = host_start(&net->host[0], argv, NULL);
 *     host_rules(&net->host[1], "add rule inet f in tcp sport 29500 drop");
 *     ...
 *     hosts_close(net);
 *
 * A host is a process that has network, host name, process ids, mounts and shared memory of its own (10.9.0.1 and up on
 * eth0, its own /etc/hosts with all names, a /run and a /dev/shm of its own), and is process 1 in there. A bridge in one more
 * network namespace joins their cables. Nothing of it is seen outside: addresses and interfaces cannot collide with the
 * machine's, or with those of another test that runs at the same time; and when the test ends, by whatever end, the kernel
 * kills process 1 of each host, and with it all that ran there, and takes the networks away. Control groups alone would
 * outlive that; they are removed by hosts_close(), or by the next hosts_open() where a test was killed.
 *
 * How a connection is cut matters, so there are several ways: packets dropped in one direction (host_rules), the cable
 * pulled (host_cable), all processes stopped (host_signal), the machine switched off (host_off: not a packet more). */
#ifndef HOSTS_H
#define HOSTS_H

#include "run.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { HOSTS_MAX = 16 };

enum hosts_kind {
    HOSTS_V4, /* 10.9.0.1 and up */
    HOSTS_V6, /* fd00::1 and up, and no IPv4 address but lo's */
    HOSTS_NAT, /* node0 as ever; 10.8.1.2, 10.8.2.2 ... behind a router, which makes 10.9.0.254 of all of them and lets
                  nobody in, nor from one to the other */
};

struct host {
    pid_t init;     /* its process 1, as we see it */
    int index;      /* 0 is node0 */
    char name[16];  /* "node0" */
    char addr[40];  /* "10.9.0.1" */
    bool off;       /* see host_off */
    char group[96]; /* its control group, "" where there is none */
};

struct hosts {
    enum hosts_kind kind;
    int count;
    pid_t bridge; /* holds the network with the bridge */
    struct host host[HOSTS_MAX];
};

/* Hosts that reach each other. Skips the test, with the reason, where they cannot be had. */
struct hosts *hosts_open(int count);
struct hosts *hosts_open_as(enum hosts_kind kind, int count);

/* The reason why there can be no hosts here; NULL when there can. */
const char *hosts_lack(void);

/* All that runs on them is killed, and `net` freed. */
void hosts_close(struct hosts *net);

/* As run_start and run_command. */
struct run_process *host_start(const struct host *host, const char *const argv[],
                               const struct run_options *options);
struct run_result host_run(const struct host *host, const char *const argv[]);

/* A shell command there; false unless it ends with 0. What it says on stderr is shown. */
bool host_sh(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));

/* One command of nft. There are the chains `in` and `out` of the table "inet f"; host_heal takes all rules away. */
void host_rules(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));
void host_heal(const struct host *host);

/* Pull its cable, or plug it in. */
void host_cable(const struct hosts *net, int index, bool plugged);

/* The lines of its /etc/hosts from now on. */
void host_names(const struct host *host, const char *lines);

/* Signal every process on it but process 1, parents first; those of that name only, unless it is NULL. Returns how many
 * there are. */
int host_signal(const struct host *host, const char *name, int signal);

/* The power fails: no packet leaves it from now on, and nothing on it runs. */
void host_off(struct hosts *net, int index);

/* How many processes run there, process 1 not counted; waits up to `timeout_ms` for none. `names` (may be NULL) gets
 * what they are. */
int host_left(const struct host *host, int timeout_ms, char *names, size_t size);

/* --- hosts net -------------------------------------------------------------------------------------------- */

/* The addresses of hosts and the cables between them; for hosts.c. */

/* The address of host `h`, by its index. */
void hosts_net_address(enum hosts_kind kind, struct host *h);

/* Cables from all hosts to the bridge, whose network namespace is there already; addresses, routes and names. */
bool hosts_net_join(const struct hosts *net);

#endif

/* scene.h -- a job on several hosts, its fault, and the output that every node must print. Each SCENE defines a test:
 *
 *     SCENE(losses, a_killed_launcher_is_named, .program = "worker say:up forever", .until = "up",
 *           .fault = fault_kill_launcher, .victim = 1, .says = "NODE_LOST_CLOSED|node 1 (node1)", .within_ms = EXITS,
 *           .node = { [0] = { .exit = 125 }, [1] = { .exit = KILLED } })
 *
 * ddprun runs on `hosts` hosts (2 by default). Node i has these options, in this order: "--nnodes=N --node_rank=i
 * --master_addr=10.9.0.1", where N is `hosts`; "--nproc_per_node=2 --grace=2"; `options`; the options of the node. If
 * `elastic` is set, node i does not have the first three options. Spaces separate the words of options and of
 * `program`. The first word of `program` is a path, or the name of a program of the tests.
 *
 * The members `says` and `ends` contain one or more texts, separated by '|'. A node must print these texts on stderr in
 * this order. Every node prints `says`, except a node that is KILLED or `silent_on`. Node i also prints node[i].says.
 * The time limit for both is `within_ms` after the fault, or after the start if the scene has no fault. For node i,
 * node[i].within_ms replaces this limit. Node i prints node[i].ends at any time. A node with exit code ANY may have any
 * exit code. At the end no process may remain on any host. */
#ifndef TESTS_LIB_SCENE_H
#define TESTS_LIB_SCENE_H

#include "run.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Several hosts on one machine, for tests of jobs of many nodes: node0, node1 and so on.
 *
 *     struct hosts *net = hosts_open(2);           (needs root; skips the test if it cannot create hosts)
 *     struct run_process *a = host_start(&net->host[0], argv, NULL);
 *     host_rules(&net->host[1], "add rule inet f in tcp sport 29500 drop");
 *     ...
 *     hosts_close(net);
 *
 * A host is a process with separate network (10.9.0.1 and up on eth0), host name, process ids, mounts and shared
 * memory. Its /run and /dev/shm are separate, too, and its /etc/hosts has the names of all hosts. This process is
 * process 1 of the host. A bridge in another network namespace connects the hosts. Other processes of the machine do
 * not see these networks, so addresses cannot conflict with the machine or with another test.
 *
 * When the test ends in any way, the kernel kills all processes of the hosts and removes the networks. hosts_close()
 * removes the control groups. If the test was killed, the next hosts_open() removes the control groups.
 *
 * Connections can be cut in several ways: drop packets in one direction (host_rules), pull the cable (host_cable),
 * stop all processes (host_signal), switch off the machine (host_off: no further packet). */

enum { HOSTS_MAX = 64 };

enum hosts_kind {
    HOSTS_V4, /* 10.9.0.1 and up */
    HOSTS_V6, /* fd00::1 and up; only lo has an IPv4 address */
    /* node0 is as in HOSTS_V4. The other nodes (10.8.1.2, 10.8.2.2 and so on) connect through a router. The router
     * replaces their addresses by 10.9.0.254. No connection from outside reaches these nodes. */
    HOSTS_NAT,
};

struct host {
    pid_t init;     /* pid of the host's process 1, as the test sees it */
    int index;      /* 0 is node0 */
    char name[16];  /* "node0" */
    char addr[40];  /* "10.9.0.1" */
    bool off;       /* see host_off */
    char group[96]; /* control group of the host, or "" if it has none */
};

struct hosts {
    enum hosts_kind kind;
    int count;
    pid_t bridge; /* pid of the process in whose network namespace the bridge is */
    struct host host[HOSTS_MAX];
};

/* Create hosts that reach each other. If hosts cannot be created, skip the test and print the reason. */
struct hosts *hosts_open(int count);

/* Kill all processes on the hosts, and free `net`. */
void hosts_close(struct hosts *net);

/* Start or run a program on a host, as run_start and run_command do. */
struct run_process *host_start(const struct host *host, const char *const argv[],
                               const struct run_options *options);
struct run_result host_run(const struct host *host, const char *const argv[]);

/* Run a shell command on a host, and print its stderr. Return true if the command exits with 0. */
bool host_sh(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));

/* Run one command of nft. The table "inet f" has the chains `in` and `out`; host_heal removes all rules. */
void host_rules(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));
void host_heal(const struct host *host);

/* Pull the cable of host `index`, or plug the cable in. */
void host_cable(const struct hosts *net, int index, bool plugged);

/* Replace the lines of the host's /etc/hosts. */
void host_names(const struct host *host, const char *lines);

/* Signal every process on the host except process 1, parents first. If `name` is not NULL, signal only processes with
 * this name. Return the number of signalled processes. */
int host_signal(const struct host *host, const char *name, int signal);

/* Simulate a power failure: no further packet leaves the host, and no process on the host runs. */
void host_off(struct hosts *net, int index);

/* Wait up to `timeout_ms` until only process 1 runs on the host. Return the number of other processes that still run.
 * `names` (may be NULL) gets their names. */
int host_left(const struct host *host, int timeout_ms, char *names, size_t size);

/* --- scene ------------------------------------------------------------------------------------------------ */

enum { SCENE_NODES = 16 };

/* Values of `exit` that are not exit codes. KILLED: the test kills the node. ANY: any code. ENDED: any code but 0. The
 * default is 0. */
enum { KILLED = -1, ANY = -2, ENDED = -4 };

/* Time limits in ms from the fault to the first message about the fault. These limits are three times the required
 * limits, because the machine may be busy. */
enum { EXITS = 6000, BEATS = 18000, CONNECTIONS = 15000 };

struct scene;

struct play {
    const struct scene *scene;
    struct hosts *net;
    struct run_process *node[SCENE_NODES]; /* NULL before the node starts, and again after run_wait */
    struct run_process *other;             /* a program that is not a node of the job, killed at the end */
    uint64_t fault_ms;                     /* time of the fault, or of the start if there was no fault yet */
    char secret[64];                       /* path of the file with the job's secret */
};

struct scene_node {
    const char *options; /* options for this node's ddprun only */
    const char *program; /* program of this node; NULL = the scene's program */
    const char *ddprun;  /* path of the ddprun for this node; NULL = the usual program */
    const char *says;
    const char *ends;   /* texts that the node prints on stderr at any time */
    const char *prints; /* texts that the node prints on stdout */
    bool by_hand;       /* scene_play does not start the node; see scene_start */
    int late_ms;        /* ms from the start of the first nodes to the start of this node */
    int exit;           /* expected exit code, or KILLED, ANY or ENDED */
    bool silent_on;     /* the node need not print the scene's `says` */
    int within_ms;      /* time limit for this node's texts; 0 = the scene's limit */
};

struct scene {
    const char *name;
    const char *cases; /* rows of tests/nodes/cases that the scene covers */
    int hosts;         /* number of hosts; 0 means 2 */
    enum hosts_kind net;
    bool elastic;        /* true: the scene does not add --nnodes, --node_rank and --master_addr */
    const char *options; /* options of every node */
    const char *program; /* NULL means "worker say:up forever" */
    void (*before)(struct play *play);
    const char *until; /* text that every running node must print before the fault */
    int start_ms;      /* time limit for `until`; 0 = START_MS */
    int victim;        /* the node that `fault` affects */
    void (*fault)(struct play *play);
    const char *says;
    int within_ms;
    const char *never;                /* texts that no node may print */
    void (*after)(struct play *play); /* called after all expected texts were printed */
    struct scene_node node[SCENE_NODES];
};

void scene_play(const struct scene *scene);

#define SCENE(suite, test, ...)                                          \
    Test(suite, test)                                                    \
    {                                                                    \
        scene_play(&(const struct scene){ .name = #test, __VA_ARGS__ }); \
    }

/* Start node `i`, whose `by_hand` is true, or start any node again. After a second start the test no longer checks the
 * first process. */
void scene_start(struct play *play, int i, const char *more_options);

/* Faults that affect node scene->victim: */

void fault_kill_launcher(struct play *play); /* SIGKILL to guardian and agent */
void fault_cable(struct play *play);
void fault_freeze(struct play *play); /* SIGSTOP to all processes of the node */
void fault_power(struct play *play);
void fault_ctrl_c(struct play *play); /* SIGINT to ddprun, as from its shell */

/* Expect `ddpctl why` on host `i` to print `texts` within CONNECTIONS ms. */
void scene_expect_why(struct play *play, int i, const char *store, const char *texts);

/* Functions for the member `after`: */

void after_stop_all(struct play *play);   /* SIGTERM to every ddprun */
void after_no_rejects(struct play *play); /* `ddpctl rejects` lists only silent clients */
void after_heal(struct play *play);       /* remove rules, plug in cables, continue processes */

/* --- scene train ------------------------------------------------------------------------------------------ */

/* Scenes that train on separate data and a shared disk. The result must equal that of one host.
 *
 *     SCENE(waits, two_hosts, .options = "--nproc_per_node=1", .before = train_make_data,
 *           .program = TRAIN_TEN_STEPS(two_hosts), .after = train_expect_one_hosts_bits, ...) */

/* The path of a scene's directory is TRAIN_PLACE, followed by the name of the scene. */
#define TRAIN_PLACE       "/tmp/ddprun-test-train-"
#define TRAIN_DATA(scene) "train --data " TRAIN_PLACE #scene " "
/* Train ten steps of two ranks, and keep the gradients. */
#define TRAIN_TEN_STEPS(scene) \
    TRAIN_DATA(scene) "--batch=50 --limit_steps=10 --quiet --dump_gradients " TRAIN_PLACE #scene "/bits"

void train_make_data(struct play *play);
void train_remove_data(struct play *play);

/* Expect that both nodes succeed, with the gradients that two ranks of one host compute. */
void train_expect_one_hosts_bits(struct play *play);

#endif

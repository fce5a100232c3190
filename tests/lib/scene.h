/* scene.h -- a job on several hosts, its fault, and the output that every node must print: one row for each
 * case.
 *
 *     SCENE(losses, a_killed_launcher_is_named, .program = "worker say:up forever", .until = "up",
 *           .fault = fault_kill_launcher, .victim = 1, .says = "NODE_LOST_CLOSED|node 1 (node1)", .within_ms = EXITS,
 *           .node = { [0] = { .exit = 125 }, [1] = { .exit = KILLED } })
 *
 * ddprun runs on `hosts` hosts (2), node i with "--nnodes=2 --node_rank=i --master_addr=10.9.0.1
 * --nproc_per_node=2 --grace=2" unless `elastic`, with `options` and the node's own options. In them and in
 * `program` words are separated by spaces; the first word of `program` is looked up among the tests'
 * programs.
 *
 * Expected texts are separated by '|'; each must follow the one before it on stderr. Every node must print
 * `says` unless it is KILLED or `silent_on`, within `within_ms` of the fault (of the start without a fault),
 * and `node[i].says` by node i, within its own `within_ms` if it has one; `ends` at any time. A node without an
 * expected exit code is not checked. At the end no process may remain on any host. */
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
 *     struct hosts *net = hosts_open(2);           (skips the test where it cannot: it needs root)
 *     struct run_process *a = host_start(&net->host[0], argv, NULL);
 *     host_rules(&net->host[1], "add rule inet f in tcp sport 29500 drop");
 *     ...
 *     hosts_close(net);
 *
 * A host is a process with separate network, host name, process ids, mounts and shared memory (10.9.0.1 and up on
 * eth0, its own /etc/hosts with all names, /run and /dev/shm), and is process 1 there. A bridge in another network
 * namespace connects their cables. Nothing of it is visible outside, so addresses and interfaces cannot conflict with
 * the machine's or with those of another test. When the test ends in any way, the kernel kills process 1 of each
 * host, with everything that ran there, and removes the networks. Only control groups would remain; hosts_close()
 * removes them, or the next hosts_open() after a test was killed.
 *
 * Connections can be cut in several ways: drop packets in one direction (host_rules), pull the cable (host_cable),
 * stop all processes (host_signal), switch off the machine (host_off: no further packet). */

enum { HOSTS_MAX = 16 };

enum hosts_kind {
    HOSTS_V4,  /* 10.9.0.1 and up */
    HOSTS_V6,  /* fd00::1 and up, and no IPv4 address except lo's */
    HOSTS_NAT, /* node0 as usual; 10.8.1.2, 10.8.2.2 ... are behind a router that translates all of them to 10.9.0.254 and lets no connection in, nor from one to the other */
};

struct host {
    pid_t init;     /* its process 1, by our pid */
    int index;      /* 0 is node0 */
    char name[16];  /* "node0" */
    char addr[40];  /* "10.9.0.1" */
    bool off;       /* see host_off */
    char group[96]; /* its control group, "" without one */
};

struct hosts {
    enum hosts_kind kind;
    int count;
    pid_t bridge; /* holds the network of the bridge */
    struct host host[HOSTS_MAX];
};

/* Create hosts that reach each other. Skips the test with the reason if that fails. */
struct hosts *hosts_open(int count);

/* Kill all processes on them, and free `net`. */
void hosts_close(struct hosts *net);

/* Like run_start and run_command. */
struct run_process *host_start(const struct host *host, const char *const argv[],
                               const struct run_options *options);
struct run_result host_run(const struct host *host, const char *const argv[]);

/* Run a shell command there; false unless it ends with 0. Its stderr is printed. */
bool host_sh(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));

/* Run one command of nft. The table "inet f" has the chains `in` and `out`; host_heal removes all rules. */
void host_rules(const struct host *host, const char *command, ...) __attribute__((format(printf, 2, 3)));
void host_heal(const struct host *host);

/* Pull its cable, or plug it in. */
void host_cable(const struct hosts *net, int index, bool plugged);

/* Set the lines of its /etc/hosts from now on. */
void host_names(const struct host *host, const char *lines);

/* Signal every process on it except process 1, parents first; only those of that name, unless it is NULL. Return how
 * many there are. */
int host_signal(const struct host *host, const char *name, int signal);

/* Simulate a power failure: no packet leaves it from now on, and nothing on it runs. */
void host_off(struct hosts *net, int index);

/* Return how many processes run there, without process 1; wait up to `timeout_ms` for none. `names` (may be NULL)
 * gets them. */
int host_left(const struct host *host, int timeout_ms, char *names, size_t size);

/* --- scene ------------------------------------------------------------------------------------------------ */

enum { SCENE_NODES = HOSTS_MAX };

/* Values that are not exit codes. Zero-initialized rows expect 0. */
enum { KILLED = -1, ANY = -2, ENDED = -4 };

/* Time from the fault to the first message about it: as specified, times three for a busy machine. */
enum { EXITS = 6000, BEATS = 18000, CONNECTIONS = 15000 };

struct scene;

struct play {
    const struct scene *scene;
    struct hosts *net;
    struct run_process *node[SCENE_NODES]; /* NULL = not started, or already waited for */
    struct run_process *other;             /* a program that is not a node of the job, killed at the end */
    uint64_t fault_ms;                     /* time of the fault, or of the start */
    char secret[64];                       /* the file with the secret of the job */
};

struct scene_node {
    const char *options; /* of this node's ddprun alone */
    const char *program; /* instead of the others' options */
    const char *ddprun;  /* instead of the usual program */
    const char *says;
    const char *ends;   /* on stderr, at any time */
    const char *prints; /* on stdout */
    bool by_hand;       /* not started by the table, see scene_start */
    int late_ms;        /* start it this many ms after the others */
    int exit;           /* ENDED: any code but 0 */
    bool silent_on;     /* the node need not print the scene's `says` */
    int within_ms;      /* limit for its texts; 0 = the scene's */
};

struct scene {
    const char *name;
    const char *cases; /* rows of tests/nodes/cases that it covers */
    int hosts;         /* 0 = 2 */
    enum hosts_kind net;
    bool elastic;        /* without --nnodes, --node_rank and --master_addr from here */
    const char *options; /* of every node */
    const char *program; /* NULL = "worker say:up forever" */
    void (*before)(struct play *play);
    const char *until; /* every running node has printed this before the fault */
    int victim;        /* the node that `fault` affects */
    void (*fault)(struct play *play);
    const char *says;
    int within_ms;
    const char *never;                /* texts that no node may print */
    void (*after)(struct play *play); /* checked after all expected texts */
    struct scene_node node[SCENE_NODES];
};

void scene_play(const struct scene *scene);

#define SCENE(suite, test, ...)                                          \
    Test(suite, test)                                                    \
    {                                                                    \
        scene_play(&(const struct scene){ .name = #test, __VA_ARGS__ }); \
    }

/* Start node `i` by hand (one that is `by_hand`), or once more: then the first one is no longer checked. */
void scene_start(struct play *play, int i, const char *more_options);

/* Faults, for scene->victim. */
void fault_kill_launcher(struct play *play); /* SIGKILL to guardian and agent */
void fault_cable(struct play *play);
void fault_freeze(struct play *play); /* SIGSTOP to all */
void fault_power(struct play *play);
void fault_ctrl_c(struct play *play); /* SIGINT to ddprun, as from its shell */

/* Expect `ddpctl why` on host `i` to print the texts within CONNECTIONS; `texts` as above. */
void scene_expect_why(struct play *play, int i, const char *store, const char *texts);

/* For `after`. */
void after_stop_all(struct play *play); /* SIGTERM to every ddprun */
void after_heal(struct play *play);     /* remove rules, plug in cables, continue all processes */

/* --- scene train ------------------------------------------------------------------------------------------ */

/* Scenes that train: separate data on a disk that all hosts share, and the result of one host.
 *
 * SCENE(waits, two_hosts, .options = "--nproc_per_node=1", .before = train_make_data, .program =
 * TRAIN_TEN_STEPS(two_hosts),
 *           .after = train_expect_one_hosts_bits, ...) */

/* Each scene has a separate directory, named after it. */
#define TRAIN_PLACE       "/tmp/ddprun-test-train-"
#define TRAIN_DATA(scene) "train --data " TRAIN_PLACE #scene " "
/* Ten steps of two ranks, keeping their gradients. */
#define TRAIN_TEN_STEPS(scene) \
    TRAIN_DATA(scene) "--batch=50 --limit_steps=10 --quiet --dump_gradients " TRAIN_PLACE #scene "/bits"

void train_make_data(struct play *play);
void train_remove_data(struct play *play);

/* Both nodes succeed, with the gradients that two ranks of one host compute. */
void train_expect_one_hosts_bits(struct play *play);

#endif

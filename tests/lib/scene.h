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
 * and `node[i].says` by node i, within its own `within_ms` if it has one; `ends` at any time. A node without
 * an expected exit code is not checked. Nothing may run on any host in the end. */
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
 * A host is a process that has network, host name, process ids, mounts and shared memory for itself (10.9.0.1
 * and up on eth0, its own /etc/hosts with all names, /run and /dev/shm), and is process 1 in there. A bridge
 * in one more network namespace joins their cables. Nothing of it is seen outside: addresses and interfaces
 * cannot collide with the machine's, or with those of another test that runs at the same time; and when the
 * test ends in any way, the kernel kills process 1 of each host, and with it all that ran there, and takes
 * the networks away. Control groups alone would outlive that; they are removed by hosts_close(), or by the
 * next hosts_open() where a test was killed.
 *
 * How a connection is cut matters, so there are several ways: packets dropped in one direction (host_rules),
 * the cable pulled (host_cable), all processes stopped (host_signal), the machine switched off (host_off: not
 * a packet more). */

enum { HOSTS_MAX = 16 };

enum hosts_kind {
    HOSTS_V4,  /* 10.9.0.1 and up */
    HOSTS_V6,  /* fd00::1 and up, and no IPv4 address but lo's */
    HOSTS_NAT, /* node0 as usual; 10.8.1.2, 10.8.2.2 ... are inside a router that translates all of them to
                * 10.9.0.254 and lets no connection in, nor from one to the other */
};

struct host {
    pid_t init;     /* its process 1, as we see it */
    int index;      /* 0 is node0 */
    char name[16];  /* "node0" */
    char addr[40];  /* "10.9.0.1" */
    bool off;       /* see host_off */
    char group[96]; /* its control group, "" without one */
};

struct hosts {
    enum hosts_kind kind;
    int count;
    pid_t bridge; /* holds the network with the bridge */
    struct host host[HOSTS_MAX];
};

/* Hosts that reach each other. Skips the test with the reason if they cannot be made. */
struct hosts *hosts_open(int count);

/* All that runs on them is killed, and `net` freed. */
void hosts_close(struct hosts *net);

/* As run_start and run_command. */
struct run_process *host_start(const struct host *host, const char *const argv[],
                               const struct run_options *options);
struct run_result host_run(const struct host *host, const char *const argv[]);

/* A shell command there; false unless it ends with 0. Its stderr is shown. */
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

/* --- scene ------------------------------------------------------------------------------------------------ */

enum { SCENE_NODES = HOSTS_MAX };

/* Exit codes that are none. Zero-initialized rows expect 0. */
enum { KILLED = -1, ANY = -2, ENDED = -4 };

/* From the fault to the first word on it: what the rules say, for a busy machine three times as much. */
enum { EXITS = 6000, BEATS = 18000, CONNECTIONS = 15000 };

struct scene;

struct play {
    const struct scene *scene;
    struct hosts *net;
    struct run_process *node[SCENE_NODES]; /* NULL = not started, or waited for */
    struct run_process *other;             /* a program that is no node of the job, killed in the end */
    uint64_t fault_ms;                     /* when the fault was, or the start */
};

struct scene_node {
    const char *options; /* of this node's ddprun alone */
    const char *program; /* in place of the others' */
    const char *ddprun;  /* in place of the usual one */
    const char *says;
    const char *ends;   /* on stderr, at any time */
    const char *prints; /* on stdout */
    bool by_hand;       /* not started by the table, see scene_start */
    int late_ms;        /* start it so much after the others */
    int exit;           /* ENDED: any code but 0 */
    bool silent_on;     /* the node need not print `says` of the scene */
    int within_ms;      /* for its texts; 0 = the scene's */
};

struct scene {
    const char *name;
    const char *cases; /* rows of tests/nodes/cases that it stands for */
    int hosts;         /* 0 = 2 */
    enum hosts_kind net;
    bool elastic;        /* no --nnodes, --node_rank and --master_addr from here */
    const char *options; /* of every node */
    const char *program; /* NULL = "worker say:up forever" */
    void (*before)(struct play *play);
    const char *until; /* every node that runs has printed this; then comes the fault */
    int victim;        /* what `fault` is done to */
    void (*fault)(struct play *play);
    const char *says;
    int within_ms;
    const char *never;                /* what no node may say */
    void (*after)(struct play *play); /* after all expected texts */
    struct scene_node node[SCENE_NODES];
};

void scene_play(const struct scene *scene);

#define SCENE(suite, test, ...)                                          \
    Test(suite, test)                                                    \
    {                                                                    \
        scene_play(&(const struct scene){ .name = #test, __VA_ARGS__ }); \
    }

/* Start node `i` by hand (one that is `by_hand`), or once more: then the first one is let go of. */
void scene_start(struct play *play, int i, const char *more_options);

/* Faults, of scene->victim. */
void fault_kill_launcher(struct play *play); /* guardian and agent, SIGKILL */
void fault_cable(struct play *play);
void fault_freeze(struct play *play); /* SIGSTOP to all */
void fault_power(struct play *play);
void fault_ctrl_c(struct play *play); /* SIGINT to ddprun, as from its shell */

/* Expect `ddpctl why` on host `i` to print the texts within CONNECTIONS; `texts` as above. */
void scene_expect_why(struct play *play, int i, const char *store, const char *texts);

/* For `after`. */
void after_stop_all(struct play *play); /* SIGTERM to every ddprun */
void after_heal(struct play *play);     /* rules away, cables in, all go on */

/* --- scene train ------------------------------------------------------------------------------------------ */

/* Scenes that train: own data on the disk that all hosts see, and the result of one host.
 *
 *     SCENE(waits, two_hosts, .options = "--nproc_per_node=1", .before = train_make_data, .program = TRAIN_TEN_STEPS(two_hosts),
 *           .after = train_expect_one_hosts_bits, ...) */

/* Each scene has its own directory, by its name. */
#define TRAIN_PLACE       "/tmp/ddprun-test-train-"
#define TRAIN_DATA(scene) "train --data " TRAIN_PLACE #scene " "
/* Ten steps of two ranks, whose gradients are kept. */
#define TRAIN_TEN_STEPS(scene) \
    TRAIN_DATA(scene) "--batch=50 --limit_steps=10 --quiet --dump_gradients " TRAIN_PLACE #scene "/bits"

void train_make_data(struct play *play);
void train_remove_data(struct play *play);

/* Both nodes end well, with the gradients that two ranks of one host compute. */
void train_expect_one_hosts_bits(struct play *play);

#endif

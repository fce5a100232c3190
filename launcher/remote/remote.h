/* remote.h -- one command for all nodes: --hosts.
 *
 *     ddprun --hosts a:8,b:8 train.py
 *        |-- ssh a --- ddprun --relay --- ddprun --node_rank=0 ...
 *        '-- ssh b --- ddprun --relay --- ddprun --node_rank=1 ...
 *
 * The starter (starter.c) runs a remote shell for each host and carries output and input. A relay (relay.c) reads
 * the starter's messages on stdin, starts the host's ddprun and passes signals on. If the starter, the remote
 * shell or the network dies, the relay's stdin ends or falls silent. The relay then ends the job on its host.
 * start.c contains the decisions, which are pure.
 *
 * With many hosts, or --ssh_fanout, a host starts other hosts. Its relay becomes a branch (tree.c), which runs remote
 * shells and a second relay for its own host:
 *
 *     ddprun --hosts n[0-99] train.py
 *        '-- ssh n0 --- ddprun --relay, a branch
 *                          |-- ddprun --relay --- ddprun --node_rank=0 ...
 *                          '-- ssh n16 --- ddprun --relay --- ddprun --node_rank=16 ...
 *
 * A branch passes bytes on. If it dies, the stdin of all its processes ends, so the job ends on their hosts.
 *
 * With --ship the starter first sends its own program to the host's shell, which executes the program as the relay.
 *
 * The relays find an address of the first host that all other hosts reach. That address becomes the store's. */
#ifndef LAUNCHER_REMOTE_REMOTE_H
#define LAUNCHER_REMOTE_REMOTE_H

#include "remote/start.h"

#include <stdint.h>

/* --- log files (collect.c) -------------------------------------------------------------------------------------- */

/* Send the files below `root` to the descriptor `out`. Return false if the starter no longer reads. */
bool collect_send(const char *root, int out);

/* The received files of one host. Initialize with zeros and `dir`. */
struct collected {
    char *dir; /* folder of the files, owned; created with the first file */
    struct buf in;
    bool open, ended; /* `fd` is an open file; the message FILES_END has arrived */
    bool stopped;     /* a fault has ended the transfer */
    int fd;
    char name[COLLECT_NAME_MAX + 1];
    uint64_t left;                     /* missing bytes of the open file */
    uint64_t files, bytes;             /* received */
    uint64_t announced;                /* sum of the sizes of all begun files */
    uint64_t total_files, total_bytes; /* of the message TOTAL */
    char why[1280];                    /* reason for missing files; "" = none is missing so far */
};

/* Store files from the bytes that a host sends. Set `why` after a fault. After each fault but a file that has shrunk, drop all
 * further bytes. */
void collect_store(struct collected *c, struct slice bytes);

/* The log files of all hosts. */
struct collection {
    const struct host_spec *hosts; /* borrowed */
    struct collected *of;          /* of each host */
    char *root;                    /* directory of their folders */
    int n;
};

/* Create the directory `dir`/`name`, which gets a folder for each host. After a failure, call collection_close, too. */
ddp_status collection_open(struct collection *c, const char *dir, const char *name,
                           const struct host_spec *hosts, int n, struct ddp_err *err);
void collection_close(struct collection *c);

/* Append where the files are, unless `is_quiet`, and which are missing. Return false if memory is short. */
bool collection_report(const struct collection *c, bool is_quiet, struct buf *out);

/* Append how much `sending` hosts have sent so far. Return false if memory is short. */
bool collection_progress(const struct collection *c, int sending, struct buf *out);

/* --- processes of remote shells (tree.c) -------------------------------------------------------------------------- */

/* Carry processes until stdin ends, and return the exit code. `signals` is a signalfd, `in` has the bytes read after
 * BRANCH. */
int branch_run(int signals, uint64_t silent_ms, struct buf *in);

/* A link is a process with a pipe for each of stdin, stdout and stderr. The starter or a branch runs the process. */
struct link;
struct links;

/* Callbacks of a link. `peer` is the pointer that was given with the link. */
struct link_hooks {
    void (*bytes)(void *peer, struct link *link, bool is_err, struct slice bytes);
    void (*exited)(void *peer, struct link *link);
    void (*over)(void *peer, struct link *link); /* the process has exited, and its output is read */
};

/* Return an object for links with slots below `slots`, or NULL. Free it after the loop is closed. */
struct uv_loop_s;
struct links *links_new(struct uv_loop_s *loop, int slots, const struct link_hooks *hooks);
void links_free(struct links *all);

/* Start a process here, and write `program` to its stdin. Return NULL after an error of libuv. The links own the
 * result. */
struct link *link_start(struct links *all, int slot, void *peer, char **argv, struct slice program,
                        int *error);

/* Start a process on the host of a branch. Without `argv` it is a relay. With `ship` the branch writes its own program of
 * so many bytes to the process. Return NULL if memory is short or the branch has ended. */
struct link *link_start_on(struct link *branch, int slot, void *peer, char *const *argv, size_t ship);

/* Make the relay at the end of a link a branch. */
void link_carry(struct link *link, uint64_t silent_ms);

void link_send(struct link *link, struct slice bytes); /* to stdin */
void link_close(struct link *link);                    /* close stdin */
void link_kill(struct link *link, int signal);
bool link_has_exited(const struct link *link);
int link_exit_code(const struct link *link);

/* Stop or continue reading. */
void links_pause(struct links *all, bool paused);

/* Close the streams of exited processes that other processes hold open; if `is_late`, at once. */
void links_drain(struct links *all, bool is_late);

/* Close the stdin of all links; if `is_late`, kill the processes here. Return true if all are over. */
bool links_close(struct links *all, bool is_late);

/* --- shells ----------------------------------------------------------------------------------------------------- */

/* Run `ddprun --relay`. Return its exit code. */
int relay_run(void);

struct starter_job {
    const struct start_facts *facts;
    struct host_spec *hosts;
    int n;
};

/* Start the job on all hosts, carry its output, and return its exit code. This is a guardian_body, whose `job` is
 * a struct starter_job. */
int starter_run(void *job, int lifeline);

#endif

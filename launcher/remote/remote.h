/* remote.h -- runs a job on all nodes with one command (ddprun --hosts). The user's ddprun, the starter, runs a remote
 * shell and a relay for each host. A relay that receives no more messages from the starter ends the job on its host,
 * because the starter, the remote shell or the network has failed. */
#ifndef LAUNCHER_REMOTE_REMOTE_H
#define LAUNCHER_REMOTE_REMOTE_H

#include "remote/start.h"

#include <stdint.h>

/* --- log files (collect.c) -------------------------------------------------------------------------------------- */

/* Send the files in and below `root` to the descriptor `out`. Return false if the starter no longer reads. */
bool collect_send(const char *root, int out);

/* Received files of one host. Before the first use, set `dir`, and zero all other members. */
struct collected {
    char *dir;     /* owned: path of the folder for the files; created when the first file arrives */
    struct buf in; /* received bytes that do not form a complete message yet */
    bool open;     /* `fd` is an open file */
    bool ended;    /* the message FILES_END has arrived */
    bool stopped;  /* a fault has ended the transfer */
    int fd;
    char name[COLLECT_NAME_MAX + 1];   /* name of the open file, below `dir` */
    uint64_t left;                     /* bytes of the open file that have not arrived yet */
    uint64_t files, bytes;             /* numbers of received files and bytes */
    uint64_t announced;                /* sum of the file sizes in the received messages FILE */
    uint64_t total_files, total_bytes; /* how many files and bytes the message TOTAL announces */
    char why[1280];                    /* why files are missing; "" if none is missing */
};

/* Store files from the bytes that a host sends. After a fault, set `why`. */
void collect_store(struct collected *c, struct slice bytes);

/* The log files of all hosts. */
struct collection {
    const struct host_spec *hosts; /* borrowed; an array of `n` hosts */
    struct collected *of;          /* owned; an array of `n` elements, one for each host */
    char *root;                    /* owned; directory of the hosts' folders */
    int n;
};

/* Create the directory `dir`/`name`, which gets a folder for each host. Call collection_close even after a failure. */
ddp_status collection_open(struct collection *c, const char *dir, const char *name,
                           const struct host_spec *hosts, int n, struct ddp_err *err);
void collection_close(struct collection *c);

/* Append a line for each host from which log files are missing. Unless `is_quiet` is true, also append how many
 * files were copied, and to which directory. Return false if memory is short. */
bool collection_report(const struct collection *c, bool is_quiet, struct buf *out);

/* Append how many bytes have arrived so far. `sending` is the number of hosts that still send files. Return false if
 * memory is short. */
bool collection_progress(const struct collection *c, int sending, struct buf *out);

/* --- processes of remote shells (tree.c) -------------------------------------------------------------------------- */

/* With many hosts, or with --ssh_fanout, some hosts start the relays of other hosts. The first relay of such a host
 * becomes a branch, which runs remote shells to other hosts and a second relay for its own host:
 *
 *     ddprun --hosts n[0-99] train.py
 *        '-- ssh n0 --- ddprun --relay, a branch
 *                          |-- ddprun --relay --- ddprun --node_rank=0 ...
 *                          '-- ssh n16 --- ddprun --relay --- ddprun --node_rank=16 ...
 *
 * A branch only passes bytes. If it dies, the stdin of its processes ends, which ends the job on their hosts. */

/* Return true if stdin has unread bytes. Unread bytes show that the starter is alive, even if this process is too slow
 * to read the bytes. */
bool remote_has_input(void);

/* Run the branch of a host until stdin ends or the starter is silent for `silent_ms`. Return the exit code. `signals`
 * is a signalfd. `in` contains the bytes that were already read from stdin after the message BRANCH. */
int branch_run(int signals, uint64_t silent_ms, struct buf *in);

/* Map the bytes that --ship sends: this program without symbols and debug information, then the cJSON library. The
 * starter sends these bytes to the host's shell, which executes the program as the relay. Set *library to the size of
 * the library. If this program does not load cJSON as a shared library, no library is sent and *library is 0. In the
 * mapped program, the library has the name SHIPPED_LIBRARY. So the program loads the library that was sent. Unmap the
 * bytes with munmap. Return NULL, or the reason of a failure. */
const char *ship_map(struct slice *bytes, size_t *library);

/* Return true if --ship has sent this program together with the cJSON library. */
bool ship_has_library(void);

/* A link is the starter's view of a process, with a pipe for each of stdin, stdout and stderr. The process was started
 * by the starter itself or by a branch (a ddprun that starts processes on another host). */
struct link;
struct links;

/* Callbacks of a link. `peer` is the argument of link_start or link_start_on. */
struct link_hooks {
    /* The process has written to stdout, or if `is_err` is true, to stderr. */
    void (*bytes)(void *peer, struct link *link, bool is_err, struct slice bytes);
    void (*exited)(void *peer, struct link *link);
    void (*over)(void *peer, struct link *link); /* the process has exited, and all its output was read */
};

struct uv_loop_s;

/* Return an object for links with slots from 0 to `slots` - 1, or NULL. A slot is a number by which the starter and a
 * branch identify a process. Free the object after the loop is closed. */
struct links *links_new(struct uv_loop_s *loop, int slots, const struct link_hooks *hooks);
void links_free(struct links *all);

/* Start a process as a child of the starter, and write `program` to its stdin. Return NULL and set *error after an
 * error of libuv. `all` owns the result. */
struct link *link_start(struct links *all, int slot, void *peer, char **argv, struct slice program,
                        int *error);

/* Start a process on the host of a branch. If `argv` is NULL, the process is a relay. If `ship` is not 0, the branch
 * writes its own program to the process. The program must have `ship` bytes. Return NULL if memory is short or the
 * branch has ended. */
struct link *link_start_on(struct link *branch, int slot, void *peer, char *const *argv, size_t ship);

/* Turn the relay of `link` into a branch. The branch ends if it receives nothing from the starter for `silent_ms`. */
void link_carry(struct link *link, uint64_t silent_ms);

void link_send(struct link *link, struct slice bytes); /* write to the stdin of the process */
void link_close(struct link *link);                    /* close the stdin of the process */
void link_kill(struct link *link, int signal);
bool link_has_exited(const struct link *link);
int link_exit_code(const struct link *link);

/* Stop reading the output of all links if `paused` is true, else continue. */
void links_pause(struct links *all, bool paused);

/* Close the output streams of processes that have exited, even if another process holds these streams open. If
 * `is_late` is true, do not wait for further output. */
void links_drain(struct links *all, bool is_late);

/* Close the stdin of the processes of all links. If `is_late` is true, also kill the processes that are children of
 * this process. Return true if all processes have exited and all their output was read. */
bool links_close(struct links *all, bool is_late);

/* --- main programs ---------------------------------------------------------------------------------------------- */

/* The processes of a job on two hosts:
 *
 *     ddprun --hosts a:8,b:8 train.py
 *        |-- ssh a --- ddprun --relay --- ddprun --node_rank=0 ...
 *        '-- ssh b --- ddprun --relay --- ddprun --node_rank=1 ...
 *
 * The starter (starter.c) is the ddprun that the user runs with --hosts. The starter runs a remote shell, such as ssh,
 * for each host, prints the output of the job and sends input to the job. The remote shell runs a relay (relay.c). The
 * relay starts the host's ddprun and passes signals to this ddprun. The relay ends the job on its host when the relay's
 * stdin ends or the starter sends no more messages. */

/* Run `ddprun --relay`. Return its exit code. */
int relay_run(void);

/* The argument of starter_run; both pointers are borrowed. */
struct starter_job {
    const struct start_facts *facts;
    struct host_spec *hosts; /* `n` hosts */
    int n;
};

/* Start the job on all hosts, print its output, and return its exit code. This function is a guardian_body. `job`
 * is a struct starter_job. */
int starter_run(void *job, int lifeline);

#endif

/* hosts.h -- parses lists of hosts, as schedulers and users write them. All functions are pure: the input is text. The
 * limits below bound the memory and time that a wrong list needs. */

/* The lists of schedulers:
 *
 *     Slurm                 node[01-16,20],gpu3      rack[0-1]n[0-3]      the last bracket varies fastest
 *     LSB_MCPU_HOSTS        hostA 8 hostB 4
 *     LSB_HOSTS, PBS        hostA hostA hostB        a name for each slot, separated by blanks or newlines */

#ifndef LAUNCHER_PLAN_HOSTS_H
#define LAUNCHER_PLAN_HOSTS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>

/* HOST_LIST_MAX is the largest number of hosts in a list in Slurm's form, such as "node[1-100]". HOST_WORDS_MAX limits
 * two other lists: the hosts of --hosts or --hostfile after the expansion of ranges, and the names in a scheduler's
 * list of names. Equal neighbours in a scheduler's list count once. HOST_WORDS_MAX is lower than HOST_LIST_MAX, because
 * each name in these two lists costs memory and time. */
enum { HOST_NAME_SIZE = 256, HOST_LIST_MAX = 65536, HOST_WORDS_MAX = 4096 };

struct host_list {
    int n; /* number of different hosts */
    char first[HOST_NAME_SIZE];
    int here; /* index of this host in the list, from 0; -1 if not searched or not found */
};

/* Parse a list in Slurm's form. Return false if `text` has another form or more than HOST_LIST_MAX hosts. */
bool host_list_slurm(const char *text, struct host_list *out);

/* Parse a list of names. If `counted` is true, a number follows each name. Find `here`, the name of this host. Names
 * are compared up to the first dot, because schedulers and hosts may use different domains. Return false if the list
 * has no name or more than HOST_WORDS_MAX names. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out);

/* Return the number of tasks of node number `node` from a text of Slurm such as "4(x3),2". Return 0 if the text does
 * not contain this node or is invalid. */
int host_list_tasks(const char *text, int node);

/* --- lists that users write: --hosts and --hostfile --------------------------------------------------------- */

enum { HOST_COUNT_SIZE = 12 };

struct host_spec {
    /* HOST or USER@HOST. The name never begins with '-', because a remote shell would parse such a name as an
     * option. */
    char name[HOST_NAME_SIZE];
    char count[HOST_COUNT_SIZE]; /* number of workers, "gpu", "cpu" or "auto"; "" if not specified */
    int slots;                   /* sum of the counts in all items of this host; 0 for "gpu", "cpu", "auto" */
    int port;                    /* port of the ssh server; 0 if not given */
};

/* If an item has a single number ("a:8", "a:2222"), a number of at least HOST_PORT_MIN is the port. A smaller number is
 * the count. */
enum { HOST_PORT_MIN = 1024 };

/* Parse --hosts: items [USER@]HOST[:PORT][:COUNT] separated by commas. HOST may contain ranges such as [1-4], as in
 * Slurm's form. An IPv6 address with a port or a count must be in brackets. If an item without a count is repeated,
 * each repetition adds one worker, as for mpirun. After DDP_OK the caller frees *out. After DDP_ERR_ARG, `err` names
 * the item. */
ddp_status host_specs_parse(const char *list, struct host_spec **out, int *n, struct ddp_err *err);

/* Parse the text of a --hostfile. Each line contains items of --hosts, then optionally "slots=N" (Open MPI,
 * DeepSpeed), "user=NAME" (Hydra) and "port=N". Also accept Open MPI's other words, such as "count=N" and
 * "username=NAME". If the line has "slots=N", the number in an item such as "a:22" is a port. '#' begins a comment.
 * After DDP_OK the caller frees *out. After DDP_ERR_ARG, `err` names the line. */
ddp_status host_specs_parse_file(struct slice text, struct host_spec **out, int *n, struct ddp_err *err);

#endif

/* hosts.h -- parses lists of hosts, as schedulers and users write them. All functions are pure. The limits below
 * bound memory and time.
 *
 *     Slurm                 node[01-16,20],gpu3      rack[0-1]n[0-3]      the last bracket varies fastest
 *     LSB_MCPU_HOSTS        hostA 8 hostB 4
 *     LSB_HOSTS, PBS        hostA hostA hostB        a name for each slot, separated by blanks or newlines */
#ifndef LAUNCHER_PLAN_HOSTS_H
#define LAUNCHER_PLAN_HOSTS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>

/* HOST_LIST_MAX: largest number of hosts in a list in Slurm's form
 * HOST_WORDS_MAX: largest number of names in a list, which each cost memory and time */
enum { HOST_NAME_SIZE = 256, HOST_LIST_MAX = 65536, HOST_WORDS_MAX = 4096 };

struct host_list {
    int n; /* different hosts */
    char first[HOST_NAME_SIZE];
    int here; /* index of this host, from 0; -1 if not searched or not found */
};

/* Parse a list in Slurm's form. Return false if `text` has another form or more than HOST_LIST_MAX hosts. */
bool host_list_slurm(const char *text, struct host_list *out);

/* Parse a list of names, with a number after each if `counted`. Find `here`, this host, by the name up to the first
 * dot. Return false without names, or for more than HOST_WORDS_MAX. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out);

/* Return the number of tasks of node `node` from Slurm's "4(x3),2", or 0. */
int host_list_tasks(const char *text, int node);

/* --- lists that users write: --hosts and --hostfile --------------------------------------------------------- */

enum { HOST_COUNT_SIZE = 12 };

struct host_spec {
    /* HOST or USER@HOST; never begins with '-', which a remote shell would parse as an option */
    char name[HOST_NAME_SIZE];
    char count[HOST_COUNT_SIZE]; /* number of workers, "gpu", "cpu" or "auto"; "" if not given */
    int slots;                   /* sum of the counts of this host; 0 for words */
    int port;                    /* port of the ssh server; 0 if not given */
};

/* A single number of an item ("a:8", "a:2222") is a port from HOST_PORT_MIN on, else the count. */
enum { HOST_PORT_MIN = 1024 };

/* Parse --hosts: items [USER@]HOST[:PORT][:COUNT] separated by commas. After DDP_OK, the caller frees *out. After
 * DDP_ERR_ARG, `err` names the item.
 *
 *   - HOST may contain ranges such as [1-4], as in Slurm's form.
 *   - An IPv6 address with a port or a count must be in brackets.
 *   - A repeated item without a count adds one worker, as for mpirun. */
ddp_status host_specs_parse(const char *list, struct host_spec **out, int *n, struct ddp_err *err);

/* Parse the text of a --hostfile. After DDP_OK, the caller frees *out. After DDP_ERR_ARG, `err` names the line.
 *
 *   - A line has items of --hosts, then "slots=N" (Open MPI, DeepSpeed), "user=NAME" (Hydra) or "port=N".
 *   - Open MPI's other words, such as "count=N" and "username=NAME", are accepted.
 *   - With "slots=N", the number in an item such as "a:22" is a port.
 *   - '#' begins a comment. */
ddp_status host_specs_parse_file(struct slice text, struct host_spec **out, int *n, struct ddp_err *err);

#endif

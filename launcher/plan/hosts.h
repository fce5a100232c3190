/* hosts.h -- the hosts of a job, as schedulers write them. Pure, and bounded: what is too long is refused.
 *
 *     Slurm                 node[01-16,20],gpu3      rack[0-1]n[0-3]      the last brackets count fastest
 *     LSB_MCPU_HOSTS        hostA 8 hostB 4
 *     LSB_HOSTS, PBS        hostA hostA hostB        a name for each slot, between blanks or newlines */
#ifndef LAUNCHER_PLAN_HOSTS_H
#define LAUNCHER_PLAN_HOSTS_H

#include <stdbool.h>

enum { HOST_NAME_SIZE = 256, HOST_LIST_MAX = 65536, HOST_WORDS_MAX = 4096 };

/* A launcher's facts of a list. */
struct host_list {
    int n; /* different hosts */
    char first[HOST_NAME_SIZE];
    int here; /* the position of this host, from 0; -1 = it is missing, or was not searched */
};

/* False: `text` is no such list, or names more than HOST_LIST_MAX. */
bool host_list_slurm(const char *text, struct host_list *out);

/* `counted`: each name is followed by a number. `here` is this host's name; the part of two names before the first
 * dot is compared, because schedulers and hosts do not agree about the domain. False: no name, or more than
 * HOST_WORDS_MAX. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out);

/* Host number `index` of a list in Slurm's form. False without one. */
bool host_list_slurm_at(const char *text, int index, char name[HOST_NAME_SIZE]);

/* Slurm's "4(x3),2": how many tasks node number `node` has; 0 when the text does not say. */
int host_list_tasks(const char *text, int node);

#endif

/* hosts.h -- the hosts of a job, as schedulers write them. Pure and bounded: lists that are too long are rejected.
 *
 *     Slurm                 node[01-16,20],gpu3      rack[0-1]n[0-3]      the last brackets count fastest
 *     LSB_MCPU_HOSTS        hostA 8 hostB 4
 *     LSB_HOSTS, PBS        hostA hostA hostB        a name for each slot, between blanks or newlines */
#ifndef LAUNCHER_PLAN_HOSTS_H
#define LAUNCHER_PLAN_HOSTS_H

#include <stdbool.h>

enum { HOST_NAME_SIZE = 256, HOST_LIST_MAX = 65536, HOST_WORDS_MAX = 4096 };

/* The facts about a list that a launcher needs. */
struct host_list {
    int n; /* different hosts */
    char first[HOST_NAME_SIZE];
    int here; /* the position of this host, from 0; -1 = it is missing, or was not searched */
};

/* Return false if `text` is not such a list or names more than HOST_LIST_MAX. */
bool host_list_slurm(const char *text, struct host_list *out);

/* `counted`: each name is followed by a number. `here` is this host's name; the part of two names before the first
 * dot is compared, because schedulers and hosts do not agree about the domain. Return false for no name or more than
 * HOST_WORDS_MAX. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out);

/* Return host number `index` of a list in Slurm's form; false if there is none. */
bool host_list_slurm_at(const char *text, int index, char name[HOST_NAME_SIZE]);

/* Return the number of tasks of node number `node` in Slurm's "4(x3),2"; 0 if the text does not have it. */
int host_list_tasks(const char *text, int node);

#endif

/* link_say.h -- what the agent tells the store, as JSON objects of CONTROL. Each is the caller's to free with
 * cJSON_Delete; one that lacks a member because memory is short is refused by the store, which says what it lacks. */
#ifndef LAUNCHER_LINK_SAY_H
#define LAUNCHER_LINK_SAY_H

#include "agent/cause.h"
#include "agent/agent.h"
#include "diagnosis/findings.h"
#include "plan/plan.h"

struct cJSON;

/* Who this process is: "launched twice on one node" and "yesterday's launcher" are told apart by it. */
struct link_who {
    int pid;
    uint64_t pid_start;
    const char *boot_id; /* borrowed */
    char own[64];        /* our end of the connection to the store, "" = of no interest */
};

/* `instance`: what the store gave with the first join, "" before that. */
struct cJSON *say_join(const struct plan *plan, const struct link_who *who, const char *instance);

/* A finding of this node about itself, for all. */
struct cJSON *say_notice(const struct finding *finding);

struct cJSON *say_started(int rank, int local_rank, int pid, const char *host);
struct cJSON *say_exited(int rank, int pid, int exit_code, int signal);

/* `op` is "failed" or, with more words about the same failure, "cause". */
struct cJSON *say_failure(const char *op, const struct cause *cause, enum no_restart never_again);

/* `rank0` -1 = this node does not have rank 0, or it has no code of its own. */
struct cJSON *say_stopped(bool unkillable, int max_code, int rank0);
struct cJSON *say_leave(int signal, const char *by);

/* The connection `conn` is of process `pid`, which belongs to worker `rank`. */
struct cJSON *say_vouch(int64_t conn, int rank, int pid);
struct cJSON *say_owner(int64_t conn, int pid, const char *words);

/* An object with nothing but an "op". */
struct cJSON *say(const char *op);

#endif

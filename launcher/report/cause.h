/* cause.h -- the facts about a finished job, and sentences about its first failure. Functions that append to `out`
 * append nothing for a missing fact, and return false when memory is short. */
#ifndef LAUNCHER_REPORT_CAUSE_H
#define LAUNCHER_REPORT_CAUSE_H

#include "contain/procfs.h"
#include "agent/agent.h"
#include "base/buf.h"
#include "base/limits.h"
#include "contain/descendants.h"
#include "diagnosis/findings.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "report/evidence.h"
#include "report/exit_text.h"
#include "report/host_checks.h"
#include "report/spawn_error.h"
#include "tables/signals.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct cJSON;
struct loss;

/* Free space of the file system of `path`. */
struct disk_room {
    char path[PATH_MAX]; /* path in the error message, or a name such as "/dev/shm" */
    /* free for users other than root; `inodes` may be UINT64_MAX: no limit */
    uint64_t bytes, inodes;
};

enum { ROOMS_MAX = 3 };

/* A write error of a worker: a file system is full or a quota is used up. */
struct full_disk {
    char path[PATH_MAX]; /* file that the error names; "" if unknown */
    bool is_quota;
    int n_rooms;
    struct disk_room rooms[ROOMS_MAX]; /* disks where the file is or may be; none for a quota */
    char quota[QUOTA_SHOWN];           /* text after `path` in the hint: file system and quota */
};

/* A failed attempt, on any node. All times are in ms, by this agent's clock. */
struct failed_attempt {
    int attempt; /* from 0 */
    struct failure failure;
    enum worker_verdict verdict;  /* of the worker that failed first */
    uint64_t started_ms;          /* start of the attempt */
    uint64_t worker_started_ms;   /* start of the failed worker; `started_ms` for another node's */
    uint64_t failed_ms, ended_ms; /* first failure, and end of the attempt */
    int64_t step;                 /* last reported step; -1 if unknown */
};

/* How this node lost the store, if the loss ended the job. */
struct store_end {
    const char *how;    /* such as "the store closed the connection"; NULL without a loss */
    const char *node;   /* place of the store, such as " on node 0 (n0)"; "" or NULL if unknown */
    const char *advice; /* remedy of the loss's finding; "" or NULL without a finding */
    const char *code;   /* code of the loss's finding; "" or NULL without a finding */
};

/* The store's report about a rank that left while others waited, or about a broken connection. */
struct left_early {
    const char *subject;    /* such as "rank 0 (n1, pid 7)"; "" or NULL if unknown */
    const char *sentence;   /* "rank 0 (n1, pid 7) ended with 0 while rank 1 waited..."; may be "" or NULL */
    enum finding_code code; /* RANK_EXITED_EARLY, INIT_ABANDONED or CONNECTION_BROKE */
};

/* The facts about a finished job, all borrowed. */
struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* indexed by local rank; each may be NULL */
    uint64_t started_ms, ended_ms;                  /* start and end of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock at ended_ms */
    const struct received_signal *stop;             /* the user's signal to stop the job; may be NULL */
    int utc_offset_s;                               /* of the local time zone, for printed times */
    bool explain;                                   /* the last line names `ddprun explain CODE` */
    bool colour;                                    /* print colours; true if the text goes to a terminal */
    const struct program_file *file;                /* file that could not be started; may be NULL */
    const char *path;                               /* PATH of the workers */
    const char *python;                     /* Python that ran the workers; NULL if unknown or unused */
    const struct worker_evidence *evidence; /* end of the worker that failed first; NULL if unknown */
    const struct full_disk *full;           /* full disk; NULL if unknown */
    const struct error_text *error;         /* error file of the first failure; may be NULL */
    const struct failure *elsewhere;        /* first failure if on another node; else NULL */
    const struct failed_attempt *failed;    /* n_failed attempts, the latest last */
    size_t n_failed;
    int64_t best_step; /* highest step of all attempts; -1 if unknown */
    struct store_end store;
    struct left_early left;
    const struct finding *hang; /* finding that the last attempt hung; may be NULL */
    const struct finding *gpus; /* n_gpus findings about GPUs of this node or of the failed worker */
    int n_gpus;
    const struct gpu_answer *gpu_answer; /* the driver's answer about the worker's GPU; may be NULL */
    const struct stuck *stuck;           /* n_stuck processes that cannot be killed */
    size_t n_stuck;
    const struct cJSON *stacks; /* stacks at the first failure, see record/stacks.h; may be NULL */
    const char *flights;        /* pattern of the flight records, for flight_path(); may be NULL */
    const struct loss *lost;    /* n_lost targets that lost output */
    size_t n_lost;
    const char *error_trouble; /* why the error file could not be read; may be NULL */
};

/* Return the local rank of the worker that failed first, or -1 if none is on this node. */
int cause_first(const struct report *r);

/* Return the worker that failed first, or NULL if none is on this node. */
const struct agent_worker *cause_worker(const struct report *r);

/* Return the record of the job's first failure, or NULL if nothing failed. A record of this node is built in `room`,
 * without the worker's last lines. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* Return true if no worker of this node was ever started. */
bool cause_never_began(const struct report *r);

/* Append the first sentence of the report, without a newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Append why the job ended, unless the headline already contains the reason. */
bool cause_why(const struct report *r, struct buf *out);

/* Append the remedy. */
bool cause_remedy(const struct report *r, struct buf *out);

/* Append where the core file is, or the reason why it is missing. */
bool cause_core(const struct report *r, struct buf *out);

/* Append the last `max` lines of the failed worker's stderr, or of stdout if it is empty, and set *from_stdout. Return
 * the number of lines. Only the visible text of a progress bar is kept. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* Find an error about a full file system or quota, and set `path` and `is_quota`. Return false if there is no such
 * error. */
bool cause_full_disk(const struct report *r, struct full_disk *full);

/* Return true if the hint says that another process may use the worker's GPU. */
bool cause_is_gpu_in_use(const struct report *r);

/* Append a sentence that explains the error file or the last lines. */
bool cause_hint(const struct report *r, struct buf *out);

/* Return the wall clock, in ms since 1970, for `ms` of the agent's clock. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* Return true if `f` is only a victim. The headline then names the rank that exited early, or the broken connection. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* Return true if --on_hang has ended the attempt because of r->hang. */
bool cause_is_hang(const struct report *r);

/* Return true if --hosts has ended the job because of a finding about a host. */
bool cause_is_host(const struct report *r);

/* Return true if r->left is a finding with this code. */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Append r->left.sentence and the finding code. */
bool cause_append_left(const struct report *r, struct buf *out);

/* Return the finding code of the headline, such as "WORKER_FAILED", or NULL. */
const char *cause_code_name(const struct report *r, const struct failure *f);

/* --- common last lines of workers, and their meaning ------------------------------------------------------- */

/* Return true if the lines report that a peer of a PyTorch process group (Gloo, NCCL) is gone. */
bool hint_is_of_lost_rank(struct slice last_lines);

/* Return a hash of the error's line if Python ended with an import or syntax error, else 0. If all ranks have the same
 * hash, a restart would repeat the error. */
uint64_t hint_import_error(struct slice last_lines);

#endif

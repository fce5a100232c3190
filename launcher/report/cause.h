/* cause.h -- the facts about a finished job, and sentences about its first failure: headline, reason, remedy, last
 * lines and hints. Functions that append to `out` append nothing if a fact is missing, and return false when
 * memory is short. */
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
    /* free space for users other than root; `inodes` is UINT64_MAX if the file system has no limit of inodes */
    uint64_t bytes, inodes;
};

enum { ROOMS_MAX = 3 };

/* An error of a worker that could not write, because a file system is full or a quota is used up. */
struct full_disk {
    char path[PATH_MAX]; /* path of the file that the error names; "" if the error names no file */
    bool is_quota;
    int n_rooms;
    struct disk_room rooms[ROOMS_MAX]; /* disks on which the file is or may be; empty after a quota error */
    char quota[QUOTA_SHOWN]; /* text that follows `path` in the hint: the file system and its quota */
};

/* An attempt that has failed, on any node. All times are in ms, by this agent's clock. */
struct failed_attempt {
    int attempt; /* from 0 */
    struct failure failure;
    enum worker_verdict verdict;  /* verdict of the worker that failed first */
    uint64_t started_ms;          /* start of the attempt */
    uint64_t worker_started_ms;   /* start of the failed worker; `started_ms` for another node's worker */
    uint64_t failed_ms, ended_ms; /* time of the failure, and time of the attempt's end */
    int64_t step;                 /* last step that the workers reported; -1 if they reported no step */
};

/* How this node lost its connection to the store, if the loss ended the job on this node. The texts are borrowed, like
 * all facts of struct report. */
struct store_end {
    const char *how;    /* what happened, such as "the store closed the connection"; NULL without a loss */
    uint64_t lost_ms;   /* when this happened, by the agent's clock */
    const char *node;   /* where the store was, for example " on node 0 (n0)"; "" or NULL if unknown */
    const char *advice; /* remedy of the finding that explains the loss; "" or NULL without a finding */
    const char *code;   /* code of the finding that explains the loss; "" or NULL without a finding */
};

/* The store's report about a rank that left while other ranks waited for this rank, or about a broken connection. The
 * texts are borrowed, too. */
struct left_early {
    const char *subject;    /* "rank 0 (n1, pid 7)", the subject of the finding; "" or NULL if unknown */
    const char *sentence;   /* "rank 0 (n1, pid 7) ended with 0 while rank 1 waited..."; may be "" or NULL */
    enum finding_code code; /* RANK_EXITED_EARLY, INIT_ABANDONED or CONNECTION_BROKE */
};

/* The facts about a finished job. The report owns none of its members. */
struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* each is NULL or an array indexed by local rank */
    uint64_t started_ms, ended_ms;                  /* start and end of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock at ended_ms */
    const struct received_signal *stop; /* the signal by which the user stopped the job; may be NULL */
    int utc_offset_s;                   /* offset of the local time zone, for printed times */
    bool explain;                       /* the report's last line names the command `ddprun explain CODE` */
    bool colour;                        /* print colours; true if the text goes to a terminal */
    const struct program_file *file;    /* the file that could not be started; may be NULL */
    const char *path;                   /* PATH of the workers, printed if the program was not found */
    const char *python; /* path of the Python that ran the workers; NULL if unknown, or if no Python ran */
    const struct worker_evidence *evidence; /* how the worker that failed first ended; NULL if unknown */
    const struct full_disk *full;           /* the full disk and the file on it; NULL if not known */
    const struct error_text *error;         /* error file of the first failure; may be NULL */
    const struct failure *elsewhere;        /* the first failure if it was not on this node; else NULL */
    const struct failed_attempt *failed;    /* array of n_failed attempts; the latest is last */
    size_t n_failed;
    int64_t best_step; /* highest step of all attempts; -1 if no step was reported */
    struct store_end store;
    struct left_early left;
    const struct finding *hang; /* the store's finding that the last attempt hung; may be NULL */
    const struct finding *gpus; /* array of n_gpus findings about GPUs of this node or of the failed worker */
    int n_gpus;
    const struct gpu_answer *gpu_answer; /* the driver's answer about the worker's GPU; NULL if not asked */
    const struct stuck *stuck;           /* array of n_stuck processes that cannot be killed */
    size_t n_stuck;
    const struct cJSON *stacks; /* stacks at the first failure, see record/stacks.h; may be NULL */
    const char *flights;        /* pattern of the flight records for flight_path(); may be NULL */
    const struct loss *lost;    /* array of n_lost targets that lost output */
    size_t n_lost;
    const char *error_trouble; /* why the error file could not be read; NULL if there was no problem */
};

/* Return the local rank of the worker that failed first, or -1 if no worker of this node failed first. */
int cause_first(const struct report *r);

/* Return the worker that failed first, or NULL if no worker of this node failed first. The agent owns the worker. */
const struct agent_worker *cause_worker(const struct report *r);

/* Return the record of the job's first failure, or NULL if nothing failed. If a worker of this node failed first, build
 * the record in `room`, without the worker's last lines. Any other record is borrowed from `r`. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* Return true if no worker of this node was ever started. */
bool cause_never_began(const struct report *r);

/* Append the first sentence of the report, without a newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Append why the job ended, unless the headline already contains the reason. */
bool cause_why(const struct report *r, struct buf *out);

/* Append the remedy for the first failure, or nothing if no remedy is known. */
bool cause_remedy(const struct report *r, struct buf *out);

/* Append where the core file is, or the reason why it is missing. */
bool cause_core(const struct report *r, struct buf *out);

/* Append the last `max` lines of the failed worker's stderr. If stderr is empty, append lines of stdout instead. Set
 * *from_stdout to true for lines of stdout, else to false. Each line ends with a newline. Only the visible text of a
 * progress bar is kept. Return the number of lines. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* Find an error about a full file system or quota in the error file or the last lines, and set `path` and `is_quota`.
 * Return false if these texts contain no such error. */
bool cause_full_disk(const struct report *r, struct full_disk *full);

/* Return true if the hint of cause_hint says that another process may use the worker's GPU. */
bool cause_is_gpu_in_use(const struct report *r);

/* Append a sentence that explains the error file or the last lines. */
bool cause_hint(const struct report *r, struct buf *out);

/* Return the wall clock, in ms since 1970, for a time of the agent's clock. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* Return true if `f` is only a victim of another failure. The headline then names the rank that exited too early,
 * or the broken connection. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* Return true if --on_hang has ended the attempt because of r->hang. The headline is then the sentence of r->hang. */
bool cause_is_hang(const struct report *r);

/* Return true if --hosts has ended the job because of a finding about a host. */
bool cause_is_host(const struct report *r);

/* Return true if r->left contains a finding with this code. The store sends such a finding after a rank left or a
 * connection broke. */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Append r->left.sentence, which the store has sent, and the finding code. */
bool cause_append_left(const struct report *r, struct buf *out);

enum { CAUSE_NUMBER_MAX = 12 }; /* size of an exit code as text, in bytes, with the NUL */

/* Return the code with which `ddprun explain` explains the job's end, for example "WORKER_FAILED". `f` is the job's first
 * failure, or NULL. Without a finding, return the exit code as text, in `number`. Return NULL if the exit code is 0. The
 * text is constant, or borrowed from `r`, `f` and `number`. */
const char *cause_code_name(const struct report *r, const struct failure *f, char number[CAUSE_NUMBER_MAX]);

/* --- common last lines of workers, and their meaning ------------------------------------------------------- */

/* Return true if the lines report that a peer of a PyTorch process group (Gloo, NCCL) is gone. */
bool hint_is_of_lost_rank(struct slice last_lines);

/* Return a hash of the error's line if Python ended with an import or syntax error, else 0. If the hashes of all
 * ranks are equal, a restart would repeat the error. */
uint64_t hint_import_error(struct slice last_lines);

#endif

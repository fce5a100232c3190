/* cause.h -- the record of a finished job, and the sentences about its first failure: the headline, the reason, the
 * remedy, the last lines and their meaning. Functions that append to `out` append nothing when a fact is missing, and
 * return false when memory is short. */
#ifndef LAUNCHER_REPORT_CAUSE_H
#define LAUNCHER_REPORT_CAUSE_H

#include "agent/agent.h"
#include "base/buf.h"
#include "contain/descendants.h"
#include "diagnosis/findings.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "report/evidence.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"
#include "tables/signals.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct cJSON;
struct loss;

/* Free space of the file system of a file that a worker could not write. */
struct disk_room {
    char path[PATH_MAX];
    uint64_t bytes, inodes;
};

/* A failed attempt, on any node. */
struct failed_attempt {
    int attempt; /* from 0 */
    struct failure failure;
    enum worker_verdict verdict;
    uint64_t started_ms, worker_started_ms, failed_ms, ended_ms;
    int64_t step; /* steps that the workers reported; -1 = none reported */
};

/* How the store was lost, if that ended this node's job. */
struct store_end {
    const char *how;    /* NULL = the store was not lost */
    const char *node;   /* " on node 0 (n0)", its place; "" or NULL = not known */
    const char *advice; /* the remedy, when `how` gives the whole reason; "" or NULL */
    const char *code;   /* ... and that finding's code; "" or NULL */
};

/* A rank that left while others waited for it, or a connection that broke while all ranks lived. */
struct left_early {
    const char *subject;    /* "rank 0 (n1, pid 7)"; "" or NULL */
    const char *sentence;   /* "rank 0 (n1, pid 7) ended with 0 while rank 1 waited ..."; "" or NULL */
    enum finding_code code; /* RANK_EXITED_EARLY, INIT_ABANDONED or CONNECTION_BROKE */
};

/* All members are borrowed. */
struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* by local rank, nproc of each; either may be NULL */
    uint64_t started_ms, ended_ms;                  /* of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock at ended_ms */
    const struct signal_heard *stop; /* the user's request to stop and who sent it; NULL = none */
    int utc_offset_s;                /* offset of the local time that is shown */
    bool explain;                    /* the last line mentions `ddprun explain` */
    bool colour;                     /* the text goes to a terminal */
    const struct program_look
        *look;          /* what lies at the path of the command that could not be started, or NULL */
    const char *path;   /* the worker's PATH, for "not found" */
    const char *python; /* path of the Python that ran the workers; NULL = not known */
    const struct worker_evidence *evidence; /* evidence about the first failure, or NULL */
    const struct disk_room *room;           /* of the file in its last lines, or NULL */
    const struct error_text *error;         /* from the first failure's error file, or NULL */
    const struct failure *elsewhere; /* the first cause, when it is not a worker of this node; else NULL */
    const struct failed_attempt *failed; /* n_failed of them, the latest last */
    size_t n_failed;
    int64_t best_step; /* of all attempts, -1 = no worker reported one */
    struct store_end store;
    struct left_early left;
    const struct finding *hang; /* the verdict of the store on a hang of the last attempt; NULL = none */
    const struct stuck *stuck;  /* processes that cannot be killed, n_stuck of them */
    size_t n_stuck;
    const struct cJSON
        *stacks; /* of the survivors when the first failure was seen: rows of record/stacks.h; NULL = none */
    const char *flights; /* where ranks have written their last calls: see flight_path(); NULL = nowhere */
    const struct loss *lost; /* output that could not be written, n_lost places */
    size_t n_lost;
    const char *error_trouble; /* why that file could not be read, or NULL */
};

/* Return the local rank of the first failure, -1 when no worker of this node failed first. */
int cause_first(const struct report *r);

/* Return that worker; NULL = none. */
const struct agent_worker *cause_worker(const struct report *r);

/* Return the record of the first failure, on any node. For a worker of this node it is filled into `room`, without
 * its last lines. NULL = no failure. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* True if no worker of this node was ever started: the job ended, or never formed, without it. */
bool cause_never_began(const struct report *r);

/* Append the sentence that begins the report, without newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Append the reason for the end, if the headline lacks it, and the remedy. */
bool cause_why(const struct report *r, struct buf *out);
bool cause_remedy(const struct report *r, struct buf *out);
bool cause_core(const struct report *r, struct buf *out);

/* The last `max` lines of the first failure's stderr, or of its stdout when that is empty; *from_stdout says which. Each
 * ends with a newline; of a progress bar only the text visible at the end is kept. Return how many. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* Find the path of hint_full_path in the last lines, or in the error file. */
bool cause_full_path(const struct report *r, char path[PATH_MAX]);

/* Append a sentence about the meaning of the last lines. */
bool cause_hint(const struct report *r, struct buf *out);

/* Return the wall clock for a time of the agent's clock, in ms since 1970. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* True if the headline, of failure `f`, is about a worker that ended with 0 too early, or a broken connection. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* True if a rank left in this way while others waited for it. */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Append that finding with its code. */
bool cause_put_left(const struct report *r, struct buf *out);

/* Return the finding of the headline, "WORKER_FAILED", of failure `f`; NULL = none. */
const char *cause_code_name(const struct report *r, const struct failure *f);

/* --- common last lines of workers, and their meaning ------------------------------------------------------- */

/* Facts besides the text that decide about a hint. Zeroed: nothing is known, no option is set. */
struct hint_facts {
    const char *python;                     /* the Python that ran the worker; borrowed, NULL = not known */
    bool no_gpu;                            /* this machine has no GPU */
    bool rank0_store;                       /* --torch_store=rank0 is in force, */
    bool standalone;                        /* and --standalone */
    bool gloo_interface;                    /* GLOO_SOCKET_IFNAME is set */
    const struct worker_evidence *evidence; /* its limits; borrowed, NULL = not known */
    const struct disk_room *room;           /* borrowed, NULL = not known */
};

/* Find the absolute path in "No space left on device: '/data/x'", or in "write '/data/x': Disk quota exceeded". */
bool hint_full_path(struct slice last_lines, char path[PATH_MAX]);

/* Append the hint for the last line that has one; append nothing if its remedy is already in use. False when memory
 * is short. */
bool hint_for(struct slice last_lines, const struct hint_facts *facts, struct buf *out);

/* True if a process group of PyTorch (Gloo, NCCL) reports in these lines that its peer is gone. */
bool hint_is_of_lost_rank(struct slice last_lines);

/* If Python ended with an ImportError, ModuleNotFoundError or SyntaxError, or with "No module named" of -m, return a
 * number that is the same for equal messages and not 0; else 0. */
uint64_t hint_import_error(struct slice last_lines);

#endif

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
    int64_t step; /* the step that the workers reached; -1 = no step reported */
};

/* How the store was lost, if that ended this node's job. */
struct store_end {
    const char *how;    /* NULL = the store was not lost */
    const char *node;   /* " on node 0 (n0)": where the store was; "" or NULL = not known */
    const char *advice; /* the remedy, if a finding explains the loss; "" or NULL */
    const char *code;   /* the code of that finding; "" or NULL */
};

/* A rank that left while other ranks waited for it, or a connection that broke while all ranks lived. */
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
    const struct signal_heard *stop;        /* the user's request to stop and its sender; NULL = none */
    int utc_offset_s;                       /* offset of the local time zone from UTC, for printed times */
    bool explain;                           /* the last line mentions `ddprun explain` */
    bool colour;                            /* the text goes to a terminal */
    const struct program_look *look;        /* the file of the command that could not be started, or NULL */
    const char *path;                       /* the worker's PATH, for "not found" */
    const char *python;                     /* path of the Python that ran the workers; NULL = not known */
    const struct worker_evidence *evidence; /* evidence about the first failure, or NULL */
    const struct disk_room
        *room; /* space for the file that the last lines of the first failure name, or NULL */
    const struct error_text *error;  /* content of the first failure's error file, or NULL */
    const struct failure *elsewhere; /* the first cause, when it is not a worker of this node; else NULL */
    const struct failed_attempt *failed; /* n_failed attempts, the latest last */
    size_t n_failed;
    int64_t best_step; /* the highest step of all attempts; -1 = no worker reported one */
    struct store_end store;
    struct left_early left;
    const struct finding *hang; /* the verdict of the store on a hang of the last attempt; NULL = none */
    const struct stuck *stuck;  /* n_stuck processes that cannot be killed */
    size_t n_stuck;
    const struct cJSON *stacks; /* stacks of the survivors of the first failure; NULL = none */
    const char *flights;     /* path of the ranks' records of their calls: see flight_path(); NULL = none */
    const struct loss *lost; /* n_lost targets whose output could not be written */
    size_t n_lost;
    const char *error_trouble; /* why the error file could not be read, or NULL */
};

/* Return the local rank of the first failure, or -1 if no worker of this node failed first. */
int cause_first(const struct report *r);

/* Return the worker that failed first, or NULL if no worker of this node failed first. */
const struct agent_worker *cause_worker(const struct report *r);

/* Return the record of the first failure on any node, or NULL without a failure. For a worker of this node, fill in
 * and return `room`, whose last lines stay empty. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* Return true if no worker of this node was ever started, because the job ended before or never formed. */
bool cause_never_began(const struct report *r);

/* Append the first sentence of the report, without newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Append the reason for the end, unless the headline already contains it. */
bool cause_why(const struct report *r, struct buf *out);

/* Append the remedy. */
bool cause_remedy(const struct report *r, struct buf *out);

/* Append the place of the core file, or the reason why the core file is missing. */
bool cause_core(const struct report *r, struct buf *out);

/* Append the last `max` lines of the first failure's stderr, or of its stdout when stderr is empty, and set
 * *from_stdout. Each line ends with a newline. Of a progress bar only the text that is visible at the end is kept.
 * Return the number of lines. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* Find the path of a full file system (see hint_full_path) in the error file or in the last lines. */
bool cause_full_path(const struct report *r, char path[PATH_MAX]);

/* Append a sentence that explains the last lines. */
bool cause_hint(const struct report *r, struct buf *out);

/* Return the wall clock for a time of the agent's clock, in ms since 1970. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* Return true if the headline for failure `f` is about a rank that exited with 0 too early, or about a broken
 * connection, instead of `f` itself. */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* Return true if the store has reported that a rank left, or that a connection broke, with this finding code. */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Append the sentence of `left` with its code. */
bool cause_put_left(const struct report *r, struct buf *out);

/* Return the code of the headline's finding for failure `f`, for example "WORKER_FAILED", or NULL if the headline has
 * no finding. */
const char *cause_code_name(const struct report *r, const struct failure *f);

/* --- common last lines of workers, and their meaning ------------------------------------------------------- */

/* Facts besides the text that decide about a hint. In a zeroed struct no fact is known, and no option is set. */
struct hint_facts {
    const char *python;                     /* the Python that ran the worker; borrowed, NULL = not known */
    bool no_gpu;                            /* this machine has no GPU */
    bool rank0_store;                       /* --torch_store=rank0 is in force */
    bool standalone;                        /* --standalone is set */
    bool gloo_interface;                    /* GLOO_SOCKET_IFNAME is set */
    const struct worker_evidence *evidence; /* the limits of the worker; borrowed, NULL = not known */
    const struct disk_room *room;           /* borrowed, NULL = not known */
};

/* Find the absolute path in "No space left on device: '/data/x'", or in "write '/data/x': Disk quota exceeded". */
bool hint_full_path(struct slice last_lines, char path[PATH_MAX]);

/* Append the hint for the last line that matches a row of the table. Append nothing if no row matches. Return false
 * when memory is short. */
bool hint_for(struct slice last_lines, const struct hint_facts *facts, struct buf *out);

/* Return true if these lines contain the message of a PyTorch process group (Gloo, NCCL) that its peer is gone. */
bool hint_is_of_lost_rank(struct slice last_lines);

/* Return a number other than 0, equal for equal messages, if Python ended with an ImportError, ModuleNotFoundError or
 * SyntaxError, or with "No module named" of -m. Otherwise return 0. */
uint64_t hint_import_error(struct slice last_lines);

#endif

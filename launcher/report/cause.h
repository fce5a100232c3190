/* cause.h -- the record of a finished job, and the sentences about its first failure: the headline, the reason, the
 * remedy, the last lines and their meaning. Functions that append to `out` append nothing when a fact is missing, and
 * return false when memory is short. */
#ifndef LAUNCHER_REPORT_CAUSE_H
#define LAUNCHER_REPORT_CAUSE_H

#include "agent/agent.h"
#include "agent/failure.h"
#include "base/buf.h"
#include "contain/descendants.h"
#include "diagnosis/findings.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "report/evidence.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"
#include "tables/signals.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;
struct loss;

/* An attempt that has failed, on whichever node. */
struct failed_attempt {
    int attempt; /* from 0 */
    struct failure failure;
    enum worker_verdict verdict;
    uint64_t started_ms, worker_started_ms, failed_ms, ended_ms;
    int64_t step; /* how far the workers came by their own account; -1 = not told */
};

/* How the store was lost, when that is the end of this node's job. */
struct store_end {
    const char *how;    /* NULL = it was not */
    const char *node;   /* " on node 0 (n0)", where it was; "" or NULL = not known */
    const char *advice; /* what to do, when `how` says all about why; "" or NULL */
    const char *code;   /* ... and that finding's code; "" or NULL */
};

/* A rank that left while others waited for it. */
struct left_early {
    const char *subject;    /* "rank 0 (n1, pid 7)"; "" or NULL */
    const char *sentence;   /* "rank 0 (n1, pid 7) ended with 0 while rank 1 waited ..."; "" or NULL */
    enum finding_code code; /* RANK_EXITED_EARLY, or INIT_ABANDONED */
};

/* All of it is borrowed. */
struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* by local rank, nproc of each; either may be NULL */
    uint64_t started_ms, ended_ms;                  /* of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock of ended_ms */
    const struct signal_heard *stop;        /* the user's request to stop and who sent it; NULL = none */
    int utc_offset_s;                       /* of the local time that is shown */
    bool explain;                           /* the last line mentions `ddprun explain` */
    bool colour;                            /* the text goes to a terminal */
    const struct program_look *look;        /* at the command that could not be started, or NULL */
    const char *path;                       /* the worker's PATH, for "not found" */
    const char *python;                     /* that ran the workers: a path; NULL = not known */
    const struct worker_evidence *evidence; /* about the first failure, or NULL */
    const struct error_text *error;         /* from the first failure's error file, or NULL */
    const struct failure *elsewhere;     /* the first cause, when it is no worker of this node; else NULL */
    const struct failed_attempt *failed; /* n_failed of them, the latest last */
    size_t n_failed;
    int64_t best_step; /* of all attempts, -1 = no worker told */
    struct store_end store;
    struct left_early left;
    const struct stuck *stuck; /* what cannot be killed, n_stuck of them */
    size_t n_stuck;
    const struct cJSON
        *stacks; /* of the survivors when the first failure was seen: rows of base/stacks.h; NULL = none */
    const char *flights;     /* where ranks have left their last calls: see flight_path(); NULL = nowhere */
    const struct loss *lost; /* output that is missing somewhere, n_lost of them */
    size_t n_lost;
    const char *error_trouble; /* why that file could not be read, or NULL */
};

/* Local rank of the first failure, -1 when none failed, or first a worker of another node. */
int cause_first(const struct report *r);

/* That worker; NULL = none. */
const struct agent_worker *cause_worker(const struct report *r);

/* The record of the first failure, wherever it was: one of this node is filled into `room`, without its last lines. NULL = there
 * is none. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* Has no worker of this node ever been asked for? The job ended, or never came together, without it. */
bool cause_never_began(const struct report *r);

/* The one sentence that begins the report, without newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Why it ended like that, as far as the headline does not say it, and what helps. */
bool cause_why(const struct report *r, struct buf *out);
bool cause_remedy(const struct report *r, struct buf *out);
bool cause_core(const struct report *r, struct buf *out);

/* The last `max` lines of the first failure's stderr, or of its stdout when that is empty; *from_stdout says which. Each
 * ends with a newline; of a progress bar only what was visible at the end is kept. Returns how many. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* A sentence about what the last lines say. */
bool cause_hint(const struct report *r, struct buf *out);

/* Wall clock of a moment of the agent's clock, in ms since 1970. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* Is the headline, of failure `f`, about a worker that ended with 0 too early? */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* Did a rank leave while others waited for it, in this way? */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Append that finding with its code. */
bool cause_put_left(const struct report *r, struct buf *out);

/* The finding of the headline, "WORKER_FAILED", of failure `f`; NULL = it is none. */
const char *cause_code_name(const struct report *r, const struct failure *f);

/* --- common last lines of workers, and their meaning ------------------------------------------------------- */

/* Facts that decide about a hint besides the text. Zeroed: nothing is known, no option is set. */
struct hint_facts {
    const char *python;  /* the Python that ran the worker; borrowed, NULL = not known */
    bool no_gpu;         /* this machine has none */
    bool rank0_store;    /* --torch_store=rank0 is in force, */
    bool standalone;     /* and --standalone */
    bool gloo_interface; /* GLOO_SOCKET_IFNAME is set */
};

/* Append the hint for the last line that has one; nothing when its remedy is in force already. False when
 * memory is short. */
bool hint_for(struct slice last_lines, const struct hint_facts *facts, struct buf *out);

/* Does a process group of PyTorch (Gloo, NCCL) report in these lines that its peer is gone? */
bool hint_is_of_lost_rank(struct slice last_lines);

/* Does Python end with an ImportError, ModuleNotFoundError or SyntaxError, or with "No module named" of -m? Returns a number
 * that is the same for equal messages and not 0; else 0. */
uint64_t hint_import_error(struct slice last_lines);

#endif

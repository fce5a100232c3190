/* plan_parts.h -- private to the files of the plan.
 *
 * They are the rungs of a ladder: each calls only those below it.
 *
 *     plan.c      decides, in order
 *     plan.c     what does nothing here, and what follows from what was not said
 *     plan.c   where, when and how the nodes meet
 *     worker.c    what a round brings, and where output goes
 *     worker.c       the environment of a worker
 *     plan.c           the plan itself */
#ifndef LAUNCHER_PLAN_PARTS_H
#define LAUNCHER_PLAN_PARTS_H

#include "plan/plan.h"

/* --- plan.c --- */

/* Sentences about options that do nothing here. */
void plan_note_idle(struct plan *plan);

enum { PLAN_RANKS_WORDS = 160 };
/* "--tee names local rank 5, but there are 2 workers on this node (0 to 1)"; false, and no words: all of them are there. */
bool plan_lacks_rank(const struct plan *plan, const char *option, int highest, char words[PLAN_RANKS_WORDS]);

/* --- plan.c --- */

/* Where the nodes meet, what the job is called, and a guess at the first round. False when memory is short. */
bool plan_meet(struct plan *plan);

/* --- worker.c --- */

/* Does any worker need a file? */
bool plan_any_file(const struct plan *plan);

/* The job's own directory for logs. False when memory is short. */
bool plan_log_root(struct plan *plan);

/* DDP_ERR_ARG when log files would need a temporary directory and none is safe. */
ddp_status plan_check_tmp_dir(const struct plan *plan, struct ddp_err *err);

/* --- worker.c --- */

/* What the environments of all workers have in common. */
ddp_status plan_environment(struct plan *plan);

/* Where flight records of the attempt go. False when memory is short. */
bool plan_set_flight(struct plan *plan);

/* --- plan.c --- */

/* New text; NULL when memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A sentence for the user, left out when memory is short. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a round has given the worker; the next one gives it anew. */
void plan_output_free(struct plan_worker *w);

#endif

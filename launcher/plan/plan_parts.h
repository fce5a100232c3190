/* plan_parts.h -- private to the files of the plan: what they do for each other. */
#ifndef LAUNCHER_PLAN_PARTS_H
#define LAUNCHER_PLAN_PARTS_H

#include "plan/plan.h"

/* New text; NULL when memory is short. */
char *plan_text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A sentence for the user, left out when memory is short. */
void plan_note(struct plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sentences about options that do nothing here. */
void plan_note_idle(struct plan *plan);

/* Where the nodes meet, what the job is called, and a guess at the first round. False when memory is short. */
bool plan_meet(struct plan *plan);

/* Does any worker need a file? */
bool plan_any_file(const struct plan *plan);

/* The job's own directory for logs. False when memory is short. */
bool plan_log_root(struct plan *plan);

void plan_output_free(struct plan_worker *w);

#endif

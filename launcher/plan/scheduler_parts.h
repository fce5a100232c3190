/* scheduler_parts.h -- private to the files that read schedulers.
 *
 *     scheduler.c        who is here
 *     scheduler_*.c      ... and what it tells: a reader for each kind
 *     scheduler_tell.c   what the readers have in common */
#ifndef LAUNCHER_SCHEDULER_PARTS_H
#define LAUNCHER_SCHEDULER_PARTS_H

#include "plan/host_list.h"
#include "plan/scheduler.h"

/* Each fills in what its scheduler tells; what it does not tell stays unknown. */
#define X(id, ...) void scheduler_read_##id(struct scheduler *s, const struct scheduler_facts *f);
SCHEDULERS(X)
#undef X

/* --- scheduler_tell.c --- */

/* The option that says the same as a value. */
extern const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT];

/* A variable; NULL when it is not set or empty. Borrowed. */
const char *scheduler_env(const struct scheduler_facts *f, const char *name);

/* The same as a number from 0; -1 when it is not there or no number. */
int scheduler_number(const struct scheduler_facts *f, const char *name);

/* A value, and the variable where it comes from, or words. */
void scheduler_put(struct scheduler *s, enum scheduler_value_id id, const char *text, const char *from, ...)
    __attribute__((format(printf, 4, 5)));
void scheduler_put_number(struct scheduler *s, enum scheduler_value_id id, int number, const char *from, ...)
    __attribute__((format(printf, 4, 5)));

/* A sentence for the user; left out when there is no room. */
void scheduler_note(struct scheduler *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The job's name, and the port that follows from it: 12000 + (a * 31 + b) % 16000, where a and b are the first two numbers in
 * the name. All nodes compute the same, neighbours in the queue get different ones, and it lies below the ports that the
 * kernel gives to connections. */
void scheduler_put_job(struct scheduler *s, const char *job, const char *from);

/* GPUs of this node, by the visible ones or by `count` in `name` where that is less; nothing when neither is there. */
void scheduler_put_gpus(struct scheduler *s, const struct scheduler_facts *f, const char *name);

/* Tasks and nodes in place of nodes: who has `tasks` set, and one worker for each is wanted. */
void scheduler_per_task(struct scheduler *s);

/* How many entries "0,1,3" has. */
int scheduler_entries(const char *text);

#endif

/* torch_watch.h -- hooks behind the requests of PyTorch's ranks: what they do while their process groups come together is
 * noted (torch_notes.h). It decides nothing but when the job is looked at (job_watch.h). */
#ifndef RENDEZVOUS_TORCH_WATCH_H
#define RENDEZVOUS_TORCH_WATCH_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct finding;
struct job;
struct session;

/* A counter has changed, or was read (delta 0). */
void torch_on_add(struct session *s, struct slice key, int64_t delta, int64_t sum);
/* Before the key gets its value. */
void torch_on_set(struct session *s, struct slice key);
/* It waits from now on. Who only goes on waiting for the same has done so since the first time. */
void torch_on_wait(struct session *s);
/* All of these keys (a list for wire_next) were there when it came to wait for them. */
void torch_on_found(struct session *s, struct slice keys);
/* torch_left.c: its connection ends. When it gives up the setup of a group, that is noted with the reason. */
void torch_on_leave(struct session *s);
/* NULL: rank `rank` has given up nothing, or it is long ago. */
const struct finding *torch_given_up(struct job *job, uint32_t rank);

#endif

/* torch_watch.h -- hooks behind the requests of PyTorch's ranks: what they do while their process groups come together is
 * noted (torch_keys.h). It decides nothing but when the job is looked at (job_watch.h). */
#ifndef RENDEZVOUS_TORCH_WATCH_H
#define RENDEZVOUS_TORCH_WATCH_H

#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct finding;
struct hub;
struct job;
struct session;

/* For the stores of all jobs of the hub. */
struct store_observer torch_observer(struct hub *hub);
/* torch_left.c: its connection ends. When it gives up the setup of a group, that is noted with the reason. */
void torch_on_leave(struct session *s);
/* NULL: rank `rank` has given up nothing, or it is long ago. */
const struct finding *torch_given_up(struct job *job, uint32_t rank);

#endif

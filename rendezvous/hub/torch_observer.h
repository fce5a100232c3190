/* torch_observer.h -- hooks behind the requests of PyTorch's ranks: what they do while their process groups come together is
 * noted (torch_keys.h). It decides nothing but when the job is looked at (schedule.h). */
#ifndef RENDEZVOUS_HUB_TORCH_OBSERVER_H
#define RENDEZVOUS_HUB_TORCH_OBSERVER_H

#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct finding;
struct hub;
struct job;
struct session;

/* For the stores of all jobs of the hub. */
struct store_observer torch_observer(struct hub *hub);

#endif

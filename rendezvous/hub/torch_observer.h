/* torch_observer.h -- hooks behind the requests of PyTorch's ranks: what they do while their process groups come together is
 * noted (torch_keys.h). It decides nothing but when the job is looked at (schedule.h). */
#ifndef RENDEZVOUS_HUB_TORCH_OBSERVER_H
#define RENDEZVOUS_HUB_TORCH_OBSERVER_H

struct job;

/* Subscribe to PyTorch's keys in the store of the job. A job whose clients have all introduced themselves has none of them, and its
 * store looks into no key. */
void torch_observe(struct job *job);

#endif

/* reducer_memory.h -- gradients are copied and zeroed where they lie: by the processor, or by the device in the order of the
 * program's stream. What goes wrong there is the end of the reducer's steps. */
#ifndef WORKER_REDUCER_REDUCER_MEMORY_H
#define WORKER_REDUCER_REDUCER_MEMORY_H

#include "reducer/reducer_state.h"

/* Between any memory of the host and of the device. */
void reducer_copy(ddp_reducer *reducer, void *to, const void *from, size_t bytes);

/* Of ddp_shared_alloc. */
void reducer_zero(ddp_reducer *reducer, void *at, size_t bytes);

/* What was copied is there: before memory of the host is freed that took part. */
void reducer_settle(ddp_reducer *reducer);

/* Do gradients lie in the memory of a device? */
static inline bool reducer_on_device(const ddp_reducer *reducer)
{
    return reducer->group->comm->ops->copy != NULL;
}

#endif

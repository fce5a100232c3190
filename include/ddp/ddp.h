/* ddp.h -- libddp, data-parallel training in C. This header includes all public headers.
 *
 * Read in this order: context.h (start and end), group.h (collectives), reducer.h (gradients), sampler.h
 * and loader.h (data), optim.h, amp.h, syncbn.h, zero1.h, ckpt.h, random.h; store.h for direct use of the key-value
 * store. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "ddp/amp.h"
#include "ddp/ckpt.h"
#include "ddp/context.h"
#include "ddp/error.h"
#include "ddp/group.h"
#include "ddp/loader.h"
#include "ddp/optim.h"
#include "ddp/random.h"
#include "ddp/reducer.h"
#include "ddp/sampler.h"
#include "ddp/store.h"
#include "ddp/syncbn.h"
#include "ddp/zero1.h"

#endif

/* library.h -- the words of libddp's last error, for our own error messages. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "ddp/error.h"

/* Hand `status` of a call of libddp on; if it failed, with its words, less the "rank 3: " that main puts in
 * front of all errors anyway. */
ddp_status library(ddp_status status, struct ddp_err *err);

#endif

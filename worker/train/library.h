/* library.h -- the text of libddp's last error, for errors of train. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "ddp/error.h"

/* Return `status` of a call of libddp. After a failure *err gets libddp's text without the prefix "rank N: ", which
 * main.c adds to every error. */
ddp_status library(ddp_status status, struct ddp_err *err);

#endif

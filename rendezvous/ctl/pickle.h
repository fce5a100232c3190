/* pickle.h -- reads a Python pickle that holds plain data only: dicts, lists, tuples, strings, numbers, booleans and None.
 *
 * PyTorch writes its flight records as pickles. Python's own reader runs whatever a pickle names; this one has no such
 * opcode, so a record from a stranger is as safe to read as JSON. Pure. */
#ifndef RENDEZVOUS_CTL_PICKLE_H
#define RENDEZVOUS_CTL_PICKLE_H

#include "base/buf.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>

/* Check whether the bytes begin as a pickle of protocol 2 to 5, which JSON never does. */
bool pickle_is(struct slice bytes);

/* Return the data as JSON: tuples become arrays, keys that are numbers become text. The caller frees it (cJSON_Delete). NULL: err
 * names the offset and the defect (DDP_ERR_CORRUPT, or DDP_ERR_NOMEM). */
cJSON *pickle_read(struct slice bytes, struct ddp_err *err);

#endif

/* pickle.h -- reads a Python pickle of plain data, because PyTorch writes its flight records as pickles. No supported
 * opcode calls a function, so an unknown file is as safe as JSON. The module is pure. */
#ifndef RENDEZVOUS_RECORD_PICKLE_H
#define RENDEZVOUS_RECORD_PICKLE_H

#include "base/buf.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>

/* Return true if the bytes begin like a pickle of protocol 2 to 5. */
bool pickle_is(struct slice bytes);

/* Read a pickle of dicts, lists, tuples, strings, numbers, booleans and None. Return it as JSON, with arrays for tuples
 * and texts for keys. The caller frees the result (cJSON_Delete). Return NULL after a failure: `err` is DDP_ERR_CORRUPT
 * with the offset and the defect, or DDP_ERR_NOMEM. */
cJSON *pickle_read(struct slice bytes, struct ddp_err *err);

#endif

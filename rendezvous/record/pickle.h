/* pickle.h -- a pure reader of Python pickles that contain only plain data, because PyTorch writes its flight records
 * as pickles. Python's own reader calls any function that a pickle names. This reader supports no opcode that calls a
 * function, so reading a record from an unknown source is as safe as reading JSON. */
#ifndef RENDEZVOUS_RECORD_PICKLE_H
#define RENDEZVOUS_RECORD_PICKLE_H

#include "base/buf.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>

/* Return true if the bytes begin like a pickle of protocol 2 to 5. JSON never begins like this. */
bool pickle_is(struct slice bytes);

/* Read a pickle of dicts, lists, tuples, strings, numbers, booleans and None. Return the data as JSON: tuples become
 * arrays, and numbers that are keys become text. The caller frees the data (cJSON_Delete). Return NULL after a failure:
 * `err` is DDP_ERR_CORRUPT with the offset and the defect, or DDP_ERR_NOMEM. */
cJSON *pickle_read(struct slice bytes, struct ddp_err *err);

#endif

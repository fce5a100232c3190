/* lib_open.h -- a library that may be there: found, loaded, its functions looked up, or said where it was looked for. */
#ifndef CUDA_LIB_OPEN_H
#define CUDA_LIB_OPEN_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>

/* How a library is called, and what a user can do who has not got it. */
struct lib_kind {
    const char *what;          /* "NCCL" */
    const char *variable;      /* that names its file */
    const char *const *places; /* file names in the order of trying; NULL at the end */
    const char *install;       /* how to get it */
};

struct lib_symbol {
    const char *name;
    bool needed;
    size_t at; /* of its pointer in the table */
};

/* `given` is the variable's value; "" = try the places from number *place on, and leave there which it was. *handle is the
 * caller's, for dlclose. DDP_ERR_UNSUPPORTED says what was tried, and how to install it. */
ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err);

/* Fill in the pointers of `table`. DDP_ERR_UNSUPPORTED names the first that is missing. */
ddp_status lib_symbols(const struct lib_kind *kind, void *handle, const struct lib_symbol *symbols, size_t n,
                       void *table, struct ddp_err *err);

#endif

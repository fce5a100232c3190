/* reducer_options.c -- see reducer_options.h. Before anything collective: a mistake found here is this rank's alone. */
#include "reducer/reducer_options.h"

#include "reducer/values.h"

#include <stdbool.h>
#include <string.h>

/* PyTorch's defaults. A small first bucket, because it is full before the others and its reduction can begin soonest; 25
 * MiB, where the cost of a call no longer shows beside that of moving the bytes. */
enum { FIRST_BUCKET = 1 << 20, BUCKET_CAP = 25 << 20 };

/* From the rows of reducer_options.h: a new option that must be equal on all ranks is one row there. */
static const char *const names[] = {
#define X(name, value) #name,
    REDUCER_COMPARED(X)
#undef X
};

const char *reducer_option_name(size_t which)
{
    return which < COMPARED_OPTIONS ? names[which] : "?";
}

int64_t reducer_option_value(const ddp_reducer_options *o, size_t which)
{
    const int64_t values[] = {
#define X(name, value) value,
        REDUCER_COMPARED(X)
#undef X
    };
    return which < COMPARED_OPTIONS ? values[which] : 0;
}

/* Values from a cast or an uninitialised struct are refused rather than taken for a default. */
static ddp_status check(const ddp_reducer_options *o, struct ddp_err *err)
{
    if (o->overlap < DDP_OVERLAP_AUTO || o->overlap > DDP_OVERLAP_ON)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: overlap %d is not one of ddp_overlap", (int)o->overlap);
    if (o->uneven < DDP_UNEVEN_NO || o->uneven > DDP_UNEVEN_STOP)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: uneven %d is not one of ddp_uneven", (int)o->uneven);
    if (o->compress && o->wire != DDP_F16 && o->wire != DDP_BF16)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: wire %s; with compress it is DDP_F16 or DDP_BF16",
                        ddp_dtype_name(o->wire));
    if (!(o->predivide >= 0 && o->predivide <= 1e9))
        return ddp_fail(err, DDP_ERR_ARG, "reducer: predivide %g; 0 or a factor up to 1e9 was expected",
                        o->predivide);
    if (o->hook != NULL && (o->compress || o->predivide > 0))
        return ddp_fail(err, DDP_ERR_ARG, "reducer: a hook does its own averaging; leave %s at 0",
                        o->compress ? "compress" : "predivide");
    return DDP_OK;
}

/* `size` says how much of the struct the caller's header knew: a program built with an older one keeps working,
 * and what it does not know has its default. */
ddp_status reducer_options_read(const ddp_reducer_options *given, ddp_reducer_options *out,
                                struct ddp_err *err)
{
    *out = (ddp_reducer_options)DDP_REDUCER_OPTIONS_INIT;
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(*out)))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_reducer_options.size is %zu: begin with DDP_REDUCER_OPTIONS_INIT", given->size);
    if (given != NULL)
        memcpy(out, given, given->size);
    if (out->first_bucket_bytes == 0)
        out->first_bucket_bytes = FIRST_BUCKET;
    if (out->bucket_cap_bytes == 0)
        out->bucket_cap_bytes = BUCKET_CAP;
    return check(out, err);
}

static ddp_status wrong_shape(const char *what, const ddp_param *p, size_t i, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG,
                    "reducer: %s %zu \"%.100s\" has %zu elements, which is not the product of its shape",
                    what, i, p->name, p->count);
}

static ddp_status check_shape(const char *what, const ddp_param *p, size_t i, struct ddp_err *err)
{
    size_t product = 1;
    if (p->dims == 0)
        return DDP_OK;
    if (p->dims > DDP_MAX_DIMS || p->shape == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: %s %zu \"%.100s\" has %zu dimensions%s; 0 to %d can be",
                        what, i, p->name, p->dims, p->shape == NULL ? " and no shape" : "", DDP_MAX_DIMS);
    for (size_t d = 0; d < p->dims; d++)
        if (__builtin_mul_overflow(product, p->shape[d], &product))
            return wrong_shape(what, p, i, err);
    return product == p->count ? DDP_OK : wrong_shape(what, p, i, err);
}

/* Buffers are checked like parameters: both are broadcast from where they lie. */
ddp_status reducer_check_list(const char *what, const ddp_param *list, size_t n, struct ddp_err *err)
{
    if (list == NULL && n > 0)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: %zu %ss, but no list", n, what);
    for (size_t i = 0; i < n; i++) {
        if (list[i].name == NULL || (list[i].data == NULL && list[i].count > 0))
            return ddp_fail(err, DDP_ERR_ARG, "reducer: %s %zu has no %s", what, i,
                            list[i].name == NULL ? "name" : "data");
        if (check_shape(what, &list[i], i, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* What the reducer computes itself, it computes with the processor. */
ddp_status reducer_check_device(const ddp_reducer_options *options, struct ddp_err *err)
{
    const char *what = options->compress                      ? "compress"
                       : options->predivide > 0               ? "predivide"
                       : options->uneven == DDP_UNEVEN_ACTIVE ? "DDP_UNEVEN_ACTIVE"
                                                              : NULL;
    if (what == NULL)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_UNSUPPORTED,
        "reducer: %s is not there for gradients on a device; a hook can do it (ddp_reducer_options.hook)",
        what);
}

/* Fractions of integers are nobody's gradient. */
ddp_status reducer_check_types(const ddp_param *params, size_t n, const ddp_reducer_options *options,
                               struct ddp_err *err)
{
    bool fractions = options->predivide > 0 || options->uneven == DDP_UNEVEN_ACTIVE;
    for (size_t i = 0; i < n && fractions; i++)
        if (!values_are_real(params[i].dtype))
            return ddp_fail(err, DDP_ERR_ARG,
                            "reducer: parameter %zu \"%.100s\" is %s; %s needs floating point", i,
                            params[i].name, ddp_dtype_name(params[i].dtype),
                            options->predivide > 0 ? "predivide" : "DDP_UNEVEN_ACTIVE");
    return DDP_OK;
}

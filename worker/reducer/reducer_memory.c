/* reducer_memory.c -- see reducer_memory.h. */
#include "reducer/reducer_memory.h"

#include <string.h>

/* The first reason stays. */
static void keep(ddp_reducer *reducer, ddp_status status, struct ddp_err *err)
{
    if (status != DDP_OK && reducer->failed.code == DDP_OK)
        reducer->failed = *err;
}

void reducer_copy(ddp_reducer *reducer, void *to, const void *from, size_t bytes)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (!reducer_on_device(reducer))
        memcpy(to, from, bytes);
    else
        keep(reducer, comm->ops->copy(comm, to, from, bytes, reducer->options.stream, &err), &err);
}

void reducer_zero(ddp_reducer *reducer, void *at, size_t bytes)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (!reducer_on_device(reducer))
        memset(at, 0, bytes);
    else
        keep(reducer, comm->ops->zero(comm, at, bytes, reducer->options.stream, &err), &err);
}

void reducer_settle(ddp_reducer *reducer)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (reducer_on_device(reducer))
        keep(reducer, comm->ops->settle(comm, reducer->options.stream, &err), &err);
}

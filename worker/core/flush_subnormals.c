/* flush_subnormals.c -- the mode of flush_subnormals.h for the program's own threads; see ddp/context.h. */
#include "core/flush_subnormals.h"

#include "ddp/context.h"

void ddp_flush_subnormals(void)
{
    flush_subnormals_set(FLUSH_SUBNORMALS_BITS);
}

/* name_lookup.h -- from a host name to numeric addresses, without waiting.
 *
 * A thread of its own asks the C library, which may take many seconds and cannot be interrupted; libuv's would keep the
 * loop, and with it ddprun, from ending meanwhile. This one is left alone when nobody wants its answer any more. */
#ifndef LAUNCHER_NAME_LOOKUP_H
#define LAUNCHER_NAME_LOOKUP_H

#include "agent/dial_plan.h"

#include <stdbool.h>
#include <uv.h>

enum { LOOKUP_LINE_MAX = 160 };

struct name_found {
    int error; /* 0, or EAI_... */
    int n;
    char addresses[DIAL_ADDRESSES_MAX][DIAL_TEXT_MAX];
    char hosts_line[LOOKUP_LINE_MAX]; /* of /etc/hosts, which names the host; "" = none does */
};

struct name_lookup;

/* Begin; `done` is called on the loop, once. NULL: no memory or no thread. The lookup is yours until name_lookup_end,
 * which may be called at any time, from `done` too; `done` is not called after it. */
struct name_lookup *name_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user);
void name_lookup_end(struct name_lookup *lookup); /* NULL is allowed */

/* The same at once: for a literal this asks nobody, a name may take its time. */
void name_look_up(const char *host, bool only_literal, struct name_found *found);

#endif

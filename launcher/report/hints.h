/* hints.h -- last words of workers that everybody meets sooner or later, and what they mean. */
#ifndef LAUNCHER_HINTS_H
#define LAUNCHER_HINTS_H

#include "base/buf.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

/* What a hint depends on besides the text. Zeroed: nothing is known, no option is set. */
struct hint_facts {
    const char *python;  /* the Python that ran the worker; borrowed, NULL = not known */
    bool no_gpu;         /* this machine has none */
    bool rank0_store;    /* --torch_store=rank0 is in force, */
    bool standalone;     /* and --standalone */
    bool gloo_interface; /* GLOO_SOCKET_IFNAME is set */
};

/* Append a sentence for what the worker wrote last; nothing when none is known, or its remedy is in force already. Of several
 * the last line's counts. False when memory is short. */
bool hint_for(struct slice last_lines, const struct hint_facts *facts, struct buf *out);

/* Does a process group of PyTorch's (Gloo, NCCL) say last that the process at its other end is gone? */
bool hint_is_of_lost_rank(struct slice last_lines);

/* Does Python end with an ImportError, ModuleNotFoundError or SyntaxError, or with "No module named" of -m? Returns a number
 * that is the same for equal messages and not 0; else 0. */
uint64_t hint_import_error(struct slice last_lines);

#endif

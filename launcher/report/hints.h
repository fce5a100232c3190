/* hints.h -- last words of workers that everybody meets sooner or later, and what they mean. */
#ifndef LAUNCHER_REPORT_HINTS_H
#define LAUNCHER_REPORT_HINTS_H

#include "base/buf.h"
#include "diagnosis/findings.h"

#include <stdbool.h>
#include <stdint.h>

/* What a node says that has lost its store: whose fault it is, as far as it can know. */

/* All texts are borrowed. */
struct store_loss {
    const char *host;         /* this one */
    int node_rank;            /* -1 = it has none yet */
    int pid;                  /* of this ddprun's agent */
    const char *how;          /* "the store closed the connection" */
    const char *dropped;      /* the store's last word, "silent for 3000 ms"; "" = it has said none */
    uint64_t stood_ms;        /* this process stood still for so long just before; 0 = it did not */
    uint64_t node_timeout_ms; /* the limit that it was judged by */
};

/* False when it is not this node that the loss is about: then `how` is all there is to say. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

/* --- hints ------------------------------------------------------------------------------------------------ */

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

/* gate.h -- lets one log line of a kind through in a second, and counts the others. Pure.
 *
 * Strangers decide how often they annoy us: a port scanner must not be able to fill the operator's disk. */
#ifndef BASE_GATE_H
#define BASE_GATE_H

#include <stdbool.h>
#include <stdint.h>

enum { GATE_MS = 1000 };

/* A zeroed struct is an open gate. */
struct gate {
    uint64_t next_ms;
    unsigned left_out;
};

/* True when a line may be written now; *left_out says how many could not since the last one. */
static inline bool gate_pass(struct gate *gate, uint64_t now_ms, unsigned *left_out)
{
    if (now_ms < gate->next_ms) {
        gate->left_out++;
        return false;
    }
    *left_out = gate->left_out;
    *gate = (struct gate){ .next_ms = now_ms + GATE_MS };
    return true;
}

#endif

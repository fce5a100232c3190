/* spot.h -- where the main thread of each rank is in one sample of the stacks: the line of the user's program, and the
 * collective in which the rank waits. Private to the diagnosis. Pure.
 *
 * The search for a hang (hang.c) compares two samples; the profile (profile.h) counts many. */
#ifndef RENDEZVOUS_DIAGNOSIS_SPOT_H
#define RENDEZVOUS_DIAGNOSIS_SPOT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPOT_PLACE_MAX = 160 };

/* Pointers are borrowed from the rows of the sample. All zero: the rank is not in the sample. */
struct spot {
    const cJSON *frames, *thread; /* NULL = the frames were not read */
    const cJSON *user;            /* innermost frame of the program; NULL = none */
    const char *call;             /* of a library, in which it waits; NULL = it does not */
    bool idle_only;               /* the rank waits in `call` only while its thread sleeps */
    const char *does, *object;
    int64_t cpu_ms;
    int ended_child; /* a zombie that it has started; 0 = none */
};

/* Fill the spots of ranks 0 to n - 1, which are zero before, from rows of record/stacks.h. Return how many have frames.
 * *note is set to the first reason why a rank has none; it stays as it is without one. */
uint32_t spots_read(const cJSON *rows, struct spot *spots, uint32_t n, const char **note);

/* Write "load_batch (data.py:41)" and return it: the function and line of the program, or the collective and the line that
 * calls it. The spot has frames. */
const char *spot_place(char out[SPOT_PLACE_MAX], const struct spot *spot);

/* Members of a row, a frame or a thread: "" without such a text; 0 for anything else than a number from 0 to INT_MAX. */
const char *spot_text(const cJSON *o, const char *name);
int spot_number(const cJSON *o, const char *name);

#endif

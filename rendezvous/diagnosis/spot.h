/* spot.h -- the place of each rank's main thread in one sample of the stacks: the line of the user's program,
 * and the collective, if any. Private to the diagnosis. Pure.
 *
 * The search for a hang (hang.c) compares two samples. The profile (profile.h) uses many samples. */
#ifndef RENDEZVOUS_DIAGNOSIS_SPOT_H
#define RENDEZVOUS_DIAGNOSIS_SPOT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPOT_PLACE_MAX = 160, SPOT_PEERS_MAX = 8 };

/* The main thread of one rank in one sample. Pointers are borrowed from the rows of the sample. A zeroed struct means that
 * the rank is not in the sample. */
struct spot {
    const cJSON *frames; /* NULL = the frames were not read */
    const cJSON *thread; /* NULL = the rank is not in the sample */
    const cJSON *user;   /* innermost frame of the user's program; NULL = none */
    const char *call;    /* function of a library in which the rank waits; NULL = the rank does not wait */
    bool idle_only;      /* the rank waits in `call` only while its thread sleeps */
    const char *does, *object;
    int64_t cpu_ms;
    const char
        *unanswered[SPOT_PEERS_MAX]; /* peers that do not acknowledge the rank's data: "10.0.0.2:4711" */
    uint32_t n_unanswered;
    struct {
        const char *peer;
        int bytes;           /* packets of this size are lost, 1 to UINT16_MAX */
    } lossy[SPOT_PEERS_MAX]; /* peers of such connections whose paths lose large packets */
    uint32_t n_lossy;
    int ended_child; /* pid of a zombie that the rank has started; 0 = none */
};

/* Fill the spots of ranks 0 to n - 1 from rows of record/stacks.h. The caller has zeroed `spots`. Return the number
 * of ranks with frames. Set *note to the first reason in the rows why a rank has no frames, if any. */
uint32_t spots_read(const cJSON *rows, struct spot *spots, uint32_t n, const char **note);

/* Format and return "load_batch (data.py:41)": the function and the line of the program, or the collective and the
 * line that calls it. `spot` must have frames. */
const char *spot_place(char out[SPOT_PLACE_MAX], const struct spot *spot);

/* Return a member of a row, a frame or a thread. If its type is wrong, spot_text returns "" and spot_number returns 0.
 * A number must be from 0 to INT_MAX. */
const char *spot_text(const cJSON *o, const char *name);
int spot_number(const cJSON *o, const char *name);

#endif

/* spot.h -- the place of each rank's main thread in one sample of the stacks; a pure module, private to the diagnosis.
 * A place is a line of the user's program, and the collective that this line calls, if any. The search for a hang
 * (hang.c) compares two samples, or all samples of a rank (struct trail), and the profile (profile.h) uses many
 * samples. */
#ifndef RENDEZVOUS_DIAGNOSIS_SPOT_H
#define RENDEZVOUS_DIAGNOSIS_SPOT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPOT_PLACE_MAX = 160, SPOT_PEERS_MAX = 8, SPOT_CHILDREN_MAX = 8 };

/* The kind of process for which a rank may wait, as its frames or its system call show. WAITS_CHILD means any child
 * process, WAITS_MULTIPROCESSING means a child that Python's multiprocessing has started, and WAITS_LOADER means a
 * worker of PyTorch's data loader. The kinds are ordered: a process of one kind is also a process of each kind before
 * it, except WAITS_NONE. */
enum spot_waits { WAITS_NONE, WAITS_CHILD, WAITS_MULTIPROCESSING, WAITS_LOADER };

/* A living process that the rank has started. Children that wait for a message or for other ranks are left out. All
 * pointers are borrowed from the rows of the sample. */
struct spot_child {
    const cJSON *frames, *thread; /* `frames` is NULL if the frames were not read */
    const cJSON *user;            /* innermost frame of the user's program in this process; NULL = none */
    const char *does;
    enum spot_waits kind; /* the most specific of the kinds that apply to this process */
};

/* The main thread of one rank in one sample. In Work.wait() and in a lock of the program, a thread sleeps in futex. The
 * C function that calls futex has no frame. So the stack of a rank with `may_wait` does not show whether the rank waits
 * for other ranks or for a lock. Pointers are borrowed from the rows of the sample. A zeroed struct means that the rank
 * is not in the sample. */
struct spot {
    const cJSON *frames; /* NULL = the frames were not read */
    const cJSON *thread; /* NULL = the rank is not in the sample */
    const cJSON *user;   /* innermost frame of the user's program; NULL = none */
    const char *call;    /* the library function in which the rank waits; NULL = no such frame */
    bool idle_only;      /* a rank in `call` counts as waiting only if its thread sleeps */
    bool may_wait;       /* `call` is NULL, and the thread sleeps in futex in a C function */
    bool imports;        /* the rank imports a library: importlib is among the frames that `user` called */
    const char *does, *object;
    int64_t cpu_ms, runs; /* cpu_ms: CPU time of the thread; runs: how often it got a CPU; 0 = unknown */
    const char *unanswered[SPOT_PEERS_MAX]; /* peers that do not acknowledge data: "10.0.0.2:4711" */
    uint32_t n_unanswered;
    struct {
        const char *peer;
        int bytes;           /* size of each lost packet, 1 to UINT16_MAX */
    } lossy[SPOT_PEERS_MAX]; /* peers with unacknowledged data; the paths to these peers lose large packets */
    uint32_t n_lossy;
    int ended_child; /* pid of a zombie that the rank has started; 0 = none */
    enum spot_waits waits;
    bool waits_for_future; /* the rank waits for a result of concurrent.futures, maybe from a child process */
    int awaited_pid; /* the child whose end the rank waits for, if the system call names it; 0 = unknown */
    struct spot_child children[SPOT_CHILDREN_MAX];
    uint32_t n_children;
};

/* Fill the spots of ranks 0 to n - 1 from rows of record/stacks.h. The caller has zeroed `spots`. Return the number of
 * ranks with frames. Set *note to the first reason in the rows why a rank has no frames, if any. The rows own the
 * note. */
uint32_t spots_read(const cJSON *rows, struct spot *spots, uint32_t n, const char **note);

/* Format and return "load_batch (data.py:41)": the function and the line of the program. In a collective, format the
 * collective and the line that calls it. Without a frame, format what the thread does: "an unknown place (sleeping in
 * read)". */
const char *spot_place(char out[SPOT_PLACE_MAX], const struct spot *spot);

/* Return true if two frames are in the same function. spot_is_same_line also requires the same line. */
bool spot_is_same_function(const cJSON *a, const cJSON *b);
bool spot_is_same_line(const cJSON *a, const cJSON *b);

/* A trail shows whether a rank is in a loop that calls different functions. Example, with the outermost frame first:
 *
 *     main:50 train:12 f:3        main:50 train:14 h:9        main:50 train:12 f:4
 *
 * Here `main` is fixed, because it is at the same line in all samples. The next frame, `train`, is the moving frame. It
 * has returned to an earlier line. In a program without such a loop, the moving frame only goes forward. One return is
 * no proof, because a statement over several lines also returns to its first line. */
enum { TRAIL_SAMPLES = 8, TRAIL_RETURNS = 2, TRAIL_PLACES = 16 };

/* A zeroed struct is a trail without samples. */
struct trail {
    cJSON *frames;        /* owned: the frames of the last sample; NULL = no sample */
    uint32_t fixed;       /* number of outer frames that are at the same line in all samples */
    uint32_t samples;     /* number of samples since `fixed` last changed */
    uint32_t returns;     /* how often the moving frame returned to earlier lines since its last new place */
    bool is_one_function; /* the moving frame (see above) is in the same function in all samples */
    uint32_t n_places;
    uint64_t places[TRAIL_PLACES]; /* digests of the places where the moving frame (see above) was */
};

/* Add the frames of a sample. If a fixed frame is now at another line, begin a new trail. */
void trail_add(struct trail *t, const cJSON *frames);
void trail_free(struct trail *t);

/* Return the innermost frame of the user's program that is in all samples. The loop is in the function of this frame,
 * or in a function that was called from there. Return NULL if the trail shows no loop, or too few samples of it. The
 * trail owns the frame, which is valid until the next trail_add. */
const cJSON *trail_loop(const struct trail *t);

/* Return the member `name` of `o`, which is a row, a frame or a thread. If the type of the member is wrong, spot_text
 * returns "" and spot_number returns 0. spot_number also returns 0 for a number below 0 or above INT_MAX. The text
 * belongs to `o`. */
const char *spot_text(const cJSON *o, const char *name);
int spot_number(const cJSON *o, const char *name);

#endif

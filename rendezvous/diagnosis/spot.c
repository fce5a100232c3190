/* spot.c -- see spot.h. The JSON is from other processes, so the type of every member is checked.
 *
 * The place of a rank is found without a change of its program and without an import of ddprun: py-spy reads the
 * frames of Python from outside. It prints the innermost frame first. */
#include "diagnosis/spot.h"

#include "record/stacks.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Frames of libraries in which a rank waits for others. Columns: end of the file's path, function ("" = any function),
 * and idle_only. Each file exists in some version of torch from 1.13 on.
 *
 * A thread in backward() may wait for the all_reduce of DDP, and in synchronize() for kernels of NCCL. It may also
 * compute there. So in these functions only a sleeping thread counts as waiting (idle_only). */
#define WAITING_FRAMES(X)                                        \
    X("torch/distributed/distributed_c10d.py", "", false)        \
    X("torch/distributed/rendezvous.py", "", false)              \
    X("torch/distributed/utils.py", "", false)                   \
    X("torch/distributed/_functional_collectives.py", "", false) \
    X("torch/distributed/elastic/utils/store.py", "", false)     \
    X("torch/autograd/__init__.py", "backward", true)            \
    X("torch/autograd/graph.py", "_engine_run_backward", true)   \
    X("torch/cuda/__init__.py", "synchronize", true)             \
    X("torch/cuda/streams.py", "synchronize", true)

static const struct {
    const char *file, *function;
    bool idle_only;
} waiting_frames[] = {
#define X(file, function, idle_only) { file, function, idle_only },
    WAITING_FRAMES(X)
#undef X
};

/* Return a member, or NULL. cJSON accepts a NULL object, so calls can be nested. */
static const cJSON *member(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

const char *spot_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(member(o, name));
    return text != NULL ? text : "";
}

/* Return a number, or 0 if it is out of range. Check the double before the conversion, because converting a larger
 * double to int is undefined in C. */
int spot_number(const cJSON *o, const char *name)
{
    const cJSON *item = member(o, name);
    const bool fits = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT_MAX;
    return fits ? (int)item->valuedouble : 0;
}

/* Compare the end of a path: agents send the path inside the library, or the whole path if the library is unknown. */
static bool ends_with(const char *text, const char *end)
{
    const size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* Return the row of waiting_frames for this frame, or -1. */
static int find_waiting(const cJSON *frame)
{
    const char *file = spot_text(frame, "file"), *function = spot_text(frame, "function");
    for (size_t i = 0; i < sizeof(waiting_frames) / sizeof(waiting_frames[0]); i++)
        if (ends_with(file, waiting_frames[i].file) &&
            (waiting_frames[i].function[0] == '\0' || strcmp(waiting_frames[i].function, function) == 0))
            return (int)i;
    return -1;
}

/* Find two frames: the innermost frame of the program, and the library function that it has called and in which the
 * thread waits. Of several such functions use the outermost, because the user has called it. Names that begin with '_'
 * are internal to the library, so use them only if there is no other. */
static void read_frames(struct spot *spot)
{
    const cJSON *frame;
    cJSON_ArrayForEach(frame, spot->frames)
    {
        if (cJSON_IsTrue(member(frame, "user"))) {
            spot->user = frame;
            return;
        }
        const int row = find_waiting(frame);
        if (row < 0)
            continue;
        if (spot->call == NULL || spot_text(frame, "function")[0] != '_')
            spot->call = spot_text(frame, "function");
        spot->idle_only = waiting_frames[row].idle_only;
    }
}

/* Return the size of the packets that are lost, from a text that follows STACKS_LOSES_LARGE. Return 0 for other texts.
 * Agents of other nodes have sent the text, so check the range. */
static int read_lost_bytes(const char *does)
{
    static const char format[] = STACKS_LOSES_LARGE;
    const size_t before = strcspn(format, "%");
    char *end;
    if (strncmp(does, format, before) != 0)
        return 0;
    const long bytes = strtol(does + before, &end, 10);
    return bytes >= 1 && bytes <= UINT16_MAX && strcmp(end, format + before + strlen("%d")) == 0 ? (int)bytes
                                                                                                 : 0;
}

/* Store a thread in the spot of its rank. Return true if it is a main thread with frames. Of other threads, store only
 * unacknowledged connections and child processes that have ended. */
static bool read_thread(struct spot *spots, uint32_t n, const cJSON *row, const cJSON *thread)
{
    const cJSON *item = member(thread, "rank");
    const char *does = spot_text(row, "does")[0] != '\0' ? spot_text(row, "does") : spot_text(thread, "does");
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble >= n)
        return false;
    struct spot *spot = &spots[(uint32_t)item->valuedouble];
    if (strcmp(does, STACKS_UNANSWERED) == 0 && spot->n_unanswered < SPOT_PEERS_MAX)
        spot->unanswered[spot->n_unanswered++] = spot_text(thread, "object");
    const int lost_bytes = read_lost_bytes(does);
    if (lost_bytes > 0 && spot->n_lossy < SPOT_PEERS_MAX) {
        spot->lossy[spot->n_lossy].peer = spot_text(thread, "object");
        spot->lossy[spot->n_lossy++].bytes = lost_bytes;
    }
    if (cJSON_IsTrue(member(thread, "child"))) {
        if (strcmp(does, STACKS_ENDED) == 0)
            spot->ended_child = spot_number(thread, "pid");
        return false;
    }
    if (!cJSON_IsTrue(member(thread, "main")) || cJSON_GetStringValue(member(row, "note")) != NULL)
        return false;
    spot->frames = cJSON_IsArray(member(row, "frames")) ? member(row, "frames") : NULL;
    spot->thread = thread;
    spot->does = does;
    spot->object = spot_text(thread, "object");
    spot->cpu_ms = spot_number(thread, "cpu_ms");
    read_frames(spot);
    return spot->frames != NULL;
}

/* Fill the spots. Equal stacks share a row (record/stacks.h), so all threads of a row get the same frames. */
uint32_t spots_read(const cJSON *rows, struct spot *spots, uint32_t n, const char **note)
{
    const cJSON *row, *thread;
    uint32_t read = 0;
    cJSON_ArrayForEach(row, rows)
    {
        if (*note == NULL)
            *note = cJSON_GetStringValue(member(row, "note"));
        cJSON_ArrayForEach(thread, member(row, "threads"))
        {
            read += read_thread(spots, n, row, thread);
        }
    }
    return read;
}

/* Format the place of a thread. If the thread runs no code of the program, such as a thread of a library, use its
 * innermost frame. */
const char *spot_place(char out[SPOT_PLACE_MAX], const struct spot *spot)
{
    const cJSON *frame = spot->user != NULL ? spot->user : spot->frames->child;
    const char *name = spot->call != NULL ? spot->call : spot_text(frame, "function");
    snprintf(out, SPOT_PLACE_MAX, "%.60s (%.80s:%d)", name, spot_text(frame, "file"),
             spot_number(frame, "line"));
    return out;
}

/* spot.c -- see spot.h. The JSON is from other processes, so the type of every member is checked.
 *
 * The program of a rank needs no change, because py-spy reads the frames of Python from outside. py-spy prints the
 * innermost frame first. */
#include "diagnosis/spot.h"

#include "record/stacks.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Frames of libraries in which a rank waits for other ranks. Columns: end of the file's path, function ("" = any
 * function), and idle_only. Each file exists in at least one version of torch since 1.13.
 *
 * A thread in backward() may wait for DDP's all_reduce, and a thread in synchronize() may wait for NCCL's kernels. But
 * both functions may also compute. So in these functions only a sleeping thread counts as waiting (idle_only). */
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

/* Folders of torch with Python files that call C functions to wait for other ranks. Each row names a version of torch
 * and an example. A C function has no frame, so the innermost frame is its caller. A C function may also compute, so
 * the rank counts as waiting only if its thread sleeps in futex. */
#define WAITING_FOLDERS(X)                                                                                   \
    X("torch/distributed/") /* torch 1.13: ZeroRedundancyOptimizer._sync_params calls Work.wait */           \
    X("torch/nn/parallel/") /* torch 1.13: DistributedDataParallel._distributed_broadcast_coalesced waits */ \
    X("torch/futures/")     /* torch 1.13: Future.wait, for RPC and for Work.get_future */

/* Parts of paths of libraries that wait only for threads and processes of the same rank. */
#define LOCAL_FILES(X)                                              \
    X("threading.py")                                               \
    X("queue.py")                                                   \
    X("multiprocessing/") /* also matches torch/multiprocessing/ */ \
    X("concurrent/futures/")                                        \
    X("importlib/") /* waits for an import in another thread */     \
    X("<frozen importlib")                                          \
    X("logging/") /* a forked process waits for inherited locks */  \
    X("tqdm/")                                                      \
    X("torch/utils/data/")

#define X(part) part,
static const char *const waiting_folders[] = { WAITING_FOLDERS(X) };
static const char *const local_files[] = { LOCAL_FILES(X) };
#undef X

/* Return the member `name` of `o`, or NULL if `o` has no such member. `o` may be NULL, because cJSON accepts a NULL
 * object. Calls of member() can therefore be nested. */
static const cJSON *member(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

const char *spot_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(member(o, name));
    return text != NULL ? text : "";
}

/* Return the number in the member `name`, or 0 if the member is not a number from 0 to INT_MAX. Check the double before
 * the conversion, because converting a double above INT_MAX to int is undefined in C. */
int spot_number(const cJSON *o, const char *name)
{
    const cJSON *item = member(o, name);
    const bool fits = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT_MAX;
    return fits ? (int)item->valuedouble : 0;
}

/* Return true if a path ends with `end`. Agents send the path inside the library, or the whole path if the library is
 * unknown. */
static bool ends_with(const char *text, const char *end)
{
    const size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* Return the index of the row of waiting_frames that matches this frame, or -1 if no row matches. Also return -1 for a
 * frame whose function is <module>, because the program is then importing the library, and does not wait for other
 * ranks. */
static int find_waiting(const cJSON *frame)
{
    const char *file = spot_text(frame, "file"), *function = spot_text(frame, "function");
    if (strcmp(function, "<module>") == 0)
        return -1;
    for (size_t i = 0; i < sizeof(waiting_frames) / sizeof(waiting_frames[0]); i++)
        if (ends_with(file, waiting_frames[i].file) &&
            (waiting_frames[i].function[0] == '\0' || strcmp(waiting_frames[i].function, function) == 0))
            return (int)i;
    return -1;
}

/* Return true if a path contains `part` at its start or after a '/'. */
static bool contains_part(const char *path, const char *part)
{
    const char *at = strstr(path, part);
    while (at != NULL && at != path && at[-1] != '/')
        at = strstr(at + 1, part);
    return at != NULL;
}

/* Return true if the path of this frame's file contains one of `n` parts. */
static bool has_part(const cJSON *frame, const char *const *parts, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++)
        found = contains_part(spot_text(frame, "file"), parts[i]);
    return found;
}

/* Return true if the frame is in a folder of WAITING_FOLDERS. A relative path must begin with "torch/", because another
 * library may have the same folders: "oslo/torch/distributed/". An absolute path may have any folders before torch. */
static bool is_in_waiting_folder(const cJSON *frame)
{
    const char *path = spot_text(frame, "file");
    return (path[0] == '/' || strncmp(path, "torch/", strlen("torch/")) == 0) &&
           has_part(frame, waiting_folders, sizeof(waiting_folders) / sizeof(waiting_folders[0]));
}

/* Return true if this frame may have called a C function that waits for other ranks. Such a frame is of the program, or
 * of a library that is not in LOCAL_FILES. */
static bool may_call_wait(const cJSON *frame)
{
    return cJSON_IsTrue(member(frame, "user")) ||
           (frame != NULL && !has_part(frame, local_files, sizeof(local_files) / sizeof(local_files[0])));
}

/* Return the number that `text` contains at the place of the only %d of `format`. Return 0 if the text does not match,
 * or if the number is not from 1 to `most`. Agents of other nodes send the text, so it is not trusted. */
static int scan_number(const char *text, const char *format, long most)
{
    const size_t before = strcspn(format, "%");
    char *end;
    if (strncmp(text, format, before) != 0)
        return 0;
    const long n = strtol(text + before, &end, 10);
    return n >= 1 && n <= most && strcmp(end, format + before + strlen("%d")) == 0 ? (int)n : 0;
}

/* --- children --------------------------------------------------------------------------------------------- */

/* Return the kind of process for which a thread in this frame waits. Also return WAITS_LOADER if the frame is in a
 * worker of a data loader, because add_child() recognizes these workers by this result. */
static enum spot_waits frame_waits(const cJSON *frame)
{
    const char *file = spot_text(frame, "file");
    if (ends_with(file, "torch/utils/data/_utils/worker.py") ||
        (ends_with(file, "torch/utils/data/dataloader.py") &&
         ends_with(spot_text(frame, "function"), "_get_data")))
        return WAITS_LOADER;
    if (strstr(file, "multiprocessing/") != NULL)
        return WAITS_MULTIPROCESSING;
    return ends_with(file, "subprocess.py") ? WAITS_CHILD : WAITS_NONE;
}

/* Return true if a process that is in this frame waits for a message. The sender may be its parent process. */
static bool waits_for_message(const cJSON *frame)
{
    static const char *const files[] = { "connection.py",       "queues.py",     "synchronize.py",
                                         "resource_tracker.py", "forkserver.py", "managers.py" };
    const char *file = spot_text(frame, "file");
    char path[64];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "multiprocessing/%s", files[i]);
        if (ends_with(file, path))
            return true;
    }
    return false;
}

/* Return true if a thread waits for the end of a child process. */
static bool waits_for_end(const char *does)
{
    return ends_with(does, " in wait4") || ends_with(does, " in waitid") || strstr(does, "do_wait") != NULL;
}

/* Find the processes for which the rank waits. */
static void read_waits(struct spot *spot)
{
    const cJSON *frame;
    spot->waits = waits_for_end(spot->does) ? WAITS_CHILD : WAITS_NONE;
    cJSON_ArrayForEach(frame, spot->frames)
    {
        if (cJSON_IsTrue(member(frame, "user")))
            break;
        const enum spot_waits waits = frame_waits(frame);
        spot->waits = waits > spot->waits ? waits : spot->waits;
        spot->waits_for_future =
            spot->waits_for_future || contains_part(spot_text(frame, "file"), "concurrent/futures/");
    }
    if (waits_for_end(spot->does))
        spot->awaited_pid = scan_number(spot->object, STACKS_CHILD, INT_MAX);
}

/* Add a child process to spot->children. Leave out a child that waits for a message or in a collective. Also leave out
 * a child that may wait for other ranks in a C function. */
static void add_child(struct spot *spot, const cJSON *row, const cJSON *thread, const char *does)
{
    struct spot_child child = {
        .frames = member(row, "frames"), .thread = thread, .does = does, .kind = WAITS_CHILD
    };
    const cJSON *frame;
    if (!cJSON_IsArray(child.frames) || child.frames->child == NULL)
        child.frames = NULL;
    const cJSON *innermost = child.frames != NULL ? child.frames->child : NULL;
    if (strstr(does, "futex") != NULL && (is_in_waiting_folder(innermost) || may_call_wait(innermost)))
        return;
    cJSON_ArrayForEach(frame, child.frames)
    {
        if (child.user == NULL && (waits_for_message(frame) || find_waiting(frame) >= 0))
            return;
        if (child.user == NULL && cJSON_IsTrue(member(frame, "user")))
            child.user = frame;
        if (frame_waits(frame) == WAITS_LOADER)
            child.kind = WAITS_LOADER;
        /* Ignore the callers of _bootstrap, because a forked child has inherited these frames from its parent. */
        if (ends_with(spot_text(frame, "function"), "_bootstrap") &&
            ends_with(spot_text(frame, "file"), "multiprocessing/process.py")) {
            child.kind = child.kind == WAITS_LOADER ? WAITS_LOADER : WAITS_MULTIPROCESSING;
            break;
        }
    }
    if (spot->n_children < SPOT_CHILDREN_MAX)
        spot->children[spot->n_children++] = child;
}

/* --- threads ---------------------------------------------------------------------------------------------- */

/* Set spot->user, spot->imports and spot->call from the frames. spot->call is the outermost library function in which
 * the thread waits, because this is the function that the program has called. */
static void read_frames(struct spot *spot)
{
    const cJSON *frame, *innermost = spot->frames != NULL ? spot->frames->child : NULL;
    const bool in_futex = strstr(spot->does, "futex") != NULL;
    const bool in_folder = in_futex && is_in_waiting_folder(innermost);
    cJSON_ArrayForEach(frame, spot->frames)
    {
        if (cJSON_IsTrue(member(frame, "user"))) {
            spot->user = frame;
            break;
        }
        spot->imports = spot->imports || contains_part(spot_text(frame, "file"), "<frozen importlib");
        const int row = find_waiting(frame);
        if (row < 0 && !(in_folder && is_in_waiting_folder(frame)))
            continue;
        /* A function whose name begins with '_' is internal to the library, so use its name only if no other name is
         * found. */
        if (spot->call == NULL || spot_text(frame, "function")[0] != '_')
            spot->call = spot_text(frame, "function");
        spot->idle_only = row < 0 || waiting_frames[row].idle_only;
    }
    spot->may_wait = spot->call == NULL && in_futex && may_call_wait(innermost);
}

/* Store the data of a thread in the spot of its rank. Return true for the main thread of a rank if its frames were
 * read. For other threads, store only child processes and connections with unacknowledged data. */
static bool read_thread(struct spot *spots, uint32_t n, const cJSON *row, const cJSON *thread)
{
    const cJSON *item = member(thread, "rank");
    const char *does = spot_text(row, "does")[0] != '\0' ? spot_text(row, "does") : spot_text(thread, "does");
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble >= n)
        return false;
    struct spot *spot = &spots[(uint32_t)item->valuedouble];
    if (strcmp(does, STACKS_UNANSWERED) == 0 && spot->n_unanswered < SPOT_PEERS_MAX)
        spot->unanswered[spot->n_unanswered++] = spot_text(thread, "object");
    const int lost_bytes = scan_number(does, STACKS_LOSES_LARGE, UINT16_MAX);
    if (lost_bytes > 0 && spot->n_lossy < SPOT_PEERS_MAX) {
        spot->lossy[spot->n_lossy].peer = spot_text(thread, "object");
        spot->lossy[spot->n_lossy++].bytes = lost_bytes;
    }
    if (cJSON_IsTrue(member(thread, "child"))) {
        if (strcmp(does, STACKS_ENDED) == 0)
            spot->ended_child = spot_number(thread, "pid");
        else if (cJSON_IsTrue(member(thread, "main")) && cJSON_GetStringValue(member(row, "note")) == NULL)
            add_child(spot, row, thread, does);
        return false;
    }
    if (!cJSON_IsTrue(member(thread, "main")) || cJSON_GetStringValue(member(row, "note")) != NULL)
        return false;
    spot->frames = cJSON_IsArray(member(row, "frames")) ? member(row, "frames") : NULL;
    spot->thread = thread;
    spot->does = does;
    spot->object = spot_text(thread, "object");
    spot->cpu_ms = stacks_cpu_ms(thread);
    spot->runs = stacks_runs(thread);
    read_frames(spot);
    read_waits(spot);
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

/* Format the place of a thread: its innermost frame in the user's program. If no frame is in the program, use the
 * innermost frame of all. An empty stack means that Python exits: the main thread has ended its script, and runs C
 * functions of exit handlers. */
const char *spot_place(char out[SPOT_PLACE_MAX], const struct spot *spot)
{
    if (spot->frames == NULL || spot->frames->child == NULL) {
        snprintf(out, SPOT_PLACE_MAX, "%s (%.80s)",
                 spot->frames == NULL ? "an unknown place"
                                      : "the exit of Python, after the end of the script",
                 spot->does != NULL && spot->does[0] != '\0' ? spot->does : "no frame");
        return out;
    }
    const cJSON *frame = spot->user != NULL ? spot->user : spot->frames->child;
    const char *name = spot->call != NULL ? spot->call : spot_text(frame, "function");
    snprintf(out, SPOT_PLACE_MAX, "%.60s (%.80s:%d)", name, spot_text(frame, "file"),
             spot_number(frame, "line"));
    return out;
}

/* --- loops ------------------------------------------------------------------------------------------------ */

/* Compare two frames by their texts, because each sample has its own copies. */
bool spot_is_same_function(const cJSON *a, const cJSON *b)
{
    return strcmp(spot_text(a, "file"), spot_text(b, "file")) == 0 &&
           strcmp(spot_text(a, "function"), spot_text(b, "function")) == 0;
}

bool spot_is_same_line(const cJSON *a, const cJSON *b)
{
    return spot_is_same_function(a, b) && spot_number(a, "line") == spot_number(b, "line");
}

/* Return frame `i`, counted from 0 for the outermost frame. Return NULL if the stack has fewer frames. */
static const cJSON *frame_from_outside(const cJSON *frames, uint32_t i)
{
    const int n = cJSON_GetArraySize(frames);
    return i < (uint32_t)n ? cJSON_GetArrayItem(frames, n - 1 - (int)i) : NULL;
}

/* Return the number of outer frames, at most `most`, that are at the same lines in both stacks. */
static uint32_t count_fixed(const cJSON *a, const cJSON *b, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && frame_from_outside(b, n) != NULL &&
           spot_is_same_line(frame_from_outside(a, n), frame_from_outside(b, n)))
        n++;
    return n;
}

/* Return the digest of a frame's file, function and line. If `frame` is NULL, the stack has no moving frame (struct
 * trail): return 0. */
static uint64_t place_digest(const cJSON *frame)
{
    const char *file = spot_text(frame, "file"), *function = spot_text(frame, "function");
    const int line = spot_number(frame, "line");
    if (frame == NULL)
        return 0;
    return hash_bytes(
        hash_bytes(hash_bytes(HASH_START, file, strlen(file) + 1), function, strlen(function) + 1), &line,
        sizeof(line));
}

/* Return true if the trail has this place already. Otherwise add the place, if there is room. */
static bool has_been_at(struct trail *t, uint64_t place)
{
    for (uint32_t i = 0; i < t->n_places; i++)
        if (t->places[i] == place)
            return true;
    if (t->n_places < TRAIL_PLACES)
        t->places[t->n_places++] = place;
    return false;
}

/* Begin the trail with the `fixed` outer frames of the previous sample. */
static void trail_begin(struct trail *t, uint32_t fixed)
{
    t->fixed = fixed;
    t->samples = 1;
    t->returns = t->n_places = 0;
    t->is_one_function = true;
    (void)has_been_at(t, place_digest(frame_from_outside(t->frames, fixed)));
}

/* Count a step of the moving frame (struct trail): `from` is the frame in the previous sample, and `to` is the frame
 * now. */
static void trail_step(struct trail *t, const cJSON *from, const cJSON *to)
{
    const uint64_t place = place_digest(to);
    const bool is_one_function = from != NULL && to != NULL && spot_is_same_function(from, to);
    t->samples++;
    if (place == place_digest(from))
        return;
    t->is_one_function = t->is_one_function && is_one_function;
    if (has_been_at(t, place) || (is_one_function && spot_number(to, "line") < spot_number(from, "line")))
        t->returns++;
    else
        t->returns = 0; /* a new place: the program may have left the loop */
}

/* Add a sample. Forget the trail if the outer frames are cut off (STACKS_FRAMES_MAX), because frames are counted from
 * the outermost frame. */
void trail_add(struct trail *t, const cJSON *frames)
{
    const uint32_t n = (uint32_t)cJSON_GetArraySize(frames);
    cJSON *last = t->frames;
    if (n >= STACKS_FRAMES_MAX) {
        trail_free(t);
        return;
    }
    const uint32_t fixed = last != NULL ? count_fixed(last, frames, t->fixed) : n;
    if (last != NULL && fixed < t->fixed)
        trail_begin(t, fixed);
    t->frames = cJSON_Duplicate(frames, true);
    if (last == NULL)
        trail_begin(t, fixed);
    else
        trail_step(t, frame_from_outside(last, fixed), frame_from_outside(t->frames, fixed));
    cJSON_Delete(last);
}

void trail_free(struct trail *t)
{
    cJSON_Delete(t->frames);
    *t = (struct trail){ 0 };
}

const cJSON *trail_loop(const struct trail *t)
{
    if (t->samples < TRAIL_SAMPLES || t->returns < TRAIL_RETURNS)
        return NULL;
    const cJSON *frame = t->is_one_function ? frame_from_outside(t->frames, t->fixed) : NULL;
    if (frame == NULL && t->fixed > 0)
        frame = frame_from_outside(t->frames, t->fixed - 1);
    while (frame != NULL && !cJSON_IsTrue(member(frame, "user")))
        frame = frame->next; /* its caller */
    return frame;
}

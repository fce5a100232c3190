/* hang.c -- finds the rank for which all others wait, from two samples of the stacks of all ranks. A rank in a
 * collective waits, and a rank that stays at any other place is the culprit. One sample is not enough, because a rank
 * that moves between two samples shows that the job is only slow. */
#include "base/text.h"
#include "diagnosis/spot.h"
#include "diagnosis/text.h"
#include "hub/messages.h"
#include "record/flight_dump.h"
#include "record/stacks.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IDLE_PERCENT = 20, /* percent of one CPU that a waiting thread may use, because the thread may poll */
    BUSY_PERCENT = 50, /* percent of one CPU; a thread with at least this use is busy: it computes or spins */
    WAKES_LEAST = 2,   /* a thread that got a CPU fewer than WAKES_LEAST times between two samples has slept
                        * in one call */
    GROUPS_MAX = 16,   /* maximum number of places where ranks wait */
    GROUPS_SHOWN = 2,  /* maximum number of groups in one sentence; a sentence has room for WORDS_LEN bytes */
};

#define TOO_MANY_PLACES "the ranks wait in more than 16 places" /* 16 is GROUPS_MAX */

/* The findings for a culprit that sleeps in a system call. Columns: a part of the call's name, and the finding. The
 * first row whose text is a part of the call's name decides. Without such a row, the finding is RANK_BLOCKED. If the
 * object for which the culprit waits is known, only a row with RANK_IN_LOCK can apply. */
#define SLEEPS(X)                                               \
    X("futex", RANK_IN_LOCK)                                    \
    X("nanosleep", RANK_SLEEPS)                                 \
    X("select", RANK_SLEEPS) /* time.sleep of Python <= 3.10 */ \
    X("poll", RANK_SLEEPS)                                      \
    X("pause", RANK_SLEEPS)                                     \
    X("sigtimedwait", RANK_SLEEPS)

static const struct {
    const char *call;
    enum finding_code code;
} sleeps[] = {
#define X(call, code) { call, FINDING_##code },
    SLEEPS(X)
#undef X
};

/* The activity of a rank between the two samples:
 *
 *     UNKNOWN     no frames, a lost node, a failed rank, or a collective of libddp
 *     GONE        the rank has exited with code 0
 *     CULPRIT     the process is stopped, or the rank is outside of a collective and waits for no key
 *     NEEDS_KEY   the rank waits outside of a collective for a key of the store
 *     WAITS       the rank waits in a collective */
enum way { WAY_UNKNOWN, WAY_GONE, WAY_CULPRIT, WAY_NEEDS_KEY, WAY_WAITS };

/* One rank in the two samples. */
struct rank_analysis {
    struct spot *spot[2]; /* the rank's entries in hang.spots: for the earlier and the later sample */
    int64_t cpu_ms;       /* CPU time that the main thread used between the samples */
    int cpu_percent;      /* `cpu_ms` in percent of one CPU */
    const cJSON *loop;    /* the function in which the rank repeats its calls (history_loop); NULL = none */
    enum way way;
    enum finding_code code;         /* only for WAY_CULPRIT */
    const struct spot_child *child; /* the awaited child, as it is in the later sample; NULL = none */
    uint32_t group;                 /* index in hang.groups; only for WAY_WAITS */
};

/* Ranks that wait in the same place. */
struct group {
    const struct spot *spot; /* the spot of rank `first` in the later sample, borrowed from hang.spots */
    uint32_t first, n;       /* first: the rank that was added first; n: number of ranks */
};

/* The state of one search. diagnose_hang creates it on its stack and frees it before it returns. */
struct hang {
    const struct snapshot *s;
    struct rank_analysis *ranks; /* owned: one element for each rank of the snapshot */
    struct spot *spots; /* owned: spots of all ranks in the earlier sample, then in the later sample */
    struct group groups[GROUPS_MAX]; /* add_verdict sorts the groups, the largest first */
    uint32_t n_groups;
    uint32_t n[WAY_WAITS + 1]; /* n[way]: number of ranks with this activity */
    uint32_t n_read;           /* number of ranks with frames in the later sample */
    bool is_full;              /* a rank needed another group, but GROUPS_MAX was reached */
    const char *note;          /* why a sample has ranks without frames; NULL = unknown */
    struct records {
        struct flight_dump *dumps; /* owned: records that are equal in both samples, sorted by rank */
        uint32_t n;                /* number of used entries in `dumps` */
        cJSON *compared;           /* owned: result of flight_compare; NULL = no record */
        words quote;               /* "; flight records: ...", or "" if there is no record */
    } records;
};

/* --- comparing -------------------------------------------------------------------------------------------- */

/* The place of a rank is the innermost frame of the user's program, and the collective that this frame has called, if
 * any. While the store suspects a hang, two successive samples are 1 s to 21 s apart (hub/hang_watch.h). */

/* Return true if two stacks are equal, or if neither stack was read. Ignore the line numbers of the program's innermost
 * function and of all functions that this function has called, because an endless loop changes these lines. If a caller
 * of this function is at another line, the rank has made progress, so return false. */
static bool is_same_stack(const struct spot *a, const struct spot *b)
{
    if (a->frames == NULL || b->frames == NULL)
        return a->frames == b->frames;
    const cJSON *x = a->frames->child, *y = b->frames->child;
    bool is_inner = true;
    for (; x != NULL && y != NULL; x = x->next, y = y->next) {
        if (is_inner ? !spot_is_same_function(x, y) : !spot_is_same_line(x, y))
            return false;
        is_inner = is_inner && x != a->user;
    }
    return x == NULL && y == NULL;
}

/* Return true if two ranks wait in the same way. Two conditions must be true: both ranks are at the same line of the
 * program, and the ranks are either in the same collective or both outside of collectives. If no stack has a frame of
 * the program, return true only if both ranks are in the same collective. */
static bool is_same_wait(const struct spot *a, const struct spot *b)
{
    const bool is_same_call =
        a->call == NULL || b->call == NULL ? a->call == b->call : strcmp(a->call, b->call) == 0;
    return is_same_call && (a->user == NULL || b->user == NULL ? a->call != NULL && a->user == b->user
                                                               : spot_is_same_line(a->user, b->user));
}

/* Return true if a rank has moved between the samples. A rank has also moved if only one sample contains its frames, or
 * if the later sample shows another process. If neither sample has its frames, return false. */
static bool has_moved(const struct rank_analysis *r)
{
    const struct spot *a = r->spot[0], *b = r->spot[1];
    if (a->frames == NULL || b->frames == NULL ||
        spot_number(a->thread, "pid") != spot_number(b->thread, "pid"))
        return a->frames != b->frames;
    return a->call != NULL ? !is_same_wait(a, b) : !is_same_stack(a, b);
}

/* --- all samples ------------------------------------------------------------------------------------------ */

/* A rank in an endless loop that calls different functions also moves between two samples. The history of the
 * samples since the last progress shows such a loop.
 *
 * The history has the trails (spot.h) of up to HISTORY_RANKS ranks outside of collectives. A trail proves a loop
 * only while no other rank makes progress, so all trails begin again after possible progress. */
enum { HISTORY_RANKS = 8 };

struct hang_history {
    uint32_t n;
    bool is_cut; /* more than HISTORY_RANKS ranks were outside of a collective */
    struct past {
        uint32_t rank;
        bool is_still; /* in all samples, the rank has not moved and has called no collective */
        struct trail trail;
    } ranks[HISTORY_RANKS];
};

/* Return the frame with the loop of a rank, or NULL in any of these cases:
 *
 *     the rank is in no known loop
 *     another rank outside of a collective may have made progress, so the job may only be slow
 *     most ranks repeat their calls: they may be working, and the waiting ranks may have finished their part early */
static const cJSON *history_loop(const struct hang_history *history, uint32_t rank, uint32_t n_ranks)
{
    const cJSON *found = NULL;
    uint32_t n_loops = 0;
    for (uint32_t i = 0; history != NULL && !history->is_cut && i < history->n; i++) {
        const struct past *past = &history->ranks[i];
        const cJSON *loop = trail_loop(&past->trail);
        if (loop == NULL && !past->is_still)
            return NULL;
        n_loops += loop != NULL;
        found = past->rank == rank ? loop : found;
    }
    return 2 * n_loops > n_ranks ? NULL : found;
}

/* --- one rank --------------------------------------------------------------------------------------------- */

/* Return true if a signal or a debugger has stopped the process, as the last heartbeat or the later sample shows. */
static bool is_stopped(const struct snapshot_rank *f, const struct spot *spot)
{
    return f->proc_state == 'T' || f->proc_state == 't' || strstr(spot->does, "stopped") != NULL;
}

/* Return the system call in which the rank's main thread sleeps. If the sample does not show what the thread does,
 * return the kernel function from the last heartbeat. If both are unknown, return "". */
static const char *sleeps_in(const struct snapshot_rank *f, const struct spot *spot)
{
    const char *in = strstr(spot->does, " in ");
    if (in != NULL)
        return in + strlen(" in ");
    return spot->does[0] == '\0' && f->wchan != NULL ? f->wchan : "";
}

/* Return true if the rank computes: it uses much CPU time, or its state is "running" in both samples. The state alone
 * is sufficient, because on an overloaded machine even a loop gets little CPU time. `in` is the system call in which
 * the thread sleeps, or "". */
static bool computes(const struct rank_analysis *r, const char *in)
{
    const bool runs =
        strncmp(r->spot[0]->does, "running", 7) == 0 && strncmp(r->spot[1]->does, "running", 7) == 0;
    return runs || r->cpu_percent >= BUSY_PERCENT || (in[0] == '\0' && r->cpu_percent >= IDLE_PERCENT);
}

/* Return the finding about a rank that sleeps in the system call `in`. A wait for a lock is always RANK_IN_LOCK. Any
 * other wait for a known object (a file, a pipe or a peer) is RANK_BLOCKED. This finding names the object. */
static enum finding_code sleep_code(const struct spot *spot, const char *in)
{
    for (size_t i = 0; i < sizeof(sleeps) / sizeof(sleeps[0]); i++)
        if (strstr(in, sleeps[i].call) != NULL &&
            (sleeps[i].code == FINDING_RANK_IN_LOCK || spot->object[0] == '\0'))
            return sleeps[i].code;
    return in[0] != '\0' ? FINDING_RANK_BLOCKED : FINDING_RANK_SLEEPS;
}

/* Return true if the main thread may wait for a child that has ended. `in` is the system call in which the thread
 * sleeps, or "". The first rule that applies decides:
 * - return true if a library that waits for children has a frame in the stack
 * - return false if the awaited object has a name, such as a file or a peer; a listening Unix socket is an exception,
 *   because its client may be a child
 * - return false if the thread sleeps in futex, because the thread then waits for a lock
 * - return false if the thread sleeps in write, because the reader of the pipe still runs and so is not the ended child
 * - otherwise return true */
static bool may_be_of_child(const struct spot *spot, const char *in)
{
    static const char *const unnamed[] = { "pipe:[", "socket:[", "anon_inode:", "the listening socket /",
                                           "the listening socket @" };
    bool has_name = spot->object[0] != '\0';
    if (spot->waits != WAITS_NONE || spot->waits_for_future)
        return true;
    for (size_t i = 0; i < sizeof(unnamed) / sizeof(unnamed[0]); i++)
        has_name = has_name && strncmp(spot->object, unnamed[i], strlen(unnamed[i])) != 0;
    return !has_name && strstr(in, "futex") == NULL && strstr(in, "write") == NULL;
}

/* Return true if the rank may wait for a child process that has ended. There are two conditions: the child is a zombie
 * in both samples, and the wait may be for a child (may_be_of_child). Even then, return false in any of these cases:
 *
 *     the rank computes, waits for a disk, or is in a timed sleep such as nanosleep
 *     the system call names another child
 *     the rank has printed a traceback and has no frame of the program left, so it is about to exit */
static bool may_wait_for_child(const struct snapshot_rank *f, const struct rank_analysis *r, const char *in)
{
    const struct spot *spot = r->spot[1];
    return spot->ended_child != 0 && r->spot[0]->ended_child == spot->ended_child && r->loop == NULL &&
           (spot->awaited_pid == 0 || spot->awaited_pid == spot->ended_child) && !computes(r, in) &&
           may_be_of_child(spot, in) && (in[0] == '\0' || sleep_code(spot, in) != FINDING_RANK_SLEEPS) &&
           strncmp(spot->does, "uninterruptible", 15) != 0 && (f->traceback == NULL || spot->user != NULL);
}

/* Return the child with this pid in a sample, or NULL. */
static const struct spot_child *find_child(const struct spot *spot, int pid)
{
    for (uint32_t i = 0; i < spot->n_children; i++)
        if (spot_number(spot->children[i].thread, "pid") == pid)
            return &spot->children[i];
    return NULL;
}

static bool has_same_frames(const struct spot_child *a, const struct spot_child *b)
{
    return a->frames != NULL && b->frames != NULL && cJSON_Compare(a->frames, b->frames, true);
}

/* Return true if the rank may wait for this child. The first rule that applies decides:
 * - return false if neither a frame nor the system call of the rank shows a wait for children
 * - return false if the child is missing in the earlier sample
 * - if the system call of the rank names a child, return true only for that child
 * - return false if the child is not of the kind for which the rank waits
 * - return false if the child itself waits for another process, as a shell does; the other process is also in the
 *   sample, and is checked separately
 * - otherwise return true */
static bool may_wait_for(const struct rank_analysis *r, const struct spot_child *child)
{
    const struct spot *spot = r->spot[1];
    const int pid = spot_number(child->thread, "pid");
    if (spot->waits == WAITS_NONE || find_child(r->spot[0], pid) == NULL)
        return false;
    if (spot->awaited_pid != 0)
        return pid == spot->awaited_pid;
    return child->kind >= spot->waits && strstr(child->does, " in wait") == NULL;
}

/* Return true if a child is in the same place in both samples and has used almost no CPU time between them. A child
 * that has moved or computed may only be slow. Return false if `earlier` is NULL. */
static bool child_rests(const struct spot_child *child, const struct spot_child *earlier, int64_t apart_ms)
{
    if (earlier == NULL)
        return false;
    const bool has_no_frames = child->frames == NULL && earlier->frames == NULL;
    const int64_t cpu_ms = stacks_cpu_ms(child->thread) - stacks_cpu_ms(earlier->thread);
    return (has_no_frames ? strcmp(child->does, earlier->does) == 0 : has_same_frames(child, earlier)) &&
           cpu_ms * 100 <= apart_ms;
}

/* Return the living child for which the rank waits, or NULL. This child must be at rest (child_rests). If the rank
 * waits for the workers of a data loader, return the worker at rest with the lowest pid. Otherwise consider all
 * children for which the rank may wait (may_wait_for). If all of them are at rest in the same place, return the child
 * with the lowest pid. Otherwise return NULL. */
static const struct spot_child *find_awaited_child(const struct rank_analysis *r, int64_t apart_ms)
{
    const struct spot *spot = r->spot[1];
    const struct spot_child *found = NULL;
    for (uint32_t i = 0; i < spot->n_children; i++) {
        const struct spot_child *child = &spot->children[i];
        const int pid = spot_number(child->thread, "pid");
        const bool is_loader = spot->waits == WAITS_LOADER;
        if (!may_wait_for(r, child))
            continue;
        const bool rests = child_rests(child, find_child(r->spot[0], pid), apart_ms);
        if (!is_loader && (!rests || (found != NULL && !has_same_frames(child, found))))
            return NULL;
        if (rests && (found == NULL || pid < spot_number(found->thread, "pid")))
            found = child;
    }
    return found;
}

/* Return why a culprit does not continue. The checks begin with the most specific reason. */
static enum finding_code culprit_code(const struct snapshot_rank *f, const struct rank_analysis *r)
{
    const struct spot *spot = r->spot[1];
    const char *in = sleeps_in(f, spot);
    if (is_stopped(f, spot))
        return FINDING_RANK_STOPPED;
    if (may_wait_for_child(f, r, in))
        return FINDING_RANK_CHILD_ENDED;
    if (f->traceback != NULL)
        return FINDING_RANK_TRACEBACK;
    if (r->loop != NULL || computes(r, in))
        return FINDING_RANK_LOOPS;
    if (r->child != NULL)
        return FINDING_RANK_WAITS_FOR_CHILD;
    return sleep_code(spot, in);
}

/* Return true if the rank has exited with success. A failed rank has the activity WAY_UNKNOWN and gets no finding: its
 * agent reports the failure, and the round ends. */
static bool has_left(const struct snapshot_rank *f)
{
    return f->exited && f->exit_code == 0 && f->signal == 0;
}

static bool sleeps_interruptibly(const struct spot *spot)
{
    return spot->does != NULL && strncmp(spot->does, "sleeping", 8) == 0;
}

/* Return true if a thread sleeps. The state "uninterruptible" is a sleep, too: for example, the thread waits for a file
 * system. */
static bool is_asleep(const struct spot *spot)
{
    return sleeps_interruptibly(spot) || strncmp(spot->does, "uninterruptible", 15) == 0;
}

/* Return true if the main thread sleeps in the same state in both samples. A running thread does not sleep, even if it
 * gets no CPU time on an overloaded machine. */
static bool sleeps_still(const struct rank_analysis *r)
{
    const struct spot *a = r->spot[0], *b = r->spot[1];
    return a->thread != NULL && b->thread != NULL && is_asleep(b) &&
           spot_number(a->thread, "pid") == spot_number(b->thread, "pid") && strcmp(a->does, b->does) == 0 &&
           strcmp(a->object, b->object) == 0 && r->cpu_percent < IDLE_PERCENT;
}

/* Return true if the rank has printed a traceback and its main thread sleeps, but the frames of this thread are
 * unknown. */
static bool has_failed_unread(const struct snapshot_rank *f, const struct rank_analysis *r)
{
    return !f->exited && !f->node_lost && f->traceback != NULL && r->spot[1]->frames == NULL &&
           sleeps_still(r);
}

/* Return the activity of a rank. A running rank without frames has the activity WAY_UNKNOWN. A traceback does not make
 * such a rank a culprit, because the program may have handled the error. An error of py-spy does not make such a rank a
 * culprit either, because py-spy cannot read every interpreter. A stopped process is a culprit even in a collective,
 * because a stopped process cannot continue the collective. The setup of a collective may wait for keys, so check for a
 * collective before a key. */
static enum way way_of(const struct snapshot_rank *f, const struct rank_analysis *r)
{
    const struct spot *spot = r->spot[1];
    if (f->exited)
        return has_left(f) ? WAY_GONE : WAY_UNKNOWN;
    if (spot->frames == NULL || f->node_lost)
        return WAY_UNKNOWN;
    if (is_stopped(f, spot))
        return WAY_CULPRIT;
    if (spot->call != NULL && (!spot->idle_only || r->cpu_percent < IDLE_PERCENT))
        return WAY_WAITS;
    if (f->has_steps && f->call[0] != '\0')
        return WAY_UNKNOWN; /* for a rank in a collective of libddp, diagnose_still makes the finding */
    return f->waits.name.data != NULL && !f->waits.in_barrier ? WAY_NEEDS_KEY : WAY_CULPRIT;
}

/* Add a rank at `spot` to the group with the same spot, or to a new group. `is_same` compares spots. Return the index
 * of the group, or GROUPS_MAX if there is no room for another group. */
static uint32_t join_group(struct group groups[GROUPS_MAX], uint32_t *n, const struct spot *spot,
                           uint32_t rank, bool (*is_same)(const struct spot *a, const struct spot *b))
{
    uint32_t i = 0;
    while (i < *n && !is_same(groups[i].spot, spot))
        i++;
    if (i == GROUPS_MAX)
        return i;
    if (i == *n)
        groups[(*n)++] = (struct group){ .spot = spot, .first = rank };
    groups[i].n++;
    return i;
}

/* Add a waiting rank to the group of ranks that wait at the same place. Return false if the rank needs a new group, but
 * no more groups are possible (GROUPS_MAX). */
static bool join_wait(struct hang *h, uint32_t rank)
{
    struct rank_analysis *r = &h->ranks[rank];
    const uint32_t group = join_group(h->groups, &h->n_groups, r->spot[1], rank, is_same_wait);
    r->group = group < GROUPS_MAX ? group : r->group;
    h->is_full = h->is_full || group == GROUPS_MAX;
    return group < GROUPS_MAX;
}

/* Return true if a thread has waited in the same call of a collective between the samples. Such a thread uses no CPU
 * time, or a whole CPU if the driver of a GPU spins. A thread that has used a little CPU time has probably entered
 * another call. */
static bool waits_still(const struct hang *h, int64_t cpu_ms, int cpu_percent)
{
    return cpu_ms <= 0 || (cpu_percent >= BUSY_PERCENT && h->s->hang.has_signals);
}

/* Examine one rank. Return false if the rank has made progress, because the job may then only be slow. Calls that the
 * rank repeats in a loop (history_loop) are not progress. Also return false if there is no room for another group. In
 * both cases, the caller stops the search. */
static bool examine_rank(struct hang *h, uint32_t rank)
{
    struct rank_analysis *r = &h->ranks[rank];
    const struct snapshot_rank *f = &h->s->ranks[rank];
    r->loop = history_loop(h->s->hang.history, rank, h->s->n_ranks);
    if (!f->exited && has_moved(r) && r->loop == NULL)
        return false;
    r->way = way_of(f, r);
    h->n[r->way]++;
    r->child = find_awaited_child(r, (int64_t)h->s->hang.apart_ms);
    if (r->way == WAY_CULPRIT)
        r->code = culprit_code(f, r);
    return r->way != WAY_WAITS || (waits_still(h, r->cpu_ms, r->cpu_percent) && join_wait(h, rank));
}

/* --- failed ranks ----------------------------------------------------------------------------------------- */

/* Error texts of Gloo, NCCL and PyTorch's store after the loss of another rank. The program's own sockets break with
 * the same texts, so the error must also contain a name from `libraries`. */
static const char *const lost_peer_texts[] = { "Connection closed by peer", "Connection reset by peer",
                                               "Broken pipe", "remote process exited", "ncclRemoteError" };
static const char *const libraries[] = { "gloo", "nccl", "NCCL", "ProcessGroup", "TCPStore" };

static bool contains_one_of(const char *error, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(error, texts[i]) != NULL)
            return true;
    return false;
}

/* Return true if the rank's last traceback shows that the rank has lost a connection to another rank. */
static bool has_lost_peer(const struct snapshot_rank *f)
{
    return f->traceback != NULL &&
           contains_one_of(f->traceback, lost_peer_texts,
                           sizeof(lost_peer_texts) / sizeof(lost_peer_texts[0])) &&
           contains_one_of(f->traceback, libraries, sizeof(libraries) / sizeof(libraries[0]));
}

/* Return true if the rank has failed only because it has lost a connection. The culprit may then be another rank. */
static bool is_victim(const struct hang *h, uint32_t rank)
{
    return h->ranks[rank].code == FINDING_RANK_TRACEBACK && has_lost_peer(&h->s->ranks[rank]);
}

/* Return true if the main thread has ended the script: no frame is the top-level code of a module. Return false if the
 * outer frames are cut off, because they may contain such a frame. */
static bool has_ended_script(const struct spot *spot)
{
    bool ends = spot->frames != NULL && cJSON_GetArraySize(spot->frames) < STACKS_FRAMES_MAX;
    for (const cJSON *frame = ends ? spot->frames->child : NULL; frame != NULL; frame = frame->next)
        ends = ends && strcmp(spot_text(frame, "function"), "<module>") != 0;
    return ends;
}

/* Return true if every rank that still runs has failed and hangs while it exits. Then no rank can wait in a collective,
 * and only these failures can explain why the job makes no progress. Return false if a rank is still in its script: it
 * may have handled the error, or may be an idle server. */
static bool all_have_failed(const struct hang *h)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->s->n_ranks; i++) {
        const struct rank_analysis *r = &h->ranks[i];
        if (r->way == WAY_GONE)
            continue;
        if (r->way != WAY_CULPRIT || r->code != FINDING_RANK_TRACEBACK || !has_ended_script(r->spot[1]) ||
            computes(r, sleeps_in(&h->s->ranks[i], r->spot[1])))
            return false;
        n++;
    }
    return n > 0;
}

/* --- words ------------------------------------------------------------------------------------------------ */

/* Names of hosts, files and functions come from other processes and may be long, so each format limits them
 * ("%.100s"). */

/* Return "waits in" or "wait in" for ranks in a collective, and "is in" or "are in" for ranks that wait for a GPU. */
static const char *group_verb(const struct group *group)
{
    if (group->spot->call == NULL)
        return group->n == 1 ? "is in" : "are in";
    return group->n == 1 ? "waits in" : "wait in";
}

/* Append "rank 3 waits in all_reduce (train.py:88)". For several ranks, append only their number ("7 ranks wait in
 * ..."), because the user must examine the culprit and not these ranks. */
static void append_group(struct buf *out, const struct group *group)
{
    char place[SPOT_PLACE_MAX];
    const char *verb = group_verb(group);
    if (group->n == 1)
        buf_printf(out, "rank %u %s %s", group->first, verb, spot_place(place, group->spot));
    else
        buf_printf(out, "%u ranks %s %s", group->n, verb, spot_place(place, group->spot));
}

/* Compare two groups for sorting. The larger group comes first. If both groups are equally large, the group with the
 * lower `first` comes first. Because of this order, two samples of the same hang give the same sentence. */
static int compare_groups(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->first > y->first) - (x->first < y->first);
}

/* Format the largest groups, beginning with index `from`, and quote the flight records. */
static const char *group_words(words out, const struct hang *h, uint32_t from)
{
    struct buf text = { 0 };
    for (uint32_t i = from; i < h->n_groups && i < from + GROUPS_SHOWN; i++) {
        buf_printf(&text, i > from ? ", " : "");
        append_group(&text, &h->groups[i]);
    }
    if (h->n_groups > from + GROUPS_SHOWN)
        buf_printf(&text, " and others elsewhere");
    buf_printf(&text, "%s", h->records.quote);
    snprintf(out, WORDS_LEN, "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    return out;
}

struct selected {
    const struct hang *h;
    uint32_t like; /* is_like selects the ranks that are in the same situation as this rank */
};

/* Return true if rank `i` is in the same situation as the rank selected->like, so that one finding can name both. */
static bool is_like(const void *of, uint32_t i)
{
    const struct selected *selected = of;
    const struct rank_analysis *a = &selected->h->ranks[selected->like], *b = &selected->h->ranks[i];
    if (a == b || a->way != b->way || a->code != b->code)
        return a == b;
    if (a->way == WAY_WAITS)
        return a->group == b->group;
    if (a->loop != NULL && b->loop != NULL)
        return spot_is_same_function(a->loop, b->loop);
    if (a->way == WAY_CULPRIT && a->code == FINDING_RANK_TRACEBACK)
        return is_victim(selected->h, selected->like) == is_victim(selected->h, i);
    return a->way == WAY_GONE || is_same_stack(a->spot[1], b->spot[1]);
}

/* Return the number of ranks in the same situation as `rank`, including `rank`. */
static uint32_t count_like(const struct hang *h, uint32_t rank)
{
    const struct selected selected = { h, rank };
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        n += is_like(&selected, i);
    return n;
}

/* Format "rank 3 (n1, pid 812)" or "ranks 3, 5-7": all ranks in the same situation as `rank`. */
static const char *who_words(words out, const struct hang *h, uint32_t rank)
{
    const struct selected selected = { h, rank };
    const struct snapshot_rank *f = &h->s->ranks[rank];
    const uint32_t n = count_like(h, rank);
    struct buf text = { 0 };
    buf_printf(&text, n == 1 ? "rank " : "ranks ");
    append_ranges(&text, &selected, h->s->n_ranks, is_like);
    if (n == 1 && f->host != NULL)
        buf_printf(&text, " (%.100s, pid %d)", f->host, f->pid);
    snprintf(out, WORDS_LEN, "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    return out;
}

/* --- flight records --------------------------------------------------------------------------------------- */

/* If the stacks of all ranks are equal, or if some stacks cannot be read, the flight records of the ranks are used to
 * find the culprit. A flight record lists the latest collectives of a rank. If the stacks name a culprit, the finding
 * only quotes the records as evidence.
 *
 * PyTorch writes a flight record even if the main thread hangs, because a separate thread writes it. Each call has its
 * group and number, so the calls of two ranks can be compared. */

/* Append a row to the calls of a rank. read_records has checked that there is room. */
static void append_call(const struct message_flight_call *row, struct flight_dump *d)
{
    struct flight_entry *e = &d->calls[d->n];
    *e = (struct flight_entry){ .seq = (uint64_t)row->seq,
                                .n = (uint64_t)row->n,
                                .created_ns = (int64_t)((uint64_t)row->created_ms * 1000000),
                                .root = (int)row->root,
                                .order = (uint32_t)d->n++ };
    snprintf(e->group, sizeof(e->group), "%s", row->group);
    snprintf(e->name, sizeof(e->name), "%s", row->name);
    snprintf(e->state, sizeof(e->state), "%s", row->state);
    snprintf(e->dtype, sizeof(e->dtype), "%s", row->dtype);
    snprintf(e->op, sizeof(e->op), "%s", row->reduce);
    snprintf(e->place, sizeof(e->place), "%s", row->at);
}

/* Sort the rows of a sample into one record for each of `n` ranks, and return the records. Return NULL if memory is
 * short. Rows beyond the limit of a rank are left out. A rank without rows has no calls. The caller frees the records
 * with dumps_free. */
static struct flight_dump *read_records(const cJSON *rows, uint32_t n)
{
    const cJSON *row;
    struct flight_dump *dumps = calloc(n, sizeof(*dumps));
    cJSON_ArrayForEach(row, rows)
    {
        struct message_flight_call call;
        message_read_flight_call(row, &call);
        if (dumps == NULL || call.rank < 0 || call.rank >= n)
            continue;
        struct flight_dump *d = &dumps[call.rank];
        d->calls = d->calls != NULL ? d->calls : calloc(FLIGHT_OPEN_MAX, sizeof(struct flight_entry));
        if (d->calls != NULL && d->n < FLIGHT_OPEN_MAX)
            append_call(&call, d);
    }
    for (uint32_t i = 0; dumps != NULL && i < n; i++) {
        dumps[i].rank = (int)i;
        dumps[i].world_size = (int)n;
        flight_dump_sort(&dumps[i]);
    }
    return dumps;
}

static void dumps_free(struct flight_dump *dumps, uint32_t n)
{
    for (uint32_t i = 0; dumps != NULL && i < n; i++)
        flight_dump_free(&dumps[i]);
    free(dumps);
}

static void records_free(struct records *r)
{
    dumps_free(r->dumps, r->n);
    cJSON_Delete(r->compared);
}

/* Return true if both samples of a rank have the same calls in the same states. Only then can the rank be compared with
 * other ranks, because the records of the ranks are from different moments. */
static bool stands_still(const struct flight_dump *a, const struct flight_dump *b)
{
    bool is_same = a->n > 0 && a->n == b->n;
    for (size_t i = 0; i < a->n && is_same; i++) {
        const struct flight_entry *x = &a->calls[i], *y = &b->calls[i];
        is_same = x->seq == y->seq && strcmp(x->group, y->group) == 0 && strcmp(x->name, y->name) == 0 &&
                  strcmp(x->state, y->state) == 0;
    }
    return is_same;
}

/* Keep the records of the later sample that have not changed since the earlier sample. Move them to the front
 * of the array, where flight_compare expects them. */
static void keep_records(const struct snapshot *s, struct records *r)
{
    const uint32_t n = s->n_ranks;
    struct flight_dump *earlier = read_records(s->hang.calls[0], n);
    r->dumps = read_records(s->hang.calls[1], n);
    for (uint32_t i = 0; r->dumps != NULL && i < n; i++)
        if (earlier != NULL && stands_still(&earlier[i], &r->dumps[i]))
            r->dumps[r->n++] = r->dumps[i];
        else
            flight_dump_free(&r->dumps[i]);
    dumps_free(earlier, n);
}

bool hang_lacks_records(const struct snapshot *s)
{
    struct records r = { 0 };
    keep_records(s, &r);
    const bool lacks = cJSON_GetArraySize(s->hang.calls[1]) > 0 && r.n < s->n_ranks;
    records_free(&r);
    return lacks;
}

static bool is_chosen(const void *of, uint32_t i)
{
    const bool *chosen = of;
    return chosen[i];
}

/* Format "rank 3 (n1, pid 71)" or "ranks 3, 5-7": the ranks in a list of flight_compare. Return the lowest rank, or -1
 * if the list is empty. */
static int64_t listed_ranks(words out, const struct hang *h, const cJSON *list)
{
    const cJSON *item;
    const uint32_t n = h->s->n_ranks;
    bool *chosen = calloc(n, sizeof(*chosen));
    int64_t first = -1;
    struct buf text = { 0 };
    cJSON_ArrayForEach(item, list)
    {
        if (chosen == NULL || item->valueint < 0 || (uint32_t)item->valueint >= n)
            continue;
        first = first < 0 || item->valueint < first ? item->valueint : first;
        chosen[item->valueint] = true;
    }
    out[0] = '\0';
    if (first >= 0) {
        const struct snapshot_rank *f = &h->s->ranks[first];
        buf_printf(&text, cJSON_GetArraySize(list) == 1 ? "rank " : "ranks ");
        append_ranges(&text, chosen, n, is_chosen);
        if (cJSON_GetArraySize(list) == 1 && f->host != NULL)
            buf_printf(&text, " (%.100s, pid %d)", f->host, f->pid);
        snprintf(out, WORDS_LEN, "%.*s", (int)text.len, (const char *)text.data);
    }
    buf_free(&text);
    free(chosen);
    return first;
}

/* Return a member of the comparison of the records, or NULL if no record could be compared. */
static const cJSON *compared(const struct hang *h, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(h->records.compared, name);
}

/* Return the row of flight_compare that describes the latest call of `rank`. Return NULL if the record of this rank was
 * not compared. */
static const cJSON *compared_rank(const struct hang *h, int64_t rank)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, compared(h, "ranks"))
    {
        if (spot_number(row, "rank") == rank)
            return row;
    }
    return NULL;
}

/* Return one of the groups of ranks that made different calls: the largest group if `largest` is true, otherwise the
 * smallest. If several groups are the largest, return the first of them. If several groups are the smallest, return the
 * last of them. So the two results are different groups, even if all groups have the same size. */
static const cJSON *differ_group(const struct hang *h, bool largest)
{
    const cJSON *group, *found = NULL;
    int best = 0;
    cJSON_ArrayForEach(group, compared(h, "differ"))
    {
        const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(group, "ranks"));
        if (found == NULL || (largest ? n > best : n <= best)) {
            found = group;
            best = n;
        }
    }
    return found;
}

/* Compare the flight records, and write the difference to records.quote. Findings from the stacks end with this quote,
 * because the quote names the collective and its number. */
static void compare_records(struct hang *h)
{
    struct records *r = &h->records;
    words who;
    keep_records(h->s, r);
    if (r->n == 0)
        return;
    r->compared = flight_compare(r->dumps, r->n);
    const cJSON *few = differ_group(h, false);
    const char *front = spot_text(r->compared, "front");
    if (few != NULL && listed_ranks(who, h, cJSON_GetObjectItemCaseSensitive(few, "ranks")) >= 0)
        snprintf(r->quote, sizeof(r->quote), "; flight records: only %.90s called %.120s", who,
                 spot_text(few, "call"));
    else if (listed_ranks(who, h, compared(h, "behind")) >= 0)
        snprintf(r->quote, sizeof(r->quote), "; the flight records of %.90s do not contain %.120s", who,
                 front);
    else
        snprintf(r->quote, sizeof(r->quote), "; flight records: the last call of %s is %.120s",
                 counted(who, r->n, "rank"), front);
}

/* Format " (train.py:88)" for the place "main (train.py:88)", or "" if the place has no line. Leave out the name of the
 * function, here `main`, because the sentence already names the collective. */
static const char *line_words(words out, const char *at)
{
    const char *line = strchr(at, '(');
    snprintf(out, WORDS_LEN, "%s%.100s", line != NULL ? " " : "", line != NULL ? line : "");
    return out;
}

/* Report the smallest group of ranks that made a different call, as their flight records show. */
static int64_t add_records_differ(struct diagnosis *d, const struct hang *h)
{
    const cJSON *few = differ_group(h, false), *many = differ_group(h, true);
    words who, others, waits, waiters, time, line;
    const int64_t rank = listed_ranks(who, h, cJSON_GetObjectItemCaseSensitive(few, "ranks"));
    if (few == many || rank < 0 ||
        listed_ranks(others, h, cJSON_GetObjectItemCaseSensitive(many, "ranks")) < 0)
        return -1;
    struct finding *slot = diagnosis_slot(d, FINDING_COLLECTIVES_DIFFER);
    snprintf(waits, sizeof(waits), "called %.120s%.100s", spot_text(few, "call"),
             line_words(line, spot_text(few, "at")));
    snprintf(waiters, sizeof(waiters), "%.60s called %.100s%.80s", others, spot_text(many, "call"),
             line_words(line, spot_text(many, "at")));
    if (slot != NULL)
        finding_make(slot, FINDING_COLLECTIVES_DIFFER, who, "waits", waits, "time",
                     duration(time, h->s->hang.still_ms), "waiters", waiters, NULL);
    return rank;
}

/* A call that some ranks have not reached. All members are borrowed. */
struct behind {
    const cJSON *ranks, *there; /* ranks: ranks that have not reached the call; there: ranks in the call */
    const char *misses;         /* words after "has" in the finding: "not called" or "called" */
    const char *but;            /* text that follows the name of the call in the sentence; "" = no text */
    const char *call, *at;      /* call: name of the call; at: its place in the program, "" if unknown */
};

/* Add the finding about the ranks in b->ranks. Return the lowest of these ranks. Return -1 if b->ranks or b->there is
 * empty. */
static int64_t add_behind(struct diagnosis *d, const struct hang *h, const struct behind *b)
{
    words who, there, waiters, last = "", time, number_, line, call;
    const bool is_one = cJSON_GetArraySize(b->ranks) == 1;
    const int64_t rank = listed_ranks(who, h, b->ranks);
    if (rank < 0 || listed_ranks(there, h, b->there) < 0)
        return -1;
    const cJSON *mine = compared_rank(h, rank);
    struct finding *slot = diagnosis_slot(d, FINDING_RANK_BEHIND);
    snprintf(waiters, sizeof(waiters), "%.100s %s%.80s", there,
             cJSON_GetArraySize(b->there) == 1 ? "waits" : "wait", line_words(line, b->at));
    if (mine != NULL && strcmp(spot_text(mine, "call"), b->call) != 0)
        snprintf(last, sizeof(last), "; %s last call is %.120s%.80s", is_one ? "its" : "the first rank's",
                 spot_text(mine, "call"), line_words(line, spot_text(mine, "at")));
    snprintf(call, sizeof(call), "%.200s%s", b->call, b->but);
    if (slot != NULL)
        finding_make(slot, FINDING_RANK_BEHIND, who, "has", is_one ? "has" : "have", "misses", b->misses,
                     "call", call, "waiters", waiters, "last", last, "time",
                     duration(time, h->s->hang.still_ms), "rank", number(number_, (uint64_t)rank), NULL);
    return rank;
}

/* Report the ranks whose GPU has not started a call that the GPUs of other ranks have started. */
static int64_t add_half_started(struct diagnosis *d, const struct hang *h)
{
    const struct records *r = &h->records;
    const struct flight_entry *call = flight_half_started(r->dumps, r->n);
    char text[FLIGHT_CALL_WORDS];
    cJSON *late = cJSON_CreateArray(), *there = cJSON_CreateArray();
    for (uint32_t i = 0; call != NULL && i < r->n; i++)
        json_append(flight_is_scheduled(&r->dumps[i], call) ? late : there,
                    cJSON_CreateNumber(r->dumps[i].rank));
    const int64_t rank = call == NULL
                             ? -1
                             : add_behind(d, h,
                                          &(struct behind){ .ranks = late,
                                                            .there = there,
                                                            .misses = "called",
                                                            .but = ", but the GPU has not started this call",
                                                            .call = flight_call_words(text, call),
                                                            .at = call->place });
    cJSON_Delete(late);
    cJSON_Delete(there);
    return rank;
}

/* Report the culprit that the records show, and return its rank, or -1 if the records show no culprit. Also return -1
 * if the record of a rank is missing, because this rank may be the culprit. Records may be late, for example on a slow
 * file server. */
static int64_t report_records(struct diagnosis *d, const struct hang *h)
{
    if (h->records.compared == NULL || h->records.n < h->s->n_ranks)
        return -1;
    if (compared(h, "differ") != NULL)
        return add_records_differ(d, h);
    const cJSON *behind = compared(h, "behind"), *there = compared(h, "there");
    if (cJSON_GetArraySize(behind) == 0 || !cJSON_IsTrue(compared(h, "waits")))
        return add_half_started(d, h);
    const cJSON *first = cJSON_GetArrayItem(there, 0);
    const cJSON *front = first != NULL ? compared_rank(h, first->valueint) : NULL;
    return add_behind(d, h,
                      &(struct behind){ .ranks = behind,
                                        .there = there,
                                        .misses = "not called",
                                        .but = "",
                                        .call = spot_text(h->records.compared, "front"),
                                        .at = spot_text(front, "at") });
}

/* --- the verdict ------------------------------------------------------------------------------------------ */

/* The verdict is one finding about one rank or group of ranks. The same hang must always give the same verdict,
 * because the monitor compares the verdicts of successive pairs of samples. */

/* Return the culprit whose finding is first in findings.h. If several culprits have this finding, prefer a rank that is
 * not a victim (is_victim). Return n_ranks if there is no culprit. */
static uint32_t find_culprit(const struct hang *h)
{
    uint32_t best = h->s->n_ranks;
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        if (h->ranks[i].way == WAY_CULPRIT &&
            (best == h->s->n_ranks || h->ranks[i].code < h->ranks[best].code ||
             (h->ranks[i].code == h->ranks[best].code && is_victim(h, best) && !is_victim(h, i))))
            best = i;
    return best;
}

/* Return the first rank whose activity is `way`, or n_ranks if no rank has this activity. */
static uint32_t find_way(const struct hang *h, enum way way)
{
    uint32_t i = 0;
    while (i < h->s->n_ranks && h->ranks[i].way != way)
        i++;
    return i;
}

/* Return the verb for a culprit that uses CPU time. */
static const char *loop_words(const struct rank_analysis *r, bool is_one)
{
    if (r->loop != NULL)
        return is_one ? "repeats the same calls" : "repeat the same calls";
    return is_one ? "computes" : "compute";
}

/* Format "child process 81, which is in load (data.py:8), blocked in openat of /data/fifo", or "child process 81
 * (sleep), which is sleeping in clock_nanosleep". If the finding names several ranks, also name the rank that has
 * started the child. */
static const char *child_words(words out, const struct rank_analysis *r, uint32_t rank, bool is_one)
{
    const struct spot_child *child = r->child;
    char place[SPOT_PLACE_MAX], of[32] = "", name[SPOT_PLACE_MAX + 16] = "";
    if (child == NULL)
        return "";
    const char *object = spot_text(child->thread, "object"), *in = strstr(child->does, " in ");
    const bool is_blocked = object[0] != '\0' && in != NULL;
    const struct spot spot = { .frames = child->frames, .user = child->user };
    if (!is_one)
        snprintf(of, sizeof(of), " of rank %u", rank);
    if (child->frames != NULL)
        snprintf(name, sizeof(name), "%s, which is in %s,", of, spot_place(place, &spot));
    else
        snprintf(name, sizeof(name), " (%.16s)%s, which is", spot_text(child->thread, "thread"), of);
    snprintf(out, WORDS_LEN, "child process %d%.85s %s%.40s%s%.90s", spot_number(child->thread, "pid"), name,
             is_blocked ? "blocked" : "", is_blocked ? in : child->does, is_blocked ? " of " : "",
             is_blocked ? object : "");
    return out;
}

/* Return the reason why frames cannot be read, such as a missing program. Skip the prefix of the agents' notes,
 * because the sentences of the findings already contain it. */
static const char *unreadable_why(const struct hang *h)
{
    static const char prefix[] = "no Python stacks: ";
    const bool has_prefix = strncmp(h->note, prefix, sizeof(prefix) - 1) == 0;
    return h->note + (has_prefix ? sizeof(prefix) - 1 : 0);
}

/* Add the finding about a culprit. The values are from the later sample. finding_make gets all values, and ignores
 * those that the finding's sentence does not contain. */
static void add_culprit(struct diagnosis *d, const struct hang *h, uint32_t rank)
{
    const struct rank_analysis *r = &h->ranks[rank];
    const struct snapshot_rank *f = &h->s->ranks[rank];
    const struct spot *spot = r->spot[1];
    const struct spot in_loop = { .frames = spot->frames, .user = r->loop };
    char place[SPOT_PLACE_MAX + 32], object[SPOT_PLACE_MAX + 8] = "";
    words who, waiters, time, cpu, child, awaited, call, pid, number_;
    const bool is_one = count_like(h, rank) == 1;
    const int process = spot_number(spot->thread, "pid"); /* the worker, or the program that it runs */
    words none;
    struct finding *slot = diagnosis_slot(d, r->code);
    if (slot == NULL)
        return;
    /* Use the state in the sample, because the last heartbeat may be older than the stop. */
    if (r->code == FINDING_RANK_STOPPED) {
        struct snapshot_rank stopped = *f;
        stopped.proc_state = f->proc_state == 't' || strstr(spot->does, "debugger") != NULL ? 't' : 'T';
        stopped.pid = process > 0 ? process : f->pid;
        diagnose_rank(&stopped, slot);
        return;
    }
    if (spot->object[0] != '\0')
        snprintf(object, sizeof(object), " of %.140s", spot->object);
    snprintf(call, sizeof(call), "%.60s", sleeps_in(f, spot));
    spot_place(place, r->loop != NULL ? &in_loop : spot);
    if (r->code == FINDING_RANK_TRACEBACK && !is_one) /* other ranks may have failed at other places */
        snprintf(place + strlen(place), sizeof(place) - strlen(place), " of rank %u", rank);
    if (h->n_groups > 0)
        group_words(waiters, h, 0);
    else
        snprintf(waiters, sizeof(waiters), "no rank waits in a collective%s", group_words(none, h, 0));
    finding_make(slot, r->code, who_words(who, h, rank), "place", place, "time",
                 duration(time, h->s->hang.still_ms), "waiters", waiters, "does", loop_words(r, is_one),
                 "cpu", number(cpu, (uint64_t)r->cpu_percent), "child_pid",
                 number(child, (uint64_t)spot->ended_child), "child", child_words(awaited, r, rank, is_one),
                 "call", call, "object", object, "error", f->traceback != NULL ? f->traceback : "", "pid",
                 number(pid, (uint64_t)(process > 0 ? process : f->pid)), "rank", number(number_, rank), "is",
                 is_one ? "is" : "are", "has", is_one ? "has" : "have", "s", is_one ? "s" : "", NULL);
}

/* Add the finding about a rank that has exited. Name the ranks that wait for this rank in a collective. If no rank
 * waits, name the ranks that have lost their connections to this rank; `victim` is one of these ranks. */
static void add_gone(struct diagnosis *d, const struct hang *h, uint32_t rank, uint32_t victim)
{
    const bool has_waiters = h->n_groups > 0;
    const struct group *group = &h->groups[0];
    const uint32_t n = has_waiters ? group->n : count_like(h, victim);
    const bool is_one = h->n[WAY_GONE] == 1;
    uint64_t ago_ms = 0; /* time since the first rank exited */
    words who, ago, waiters, where;
    char place[SPOT_PLACE_MAX];
    struct finding *slot = diagnosis_slot(d, FINDING_RANK_EXITED_EARLY);
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        if (h->ranks[i].way == WAY_GONE && h->s->ranks[i].state_ms > ago_ms)
            ago_ms = h->s->ranks[i].state_ms;
    snprintf(waiters, sizeof(waiters), n == 1 ? "rank %u" : "%u ranks",
             n > 1         ? n
             : has_waiters ? group->first
                           : victim);
    if (has_waiters)
        snprintf(where, sizeof(where), "in %s", spot_place(place, group->spot));
    else
        snprintf(where, sizeof(where), "and failed: %.200s", h->s->ranks[victim].traceback);
    if (slot != NULL)
        finding_make(slot, FINDING_RANK_EXITED_EARLY, who_words(who, h, rank), "ago",
                     exit_time(ago, ago_ms, is_one), "waiters", waiters, "it", is_one ? "it" : "them",
                     "where", where, NULL);
}

/* Add the finding about a rank that waits for a key. Also name the ranks that wait in a collective. If no rank waits in
 * a collective, name a culprit instead. */
static void add_needs_key(struct diagnosis *d, const struct hang *h, uint32_t rank)
{
    struct buf key = { 0 };
    const uint32_t setter = h->s->ranks[rank].waits.setter, culprit = find_culprit(h);
    words who, time, waiters, others = "", key_words, by = "";
    const bool is_one = count_like(h, rank) == 1;
    char place[SPOT_PLACE_MAX];
    struct finding *slot = diagnosis_slot(d, FINDING_RANK_NEEDS_KEY);
    diagnose_append_place(h->s->ranks[rank].waits.name, false, &key);
    snprintf(key_words, sizeof(key_words), "%.*s", (int)key.len,
             key.data != NULL ? (const char *)key.data : "");
    buf_free(&key);
    if (setter > 0 && setter <= h->s->n_ranks)
        snprintf(by, sizeof(by),
                 "; rank %u should set this key, because every other rank has set its "
                 "own key",
                 setter - 1);
    if (h->n_groups > 0)
        snprintf(others, sizeof(others), "; %.250s", group_words(waiters, h, 0));
    else if (culprit < h->s->n_ranks)
        snprintf(others, sizeof(others), "; possible cause: %.80s in %.150s", who_words(who, h, culprit),
                 spot_place(place, h->ranks[culprit].spot[1]));
    if (slot != NULL)
        finding_make(slot, FINDING_RANK_NEEDS_KEY, who_words(who, h, rank), "place",
                     spot_place(place, h->ranks[rank].spot[1]), "time", duration(time, h->s->hang.still_ms),
                     "key", key_words, "setter", by, "waiters", others, "is", is_one ? "is" : "are", "s",
                     is_one ? "s" : "", NULL);
}

/* Report ranks that wait in different collectives. The culprit is the smallest group. */
static void add_differ(struct diagnosis *d, const struct hang *h)
{
    const struct group *least = &h->groups[h->n_groups - 1];
    words who, time, waiters;
    char place[SPOT_PLACE_MAX], waits[SPOT_PLACE_MAX + 8];
    struct hang others = *h;
    struct finding *slot = diagnosis_slot(d, FINDING_COLLECTIVES_DIFFER);
    others.n_groups--;
    snprintf(waits, sizeof(waits), "%s %.150s", group_verb(least), spot_place(place, least->spot));
    if (slot != NULL)
        finding_make(slot, FINDING_COLLECTIVES_DIFFER, who_words(who, h, least->first), "waits", waits,
                     "time", duration(time, h->s->hang.still_ms), "waiters", group_words(waiters, &others, 0),
                     NULL);
}

/* --- connections ------------------------------------------------------------------------------------------ */

/* If all ranks wait in one collective, the cause may be a connection that loses packets. Such a connection is a cut:
 * the kernel has sent the same data several times without an answer (STACKS_UNANSWERED). */

/* The two ends of a cut. Pointers are borrowed from the snapshot and its samples. */
struct cut {
    const struct snapshot_node *from, *to; /* `to` is NULL if no other node has the address of `peer` */
    const char *peer;
    uint32_t rank; /* the rank that owns the connection, on node `from` */
};

/* Return true if `peer`, such as "10.0.0.2:4711" or "[fd00::2]:4711", has this address. */
static bool is_peer_at(const char *peer, const char *address)
{
    const size_t len = strlen(address);
    const bool has_bracket = peer[0] == '[';
    peer += has_bracket;
    return len > 0 && strncmp(peer, address, len) == 0 &&
           (has_bracket ? strncmp(peer + len, "]:", 2) == 0 : peer[len] == ':');
}

/* Return true if `peer` has an address of the node. A node has two addresses: the address that it sent, and the address
 * that the store sees. */
static bool is_peer_on(const char *peer, const struct snapshot_node *node)
{
    return is_peer_at(peer, node->addr) || is_peer_at(peer, node->own);
}

/* Return true if this sample shows unacknowledged data from the rank to `peer`. */
static bool holds_peer(const struct spot *spot, const char *peer)
{
    for (uint32_t i = 0; i < spot->n_unanswered; i++)
        if (strcmp(spot->unanswered[i], peer) == 0)
            return true;
    return false;
}

/* Find a connection on which the peer does not acknowledge the rank's data in both samples. Prefer a connection to
 * another node. Return false if no connection is found. One sample is not enough. After a single lost packet, data is
 * also unacknowledged until the kernel has sent the packet again. */
static bool find_cut(const struct hang *h, uint32_t rank, struct cut *cut)
{
    const struct rank_analysis *r = &h->ranks[rank];
    const struct snapshot *s = h->s;
    *cut = (struct cut){ .rank = rank };
    for (uint32_t i = 0; i < s->n_nodes && cut->from == NULL; i++)
        if (rank - s->nodes[i].first_rank < s->nodes[i].nproc && !s->nodes[i].is_spare)
            cut->from = &s->nodes[i];
    for (uint32_t k = 0; cut->from != NULL && k < r->spot[1]->n_unanswered; k++) {
        const char *peer = r->spot[1]->unanswered[k];
        if (!holds_peer(r->spot[0], peer))
            continue;
        cut->peer = cut->peer == NULL ? peer : cut->peer;
        for (uint32_t i = 0; i < s->n_nodes && !is_peer_on(peer, cut->from); i++)
            if (is_peer_on(peer, &s->nodes[i])) {
                cut->peer = peer;
                cut->to = &s->nodes[i];
                return true;
            }
    }
    return cut->peer != NULL;
}

/* Return true if two cut connections are between the same two nodes, in either direction. Both ends may report one
 * connection. */
static bool is_same_pair(const struct cut *a, const struct cut *b)
{
    return (a->from == b->from && a->to == b->to) || (a->from == b->to && a->to == b->from);
}

/* Return true if two peers have the same address. Ignore the ports, because Gloo opens several connections between two
 * ranks. */
static bool is_same_host(const char *a, const char *b)
{
    const char *a_port = strrchr(a, ':'), *b_port = strrchr(b, ':');
    return a_port != NULL && b_port != NULL && a_port - a == b_port - b &&
           strncmp(a, b, (size_t)(a_port - a)) == 0;
}

/* Format the loss of packets that the agent's UDP probe has measured on the path of a cut connection. If both samples
 * have a result, use the later sample. If neither sample has a result, return "". */
static const char *loss_words(words out, const struct hang *h, const struct cut *cut)
{
    out[0] = '\0';
    for (int i = 0; i < 2; i++) {
        const struct spot *spot = h->ranks[cut->rank].spot[i];
        for (uint32_t k = 0; k < spot->n_lossy; k++)
            if (is_same_host(spot->lossy[k].peer, cut->peer))
                snprintf(out, sizeof(words), "; UDP packets of %d bytes are lost, small packets arrive",
                         spot->lossy[k].bytes);
    }
    return out;
}

/* Return the number of pairs of nodes with a cut, and format the first: "the connection between n1 and n2 (rank 2 sends
 * to 10.0.0.3:4711 without an answer)". If no pair of nodes has a cut, format a cut between a node and another peer.
 * Such a peer may have nothing to do with the job. */
static uint32_t cut_words(words out, const struct hang *h)
{
    enum { PAIRS_MAX = 16 };
    struct cut pairs[PAIRS_MAX], cut;
    words loss;
    uint32_t n = 0;
    out[0] = '\0';
    for (uint32_t rank = 0; rank < h->s->n_ranks && n < PAIRS_MAX; rank++) {
        uint32_t i = 0;
        if (!find_cut(h, rank, &cut))
            continue;
        if (cut.to == NULL) {
            if (out[0] == '\0')
                snprintf(out, WORDS_LEN, "; rank %u sends to %.50s without an answer", rank, cut.peer);
            continue;
        }
        while (i < n && !is_same_pair(&pairs[i], &cut))
            i++;
        if (i == n)
            pairs[n++] = cut;
    }
    if (n > 0)
        snprintf(out, WORDS_LEN,
                 "the connection between %.40s and %.40s (rank %u sends to %.50s without an answer%.60s)",
                 pairs[0].from->host, pairs[0].to->host, pairs[0].rank, pairs[0].peer,
                 loss_words(loss, h, &pairs[0]));
    return n;
}

/* Add the finding that all ranks wait in one collective. The strongest evidence of a cause is a cut connection between
 * two nodes. Without such a connection, name a GPU as a possible cause. If the job has several nodes, also name the
 * network. */
static void add_all_wait(struct diagnosis *d, const struct hang *h)
{
    const struct snapshot *s = h->s;
    words who, time, hosts, cut;
    char between[3 * WORDS_LEN], place[SPOT_PLACE_MAX + 16];
    struct finding *slot = diagnosis_slot(d, FINDING_ALL_RANKS_WAIT);
    const uint32_t pairs = cut_words(cut, h);
    snprintf(who, sizeof(who), "all %u ranks", s->n_ranks);
    spot_place(place, h->groups[0].spot);
    if (h->n_groups > 1)
        snprintf(place + strlen(place), 16, " and elsewhere");
    if (pairs > 0)
        snprintf(between, sizeof(between), "%s%s%.200s", cut, pairs > 1 ? ", and others" : "",
                 h->records.quote);
    else if (members_of(s) > 1)
        snprintf(between, sizeof(between), "the network between the nodes (%.180s), or a GPU%.100s%.250s",
                 all_hosts(hosts, s), cut, h->records.quote);
    else
        snprintf(between, sizeof(between), "a GPU, or the memory that the ranks share%.100s%.250s", cut,
                 h->records.quote);
    if (slot != NULL)
        finding_make(slot, FINDING_ALL_RANKS_WAIT, who, "place", place, "time",
                     duration(time, s->hang.still_ms), "between", between, NULL);
}

/* Return true if `r` and `most` are culprits at the same place, and neither repeats its calls in a loop. adopt_majority
 * assumes that a majority of such culprits waits for a GPU. A rank in a loop does not wait for a GPU, because it
 * computes on the CPU. */
static bool may_adopt(const struct rank_analysis *r, const struct rank_analysis *most)
{
    return r->way == WAY_CULPRIT && most->way == WAY_CULPRIT && r->loop == NULL && most->loop == NULL &&
           is_same_wait(r->spot[1], most->spot[1]);
}

/* Count the culprits at the same line of the program as `rank`. If no line has a majority, adopt_majority calls this
 * function for half of the ranks. So the time is quadratic in the number of ranks. */
static uint32_t count_there(const struct hang *h, uint32_t rank)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        n += may_adopt(&h->ranks[i], &h->ranks[rank]);
    return n;
}

/* Change a rank from a culprit to a waiting rank. */
static void set_waits(struct hang *h, uint32_t rank)
{
    h->ranks[rank].way = WAY_WAITS;
    h->n[WAY_CULPRIT]--;
    h->n[WAY_WAITS]++;
}

/* Mark the culprits at one line as waiting ranks if they are more than half of all ranks. They probably wait for a GPU:
 * the line reads the result of a collective, and the GPU's driver spins until the result is ready. Such ranks have no
 * frame of the collective. Mark no rank in any of these cases:
 *
 *     the job has fewer than three ranks
 *     all ranks are at this line
 *     there is no room for another group
 *     this round has shown no progress yet
 *     other ranks wait in a collective, and the ranks at this line do not compute */
static void adopt_majority(struct hang *h)
{
    const uint32_t n = h->s->n_ranks;
    uint32_t most = n;
    for (uint32_t i = 0; i < n && i <= n / 2 && most == n; i++)
        if (2 * count_there(h, i) > n)
            most = i;
    if (n < 3 || most == n || count_there(h, most) == n || h->n_groups == GROUPS_MAX ||
        !h->s->hang.has_signals || (h->ranks[most].code != FINDING_RANK_LOOPS && h->n_groups > 0))
        return;
    for (uint32_t i = n; i-- > 0;) {
        if (!may_adopt(&h->ranks[i], &h->ranks[most]))
            continue;
        set_waits(h, i);
        (void)join_wait(h, i);
    }
}

/* Return true if the rank sleeps in a C function that waits either for other ranks or for a lock of the program. The
 * stack does not show for which of the two the rank waits (struct spot). */
static bool may_wait(const struct hang *h, uint32_t rank)
{
    const struct rank_analysis *r = &h->ranks[rank];
    return r->way == WAY_CULPRIT && r->code == FINDING_RANK_IN_LOCK && r->spot[0]->may_wait &&
           r->spot[1]->may_wait && r->cpu_ms <= 0 && h->s->ranks[rank].connected;
}

/* Return true if some rank waits in a known collective. Ignore the ranks that adopt_majority has marked, because they
 * have no frame of a collective. */
static bool waits_in_call(const struct hang *h)
{
    uint32_t i = 0;
    while (i < h->n_groups && h->groups[i].spot->call == NULL)
        i++;
    return i < h->n_groups;
}

/* Return true if some rank waits for other ranks and not for a lock. */
static bool surely_waits(const struct hang *h)
{
    uint32_t i = 0;
    while (i < h->n_groups && h->groups[i].spot->may_wait)
        i++;
    return i < h->n_groups;
}

/* Return true if the rank is surely a culprit. `is_known` is the result of waits_in_call().
 *
 * Return false if the rank is not WAY_CULPRIT, and also in each of these cases:
 * - The rank sleeps in futex. It may wait for a lock or for other ranks.
 * - The rank computes, but not in a loop of calls, and `is_known` is false. It may wait for its GPU, and so for the
 *   other ranks.
 * - The rank has no frame of the user's program, is not stopped, and has not printed a traceback. */
static bool is_sure(const struct rank_analysis *r, bool is_known)
{
    return r->way == WAY_CULPRIT && r->code != FINDING_RANK_IN_LOCK &&
           (r->code != FINDING_RANK_LOOPS || is_known || r->loop != NULL) &&
           (r->spot[1]->user != NULL || r->code == FINDING_RANK_STOPPED || r->code == FINDING_RANK_TRACEBACK);
}

/* Change each rank for which may_wait() returns true to a waiting rank. Change no rank in case A or B:
 *
 *     A. No rank is surely a culprit (is_sure).
 *     B. A rank is surely a culprit, but no rank surely waits (surely_waits). Also, may_wait() is false for at least
 *        two ranks that do not wait. Each of these ranks may need a rank that waits for a lock.
 *
 * Return false in three cases, because the stacks then prove nothing:
 *
 *     1. in case A, if some ranks wait, and may_wait() is true for at least half of all ranks and at least two ranks
 *     2. in case B, if some ranks wait
 *     3. if there is no room for another group */
static bool adopt_may_wait(struct hang *h)
{
    const uint32_t n = h->s->n_ranks;
    const bool is_known = waits_in_call(h);
    uint32_t n_may = 0, n_sure = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_may += may_wait(h, i);
        n_sure += is_sure(&h->ranks[i], is_known);
    }
    if (n_sure == 0)
        return h->n_groups == 0 || n_may < 2 || 2 * n_may < n;
    if (!surely_waits(h) && h->n[WAY_WAITS] + n_may + 1 != n)
        return h->n_groups == 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!may_wait(h, i))
            continue;
        if (!join_wait(h, i))
            return false;
        set_waits(h, i);
    }
    return true;
}

/* Return true if there is a culprit, and all culprits compute. Such a job may be slow without hanging. */
static bool only_loops(const struct hang *h)
{
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        if (h->ranks[i].way == WAY_CULPRIT && h->ranks[i].code != FINDING_RANK_LOOPS)
            return false;
    return h->n[WAY_CULPRIT] > 0;
}

/* Add the finding about a culprit, or about a rank that has exited, and return the rank of the finding. Prefer the
 * culprit. But if the culprit failed only because it lost a connection (is_victim), prefer the rank that has exited.
 * `culprit` or `gone` is n_ranks if there is no such rank. Return -1 if both are n_ranks. */
static int64_t add_failed(struct diagnosis *d, const struct hang *h, uint32_t culprit, uint32_t gone)
{
    const uint32_t n = h->s->n_ranks;
    if (culprit < n && !(gone < n && is_victim(h, culprit))) {
        add_culprit(d, h, culprit);
        return culprit;
    }
    if (gone == n)
        return -1;
    add_gone(d, h, gone, culprit);
    return gone;
}

/* Add the finding and return its rank, or -1. The evidence is checked in this order:
 *
 *     1. a culprit outside of a collective; a victim (is_victim) counts only if no other rank has exited
 *     2. a rank that has exited
 *     3. a missing key
 *     4. a cut connection between two nodes
 *     5. all ranks in one collective: different calls in the flight records, otherwise the network or a GPU
 *     6. ranks in different collectives
 *
 * If no rank waits in a collective, the stacks give a result in two cases only. Either all ranks have failed and hang
 * while they exit, or a rank waits for a key of the store.
 *
 * If all waiting ranks may wait for a lock (surely_waits returns false), the flight records are checked before case 1.
 * If the activity of a rank is unknown, this rank may be the culprit. So after case 2 only the flight records are
 * checked. */
static int64_t add_verdict(struct diagnosis *d, struct hang *h)
{
    adopt_majority(h);
    const bool is_sure_wait = surely_waits(h);
    if (!adopt_may_wait(h))
        return report_records(d, h);
    const int64_t first = !is_sure_wait && h->n_groups > 0 ? report_records(d, h) : -1;
    if (first >= 0)
        return first;
    const uint32_t culprit = find_culprit(h);
    qsort(h->groups, h->n_groups, sizeof(h->groups[0]), compare_groups);
    const uint32_t gone = find_way(h, WAY_GONE), needs_key = find_way(h, WAY_NEEDS_KEY), n = h->s->n_ranks;
    if (h->n_groups > 0 || all_have_failed(h)) {
        const int64_t found = add_failed(d, h, culprit, gone);
        if (found >= 0)
            return found;
    }
    if (h->n[WAY_UNKNOWN] > 0 || gone < n || (culprit < n && needs_key == n))
        return report_records(d, h);
    if (needs_key < n && only_loops(h))
        return -1; /* the culprits only compute, so one of them may still set the key */
    if (needs_key < n) {
        add_needs_key(d, h, needs_key);
        return needs_key;
    }
    if (h->n_groups == 0 || n < 2)
        return report_records(d, h);
    words cut;
    const bool is_cut = cut_words(cut, h) > 0;
    const int64_t by_records = h->n_groups == 1 && !is_cut ? report_records(d, h) : -1;
    if (by_records >= 0)
        return by_records;
    if (h->n_groups == 1 || is_cut)
        add_all_wait(d, h);
    else
        add_differ(d, h);
    return h->groups[h->n_groups - 1].first;
}

/* --- stacks that cannot be read ---------------------------------------------------------------------------- */

/* Without py-spy or the permission to trace, only the system call of each main thread is known. A finding that was made
 * only from system calls is a hint, so --on_hang does not act on such a finding. */

/* Groups of live ranks without frames. Two ranks are in the same group if the kernel reports the same state for their
 * main threads, such as "sleeping in futex". */
struct states {
    struct group group[GROUPS_MAX];
    uint32_t n;
};

/* Return true if the main thread of the rank sleeps, and in the same state in both samples. Call this function for a
 * rank that has no frames. Return false if the rank has no connection to the store, because then it may be an
 * independent program for which no rank waits. */
static bool is_idle_still(const struct hang *h, uint32_t rank)
{
    const struct snapshot_rank *f = &h->s->ranks[rank];
    return f->connected && !f->node_lost && !f->has_steps && sleeps_still(&h->ranks[rank]);
}

static bool is_same_state(const struct spot *a, const struct spot *b)
{
    return strcmp(a->does, b->does) == 0;
}

/* Group the live ranks without frames by their state. Return false if one of the grouped ranks may still make progress,
 * or if there are too many groups. Leave out sleeping ranks that have printed a traceback: they make no progress, but
 * is_idle_still() may return false for them, because they may have closed their connections to the store. */
static bool group_states(const struct hang *h, struct states *states)
{
    for (uint32_t i = 0; i < h->s->n_ranks; i++) {
        const struct spot *spot = h->ranks[i].spot[1];
        if (h->s->ranks[i].exited || spot->frames != NULL || has_failed_unread(&h->s->ranks[i], &h->ranks[i]))
            continue;
        if (!is_idle_still(h, i) ||
            join_group(states->group, &states->n, spot, i, is_same_state) == GROUPS_MAX)
            return false;
    }
    return true;
}

/* Return the smallest group of ranks that do not sleep in futex. If all groups sleep in futex (as ranks in a collective
 * of Gloo do), return the smallest of all groups. `states` must have a group. */
static const struct group *odd_state(const struct states *states)
{
    const struct group *odd = NULL;
    bool odd_waits = true;
    for (uint32_t i = 0; i < states->n; i++) {
        const struct group *g = &states->group[i];
        const bool waits = strstr(g->spot->does, "futex") != NULL;
        if (odd == NULL || (odd_waits && !waits) || (odd_waits == waits && g->n < odd->n)) {
            odd = g;
            odd_waits = waits;
        }
    }
    return odd;
}

/* Return true if some ranks wait in collectives, and their process states differ from the state of `group`. The stacks
 * of the waiting ranks were read; the stacks of `group` were not. */
static bool differs_from_waits(const struct hang *h, const struct group *group)
{
    for (uint32_t i = 0; i < h->n_groups; i++)
        if (is_same_state(h->groups[i].spot, group->spot))
            return false;
    return h->n_groups > 0;
}

/* Format "2 ranks are sleeping in futex, rank 3 waits in all_reduce (train.py:88)": all ranks that are not in `odd`. */
static const char *other_states(words out, const struct hang *h, const struct states *states,
                                const struct group *odd)
{
    struct buf text = { 0 };
    words waiters;
    for (uint32_t i = 0; i < states->n; i++) {
        const struct group *g = &states->group[i];
        if (g == odd)
            continue;
        buf_printf(&text, text.len > 0 ? ", " : "");
        buf_printf(&text, g->n == 1 ? "rank %u is %.100s" : "%u ranks are %.100s",
                   g->n == 1 ? g->first : g->n, g->spot->does);
    }
    if (h->n_groups > 0)
        buf_printf(&text, "%s%s", text.len > 0 ? ", " : "", group_words(waiters, h, 0));
    snprintf(out, WORDS_LEN, "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    return out;
}

/* Report the ranks whose state in the kernel differs from the state of the other ranks. Such a rank may be the culprit,
 * but only its frames could prove it. Return false if the states do not differ, or if a rank may still make
 * progress. */
static bool add_states_differ(struct diagnosis *d, const struct hang *h)
{
    struct states states = { 0 };
    words who, others, time;
    char does[STACK_NAME_MAX + SPOT_PLACE_MAX];
    if (h->n[WAY_CULPRIT] > 0 || !group_states(h, &states) || states.n == 0)
        return false;
    const struct group *odd = odd_state(&states);
    if (states.n == 1 && !differs_from_waits(h, odd))
        return false;
    cJSON *ranks = cJSON_CreateArray();
    for (uint32_t i = 0; i < h->s->n_ranks; i++)
        if (!h->s->ranks[i].exited && h->ranks[i].spot[1]->frames == NULL &&
            is_same_state(h->ranks[i].spot[1], odd->spot))
            json_append(ranks, cJSON_CreateNumber(i));
    const bool found = listed_ranks(who, h, ranks) >= 0;
    cJSON_Delete(ranks);
    struct finding *slot = found ? diagnosis_slot(d, FINDING_RANK_STATE_DIFFERS) : NULL;
    const bool has_object = odd->n == 1 && odd->spot->object[0] != '\0';
    snprintf(does, sizeof(does), "%s %.100s%s%.140s", odd->n == 1 ? "is" : "are", odd->spot->does,
             has_object ? " of " : "", has_object ? odd->spot->object : "");
    if (slot != NULL)
        finding_make(slot, FINDING_RANK_STATE_DIFFERS, who, "does", does, "others",
                     other_states(others, h, &states, odd), "time", duration(time, h->s->hang.still_ms),
                     "note", unreadable_why(h), NULL);
    return slot != NULL;
}

/* Report the ranks that have printed a traceback and have no frames. Report nothing if another rank may still make
 * progress. The report is only a hint, because the program may have handled the exception. If some of these ranks have
 * lost a connection to another rank and others have not, report only the ranks that have lost no connection. Return
 * false if no finding was added. */
static bool add_failed_unread(struct diagnosis *d, const struct hang *h)
{
    struct states states = { 0 };
    words who, others, time;
    char does[3 * WORDS_LEN];
    if (h->n[WAY_CULPRIT] > 0 || !group_states(h, &states))
        return false;
    cJSON *ranks = cJSON_CreateArray();
    for (int lost = 0; lost < 2 && cJSON_GetArraySize(ranks) == 0; lost++)
        for (uint32_t i = 0; i < h->s->n_ranks; i++)
            if (has_failed_unread(&h->s->ranks[i], &h->ranks[i]) &&
                has_lost_peer(&h->s->ranks[i]) == (lost == 1))
                json_append(ranks, cJSON_CreateNumber(i));
    const bool is_one = cJSON_GetArraySize(ranks) == 1;
    const int64_t rank = listed_ranks(who, h, ranks);
    cJSON_Delete(ranks);
    struct finding *slot = rank >= 0 ? diagnosis_slot(d, FINDING_RANK_STATE_DIFFERS) : NULL;
    if (slot == NULL)
        return false;
    snprintf(does, sizeof(does),
             is_one ? "has printed a traceback (%.200s) and now sleeps"
                    : "have printed tracebacks (%.200s) and now sleep",
             h->s->ranks[rank].traceback);
    if (other_states(others, h, &states, NULL)[0] == '\0')
        snprintf(others, sizeof(others), "no rank waits in a collective");
    finding_make(slot, FINDING_RANK_STATE_DIFFERS, who, "does", does, "others", others, "time",
                 duration(time, h->s->hang.still_ms), "note", unreadable_why(h), NULL);
    return true;
}

/* Report that the stacks of all ranks are unreadable, and report the reason. If the reason is a missing program, the
 * user can install the program before the next hang. */
static void add_unreadable(struct diagnosis *d, const struct hang *h)
{
    words who, time;
    struct finding *slot = diagnosis_slot(d, FINDING_STACKS_UNREADABLE);
    if (slot != NULL)
        finding_make(slot, FINDING_STACKS_UNREADABLE, counted(who, h->s->n_ranks, "rank"), "time",
                     duration(time, h->s->hang.still_ms), "note", unreadable_why(h), NULL);
}

/* --- reading ---------------------------------------------------------------------------------------------- */

/* Read both samples of `s`. The earlier sample may be missing. The samples are from other processes, so the values in
 * them are not trusted. Return false if memory is short. The caller calls hang_free in any case. */
static bool hang_read(struct hang *h, const struct snapshot *s)
{
    const uint32_t n = s->n_ranks;
    *h = (struct hang){ .s = s };
    h->ranks = calloc((size_t)n + 1, sizeof(*h->ranks));
    h->spots = calloc(2 * (size_t)n + 1, sizeof(*h->spots));
    if (h->ranks == NULL || h->spots == NULL)
        return false;
    (void)spots_read(s->hang.rows[0], h->spots, n, &h->note);
    h->n_read = spots_read(s->hang.rows[1], h->spots + n, n, &h->note);
    for (uint32_t i = 0; i < n; i++) {
        struct rank_analysis *r = &h->ranks[i];
        r->spot[0] = &h->spots[i];
        r->spot[1] = &h->spots[n + i];
        r->cpu_ms = r->spot[1]->cpu_ms - r->spot[0]->cpu_ms;
        if (s->hang.apart_ms > 0 && r->cpu_ms > 0)
            r->cpu_percent = (int)(r->cpu_ms * 100 / (int64_t)s->hang.apart_ms);
    }
    return true;
}

static void hang_free(struct hang *h)
{
    records_free(&h->records);
    free(h->ranks);
    free(h->spots);
}

/* --- adding to the history -------------------------------------------------------------------------------- */

static void history_clear(struct hang_history *history)
{
    for (uint32_t i = 0; i < history->n; i++)
        trail_free(&history->ranks[i].trail);
    *history = (struct hang_history){ 0 };
}

void hang_history_free(struct hang_history *history)
{
    if (history == NULL)
        return;
    history_clear(history);
    free(history);
}

/* Return true if it is proved that the rank has called no collective between the samples. Each of two facts is a proof:
 * the main thread has used no CPU time, or the flight record is unchanged. A thread that waits for a GPU may use CPU
 * time. For such a thread, only the unchanged flight record is a proof. */
static bool is_at_rest(const struct hang *h, uint32_t rank)
{
    bool is_known = h->ranks[rank].cpu_ms <= 0;
    for (uint32_t i = 0; i < h->records.n && !is_known; i++)
        is_known = (uint32_t)h->records.dumps[i].rank == rank;
    return is_known;
}

/* Return true if the rank may have completed a collective between the two samples. The first line that applies decides:
 * - false: the rank has exited, or neither sample has the rank's main thread
 * - true:  only one sample has the main thread, or the pid has changed
 * - false: neither sample shows the rank in a collective
 * - true:  the rank has moved, or is_at_rest() returns false
 * - false: all other cases
 * A sample without frames never shows a collective. The progress of such a rank is still detected, because the ranks
 * that waited for this rank then move. */
static bool may_have_progressed(const struct hang *h, uint32_t rank)
{
    const struct rank_analysis *r = &h->ranks[rank];
    const struct spot *a = r->spot[0], *b = r->spot[1];
    if (h->s->ranks[rank].exited)
        return false;
    if (a->thread == NULL || b->thread == NULL ||
        spot_number(a->thread, "pid") != spot_number(b->thread, "pid"))
        return a->thread != b->thread;
    if (a->call == NULL && b->call == NULL)
        return false;
    return (a->frames != NULL && b->frames != NULL && has_moved(r)) || !is_at_rest(h, rank);
}

/* Return the entry of a rank, or a new entry. Return NULL if there is no room for another rank. */
static struct past *find_past(struct hang_history *history, uint32_t rank)
{
    uint32_t i = 0;
    while (i < history->n && history->ranks[i].rank != rank)
        i++;
    if (i == HISTORY_RANKS)
        return NULL;
    if (i == history->n)
        history->ranks[history->n++] = (struct past){ .rank = rank, .is_still = true };
    return &history->ranks[i];
}

/* Add the later sample of each rank that is in no collective. `goes_on` is false for the first sample of a history. */
static void add_sample(struct hang_history *history, const struct hang *h, bool goes_on)
{
    for (uint32_t i = 0; i < h->s->n_ranks && !history->is_cut; i++) {
        const struct rank_analysis *r = &h->ranks[i];
        if (h->s->ranks[i].exited || way_of(&h->s->ranks[i], r) != WAY_CULPRIT)
            continue;
        struct past *past = find_past(history, i);
        history->is_cut = past == NULL;
        if (past == NULL)
            return;
        past->is_still = past->is_still && (!goes_on || (!has_moved(r) && is_at_rest(h, i)));
        trail_add(&past->trail, r->spot[1]->frames);
    }
}

/* Add a sample. First clear the history if a rank may have made progress, or if the earlier sample is missing. */
void hang_history_add(struct hang_history **history, const struct snapshot *s)
{
    struct hang h = { .s = s };
    bool goes_on = s->hang.rows[0] != NULL;
    if (*history == NULL)
        *history = calloc(1, sizeof(**history));
    if (*history != NULL && s->n_ranks > 0 && hang_read(&h, s)) {
        keep_records(s, &h.records);
        for (uint32_t i = 0; goes_on && i < s->n_ranks; i++)
            goes_on = !may_have_progressed(&h, i);
        if (!goes_on)
            history_clear(*history);
        add_sample(*history, &h, goes_on);
    }
    hang_free(&h);
}

/* --- the search ------------------------------------------------------------------------------------------- */

/* Return why the activity of the first rank with WAY_UNKNOWN is unknown. At least one rank must have WAY_UNKNOWN. */
static const char *unknown_why(const struct hang *h)
{
    const uint32_t rank = find_way(h, WAY_UNKNOWN);
    if (h->s->ranks[rank].exited)
        return "a rank has failed";
    if (h->s->ranks[rank].node_lost)
        return "a node is lost";
    if (h->ranks[rank].spot[1]->frames != NULL)
        return "a rank is in a collective of libddp";
    return h->n_read > 0 ? "the stacks of some ranks cannot be read" : "the stacks cannot be read";
}

/* Return the first reason why the stacks of ranks at rest give no verdict. */
static const char *rest_why(struct hang *h)
{
    if (h->n[WAY_UNKNOWN] > 0)
        return unknown_why(h);
    if (h->n_groups == 0)
        return "no rank waits in a known collective";
    adopt_majority(h);
    if (adopt_may_wait(h))
        return "the stacks do not show the cause";
    return h->is_full ? TOO_MANY_PLACES : "a wait for other ranks and a wait for a lock look alike";
}

/* Return false for a thread in the state "uninterruptible", although such a thread may run several times between the
 * samples. The thread may wait for one page of a file, and the kernel also wakes the thread when other pages were read.
 * So the number of runs does not prove that the thread waits in a loop. */
bool hang_wakes(const struct snapshot *s, uint32_t rank)
{
    struct hang h = { .s = s };
    bool wakes = false;
    if (rank < s->n_ranks && hang_read(&h, s)) {
        const struct rank_analysis *r = &h.ranks[rank];
        wakes = sleeps_interruptibly(r->spot[0]) && sleeps_interruptibly(r->spot[1]) &&
                r->spot[0]->runs > 0 && r->spot[1]->runs - r->spot[0]->runs >= WAKES_LEAST;
    }
    hang_free(&h);
    return wakes;
}

/* Return the first reason why the samples give no verdict. */
const char *hang_why_not(const struct snapshot *s)
{
    struct hang h = { .s = s };
    bool hangs = true;
    const char *why = "the stacks cannot be read";
    if (s->hang.rows[0] != NULL && s->hang.rows[1] != NULL && hang_read(&h, s)) {
        for (uint32_t i = 0; hangs && i < s->n_ranks; i++)
            hangs = examine_rank(&h, i);
        if (hangs)
            why = rest_why(&h);
        else if (h.is_full)
            why = TOO_MANY_PLACES;
        else
            why = "a rank moved to another line or computed between the samples, so the job may just be slow";
    }
    hang_free(&h);
    return why;
}

/* Compare the samples, and return the rank that the stacks or records name. If they name no rank, add a hint from a
 * traceback or from the states of the processes. Without a hint, report why the frames cannot be read. Return -1 after
 * a hint or such a report, because neither proves a culprit. The event loop of the store calls this function for each
 * pair of successive samples, and for reports such as 'ddpctl why'. */
int64_t diagnose_hang(struct diagnosis *d, const struct snapshot *s)
{
    struct hang h;
    bool hangs = s->hang.rows[0] != NULL && s->hang.rows[1] != NULL && s->n_ranks > 0;
    int64_t rank = -1;
    if (!hangs)
        return -1;
    if (hang_read(&h, s)) {
        for (uint32_t i = 0; hangs && i < s->n_ranks; i++)
            hangs = examine_rank(&h, i);
        if (hangs)
            compare_records(&h);
        rank = hangs ? add_verdict(d, &h) : -1;
        const bool has_hint =
            rank < 0 && hangs && h.note != NULL && (add_failed_unread(d, &h) || add_states_differ(d, &h));
        if (rank < 0 && !has_hint && h.note != NULL && h.n_read == 0)
            add_unreadable(d, &h);
    }
    hang_free(&h);
    return rank;
}

/* ranks.c -- makes the findings about ranks for which other ranks wait; see diagnosis.h. The other ranks wait for a key
 * of the store, in a barrier, or in a collective of libddp (hang.c covers collectives of PyTorch). A finding combines
 * facts of the store and facts of the agent, because neither alone shows whether a rank computes or hangs. */

#include "base/text.h"
#include "diagnosis/diagnosis.h"
#include "diagnosis/text.h"
#include "diagnosis/torch_keys.h"
#include "job/members.h"
#include "store/barrier.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    STUCK_MS = 2000,   /* a shorter sleep in state D is normal, for example while a disk reads */
    BUSY_PERCENT = 50, /* percent of one CPU; a sleeping process with at least this use counts as computing */
    /* percent of one CPU at which a runnable process counts as computing; the limit is low, because an overloaded host
     * gives the process little CPU time */
    SHARE_PERCENT = 5,
};

/* Return true if the process has been in state 'D' for STUCK_MS, for example because an NFS server is dead. */
static bool hangs_in_kernel(const struct snapshot_rank *f)
{
    return f->proc_state == 'D' && f->state_ms >= STUCK_MS;
}

/* Return true if the process computes. For a runnable process ('R') a little CPU time is enough, because its host may
 * be overloaded. A sleeping process must use more, because a thread that only polls also uses some CPU time. */
static bool computes(const struct snapshot_rank *f)
{
    return f->proc_state != 0 && f->cpu_percent >= (f->proc_state == 'R' ? SHARE_PERCENT : BUSY_PERCENT);
}

/* Return the facts that agents have reported about a rank. hub/session.c adds the facts about open connections. The
 * strings are borrowed from `m`, so the result is valid until the next message of an agent. */
struct snapshot_rank member_snapshot(const struct members *m, uint32_t rank)
{
    const struct member *member = &m->member[rank];
    return (struct snapshot_rank){
        .rank = rank,
        .host = member->host,
        .pid = member->pid,
        .started = member->process_pid != 0,
        .met = member->met,
        .exited = member->exited,
        .exit_code = member->exit_code,
        .signal = member->signal,
        .proc_state = member->proc_state,
        .cpu_percent = member->cpu_percent,
        .wchan = member->wchan[0] ? member->wchan : NULL,
        .has_steps = member->has_steps,
        .step = member->step,
        .call_seq = member->call_seq,
        .call = member->call,
        .traceback = member->error,
    };
}

/* Return true if the rank has been stopped for at least `least_ms`. Return false for a rank that reports its steps,
 * because diagnose_still reports such a rank. */
bool diagnose_is_stopped(const struct snapshot_rank *f, uint64_t least_ms)
{
    return (f->proc_state == 'T' || f->proc_state == 't') && !f->exited && !f->node_lost && !f->has_steps &&
           f->state_ms >= least_ms;
}

/* Return the finding that explains why the rank does not arrive. The store knows the requests from a rank, and the
 * agent knows the state of the rank's process. */
enum finding_code diagnose_rank_code(const struct snapshot_rank *f)
{
    if (f->exited)
        return f->signal ? FINDING_RANK_KILLED : FINDING_RANK_EXITED;
    /* The process state of a lost node is outdated. */
    if (f->node_lost)
        return FINDING_RANK_NODE_LOST;
    /* Check for a stopped process before f->waits, because a stopped process cannot react to the reply of the store. */
    if (f->proc_state == 'T' || f->proc_state == 't')
        return FINDING_RANK_STOPPED;
    if (hangs_in_kernel(f))
        return FINDING_RANK_IN_KERNEL;
    if (f->connected && f->waits.name.data != NULL)
        return FINDING_RANK_WAITS_ELSEWHERE;
    if (computes(f))
        return FINDING_RANK_BUSY;
    if (f->connected)
        return FINDING_RANK_MISSING;
    if (f->met)
        return FINDING_RANK_DISCONNECTED;
    return f->started ? FINDING_RANK_NOT_CONNECTED : FINDING_RANK_UNKNOWN;
}

/* Return the state of the rank as a word for JSON. docs/protocol.md lists these words. */
static const char *state_word(const struct snapshot_rank *f)
{
    if (f->exited)
        return "exited";
    if (f->connected)
        return "connected";
    return f->met ? "disconnected" : "never_connected";
}

/* --- placeholders for facts ----------------------------------------------------------------------------- */

/* Each function below returns the value for one placeholder of findings.h. The value is a constant, or a text that the
 * function writes into `word`. */

/* Copy the text of a buffer into `word`, and cut it if it is too long. */
static const char *word_of(words word, const struct buf *out)
{
    snprintf(word, WORDS_LEN, "%.*s", (int)out->len, out->data != NULL ? (const char *)out->data : "");
    return word;
}

/* Format " (n1, pid 77)" with the known parts, or "". */
static const char *where_word(const struct snapshot_rank *f, words word)
{
    const char *host = f->host != NULL ? f->host : "";
    word[0] = '\0';
    if (f->pid != 0)
        snprintf(word, WORDS_LEN, " (%s%spid %d)", host, f->host != NULL ? ", " : "", f->pid);
    else if (f->host != NULL)
        snprintf(word, WORDS_LEN, " (%s)", host);
    return word;
}

/* Format " within 12.3 s": the time that a rank without a connection has had to connect. */
static const char *within_word(const struct snapshot_rank *f, words word)
{
    words time;
    if (f->round_ms == 0)
        return "";
    snprintf(word, WORDS_LEN, " within %.32s", duration(time, f->round_ms));
    return word;
}

/* Format "last message 1.2 s ago". */
static const char *last_message_word(const struct snapshot_rank *f, words word)
{
    words silent, within;
    if (!f->met)
        snprintf(word, WORDS_LEN, "it never connected%.48s", within_word(f, within));
    else
        snprintf(word, WORDS_LEN, "last message %.32s ago", duration(silent, f->silent_ms));
    return word;
}

/* Format ", 12.3 s ago": the time since the rank exited. Return "" if this time is 0. */
static const char *ago_word(const struct snapshot_rank *f, words word)
{
    words since;
    if (f->state_ms == 0)
        return "";
    snprintf(word, WORDS_LEN, ", %.32s ago", duration(since, f->state_ms));
    return word;
}

/* Format ", for 12.3 s": how long the process has been in its present state. */
static const char *since_word(const struct snapshot_rank *f, words word)
{
    words since;
    if (f->state_ms == 0)
        return "";
    snprintf(word, WORDS_LEN, ", for %.32s", duration(since, f->state_ms));
    return word;
}

/* Append "key '/x' and 2 more", or nothing if the rank does not wait. */
static bool append_wait(const struct rank_wait *wait, struct buf *out)
{
    if (wait->name.data == NULL)
        return true;
    return diagnose_append_place(wait->name, wait->in_barrier, out) &&
           (wait->more == 0 || buf_printf(out, " and %u more", wait->more));
}

/* Format the wait of a rank: "key '/x'" or "barrier 'y'". Long names are cut. */
static const char *waits_word(const struct snapshot_rank *f, words word)
{
    struct buf out = { 0 };
    append_wait(&f->waits, &out);
    word_of(word, &out);
    buf_free(&out);
    return word;
}

/* Format "9, SIGKILL", or only the number of a signal without a name. */
static const char *signal_word(const struct snapshot_rank *f, words word)
{
    const char *name = signal_abbrev(f->signal);
    snprintf(word, WORDS_LEN, "%d%s%s", f->signal, name != NULL ? ", SIG" : "", name != NULL ? name : "");
    return word;
}

/* Return the remedy for a rank. If the row of the finding lists several states, select the remedy for the present
 * state. Otherwise return the advice of the row. */
static const char *advice_for(enum finding_code code, const struct snapshot_rank *f)
{
    if (code == FINDING_RANK_EXITED)
        return f->exit_code == 0 ? ADVICE_END_TOGETHER : ADVICE_READ_LOG;
    if (code != FINDING_RANK_STOPPED && code != FINDING_RANK_STALLED)
        return finding_advice(code);
    switch (f->proc_state) {
    case 't':
        return ADVICE_DEBUGGER;
    case 'D':
        return hangs_in_kernel(f) ? ADVICE_KERNEL : ADVICE_INSPECT;
    case 'T':
        return ADVICE_CONTINUE;
    default:
        return ADVICE_INSPECT;
    }
}

static const char *number_word(int n, words word)
{
    snprintf(word, WORDS_LEN, "%d", n);
    return word;
}

/* Format ", in nfs_wait_bit_killable", the kernel function in which the process sleeps. */
static const char *wchan_word(const struct snapshot_rank *f, words word)
{
    snprintf(word, WORDS_LEN, "%s%.64s", f->wchan != NULL ? ", in " : "", f->wchan != NULL ? f->wchan : "");
    return word;
}

/* Format "; it sleeps in nfs_wait_bit_killable", for a rank without an obvious fault. */
static const char *does_word(const struct snapshot_rank *f, words word)
{
    if (f->proc_state != 'S')
        return "";
    snprintf(word, WORDS_LEN, "; it sleeps%s%.64s", f->wchan != NULL ? " in " : "",
             f->wchan != NULL ? f->wchan : "");
    return word;
}

/* Make the finding about a rank. Format the values of all placeholders, even if the finding's sentence uses only some
 * of them. The sentences in findings.h may then change without a change here. */
void diagnose_rank(const struct snapshot_rank *f, struct finding *finding)
{
    words subject, where, silent, last_message, within, since, ago, waits, code, signal, cpu, wchan, does,
        pid;
    const enum finding_code row = diagnose_rank_code(f);
    snprintf(subject, sizeof(subject), "rank %u", f->rank);
    finding_make(finding, row, subject, "advice", advice_for(row, f), "where", where_word(f, where), "silent",
                 duration(silent, f->silent_ms), "heard", last_message_word(f, last_message), "within",
                 within_word(f, within), "since", since_word(f, since), "ago", ago_word(f, ago), "waits",
                 waits_word(f, waits), "code", number_word(f->exit_code, code), "signal",
                 signal_word(f, signal), "cpu", number_word(f->cpu_percent, cpu), "wchan",
                 wchan_word(f, wchan), "state", f->proc_state == 't' ? "t" : "T", "does", does_word(f, does),
                 "pid", f->pid > 0 ? number_word(f->pid, pid) : "PID", NULL);
}

/* --- as JSON -------------------------------------------------------------------------------------------- */

/* Add the wait as text. If the rank waits for a key of PyTorch, also add the parts of this key (torch_key_json). */
static void add_wait(cJSON *o, const struct snapshot_rank *f)
{
    struct torch_key key;
    struct buf text = { 0 };
    if (f->waits.name.data != NULL && append_wait(&f->waits, &text) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "waits_for", (const char *)text.data);
    buf_free(&text);
    if (!f->waits.in_barrier && torch_key_read(f->waits.name, &key))
        cJSON_AddItemToObject(o, "waits_for_torch", torch_key_json(&key));
}

/* Add the state of the process, as the rank's agent has reported it. */
static void add_process_state(cJSON *o, const struct snapshot_rank *f)
{
    cJSON_AddStringToObject(o, "proc", (const char[]){ f->proc_state, '\0' });
    if (f->cpu_percent >= 0)
        cJSON_AddNumberToObject(o, "cpu", f->cpu_percent);
    if (f->wchan != NULL)
        cJSON_AddStringToObject(o, "wchan", f->wchan);
}

/* Add the progress that libddp has recorded. "beat_ms" is the time since the last change of step or call. */
static void add_steps(cJSON *o, const struct snapshot_rank *f)
{
    char text[WORDS_LEN];
    if (f->step >= 0)
        cJSON_AddNumberToObject(o, "step", (double)f->step);
    snprintf(text, sizeof(text), "%.24s #%llu", f->call, (unsigned long long)f->call_seq);
    if (f->call[0] != '\0')
        cJSON_AddStringToObject(o, "call", text);
    cJSON_AddNumberToObject(o, "beat_ms", (double)f->still_ms);
}

/* Return the facts as JSON. Leave out facts that are not known. cJSON accepts a NULL object, so memory is checked only
 * at the end. */
cJSON *diagnose_json(const struct snapshot_rank *f)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "rank", f->rank);
    cJSON_AddStringToObject(o, "state", state_word(f));
    if (f->host != NULL)
        cJSON_AddStringToObject(o, "host", f->host);
    if (f->pid != 0)
        cJSON_AddNumberToObject(o, "pid", f->pid);
    if (f->met)
        cJSON_AddNumberToObject(o, "silent_ms", (double)f->silent_ms);
    add_wait(o, f);
    if (f->exited)
        cJSON_AddNumberToObject(o, f->signal ? "signal" : "exit_code", f->signal ? f->signal : f->exit_code);
    else if (f->proc_state != '\0')
        add_process_state(o, f);
    if (f->has_steps)
        add_steps(o, f);
    return o;
}

/* --- ranks that do not move while others wait for them --------------------------------------------------- */

/* Collectives of libddp do not use the store. But each worker records its progress in memory that it shares with its
 * agent. The heartbeats of the agent report the progress to the store. If ranks in a call wait for a rank that is
 * elsewhere and does not move, a finding reports that rank. The finding also shows the state of the rank's process,
 * because the remedy depends on this state. */

enum {
    STILL_MS = 3000,        /* a rank that has not moved for this time is reported */
    STILL_BUSY_PERCENT = 5, /* percent of one CPU at which a process counts as computing */
    UNKNOWN_FACTOR = 3,     /* without steps, the time limit of a rank is UNKNOWN_FACTOR times the time limit
                             * of a rank with steps */
};

/* Return true if the rank is in a collective of libddp. */
static bool waits(const struct snapshot_rank *f)
{
    return f->has_steps && f->call[0] != '\0' && !f->exited;
}

/* Find the calls in which a rank has waited for `least_ms`. Return a rank that waits in the call with the highest
 * number. Return NULL if no rank has waited so long. With asynchronous calls, ranks may be several calls apart. Any
 * rank in an earlier call may then have caused the wait. */
static const struct snapshot_rank *furthest(const struct snapshot *s, uint64_t least_ms)
{
    const struct snapshot_rank *most = NULL;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct snapshot_rank *f = &s->ranks[i];
        if (waits(f) && f->still_ms >= least_ms && (most == NULL || f->call_seq > most->call_seq))
            most = f;
    }
    return most;
}

/* Return true if rank `f` is in the same call as rank `most`. Both calls then have the same number, because all ranks
 * number their calls in the same way. */
static bool is_at(const struct snapshot_rank *f, const struct snapshot_rank *most)
{
    return waits(f) && f->call_seq == most->call_seq;
}

/* Return true if rank `f` has exited or stands still, and has not reached the call at which rank `most` waits. Return
 * false for a rank of a lost node, because the lost node is reported instead. */
static bool is_behind(const struct snapshot_rank *f, const struct snapshot_rank *most, uint64_t least_ms)
{
    if (!f->has_steps || f->node_lost || is_at(f, most))
        return false;
    return f->exited || (f->still_ms >= least_ms && (!waits(f) || f->call_seq < most->call_seq));
}

uint64_t diagnose_still_waits(const struct snapshot *s)
{
    const struct snapshot_rank *most = furthest(s, 1);
    return most != NULL ? most->still_ms : 0;
}

bool diagnose_stands_still(const struct snapshot *s, uint64_t least_ms)
{
    const struct snapshot_rank *most = furthest(s, least_ms);
    for (uint32_t i = 0; most != NULL && i < s->n_ranks; i++)
        if (is_behind(&s->ranks[i], most, least_ms))
            return true;
    return false;
}

/* --- barriers ------------------------------------------------------------------------------------------- */

/* Each call of a barrier has a timeout. The functions below decide whether the store reports the missing ranks before
 * this timeout. */

uint64_t diagnose_barrier_waits(const struct snapshot *s)
{
    uint64_t longest_ms = 0;
    for (uint32_t i = 0; i < s->n_waits; i++)
        if (s->waits[i].is_barrier && s->waits[i].for_ms > longest_ms)
            longest_ms = s->waits[i].for_ms;
    return longest_ms;
}

/* Return true if a rank will probably not arrive at `place`, where other ranks wait. If the rank reports no steps, the
 * store cannot detect whether the rank moves. The other ranks must then have waited for UNKNOWN_FACTOR * least_ms. */
static bool stays_away(const struct snapshot_rank *f, const struct snapshot_wait *place, uint64_t least_ms)
{
    const bool stopped = f->proc_state == 'T' || f->proc_state == 't';
    if (waits_in(f, place) || !is_needed(place, f->rank))
        return false;
    if (stopped || f->exited || f->waits.for_ms >= least_ms)
        return true;
    return f->has_steps ? f->still_ms >= least_ms : place->for_ms >= UNKNOWN_FACTOR * least_ms;
}

bool diagnose_barrier_hangs(const struct snapshot *s, uint64_t least_ms)
{
    const struct snapshot_wait *place = main_wait(s);
    if (place == NULL || !place->is_barrier || place->for_ms < least_ms)
        return false;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (stays_away(&s->ranks[i], place, least_ms))
            return true;
    return false;
}

/* --- texts ---------------------------------------------------------------------------------------------- */

/* Format the state of the rank's process as the verb of a sentence, such as "sleeps". The state is from the last
 * heartbeat of the rank's agent. */
static const char *does(words out, const struct snapshot_rank *f)
{
    words in = "";
    if (f->wchan != NULL)
        snprintf(in, sizeof(in), " in %.64s", f->wchan);
    if (f->proc_state == 'T' || f->proc_state == 't')
        snprintf(out, WORDS_LEN, "is stopped (state %c)", f->proc_state);
    else if (f->proc_state == 'D')
        snprintf(out, WORDS_LEN, "hangs in the kernel (state D%.80s)", in);
    else if (f->proc_state != 0 && f->cpu_percent >= STILL_BUSY_PERCENT)
        snprintf(out, WORDS_LEN, "computes (%d %% CPU)", f->cpu_percent);
    else if (f->proc_state == 'S')
        snprintf(out, WORDS_LEN, "sleeps%.80s", in);
    else if (f->proc_state != 0)
        snprintf(out, WORDS_LEN, "is in state %c", f->proc_state);
    else
        snprintf(out, WORDS_LEN, "has no agent");
    return out;
}

/* Format "rank 3 (n1, pid 77)". */
static const char *format_rank(words out, const struct snapshot_rank *f)
{
    if (f->host != NULL)
        snprintf(out, WORDS_LEN, "rank %u (%.100s, pid %d)", f->rank, f->host, f->pid);
    else
        snprintf(out, WORDS_LEN, "rank %u", f->rank);
    return out;
}

/* Format the position of a rank: the collective that the rank is in. If the rank is in no collective, use its last
 * step. If no step was reported, the text is empty. */
static const char *last(words out, const struct snapshot_rank *f)
{
    out[0] = '\0';
    if (waits(f))
        snprintf(out, WORDS_LEN, " (it is in %.24s #%llu)", f->call, (unsigned long long)f->call_seq);
    else if (f->step >= 0)
        snprintf(out, WORDS_LEN, " (last step: %lld)", (long long)f->step);
    return out;
}

static uint32_t count_at(const struct snapshot *s, const struct snapshot_rank *most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        n += is_at(&s->ranks[i], most);
    return n;
}

/* Make the finding RANK_STALLED about rank `f`. The ranks that are in the same call as rank `most` wait for rank
 * `f`. */
static void add_waited_for(struct finding *slot, const struct snapshot *s, const struct snapshot_rank *f,
                           const struct snapshot_rank *most)
{
    words who, time, step, others, call, what, pid = "PID";
    const uint32_t n = count_at(s, most);
    snprintf(others, sizeof(others), "%u %s", n, n == 1 ? "other waits" : "others wait");
    if (f->pid > 0)
        number(pid, (uint64_t)f->pid);
    snprintf(call, sizeof(call), "%.24s #%llu", most->call, (unsigned long long)most->call_seq);
    finding_make(slot, FINDING_RANK_STALLED, format_rank(who, f), "advice",
                 advice_for(FINDING_RANK_STALLED, f), "time", duration(time, f->still_ms), "last",
                 last(step, f), "others", others, "call", call, "does", does(what, f), "pid", pid, NULL);
}

/* Report the ranks that have been behind for STILL_MS. If the process of such a rank has ended, report its end instead.
 * In the last check before the job fails, a shorter time is sufficient. */
void diagnose_still(struct diagnosis *d, const struct snapshot *s)
{
    const uint64_t least_ms = s->is_final ? 1 : STILL_MS;
    const struct snapshot_rank *most = furthest(s, least_ms);
    for (uint32_t i = 0; most != NULL && i < s->n_ranks; i++) {
        const struct snapshot_rank *f = &s->ranks[i];
        if (!is_behind(f, most, least_ms))
            continue;
        struct finding *slot = diagnosis_slot(d, f->exited ? diagnose_rank_code(f) : FINDING_RANK_STALLED);
        if (slot != NULL && f->exited)
            diagnose_rank(f, slot);
        else if (slot != NULL)
            add_waited_for(slot, s, f, most);
    }
}

/* --- a rank that exited with 0 while others need it --------------------------------------------------------- */

static bool has_arrived(const void *barrier, uint32_t rank)
{
    return barrier_has(barrier, rank);
}

static bool has_left(const void *members, uint32_t rank)
{
    return member_has_left(members_at(members, rank));
}

/* Count the ranks that have exited with 0. Set *first to the lowest of these ranks, and *since_ms to the time of the
 * first exit. If there is no such rank, leave both unchanged. */
static uint32_t count_left(const struct members *members, uint32_t *first, uint64_t *since_ms)
{
    uint32_t n = 0;
    for (uint32_t rank = members->world_size; rank-- > 0;)
        if (has_left(members, rank)) {
            const uint64_t ms = members_at(members, rank)->state_since_ms;
            *first = rank;
            *since_ms = ms < *since_ms ? ms : *since_ms;
            n++;
        }
    return n;
}

/* Append "rank 1" or "ranks 0-2, 4". */
static void append_some(struct buf *out, const void *of, uint32_t n, uint32_t count,
                        bool (*is)(const void *of, uint32_t rank))
{
    buf_printf(out, count == 1 ? "rank " : "ranks ");
    append_ranges(out, of, n, is);
}

/* Return the text of a buffer, or "" if memory is short. The finding is useful without this text. */
static const char *text_in(struct buf *text)
{
    return buf_append(text, "", 1) ? (const char *)text->data : "";
}

/* Append "rank 3 (n1, pid 77)". */
static void append_rank(struct buf *out, const struct snapshot_rank *f)
{
    buf_printf(out, "rank %u", f->rank);
    if (f->host != NULL)
        buf_printf(out, " (%.100s, pid %d)", f->host, f->pid);
}

/* Name all ranks that have arrived, because each of them will wait until its timeout. */
void diagnose_early_exit_of_barrier(const struct barrier *barrier, const struct snapshot_rank *f,
                                    struct finding *finding)
{
    struct buf who = { 0 }, waiters = { 0 }, where = { 0 };
    words ago;
    append_rank(&who, f);
    append_some(&waiters, barrier, barrier->world_size, barrier->arrived, has_arrived);
    buf_printf(&where, "at ");
    diagnose_append_place(barrier_name(barrier), true, &where);
    finding_make(finding, FINDING_RANK_EXITED_EARLY, text_in(&who), "ago", exit_time(ago, f->state_ms, true),
                 "waiters", text_in(&waiters), "it", "it", "where", text_in(&where), NULL);
    buf_free(&who);
    buf_free(&waiters);
    buf_free(&where);
}

/* Report a rank that was lost in a collective. `lost` is the lost peer of rank `waiter`, according to the last output
 * lines of `waiter` (hub/lost_rank.c). If these lines name no rank, `lost` is -1. Each rank that has exited with 0 may
 * then be the peer. */
bool diagnose_early_exit(const struct members *members, uint32_t waiter, int64_t lost, uint64_t now_ms,
                         struct finding *finding)
{
    struct buf who = { 0 };
    uint32_t first = lost >= 0 ? (uint32_t)lost : 0;
    uint64_t since_ms = lost >= 0 ? members_at(members, first)->state_since_ms : now_ms;
    words waits, ago;
    const uint32_t n = lost >= 0 ? 1 : count_left(members, &first, &since_ms);
    const struct snapshot_rank f = n > 0 ? member_snapshot(members, first) : (struct snapshot_rank){ 0 };
    if (n == 1)
        append_rank(&who, &f);
    else
        append_some(&who, members, members->world_size, n, has_left);
    snprintf(waits, sizeof(waits), "rank %u", waiter);
    if (n > 0)
        finding_make(finding, FINDING_RANK_EXITED_EARLY, text_in(&who), "ago",
                     exit_time(ago, now_ms - since_ms, n == 1), "waiters", waits, "it",
                     n == 1 ? "it" : "them", "where", "in a collective", NULL);
    buf_free(&who);
    return n > 0;
}

/* --- why a barrier did not open, as JSON and as text (its "message") -------------------------------------- */

/* A report has at most LINES_MAX lines about missing ranks, and lists at most RANKS_MAX ranks. A report must be short,
 * because every rank in the barrier gets the report. */

enum { LINES_MAX = 16, RANKS_MAX = 256 };

/* Find the first member that has not arrived, beginning with rank `from`. Return its rank, or world_size if no member
 * is missing. Skip ranks that are not members of the barrier. */
static uint32_t next_missing(const struct barrier *barrier, uint32_t from)
{
    while (from < barrier->world_size && (!barrier_needs(barrier, from) || barrier_has(barrier, from)))
        from++;
    return from;
}

/* Append how many ranks have arrived. Then append at most LINES_MAX lines about missing ranks, such as "rank 3:
 * started, but never connected to the store". */
static bool append_lines(const struct barrier *barrier, snapshot_rank_fn facts_of, void *user,
                         struct buf *out)
{
    uint32_t missing = barrier->members - barrier->arrived, lines = 0;
    bool ok = buf_printf(out, "; %" PRIu32 " of %" PRIu32 " ranks have arrived", barrier->arrived,
                         barrier->members);
    for (uint32_t rank = next_missing(barrier, 0); ok && rank < barrier->world_size && lines < LINES_MAX;
         rank = next_missing(barrier, rank + 1), lines++) {
        struct snapshot_rank facts;
        struct finding finding;
        facts_of(user, rank, &facts);
        diagnose_rank(&facts, &finding);
        ok = buf_printf(out, "\n  %s", finding.sentence);
    }
    if (missing > lines)
        ok = ok && buf_printf(out, "\n  and %" PRIu32 " more", missing - lines);
    return ok;
}

static bool append_message(const struct barrier *barrier, struct slice name, snapshot_rank_fn facts_of,
                           void *user, const char *because, struct buf *out)
{
    return buf_printf(out, "barrier '") && text_append(out, name, 200) && buf_printf(out, "' %s", because) &&
           (barrier == NULL || append_lines(barrier, facts_of, user, out)) && buf_append(out, "", 1);
}

/* Return the facts about a rank, and the code of the finding about this rank. */
static cJSON *missing_row(const struct snapshot_rank *facts)
{
    cJSON *row = diagnose_json(facts);
    cJSON_AddStringToObject(row, "code", finding_code_name(diagnose_rank_code(facts)));
    return row;
}

/* Add the first RANKS_MAX missing ranks, and the number of all missing ranks. */
static void add_missing(cJSON *o, const struct barrier *barrier, snapshot_rank_fn facts_of, void *user)
{
    cJSON *array = cJSON_AddArrayToObject(o, "missing");
    uint32_t n = 0;
    for (uint32_t rank = next_missing(barrier, 0); rank < barrier->world_size && n < RANKS_MAX;
         rank = next_missing(barrier, rank + 1), n++) {
        struct snapshot_rank facts;
        facts_of(user, rank, &facts);
        json_append(array, missing_row(&facts));
    }
    cJSON_AddNumberToObject(o, "missing_count", barrier->members - barrier->arrived);
}

/* Add the name of the barrier as printable text. This text may differ from the bytes that the client sent. */
static void add_name(cJSON *o, struct slice name)
{
    struct buf text = { 0 };
    if (text_append(&text, name, name.len) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "barrier", (const char *)text.data);
    buf_free(&text);
}

/* Format the answer to a worker whose call of the barrier failed. libddp uses only "message", as its error text. */
bool barrier_report(const struct barrier *barrier, struct slice name, snapshot_rank_fn facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out)
{
    struct buf message = { 0 };
    cJSON *o = cJSON_CreateObject();
    add_name(o, name);
    if (append_message(barrier, name, facts_of, user, because, &message))
        cJSON_AddStringToObject(o, "message", (const char *)message.data);
    if (outcome != BARRIER_MISUSE)
        add_missing(o, barrier, facts_of, user);
    char *json = cJSON_PrintUnformatted(o);
    bool ok = json != NULL && buf_append(out, json, strlen(json));
    cJSON_free(json);
    cJSON_Delete(o);
    buf_free(&message);
    return ok;
}

/* diagnose.c -- one rank: which finding fits, and what it says. See diagnose.h; diagnose_job.c has the whole job.
 *
 * Two witnesses are put together: the store knows what a rank has asked of it, its agent what the kernel
 * says of its process. Neither alone can tell one that computes from one that hangs. */
#include "diagnosis/diagnose.h"

#include "base/text.h"
#include "diagnosis/torch_keys.h"
#include "job/members.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>

enum {
    STUCK_MS = 2000,     /* a moment in the kernel is no trouble */
    BUSY_PERCENT = 50,   /* of one CPU */
    SHARE_PERCENT = 5,   /* what it may be left with on a crowded machine, when it would run right now */
    RANK_WORD_MAX = 256, /* of one word of a sentence */
};

/* 'D' is also every read from a disk; only one that lasts is a dead NFS server, or a device that does not
 * answer. */
static bool hangs_in_kernel(const struct rank_facts *f)
{
    return f->proc_state == 'D' && f->state_ms >= STUCK_MS;
}

/* One that would run right now ('R') may get little of a crowded machine; one that sleeps must have
 * computed most of the time, for a thread that polls uses some, too. */
static bool computes(const struct rank_facts *f)
{
    return f->proc_state != 0 && f->cpu_percent >= (f->proc_state == 'R' ? SHARE_PERCENT : BUSY_PERCENT);
}

/* What the table alone knows; facts.c adds what the open connections show. */
struct rank_facts member_facts(const struct members *m, uint32_t rank)
{
    const struct member *member = &m->member[rank];
    return (struct rank_facts){
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
    };
}

/* The end of a process outweighs everything else, then what it does now, then what it did. */
enum finding_code diagnose_rank_code(const struct rank_facts *f)
{
    if (f->exited)
        return f->signal ? FINDING_RANK_KILLED : FINDING_RANK_EXITED;
    if (f->node_lost)
        return FINDING_RANK_NODE_LOST;
    if (f->proc_state == 'T' || f->proc_state == 't')
        return FINDING_RANK_STOPPED;
    if (hangs_in_kernel(f))
        return FINDING_RANK_IN_KERNEL;
    if (f->connected && f->waits.name.data != NULL)
        return FINDING_RANK_WAITS_ELSEWHERE;
    if (computes(f))
        return FINDING_RANK_BURNS_CPU;
    if (f->connected)
        return FINDING_RANK_HAS_NOT_COME;
    if (f->met)
        return FINDING_RANK_DISCONNECTED;
    return f->started ? FINDING_RANK_NOT_CONNECTED : FINDING_RANK_UNKNOWN;
}

/* The state in JSON is coarser: it is what the store itself has seen. */
static const char *state_word(const struct rank_facts *f)
{
    if (f->exited)
        return "exited";
    if (f->connected)
        return "connected";
    return f->met ? "disconnected" : "never_connected";
}

/* "SIGKILL", or NULL for a signal that has no name of its own here. */
static const char *signal_name(int signal)
{
#define NAME(sig) \
    case sig:     \
        return #sig;
    switch (signal) {
        NAME(SIGHUP)
        NAME(SIGINT)
        NAME(SIGQUIT)
        NAME(SIGILL)
        NAME(SIGTRAP)
        NAME(SIGABRT)
        NAME(SIGBUS)
        NAME(SIGFPE)
        NAME(SIGKILL)
        NAME(SIGUSR1)
        NAME(SIGSEGV)
        NAME(SIGUSR2)
        NAME(SIGPIPE)
        NAME(SIGALRM)
        NAME(SIGTERM)
        NAME(SIGXCPU)
        NAME(SIGXFSZ)
        NAME(SIGSYS)
    }
#undef NAME
    return NULL;
}

/* --- the words that stand for facts --------------------------------------------------------------------- */

typedef char rank_word[RANK_WORD_MAX];

/* What `put` puts, as a text; what is too long is cut. */
static const char *word_of(rank_word word, const struct buf *out)
{
    snprintf(word, RANK_WORD_MAX, "%.*s", (int)out->len, out->data != NULL ? (const char *)out->data : "");
    return word;
}

/* " (n1, pid 77)" with as much of it as is known, or nothing at all. */
static const char *where_word(const struct rank_facts *f, rank_word word)
{
    const char *host = f->host != NULL ? f->host : "";
    word[0] = '\0';
    if (f->pid != 0)
        snprintf(word, RANK_WORD_MAX, " (%s%spid %d)", host, f->host != NULL ? ", " : "", f->pid);
    else if (f->host != NULL)
        snprintf(word, RANK_WORD_MAX, " (%s)", host);
    return word;
}

/* In the units that fit, like everywhere; memory that is short leaves it empty. */
static const char *time_word(uint64_t ms, rank_word word)
{
    struct buf out = { 0 };
    text_put_ms(&out, ms);
    word_of(word, &out);
    buf_free(&out);
    return word;
}

/* "last heard 1.2 s ago" */
static const char *heard_word(const struct rank_facts *f, rank_word word)
{
    rank_word silent;
    if (!f->met)
        return "it has never connected";
    snprintf(word, RANK_WORD_MAX, "last heard %.32s ago", time_word(f->silent_ms, silent));
    return word;
}

/* ", for 12.3 s now" */
static const char *since_word(const struct rank_facts *f, rank_word word)
{
    rank_word since;
    if (f->state_ms == 0)
        return "";
    snprintf(word, RANK_WORD_MAX, ", for %.32s now", time_word(f->state_ms, since));
    return word;
}

/* "key '/x' and 2 more"; nothing when it does not wait. */
static bool put_wait(const struct rank_wait *wait, struct buf *out)
{
    if (wait->name.data == NULL)
        return true;
    return diagnose_put_place(wait->name, wait->in_barrier, out) &&
           (wait->more == 0 || buf_printf(out, " and %u more", wait->more));
}

static const char *waits_word(const struct rank_facts *f, rank_word word)
{
    struct buf out = { 0 };
    put_wait(&f->waits, &out);
    word_of(word, &out);
    buf_free(&out);
    return word;
}

static const char *signal_word(const struct rank_facts *f, rank_word word)
{
    const char *name = signal_name(f->signal);
    snprintf(word, RANK_WORD_MAX, "%d%s%s", f->signal, name != NULL ? ", " : "", name != NULL ? name : "");
    return word;
}

static const char *number_word(int n, rank_word word)
{
    snprintf(word, RANK_WORD_MAX, "%d", n);
    return word;
}

/* The kernel's own name of where it sleeps: to one who knows it tells NFS from a GPU. */
static const char *wchan_word(const struct rank_facts *f, rank_word word)
{
    snprintf(word, RANK_WORD_MAX, "%s%.64s", f->wchan != NULL ? ", in " : "",
             f->wchan != NULL ? f->wchan : "");
    return word;
}

/* "; it sleeps in nfs_wait_bit_killable": of one that is not to be blamed for anything. */
static const char *does_word(const struct rank_facts *f, rank_word word)
{
    if (f->proc_state != 'S')
        return "";
    snprintf(word, RANK_WORD_MAX, "; it sleeps%s%.64s", f->wchan != NULL ? " in " : "",
             f->wchan != NULL ? f->wchan : "");
    return word;
}

/* All words are made, whichever the sentence uses: the table then may change its sentences without this
 * file. */
void diagnose_rank(const struct rank_facts *f, struct finding *finding)
{
    rank_word subject, where, silent, heard, since, waits, code, signal, cpu, wchan, does, pid;
    snprintf(subject, sizeof(subject), "rank %u", f->rank);
    finding_make(finding, diagnose_rank_code(f), subject, "where", where_word(f, where), "silent",
                 time_word(f->silent_ms, silent), "heard", heard_word(f, heard), "since",
                 since_word(f, since), "waits", waits_word(f, waits), "code", number_word(f->exit_code, code),
                 "signal", signal_word(f, signal), "cpu", number_word(f->cpu_percent, cpu), "wchan",
                 wchan_word(f, wchan), "does", does_word(f, does), "pid", number_word(f->pid, pid), NULL);
}

/* The bytes stay behind the words: who looks for the key in a program or a log needs them. */
bool diagnose_put_place(struct slice name, bool is_barrier, struct buf *out)
{
    struct torch_key key;
    const bool is_torch = !is_barrier && torch_key_read(name, &key);
    bool ok = !is_torch || (torch_key_put(&key, out) && buf_printf(out, " ("));
    return ok && buf_printf(out, is_barrier ? "barrier '" : "key '") &&
           text_put(out, name, DIAGNOSE_NAME_SHOWN) && buf_printf(out, is_torch ? "')" : "'");
}

bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier)
{
    struct torch_key x, y;
    if (a_is_barrier != b_is_barrier)
        return false;
    if (a_is_barrier || slice_equal(a, b) || !torch_key_may_set_up(a) || !torch_key_may_set_up(b))
        return slice_equal(a, b);
    return torch_key_read(a, &x) && torch_key_read(b, &y) && torch_key_same_setup(&x, &y);
}

/* --- as JSON -------------------------------------------------------------------------------------------- */

static void add_wait(cJSON *o, const struct rank_facts *f)
{
    struct torch_key key;
    struct buf text = { 0 };
    if (f->waits.name.data != NULL && put_wait(&f->waits, &text) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "waits_for", (const char *)text.data);
    buf_free(&text);
    if (!f->waits.in_barrier && torch_key_read(f->waits.name, &key))
        cJSON_AddItemToObject(o, "waits_for_torch", torch_key_json(&key));
}

/* What its agent saw of the process. */
static void add_look(cJSON *o, const struct rank_facts *f)
{
    cJSON_AddStringToObject(o, "proc", (const char[]){ f->proc_state, '\0' });
    if (f->cpu_percent >= 0)
        cJSON_AddNumberToObject(o, "cpu", f->cpu_percent);
    if (f->wchan != NULL)
        cJSON_AddStringToObject(o, "wchan", f->wchan);
}

static void add_steps(cJSON *o, const struct rank_facts *f)
{
    char text[RANK_WORD_MAX];
    if (f->step >= 0)
        cJSON_AddNumberToObject(o, "step", (double)f->step);
    snprintf(text, sizeof(text), "%.24s #%llu", f->call, (unsigned long long)f->call_seq);
    if (f->call[0] != '\0')
        cJSON_AddStringToObject(o, "call", text);
    cJSON_AddNumberToObject(o, "beat_ms", (double)f->still_ms);
}

/* Fields that are not known are left out; cJSON's functions let a NULL object pass, so memory that is
 * short shows only at the end. */
cJSON *diagnose_json(const struct rank_facts *f)
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
        add_look(o, f);
    if (f->has_steps)
        add_steps(o, f);
    return o;
}

/* diagnose.c -- see diagnose.h.
 *
 * finding_of() decides which row of the table fits; everything else is printing. The words in braces are a
 * table too, so a new sentence is one row, and a new fact one field, one function and one row. */
#include "core/diagnose.h"

#include "base/text.h"

#include <cjson/cJSON.h>
#include <signal.h>

enum rank_finding {
#define X(name, state, text) RANK_##name,
    RANK_FINDINGS(X)
#undef X
        RANK_FINDING_COUNT
};

static const struct {
    const char *state, *text;
} finding_table[RANK_FINDING_COUNT] = {
#define X(name, state, text) [RANK_##name] = { state, text },
    RANK_FINDINGS(X)
#undef X
};

/* The end of a process outweighs everything else, then what it does now, then what it did. */
static enum rank_finding finding_of(const struct rank_facts *f)
{
    if (f->exited)
        return f->signal ? RANK_KILLED : RANK_EXITED;
    if (f->connected)
        return f->waits_for ? RANK_WAITS_ELSEWHERE : RANK_CONNECTED;
    if (f->met)
        return RANK_DISCONNECTED;
    return f->started ? RANK_STARTED : RANK_UNKNOWN;
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

/* " (n1, pid 77)" with as much of it as is known, or nothing at all. */
static bool put_where(const struct rank_facts *f, struct buf *out)
{
    if (f->host == NULL && f->pid == 0)
        return true;
    bool ok = buf_printf(out, " (%s", f->host ? f->host : "");
    if (f->pid != 0)
        ok = ok && buf_printf(out, "%spid %d", f->host ? ", " : "", f->pid);
    return ok && buf_printf(out, ")");
}

static bool put_silent(const struct rank_facts *f, struct buf *out)
{
    return text_put_ms(out, f->silent_ms);
}

static bool put_waits(const struct rank_facts *f, struct buf *out)
{
    return buf_printf(out, "%s", f->waits_for);
}

static bool put_code(const struct rank_facts *f, struct buf *out)
{
    return buf_printf(out, "%d", f->exit_code);
}

static bool put_signal(const struct rank_facts *f, struct buf *out)
{
    const char *name = signal_name(f->signal);
    return name ? buf_printf(out, "%d, %s", f->signal, name) : buf_printf(out, "%d", f->signal);
}

static const struct {
    const char *word;
    bool (*put)(const struct rank_facts *f, struct buf *out);
} word_table[] = {
    { "{where}", put_where }, { "{silent}", put_silent }, { "{waits}", put_waits },
    { "{code}", put_code },   { "{signal}", put_signal },
};

/* Append what stands at `text`, a word of the table or a plain character; returns how much of it is done. */
static size_t put_next(const struct rank_facts *f, const char *text, struct buf *out, bool *ok)
{
    for (size_t i = 0; *text == '{' && i < sizeof(word_table) / sizeof(word_table[0]); i++) {
        size_t len = strlen(word_table[i].word);
        if (strncmp(text, word_table[i].word, len) == 0) {
            *ok = word_table[i].put(f, out);
            return len;
        }
    }
    *ok = buf_append(out, text, 1);
    return 1;
}

/* A brace that begins no known word is printed as it is: a typing error in the table is seen, not hidden. */
bool diagnose_sentence(const struct rank_facts *facts, struct buf *out)
{
    bool ok = true;
    for (const char *text = finding_table[finding_of(facts)].text; ok && *text;)
        text += put_next(facts, text, out, &ok);
    return ok;
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

/* Fields that are not known are left out; cJSON's functions let a NULL object pass, so memory that is
 * short shows only at the end. */
cJSON *diagnose_json(const struct rank_facts *f)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "rank", f->rank);
    cJSON_AddStringToObject(o, "state", finding_table[finding_of(f)].state);
    if (f->host != NULL)
        cJSON_AddStringToObject(o, "host", f->host);
    if (f->pid != 0)
        cJSON_AddNumberToObject(o, "pid", f->pid);
    if (f->met)
        cJSON_AddNumberToObject(o, "silent_ms", (double)f->silent_ms);
    if (f->waits_for != NULL)
        cJSON_AddStringToObject(o, "waits_for", f->waits_for);
    if (f->exited)
        cJSON_AddNumberToObject(o, f->signal ? "signal" : "exit_code", f->signal ? f->signal : f->exit_code);
    else if (f->proc_state != '\0')
        add_look(o, f);
    return o;
}

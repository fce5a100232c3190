/* flight_json.c -- see flight.h: a record as JSON.
 *
 * Names of fields are those of PyTorch's flight recorder where it has the same thing, so that who knows one can read the other.
 * No printf and no memory: this runs in a signal handler, too. What the worker's memory says is taken as a number or as a word
 * with a limit, never as anything else. */
#include "base/flight.h"

#include <string.h>

enum { PIECE = 1024 };

struct out {
    flight_put put;
    void *user;
    bool ok;
    size_t len;
    char piece[PIECE];
};

static void flush(struct out *o)
{
    if (o->len > 0 && o->ok)
        o->ok = o->put(o->user, o->piece, o->len);
    o->len = 0;
}

static void put_char(struct out *o, char c)
{
    if (o->len == PIECE)
        flush(o);
    o->piece[o->len++] = c;
}

static void put(struct out *o, const char *text)
{
    for (; *text != '\0'; text++)
        put_char(o, *text);
}

static void put_number(struct out *o, uint64_t n)
{
    char digits[24];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (at < sizeof(digits))
        put_char(o, digits[at++]);
}

static void put_signed(struct out *o, int64_t n)
{
    if (n < 0)
        put_char(o, '-');
    put_number(o, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
}

/* At most `max` bytes of it; what JSON or a terminal might stumble over becomes '?'. Each is read once: a worker may be writing. */
static void put_text(struct out *o, const char *text, size_t max)
{
    const volatile char *from = text;
    put_char(o, '"');
    for (size_t i = 0; i < max; i++) {
        const char c = from[i];
        if (c == '\0')
            break;
        put_char(o, c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?');
    }
    put_char(o, '"');
}

/* ,"name": */
static void put_name(struct out *o, const char *name)
{
    put(o, ",\"");
    put(o, name);
    put(o, "\":");
}

static void put_field(struct out *o, const char *name, uint64_t n)
{
    put_name(o, name);
    put_number(o, n);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* --- entries -------------------------------------------------------------------------------------------- */

static const char *state_word(enum flight_state state)
{
    static const char *const words[] = {
#define X(name, word) word,
        FLIGHT_STATES(X)
#undef X
    };
    return (size_t)state < sizeof(words) / sizeof(*words) ? words[state] : "none";
}

/* Since 1970, null for what has not happened. */
static void put_time(struct out *o, const struct flight *f, const char *name, uint64_t ns)
{
    put_name(o, name);
    if (ns == 0)
        put(o, "null");
    else
        put_signed(o, (int64_t)(ns + (uint64_t)f->wall_ns));
}

/* In ms with three places, as far as it has come. */
static void put_duration(struct out *o, uint64_t from_ns, uint64_t to_ns)
{
    const uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
    put_name(o, "duration_ms");
    if (from_ns == 0 || to_ns == 0) {
        put(o, "null");
        return;
    }
    put_number(o, us / 1000);
    put_char(o, '.');
    put_char(o, (char)('0' + us / 100 % 10));
    put_char(o, (char)('0' + us / 10 % 10));
    put_char(o, (char)('0' + us % 10));
}

/* A call without values has none to tell of, and no type. */
static void put_sizes(struct out *o, const struct flight *f, const struct flight_op *op, unsigned dtype)
{
    char word[FLIGHT_WORD];
    if (dtype >= FLIGHT_NAMES) {
        put(o, ",\"input_sizes\":[],\"input_dtypes\":[]");
        return;
    }
    put_name(o, "input_sizes");
    put(o, "[[");
    put_number(o, get(&op->n));
    put(o, "]]");
    put_name(o, "input_dtypes");
    put_char(o, '[');
    put_text(o, flight_word(word, f->dtypes, FLIGHT_NAMES, dtype), FLIGHT_WORD);
    put_char(o, ']');
}

static void put_values(struct out *o, const struct flight *f, const struct flight_op *op)
{
    const uint64_t values = get(&op->values), place = get(&op->place);
    const unsigned reduce = values >> 8 & 0xff;
    char word[FLIGHT_WORD];
    put_sizes(o, f, op, values & 0xff);
    put_field(o, "bytes", get(&op->bytes));
    put_name(o, "reduce_op");
    if (reduce < FLIGHT_NAMES)
        put_text(o, flight_word(word, f->ops, FLIGHT_NAMES, reduce), FLIGHT_WORD);
    else
        put(o, "null");
    put_field(o, "root", values >> 32);
    put_field(o, "timeout_ms", place >> 32);
    put_name(o, "bucket");
    if ((uint32_t)place == 0)
        put(o, "null");
    else
        put_number(o, (uint32_t)place - 1);
}

static void put_step(struct out *o, uint64_t step)
{
    put_name(o, "step");
    if (step == 0)
        put(o, "null");
    else
        put_number(o, step - 1);
}

static void put_entry(struct out *o, const struct flight *f, const struct flight_op *op)
{
    const uint64_t call = get(&op->call), started_ns = get(&op->started_ns), ended_ns = get(&op->ended_ns);
    char word[FLIGHT_WORD], name[2 * FLIGHT_WORD + 1];
    size_t len = strnlen(f->backend, FLIGHT_WORD - 1);
    memcpy(name, f->backend, len);
    name[len++] = ':';
    strcpy(name + len, flight_word(word, f->kinds, FLIGHT_KINDS, flight_kind(call)));
    put(o, "{\"record_id\":");
    put_number(o, get(&op->record));
    put(o, ",\"pg_id\":0,\"process_group\":[\"0\",\"world\"]");
    put_field(o, "collective_seq_id", flight_seq(call));
    put_field(o, "op_id", get(&op->ticket));
    put_name(o, "profiling_name");
    put_text(o, name, sizeof(name));
    put_values(o, f, op);
    put_step(o, get(&op->step));
    put_time(o, f, "time_created_ns", get(&op->created_ns));
    put_time(o, f, "time_discovered_started_ns", started_ns);
    put_time(o, f, "time_discovered_completed_ns", ended_ns);
    put_duration(o, started_ns, ended_ns);
    put_name(o, "state");
    put_text(o, state_word(flight_state(call)), FLIGHT_WORD);
    put_char(o, '}');
}

/* --- the head ------------------------------------------------------------------------------------------- */

/* The highest number that has got so far; with asynchronous backends these differ. */
static uint64_t highest(const struct flight *f, enum flight_state least, enum flight_state most)
{
    uint64_t best = 0;
    for (size_t i = 0; i < FLIGHT_OPS; i++) {
        const uint64_t call = get(&f->op[i].call);
        const enum flight_state state = flight_state(call);
        if (state >= least && state <= most && flight_seq(call) > best)
            best = flight_seq(call);
    }
    return best;
}

static void put_status(struct out *o, const struct flight *f)
{
    put_name(o, "pg_status");
    put(o, "{\"0\":{\"last_enqueued_collective\":");
    put_number(o, highest(f, FLIGHT_SCHEDULED, FLIGHT_FAILED));
    put_field(o, "last_started_collective", highest(f, FLIGHT_STARTED, FLIGHT_FAILED));
    put_field(o, "last_completed_collective", highest(f, FLIGHT_COMPLETED, FLIGHT_COMPLETED));
    put(o, "}}");
}

static void put_head(struct out *o, const struct flight *f, const char *why, uint64_t now_ns)
{
    put(o, "{\"format\":\"ddp-flight\",\"version\":\"1.0\",\"rank\":");
    put_signed(o, f->rank);
    put_name(o, "world_size");
    put_signed(o, f->world_size);
    put_name(o, "pid");
    put_signed(o, f->pid);
    put_name(o, "host");
    put_text(o, f->host, FLIGHT_NAME);
    put_name(o, "job");
    put_text(o, f->job, FLIGHT_NAME);
    put_name(o, "attempt");
    put_signed(o, f->attempt);
    put_name(o, "backend");
    put_text(o, f->backend, FLIGHT_WORD);
    put_name(o, "why");
    put_text(o, why, 4 * PIECE);
    put_time(o, f, "time_ns", now_ns);
    put_step(o, get(&f->step));
    put_status(o, f);
}

/* The oldest first. An entry that is just being written has no call yet. */
bool flight_json(const struct flight *f, const char *why, uint64_t now_ns, flight_put to, void *user)
{
    struct out o = { .put = to, .user = user, .ok = true };
    const uint64_t records = get(&f->records);
    const char *between = "\n";
    put_head(&o, f, why, now_ns);
    put(&o, ",\n\"entries\":[");
    for (uint64_t r = records > FLIGHT_OPS ? records - FLIGHT_OPS : 0; r < records && o.ok; r++) {
        const struct flight_op *op = &f->op[r % FLIGHT_OPS];
        if (flight_state(get(&op->call)) == FLIGHT_NONE)
            continue;
        put(&o, between);
        put_entry(&o, f, op);
        between = ",\n";
    }
    put(&o, "]}\n");
    flush(&o);
    return o.ok;
}

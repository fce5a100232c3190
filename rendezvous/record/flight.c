/* flight.c -- see flight.h.
 *
 * The JSON has the field names of PyTorch's flight recorder for all facts that PyTorch also records. This file uses
 * neither printf nor heap memory, because a signal handler writes the record, too. A worker may write any bytes to its
 * page, so this file reads only numbers and texts of limited length from the page. */
#include "record/flight.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Store a number atomically, because another process may read the number at the same time. */
static void word_set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Replace the oldest entry by a new entry. `call` is 0 until the new entry is complete, so that a reader skips an
 * incomplete entry. A reader that has read `call` before this function sets `call` to 0 may still get a mix of old and
 * new values (flight.h). */
struct flight_op *flight_add(struct flight *f, const struct flight_begin *b)
{
    const uint64_t record = atomic_load_explicit(&f->records, memory_order_relaxed);
    const uint64_t call = flight_call(b->seq, b->kind, b->state);
    struct flight_op *op = &f->op[record % FLIGHT_OPS];
    word_set(&op->call, 0);
    atomic_thread_fence(memory_order_release);
    word_set(&op->record, record);
    word_set(&op->n, b->n);
    word_set(&op->bytes, b->bytes);
    word_set(&op->values, (b->dtype & 0xff) | (b->op & 0xff) << 8 | (uint64_t)b->root << 32);
    word_set(&op->place, (uint32_t)(b->bucket + 1) | (uint64_t)b->timeout_ms << 32);
    word_set(&op->created_ns, b->created_ns != 0 ? b->created_ns : b->now_ns);
    word_set(&op->started_ns, b->state == FLIGHT_STARTED ? b->now_ns : 0);
    word_set(&op->ended_ns, 0);
    word_set(&op->ticket, 0);
    word_set(&op->step, atomic_load_explicit(&f->step, memory_order_relaxed));
    atomic_store_explicit(&op->call, call, memory_order_release);
    word_set(&f->records, record + 1);
    word_set(&f->call, call);
    return op;
}

/* Set the new state of the operation. If the operation is the latest one, also set the state in the head of the page.
 * With an asynchronous backend, an earlier operation may complete after a later operation has begun. */
void flight_finish(struct flight *f, struct flight_op *op, enum flight_state state, uint64_t now_ns)
{
    const uint64_t before = atomic_load_explicit(&op->call, memory_order_relaxed);
    const uint64_t call = (before & ~(uint64_t)0xff) | (uint64_t)state;
    word_set(state == FLIGHT_STARTED ? &op->started_ns : &op->ended_ns, now_ns);
    atomic_store_explicit(&op->call, call, memory_order_release);
    if (atomic_load_explicit(&f->call, memory_order_relaxed) == before)
        word_set(&f->call, call);
}

static uint64_t word_get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void flight_note_kept(struct flight *f)
{
    word_set(&f->kept_records, word_get(&f->records));
    word_set(&f->kept_call, word_get(&f->call));
}

bool flight_is_kept(const struct flight *f)
{
    return word_get(&f->records) > 0 && word_get(&f->kept_records) == word_get(&f->records) &&
           word_get(&f->kept_call) == word_get(&f->call);
}

const char *flight_word(char out[FLIGHT_WORD], const char (*words)[FLIGHT_WORD], size_t n, unsigned index)
{
    if (index >= n || words[index][0] == '\0')
        return strcpy(out, "?");
    memcpy(out, words[index], FLIGHT_WORD);
    out[FLIGHT_WORD - 1] = '\0';
    for (char *c = out; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '?';
    return out;
}

/* --- JSON without printf ---------------------------------------------------------------------------------- */

enum { PIECE = 1024 }; /* bytes that are collected for one call of `put` */

/* After the first failure of `put`, `ok` is false and all later text is dropped. */
struct out {
    flight_put put;
    void *user;
    bool ok;
    size_t len;
    char piece[PIECE];
};

static void flush_piece(struct out *o)
{
    if (o->len > 0 && o->ok)
        o->ok = o->put(o->user, o->piece, o->len);
    o->len = 0;
}

static void write_char(struct out *o, char c)
{
    if (o->len == PIECE)
        flush_piece(o);
    o->piece[o->len++] = c;
}

static void write_text(struct out *o, const char *text)
{
    for (; *text != '\0'; text++)
        write_char(o, *text);
}

static void write_number(struct out *o, uint64_t n)
{
    char digits[24];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (at < sizeof(digits))
        write_char(o, digits[at++]);
}

static void write_signed(struct out *o, int64_t n)
{
    if (n < 0)
        write_char(o, '-');
    write_number(o, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
}

/* Write at most `max` bytes of `text`. A byte that would break JSON or control a terminal becomes '?'. Read each byte
 * only once, because the worker may change it between two reads. */
static void write_string(struct out *o, const char *text, size_t max)
{
    const volatile char *from = text;
    write_char(o, '"');
    for (size_t i = 0; i < max; i++) {
        const char c = from[i];
        if (c == '\0')
            break;
        write_char(o, c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?');
    }
    write_char(o, '"');
}

/* Write `,"name":`. */
static void write_name(struct out *o, const char *name)
{
    write_text(o, ",\"");
    write_text(o, name);
    write_text(o, "\":");
}

static void write_field(struct out *o, const char *name, uint64_t n)
{
    write_name(o, name);
    write_number(o, n);
}

static const char *state_word(enum flight_state state)
{
    static const char *const words[] = {
#define X(name, word) word,
        FLIGHT_STATES(X)
#undef X
    };
    return (size_t)state < sizeof(words) / sizeof(*words) ? words[state] : "none";
}

/* Write nanoseconds since 1970, or null for 0. */
static void write_time(struct out *o, const struct flight *f, const char *name, uint64_t ns)
{
    write_name(o, name);
    if (ns == 0)
        write_text(o, "null");
    else
        write_signed(o, (int64_t)(ns + (uint64_t)f->wall_ns));
}

/* Write the duration in ms with three decimals, or null if the operation has not started or not ended. */
static void write_duration(struct out *o, uint64_t from_ns, uint64_t to_ns)
{
    const uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
    write_name(o, "duration_ms");
    if (from_ns == 0 || to_ns == 0) {
        write_text(o, "null");
        return;
    }
    write_number(o, us / 1000);
    write_char(o, '.');
    write_char(o, (char)('0' + us / 100 % 10));
    write_char(o, (char)('0' + us / 10 % 10));
    write_char(o, (char)('0' + us % 10));
}

/* Write the number and the type of the call's elements. For a call without values, write empty lists. */
static void write_sizes(struct out *o, const struct flight *f, const struct flight_op *op, unsigned dtype)
{
    char word[FLIGHT_WORD];
    if (dtype >= FLIGHT_NAMES) {
        write_text(o, ",\"input_sizes\":[],\"input_dtypes\":[]");
        return;
    }
    write_name(o, "input_sizes");
    write_text(o, "[[");
    write_number(o, word_get(&op->n));
    write_text(o, "]]");
    write_name(o, "input_dtypes");
    write_char(o, '[');
    write_string(o, flight_word(word, f->dtypes, FLIGHT_NAMES, dtype), FLIGHT_WORD);
    write_char(o, ']');
}

static void write_values(struct out *o, const struct flight *f, const struct flight_op *op)
{
    const uint64_t values = word_get(&op->values), place = word_get(&op->place);
    const unsigned reduce = values >> 8 & 0xff;
    char word[FLIGHT_WORD];
    write_sizes(o, f, op, values & 0xff);
    write_field(o, "bytes", word_get(&op->bytes));
    write_name(o, "reduce_op");
    if (reduce < FLIGHT_NAMES)
        write_string(o, flight_word(word, f->ops, FLIGHT_NAMES, reduce), FLIGHT_WORD);
    else
        write_text(o, "null");
    write_field(o, "root", values >> 32);
    write_field(o, "timeout_ms", place >> 32);
    write_name(o, "bucket");
    if ((uint32_t)place == 0)
        write_text(o, "null");
    else
        write_number(o, (uint32_t)place - 1);
}

static void write_step(struct out *o, uint64_t step)
{
    write_name(o, "step");
    if (step == 0)
        write_text(o, "null");
    else
        write_number(o, step - 1);
}

static void write_call(struct out *o, const struct flight *f, const struct flight_op *op)
{
    const uint64_t call = word_get(&op->call), started_ns = word_get(&op->started_ns),
                   ended_ns = word_get(&op->ended_ns);
    char word[FLIGHT_WORD], name[2 * FLIGHT_WORD + 1];
    size_t len = strnlen(f->backend, FLIGHT_WORD - 1);
    memcpy(name, f->backend, len);
    name[len++] = ':';
    strcpy(name + len, flight_word(word, f->kinds, FLIGHT_KINDS, flight_kind(call)));
    write_text(o, "{\"record_id\":");
    write_number(o, word_get(&op->record));
    write_text(o, ",\"pg_id\":0,\"process_group\":[\"0\",\"world\"]");
    write_field(o, "collective_seq_id", flight_seq(call));
    write_field(o, "op_id", word_get(&op->ticket));
    write_name(o, "profiling_name");
    write_string(o, name, sizeof(name));
    write_values(o, f, op);
    write_step(o, word_get(&op->step));
    write_time(o, f, "time_created_ns", word_get(&op->created_ns));
    write_time(o, f, "time_discovered_started_ns", started_ns);
    write_time(o, f, "time_discovered_completed_ns", ended_ns);
    write_duration(o, started_ns, ended_ns);
    write_name(o, "state");
    write_string(o, state_word(flight_state(call)), FLIGHT_WORD);
    write_char(o, '}');
}

/* Return the highest number of all calls whose state is at least `least` and at most `most`. */
static uint64_t highest_call(const struct flight *f, enum flight_state least, enum flight_state most)
{
    uint64_t best = 0;
    for (size_t i = 0; i < FLIGHT_OPS; i++) {
        const uint64_t call = word_get(&f->op[i].call);
        const enum flight_state state = flight_state(call);
        if (state >= least && state <= most && flight_seq(call) > best)
            best = flight_seq(call);
    }
    return best;
}

static void write_status(struct out *o, const struct flight *f)
{
    write_name(o, "pg_status");
    write_text(o, "{\"0\":{\"last_enqueued_collective\":");
    write_number(o, highest_call(f, FLIGHT_SCHEDULED, FLIGHT_FAILED));
    write_field(o, "last_started_collective", highest_call(f, FLIGHT_STARTED, FLIGHT_FAILED));
    write_field(o, "last_completed_collective", highest_call(f, FLIGHT_COMPLETED, FLIGHT_COMPLETED));
    write_text(o, "}}");
}

static void write_head(struct out *o, const struct flight *f, const char *why, uint64_t now_ns)
{
    write_text(o, "{\"format\":\"ddp-flight\",\"version\":\"1.0\",\"rank\":");
    write_signed(o, f->rank);
    write_name(o, "world_size");
    write_signed(o, f->world_size);
    write_name(o, "pid");
    write_signed(o, f->pid);
    write_name(o, "host");
    write_string(o, f->host, FLIGHT_NAME);
    write_name(o, "job");
    write_string(o, f->job, FLIGHT_NAME);
    write_name(o, "attempt");
    write_signed(o, f->attempt);
    write_name(o, "backend");
    write_string(o, f->backend, FLIGHT_WORD);
    write_name(o, "why");
    write_string(o, why, 4 * PIECE);
    write_time(o, f, "time_ns", now_ns);
    write_step(o, word_get(&f->step));
    write_status(o, f);
}

/* Write the record, the oldest entry first. Skip an entry that is not complete, because its number is not set yet. */
bool flight_json(const struct flight *f, const char *why, uint64_t now_ns, flight_put to, void *user)
{
    struct out o = { .put = to, .user = user, .ok = true };
    const uint64_t records = word_get(&f->records);
    const char *between = "\n";
    write_head(&o, f, why, now_ns);
    write_text(&o, ",\n\"entries\":[");
    for (uint64_t r = records > FLIGHT_OPS ? records - FLIGHT_OPS : 0; r < records && o.ok; r++) {
        const struct flight_op *op = &f->op[r % FLIGHT_OPS];
        if (flight_state(word_get(&op->call)) == FLIGHT_NONE)
            continue;
        write_text(&o, between);
        write_call(&o, f, op);
        between = ",\n";
    }
    write_text(&o, "]}\n");
    flush_piece(&o);
    return o.ok;
}

/* --- names ------------------------------------------------------------------------------------------------ */

/* A path that is built in a buffer, part by part. A signal handler builds such paths, and must not call snprintf. */
struct file_name {
    char *to, *end;
    bool fits; /* false if a part did not fit */
};

static void name_append(struct file_name *name, const char *text, size_t len)
{
    if ((size_t)(name->end - name->to) <= len) {
        name->fits = false;
        return;
    }
    memcpy(name->to, text, len);
    name->to += len;
    *name->to = '\0';
}

static void name_append_rank(struct file_name *name, int rank)
{
    char digits[12];
    size_t at = sizeof(digits);
    unsigned left = rank > 0 ? (unsigned)rank : 0;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    name_append(name, digits + at, sizeof(digits) - at);
}

bool flight_path(char *out, size_t size, const char *pattern, int rank)
{
    struct file_name name = { out, out + size, size > 0 };
    const char *at = pattern, *found;
    while ((found = strstr(at, "%r")) != NULL) {
        name_append(&name, at, (size_t)(found - at));
        name_append_rank(&name, rank);
        at = found + 2;
    }
    name_append(&name, at, strlen(at));
    if (at == pattern) {
        const size_t len = strlen(pattern);
        if (len == 0 || pattern[len - 1] != '/')
            name_append(&name, "/", 1);
        name_append(&name, "flight_", 7);
        name_append_rank(&name, rank);
        name_append(&name, ".json", 5);
    }
    return name.fits;
}

void flight_page_print(char out[FLIGHT_PAGE_TEXT], const struct flight_page *page)
{
    snprintf(out, FLIGHT_PAGE_TEXT, "%d:%d:%" PRIu64 ":%" PRIu64 ":%" PRIu64, page->pid, page->fd,
             page->device, page->inode, page->index);
}

/* Parse digits followed by `end`. Reject a number above `most`, because flight_page_print never prints such a
 * number. */
static bool read_digits(const char **at, char end, uint64_t most, uint64_t *out)
{
    char *rest;
    if (**at < '0' || **at > '9')
        return false;
    *out = strtoull(*at, &rest, 10);
    if (*rest != end || *out > most)
        return false;
    *at = rest + (end != '\0');
    return true;
}

bool flight_page_parse(const char *text, struct flight_page *page)
{
    uint64_t pid, fd;
    if (!read_digits(&text, ':', INT_MAX, &pid) || !read_digits(&text, ':', INT_MAX, &fd) ||
        !read_digits(&text, ':', UINT64_MAX, &page->device) ||
        !read_digits(&text, ':', UINT64_MAX, &page->inode) ||
        !read_digits(&text, '\0', INT_MAX, &page->index))
        return false;
    page->pid = (int)pid;
    page->fd = (int)fd;
    return true;
}

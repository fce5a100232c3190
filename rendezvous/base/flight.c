/* flight.c -- see flight.h: entries are written, and names made. flight_json.c prints. */
#include "base/flight.h"

#include <string.h>

/* No store of another kind than these: a reader in another process must see whole numbers. */
static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* The old entry is taken away first and the new one named last, so a reader takes it for nothing, or for itself. */
struct flight_op *flight_add(struct flight *f, const struct flight_begin *b)
{
    const uint64_t record = atomic_load_explicit(&f->records, memory_order_relaxed);
    const uint64_t call = flight_call(b->seq, b->kind, b->state);
    struct flight_op *op = &f->op[record % FLIGHT_OPS];
    set(&op->call, 0);
    atomic_thread_fence(memory_order_release);
    set(&op->record, record);
    set(&op->n, b->n);
    set(&op->bytes, b->bytes);
    set(&op->values, (b->dtype & 0xff) | (b->op & 0xff) << 8 | (uint64_t)b->root << 32);
    set(&op->place, (uint32_t)(b->bucket + 1) | (uint64_t)b->timeout_ms << 32);
    set(&op->created_ns, b->created_ns != 0 ? b->created_ns : b->now_ns);
    set(&op->started_ns, b->state == FLIGHT_STARTED ? b->now_ns : 0);
    set(&op->ended_ns, 0);
    set(&op->ticket, 0);
    set(&op->step, atomic_load_explicit(&f->step, memory_order_relaxed));
    atomic_store_explicit(&op->call, call, memory_order_release);
    set(&f->records, record + 1);
    set(&f->call, call);
    return op;
}

/* The head tells of the latest operation; one that is settled late (asynchronous backends) may not be it any more. */
void flight_settle(struct flight *f, struct flight_op *op, enum flight_state state, uint64_t now_ns)
{
    const uint64_t before = atomic_load_explicit(&op->call, memory_order_relaxed);
    const uint64_t call = (before & ~(uint64_t)0xff) | (uint64_t)state;
    set(state == FLIGHT_STARTED ? &op->started_ns : &op->ended_ns, now_ns);
    atomic_store_explicit(&op->call, call, memory_order_release);
    if (atomic_load_explicit(&f->call, memory_order_relaxed) == before)
        set(&f->call, call);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void flight_note_kept(struct flight *f)
{
    set(&f->kept_records, get(&f->records));
    set(&f->kept_call, get(&f->call));
}

bool flight_is_kept(const struct flight *f)
{
    return get(&f->records) > 0 && get(&f->kept_records) == get(&f->records) &&
           get(&f->kept_call) == get(&f->call);
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

/* --- names of files ------------------------------------------------------------------------------------- */

struct name {
    char *to, *end;
    bool fits;
};

static void add(struct name *name, const char *text, size_t len)
{
    if ((size_t)(name->end - name->to) <= len) {
        name->fits = false;
        return;
    }
    memcpy(name->to, text, len);
    name->to += len;
    *name->to = '\0';
}

static void add_rank(struct name *name, int rank)
{
    char digits[12];
    size_t at = sizeof(digits);
    unsigned left = rank > 0 ? (unsigned)rank : 0;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    add(name, digits + at, sizeof(digits) - at);
}

bool flight_path(char *out, size_t size, const char *pattern, int rank)
{
    struct name name = { out, out + size, size > 0 };
    const char *at = pattern, *found;
    while ((found = strstr(at, "%r")) != NULL) {
        add(&name, at, (size_t)(found - at));
        add_rank(&name, rank);
        at = found + 2;
    }
    add(&name, at, strlen(at));
    if (at == pattern) {
        const size_t len = strlen(pattern);
        if (len == 0 || pattern[len - 1] != '/')
            add(&name, "/", 1);
        add(&name, "flight_", 7);
        add_rank(&name, rank);
        add(&name, ".json", 5);
    }
    return name.fits;
}

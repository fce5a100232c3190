/* pickle.c -- see pickle.h. A pickle is a program for a stack machine, and this file executes the opcodes that build
 * plain data. In JSON a value cannot be in two places, so a container that the pickle uses again is copied. */
#include "record/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits. A flight record of 64 MiB has about two million values. A repeated string takes only two bytes in the file,
 * so the total length of strings has a separate limit. */
enum { VALUES_MAX = 4 << 20, TEXT_MAX = 256 << 20, DEPTH_MAX = 32 };

/* The module `pickletools` of Python's library documents the opcodes. Most opcodes push a value. Some opcodes move the
 * values above the last mark into a container. */
enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95
};

/* An element of the stack: a value or a mark. The values between a mark and the next mark belong to one container. A
 * mark has no `item`. */
struct value {
    cJSON *item; /* owned */
    int depth;   /* depth of containers inside this value: 0 for a string or a number */
};

/* A string or a container in the memo. For a value of another type, both members are empty. */
struct memo {
    struct slice text;      /* borrowed from the file */
    const cJSON *container; /* borrowed; this container is on the stack, or inside another container on the
                             * stack */
};

struct machine {
    const unsigned char *at, *begin, *end;
    struct value *stack;
    size_t n, stack_room;
    struct memo *memo;
    size_t n_memo, memo_room;
    size_t values, text;
    struct ddp_err *err;
};

static bool fail_at(struct machine *m, const char *what)
{
    ddp_fail(m->err, DDP_ERR_CORRUPT, "offset %zu: %s", (size_t)(m->at - m->begin), what);
    return false;
}

static bool fail_memory(struct machine *m)
{
    ddp_fail(m->err, DDP_ERR_NOMEM, "out of memory for %zu values", m->values);
    return false;
}

/* Make room for one more element by doubling the size of the array. */
static bool grow(void **array, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return true;
    const size_t more = *room == 0 ? 64 : *room * 2;
    void *bigger = realloc(*array, more * size);
    if (bigger == NULL)
        return false;
    *array = bigger;
    *room = more;
    return true;
}

/* --- operands ------------------------------------------------------------------------------------------- */

/* Return a pointer to the next `len` bytes and skip them, or return NULL. */
static const unsigned char *next_bytes(struct machine *m, uint64_t len)
{
    const unsigned char *from = m->at;
    if (len > (uint64_t)(m->end - m->at)) {
        fail_at(m, "the file ends in the middle of a value: it may be truncated");
        return NULL;
    }
    m->at += len;
    return from;
}

/* Read an unsigned little-endian number of 1 to 8 bytes. */
static bool read_number(struct machine *m, size_t len, uint64_t *out)
{
    const unsigned char *p = next_bytes(m, len);
    *out = 0;
    for (size_t i = len; p != NULL && i-- > 0;)
        *out = *out << 8 | p[i];
    return p != NULL;
}

/* --- the stack ------------------------------------------------------------------------------------------ */

/* Count one more value. */
static bool count_value(struct machine *m)
{
    return ++m->values <= VALUES_MAX || fail_at(m, "too many values for a flight record");
}

/* Push `item`, which the machine then owns. `item` is NULL if its allocation failed. */
static bool push(struct machine *m, cJSON *item, int depth)
{
    const bool counted = count_value(m);
    if (!counted || item == NULL || !grow((void **)&m->stack, m->n, &m->stack_room, sizeof(*m->stack))) {
        cJSON_Delete(item);
        return counted && fail_memory(m);
    }
    m->stack[m->n++] = (struct value){ item, depth };
    return true;
}

static bool push_mark(struct machine *m)
{
    if (!grow((void **)&m->stack, m->n, &m->stack_room, sizeof(*m->stack)))
        return fail_memory(m);
    m->stack[m->n++] = (struct value){ NULL, 0 };
    return true;
}

static bool push_text(struct machine *m, struct slice text)
{
    m->text += text.len;
    if (m->text > TEXT_MAX)
        return fail_at(m, "too much text for a flight record");
    if (memchr(text.data, '\0', text.len) != NULL)
        return fail_at(m, "a string contains a zero byte");
    char *copy = malloc(text.len + 1);
    if (copy == NULL)
        return fail_memory(m);
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    const bool ok = push(m, cJSON_CreateString(copy), 0);
    free(copy);
    return ok;
}

/* Return the index of the first value above the last mark. If the stack has no mark, return 0 and set an error. */
static size_t above_mark(struct machine *m)
{
    size_t i = m->n;
    while (i > 0 && m->stack[i - 1].item != NULL)
        i--;
    if (i == 0)
        fail_at(m, "a mark is missing");
    return i;
}

/* Check that the stack has `n` values above its last mark. */
static bool has_values(struct machine *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (i >= m->n || m->stack[m->n - 1 - i].item == NULL)
            return fail_at(m, "a value is missing");
    return true;
}

/* Update the depth of a container after adding a value of depth `depth` to it. */
static bool deepen(struct machine *m, struct value *container, int depth)
{
    if (container->depth < depth + 1)
        container->depth = depth + 1;
    return container->depth <= DEPTH_MAX || fail_at(m, "values are nested too deeply");
}

/* Move the stack's values with index `first` and above into the array with index `to`. If a mark lies between the array
 * and these values, remove the mark, too. */
static bool move_to_array(struct machine *m, size_t to, size_t first)
{
    struct value *array = &m->stack[to];
    bool ok = cJSON_IsArray(array->item) || fail_at(m, "values are appended to a value that is not a list");
    for (size_t i = first; i < m->n && ok; i++) {
        ok = deepen(m, array, m->stack[i].depth) && cJSON_AddItemToArray(array->item, m->stack[i].item);
        if (ok)
            m->stack[i].item = NULL;
    }
    if (ok)
        m->n = to + 1;
    return ok;
}

/* Return the text of a key, which is a string or a whole number. */
static const char *key_text(const cJSON *key, char number[32])
{
    if (!cJSON_IsNumber(key))
        return cJSON_GetStringValue(key);
    snprintf(number, 32, "%.0f", key->valuedouble);
    return number;
}

/* Move pairs of key and value into the dict at `to`. */
static bool move_to_dict(struct machine *m, size_t to, size_t first)
{
    struct value *dict = &m->stack[to];
    char number[32];
    if (!cJSON_IsObject(dict->item) || (m->n - first) % 2 != 0)
        return fail_at(
            m, "a key and its value are stored in something that is not a dict, or the value is missing");
    for (size_t i = first; i < m->n; i += 2) {
        const char *key = key_text(m->stack[i].item, number);
        if (key == NULL)
            return fail_at(m, "a key is neither a string nor a number");
        if (!deepen(m, dict, m->stack[i + 1].depth))
            return false;
        if (!cJSON_AddItemToObject(dict->item, key, m->stack[i + 1].item))
            return fail_memory(m);
        m->stack[i + 1].item = NULL;
        cJSON_Delete(m->stack[i].item);
        m->stack[i].item = NULL;
    }
    m->n = to + 1;
    return true;
}

/* Replace the last `n` values by an array of these values. */
static bool make_tuple(struct machine *m, size_t n)
{
    if (!has_values(m, n) || !push(m, cJSON_CreateArray(), 0))
        return false;
    const struct value tuple = m->stack[m->n - 1];
    memmove(&m->stack[m->n - n], &m->stack[m->n - n - 1], n * sizeof(tuple));
    m->stack[m->n - n - 1] = tuple;
    return move_to_array(m, m->n - n - 1, m->n - n);
}

/* Replace the last mark and the values above it by an array of these values. */
static bool make_marked_tuple(struct machine *m)
{
    const size_t first = above_mark(m);
    if (first == 0 || !count_value(m))
        return false;
    cJSON *array = cJSON_CreateArray();
    if (array == NULL)
        return fail_memory(m);
    m->stack[first - 1] = (struct value){ array, 0 };
    return move_to_array(m, first - 1, first);
}

/* Move the values above the last mark into the container below the mark. */
static bool store_marked(struct machine *m, bool (*move)(struct machine *, size_t, size_t))
{
    const size_t first = above_mark(m);
    if (first == 0)
        return false;
    if (first < 2 || m->stack[first - 2].item == NULL)
        return fail_at(m, "values follow a mark, but no list or dict is before the mark");
    return move(m, first - 2, first);
}

/* Move the last `n` values into the container below them. */
static bool store_last(struct machine *m, size_t n, bool (*move)(struct machine *, size_t, size_t))
{
    return has_values(m, n + 1) && move(m, m->n - n - 1, m->n - n);
}

/* --- the memo ------------------------------------------------------------------------------------------- */

/* The memo stores strings and containers that the pickle uses again. */

/* Store the value on top of the stack in the memo, as number `index`. Reject a gap in the numbers, so that the memo
 * cannot become larger than the file. */
static bool memo_store(struct machine *m, uint64_t index, struct slice text)
{
    if (!has_values(m, 1))
        return false;
    if (index > m->n_memo)
        return fail_at(m, "the memo index of a value is too high");
    if (!grow((void **)&m->memo, m->n_memo, &m->memo_room, sizeof(*m->memo)))
        return fail_memory(m);
    const cJSON *item = m->stack[m->n - 1].item;
    const bool is_container = cJSON_IsArray(item) || cJSON_IsObject(item);
    m->memo[index] = (struct memo){ text, is_container ? item : NULL };
    m->n_memo += index == m->n_memo;
    return true;
}

/* Count the values and the text of `item`, because a copy of `item` counts for the limits, too. Set *depth to the depth
 * of `item`. */
static bool count_copy(struct machine *m, const cJSON *item, int *depth)
{
    const cJSON *child;
    int deepest = -1;
    m->values++;
    m->text += item->valuestring != NULL ? strlen(item->valuestring) : 0;
    m->text += item->string != NULL ? strlen(item->string) : 0;
    if (m->values > VALUES_MAX || m->text > TEXT_MAX)
        return fail_at(m, "too many values for a flight record");
    cJSON_ArrayForEach(child, item)
    {
        int below;
        if (!count_copy(m, child, &below))
            return false;
        deepest = below > deepest ? below : deepest;
    }
    *depth = deepest + 1;
    return true;
}

static bool memo_get(struct machine *m, uint64_t index)
{
    int depth;
    if (index >= m->n_memo)
        return fail_at(m, "a value is read from the memo before it was stored");
    if (m->memo[index].text.data != NULL)
        return push_text(m, m->memo[index].text);
    if (m->memo[index].container == NULL)
        return fail_at(m, "the value read from the memo is neither a string, a list nor a dict");
    return count_copy(m, m->memo[index].container, &depth) &&
           push(m, cJSON_Duplicate(m->memo[index].container, true), depth);
}

/* --- opcodes -------------------------------------------------------------------------------------------- */

static bool push_string(struct machine *m, size_t len_bytes, struct slice *last)
{
    uint64_t len;
    if (!read_number(m, len_bytes, &len))
        return false;
    const unsigned char *text = next_bytes(m, len);
    if (text == NULL)
        return false;
    *last = slice_of(text, (size_t)len);
    return push_text(m, *last);
}

/* Push a signed number of `len` bytes, at most 8. Its highest bit is the sign. */
static bool push_signed(struct machine *m, size_t len)
{
    uint64_t bits;
    if (len > sizeof(bits))
        return fail_at(m, "a number has more than 64 bits");
    if (!read_number(m, len, &bits))
        return false;
    if (len > 0 && len < sizeof(bits) && bits >> (8 * len - 1) != 0)
        bits |= UINT64_MAX << (8 * len);
    return push(m, cJSON_CreateNumber((double)(int64_t)bits), 0);
}

static bool push_unsigned(struct machine *m, size_t len)
{
    uint64_t bits;
    return read_number(m, len, &bits) && push(m, cJSON_CreateNumber((double)bits), 0);
}

static bool push_float(struct machine *m)
{
    const unsigned char *p = next_bytes(m, sizeof(double));
    uint64_t bits = 0;
    double number;
    for (size_t i = 0; p != NULL && i < sizeof(bits); i++)
        bits = bits << 8 | p[i];
    memcpy(&number, &bits, sizeof(number));
    return p != NULL && push(m, cJSON_CreateNumber(number), 0);
}

static bool skip_bytes(struct machine *m, size_t len)
{
    return next_bytes(m, len) != NULL;
}

/* Execute one opcode. *last is the string that the previous opcode has pushed, and this opcode may store it in the
 * memo. On return, *last is the string that this opcode has pushed. An empty string means that the opcode has pushed no
 * string. */
static bool step(struct machine *m, unsigned char opcode, struct slice *last)
{
    const struct slice before = *last;
    uint64_t number;
    *last = (struct slice){ 0 };
    switch ((enum opcode)opcode) {
    case OP_PROTO:
        return skip_bytes(m, 1);
    case OP_FRAME:
        return skip_bytes(m, 8);
    case OP_MARK:
        return push_mark(m);
    case OP_NONE:
        return push(m, cJSON_CreateNull(), 0);
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push(m, cJSON_CreateBool(opcode == OP_NEWTRUE), 0);
    case OP_BININT:
        return push_signed(m, 4);
    case OP_BININT1:
        return push_unsigned(m, 1);
    case OP_BININT2:
        return push_unsigned(m, 2);
    case OP_LONG1:
        return read_number(m, 1, &number) && push_signed(m, (size_t)number);
    case OP_BINFLOAT:
        return push_float(m);
    case OP_SHORT_BINUNICODE:
        return push_string(m, 1, last);
    case OP_BINUNICODE:
        return push_string(m, 4, last);
    case OP_EMPTY_LIST:
    case OP_EMPTY_TUPLE:
        return push(m, cJSON_CreateArray(), 0);
    case OP_EMPTY_DICT:
        return push(m, cJSON_CreateObject(), 0);
    case OP_APPEND:
        return store_last(m, 1, move_to_array);
    case OP_APPENDS:
        return store_marked(m, move_to_array);
    case OP_SETITEM:
        return store_last(m, 2, move_to_dict);
    case OP_SETITEMS:
        return store_marked(m, move_to_dict);
    case OP_TUPLE:
        return make_marked_tuple(m);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return make_tuple(m, (size_t)(opcode - OP_TUPLE1 + 1));
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return read_number(m, opcode == OP_BINPUT ? 1 : 4, &number) && memo_store(m, number, before);
    case OP_MEMOIZE:
        return memo_store(m, m->n_memo, before);
    case OP_BINGET:
    case OP_LONG_BINGET:
        return read_number(m, opcode == OP_BINGET ? 1 : 4, &number) && memo_get(m, number);
    case OP_STOP:
        break;
    }
    return fail_at(m, "rejected an opcode that may run code: plain data needs no such opcode");
}

/* Return the only value that remains at the end. If there is no such value, set an error and return NULL. */
static cJSON *result(struct machine *m)
{
    if (m->n != 1 || m->stack[0].item == NULL) {
        fail_at(m, "the pickle must end with exactly one value");
        return NULL;
    }
    cJSON *item = m->stack[0].item;
    m->n = 0;
    return item;
}

bool pickle_is(struct slice bytes)
{
    const unsigned char *p = bytes.data;
    return bytes.len >= 2 && p[0] == OP_PROTO && p[1] >= 2 && p[1] <= 5;
}

cJSON *pickle_read(struct slice bytes, struct ddp_err *err)
{
    const unsigned char *begin = bytes.data;
    struct machine m = { .at = begin, .begin = begin, .end = begin + bytes.len, .err = err };
    struct slice last = { 0 };
    cJSON *item = NULL;
    bool ok = true;
    while (ok && m.at < m.end && *m.at != OP_STOP)
        ok = step(&m, *m.at++, &last);
    if (ok && m.at == m.end)
        fail_at(&m, "the file ends before the end of the pickle: it may be truncated");
    else if (ok)
        item = result(&m);
    while (m.n > 0)
        cJSON_Delete(m.stack[--m.n].item);
    free(m.stack);
    free(m.memo);
    return item;
}

/* rejects.c -- see rejects.h. */
#include "core/rejects.h"

#include "core/encode.h"
#include "core/ops.h"

#include <stdio.h>

enum { TELL_EVERY_MS = 60000 };

/* --- what it speaks --------------------------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    enum reject_kind kind;
} beginnings[] = {
    { "GET ", REJECT_HTTP },    { "POST", REJECT_HTTP }, { "HEAD", REJECT_HTTP }, { "PUT ", REJECT_HTTP },
    { "OPTI", REJECT_HTTP },    { "PRI ", REJECT_HTTP }, { "CONN", REJECT_HTTP }, { "DELE", REJECT_HTTP },
    { "\x16\x03", REJECT_TLS }, { "SSH-", REJECT_SSH },
};

/* Our opcodes follow the greeting at once; PyTorch's first request is below 0x80. */
static enum reject_kind greeted_kind(struct slice first)
{
    enum { GREETING = 5, OURS_FROM = 0x80 };
    const uint8_t *bytes = first.data;
    return first.len > GREETING && bytes[GREETING] >= OURS_FROM ? REJECT_OURS : REJECT_C10D_2;
}

/* An old dialect begins with an opcode and the length of a key. */
static bool is_old_request(struct slice first)
{
    const uint8_t *bytes = first.data;
    for (size_t i = 3; i < first.len; i++)
        if (bytes[i] != 0)
            return false;
    return bytes[0] < 0x0c;
}

enum reject_kind reject_kind_of(struct slice first)
{
    const uint8_t *bytes = first.data;
    if (first.len == 0)
        return REJECT_SILENT;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        size_t len = strlen(beginnings[i].bytes);
        if (first.len >= len && memcmp(bytes, beginnings[i].bytes, len) == 0)
            return beginnings[i].kind;
    }
    if (bytes[0] == 0 && first.len >= 5 && get_u32(bytes + 1) == WIRE_MAGIC)
        return greeted_kind(first);
    return is_old_request(first) ? REJECT_C10D_1 : REJECT_OTHER;
}

const char *reject_kind_word(enum reject_kind kind)
{
    static const char *const word[] = {
#define X(name, text, words) text,
        REJECT_KINDS(X)
#undef X
    };
    return word[kind];
}

const char *reject_kind_words(enum reject_kind kind)
{
    static const char *const words[] = {
#define X(name, word, text) text,
        REJECT_KINDS(X)
#undef X
    };
    return words[kind];
}

/* --- the rows --------------------------------------------------------------------------------------------- */

/* "10.0.0.2" of "10.0.0.2:41234", "[fe80::1]" of "[fe80::1]:41234". */
static void put_source(const char *peer, char source[static REJECT_SOURCE_MAX])
{
    const char *colon = strrchr(peer, ':');
    snprintf(source, REJECT_SOURCE_MAX, "%.*s", (int)(colon != NULL ? colon - peer : (long)strlen(peer)),
             peer);
}

static bool is_same(const struct reject *a, const struct reject *b)
{
    return a->kind == b->kind && strcmp(a->source, b->source) == 0 && strcmp(a->job, b->job) == 0;
}

/* Its row, or a new one, or the one that was not seen for the longest time. */
static struct reject *row_for(struct rejects *r, const struct reject *wanted)
{
    struct reject *oldest = &r->row[0];
    for (uint32_t i = 0; i < r->count; i++) {
        if (is_same(&r->row[i], wanted))
            return &r->row[i];
        if (r->row[i].last_ms < oldest->last_ms)
            oldest = &r->row[i];
    }
    if (r->count < REJECTS_MAX)
        oldest = &r->row[r->count++];
    *oldest = *wanted;
    return oldest;
}

/* The minute is the source's: what it speaks, and for which job, may change from one time to the next. */
static bool tell(struct rejects *r, struct reject *row, uint64_t now_ms)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->row[i].told_ms != 0 && now_ms + 1 - r->row[i].told_ms < TELL_EVERY_MS &&
            strcmp(r->row[i].source, row->source) == 0)
            return false;
    row->told_ms = now_ms + 1;
    return true;
}

bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms)
{
    struct reject wanted = { .kind = what->is_ours ? REJECT_OURS : reject_kind_of(what->first),
                             .first_ms = now_ms };
    put_source(what->peer, wanted.source);
    snprintf(wanted.job, sizeof(wanted.job), "%s", what->job != NULL ? what->job : "");
    struct reject *row = row_for(r, &wanted);
    snprintf(row->why, sizeof(row->why), "%s", what->why);
    row->n_first = (uint8_t)(what->first.len < REJECT_FIRST_MAX ? what->first.len : REJECT_FIRST_MAX);
    if (row->n_first > 0)
        memcpy(row->first, what->first.data, row->n_first);
    row->last_ms = now_ms;
    row->times++;
    r->total++;
    return tell(r, row, now_ms);
}

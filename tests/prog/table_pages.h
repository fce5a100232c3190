/* table_pages.h -- the tables of ops.h and messages.h as Markdown, for `make protocol` and for the tests that compare
 * the pages. All functions return false when memory is short. */
#ifndef TABLE_PAGES_H
#define TABLE_PAGES_H

#include "hub/messages.h"
#include "store/ops.h"

#include <string.h>

static inline bool page_put_code(struct buf *out, int code)
{
    return code < 0 ? buf_printf(out, " – |") : buf_printf(out, " 0x%02x |", (unsigned)code);
}

static inline bool page_put_fields(struct buf *out, const struct op *op)
{
    bool ok = buf_printf(out, op->field[0] == FIELD_NIL ? " –" : " ");
    for (int i = 0; i < OP_FIELDS && op->field[i] != FIELD_NIL; i++)
        ok = ok && buf_printf(out, "%s`%s`", i ? ", " : "", field_table[op->field[i]].text);
    return ok && buf_printf(out, " |");
}

/* Append the table of requests as Markdown, because readers see the page on a web site and in an editor. Empty cells
 * stay empty. */
static inline bool page_of_requests(struct buf *out)
{
    static const struct {
        bool wakes;
        const char *response, *text;
    } rows[OPS] = {
#define X(name, c, b, a, f0, f1, f2, waits, wakes, response, text) [OP_##name] = { wakes, response, text },
        STORE_OPS(X)
#undef X
    };
    bool ok = buf_printf(out, "| request | C | B | A | fields | response | | what it does |\n"
                              "|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < OPS; i++) {
        const struct op *op = &op_table[i];
        const bool waits = op->waits, wakes = rows[i].wakes;
        ok = ok && buf_printf(out, "| %s |", op->name) && page_put_code(out, op->code[DIALECT_C]) &&
             page_put_code(out, op->code[DIALECT_B]) && page_put_code(out, op->code[DIALECT_A]) &&
             page_put_fields(out, op) &&
             buf_printf(out, " %s | %s | %s |\n", rows[i].response,
                        waits && wakes ? "waits, wakes"
                        : waits        ? "waits"
                        : wakes        ? "wakes"
                                       : "",
                        rows[i].text);
    }
    return ok;
}

#define X(name, words) PAGE_##name,
enum page_kind { MESSAGE_KINDS(X) };
#undef X

struct page_row {
    const char *name;
    enum page_kind kind;
    int64_t least, most, missing;
    const char *what;
};

/* The rows of each message. A row without a name ends the list. */
#define ROW(kind, name, least, most, missing, what) { #name, PAGE_##kind, least, most, missing, what },
#define X(ID, name, ...) \
    static const struct page_row page_rows_##name[] = { FIELDS_OF_##name(ROW){ NULL, 0, 0, 0, 0, NULL } };
MESSAGES(X)
#undef X
#undef ROW

static const struct {
    const char *name, *what;
    enum message_class class;
    const struct page_row *rows;
} page_messages[MESSAGE_COUNT] = {
#define X(ID, name, words, class, what) { words, what, MESSAGE_IS_##class, page_rows_##name },
    MESSAGES(X)
#undef X
};

/* Append the type of a member with its limits, and a star if the member is required. */
static inline bool page_put_type(struct buf *out, const struct page_row *f)
{
#define X(name, words) words,
    static const char *const kinds[] = { MESSAGE_KINDS(X) };
#undef X
    if (!buf_printf(out, "`%s`%s ", f->name, f->missing == MESSAGE_NEEDED ? "*" : ""))
        return false;
    switch (f->kind) {
    case PAGE_WHOLE:
    case PAGE_LIMIT:
    case PAGE_CODE:
        return buf_printf(out, "(%lld–%lld)", (long long)f->least, (long long)f->most);
    case PAGE_TEXT:
        return buf_printf(out, "(≤%lld)", (long long)f->most);
    case PAGE_LIST:
        return f->most == 0 ? buf_printf(out, "(list)")
                            : buf_printf(out, "(list of %lld)", (long long)f->most);
    default:
        return buf_printf(out, "(%s)", kinds[f->kind]);
    }
}

/* Return true if a message before `id` describes this member with the same text. */
static inline bool page_described(int id, const struct page_row *member)
{
    for (int other = 0; other < id; other++)
        for (const struct page_row *f = page_messages[other].rows; f->name != NULL; f++)
            if (strcmp(f->name, member->name) == 0 && strcmp(f->what, member->what) == 0)
                return true;
    return false;
}

/* Return true if the description only repeats the name, such as "node rank" for node_rank. */
static inline bool page_is_plain(const struct page_row *f)
{
    size_t i = 0;
    while (f->name[i] != '\0' && (f->name[i] == f->what[i] || (f->name[i] == '_' && f->what[i] == ' ')))
        i++;
    return f->name[i] == '\0' && f->what[i] == '\0';
}

/* Append a message. Omit the description of a member if an earlier message has it, or if it only repeats the name. Omit
 * the sender's round. */
static inline bool page_put_message(struct buf *out, int id)
{
    int printed = 0;
    bool ok = buf_printf(out, "| `%s` | %s |", page_messages[id].name, page_messages[id].what);
    for (const struct page_row *f = page_messages[id].rows; ok && f->name != NULL; f++) {
        if (id != MESSAGE_SENDER && strcmp(f->what, page_rows_sender[0].what) == 0)
            continue;
        ok = buf_printf(out, "%s", printed++ ? "; " : " ") && page_put_type(out, f) &&
             (page_described(id, f) || page_is_plain(f) || buf_printf(out, " %s", f->what));
    }
    return ok && buf_printf(out, " |\n");
}

static inline bool page_of_messages(struct buf *out)
{
    static const char *const titles[MESSAGE_CLASSES] = {
        [MESSAGE_IS_AGENT_CALL] = "Calls of agents",
        [MESSAGE_IS_CHANGE_CALL] = "Calls that change the job",
        [MESSAGE_IS_CALL] = "Calls of every client",
        [MESSAGE_IS_ANSWER] = "Answers",
        [MESSAGE_IS_PUSH] = "Pushes",
        [MESSAGE_IS_PART] = "Parts",
    };
    bool ok = true;
    for (int class = 0; ok && class < MESSAGE_CLASSES; class ++) {
        ok = buf_printf(out, "\n### %s\n\n| message | meaning | members |\n|---|---|---|\n", titles[class]);
        for (int id = 0; ok && id < MESSAGE_COUNT; id++)
            ok = (int)page_messages[id].class != class || page_put_message(out, id);
    }
    return ok && buf_printf(out, "\n");
}

/* Write a dictionary for libFuzzer: the name of each call, and the names of its members. A name that several calls have
 * is written several times, which does no harm. */
static inline bool page_of_dictionary(struct buf *out)
{
    bool ok = true;
    for (int id = 0; ok && id < MESSAGE_COUNT; id++) {
        if (page_messages[id].class > MESSAGE_IS_CALL)
            continue;
        ok = buf_printf(out, "\"{\\\"op\\\":\\\"%s\\\"\"\n", page_messages[id].name);
        for (const struct page_row *f = page_messages[id].rows; ok && f->name != NULL; f++)
            ok = buf_printf(out, "\",\\\"%s\\\":\"\n", f->name);
    }
    return ok;
}

#endif

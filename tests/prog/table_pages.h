/* table_pages.h -- the tables of ops.h and messages.h as Markdown. `make protocol` and the tests of the pages use this
 * file. All functions return false when memory is short. */
#ifndef TABLE_PAGES_H
#define TABLE_PAGES_H

#include "hub/messages.h"
#include "store/ops.h"

#include <string.h>

static inline bool page_put_code(struct buf *out, int code)
{
    return code < 0 ? buf_printf(out, "–|") : buf_printf(out, "0x%02x|", (unsigned)code);
}

static inline bool page_put_fields(struct buf *out, const struct op *op)
{
    bool ok = buf_printf(out, op->field[0] == FIELD_NIL ? "–" : "");
    for (int i = 0; i < OP_FIELDS && op->field[i] != FIELD_NIL; i++)
        ok = ok && buf_printf(out, "%s`%s`", i ? ", " : "", field_table[op->field[i]].text);
    return ok && buf_printf(out, "|");
}

/* Append the table of requests. The table is Markdown, because readers see the page both on a web site and in an
 * editor. */
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
    bool ok = buf_printf(out, "|request|C|B|A|fields|response||what it does|\n"
                              "|-|-|-|-|-|-|-|-|\n");
    for (int i = 0; i < OPS; i++) {
        const struct op *op = &op_table[i];
        const bool waits = op->waits, wakes = rows[i].wakes;
        ok = ok && buf_printf(out, "|%s|", op->name) && page_put_code(out, op->code[DIALECT_C]) &&
             page_put_code(out, op->code[DIALECT_B]) && page_put_code(out, op->code[DIALECT_A]) &&
             page_put_fields(out, op) &&
             buf_printf(out, "%s|%s|%s|\n", rows[i].response,
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

static inline bool page_is_number(const struct page_row *f)
{
    return f->kind == PAGE_WHOLE || f->kind == PAGE_LIMIT || f->kind == PAGE_CODE;
}

/* Return true if the store receives the message and rejects members outside of their limits. */
static inline bool page_is_received(int id)
{
    return page_messages[id].class <= MESSAGE_IS_CALL || id == MESSAGE_SENDER || id == MESSAGE_OP ||
           id == MESSAGE_IDENTIFY || id == MESSAGE_FLIGHT_CALL;
}

/* Return the usual upper limit of a member's value, or of its length if the value is a text. If a member has this usual
 * limit, the page need not show the limit. */
static inline int64_t page_usual_most(const struct page_row *f)
{
    const size_t len = strlen(f->name);
    if (f->kind == PAGE_TEXT)
        return LIMIT_TEXT - 1;
    return len > 3 && strcmp(f->name + len - 3, "_ms") == 0 ? MESSAGE_MS_MAX : INT32_MAX;
}

/* Append the limits of a member that the store receives. If `both` is false, omit the usual upper limit. */
static inline bool page_put_limits(struct buf *out, const struct page_row *f, bool both)
{
    const bool usual = f->most == page_usual_most(f) && !both;
    if (f->kind == PAGE_TEXT)
        return usual || buf_printf(out, " (≤%lld)", (long long)f->most);
    if (usual)
        return f->least == 0 || buf_printf(out, " (≥%lld)", (long long)f->least);
    if (f->least == 0)
        return buf_printf(out, " (≤%lld)", (long long)f->most);
    return buf_printf(out, " (%lld–%lld)", (long long)f->least, (long long)f->most);
}

/* Append the type of a member that is neither a number nor a text. */
static inline bool page_put_type(struct buf *out, const struct page_row *f)
{
#define X(name, words) words,
    static const char *const kinds[] = { MESSAGE_KINDS(X) };
#undef X
    return f->most == 0 ? buf_printf(out, " (%s)", kinds[f->kind])
                        : buf_printf(out, " (%s ≤%lld)", kinds[f->kind], (long long)f->most);
}

/* Return true if a member is the round of the message's sender. The page shows this member only in the row `sender`. */
static inline bool page_is_hidden(int id, const struct page_row *f)
{
    return id != MESSAGE_SENDER && strcmp(f->what, page_rows_sender[0].what) == 0;
}

/* The page omits what an earlier row for the same member name has shown. This struct has the last rows that the page
 * has shown for one name. `type` is the last row with this name. `limits` is the last such row with limits, and `text`
 * is the last such row with a description. NULL means that there is no such row. */
struct page_last {
    const struct page_row *limits, *type, *text;
};

/* Look at the rows for `name` that the page shows before message `id`, and return the last ones (struct page_last). The
 * page shows the messages by class, and the messages of one class by id. */
static inline struct page_last page_find_last(int id, const char *name)
{
    struct page_last last = { NULL, NULL, NULL };
    for (int class = 0; class <= (int)page_messages[id].class; class ++)
        for (int other = 0; other < (class < (int)page_messages[id].class ? MESSAGE_COUNT : id); other++)
            for (const struct page_row *f = page_messages[other].rows;
                 (int)page_messages[other].class == class && f->name != NULL; f++) {
                if (strcmp(f->name, name) != 0 || page_is_hidden(other, f))
                    continue;
                last.type = f;
                last.limits = page_is_received(other) ? f : last.limits;
                last.text = f->what[0] != '\0' ? f : last.text;
            }
    return last;
}

/* Append a member: its name, a star if it is required, its type or limits, and its description. Put quotes around the
 * name if the value is a text. Omit the type, the limits or the description if the last row for this name shows the
 * same text. */
static inline bool page_put_member(struct buf *out, int id, const struct page_row *f)
{
    const struct page_last last = page_find_last(id, f->name);
    const char *quote = f->kind == PAGE_TEXT ? "\"" : "";
    bool ok = buf_printf(out, "`%s%s%s`%s", quote, f->name, quote, f->missing == MESSAGE_NEEDED ? "\\*" : "");
    if (f->kind != PAGE_TEXT && !page_is_number(f))
        ok = ok && ((last.type != NULL && last.type->kind == f->kind) || page_put_type(out, f));
    else if (page_is_received(id))
        ok = ok && ((last.limits != NULL && last.limits->least == f->least && last.limits->most == f->most) ||
                    page_put_limits(out, f, last.limits != NULL));
    return ok && (f->what[0] == '\0' || (last.text != NULL && strcmp(f->what, last.text->what) == 0) ||
                  buf_printf(out, " %s", f->what));
}

/* Return the first message before `id` with the same members, or `id` if no such message exists. Messages with fewer
 * than two members do not count. */
static inline int page_same_members(int id)
{
    for (int other = 0; other < id; other++) {
        const struct page_row *a = page_messages[other].rows, *b = page_messages[id].rows;
        while (a->name != NULL && b->name != NULL && strcmp(a->name, b->name) == 0 &&
               strcmp(a->what, b->what) == 0 && a->kind == b->kind && a->least == b->least &&
               a->most == b->most && a->missing == b->missing)
            a++, b++;
        if (a->name == NULL && b->name == NULL && a - page_messages[other].rows > 1)
            return other;
    }
    return id;
}

/* Append a message. If an earlier message has the same members, refer to that message. Omit the sender's round. */
static inline bool page_put_message(struct buf *out, int id)
{
    const int same = page_same_members(id);
    int printed = 0;
    bool ok = buf_printf(out, "|`%s`|%s|", page_messages[id].name, page_messages[id].what);
    if (same != id)
        return ok && buf_printf(out, "as in `%s`|\n", page_messages[same].name);
    for (const struct page_row *f = page_messages[id].rows; ok && f->name != NULL; f++)
        if (!page_is_hidden(id, f))
            ok = buf_printf(out, printed++ ? "; " : "") && page_put_member(out, id, f);
    return ok && buf_printf(out, "|\n");
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
        ok = buf_printf(out, "\n### %s\n\n|message|meaning|members|\n|-|-|-|\n", titles[class]);
        for (int id = 0; ok && id < MESSAGE_COUNT; id++)
            ok = (int)page_messages[id].class != class || page_put_message(out, id);
    }
    return ok && buf_printf(out, "\n");
}

/* Write a dictionary for libFuzzer: the name of each call, and the names of its members. A name that occurs in several
 * calls is written several times, which does no harm. */
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

/* messages.c -- see messages.h.
 *
 * cJSON parses and prints the JSON text. Each member of a message has a row in a table (struct row) with the member's
 * name, type and limits. So the error about a wrong message names the member and the expected value. */
#include "hub/messages.h"

#include "base/text.h"

#include <string.h>

enum { CODE_WRONG = 125 }; /* replaces an invalid exit code, such as 256, which would look like 0 */

#define X(name, words) KIND_##name,
enum kind { MESSAGE_KINDS(X) };
#undef X

struct row {
    char name[24]; /* no pointer, because the loader would have to relocate each row in each start */
    enum kind kind;
    size_t at; /* offset of the member in the message's struct */
    int64_t least, most, missing;
};

/* An array of rows for each message. A row without a name ends the array. */
#define ROW(kind, name, least, most, missing, what) \
    { #name, KIND_##kind, offsetof(this_message, name), least, most, missing },
#define X(ID, name, ...)                                                                          \
    static const struct row *fields_of_##name(void)                                               \
    {                                                                                             \
        typedef struct message_##name this_message;                                               \
        static const struct row rows[] = { FIELDS_OF_##name(ROW){ .at = sizeof(this_message) } }; \
        return rows;                                                                              \
    }
MESSAGES(X)
#undef X
#undef ROW

static const struct {
    const char *name;
    enum message_class class;
    size_t size;
    const struct row *(*fields)(void);
} messages[MESSAGE_COUNT] = {
#define X(ID, name, words, class, what) \
    { words, MESSAGE_IS_##class, sizeof(struct message_##name), fields_of_##name },
    MESSAGES(X)
#undef X
};

enum message_class message_class(enum message_id id)
{
    return messages[id].class;
}

enum message_id message_find_call(const char *op)
{
    for (int id = 0; id < MESSAGE_COUNT; id++)
        if (messages[id].class <= MESSAGE_IS_CALL && strcmp(messages[id].name, op) == 0)
            return (enum message_id)id;
    return MESSAGE_COUNT;
}

enum message_id message_find_push(const char *push)
{
    for (int id = 0; id < MESSAGE_COUNT; id++)
        if (messages[id].class == MESSAGE_IS_PUSH && strcmp(messages[id].name, push) == 0)
            return (enum message_id)id;
    return MESSAGE_COUNT;
}

/* --- encode --------------------------------------------------------------------------------------------- */

/* Add `item` to `o`. If memory is short, free `item`. */
static void add_item(cJSON *o, const char *name, cJSON *item)
{
    if (!cJSON_AddItemToObjectCS(o, name, item))
        cJSON_Delete(item);
}

/* Add a number. If the value is MESSAGE_NONE, add a null for the kind LIMIT, and no member for other kinds. */
static void add_whole(cJSON *o, const struct row *f, int64_t value)
{
    if (value == MESSAGE_NONE && f->kind == KIND_LIMIT)
        cJSON_AddNullToObject(o, f->name);
    else if (value != MESSAGE_NONE && f->kind == KIND_MAYBE)
        cJSON_AddBoolToObject(o, f->name, value != 0);
    else if (value != MESSAGE_NONE)
        json_add_integer(o, f->name, value);
}

/* Make a JSON text of valid UTF-8. Texts of workers and users may contain any bytes, and cJSON does not check them. If
 * replacing invalid bytes makes the text longer than `max` bytes, cut the text. Return NULL if memory is short. */
static cJSON *new_text(const char *text, size_t max)
{
    struct buf clean = { 0 };
    cJSON *item = NULL;
    if (utf8_clean(&clean, slice_str(text)) && buf_append(&clean, "", 1)) {
        /* If `text` itself is longer than `max` bytes, do not cut it, so that the receiver can reject it. */
        if (strlen(text) <= max)
            clean.data[text_fit((const char *)clean.data, max)] = '\0';
        item = cJSON_CreateString((const char *)clean.data);
    }
    buf_free(&clean);
    return item;
}

/* Add a member to a message. For a missing value, add nothing. But for a missing object or limit, add a null. */
static void add_field(cJSON *o, const struct row *f, const void *at)
{
    switch (f->kind) {
    case KIND_WHOLE:
    case KIND_LIMIT:
    case KIND_CODE:
    case KIND_MAYBE:
        add_whole(o, f, *(const int64_t *)at);
        break;
    case KIND_TEXT:
        if (*(const char *const *)at != NULL)
            add_item(o, f->name, new_text(*(const char *const *)at, (size_t)f->most));
        break;
    case KIND_FLAG:
        cJSON_AddBoolToObject(o, f->name, *(const bool *)at);
        break;
    case KIND_MARK:
        if (*(const bool *)at)
            cJSON_AddTrueToObject(o, f->name);
        break;
    case KIND_LIST:
        if (*(cJSON *const *)at != NULL)
            add_item(o, f->name, *(cJSON *const *)at);
        break;
    case KIND_OBJECT:
        add_item(o, f->name, *(cJSON *const *)at != NULL ? *(cJSON *const *)at : cJSON_CreateNull());
        break;
    }
}

void message_add(enum message_id id, const void *message, cJSON *o)
{
    for (const struct row *f = messages[id].fields(); f->name[0] != '\0'; f++)
        add_field(o, f, (const char *)message + f->at);
}

cJSON *message_encode(enum message_id id, const void *message)
{
    cJSON *o = cJSON_CreateObject();
    if (messages[id].class <= MESSAGE_IS_CALL)
        cJSON_AddStringToObject(o, "op", messages[id].name);
    else if (messages[id].class == MESSAGE_IS_PUSH)
        cJSON_AddStringToObject(o, "push", messages[id].name);
    message_add(id, message, o);
    return o;
}

/* --- decode --------------------------------------------------------------------------------------------- */

cJSON *message_parse(struct slice text, struct ddp_err *err)
{
    const char *end = NULL;
    cJSON *o = text.len ? cJSON_ParseWithLengthOpts(text.data, text.len, &end, false) : NULL;
    if (cJSON_IsObject(o))
        return o;
    cJSON_Delete(o);
    ddp_fail(err, DDP_ERR_CORRUPT, "invalid request: not a JSON object");
    return NULL;
}

/* Return true for a whole number within the limits. Compare doubles before the cast, because the cast of a double that
 * does not fit into an int64_t is undefined. */
static bool is_whole(const struct row *f, const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= (double)f->least &&
           item->valuedouble <= (double)f->most && (double)(int64_t)item->valuedouble == item->valuedouble;
}

/* Read a whole number. CODE_WRONG replaces an exit code that is invalid. */
static bool read_whole(const struct row *f, const cJSON *item, int64_t *value, struct ddp_err *err)
{
    if (is_whole(f, item)) {
        *value = (int64_t)item->valuedouble;
        return true;
    }
    if (f->kind == KIND_CODE)
        *value = CODE_WRONG;
    ddp_fail(err, DDP_ERR_ARG, "\"%s\": expected a number from %lld to %lld", f->name, (long long)f->least,
             (long long)f->most);
    return false;
}

/* Borrow a text from its JSON item. If `err` is NULL, accept a text of any length, because the caller cuts it. */
static bool read_text(const struct row *f, const cJSON *item, const char **value, struct ddp_err *err)
{
    const char *text = cJSON_GetStringValue(item);
    if (text != NULL && (err == NULL || strlen(text) <= (size_t)f->most)) {
        *value = text;
        return true;
    }
    ddp_fail(err, DDP_ERR_ARG, "\"%s\": expected a text of at most %zu bytes", f->name, (size_t)f->most);
    return false;
}

/* Read a member. A member of kind LIST or OBJECT with another JSON type is treated as missing. */
static bool read_field(const struct row *f, cJSON *item, void *at, struct ddp_err *err)
{
    switch (f->kind) {
    case KIND_WHOLE:
    case KIND_LIMIT:
    case KIND_CODE:
        return read_whole(f, item, at, err);
    case KIND_TEXT:
        return read_text(f, item, at, err);
    case KIND_MAYBE:
        *(int64_t *)at = cJSON_IsTrue(item);
        return true;
    case KIND_FLAG:
    case KIND_MARK:
        *(bool *)at = cJSON_IsTrue(item);
        return true;
    case KIND_LIST:
        *(cJSON **)at = cJSON_IsArray(item) ? item : NULL;
        return true;
    case KIND_OBJECT:
        *(cJSON **)at = cJSON_IsObject(item) ? item : NULL;
        return true;
    }
    return true;
}

/* Return true if a member of this kind is an int64_t in the struct. */
static bool is_number(enum kind kind)
{
    return kind == KIND_WHOLE || kind == KIND_LIMIT || kind == KIND_CODE || kind == KIND_MAYBE;
}

/* Set a missing number or text to its default. A missing text becomes "", or stays NULL if its default is MESSAGE_NONE.
 * Members of other kinds are already NULL or false. */
static void set_missing(const struct row *f, void *at)
{
    if (is_number(f->kind))
        *(int64_t *)at = f->missing;
    else if (f->kind == KIND_TEXT && f->missing != MESSAGE_NONE)
        *(const char **)at = "";
}

/* Decode a message. A JSON null is treated as missing. */
bool message_decode(enum message_id id, const cJSON *o, void *message, struct ddp_err *err)
{
    memset(message, 0, messages[id].size);
    memcpy(message, &o, sizeof(o)); /* `object` is the first member of each struct */
    for (const struct row *f = messages[id].fields(); f->name[0] != '\0'; f++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(o, f->name);
        void *at = (char *)message + f->at;
        set_missing(f, at);
        if (item != NULL && !cJSON_IsNull(item)) {
            if (!read_field(f, item, at, err) && err != NULL)
                return false;
        } else if (f->missing == MESSAGE_NEEDED && err != NULL) {
            ddp_fail(err, DDP_ERR_ARG, "\"%s\": missing", f->name);
            return false;
        }
    }
    return true;
}

/* --- failures ------------------------------------------------------------------------------------------- */

/* Return the last lines of the worker's log, as an array. */
static cJSON *encode_lines(const struct failure *f)
{
    cJSON *lines = cJSON_CreateArray();
    for (int i = 0; i < f->n_lines; i++)
        json_append(lines, new_text(f->lines[i], LIMIT_WORDS - 1));
    return lines;
}

/* The values of the members that the messages `failed` and `cause` share. If several of error, signal and exit code are
 * set, only the first of them is sent. */
#define FACT_MARK(value)      (value)
#define FACT_WHOLE(value)     ((value) != 0 ? (value) : MESSAGE_NONE)
#define FACT_TEXT(value)      ((value)[0] != '\0' ? (value) : NULL)
#define FACT(kind, name, ...) .name = FACT_##kind(f->name),
#define MEMBERS_OF_FAILURE(f)                                                                              \
    .error = (f)->error != 0 ? (f)->error : MESSAGE_NONE,                                                  \
    .signal = (f)->error == 0 && (f)->signal != 0 ? (f)->signal : MESSAGE_NONE,                            \
    .exit_code = (f)->error == 0 && (f)->signal == 0 ? (f)->exit_code : MESSAGE_NONE, .words = (f)->words, \
    .stderr = encode_lines(f), FAILURE_FACTS(FACT)

cJSON *message_encode_failure(enum message_id id, const struct failure *f)
{
    return message_encode(id, &(struct message_failed){ MEMBERS_OF_FAILURE(f).rank = f->rank,
                                                        .local_rank = f->local_rank, .pid = f->pid,
                                                        .no_retry = f->no_retry, .log = f->log,
                                                        .victim = f->victim, .round = MESSAGE_NONE });
}

/* Encode the cause of a stop. Without a failed worker, for example if a user stopped a node, members about the
 * worker are left out. */
cJSON *message_encode_failure_cause(const struct failure *f)
{
    const bool is_worker = f->rank >= 0;
    return message_encode_cause(&(struct message_cause){
        MEMBERS_OF_FAILURE(f).why = f->why, .node_rank = f->node_rank, .host = f->host,
        .after_ms = (int64_t)f->after_ms, .code = f->code[0] != '\0' ? f->code : NULL,
        .rank = is_worker ? f->rank : MESSAGE_NONE, .local_rank = is_worker ? f->local_rank : MESSAGE_NONE,
        .pid = is_worker ? f->pid : MESSAGE_NONE, .no_retry = is_worker ? f->no_retry : NULL,
        .victim = is_worker ? f->victim : MESSAGE_NONE,
        .log = is_worker && f->log[0] != '\0' ? f->log : NULL });
}

/* Copy at most LIMIT_LAST_LINES lines. Items that are not texts are skipped. */
static void decode_lines(const cJSON *lines, struct failure *f)
{
    const cJSON *line;
    cJSON_ArrayForEach(line, lines)
    {
        if (f->n_lines < LIMIT_LAST_LINES && cJSON_IsString(line))
            text_copy(f->lines[f->n_lines++], LIMIT_WORDS, line->valuestring);
    }
}

/* Decode a failure. `o` is a call (`failed` or `cause`), or the object `cause` in a push (`stop` or `verdict`). Always
 * use the rows of CAUSE, because these rows include all members of the two calls except `round`. */
void message_decode_failure(const cJSON *o, struct failure *f)
{
    struct message_cause m;
    message_read_cause(o, &m);
    memset(f, 0, sizeof(*f));
    text_copy(f->code, sizeof(f->code), m.code);
    text_copy(f->why, sizeof(f->why), m.why);
    text_copy(f->no_retry, sizeof(f->no_retry), m.no_retry);
    text_copy(f->host, sizeof(f->host), m.host);
    text_copy(f->words, sizeof(f->words), m.words);
    text_copy(f->log, sizeof(f->log), m.log);
    f->node_rank = (int)m.node_rank;
    f->rank = (int)m.rank;
    f->local_rank = (int)m.local_rank;
    f->pid = (int)m.pid;
    f->exit_code = (int)m.exit_code;
    f->signal = (int)m.signal;
    f->error = (int)m.error;
    f->after_ms = (uint64_t)m.after_ms;
    f->victim = m.victim == 1;
#define COPY_MARK(name)    f->name = m.name;
#define COPY_WHOLE(name)   f->name = m.name;
#define COPY_TEXT(name)    text_copy(f->name, sizeof(f->name), m.name);
#define X(kind, name, ...) COPY_##kind(name)
    FAILURE_FACTS(X)
#undef X
#undef COPY_TEXT
#undef COPY_WHOLE
#undef COPY_MARK
    decode_lines(m.stderr, f);
}

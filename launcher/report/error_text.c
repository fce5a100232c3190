/* error_text.c -- see error_text.h. cJSON reads the file: it has a limit for nesting and stops at the given
 * length. What is left to do here is to expect each member to be of any type, or missing. */
#include "report/error_text.h"

#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* A copy of a member's text, "" when it is none; not UTF-8 is made harmless, for it goes to a terminal and into JSON. NULL
 * when memory is short. */
static char *copy_text(const cJSON *item)
{
    struct buf out = { 0 };
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (utf8_clean(&out, slice_str(text)) && buf_append(&out, "", 1))
        return (char *)out.data;
    buf_free(&out);
    return NULL;
}

/* Seconds since 1970 as a number or as its digits; 0 for anything that is no moment of our age. */
static uint64_t moment(const cJSON *item)
{
    const double latest = 4102444800.0; /* the year 2100: above it are milliseconds, or nonsense */
    double seconds = cJSON_IsNumber(item)   ? item->valuedouble
                     : cJSON_IsString(item) ? strtod(item->valuestring, NULL)
                                            : 0;
    return seconds >= 1 && seconds < latest ? (uint64_t)(seconds * 1000) : 0;
}

/* The shape with an object inside, or the flat one. Anything else has no message. */
static const cJSON *find(const cJSON *root, const cJSON **callstack, const cJSON **when)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    *callstack = cJSON_GetObjectItemCaseSensitive(extra, "py_callstack");
    *when = cJSON_GetObjectItemCaseSensitive(extra, "timestamp");
    if (*when == NULL)
        *when = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    return cJSON_IsObject(message) ? cJSON_GetObjectItemCaseSensitive(message, "message") : message;
}

/* A file without a message is told as broken rather than shown empty: its worker meant to say something. */
static ddp_status take(const cJSON *root, struct error_text *out, struct ddp_err *err)
{
    const cJSON *callstack, *when;
    const cJSON *message = find(root, &callstack, &when);
    if (!cJSON_IsString(message))
        return ddp_fail(err, DDP_ERR_CORRUPT, "it has no \"message\" that is a text");
    *out = (struct error_text){ .message = copy_text(message),
                                .callstack = copy_text(callstack),
                                .unix_ms = moment(when) };
    if (out->message != NULL && out->callstack != NULL)
        return DDP_OK;
    error_text_free(out);
    return ddp_fail(err, DDP_ERR_NOMEM, "no memory for it");
}

/* A limit, then a parser, then a look at types: each step may trust the one before, and none trusts the worker. */
ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err)
{
    const char *end = NULL;
    *out = (struct error_text){ 0 };
    if (bytes.len == 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "it is empty");
    if (bytes.len > ERROR_FILE_MAX)
        return ddp_fail(err, DDP_ERR_LIMIT, "it has more than %d KiB", ERROR_FILE_MAX / 1024);
    cJSON *root = cJSON_ParseWithLengthOpts(bytes.data, bytes.len, &end, false);
    if (root == NULL)
        return ddp_fail(err, DDP_ERR_CORRUPT, "it is no JSON (byte %zu of %zu)",
                        end != NULL ? (size_t)(end - (const char *)bytes.data) : 0, bytes.len);
    ddp_status status = take(root, out, err);
    cJSON_Delete(root);
    return status;
}

/* NULL: it is none, or memory is short. */
static cJSON *parse_object(struct slice bytes)
{
    cJSON *root = bytes.len <= ERROR_FILE_MAX ? cJSON_ParseWithLength(bytes.data, bytes.len) : NULL;
    if (cJSON_IsObject(root))
        return root;
    cJSON_Delete(root);
    return NULL;
}

bool error_text_with_code(struct slice bytes, int code, struct buf *out)
{
    cJSON *root = parse_object(bytes);
    cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    bool ok = root != NULL;
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        ok = json_add_number(message, "errorCode", code);
    }
    if (ok)
        return json_print(out, root, false);
    cJSON_Delete(root);
    return false;
}

bool error_text_whole(struct slice bytes, struct buf *out)
{
    if (!json_print(out, parse_object(bytes), false))
        return false;
    out->data[out->len - 1] = '\0'; /* the newline */
    return true;
}

void error_text_free(struct error_text *text)
{
    free(text->message);
    free(text->callstack);
    *text = (struct error_text){ 0 };
}

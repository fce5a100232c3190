/* log_pattern.c -- see log_pattern.h. */
#include "tables/log_pattern.h"

static const struct {
    char letter;
    const char *words;
} tokens[] = {
#define X(letter, value, words) { letter, words },
    LOG_PATTERN_TOKENS(X)
#undef X
};
enum { TOKENS = sizeof(tokens) / sizeof(tokens[0]) };

static bool is_known(char letter)
{
    for (int i = 0; i < TOKENS; i++)
        if (tokens[i].letter == letter)
            return true;
    return false;
}

/* The list is made from the table, so that it never lacks a token. Without memory for it the sentence is just
 * shorter. */
static ddp_status refuse(struct ddp_err *err)
{
    struct buf list = { 0 };
    for (int i = 0; i < TOKENS; i++)
        buf_printf(&list, "%s%%%c %s", i > 0 ? ", " : " with ", tokens[i].letter, tokens[i].words);
    ddp_status status = ddp_fail(err, DDP_ERR_ARG, "a file name of at most %d characters%.*s",
                                 LOG_PATTERN_MAX, (int)list.len, list.len > 0 ? (const char *)list.data : "");
    buf_free(&list);
    return status;
}

/* A '%' at the end is refused by the same look: what stands behind it is the NUL, which is no token. A '/' at the
 * end would name a directory. */
ddp_status log_pattern_check(const char *pattern, struct ddp_err *err)
{
    const size_t len = strlen(pattern);
    bool ok = len > 0 && len <= LOG_PATTERN_MAX && pattern[len - 1] != '/';
    for (const char *p = pattern; ok && (p = strchr(p, '%')) != NULL; p += 2)
        ok = is_known(p[1]);
    return ok ? DDP_OK : refuse(err);
}

/* Two characters at a time, so that the letter behind "%%" is no token. */
static bool has_token(const char *pattern, char letter)
{
    for (const char *p = pattern; (p = strchr(p, '%')) != NULL; p += 2)
        if (p[1] == letter)
            return true;
    return false;
}

/* The rows of the table name a member of `names`; TEXT and NUMBER say how it is printed. */
static bool add_token(char letter, const struct log_names *names, struct buf *out)
{
#define TEXT(text)     buf_printf(out, "%s", text)
#define NUMBER(number) buf_printf(out, "%d", number)
    switch (letter) {
#define X(token, value, words) \
    case token:                \
        return value;
        LOG_PATTERN_TOKENS(X)
#undef X
    default:
        return true; /* refused by log_pattern_check */
    }
#undef TEXT
#undef NUMBER
}

bool log_pattern_name(const char *pattern, const struct log_names *names, struct buf *out)
{
    bool ok = true;
    const char *p = pattern;
    for (const char *token; ok && (token = strchr(p, '%')) != NULL; p = token + 2)
        ok = buf_append(out, p, (size_t)(token - p)) && add_token(token[1], names, out);
    ok = ok && buf_append(out, p, strlen(p));
    if (ok && names->attempt > 0 && !has_token(pattern, 'a'))
        ok = buf_printf(out, ".attempt_%d", names->attempt);
    return ok;
}

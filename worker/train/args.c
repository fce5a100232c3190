/* args.c -- see args.h.
 *
 * A default is a text that goes through the same parser as what the user types, so a default outside its own
 * limits cannot exist, and the help prints exactly what happens. The getopt of the C library would need the
 * options a second time, in a list of its own. */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Does `word` (without the dashes in front, up to '=') mean `name`? '-' and '_' are the same letter. */
static bool is_named(const char *word, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '\0' || (word[i] == '-' ? '_' : word[i]) != name[i])
            return false;
    }
    return name[len] == '\0';
}

static const struct arg_row *find(const struct arg_row *rows, size_t n, const char *word, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (is_named(word, len, rows[i].name))
            return &rows[i];
    }
    return NULL;
}

/* Decimal digits only, within the limits of the row. */
static ddp_status parse_count(const struct arg_row *row, const char *text, uint64_t *to, struct ddp_err *err)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    /* strtoull would take " 7", "+7" and "-7" */
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < row->min || value > row->max)
        return ddp_fail(err, DDP_ERR_ARG, "--%s '%s': expected a number from %" PRIu64 " to %" PRIu64,
                        row->name, text, row->min, row->max);
    *to = value;
    return DDP_OK;
}

/* Any spelling that strtod knows, but no infinity, no NaN, nothing below 0, and 0 only where the row says so. */
static ddp_status parse_real(const struct arg_row *row, const char *text, double *to, struct ddp_err *err)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0 || (value == 0 && row->kind == ARG_REAL))
        return ddp_fail(err, DDP_ERR_ARG, "--%s '%s': expected a number %s", row->name, text,
                        row->kind == ARG_REAL ? "above 0" : "from 0 on");
    *to = value;
    return DDP_OK;
}

/* One of a few names; the error lists them all, so that nobody has to look them up. */
static ddp_status parse_choice(const struct arg_row *row, const char *text, int *to, struct ddp_err *err)
{
    char all[256] = "";
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            *to = i;
            return DDP_OK;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? " or " : "", row->choices[i]);
    }
    return ddp_fail(err, DDP_ERR_ARG, "--%s '%s': expected %s", row->name, text, all);
}

/* Into the field that the row points to. The kind of the row and the type of the field must agree: args.h
 * lists them. */
static ddp_status store(const struct arg_row *row, const char *text, void *into, struct ddp_err *err)
{
    void *field = (char *)into + row->offset;
    switch (row->kind) {
    case ARG_FLAG:
        *(bool *)field = true;
        return DDP_OK;
    case ARG_COUNT:
        return parse_count(row, text, field, err);
    case ARG_REAL:
    case ARG_FROM_0:
        return parse_real(row, text, field, err);
    case ARG_TEXT:
        *(const char **)field = text;
        return DDP_OK;
    case ARG_CHOICE:
        return parse_choice(row, text, field, err);
    }
    return DDP_ERR_ARG;
}

/* One option at argv[*at]; moves *at behind it and its value. */
static ddp_status parse_one(const struct arg_row *rows, size_t n, void *into, char *const argv[], int *at,
                            struct ddp_err *err)
{
    const char *word = argv[(*at)++];
    if (strcmp(word, "-h") == 0)
        word = "--help";
    if (strncmp(word, "--", 2) != 0)
        return ddp_fail(err, DDP_ERR_ARG, "'%s' is not an option; --help lists all", word);
    size_t len = strcspn(word + 2, "=");
    const struct arg_row *row = find(rows, n, word + 2, len);
    const char *value = word[2 + len] == '=' ? word + 2 + len + 1 : NULL;
    if (row == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "there is no option '%.*s'; --help lists all", (int)len + 2, word);
    if (row->kind == ARG_FLAG && value != NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--%s takes no value, '%s' was given", row->name, value);
    /* argv ends with a NULL, so the word behind the last one can be looked at. */
    if (row->kind != ARG_FLAG && value == NULL && (value = argv[*at]) == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--%s needs a value: %s", row->name, row->arg);
    if (row->kind != ARG_FLAG && word[2 + len] != '=')
        (*at)++;
    return store(row, value, into, err);
}

/* Defaults first: what is typed comes later and so wins, and of two equal options the last. */
ddp_status args_parse(const struct arg_row *rows, size_t n, void *into, int argc, char *const argv[],
                      struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < n && status == DDP_OK; i++) {
        if (rows[i].fallback != NULL)
            status = store(&rows[i], rows[i].fallback, into, err);
    }
    for (int at = 1; at < argc && status == DDP_OK;)
        status = parse_one(rows, n, into, argv, &at, err);
    return status;
}

uint64_t args_fact(const struct arg_row *row, const void *from)
{
    const void *field = (const char *)from + row->offset;
    uint64_t fact = 0;
    switch (row->kind) {
    case ARG_FLAG:
        return *(const bool *)field;
    case ARG_COUNT:
        return *(const uint64_t *)field;
    case ARG_REAL:
    case ARG_FROM_0:
        memcpy(&fact, field, sizeof(fact));
        return fact;
    case ARG_TEXT:
        return *(const char *const *)field != NULL;
    case ARG_CHOICE:
        return (uint64_t) * (const int *)field;
    }
    return 0;
}

static const char *choice_word(const struct arg_row *row, uint64_t value)
{
    uint64_t i = 0;
    while (i < value && row->choices[i] != NULL)
        i++;
    return row->choices[i] != NULL ? row->choices[i] : "unknown";
}

/* What a row would refuse stands for an option that was not given. */
void args_fact_text(const struct arg_row *row, uint64_t fact, char to[32])
{
    const bool is_given = (row->kind == ARG_FLAG || row->kind == ARG_TEXT) && fact != 0;
    double real;
    memcpy(&real, &fact, sizeof(real));
    if (row->kind == ARG_CHOICE)
        snprintf(to, 32, "%s", choice_word(row, fact));
    else if (row->kind == ARG_COUNT && fact >= row->min)
        snprintf(to, 32, "%" PRIu64, fact);
    else if (row->kind == ARG_FROM_0 ? real >= 0 : row->kind == ARG_REAL && real > 0)
        snprintf(to, 32, "%.9g", real);
    else
        snprintf(to, 32, "%s", is_given ? "given" : "not given");
}

/* One line an option, in the order of the table. */
void args_help(FILE *to, const struct arg_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char left[48];
        snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].arg != NULL ? " " : "",
                 rows[i].arg != NULL ? rows[i].arg : "");
        fprintf(to, "  %-24s %s", left, rows[i].help);
        if (rows[i].fallback != NULL)
            fprintf(to, " (default %s)", rows[i].fallback);
        fputc('\n', to);
    }
}

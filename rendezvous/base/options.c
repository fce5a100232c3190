/* options.c -- see options.h.
 *
 * getopt_long is not used, because its table has neither help texts nor offsets of fields, and the function itself
 * prints errors. A default is a text that is parsed like a value from the user. So a default cannot exceed the limits
 * of its option, and the help always shows the default that is used. */
#include "base/options.h"

#include "ddp/context.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h> /* this header also defines __GLIBC__, if the C library is glibc */

enum {
    SHOWN_MAX = 200,  /* maximum number of bytes of a command-line word that an error shows */
    HELP_WIDTH = 80,  /* columns of the help */
    HELP_COLUMN = 26, /* column at which the help texts begin */
};

bool options_is_switch(const struct option_row *row)
{
    return row->value == NULL || row->value[0] == '[';
}

/* --- values --------------------------------------------------------------------------------------------- */

size_t options_word_count(const struct option_words *words)
{
    size_t n = words->n;
    while (words->n == 0 && words->list != NULL && words->list[n] != NULL)
        n++;
    return n;
}

int options_word(const struct option_words *words, const char *text)
{
    for (size_t i = 0; i < options_word_count(words); i++)
        if (words->list[i] != NULL && strcmp(text, words->list[i]) == 0)
            return (int)i;
    return -1;
}

/* Parse decimal digits only, because strtoull would accept " 7", "+7" and "-7". */
static bool read_count(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < min || value > max)
        return false;
    *out = value;
    return true;
}

/* Parse a real number. Infinity, NaN and negative numbers are invalid. So are blanks, a sign and hexadecimal digits at
 * the beginning, which strtod would accept. */
static bool read_real(const char *text, bool with_0, double *out)
{
    char *end;
    const double value = strtod(text, &end);
    if (text[strspn(text, "0123456789.eE+-")] != '\0' || text[0] == '+')
        return false;
    if (end == text || *end != '\0' || !isfinite(value) || value < 0 || (value == 0 && !with_0))
        return false;
    *out = value;
    return true;
}

bool options_size(const char *text, uint64_t most, uint64_t *out)
{
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    *out = 0;
    const unsigned long long n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    const unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    if (end == NULL || end[unit != NULL] != '\0')
        return false;
    *out = UINT64_MAX;
    if (errno != 0 || n > most >> shift)
        return false;
    *out = (uint64_t)n << shift;
    return true;
}

void options_list_add(char *list, size_t size, bool is_last, const char *fmt, ...)
{
    va_list ap;
    size_t used = strlen(list);
    if (used > 0)
        snprintf(list + used, size - used, "%s", is_last ? " or " : ", ");
    used = strlen(list);
    va_start(ap, fmt);
    vsnprintf(list + used, size - used, fmt, ap);
    va_end(ap);
}

/* List the words, with the note that follows them. The list may contain NULL entries, which are no words. */
static void list_words(const struct option_words *words, char *out, size_t size)
{
    const size_t n = options_word_count(words);
    size_t last = 0;
    for (size_t i = 0; i < n; i++)
        last = words->list[i] != NULL ? i : last;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        if (words->list[i] != NULL)
            options_list_add(out, size, i == last, "'%s'", words->list[i]);
    const size_t used = strlen(out);
    if (words->note != NULL)
        snprintf(out + used, size - used, "%s", words->note);
}

/* Describe the valid values for an error message. */
static void describe_value(const struct option_row *row, char *out, size_t size)
{
    switch (row->parse == NULL ? row->type : OPTION_WORD) {
    case OPTION_INT:
    case OPTION_COUNT:
        snprintf(out, size,
                 row->max == row->min + 1 ? "%" PRIu64 " or %" PRIu64
                                          : "a number from %" PRIu64 " to %" PRIu64,
                 row->min, row->max);
        break;
    case OPTION_REAL:
    case OPTION_REAL_0:
        snprintf(out, size, "a finite number %s", row->type == OPTION_REAL ? "above 0" : "of at least 0");
        break;
    case OPTION_FLAG:
    case OPTION_SET:
    case OPTION_TEXT:
        snprintf(out, size, "a text of %d to %d bytes", (int)row->min, OPTION_TEXT_MAX);
        break;
    case OPTION_WORD:
    case OPTION_NAME:
        if (row->words != NULL)
            list_words(row->words, out, size);
        break;
    }
}

/* Store the value in the field of its type. */
static bool store_by_type(const struct option_row *row, const char *text, void *field)
{
    uint64_t n = 0;
    int word;
    switch (row->type) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_SET:
        *(int *)field = (int)row->min;
        return true;
    case OPTION_INT:
        if (!read_count(text, row->min, row->max, &n))
            return false;
        *(int *)field = (int)n;
        return true;
    case OPTION_COUNT:
        return read_count(text, row->min, row->max, field);
    case OPTION_REAL:
    case OPTION_REAL_0:
        return read_real(text, row->type == OPTION_REAL_0, field);
    case OPTION_TEXT:
        *(const char **)field = text;
        return strlen(text) >= row->min && strlen(text) <= OPTION_TEXT_MAX;
    case OPTION_WORD:
    case OPTION_NAME:
        word = options_word(row->words, text);
        if (word >= 0 && row->type == OPTION_WORD)
            *(int *)field = word;
        else if (word >= 0)
            *(const char **)field = text;
        return word >= 0;
    }
    return false;
}

ddp_status options_store(const struct option_row *row, const char *text, const char *spelled, void *into,
                         struct ddp_err *err)
{
    struct ddp_err why = { 0 };
    void *field = (char *)into + row->at;
    ddp_status status = DDP_OK;
    if (row->parse != NULL)
        status = row->parse(text, field, &why);
    else if (!store_by_type(row, text, field))
        status = DDP_ERR_ARG;
    if (status == DDP_OK)
        return DDP_OK;
    if (why.msg[0] == '\0')
        describe_value(row, why.msg, sizeof(why.msg));
    if (status != DDP_ERR_ARG)
        return ddp_fail(err, status, "%s: %s", spelled, why.msg);
    const char between = spelled[0] == '-' && spelled[1] != '-' ? ' ' : '='; /* "-o foo" or "--op=foo" */
    return ddp_fail(err, status, "%s%c%.*s: expected %s", spelled, between, SHOWN_MAX, text, why.msg);
}

/* --- finding an option ---------------------------------------------------------------------------------- */

/* Check whether `name` begins with the `len` bytes of `typed`, where '-' and '_' are equal. */
static bool name_begins_with(const char *name, const char *typed, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || (typed[i] == '-' ? '_' : typed[i]) != (name[i] == '-' ? '_' : name[i]))
            return false;
    return true;
}

static const struct option_row *find_letter(const struct option_table *t, char letter)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].letter == letter)
            return &t->rows[i];
    return NULL;
}

static const struct option_row *find_name(const struct option_table *t, const char *typed, size_t len)
{
    for (size_t i = 0; i < t->n; i++)
        if (name_begins_with(t->rows[i].name, typed, len) && t->rows[i].name[len] == '\0')
            return &t->rows[i];
    return t->style != OPTIONS_ARGPARSE && len == 1 ? find_letter(t, typed[0]) : NULL;
}

/* Find the option that `typed` abbreviates. If several options match, the option whose row has the lowest `rank` wins.
 * *matches is the number of options with this `rank`. */
static const struct option_row *find_abbreviation(const struct option_table *t, const char *typed, size_t len,
                                                  int *matches)
{
    const struct option_row *found = NULL;
    *matches = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct option_row *row = &t->rows[i];
        if (!name_begins_with(row->name, typed, len) || (found != NULL && row->rank > found->rank))
            continue;
        *matches = found != NULL && row->rank == found->rank ? *matches + 1 : 1;
        found = row;
    }
    return found;
}

/* Return the error for an abbreviation that matches several options. The error text lists these options. */
static ddp_status ambiguous_option(const struct option_table *t, const char *word, size_t len,
                                   struct ddp_err *err)
{
    char list[512] = "";
    size_t last = 0;
    for (size_t i = 0; i < t->n; i++)
        last = name_begins_with(t->rows[i].name, word + 2, len) ? i : last;
    for (size_t i = 0; i <= last; i++)
        if (name_begins_with(t->rows[i].name, word + 2, len))
            options_list_add(list, sizeof(list), i == last, "--%s", t->rows[i].name);
    return ddp_fail(err, DDP_ERR_ARG, "%.*s: ambiguous option: may mean %s; write the whole name",
                    (int)len + 2, word, list);
}

/* Fail because the option does not exist. Show at most SHOWN_MAX bytes of the word. */
static ddp_status unknown_option(const char *word, struct ddp_err *err)
{
    const int len = (int)strcspn(word, "=");
    return ddp_fail(err, DDP_ERR_ARG, "%.*s: unknown option; see --help", len < SHOWN_MAX ? len : SHOWN_MAX,
                    word);
}

/* --- reading words -------------------------------------------------------------------------------------- */

/* Return the next word, or NULL at the end. */
static const char *next_word(const struct option_reader *r)
{
    return r->at != r->end ? *r->at : NULL;
}

/* Read the next word as the value. With OPTIONS_ARGPARSE, reject a word that looks like an option, because the value is
 * then missing. */
static ddp_status read_value(struct option_reader *r, const struct option_row *row, const char **text,
                             struct ddp_err *err)
{
    const char *word = next_word(r);
    const bool is_option =
        word != NULL && word[0] == '-' && word[1] != '\0' && !isdigit((unsigned char)word[1]);
    if (word != NULL && !(is_option && r->table->style == OPTIONS_ARGPARSE)) {
        r->at++;
        *text = word;
        return DDP_OK;
    }
    return ddp_fail(err, DDP_ERR_ARG, "%s: missing value; use %s%c%s", r->spelled, r->spelled,
                    r->table->style == OPTIONS_ARGPARSE ? '=' : ' ', row->value);
}

static ddp_status unwanted_value(const struct option_reader *r, const char *value, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG, "%s=%.*s: unexpected value: %s is a switch; leave out the value",
                    r->spelled, SHOWN_MAX, value, r->spelled);
}

/* Set the name that errors show for the option: with OPTIONS_PLAIN the word as typed, otherwise the full name. */
static void set_spelled(struct option_reader *r, const struct option_row *row, const char *word)
{
    if (r->table->style == OPTIONS_PLAIN)
        snprintf(r->spelled, sizeof(r->spelled), "%.*s", (int)strcspn(word, "="), word);
    else
        snprintf(r->spelled, sizeof(r->spelled), "--%s", row->name);
}

/* Read "--name", "--name=value", "-x" or "-x=value". With OPTIONS_ARGPARSE, a word with one dash may combine letters,
 * so read_letter reads such a word. r->at is already past `word`. */
static ddp_status read_word(struct option_reader *r, const char *word, const struct option_row **row,
                            const char **text, struct ddp_err *err)
{
    const size_t dashes = word[1] == '-' ? 2 : 1, len = strcspn(word + dashes, "=");
    const char *value = word[dashes + len] == '=' ? word + dashes + len + 1 : NULL;
    int matches = 1;
    *row = dashes == 2 ? find_name(r->table, word + 2, len)
           : len == 1  ? find_letter(r->table, word[1])
                       : NULL;
    if (*row == NULL && r->table->style == OPTIONS_ARGPARSE && len < OPTION_PET_MAX)
        *row = find_abbreviation(r->table, word + 2, len, &matches);
    if (matches > 1) {
        *row = NULL;
        return ambiguous_option(r->table, word, len, err);
    }
    if (*row == NULL)
        return unknown_option(word, err);
    set_spelled(r, *row, word);
    if (options_is_switch(*row) && value != NULL && (*row)->value == NULL)
        return unwanted_value(r, value, err);
    *text = value != NULL ? value : "1";
    return options_is_switch(*row) || value != NULL ? DDP_OK : read_value(r, *row, text, err);
}

/* Read one letter of a word such as "-qm" (two switches), "-r3", "-r=3" or "-r 3". */
static ddp_status read_letter(struct option_reader *r, const char *word, const struct option_row **row,
                              const char **text, struct ddp_err *err)
{
    const char letter = *r->letters++, *rest = r->letters;
    *row = find_letter(r->table, letter);
    if (*row == NULL)
        return word[2] == '\0' ? unknown_option(word, err)
                               : ddp_fail(err, DDP_ERR_ARG, "-%c: unknown option in '%.*s'; see --help",
                                          letter, SHOWN_MAX, word);
    set_spelled(r, *row, word);
    *text = "1";
    if (*rest == '\0' || !options_is_switch(*row))
        r->letters = NULL;
    if (options_is_switch(*row))
        return DDP_OK;
    *text = *rest == '=' ? rest + 1 : rest;
    return *rest != '\0' ? DDP_OK : read_value(r, *row, text, err);
}

/* Read the next option. A single "-" is not an option, because by convention it means standard input. After "--" there
 * are no options, even if the next word looks like an option. */
ddp_status options_next(struct option_reader *r, const struct option_row **row, const char **text,
                        struct ddp_err *err)
{
    *row = NULL;
    if (r->letters != NULL)
        return read_letter(r, r->at[-1], row, text, err);
    const char *word = next_word(r);
    if (word == NULL || word[0] != '-' || word[1] == '\0')
        return DDP_OK;
    r->at++;
    if (strcmp(word, "--") == 0)
        return DDP_OK;
    if (word[1] == '-' || r->table->style != OPTIONS_ARGPARSE)
        return read_word(r, word, row, text, err);
    r->letters = word + 1;
    return read_letter(r, word, row, text, err);
}

static ddp_status store_presets(const struct option_table *table, void *into, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < table->n && status == DDP_OK; i++)
        if (table->rows[i].preset != NULL)
            status = options_store(&table->rows[i], table->rows[i].preset, table->rows[i].name, into, err);
    return status;
}

ddp_status options_parse(const struct option_table *table, int argc, char *const argv[], void *into,
                         int *rest, struct ddp_err *err)
{
    struct option_reader reader = { .table = table, .at = argv + (argc > 0), .end = argv + argc };
    const struct option_row *row = NULL;
    const char *text = NULL;
    ddp_status status = store_presets(table, into, err);
    do {
        if (status == DDP_OK)
            status = options_next(&reader, &row, &text, err);
        if (status == DDP_OK && row != NULL)
            status = options_store(row, text, reader.spelled, into, err);
    } while (status == DDP_OK && row != NULL);
    if (rest != NULL)
        *rest = (int)(reader.at - argv);
    if (status != DDP_OK || rest != NULL || next_word(&reader) == NULL)
        return status;
    return ddp_fail(err, DDP_ERR_ARG, "'%.*s': unexpected argument: only options are valid; see --help",
                    SHOWN_MAX, *reader.at);
}

/* --- texts ---------------------------------------------------------------------------------------------- */

void options_pet_name(char out[OPTION_PET_MAX], const struct option_row *row)
{
    snprintf(out, OPTION_PET_MAX, "PET_%s", row->name);
    for (char *p = out; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
}

bool options_wrap(struct buf *out, const char *text, size_t at, size_t column)
{
    bool ok = true, first = true;
    while (*text != '\0') {
        const size_t len = strcspn(text, " ");
        if (!first && at + 1 + len > HELP_WIDTH) {
            ok = ok && buf_printf(out, "\n%*s", (int)column, "");
            at = column;
            first = true;
        }
        ok = ok && buf_printf(out, "%s%.*s", first ? "" : " ", (int)len, text);
        at += len + (first ? 0 : 1);
        first = false;
        text += len + strspn(text + len, " ");
    }
    return ok && buf_printf(out, "\n");
}

/* Return the separator between name and value: "=" or " ", or "" for a switch. */
static const char *before_value(const struct option_table *table, const struct option_row *row)
{
    if (options_is_switch(row))
        return "";
    return table->style == OPTIONS_ARGPARSE ? "=" : " ";
}

/* Append one row of the help. The text begins at column HELP_COLUMN, or on the next line if the name is long. */
bool options_help_row(const struct option_table *table, const struct option_row *row, const char *preset,
                      struct buf *out)
{
    char left[80], letter[8] = "", text[1024];
    if (row->help == NULL)
        return true;
    if (row->letter != 0)
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    const int len = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, row->name, before_value(table, row),
                             row->value != NULL ? row->value : "");
    snprintf(text, sizeof(text), "%s%s%s%s", row->help, preset != NULL ? " (default: " : "",
             preset != NULL ? preset : "", preset != NULL ? ")" : "");
    const bool ok = len + 2 > HELP_COLUMN ? buf_printf(out, "%s\n%*s", left, HELP_COLUMN, "")
                                          : buf_printf(out, "%-*s", HELP_COLUMN, left);
    return ok && options_wrap(out, text, HELP_COLUMN, HELP_COLUMN);
}

bool options_help(const struct option_table *table, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < table->n; i++)
        ok = options_help_row(table, &table->rows[i], table->rows[i].preset, out);
    return ok;
}

/* Append a text with the escapes of roff. Write a dash as \-, because roff prints a plain dash as a hyphen, which a
 * shell does not accept. Write \& before a dot or a quote at the beginning, because roff would otherwise treat the line
 * as a command. */
bool options_roff(struct buf *out, const char *text)
{
    bool ok = text[0] != '.' && text[0] != '\'' ? true : buf_append(out, "\\&", 2);
    for (; *text != '\0'; text++) {
        if (*text == '-')
            ok = ok && buf_append(out, "\\-", 2);
        else if (*text == '\\')
            ok = ok && buf_append(out, "\\e", 2);
        else
            ok = ok && buf_append(out, text, 1);
    }
    return ok;
}

/* Append .TP, then names in bold and the value in italics, as man-pages(7) requires. */
bool options_man_row(const struct option_table *table, const struct option_row *row, struct buf *out)
{
    char pet[OPTION_PET_MAX];
    if (row->help == NULL)
        return true;
    bool ok = buf_printf(out, ".TP\n");
    if (row->letter != 0)
        ok = ok && buf_printf(out, "\\fB\\-%c\\fR, ", row->letter);
    ok = ok && buf_printf(out, "\\fB\\-\\-") && options_roff(out, row->name) && buf_printf(out, "\\fR");
    if (row->value != NULL)
        ok = ok && buf_printf(out, "%s\\fI", before_value(table, row)) && options_roff(out, row->value) &&
             buf_printf(out, "\\fR");
    ok = ok && buf_printf(out, "\n") && options_roff(out, row->help) && buf_printf(out, ".");
    if (row->preset != NULL)
        ok = ok && buf_printf(out, " Default: ") && options_roff(out, row->preset) && buf_printf(out, ".");
    options_pet_name(pet, row);
    if (row->in_environment)
        ok = ok && buf_printf(out, " Environment: %s.", pet);
    return ok && buf_printf(out, "\n");
}

bool options_man(const struct option_table *table, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < table->n; i++)
        ok = options_man_row(table, &table->rows[i], out);
    return ok;
}

/* --- version ------------------------------------------------------------------------------------------------ */

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

/* The name and version of the C library whose headers were used for the build. The program runs with this version and
 * all newer versions. */
#if defined(__GLIBC__)
#define LIBC "glibc " TEXT(__GLIBC__) "." TEXT(__GLIBC_MINOR__)
#else
#define LIBC "musl" /* musl defines no macro for itself; ddprun supports only glibc and musl */
#endif

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#elif defined(__riscv)
#define ARCHITECTURE "riscv64"
#elif defined(__powerpc64__)
#define ARCHITECTURE "ppc64le"
#else
#define ARCHITECTURE "unknown"
#endif

bool version_print(struct buf *out, const char *program, const char *commit, bool json)
{
    if (json)
        return buf_printf(out,
                          "{\"name\":\"%s\",\"version\":\"" DDP_VERSION "\",\"commit\":\"%s\","
                          "\"architecture\":\"" ARCHITECTURE "\",\"libc\":\"" LIBC "\"}\n",
                          program, commit);
    return buf_printf(out, "%s " DDP_VERSION " (commit %s, " ARCHITECTURE ", " LIBC ")\n", program, commit);
}

/* Return the length of "0.1" in "0.1.7". */
static size_t series_length(const char *version)
{
    const char *dot = strchr(version, '.');
    return dot == NULL ? strlen(version) : (size_t)(dot - version) + 1 + strspn(dot + 1, "0123456789");
}

bool version_matches(const char *a, const char *b)
{
    const size_t len = series_length(a);
    return series_length(b) == len && memcmp(a, b, len) == 0;
}

/* findings.c -- see findings.h.
 *
 * A template is filled in when a finding is made, so a struct finding has only text. A placeholder without a value
 * stays in the text, so that a typing error is visible. */
#include "diagnosis/findings.h"

#include <stdarg.h>
#include <stdio.h>

/* The rows of findings.h. */
static const struct row {
    const char *code;
    enum finding_grade grade;
    const char *sentence, *advice, *example, *detection;
} rows[FINDING_CODES] = {
#define X(code, grade, ...) [FINDING_##code] = { #code, FINDING_##grade##_GRADE, __VA_ARGS__ },
    FINDINGS(X)
#undef X
};

static const char *const grade_names[] = {
#define X(name, word) [FINDING_##name##_GRADE] = word,
    FINDING_GRADES(X)
#undef X
};

const char *finding_code_name(enum finding_code code)
{
    return rows[code].code;
}

const char *finding_grade_name(enum finding_code code)
{
    return grade_names[rows[code].grade];
}

bool finding_is_trouble(enum finding_code code)
{
    return rows[code].grade != FINDING_NOTE_GRADE;
}

bool finding_is_hang(enum finding_code code)
{
    switch (code) {
#define X(code, ...) case FINDING_##code:
        FINDINGS_OF_HANGS(X)
#undef X
        return true;
    default:
        return false;
    }
}

bool finding_is_count(enum finding_code code)
{
    return code == FINDING_NODE_MISSING || code == FINDING_TOO_FEW_NODES || code == FINDING_TOO_FEW_LEFT;
}

/* Return FINDING_NONE for an unknown name, which a peer may send. */
enum finding_code finding_by_name(const char *name)
{
    int i = FINDING_CODES - 1;
    while (i > FINDING_NONE && strcmp(rows[i].code, name) != 0)
        i--;
    return (enum finding_code)i;
}

const char *finding_sentence(enum finding_code code)
{
    return rows[code].sentence;
}

const char *finding_advice(enum finding_code code)
{
    return rows[code].advice;
}

const char *finding_detection(enum finding_code code)
{
    return rows[code].detection;
}

const char *finding_example(enum finding_code code)
{
    return rows[code].example;
}

/* --- filling in ----------------------------------------------------------------------------------------- */

/* Return the word of the placeholder "${word}" at `text`, and set *skip to the length of the placeholder. If no
 * placeholder is at `text`, return an empty word and set *skip to 1. */
static struct slice word_at(const char *text, size_t *skip)
{
    const char *end = text[0] == '$' && text[1] == '{' ? strchr(text, '}') : NULL;
    *skip = end != NULL ? (size_t)(end + 1 - text) : 1;
    return end != NULL ? slice_of(text + 2, (size_t)(end - text) - 2) : slice_of(NULL, 0);
}

/* Append the template. A '$' that begins no placeholder is appended unchanged. */
bool finding_fill(struct buf *out, const char *text, finding_word put, void *user)
{
    bool ok = true;
    while (ok && *text != '\0') {
        size_t skip = strcspn(text, "$");
        ok = buf_append(out, text, skip);
        text += skip;
        if (*text == '\0')
            break;
        struct slice word = word_at(text, &skip);
        ok = ok && (word.len > 0 ? put(user, word, out) : buf_append(out, text, skip));
        text += skip;
    }
    return ok;
}

enum { WORDS_MAX = 16 };

struct words {
    int n;
    struct {
        const char *word, *text;
    } of[WORDS_MAX];
};

static bool put_word(void *user, struct slice word, struct buf *out)
{
    const struct words *words = user;
    for (int i = 0; i < words->n; i++)
        if (slice_equal(word, slice_str(words->of[i].word)))
            return buf_printf(out, "%s", words->of[i].text);
    return buf_printf(out, "${%.*s}", (int)word.len, (const char *)word.data);
}

/* Fill in a text. If memory is short the text is empty, so that at least the code is reported. */
static void fill_text(char text[FINDING_TEXT_MAX], const char *template, struct words *words)
{
    struct buf out = { 0 };
    const bool ok = finding_fill(&out, template, put_word, words);
    const bool cut = out.len >= FINDING_TEXT_MAX;
    const int shown = cut ? FINDING_TEXT_MAX - 4 : (int)out.len;
    snprintf(text, FINDING_TEXT_MAX, "%.*s%s", ok ? shown : 0, ok ? (const char *)out.data : "",
             cut ? "..." : "");
    buf_free(&out);
}

/* Fill in sentence and advice. Values are passed with the names of their placeholders, because the order of the
 * placeholders differs between rows. `subject` is also copied into the finding. */
void finding_make(struct finding *f, enum finding_code code, const char *subject, ...)
{
    struct words words = { .n = 1, .of = { { "subject", f->subject } } };
    f->code = code;
    f->more = 0;
    snprintf(f->subject, sizeof(f->subject), "%s", subject);
    va_list args;
    va_start(args, subject);
    const char *word;
    while (words.n < WORDS_MAX && (word = va_arg(args, const char *)) != NULL) {
        words.of[words.n].word = word;
        words.of[words.n++].text = va_arg(args, const char *);
    }
    va_end(args);
    fill_text(f->sentence, rows[code].sentence, &words);
    fill_text(f->advice, rows[code].advice, &words);
}

void finding_format(const struct finding *f, char *text, size_t size)
{
    snprintf(text, size, "%s\n  try      %s\n  finding  %s", f->sentence, f->advice, rows[f->code].code);
}

/* Return the rest of the sentence, for lists that have a column for the subject. */
const char *finding_predicate(const struct finding *f)
{
    const size_t len = strlen(f->subject);
    const bool in_front =
        strncmp(f->sentence, f->subject, len) == 0 && strncmp(f->sentence + len, ": ", 2) == 0;
    return in_front ? f->sentence + len + 2 : f->sentence;
}

/* --- for readers ---------------------------------------------------------------------------------------- */

/* Append "HOST" for "${host}". */
static bool put_placeholder(void *user, struct slice word, struct buf *out)
{
    (void)user;
    const char *p = word.data;
    bool ok = true;
    for (size_t i = 0; ok && i < word.len; i++)
        ok = buf_printf(out, "%c", p[i] >= 'a' && p[i] <= 'z' ? p[i] - 'a' + 'A' : p[i]);
    return ok;
}

/* Append a template for the manual page and `ddprun explain`. */
bool finding_put_readable(struct buf *out, const char *text)
{
    return finding_fill(out, text, put_placeholder, NULL);
}

/* Append text for troff: escape a dot or a quote at the beginning of a line, and write each hyphen as a minus. */
static bool put_troff(struct buf *out, const char *text)
{
    struct buf plain = { 0 };
    bool ok = finding_put_readable(&plain, text);
    if (ok && plain.len > 0 && (plain.data[0] == '.' || plain.data[0] == '\''))
        ok = buf_append(out, "\\&", 2);
    for (size_t i = 0; ok && i < plain.len; i++)
        ok = plain.data[i] == '-'    ? buf_append(out, "\\-", 2)
             : plain.data[i] == '\\' ? buf_append(out, "\\\\", 2)
                                     : buf_append(out, plain.data + i, 1);
    buf_free(&plain);
    return ok;
}

bool findings_print_man(struct buf *out)
{
    bool ok = true;
    for (int i = FINDING_NONE + 1; ok && i < FINDING_CODES; i++)
        ok = buf_printf(out, ".TP\n.B %s\n", rows[i].code) && put_troff(out, rows[i].example) &&
             buf_printf(out, ".\n.br\n") && put_troff(out, rows[i].detection) &&
             buf_printf(out, "\n.br\nRemedy: ") && put_troff(out, rows[i].advice) && buf_printf(out, ".\n");
    return ok;
}

/* findings.c -- fills in the rows of findings.h, and prints them for `ddprun explain` and the manual page.
 *
 * A template is filled in when a finding is made, so a struct finding has only text. A placeholder without a value
 * stays in the text, so that the mistake is visible. */
#include "diagnosis/findings.h"

#include "base/exit_codes.h"
#include "base/options.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_MAX = 40 }; /* size of a buffer for the name of a code, with the NUL */

/* The rows of findings.h, indexed by code. Row 0 (FINDING_NONE) has no texts. */
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

bool finding_names_hang(enum finding_code code, enum finding_code kept)
{
    /* The two lists in findings.h generate the cases, so a new row of a list needs no change here. */
    switch (code) {
#define X(code, ...) case FINDING_##code:
        FINDINGS_OF_HANGS(X)
        return true;
        HANG_SYMPTOMS(X)
#undef X
        return kept == FINDING_NONE || kept == code;
    default:
        return false;
    }
}

/* Return true for a finding that counts missing nodes. If only the count changes, the finding is not reported
 * again. */
bool finding_is_count(enum finding_code code)
{
    return code == FINDING_NODE_MISSING || code == FINDING_TOO_FEW_NODES || code == FINDING_TOO_FEW_LEFT;
}

/* Return the code with this name. Return FINDING_NONE for an unknown name, which a peer may send. */
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

static const char *finding_detection(enum finding_code code)
{
    return rows[code].detection;
}

static const char *finding_example(enum finding_code code)
{
    return rows[code].example;
}

/* --- filling in ----------------------------------------------------------------------------------------- */

/* A template has placeholders as in a shell: "${subject} is in ${place}". */

/* Return the word of the placeholder "${word}" at `text`, borrowed from `text`, and set *skip to the length of the
 * placeholder. Without a placeholder, return an empty word and set *skip to 1. */
static struct slice word_at(const char *text, size_t *skip)
{
    const char *end = text[0] == '$' && text[1] == '{' ? strchr(text, '}') : NULL;
    *skip = end != NULL ? (size_t)(end + 1 - text) : 1;
    return end != NULL ? slice_of(text + 2, (size_t)(end - text) - 2) : slice_of(NULL, 0);
}

/* Append the template `text`, with a value in place of each placeholder. A '$' that begins no placeholder is appended
 * unchanged. */
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

/* Largest number of placeholders of a finding, including ${subject}. finding_make ignores further placeholders. */
enum { WORDS_MAX = 20 };

/* The values of the placeholders. All texts are borrowed from the caller of finding_make. */
struct words {
    int n;
    struct {
        const char *word, *text;
    } of[WORDS_MAX];
};

/* Append the value of a placeholder. The search is linear, because a finding has few placeholders. */
static bool append_word(void *user, struct slice word, struct buf *out)
{
    const struct words *words = user;
    for (int i = 0; i < words->n; i++)
        if (slice_equal(word, slice_str(words->of[i].word)))
            return buf_printf(out, "%s", words->of[i].text);
    return buf_printf(out, "${%.*s}", (int)word.len, (const char *)word.data);
}

/* Fill in a text, and cut it if it is too long. If memory is short, the text is empty, and only the code is
 * reported. */
static void fill_text(char text[FINDING_TEXT_MAX], const char *template, struct words *words)
{
    struct buf out = { 0 };
    const bool ok = finding_fill(&out, template, append_word, words);
    const bool cut = out.len >= FINDING_TEXT_MAX;
    const int shown = cut ? FINDING_TEXT_MAX - 4 : (int)out.len;
    snprintf(text, FINDING_TEXT_MAX, "%.*s%s", ok ? shown : 0, ok ? (const char *)out.data : "",
             cut ? "..." : "");
    buf_free(&out);
}

/* Fill in the sentence and the advice. Each argument follows the name of its placeholder, because the rows have their
 * placeholders in different orders. */
void finding_make(struct finding *f, enum finding_code code, const char *subject, ...)
{
    struct words words = { .n = 1, .of = { { "subject", f->subject } } };
    f->code = code;
    f->more = 0;
    /* Copy the subject first. The copy may be cut, and the texts must contain the same cut subject. */
    snprintf(f->subject, sizeof(f->subject), "%s", subject);
    va_list args;
    va_start(args, subject);
    const char *word, *advice = rows[code].advice;
    while (words.n < WORDS_MAX && (word = va_arg(args, const char *)) != NULL) {
        words.of[words.n].word = word;
        words.of[words.n].text = va_arg(args, const char *);
        if (strcmp(word, "advice") == 0)
            advice = words.of[words.n].text;
        words.n++;
    }
    va_end(args);
    fill_text(f->sentence, rows[code].sentence, &words);
    fill_text(f->advice, advice, &words);
}

const char *finding_gpu_name(char out[FINDING_SUBJECT_MAX], const char *gpu, const char *host)
{
    const bool is_number = gpu[strspn(gpu, "0123456789")] == '\0';
    snprintf(out, FINDING_SUBJECT_MAX, "%s%.40s of %.100s", is_number ? "GPU " : "", gpu, host);
    return out;
}

/* Make the finding, and replace its control characters. The text `users` is from another node and may contain such
 * characters, and the finding is printed on terminals. */
bool finding_gpu_users(struct finding *f, const char *gpu, const char *host, int rank, const char *users)
{
    char subject[FINDING_SUBJECT_MAX], ranks[32];
    if (users[0] == '\0')
        return false;
    snprintf(ranks, sizeof(ranks), " (rank %d)", rank);
    finding_make(f, FINDING_GPU_BUSY, finding_gpu_name(subject, gpu, host), "ranks", ranks, "process", users,
                 NULL);
    text_disarm(f->subject, strlen(f->subject), '\0');
    text_disarm(f->sentence, strlen(f->sentence), '\0');
    return true;
}

void finding_format(const struct finding *f, char *text, size_t size)
{
    snprintf(text, size, "%s\n  try      %s" FINDING_CODE_MARK "%s", f->sentence, f->advice,
             rows[f->code].code);
}

const char *finding_named_in(const char *text)
{
    char name[CODE_MAX];
    const char *mark = strstr(text, FINDING_CODE_MARK);
    if (mark == NULL)
        return NULL;
    mark += strlen(FINDING_CODE_MARK);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(mark, "\n"), mark);
    return finding_code_name(finding_by_name(name));
}

/* Return the sentence without its subject, for lists that have a column for the subject. */
const char *finding_predicate(const struct finding *f)
{
    const size_t len = strlen(f->subject);
    const bool in_front =
        strncmp(f->sentence, f->subject, len) == 0 && strncmp(f->sentence + len, ": ", 2) == 0;
    return in_front ? f->sentence + len + 2 : f->sentence;
}

/* --- for readers ---------------------------------------------------------------------------------------- */

/* Append the name of the placeholder in capital letters, such as "PORT" for "${port}". For "${subject}", append "HOST",
 * because an advice contains ${subject} only if the subject is a host. */
static bool append_placeholder(void *user, struct slice word, struct buf *out)
{
    (void)user;
    if (slice_equal(word, slice_str("subject")))
        word = slice_str("host");
    const char *p = word.data;
    bool ok = true;
    for (size_t i = 0; ok && i < word.len; i++)
        ok = buf_printf(out, "%c", p[i] >= 'a' && p[i] <= 'z' ? p[i] - 'a' + 'A' : p[i]);
    return ok;
}

/* Append a template in the form for the manual page and `ddprun explain`: with "PORT" in place of "${port}". */
static bool finding_append_readable(struct buf *out, const char *text)
{
    return finding_fill(out, text, append_placeholder, NULL);
}

/* Append text for troff (groff_char(7)). Escape a dot or a quote at the beginning of a line. Write each hyphen as a
 * minus. */
static bool append_troff(struct buf *out, const char *text)
{
    struct buf plain = { 0 };
    bool ok = finding_append_readable(&plain, text);
    if (ok && plain.len > 0 && (plain.data[0] == '.' || plain.data[0] == '\''))
        ok = buf_append(out, "\\&", 2);
    for (size_t i = 0; ok && i < plain.len; i++)
        ok = plain.data[i] == '-'    ? buf_append(out, "\\-", 2)
             : plain.data[i] == '\\' ? buf_append(out, "\\\\", 2)
                                     : buf_append(out, plain.data + i, 1);
    buf_free(&plain);
    return ok;
}

/* Print each finding with its example. A sentence without the values of its placeholders would be hard to read. A text
 * of another program in the example may already end with a full stop. */
bool findings_print_man(struct buf *out)
{
    bool ok = true;
    for (int i = FINDING_NONE + 1; ok && i < FINDING_CODES; i++)
        ok = buf_printf(out, ".TP\n.B %s\n", rows[i].code) && append_troff(out, rows[i].example) &&
             buf_printf(out, "%s\n.br\n", out->data[out->len - 1] == '.' ? "" : ".") &&
             append_troff(out, rows[i].detection) && buf_printf(out, "\n.br\nRemedy: ") &&
             append_troff(out, rows[i].advice) && buf_printf(out, ".\n");
    return ok;
}

/* --- explain: one code in full, or a list of all ---------------------------------------------------------- */

/* The functions below print the tables of findings.h and exit_codes.h. If `json` is not NULL, the functions add members
 * to `json`. Otherwise the functions append text to `out`. */

enum { EXIT_STATUS_MAX = 255 }; /* largest exit code of a process */

/* The rows of exit_codes.h. EXIT_CODE_SIGNAL describes every exit code 128 + n, for a signal n. */
struct exit_row {
    int code;
    const char *meaning, *remedy, *detection, *example;
};
static const struct exit_row exit_rows[] = {
#define X(code, name, ...) { code, __VA_ARGS__ },
    EXIT_CODE_LIST(X)
#undef X
};
enum { EXIT_ROWS = sizeof(exit_rows) / sizeof(exit_rows[0]) };

static const struct {
    int signal;
    const char *causes, *remedy;
} signal_rows[] = {
#define X(...) { __VA_ARGS__ },
    EXIT_SIGNAL_LIST(X)
#undef X
};

/* Append a heading and an indented text, wrapped to lines, to `out`. If `json` is not NULL, add the text to `json` as
 * the member `name` instead. */
static bool append_paragraph(struct buf *out, cJSON *json, const char *name, const char *heading,
                             const char *text)
{
    enum { INDENT = 4 };
    struct buf plain = { 0 };
    bool ok = finding_append_readable(&plain, text) && buf_append(&plain, "", 1);
    if (ok && json != NULL)
        ok = cJSON_AddStringToObject(json, name, (const char *)plain.data) != NULL;
    else if (ok)
        ok = buf_printf(out, "\n%s\n%*s", heading, INDENT, "") &&
             options_wrap(out, (const char *)plain.data, INDENT, INDENT);
    buf_free(&plain);
    return ok;
}

/* Append `text` as two sections: how the problem is detected, and the typical causes, if `text` has any. Remove the
 * full stop after the causes. */
static bool append_detection(struct buf *out, cJSON *json, const char *heading, const char *text)
{
    const char *causes = strstr(text, " Typical cause");
    char *part = strdup(text);
    bool ok = part != NULL;
    if (ok && causes != NULL)
        part[causes - text] = '\0';
    ok = ok && append_paragraph(out, json, "detection", heading, part);
    if (ok && causes != NULL) {
        snprintf(part, strlen(text) + 1, "%s", strstr(causes, ": ") + 2);
        part[strlen(part) - 1] = '\0';
        ok = append_paragraph(out, json, "causes", "Typical causes", part);
    }
    free(part);
    return ok;
}

static bool explain_finding(enum finding_code code, struct buf *out, cJSON *json)
{
    const char *name = finding_code_name(code), *grade = finding_grade_name(code);
    const bool ok = json == NULL ? buf_printf(out, "%s (%s)\n", name, grade)
                                 : cJSON_AddStringToObject(json, "code", name) != NULL &&
                                       cJSON_AddStringToObject(json, "grade", grade) != NULL;
    return ok && append_paragraph(out, json, "example", "Example", finding_example(code)) &&
           append_detection(out, json, "Meaning and detection", finding_detection(code)) &&
           append_paragraph(out, json, "advice", "Remedy", finding_advice(code));
}

/* Return the row of an exit code. A code without a row can only be the exit code of a worker. For such a code, return a
 * row with the general texts about exit codes of workers. */
static struct exit_row find_exit_row(int code)
{
    for (int i = 0; i < EXIT_ROWS; i++)
        if (exit_rows[i].code == code)
            return exit_rows[i];
    return (struct exit_row){ .code = code,
                              .meaning = EXIT_CODE_OTHER_MEANING,
                              .remedy = EXIT_CODE_OTHER_REMEDY,
                              .detection = EXIT_CODE_OTHER_DETECTION };
}

/* Replace the causes and the remedy of `row` by the texts in signal_rows, if signal_rows has a row for this signal.
 * `detection` is the caller's buffer for the changed text of row->detection. */
enum { DETECTION_MAX = 512 };
static void specify_signal(struct exit_row *row, int signal, char detection[DETECTION_MAX])
{
    for (size_t i = 0; i < sizeof(signal_rows) / sizeof(signal_rows[0]); i++)
        if (signal_rows[i].signal == signal) {
            const int len = (int)(strstr(row->detection, " Typical cause") - row->detection);
            snprintf(detection, DETECTION_MAX, "%.*s Typical causes: %s.", len, row->detection,
                     signal_rows[i].causes);
            row->detection = detection;
            row->remedy = signal_rows[i].remedy;
        }
}

/* Append the texts about an exit code. If the code belongs to a signal or has no example in exit_rows, format an
 * example with `code`. */
static bool explain_exit_code(int code, struct buf *out, cJSON *json)
{
    const int number = code - EXIT_CODE_SIGNAL;
    const char *signal = number > 0 ? signal_abbrev(number) : NULL;
    char end[48], example[128], detection[DETECTION_MAX];
    struct exit_row row = find_exit_row(signal != NULL ? EXIT_CODE_SIGNAL : code);
    snprintf(end, sizeof(end), "exit %d", code);
    if (signal != NULL) {
        snprintf(end, sizeof(end), "killed by SIG%s (signal %d)", signal, number);
        specify_signal(&row, number, detection);
    }
    snprintf(example, sizeof(example), "rank 3 on n1 failed first: %s, 12.3 s after its start", end);
    bool ok = json == NULL ? buf_printf(out, "exit code %d", code)
                           : cJSON_AddNumberToObject(json, "exit_code", code) != NULL;
    if (signal != NULL && json == NULL)
        ok = ok && buf_printf(out, " = 128 + %d (SIG%s)", number, signal);
    return ok && (json != NULL || buf_printf(out, "\n")) &&
           append_paragraph(out, json, "example", "Example",
                            signal != NULL || row.example == NULL ? example : row.example) &&
           append_paragraph(out, json, "meaning", "Meaning", row.meaning) &&
           append_detection(out, json, "Detection", row.detection) &&
           append_paragraph(out, json, "advice", "Remedy", row.remedy);
}

/* Append `item` to the array `name` of `json`. This function takes ownership of `item`. */
static void add_item(cJSON *json, const char *name, cJSON *item)
{
    cJSON *list = cJSON_GetObjectItem(json, name);
    json_append(list != NULL ? list : cJSON_AddArrayToObject(json, name), item);
}

/* Append a line for each finding whose name contains `part`, and add their number to *n. A line shows the example
 * sentence, by which a user recognizes the message. */
static bool list_findings(const char *part, struct buf *out, cJSON *json, int *n)
{
    bool ok = true;
    for (int code = FINDING_NONE + 1; ok && code < FINDING_CODES; code++) {
        const char *name = finding_code_name((enum finding_code)code);
        if (strstr(name, part) == NULL)
            continue;
        cJSON *item = json != NULL ? cJSON_CreateObject() : NULL;
        ok = json == NULL ? buf_printf(out, "%-24s %s\n", name, finding_example((enum finding_code)code))
                          : item != NULL && explain_finding((enum finding_code)code, out, item);
        if (json != NULL)
            add_item(json, "findings", item);
        ++*n;
    }
    return ok;
}

/* Append one line for each finding with its example. Then append one line for each exit code with its meaning. */
static bool list_all(struct buf *out, cJSON *json)
{
    int n = 0;
    bool ok = (json != NULL || buf_printf(out, "findings:\n")) && list_findings("", out, json, &n) &&
              (json != NULL || buf_printf(out, "\nexit codes:\n"));
    for (int i = 0; ok && i < EXIT_ROWS; i++) {
        cJSON *item = json != NULL ? cJSON_CreateObject() : NULL;
        ok = json == NULL ? buf_printf(out, "%-24d %s\n", exit_rows[i].code, exit_rows[i].meaning)
                          : item != NULL && explain_exit_code(exit_rows[i].code, out, item);
        if (json != NULL)
            add_item(json, "exit_codes", item);
    }
    if (json != NULL)
        return ok && cJSON_AddStringToObject(json, "other_exit_codes", EXIT_CODE_OTHER_MEANING) != NULL;
    return ok && buf_printf(out, "%-24s %s\n", "other", EXIT_CODE_OTHER_MEANING) &&
           buf_printf(out, "\n'ddprun explain CODE' prints the meaning, causes and remedy of a code, or of a "
                           "signal such as SIGKILL.\n");
}

/* Return the exit code of a worker that the signal `name` has ended: 137 for "SIGKILL". Return 0 if `name` is not the
 * name of a signal. */
static int exit_code_of_signal(const char *name)
{
    for (int i = 1; strncmp(name, "SIG", 3) == 0 && i <= EXIT_STATUS_MAX - EXIT_CODE_SIGNAL; i++)
        if (signal_abbrev(i) != NULL && strcmp(name + 3, signal_abbrev(i)) == 0)
            return EXIT_CODE_SIGNAL + i;
    return 0;
}

/* Append the rows that match `code` to `out` or `json`. In `code`, a '-' may replace a '_', as in option names. If no
 * row matches, set *is_known to false. For example, no row matches the number 256, because exit codes end at 255.
 * Return false if memory is short. */
static bool explain_rows(const char *code, struct buf *out, cJSON *json, bool *is_known)
{
    char name[CODE_MAX], *end;
    int n = 0;
    *is_known = true;
    if (code == NULL)
        return list_all(out, json);
    const long number = strtol(code, &end, 10);
    if (isdigit((unsigned char)*code) && *end == '\0' && number <= EXIT_STATUS_MAX)
        return explain_exit_code((int)number, out, json);
    snprintf(name, sizeof(name), "%s", code);
    for (char *p = name; *p != '\0'; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    const int of_signal = exit_code_of_signal(name);
    if (of_signal > 0)
        return explain_exit_code(of_signal, out, json);
    const enum finding_code finding = finding_by_name(name);
    if (finding != FINDING_NONE)
        return explain_finding(finding, out, json);
    const bool ok = *name == '\0' || list_findings(name, out, json, &n);
    *is_known = n > 0;
    return ok;
}

ddp_status explain_code(const char *code, bool as_json, struct buf *out, struct ddp_err *err)
{
    bool is_known = false;
    cJSON *json = as_json ? cJSON_CreateObject() : NULL;
    bool ok = (json != NULL || !as_json) && explain_rows(code, out, json, &is_known);
    if (ok && json != NULL && is_known) {
        char *text = cJSON_PrintUnformatted(json);
        ok = text != NULL && buf_printf(out, "%s\n", text);
        cJSON_free(text);
    }
    cJSON_Delete(json);
    if (ok && !is_known)
        return ddp_fail(err, DDP_ERR_ARG, "explain: '%.60s': no such code; 'ddprun explain' lists all codes",
                        code);
    return ok ? DDP_OK : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
}

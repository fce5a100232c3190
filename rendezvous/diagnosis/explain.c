/* explain.c -- see findings.h. All texts are in the tables of findings.h and exit_codes.h. */

#include "base/exit_codes.h"
#include "base/options.h"
#include "base/text.h"
#include "diagnosis/findings.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_MAX = 40, EXIT_STATUS_MAX = 255 };

static const struct {
    int code;
    const char *meaning, *remedy;
} exit_rows[] = {
#define X(code, name, meaning, remedy) { code, meaning, remedy },
    EXIT_CODE_LIST(X)
#undef X
};
enum { EXIT_ROWS = sizeof(exit_rows) / sizeof(exit_rows[0]) };

static bool put_paragraph(struct buf *out, const char *heading, const char *text)
{
    enum { INDENT = 4 };
    struct buf plain = { 0 };
    const bool ok = finding_put_readable(&plain, text) && buf_append(&plain, "", 1) &&
                    buf_printf(out, "\n%s\n%*s", heading, INDENT, "") &&
                    options_wrap(out, (const char *)plain.data, INDENT, INDENT);
    buf_free(&plain);
    return ok;
}

static bool explain_finding(enum finding_code code, struct buf *out)
{
    return buf_printf(out, "%s (%s)\n", finding_code_name(code), finding_grade_name(code)) &&
           put_paragraph(out, "Example", finding_example(code)) &&
           put_paragraph(out, "Meaning", finding_detection(code)) &&
           put_paragraph(out, "Remedy", finding_advice(code));
}

/* Append the row of an exit code. All codes 128 + signal share one row. A code without a row is the exit code of a
 * worker. */
static bool explain_exit_code(int code, struct buf *out)
{
    const char *signal = code > EXIT_CODE_SIGNAL ? signal_abbrev(code - EXIT_CODE_SIGNAL) : NULL;
    const int row = signal != NULL ? EXIT_CODE_SIGNAL : code;
    bool ok = buf_printf(out, "exit code %d", code);
    if (signal != NULL)
        ok = ok && buf_printf(out, " = 128 + %d (SIG%s)", code - EXIT_CODE_SIGNAL, signal);
    for (int i = 0; i < EXIT_ROWS; i++)
        if (exit_rows[i].code == row)
            return ok && buf_printf(out, "\n") && put_paragraph(out, "Meaning", exit_rows[i].meaning) &&
                   put_paragraph(out, "Remedy", exit_rows[i].remedy);
    return ok && buf_printf(out, "\n") &&
           put_paragraph(out, "Meaning", "the exit code of the worker that failed first") &&
           put_paragraph(out, "Remedy",
                         "check the documentation of the program and the end of the worker's log");
}

/* Append a line for each finding whose name contains `part`, and add the number of lines to *n. */
static bool list_findings(const char *part, struct buf *out, int *n)
{
    bool ok = true;
    for (int code = FINDING_NONE + 1; ok && code < FINDING_CODES; code++) {
        const char *name = finding_code_name((enum finding_code)code);
        if (strstr(name, part) == NULL)
            continue;
        ok = buf_printf(out, "%-24s %s\n", name, finding_example((enum finding_code)code));
        ++*n;
    }
    return ok;
}

static bool list_all(struct buf *out)
{
    int n = 0;
    bool ok =
        buf_printf(out, "findings:\n") && list_findings("", out, &n) && buf_printf(out, "\nexit codes:\n");
    for (int i = 0; ok && i < EXIT_ROWS; i++)
        ok = buf_printf(out, "%-24d %s\n", exit_rows[i].code, exit_rows[i].meaning);
    return ok && buf_printf(out, "\n'ddprun explain CODE' prints the meaning and the remedy of one.\n");
}

ddp_status explain_code(const char *code, struct buf *out, struct ddp_err *err)
{
    char name[CODE_MAX];
    int n = 0;
    bool ok = true;
    if (code == NULL)
        return list_all(out) ? DDP_OK : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    char *end;
    const long number = strtol(code, &end, 10);
    if (isdigit((unsigned char)*code) && *end == '\0' && number <= EXIT_STATUS_MAX) {
        ok = explain_exit_code((int)number, out);
        return ok ? DDP_OK : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    }
    snprintf(name, sizeof(name), "%s", code);
    for (char *p = name; *p != '\0'; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    const enum finding_code finding = finding_by_name(name);
    ok = finding != FINDING_NONE ? explain_finding(finding, out)
                                 : *name != '\0' && list_findings(name, out, &n);
    if (finding == FINDING_NONE && n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "explain: '%.60s': no such code; 'ddprun explain' lists all codes",
                        code);
    return ok ? DDP_OK : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
}

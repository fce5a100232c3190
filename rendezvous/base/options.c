/* options.c -- see options.h.
 *
 * Not getopt_long, because its table knows neither help texts nor where values go, and it prints
 * its errors itself. A row is all there is of an option, for example of ddp-rendezvous:
 *
 *     { "listen", "HOST:PORT", "where to listen", set_listen }
 *
 * gives --listen A, --listen=A, its lines in --help and in the manual page, and errors that begin "--listen: ", or as it was typed. */
#include "options.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 24 };

static const struct option_row *find(const struct option_row *table, const char *name, size_t len)
{
    for (; table->name != NULL; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

/* argv[*i] is an option; *i moves on to its value when that is the next argument. */
static ddp_status parse_one(const struct option_row *table, int argc, char *const argv[], int *i, void *into,
                            struct ddp_err *err)
{
    const char *typed = argv[*i];
    const int typed_len = (int)strcspn(typed, "=");
    const bool is_short = typed[1] != '-';
    const char *name = typed + (is_short ? 1 : 2);
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct option_row *row = find(table, name, len);
    if (row == NULL || (is_short && len != 1))
        return ddp_fail(err, DDP_ERR_ARG, "unknown option '%.*s'; see --help", typed_len, typed);
    if (row->value == NULL && value != NULL)
        return ddp_fail(err, DDP_ERR_ARG, "%.*s takes no value, but '%s' was given", typed_len, typed, value);
    if (row->value != NULL && value == NULL) {
        if (*i + 1 >= argc)
            return ddp_fail(err, DDP_ERR_ARG, "%.*s needs a value: %s %s", typed_len, typed, typed,
                            row->value);
        value = argv[++*i];
    }
    ddp_status status = row->set(into, value != NULL ? value : "", err);
    return status == DDP_OK || err == NULL ? status : ddp_wrap(err, "%.*s", typed_len, typed);
}

/* A lone "-" is an argument by custom (standard input), and "--" ends the options even before one that looks like it. */
ddp_status options_parse(const struct option_row *table, int argc, char *const argv[], void *into, int *rest,
                         struct ddp_err *err)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        ddp_status status = parse_one(table, argc, argv, &i, into, err);
        if (status != DDP_OK)
            return status;
    }
    if (rest != NULL)
        *rest = i;
    else if (i < argc)
        return ddp_fail(err, DDP_ERR_ARG, "what is '%s'? Only options are expected; see --help", argv[i]);
    return DDP_OK;
}

/* Options on the left, help on the right; every line of the help text under the first. */
bool options_help(const struct option_row *table, struct buf *out)
{
    bool ok = true;
    char left[128];
    for (; table->name != NULL; table++) {
        const char *line = table->help;
        snprintf(left, sizeof(left), "  --%s %s", table->name, table->value != NULL ? table->value : "");
        while (line != NULL && ok) {
            int len = (int)strcspn(line, "\n");
            ok = buf_printf(out, "%-*s%s%.*s\n", HELP_COLUMN, left, strlen(left) < HELP_COLUMN ? "" : " ",
                            len, line);
            left[0] = '\0';
            line = line[len] == '\n' ? line + len + 1 : NULL;
        }
    }
    return ok;
}

/* For roff a bare '-' is a hyphen, which nobody could copy into a shell. */
static bool roff_text(const char *text, struct buf *out)
{
    bool ok = true;
    for (; *text != '\0' && ok; text++)
        ok = buf_printf(out, *text == '-' || *text == '\\' ? "\\%c" : "%c", *text);
    return ok;
}

bool options_man(const struct option_row *table, struct buf *out)
{
    bool ok = true;
    for (; table->name != NULL && ok; table++) {
        if (table->help == NULL)
            continue;
        ok = buf_printf(out, ".TP\n.BR \\-\\-") && roff_text(table->name, out);
        if (table->value != NULL)
            ok = ok && buf_printf(out, " \" \\fI") && roff_text(table->value, out) &&
                 buf_printf(out, "\\fR\"");
        ok = ok && buf_printf(out, "\n") && roff_text(table->help, out) && buf_printf(out, "\n");
    }
    return ok;
}

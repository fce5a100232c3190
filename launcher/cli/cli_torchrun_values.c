/* cli_torchrun_values.c -- the values of options that are here because torchrun has them; see cli_table.h for what a parser
 * returns.
 *
 * Options are of three kinds. Some have a meaning here (--role, --shutdown_timeout). Some are about how torchrun works inside and
 * need nothing done: they are checked all the same, because a wrong value is refused by torchrun, too. And some name a
 * piece of Python that torchrun would load: a C program cannot, so what ddprun has of it is accepted, and all else is
 * refused with a sentence that names what to use instead. */
#include "cli/cli_table.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROLE_MAX = 128 };

/* It ends up in a variable, in prefixes and in reports, where a control character would be obeyed. */
ddp_status cli_value_ROLE(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    const size_t len = strlen(text);
    bool bad = len > ROLE_MAX;
    for (size_t i = 0; i < len; i++)
        bad = bad || iscntrl((unsigned char)text[i]) != 0;
    if (bad)
        return ddp_fail(err, DDP_ERR_ARG, "at most %d characters without control characters", ROLE_MAX);
    *field = text;
    return DDP_OK;
}

/* One of a few words, kept as it was typed. */
static ddp_status one_of(enum cli_kind kind, const char *text, void *to)
{
    const char **field = to;
    if (cli_word_of(kind, text) < 0)
        return DDP_ERR_ARG;
    *field = text;
    return DDP_OK;
}

ddp_status cli_value_START_METHOD(const char *text, void *to, struct ddp_err *err)
{
    if (one_of(KIND_START_METHOD, text, to) == DDP_OK)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "'spawn', 'fork' or 'forkserver'");
}

ddp_status cli_value_RANK_ARGUMENT(const char *text, void *to, struct ddp_err *err)
{
    if (one_of(KIND_RANK_ARGUMENT, text, to) == DDP_OK)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "'local-rank' or 'local_rank'");
}

ddp_status cli_value_BINDING(const char *text, void *to, struct ddp_err *err)
{
    enum numa_binding *field = to;
    const int word = cli_word_of(KIND_BINDING, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'node', 'socket', 'exclusive' or 'core-complex'");
    *field = (enum numa_binding)word;
    return DDP_OK;
}

ddp_status cli_value_EVENT_HANDLER(const char *text, void *to, struct ddp_err *err)
{
    bool *field = to;
    const int word = cli_word_of(KIND_EVENT_HANDLER, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'null' or 'console'; other handlers are Python code registered inside of torchrun, "
                        "use --events=FILE or --json");
    *field = word == 1;
    return DDP_OK;
}

ddp_status cli_value_LOGS_SPECS(const char *text, void *to, struct ddp_err *err)
{
    if (one_of(KIND_LOGS_SPECS, text, to) == DDP_OK)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "'default'; others are entry points of Python packages (torchrun.logs_specs), use "
                    "--log_file=PATTERN to name the log files");
}

/* Words with commas between them; two commas are one in a word. Pointers first, their texts behind them. */
ddp_status cli_value_FILTERS(const char *text, void *to, struct ddp_err *err)
{
    struct cli_filters *filters = to;
    const size_t most = strlen(text) + 1;
    char **items = malloc(most * (sizeof(*items) + 1));
    if (items == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    char *p = (char *)(items + most);
    free(filters->items);
    *filters = (struct cli_filters){ .items = items };
    items[filters->n++] = p;
    for (; *text != '\0'; text++) {
        if (text[0] == ',' && text[1] != ',') {
            *p++ = '\0';
            items[filters->n++] = p;
        } else {
            *p++ = *text;
            text += text[0] == ',';
        }
    }
    *p = '\0';
    return DDP_OK;
}

/* torchrun's integer; our longer forms are for --grace. */
ddp_status cli_value_SECONDS(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    int seconds;
    if (!cli_whole_number(text, 0, 31536000, &seconds))
        return ddp_fail(err, DDP_ERR_ARG, "whole seconds, 0 or more");
    *ms = (uint64_t)seconds * 1000;
    return DDP_OK;
}

ddp_status cli_value_INTERVAL(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return ddp_fail(err, DDP_ERR_ARG, "seconds, as 0.1");
    *field = text;
    return DDP_OK;
}

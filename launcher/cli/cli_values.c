/* cli_values.c -- see cli_table.h. Numbers are read with strtol and must end where the text ends: "4x" is an
 * error, not 4. Blanks around one are no part of it, as for Python: scripts put them into variables.
 *
 * An error says what would be right and leaves the rest to the caller, which knows where the text came from:
 * "PET_MASTER_PORT=http is not valid; expected: " + "a port from 1 to 65535, or 0 for any free one". */
#include "cli/cli_table.h"
#include "tables/log_pattern.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limits that no job comes near: a typing error is found, and no sum of such numbers overflows. */
enum { MS_PER_DAY = 86400000, DAYS_MAX = 365, LOG_ROTATE_MIN = 1024 };

bool cli_whole_number(const char *text, long low, long high, int *to)
{
    char *end;
    errno = 0;
    text += strspn(text, " \t\n");
    long value = strtol(text, &end, 10);
    end += strspn(end, " \t\n");
    bool digits = isdigit((unsigned char)text[0]) || (text[0] == '-' && isdigit((unsigned char)text[1]));
    if (!digits || *end != '\0' || errno != 0 || value < low || value > high)
        return false;
    *to = (int)value;
    return true;
}

/* Words first: a number is tried last, so that its error can list everything that is allowed. */
ddp_status cli_value_NPROC(const char *text, void *to, struct ddp_err *err)
{
    struct cli_nproc *nproc = to;
    const int word = cli_word_of(KIND_NPROC, text);
    nproc->kind = word >= 0 ? (enum nproc_kind)word : NPROC_NUMBER;
    if (word >= 0 || cli_whole_number(text, 1, CLI_NPROC_MAX, &nproc->count))
        return DDP_OK;
    if (isalpha((unsigned char)text[0]))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "a number from 1 to %d, 'gpu' (NVIDIA's), 'cpu' or 'auto'; of devices of other kinds say "
            "the number, only PyTorch can count them",
            CLI_NPROC_MAX);
    return ddp_fail(err, DDP_ERR_ARG, "a number from 1 to %d, 'gpu', 'cpu' or 'auto'", CLI_NPROC_MAX);
}

/* Only the form; that it is below nnodes needs both options and is checked when both are read. */
ddp_status cli_value_NODE_RANK(const char *text, void *to, struct ddp_err *err)
{
    if (cli_whole_number(text, 0, CLI_NODES_MAX - 1, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a number from 0 to nnodes - 1");
}

/* On the command line a switch has no value and arrives as "1"; PET_<NAME> may be any integer, 0 = off, as in
 * torchrun. */
static ddp_status switch_value(const char *text, bool *on, struct ddp_err *err)
{
    int value;
    if (!cli_whole_number(text, -1000000, 1000000, &value))
        return ddp_fail(err, DDP_ERR_ARG, "an integer, 0 for off and 1 for on");
    *on = value != 0;
    return DDP_OK;
}

ddp_status cli_value_SWITCH(const char *text, void *to, struct ddp_err *err)
{
    return switch_value(text, to, err);
}

/* --prefix and --no_prefix write to one field, so the later of two rounds wins; one that is off says nothing. */
static ddp_status prefix_value(const char *text, enum prefix_mode *mode, enum prefix_mode wish,
                               struct ddp_err *err)
{
    bool on = false;
    ddp_status status = switch_value(text, &on, err);
    if (status == DDP_OK && on)
        *mode = wish;
    return status;
}

ddp_status cli_value_PREFIX(const char *text, void *to, struct ddp_err *err)
{
    return prefix_value(text, to, PREFIX_ON, err);
}

ddp_status cli_value_NO_PREFIX(const char *text, void *to, struct ddp_err *err)
{
    return prefix_value(text, to, PREFIX_OFF, err);
}

/* An empty host or directory is a variable that was not set in the user's script, hardly ever meant. */
ddp_status cli_value_TEXT(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    if (text[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "not empty");
    *field = text;
    return DDP_OK;
}

/* The names of schedulers, and of none; plan/scheduler.c lists them when the name is unknown. */
ddp_status cli_value_SCHEDULER(const char *text, void *to, struct ddp_err *err)
{
    return cli_value_TEXT(text, to, err);
}

/* The job id becomes part of a directory's name and of what the user reads: it neither leaves the one nor
 * commands the other's terminal. */
ddp_status cli_value_JOB(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    size_t len = strlen(text);
    bool bad = strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
    for (size_t i = 0; i < len; i++)
        bad = bad || text[i] == '/' || iscntrl((unsigned char)text[i]) != 0;
    if (len == 0 || len > 128 || bad)
        return ddp_fail(err, DDP_ERR_ARG, "1 to 128 characters without '/' and control characters");
    *field = text;
    return DDP_OK;
}

/* 0 is allowed: the store takes a free port and workers are told which. */
ddp_status cli_value_PORT(const char *text, void *to, struct ddp_err *err)
{
    if (cli_whole_number(text, 0, 65535, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a port from 1 to 65535, or 0 for any free one");
}

/* Whether the layer is there is found out by contain_open. */
ddp_status cli_value_CONTAIN(const char *text, void *to, struct ddp_err *err)
{
    enum contain_kind *kind = to;
    const int word = cli_word_of(KIND_CONTAIN, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'auto', 'plain', 'cgroup' or 'pidns'");
    *kind = (enum contain_kind)word;
    return DDP_OK;
}

/* The one option that adds up instead of replacing. */
ddp_status cli_value_ENV(const char *text, void *to, struct ddp_err *err)
{
    struct cli_env *env = to;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        return ddp_fail(err, DDP_ERR_ARG, "NAME=VALUE");
    const char **items = realloc(env->items, (env->n + 1) * sizeof(*items));
    if (items == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    env->items = items;
    env->items[env->n++] = text;
    return DDP_OK;
}

/* Local ranks. torchrun's default is an empty text: all of them. */
ddp_status cli_value_RANKS(const char *text, void *to, struct ddp_err *err)
{
    struct rank_set *ranks = to;
    if (text[0] != '\0')
        return rank_set_parse(ranks, text, CLI_NPROC_MAX, err);
    rank_set_free(ranks);
    return DDP_OK;
}

/* Words first, as for the number of workers. */
ddp_status cli_value_INPUT(const char *text, void *to, struct ddp_err *err)
{
    struct cli_input *input = to;
    struct rank_set ranks = { 0 };
    const bool word = cli_word_of(KIND_INPUT, text) >= 0, all = word && text[0] == 'a';
    ddp_status status = word ? DDP_OK : rank_set_parse(&ranks, text, CLI_NPROC_MAX, err);
    if (status == DDP_ERR_ARG)
        return ddp_fail(err, status, "'all', 'none', or ranks as 0,2-5");
    if (status != DDP_OK)
        return status;
    rank_set_free(&input->ranks);
    *input = (struct cli_input){ .all = all, .ranks = ranks };
    return DDP_OK;
}

ddp_status cli_value_COUNT(const char *text, void *to, struct ddp_err *err)
{
    if (cli_whole_number(text, 0, CLI_COUNT_MAX, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a number from 0 to %d", CLI_COUNT_MAX);
}

ddp_status cli_value_EXIT_POLICY(const char *text, void *to, struct ddp_err *err)
{
    enum exit_policy *policy = to;
    const int word = cli_word_of(KIND_EXIT_POLICY, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'first', 'max', 'rank0' or 'workers'");
    *policy = (enum exit_policy)word;
    return DDP_OK;
}

bool cli_duration(const char *text, uint64_t *to_ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 } };
    char *end;
    size_t digits = strspn(text, "0123456789.");
    double value = strtod(text, &end);
    if (digits == 0 || end != text + digits)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        double ms = value * units[i].ms;
        if (strcmp(end, units[i].unit) == 0 && ms <= (double)MS_PER_DAY * DAYS_MAX) {
            *to_ms = (uint64_t)(ms + 0.5);
            return true;
        }
    }
    return false;
}

ddp_status cli_value_SIGNALS(const char *text, void *to, struct ddp_err *err)
{
    return signals_parse(text, to, err);
}

/* 0 is allowed: --grace=0 kills at once. */
ddp_status cli_value_DURATION(const char *text, void *to, struct ddp_err *err)
{
    if (cli_duration(text, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a time of at most %d days, as 30, 1500ms, 30s, 2m or 1h", DAYS_MAX);
}

/* The form is that of --grace, but 0 would mean that nobody can ever join. */
ddp_status cli_value_TIMEOUT(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    if (cli_duration(text, ms) && *ms > 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a time above 0 and of at most %d days, as 90, 30s or 2m", DAYS_MAX);
}

/* Checked here, where an error can name the option; made into names when the workers' ranks are known. */
ddp_status cli_value_PATTERN(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    *field = text;
    return log_pattern_check(text, err);
}

/* "4096", "64M": bytes, at *text, moved behind them. 0 when that is no size, or above a PiB. */
static uint64_t size(const char **text)
{
    static const char units[] = "KMGT";
    uint64_t value = 0;
    const char *p = *text, *unit;
    for (; isdigit((unsigned char)*p) && value < (uint64_t)1 << 50; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    if (*p != '\0' && (unit = strchr(units, toupper((unsigned char)*p))) != NULL) {
        value = value >> 50 == 0 ? value << 10 * (unit - units + 1) : 0;
        p++;
    }
    *text = p;
    return value >> 50 == 0 ? value : 0;
}

/* A size first, then how many parts to keep, as one option: the second means nothing without the first. */
ddp_status cli_value_ROTATE(const char *text, void *to, struct ddp_err *err)
{
    struct log_rotate *rotate = to;
    *rotate = (struct log_rotate){ .bytes = size(&text) };
    const bool keep_fits =
        *text == '\0' || (*text == ',' && cli_whole_number(text + 1, 1, 1000000, &rotate->keep));
    if (rotate->bytes >= LOG_ROTATE_MIN && keep_fits)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "a size of at least %d bytes, as 500K, 64M or 2G, and after a comma how many "
                    "full files to keep",
                    LOG_ROTATE_MIN);
}

ddp_status cli_value_POLICY(const char *text, void *to, struct ddp_err *err)
{
    enum log_policy *policy = to;
    const int word = cli_word_of(KIND_POLICY, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'block' or 'drop'");
    *policy = (enum log_policy)word;
    return DDP_OK;
}

ddp_status cli_value_SHELL(const char *text, void *to, struct ddp_err *err)
{
    enum completion_shell *shell = to;
    const int word = cli_word_of(KIND_SHELL, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'bash', 'zsh', 'fish' or 'tcsh'");
    *shell = (enum completion_shell)word;
    return DDP_OK;
}

/* "--help" alone arrives as "1", like every switch. */
ddp_status cli_value_HELP_PAGE(const char *text, void *to, struct ddp_err *err)
{
    enum cli_help *page = to;
    const int word = cli_word_of(KIND_HELP_PAGE, text);
    if (word < 0 && strcmp(text, "1") != 0)
        return ddp_fail(err, DDP_ERR_ARG, "--help for the most important options, --help=all for all");
    *page = word >= 0 ? (enum cli_help)word : HELP_SHORT;
    return DDP_OK;
}

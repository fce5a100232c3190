/* values.c -- parsers of the values of options: numbers, times, node counts, lists of ranks, redirects, key=value
 * lists. The file also has the words that options accept, because parsers and shell completions read the same lists. */
#include "cli/cli.h"
#include "tables/text.h"
#include "tables/signals.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words that options accept as values. The index of a word in its list is the value of its enum constant. */
#define SCHEDULER_NAME(id, name, ...)             name,
#define STOPPING_SIGNAL(name, act, may_stop, ...) may_stop ? "SIG" #name : NULL,
static const struct option_words words[OPTIONS] = {
    [OPT_NPROC_PER_NODE] =
        OPTION_WORDS(NULL, [NPROC_GPU] = "gpu", [NPROC_CPU] = "cpu", [NPROC_AUTO] = "auto"),
    [OPT_CONTAIN] = OPTION_WORDS(NULL, [CONTAIN_AUTO] = "auto", [CONTAIN_PLAIN] = "plain",
                                 [CONTAIN_CGROUP] = "cgroup", [CONTAIN_PIDNS] = "pidns"),
    [OPT_STDIN] = OPTION_WORDS(NULL, "all", "none"),
    [OPT_EXIT_CODE] = OPTION_WORDS(NULL, [EXIT_POLICY_FIRST] = "first", [EXIT_POLICY_MAX] = "max",
                                   [EXIT_POLICY_RANK0] = "rank0", [EXIT_POLICY_WORKERS] = "workers"),
    [OPT_SIGNALS] = OPTION_WORDS(NULL, SIGNAL_LIST(STOPPING_SIGNAL) NULL),
    [OPT_LOG_POLICY] = OPTION_WORDS(NULL, [LOG_BLOCK] = "block", [LOG_DROP] = "drop"),
    [OPT_PRINT_COMPLETION] = OPTION_WORDS(
        NULL, [SHELL_BASH] = "bash", [SHELL_ZSH] = "zsh", [SHELL_FISH] = "fish", [SHELL_TCSH] = "tcsh"),
    /* etcd is not accepted, because a user of this backend expects that an etcd server is used. */
    [OPT_RDZV_BACKEND] = OPTION_WORDS("; ddprun supports neither etcd nor plug-ins; use ddprun's own "
                                      "store, on a node or in ddp-rendezvous",
                                      [BACKEND_STATIC] = "static", [BACKEND_C10D] = "c10d"),
    [OPT_HOST_STORE] =
        OPTION_WORDS(NULL, [HOST_STORE_AUTO] = "auto", [HOST_STORE_YES] = "yes", [HOST_STORE_NO] = "no"),
    [OPT_TORCH_STORE] = OPTION_WORDS(NULL, [TORCH_STORE_AUTO] = "auto", [TORCH_STORE_LAUNCHER] = "launcher",
                                     [TORCH_STORE_RANK0] = "rank0"),
    [OPT_GROW] = OPTION_WORDS(NULL, [GROW_AGREED] = "agreed", [GROW_NOW] = "now", [GROW_NEVER] = "never"),
    [OPT_NODE_TIMEOUT] = OPTION_WORDS(NULL, "fast"),
    [OPT_HANG_TIMEOUT] = OPTION_WORDS(NULL, "off"),
    [OPT_ON_HANG] = OPTION_WORDS(
        NULL, [ON_HANG_REPORT] = "report", [ON_HANG_STOP] = "stop", [ON_HANG_RESTART] = "restart"),
    [OPT_SCHEDULER] = OPTION_WORDS(NULL, "auto", "none", SCHEDULERS(SCHEDULER_NAME) NULL),
    [OPT_START_METHOD] = OPTION_WORDS(NULL, "spawn", "fork", "forkserver"),
    [OPT_PASS_LOCAL_RANK] = OPTION_WORDS(NULL, "local-rank", "local_rank"),
    [OPT_NUMA_BINDING] = OPTION_WORDS(NULL, [NUMA_NODE] = "node", [NUMA_SOCKET] = "socket",
                                      [NUMA_EXCLUSIVE] = "exclusive", [NUMA_CORE_COMPLEX] = "core-complex"),
    [OPT_EVENT_LOG_HANDLER] = OPTION_WORDS("; other handlers are Python code, which ddprun cannot load; use "
                                           "--events=FILE or --json",
                                           "null", "console"),
    [OPT_LOGS_SPECS] =
        OPTION_WORDS("; other names refer to Python code (torchrun.logs_specs), which ddprun cannot load; "
                     "use --log_file=PATTERN to name the log files",
                     "default"),
    [OPT_HELP] = OPTION_WORDS(NULL, [HELP_ALL] = "all"),
};

/* A value of --tee or --redirects is "3" for all workers, or a map from local ranks to values: "0:3,1:1". A worker that
 * is not in the map has the value 0. In a map, torchrun accepts only ranks below 10. ddprun accepts any rank. */
static const char right_form[] =
    "0, 1, 2 or 3, or a map such as 0:3,1:1 (RANK:STREAMS) that contains no rank twice";

static int compare_map_ranks(const void *a, const void *b)
{
    const struct std_map_item *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Parse one "RANK:STREAMS" and move *at past the item and the following comma. */
static bool std_item(const char **at, struct std_map_item *item)
{
    const char *p = *at;
    if (!rank_read(&p, CLI_RANK_MAX + 1, &item->rank) || p[0] != ':' || p[1] < '0' || p[1] > '3')
        return false;
    item->streams = p[1] - '0';
    p += 2;
    if (*p == ',' && p[1] != '\0')
        p++;
    else if (*p != '\0')
        return false;
    *at = p;
    return true;
}

/* Return true if a rank occurs twice, as in "1:1,1:2". Such a map is ambiguous. `items` is sorted. */
static bool has_twins(const struct std_map_item *items, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (items[i].rank == items[i - 1].rank)
            return true;
    return false;
}

/* Return an upper limit of the number of items in `text`, so that the array is allocated only once. */
static size_t count_items(const char *text)
{
    size_t n = 1;
    for (; *text != '\0'; text++)
        n += *text == ',';
    return n;
}

/* Read all items and sort them by rank. */
static bool read_items(const char *text, struct std_map_item *items, size_t *n)
{
    for (*n = 0; *text != '\0'; (*n)++)
        if (!std_item(&text, &items[*n]))
            return false;
    qsort(items, *n, sizeof(*items), compare_map_ranks);
    return !has_twins(items, *n);
}

/* Parse a map. After an error, map->items may stay allocated until cli_free. */
static ddp_status value_STD_MAP(const char *text, void *to, struct ddp_err *err)
{
    struct std_map *map = to;
    free(map->items); /* the default or a PET_* variable may have filled the map before */
    *map = (struct std_map){ 0 };
    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0') {
        map->all = text[0] - '0';
        return DDP_OK;
    }
    size_t most = count_items(text);
    if (text[0] == '\0' || most > CLI_STDMAP_ITEMS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "%s", right_form);
    map->items = calloc(most, sizeof(*map->items));
    if (map->items == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (!read_items(text, map->items, &map->n))
        return ddp_fail(err, DDP_ERR_ARG, "%s", right_form);
    return DDP_OK;
}

int std_map_get(const struct std_map *map, int local_rank)
{
    struct std_map_item key = { .rank = local_rank };
    const struct std_map_item *found =
        map->n > 0 ? bsearch(&key, map->items, map->n, sizeof(key), compare_map_ranks) : NULL;
    return found != NULL ? found->streams : map->all;
}

int std_map_highest(const struct std_map *map)
{
    return map->n > 0 ? map->items[map->n - 1].rank : -1;
}

/* --- cli values ------------------------------------------------------------------------------------------- */

/* A number must be the whole text: "4x" is an error, not 4. Blanks around a number are ignored, as in Python.
 *
 * The text of an error lists the valid values. The caller puts the origin of the value before this text:
 * "PET_MASTER_PORT=http: expected " + "a port from 1 to 65535, or 0 for any free port". */

/* DAYS_MAX detects typing errors, and prevents an overflow of sums. */
enum { MS_PER_DAY = 86400000, DAYS_MAX = 365, LOG_ROTATE_MIN = 1024 };

static bool read_whole_number(const char *text, long low, long high, int *to)
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

/* Parse a number of workers, or a word, such as "gpu". */
static ddp_status value_NPROC(const char *text, void *to, struct ddp_err *err)
{
    struct cli_nproc *nproc = to;
    const int word = options_word(&words[OPT_NPROC_PER_NODE], text);
    nproc->kind = word >= 0 ? (enum nproc_kind)word : NPROC_NUMBER;
    if (word >= 0 || read_whole_number(text, 1, CLI_NPROC_MAX, &nproc->count))
        return DDP_OK;
    if (isalpha((unsigned char)text[0]))
        return ddp_fail(err, DDP_ERR_ARG,
                        "a number from 1 to %d, 'gpu' (NVIDIA GPUs), 'cpu' or 'auto'; for other "
                        "devices give a number, because only PyTorch can count them",
                        CLI_NPROC_MAX);
    return ddp_fail(err, DDP_ERR_ARG, "a number from 1 to %d, 'gpu', 'cpu' or 'auto'", CLI_NPROC_MAX);
}

ddp_status cli_check_nproc(const char *text, struct ddp_err *err)
{
    struct cli_nproc unused;
    return value_NPROC(text, &unused, err);
}

/* Parse a node rank. The upper limit depends on --nnodes and is checked after all options are read. */
static ddp_status value_NODE_RANK(const char *text, void *to, struct ddp_err *err)
{
    if (read_whole_number(text, 0, CLI_NODES_MAX - 1, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a number from 0 to --nnodes minus 1");
}

/* Parse a switch. On the command line a switch has no value, and `text` is "1". The text of a variable PET_<NAME> can
 * be any integer, and 0 means off, as in torchrun. */
static ddp_status switch_value(const char *text, bool *on, struct ddp_err *err)
{
    int value;
    if (!read_whole_number(text, -1000000, 1000000, &value))
        return ddp_fail(err, DDP_ERR_ARG, "an integer, 0 for off and 1 for on");
    *on = value != 0;
    return DDP_OK;
}

static ddp_status value_SWITCH(const char *text, void *to, struct ddp_err *err)
{
    return switch_value(text, to, err);
}

/* Set the mode to `wanted` if the switch is on. --prefix and --no_prefix set the same field. So --prefix on the
 * command line overrides PET_NO_PREFIX, and --no_prefix overrides PET_PREFIX. */
static ddp_status prefix_value(const char *text, enum prefix_mode *mode, enum prefix_mode wanted,
                               struct ddp_err *err)
{
    bool on = false;
    ddp_status status = switch_value(text, &on, err);
    if (status == DDP_OK && on)
        *mode = wanted;
    return status;
}

static ddp_status value_PREFIX(const char *text, void *to, struct ddp_err *err)
{
    return prefix_value(text, to, PREFIX_ON, err);
}

static ddp_status value_NO_PREFIX(const char *text, void *to, struct ddp_err *err)
{
    return prefix_value(text, to, PREFIX_OFF, err);
}

/* Reject an empty text, which usually comes from an unset variable in the user's script. */
static ddp_status value_TEXT(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    if (text[0] == '\0' || strlen(text) > OPTION_TEXT_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "a text of 1 to %d bytes", OPTION_TEXT_MAX);
    *field = text;
    return DDP_OK;
}

/* Check that the expression is valid. */
static ddp_status value_REGEX(const char *text, void *to, struct ddp_err *err)
{
    char why[128];
    regex_t regex;
    const int error = regcomp(&regex, text, REG_EXTENDED | REG_NOSUB);
    if (error != 0) {
        regerror(error, &regex, why, sizeof(why));
        return ddp_fail(
            err, DDP_ERR_ARG,
            "a valid extended regular expression (error: %s); to match a bracket in the text, write "
            "'\\['",
            why);
    }
    regfree(&regex);
    return value_TEXT(text, to, err);
}

/* Parse a job id. Messages and the name of a directory contain it, so slashes and control characters are invalid. */
static ddp_status value_JOB(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    size_t len = strlen(text);
    bool bad = strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
    for (size_t i = 0; i < len; i++)
        bad = bad || text[i] == '/' || iscntrl((unsigned char)text[i]) != 0;
    if (len == 0 || len > 128 || bad)
        return ddp_fail(err, DDP_ERR_ARG, "1 to 128 characters, without '/' and without control characters");
    *field = text;
    return DDP_OK;
}

/* Parse a port. 0 is valid: the store then opens any free port, and the workers get the number of this port. */
static ddp_status value_PORT(const char *text, void *to, struct ddp_err *err)
{
    if (read_whole_number(text, 0, 65535, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a port from 1 to 65535, or 0 for any free port");
}

/* Append a text to an array of `*n` texts. */
static ddp_status collect_text(const char ***texts, size_t *n, const char *text, struct ddp_err *err)
{
    const char **grown = realloc(*texts, (*n + 1) * sizeof(*grown));
    if (grown == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    *texts = grown;
    grown[(*n)++] = text;
    return DDP_OK;
}

/* Append a list of hosts to the earlier lists, as mpirun does. */
static ddp_status value_HOSTS(const char *text, void *to, struct ddp_err *err)
{
    char **hosts = to;
    struct buf joined = { 0 };
    if (text[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "a list of hosts, such as 'a:8,b:8'");
    if (!buf_printf(&joined, "%s%s%s", *hosts != NULL ? *hosts : "", *hosts != NULL ? "," : "", text) ||
        !buf_append(&joined, "", 1)) {
        buf_free(&joined);
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    }
    free(*hosts);
    *hosts = (char *)joined.data;
    return DDP_OK;
}

/* Accept one file only, because a second file would replace the hosts of the first file. */
static ddp_status value_HOSTFILE(const char *text, void *to, struct ddp_err *err)
{
    const char **file = to;
    if (*file != NULL)
        return ddp_fail(err, DDP_ERR_ARG, "only one --hostfile; write all hosts into one file");
    return value_TEXT(text, to, err);
}

/* Add a variable. If --env is given several times, ddprun uses every value, as for --hosts. For most other options,
 * ddprun uses only the last value. */
static ddp_status value_ENV(const char *text, void *to, struct ddp_err *err)
{
    struct cli_env *env = to;
    const char *c = text;
    if (isdigit((unsigned char)text[0]))
        return ddp_fail(err, DDP_ERR_ARG, "NAME=VALUE or NAME, where NAME does not begin with a digit");
    while (isalnum((unsigned char)*c) || *c == '_')
        c++;
    if (*c == '\0' && c > text) {
        const ddp_status status = collect_text(&env->names, &env->n_names, text, err);
        return status == DDP_OK ? collect_text(&env->items, &env->n, text, err) : status;
    }
    if (text[0] == '=' || strchr(text, '=') == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "NAME=VALUE or NAME");
    return collect_text(&env->items, &env->n, text, err);
}

/* Parse local ranks. An empty text, torchrun's default, means all ranks. */
static ddp_status value_RANKS(const char *text, void *to, struct ddp_err *err)
{
    struct rank_set *ranks = to;
    if (text[0] != '\0')
        return rank_set_parse(ranks, text, CLI_NPROC_MAX, err);
    rank_set_free(ranks);
    return DDP_OK;
}

/* Parse the value of --stdin: a word, or the ranks of the workers that read stdin. */
static ddp_status value_INPUT(const char *text, void *to, struct ddp_err *err)
{
    struct cli_input *input = to;
    struct rank_set ranks = { 0 };
    const bool word = options_word(&words[OPT_STDIN], text) >= 0, all = word && text[0] == 'a';
    ddp_status status = word ? DDP_OK : rank_set_parse(&ranks, text, CLI_NPROC_MAX, err);
    if (status == DDP_ERR_ARG)
        return ddp_fail(err, status, "'all', 'none', or ranks such as 0,2-5");
    if (status != DDP_OK)
        return status;
    rank_set_free(&input->ranks);
    *input = (struct cli_input){ .all = all, .ranks = ranks };
    return DDP_OK;
}

static ddp_status value_COUNT(const char *text, void *to, struct ddp_err *err)
{
    if (read_whole_number(text, 0, CLI_COUNT_MAX, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a number from 0 to %d", CLI_COUNT_MAX);
}

static bool read_duration(const char *text, uint64_t *to_ms)
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

static ddp_status value_SIGNALS(const char *text, void *to, struct ddp_err *err)
{
    return signals_parse(text, to, err);
}

/* Parse a time. 0 is valid: --grace=0 kills at once. */
static ddp_status value_DURATION(const char *text, void *to, struct ddp_err *err)
{
    if (read_duration(text, to))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a time of at most %d days, such as 30 (seconds), 1500ms, 2m or 1h",
                    DAYS_MAX);
}

/* Parse a time above 0. With a timeout of 0, no node could ever join. */
static ddp_status value_TIMEOUT(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    if (read_duration(text, ms) && *ms > 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "a time above 0 and of at most %d days, such as 90 (seconds) or 2m",
                    DAYS_MAX);
}

/* Check the pattern of the file names now, so that an error names the option. */
static ddp_status value_PATTERN(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    *field = text;
    return log_pattern_check(text, err);
}

/* Parse "4096" or "64M" at *text, move *text past the size, and return the number of bytes. Return 0 if the size is
 * invalid, or if it is 1 PiB or more. */
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

/* Parse a size, and after a comma the number of files to keep. */
static ddp_status value_ROTATE(const char *text, void *to, struct ddp_err *err)
{
    struct log_rotate *rotate = to;
    *rotate = (struct log_rotate){ .bytes = size(&text) };
    const bool keep_fits =
        *text == '\0' || (*text == ',' && read_whole_number(text + 1, 1, 1000000, &rotate->keep));
    if (rotate->bytes >= LOG_ROTATE_MIN && keep_fits)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "SIZE or SIZE,KEEP, where SIZE is at least %d bytes (such as 500K, 64M or 2G) and KEEP is the number "
        "of old files to keep",
        LOG_ROTATE_MIN);
}

/* Parse the value of --help; without a value, the text is "1", as for every switch. */
static ddp_status value_HELP_PAGE(const char *text, void *to, struct ddp_err *err)
{
    enum cli_help *page = to;
    const int word = options_word(&words[OPT_HELP], text);
    if (word < 0 && strcmp(text, "1") != 0)
        return ddp_fail(err, DDP_ERR_ARG, "no value, or 'all'");
    *page = word >= 0 ? (enum cli_help)word : HELP_SHORT;
    return DDP_OK;
}

/* --- cli nodes -------------------------------------------------------------------------------------------- */

/* Parsers of the options about several nodes. base/options.h describes the results of a parser.
 *
 * The keys of --rdzv_conf are torchrun's keys. The row of a key has a parser, or a text that explains why the key has
 * no effect. ddprun prints this text. A key that torchrun does not have is an error, because the key is probably
 * mistyped. If ddprun was started as torchrun, it only prints a note about such a key. */

enum { CONF_VALUE_MAX = 256, FAST_MS = 1500, NODE_TIMEOUT_MIN_MS = 500, HANG_TIMEOUT_MIN_MS = 1000 };

/* Parse the part before or after the colon of MIN:MAX. */
static bool nodes_part(const char *text, size_t len, int *to)
{
    char part[16];
    if (len >= sizeof(part))
        return false;
    memcpy(part, text, len);
    part[len] = '\0';
    return read_whole_number(part, 1, CLI_NODES_MAX, to);
}

/* Parse N or MIN:MAX. An invalid value does not change the option. */
static ddp_status value_NNODES(const char *text, void *to, struct ddp_err *err)
{
    struct cli_nnodes *nodes = to, read;
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    const char *last = colon != NULL ? colon + 1 : text;
    if (!nodes_part(text, len, &read.min) || !nodes_part(last, strlen(last), &read.max) ||
        read.min > read.max)
        return ddp_fail(err, DDP_ERR_ARG, "N or MIN:MAX, with 1 <= MIN <= MAX <= %d", CLI_NODES_MAX);
    read.is_range = colon != NULL;
    *nodes = read;
    return DDP_OK;
}

/* Parse an endpoint. A missing port is -1, because 0 means any free port. */
static ddp_status value_ENDPOINT(const char *text, void *to, struct ddp_err *err)
{
    struct ddp_err why;
    struct endpoint *field = to, read;
    if (endpoint_parse(text, -1, &read, &why) != DDP_OK)
        return ddp_fail(err, DDP_ERR_ARG, "HOST, HOST:PORT or [IPv6 address]:PORT; %.300s", why.msg);
    if (read.host[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "HOST or HOST:PORT; the host is missing");
    *field = read;
    return DDP_OK;
}

/* Return true for "h:29500" or "[::1]:29500". Text with several colons and without brackets is an IPv6 address
 * without a port. */
static bool has_port(const char *text)
{
    const char *colon = strchr(text, ':');
    return text[0] == '[' ? text[strlen(text) - 1] != ']' : colon != NULL && strchr(colon + 1, ':') == NULL;
}

/* Parse a host. The brackets around an IPv6 address are optional. Reject a port, because a lookup of "HOST:PORT" as a
 * name would fail only at the timeout. */
static ddp_status value_HOST(const char *text, void *to, struct ddp_err *err)
{
    const size_t len = strlen(text), bracket = len > 2 && text[0] == '[' && text[len - 1] == ']';
    if (has_port(text))
        return ddp_fail(err, DDP_ERR_ARG,
                        "a name or an address without a port; set the port with --master_port, or set "
                        "host and port with --rdzv_endpoint=HOST:PORT");
    if (!endpoint_is_host(text + bracket, len - 2 * bracket) || len >= ENDPOINT_HOST_MAX)
        return ddp_fail(err, DDP_ERR_ARG,
                        "a name or an address of letters, digits and the characters '.-_:%%'");
    snprintf(to, ENDPOINT_HOST_MAX, "%.*s", (int)(len - 2 * bracket), text + bracket);
    return DDP_OK;
}

/* Parse the timeout of hangs. The minimum is 1 s, because a sample of the stacks may take 1 s. */
static ddp_status value_HANG_TIMEOUT(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    if (options_word(&words[OPT_HANG_TIMEOUT], text) >= 0)
        *ms = CLI_HANG_OFF;
    else if (!read_duration(text, ms) || *ms < HANG_TIMEOUT_MIN_MS)
        return ddp_fail(err, DDP_ERR_ARG, "'off' or a time of at least %dms, such as 90s",
                        HANG_TIMEOUT_MIN_MS);
    return DDP_OK;
}

/* Parse the timeout of nodes. A node sends a heartbeat every third of this time. With a shorter timeout, the store
 * would treat a node on a busy machine as lost. */
static ddp_status value_NODE_TIMEOUT(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    if (options_word(&words[OPT_NODE_TIMEOUT], text) >= 0)
        *ms = FAST_MS;
    else if (!read_duration(text, ms) || *ms < NODE_TIMEOUT_MIN_MS)
        return ddp_fail(err, DDP_ERR_ARG, "'fast' (1.5s) or a time of at least %dms, such as 3s",
                        NODE_TIMEOUT_MIN_MS);
    return DDP_OK;
}

/* --- --rdzv_conf ---------------------------------------------------------------------------------------- */

static bool conf_join(struct cli_rdzv_conf *conf, const char *value)
{
    return read_duration(value, &conf->join_ms) && conf->join_ms > 0;
}

static bool conf_last_call(struct cli_rdzv_conf *conf, const char *value)
{
    return read_duration(value, &conf->last_call_ms) && conf->last_call_ms > 0;
}

/* Parse keep_alive_interval, the time between two heartbeats. Without --node_timeout, the node timeout is this time
 * multiplied by keep_alive_max_attempt (plan.c). */
static bool conf_keep_alive(struct cli_rdzv_conf *conf, const char *value)
{
    return read_duration(value, &conf->keep_alive_ms) && conf->keep_alive_ms > 0;
}

static bool conf_attempts(struct cli_rdzv_conf *conf, const char *value)
{
    return read_whole_number(value, 1, CLI_COUNT_MAX, &conf->keep_alive_attempts);
}

/* The words that torchrun accepts as a boolean value. The first five words mean yes. The other words mean no. */
static const struct option_words yes_and_no =
    OPTION_WORDS(NULL, "1", "true", "t", "yes", "y", "0", "false", "f", "no", "n");

static bool conf_is_host(struct cli_rdzv_conf *conf, const char *value)
{
    const int word = options_word(&yes_and_no, value);
    conf->is_host = word < 5 ? HOST_STORE_YES : HOST_STORE_NO;
    return word >= 0;
}

/* Accept "tcp" only, because ddprun does not support a store in a file. */
static bool conf_tcp(struct cli_rdzv_conf *conf, const char *value)
{
    (void)conf;
    return strcmp(value, "tcp") == 0;
}

/* The keys of --rdzv_conf. If `parse` is NULL, the key has no effect; `idle` has the reason. */
static const struct {
    const char *key;
    bool (*parse)(struct cli_rdzv_conf *conf, const char *value);
    const char *right; /* the valid form of a value */
    const char *idle;
} conf_rows[] = {
    { "join_timeout", conf_join, "a time above 0, such as 600 (seconds) or 10m", NULL },
    { "timeout", conf_join, "a time above 0, such as 600 (seconds) or 10m", NULL },
    { "last_call_timeout", conf_last_call, "a time above 0, such as 600 (seconds) or 10m", NULL },
    { "keep_alive_interval", conf_keep_alive, "a time above 0, such as 600 (seconds) or 10m", NULL },
    { "keep_alive_max_attempt", conf_attempts, "a number from 1 to 10000", NULL },
    { "is_host", conf_is_host, "true or false", NULL },
    { "store_type", conf_tcp, "tcp, because ddprun does not support a store in a file", NULL },
    { "close_timeout", NULL, NULL, "ddprun closes its rendezvous without waiting" },
    { "heartbeat_timeout", NULL, NULL, "use --node_timeout" },
    { "read_timeout", NULL, NULL, "use --node_timeout" },
};
enum { CONF_ROWS = sizeof(conf_rows) / sizeof(conf_rows[0]) };

/* Report an unknown key, and list all known keys. */
static ddp_status unknown_key(struct cli_rdzv_conf *conf, const char *key, struct ddp_err *err)
{
    snprintf(conf->unknown, sizeof(conf->unknown), "%s", key);
    if (conf->lenient)
        return DDP_OK;
    char list[300] = "";
    for (size_t i = 0; i < CONF_ROWS; i++)
        options_list_add(list, sizeof(list), i + 1 == CONF_ROWS, "'%s'", conf_rows[i].key);
    return ddp_fail(err, DDP_ERR_ARG, "the key %s, not '%s'", list, key);
}

static ddp_status set_key(struct cli_rdzv_conf *conf, const char *key, const char *value, struct ddp_err *err)
{
    size_t i = 0;
    while (i < CONF_ROWS && strcmp(key, conf_rows[i].key) != 0)
        i++;
    if (i == CONF_ROWS)
        return unknown_key(conf, key, err);
    if (conf_rows[i].parse == NULL) {
        conf->idle = conf_rows[i].key;
        conf->idle_why = conf_rows[i].idle;
    } else if (!conf_rows[i].parse(conf, value)) {
        return ddp_fail(err, DDP_ERR_ARG, "%s=VALUE, where VALUE is %s", key, conf_rows[i].right);
    }
    return DDP_OK;
}

/* Copy `len` bytes without the blanks at both ends. Return false if `to` is too small. */
static bool trim(const char *from, size_t len, char *to, size_t size)
{
    for (; len > 0 && *from == ' '; len--)
        from++;
    while (len > 0 && from[len - 1] == ' ')
        len--;
    return len < size && snprintf(to, size, "%.*s", (int)len, from) >= 0;
}

/* Parse one "KEY=VALUE" of `len` bytes; blanks around key and value are ignored, as in torchrun. */
static ddp_status read_item(struct cli_rdzv_conf *conf, const char *item, size_t len, struct ddp_err *err)
{
    char key[CLI_CONF_KEY_MAX], value[CONF_VALUE_MAX];
    const char *equals = memchr(item, '=', len);
    const size_t key_len = equals != NULL ? (size_t)(equals - item) : 0;
    if (equals == NULL || !trim(item, key_len, key, sizeof(key)) || key[0] == '\0' ||
        !trim(equals + 1, len - key_len - 1, value, sizeof(value)) || value[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "KEY=VALUE,... such as join_timeout=600,last_call_timeout=30");
    return set_key(conf, key, value, err);
}

static ddp_status value_RDZV_CONF(const char *text, void *to, struct ddp_err *err)
{
    struct cli_rdzv_conf *field = to, conf = { .lenient = field->lenient };
    ddp_status status = DDP_OK;
    text += strspn(text, " ");
    while (*text != '\0' && status == DDP_OK) {
        const size_t len = strcspn(text, ",");
        status = read_item(&conf, text, len, err);
        text += len + (text[len] == ',');
    }
    if (status == DDP_OK)
        *field = conf;
    return status;
}

/* --- cli torchrun values ---------------------------------------------------------------------------------- */

/* Parsers of options that exist because torchrun has them. base/options.h describes the results of a parser.
 *
 * There are three kinds of such options. Options such as --role have the same effect as in torchrun. Options such as
 * --start_method concern only the implementation of torchrun: ddprun checks and ignores their values. The value of an
 * option such as --logs_specs is the name of Python code, which ddprun cannot load. For the options of this third kind,
 * every value except the default is an error, and the error names a replacement. */

enum { ROLE_MAX = 128 };

/* Parse a role. Control characters are invalid, because the role is printed in prefixes and reports. */
static ddp_status value_ROLE(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    const size_t len = strlen(text);
    bool bad = len > ROLE_MAX;
    for (size_t i = 0; i < len; i++)
        bad = bad || iscntrl((unsigned char)text[i]) != 0;
    if (bad)
        return ddp_fail(err, DDP_ERR_ARG, "at most %d characters, and no control characters", ROLE_MAX);
    *field = text;
    return DDP_OK;
}

/* Parse words that are separated by commas. A double comma is a comma within a word. One allocation contains the
 * pointers, followed by the texts. */
static ddp_status value_FILTERS(const char *text, void *to, struct ddp_err *err)
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

/* Parse whole seconds, the only form that torchrun accepts. */
static ddp_status value_SECONDS(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    int seconds;
    if (!read_whole_number(text, 0, 31536000, &seconds))
        return ddp_fail(err, DDP_ERR_ARG, "whole seconds, 0 or more");
    *ms = (uint64_t)seconds * 1000;
    return DDP_OK;
}

static ddp_status value_INTERVAL(const char *text, void *to, struct ddp_err *err)
{
    const char **field = to;
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return ddp_fail(err, DDP_ERR_ARG, "seconds, such as 0.1");
    *field = text;
    return DDP_OK;
}

/* --- the rows ------------------------------------------------------------------------------------------- */

#define value_WORD NULL, .type = OPTION_WORD
#define value_NAME NULL, .type = OPTION_NAME

const struct option_row cli_rows[OPTIONS] = {
#define X(id, option_name, option_letter, kind, field, value_name, default_text, pet, whose, section, \
          help_text)                                                                                  \
    { .name = option_name,                                                                            \
      .letter = option_letter,                                                                        \
      .value = value_name,                                                                            \
      .parse = value_##kind,                                                                          \
      .at = offsetof(struct cli, field),                                                              \
      .preset = default_text,                                                                         \
      .words = &words[OPT_##id],                                                                      \
      .group = SECTION_##section,                                                                     \
      .rank = WHOSE_##whose,                                                                          \
      .in_environment = pet,                                                                          \
      .help = help_text },
    DDPRUN_OPTIONS(X)
#undef X
};

const struct option_table cli_table = { cli_rows, OPTIONS, OPTIONS_ARGPARSE };

/* cli_nodes.c -- the values of the options about several nodes; see cli_table.h for what a parser returns.
 *
 * The keys of --rdzv_conf are torchrun's. A row says where its value goes, or why it has nothing to do here: a
 * script that comes from torchrun goes on working, and its user reads which words of it are idle. A key that
 * torchrun does not have either is an error, because it is a slip of the finger; called torchrun we pass it over with a
 * note, as torchrun does without one. */
#include "cli/cli_table.h"

#include <stdio.h>
#include <string.h>

enum { CONF_VALUE_MAX = 256, FAST_MS = 1500, NODE_TIMEOUT_MIN_MS = 500 };

/* The part before or after the colon of MIN:MAX. */
static bool nodes_part(const char *text, size_t len, int *to)
{
    char part[16];
    if (len >= sizeof(part))
        return false;
    memcpy(part, text, len);
    part[len] = '\0';
    return cli_whole_number(part, 1, CLI_NODES_MAX, to);
}

/* Written only when both parts are right: what the option was before must stay when it is not. */
ddp_status cli_value_NNODES(const char *text, void *to, struct ddp_err *err)
{
    struct cli_nnodes *nodes = to, read;
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    const char *last = colon != NULL ? colon + 1 : text;
    if (!nodes_part(text, len, &read.min) || !nodes_part(last, strlen(last), &read.max) ||
        read.min > read.max)
        return ddp_fail(err, DDP_ERR_ARG, "N or MIN:MAX, with 1 <= MIN <= MAX <= %d", CLI_NODES_MAX);
    *nodes = read;
    return DDP_OK;
}

/* torchrun's etcd backends are refused rather than passed over: a user who names one has a server that
 * would not be asked. */
ddp_status cli_value_BACKEND(const char *text, void *to, struct ddp_err *err)
{
    enum rdzv_backend *backend = to;
    const int word = cli_word_of(KIND_BACKEND, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'static' or 'c10d'; etcd is not needed and torchrun's plug-ins are Python: ddprun "
                        "brings its own store for both, in a node or in ddp-rendezvous");
    *backend = (enum rdzv_backend)word;
    return DDP_OK;
}

/* No port is -1, because 0 is one: any. */
ddp_status cli_value_ENDPOINT(const char *text, void *to, struct ddp_err *err)
{
    struct ddp_err why;
    struct endpoint *field = to, read;
    if (endpoint_parse(text, -1, &read, &why) != DDP_OK)
        return ddp_fail(err, DDP_ERR_ARG, "HOST, HOST:PORT or [IPv6 address]:PORT (%.300s)", why.msg);
    if (read.host[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "HOST or HOST:PORT; the host is missing");
    *field = read;
    return DDP_OK;
}

/* "h:29500" or "[::1]:29500"; several colons without brackets are an address. */
static bool has_port(const char *text)
{
    const char *colon = strchr(text, ':');
    return text[0] == '[' ? text[strlen(text) - 1] != ']' : colon != NULL && strchr(colon + 1, ':') == NULL;
}

/* torchrun wants brackets around an IPv6 address here, too; without them it is one as well. A port would be looked up as
 * part of the name until the time is up. */
ddp_status cli_value_HOST(const char *text, void *to, struct ddp_err *err)
{
    const size_t len = strlen(text), bracket = len > 2 && text[0] == '[' && text[len - 1] == ']';
    if (len == 0 || len >= ENDPOINT_HOST_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "a name or an address, not empty");
    if (has_port(text))
        return ddp_fail(err, DDP_ERR_ARG,
                        "a name or an address alone; a port has an option of its own (--master_port), or "
                        "both go into --rdzv_endpoint=HOST:PORT");
    snprintf(to, ENDPOINT_HOST_MAX, "%.*s", (int)(len - 2 * bracket), text + bracket);
    return DDP_OK;
}

ddp_status cli_value_HOST_STORE(const char *text, void *to, struct ddp_err *err)
{
    enum host_store *host = to;
    const int word = cli_word_of(KIND_HOST_STORE, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'yes', 'no' or 'auto'");
    *host = (enum host_store)word;
    return DDP_OK;
}

ddp_status cli_value_TORCH_STORE(const char *text, void *to, struct ddp_err *err)
{
    enum torch_store *store = to;
    const int word = cli_word_of(KIND_TORCH_STORE, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'launcher', 'rank0' or 'auto'");
    *store = (enum torch_store)word;
    return DDP_OK;
}

ddp_status cli_value_GROW(const char *text, void *to, struct ddp_err *err)
{
    enum grow_policy *grow = to;
    const int word = cli_word_of(KIND_GROW, text);
    if (word < 0)
        return ddp_fail(err, DDP_ERR_ARG, "'agreed', 'now' or 'never'");
    *grow = (enum grow_policy)word;
    return DDP_OK;
}

/* Beats come every third of it; a shorter time than this would call a busy machine dead. */
ddp_status cli_value_NODE_TIMEOUT(const char *text, void *to, struct ddp_err *err)
{
    uint64_t *ms = to;
    if (cli_word_of(KIND_NODE_TIMEOUT, text) >= 0)
        *ms = FAST_MS;
    else if (!cli_duration(text, ms) || *ms < NODE_TIMEOUT_MIN_MS)
        return ddp_fail(err, DDP_ERR_ARG, "'fast' (1.5s) or a time of at least %dms, as 3s",
                        NODE_TIMEOUT_MIN_MS);
    return DDP_OK;
}

/* --- --rdzv_conf ---------------------------------------------------------------------------------------- */

static bool conf_join(struct cli_rdzv_conf *conf, const char *value)
{
    return cli_duration(value, &conf->join_ms) && conf->join_ms > 0;
}

static bool conf_last_call(struct cli_rdzv_conf *conf, const char *value)
{
    return cli_duration(value, &conf->last_call_ms) && conf->last_call_ms > 0;
}

/* With conf_attempts it becomes our --node_timeout, see plan.c. */
static bool conf_keep_alive(struct cli_rdzv_conf *conf, const char *value)
{
    return cli_duration(value, &conf->keep_alive_ms) && conf->keep_alive_ms > 0;
}

static bool conf_attempts(struct cli_rdzv_conf *conf, const char *value)
{
    return cli_whole_number(value, 1, CLI_COUNT_MAX, &conf->keep_alive_attempts);
}

/* torchrun's spellings. */
static bool conf_is_host(struct cli_rdzv_conf *conf, const char *value)
{
    static const char *const words[] = { "1", "true", "t", "yes", "y", "0", "false", "f", "no", "n" };
    const int word = CLI_WORD_IN(value, words);
    conf->is_host = word < 5 ? HOST_STORE_YES : HOST_STORE_NO;
    return word >= 0;
}

/* The one value that is true anyway; a file store would have to be obeyed, and cannot be. */
static bool conf_tcp(struct cli_rdzv_conf *conf, const char *value)
{
    (void)conf;
    return strcmp(value, "tcp") == 0;
}

/* A row without a parser is idle, and says why. */
static const struct {
    const char *key;
    bool (*parse)(struct cli_rdzv_conf *conf, const char *value);
    const char *right; /* what a value looks like */
    const char *idle;
} conf_rows[] = {
    { "join_timeout", conf_join, "seconds above 0", NULL },
    { "timeout", conf_join, "seconds above 0", NULL },
    { "last_call_timeout", conf_last_call, "seconds above 0", NULL },
    { "keep_alive_interval", conf_keep_alive, "seconds above 0", NULL },
    { "keep_alive_max_attempt", conf_attempts, "a number from 1 to 10000", NULL },
    { "is_host", conf_is_host, "true or false", NULL },
    { "store_type", conf_tcp, "tcp (ddprun has no store in a file)", NULL },
    { "close_timeout", NULL, NULL, "a rendezvous of ddprun is closed without waiting" },
    { "heartbeat_timeout", NULL, NULL, "--node_timeout says when a silent node is lost" },
    { "read_timeout", NULL, NULL, "a store that does not answer is lost after --node_timeout" },
};
enum { CONF_ROWS = sizeof(conf_rows) / sizeof(conf_rows[0]) };

/* All keys, for the user who mistyped one. */
static ddp_status unknown_key(struct cli_rdzv_conf *conf, const char *key, struct ddp_err *err)
{
    snprintf(conf->unknown, sizeof(conf->unknown), "%s", key);
    if (conf->lenient)
        return DDP_OK;
    char list[300] = "";
    size_t used = 0;
    for (size_t i = 0; i < CONF_ROWS && used < sizeof(list); i++)
        used +=
            (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", conf_rows[i].key);
    return ddp_fail(err, DDP_ERR_ARG, "KEY=VALUE,...; there is no key '%s', the keys are %s", key, list);
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
        return ddp_fail(err, DDP_ERR_ARG, "%s=... with %s", key, conf_rows[i].right);
    }
    return DDP_OK;
}

/* The `len` bytes without the blanks around them, as a text; false when it has no room. */
static bool trim(const char *from, size_t len, char *to, size_t size)
{
    for (; len > 0 && *from == ' '; len--)
        from++;
    while (len > 0 && from[len - 1] == ' ')
        len--;
    return len < size && snprintf(to, size, "%.*s", (int)len, from) >= 0;
}

/* One "KEY=VALUE" of `len` bytes; blanks around each of the two are left out, as torchrun does. */
static ddp_status read_item(struct cli_rdzv_conf *conf, const char *item, size_t len, struct ddp_err *err)
{
    char key[CLI_CONF_KEY_MAX], value[CONF_VALUE_MAX];
    const char *equals = memchr(item, '=', len);
    const size_t key_len = equals != NULL ? (size_t)(equals - item) : 0;
    if (equals == NULL || !trim(item, key_len, key, sizeof(key)) || key[0] == '\0' ||
        !trim(equals + 1, len - key_len - 1, value, sizeof(value)) || value[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "KEY=VALUE,... as in join_timeout=600,last_call_timeout=30");
    return set_key(conf, key, value, err);
}

ddp_status cli_value_RDZV_CONF(const char *text, void *to, struct ddp_err *err)
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

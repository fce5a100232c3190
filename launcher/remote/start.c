/* start.c -- see start.h. This module encodes messages, builds commands and makes decisions for --hosts. This module
 * starts no process and opens no socket.
 *
 * A user's login shell may be any shell, such as fish or csh. So the command for a host is `sh -c` with one quoted
 * script. */
#include "remote/start.h"

#include "base/text.h"
#include "base/endpoint.h"
#include "tables/text.h"
#include "tables/worker_env.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limits in ms.
 * FIRST_MS: for the first answer of a host; longer than ssh's ConnectTimeout.
 * PROBED_MS: for the answer to the message PROBE. A shorter --timeout lowers this limit.
 * PROBED_LEAST_MS: --timeout does not lower the limit below this value, because the probes take up to 2 s. */
enum {
    FIRST_MS = 60000,
    PROBED_MS = 15000,
    PROBED_LEAST_MS = 4000,
    SHIP_BYTES_PER_MS = 100 /* --ship: speed of the slowest connection that the time limit permits */
};

/* --- messages --------------------------------------------------------------------------------------------- */

static const struct {
    uint8_t type;
    uint32_t limit;
} messages[REMOTE_MESSAGE_KINDS] = {
#define X(id, type, limit, ...) [REMOTE_##id] = { type, limit },
    REMOTE_MESSAGES(X) REMOTE_FILE_MESSAGES(X) REMOTE_TREE_MESSAGES(X)
#undef X
};

bool remote_encode(struct buf *out, enum remote_message kind, struct slice body)
{
    const size_t n = body.len;
    const uint8_t header[REMOTE_HEADER_BYTES] = { messages[kind].type, (uint8_t)(n >> 24), (uint8_t)(n >> 16),
                                                  (uint8_t)(n >> 8), (uint8_t)n };
    return n <= messages[kind].limit && buf_append(out, header, sizeof(header)) &&
           (n == 0 || buf_append(out, body.data, n));
}

bool remote_encode_end(const char *host, const struct finding *f, bool stops, struct buf *out)
{
    struct news news = { .ends = true, .stops = stops };
    snprintf(news.host, sizeof(news.host), "%.60s", host);
    snprintf(news.code, sizeof(news.code), "%s", finding_code_name(f->code));
    snprintf(news.sentence, sizeof(news.sentence), "%s", f->sentence);
    snprintf(news.advice, sizeof(news.advice), "%s", f->advice);
    return encode_news(&news, out);
}

int remote_decode(struct slice in, enum remote_message *kind, struct slice *body, size_t *size)
{
    const uint8_t *at = in.data;
    int row = 0;
    if (in.len < REMOTE_HEADER_BYTES)
        return 0;
    const uint32_t len =
        (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | (uint32_t)at[4];
    while (row < REMOTE_MESSAGE_KINDS && messages[row].type != at[0])
        row++;
    if (row == REMOTE_MESSAGE_KINDS || len > messages[row].limit)
        return -1;
    if (in.len - REMOTE_HEADER_BYTES < len)
        return 0;
    *kind = (enum remote_message)row;
    *body = slice_of(at + REMOTE_HEADER_BYTES, len);
    *size = REMOTE_HEADER_BYTES + len;
    return 1;
}

static const char *const news_words[REMOTE_ANSWERS] = { "here", "reached", "ended",  "files",
                                                        "room", "failed",  "finding" };

bool remote_print_answer(const struct remote_answer *answer, struct buf *out)
{
    return buf_printf(out, REMOTE_ANSWER "%s %s %d %s %s\n", news_words[answer->news], answer->version,
                      answer->port, answer->token, answer->addresses);
}

bool remote_parse_answer(struct slice line, struct remote_answer *out)
{
    char text[REMOTE_LINE_MAX], word[8], port[8];
    const size_t mark = strlen(REMOTE_ANSWER);
    const char *begin = line.data, *end = begin + line.len, *at = memrchr(begin, REMOTE_ANSWER[0], line.len);
    int used = 0;
    *out = (struct remote_answer){ 0 };
    if (at == NULL || (size_t)(end - at) <= mark || (size_t)(end - at) >= sizeof(text) ||
        memcmp(at, REMOTE_ANSWER, mark) != 0 || memchr(at, '\0', (size_t)(end - at)) != NULL)
        return false;
    out->before = (size_t)(at - begin);
    snprintf(text, sizeof(text), "%.*s", (int)((size_t)(end - at) - mark), at + mark);
    if (sscanf(text, "%7s %31s %7s %32s %n", word, out->version, port, out->token, &used) != 4 || used == 0)
        return false;
    while (out->news < REMOTE_ANSWERS && strcmp(word, news_words[out->news]) != 0)
        out->news++;
    out->port = atoi(port);
    snprintf(out->addresses, sizeof(out->addresses), "%s", text + used);
    return out->news < REMOTE_ANSWERS && out->port >= 0 && out->port <= 65535;
}

/* Return the number of bytes at the end of `text` that may be the beginning of an incomplete `mark`. */
static size_t count_begun(struct slice text, const char *mark)
{
    size_t n = strlen(mark) - 1;
    n = n < text.len ? n : text.len;
    while (n > 0 && memcmp((const char *)text.data + text.len - n, mark, n) != 0)
        n--;
    return n;
}

/* Process an answer ROOM, FILES or FINDING in the job's output; remote_split describes the results. Return false for
 * any other line, which then stays in the output. A line with a wrong token is output of the job, because the relay
 * sends only the right token. */
static bool process_inside(const struct remote_answer *answer, const char *token, uint64_t *taken,
                           struct buf *findings, int *files)
{
    if (strcmp(answer->token, token) != 0 || answer->before != 0)
        return false;
    if (answer->news == REMOTE_ROOM)
        *taken = strtoull(answer->addresses, NULL, 10);
    if (answer->news == REMOTE_FILES)
        *files = answer->port;
    return answer->news == REMOTE_ROOM || answer->news == REMOTE_FILES ||
           (answer->news == REMOTE_FINDING && buf_printf(findings, "%s\n", answer->addresses));
}

bool remote_split(struct buf *held, const char *token, struct buf *out, uint64_t *taken, struct buf *findings,
                  int *files)
{
    static const char mark[] = REMOTE_ANSWER;
    enum { LONGEST = REMOTE_INSIDE_MAX };
    struct remote_answer answer;
    size_t done = 0;
    bool ok = true;
    while (ok && *files < 0 && done < held->len) {
        const uint8_t *from = held->data + done, *end = held->data + held->len;
        const uint8_t *at = memmem(from, held->len - done, mark, strlen(mark));
        if (at == NULL)
            at = end - count_begun(slice_of(from, held->len - done), mark);
        ok = buf_append(out, from, (size_t)(at - from));
        done += (size_t)(at - from);
        const size_t rest = (size_t)(end - at);
        const uint8_t *newline = memchr(at, '\n', rest < LONGEST ? rest : LONGEST);
        if (newline == NULL && rest < LONGEST)
            break;
        if (newline != NULL && remote_parse_answer(slice_of(at, (size_t)(newline - at)), &answer) &&
            process_inside(&answer, token, taken, findings, files)) {
            done += (size_t)(newline + 1 - at);
        } else {
            ok = ok && buf_append(out, at, 1);
            done++;
        }
    }
    buf_consume(held, done);
    return ok;
}

/* --- the command for a host --------------------------------------------------------------------------------- */

/* Return the host's name without "USER@". */
static const char *bare_name(const struct host_spec *host)
{
    const char *at = strchr(host->name, '@');
    return at != NULL ? at + 1 : host->name;
}

/* Return true if the starter runs on this host. Return false for a host with a port, because the port may lead to a
 * container or to a tunnel. */
static bool is_this_host(const struct start_facts *f, const struct host_spec *host)
{
    if (host->port > 0)
        return false;
    return strcmp(host->name, "localhost") == 0 || strcmp(host->name, f->host) == 0;
}

/* Append the script that finds ddprun on the host: in the virtual environment, at the path of this ddprun, or in
 * PATH. */
static bool append_script(const struct start_facts *f, struct buf *out)
{
    const char *venv = env_find(f->environ_block, "VIRTUAL_ENV");
    struct buf in_venv = { 0 };
    bool ok = buf_printf(out, "for p in ");
    if (venv != NULL)
        ok = ok && buf_printf(&in_venv, "%s/bin/ddprun", venv) && buf_append(&in_venv, "", 1) &&
             shell_word(out, (const char *)in_venv.data) && buf_printf(out, " ");
    ok = ok && shell_word(out, f->program) &&
         buf_printf(out, "; do if test -x \"$p\"; then exec \"$p\" --relay; fi; done; exec ddprun --relay");
    buf_free(&in_venv);
    return ok;
}

bool start_ships(const struct start_facts *f, const struct host_spec *host)
{
    return f->ship.len > 0 && !is_this_host(f, host);
}

uint64_t start_limit_ms(const struct start_facts *f, const struct host_spec *host, bool is_probe)
{
    const uint64_t limit_ms =
        is_probe ? PROBED_MS : FIRST_MS + (start_ships(f, host) ? f->ship.len / SHIP_BYTES_PER_MS : 0);
    const uint64_t least_ms = is_probe ? PROBED_LEAST_MS : 0;
    const uint64_t asked_ms = f->cli->timeout_ms; /* 0 without --timeout */
    if (asked_ms == 0 || asked_ms >= limit_ms)
        return limit_ms;
    return asked_ms > least_ms ? asked_ms : least_ms;
}

/* Append the script that reads the program of --ship from stdin and executes it. The script creates a directory with
 * mode 0700 where programs can be executed and all bytes fit: below XDG_RUNTIME_DIR, /run/user/UID or /tmp. The script
 * opens two files there: descriptor 3 for the program, and SHIPPED_LIBRARY_FD for the library. The script removes both
 * files and the directory before it writes to the files. So no file remains if ssh, the shell or the host fails. A
 * file that is open for writing cannot be executed, so the script then opens the files again, only for reading. */
static bool append_ship_script(const struct start_facts *f, struct buf *out)
{
    return buf_printf(
        out,
        "m=$(uname -m); if test \"$m\" != %s; then echo \"$m cannot run a ddprun for %s\" >&2; exit 3; fi; "
        "umask 077; d=; trap 'rm -rf \"$d\"' EXIT; trap 'exit 5' HUP INT TERM; "
        "for r in \"$XDG_RUNTIME_DIR\" \"/run/user/$(id -u)\" /tmp; do "
        "if test -d \"$r\" && { test -O \"$r\" || test -k \"$r\"; } && d=$(mktemp -d "
        "\"$r/ddprun-ship.XXXXXX\" 2>/dev/null); then "
        "if head -c %zu /dev/zero 2>/dev/null >\"$d/t\" && echo : >\"$d/t\" && chmod 700 "
        "\"$d/t\" && \"$d/t\" </dev/null; then break; fi; rm -rf \"$d\"; "
        "d=; fi; done; "
        "if test -z \"$d\"; then echo 'no directory can hold the ddprun of --ship: XDG_RUNTIME_DIR, "
        "/run/user/UID and /tmp are missing, full or noexec; free space in /tmp, or install ddprun on this "
        "host' >&2; exit 4; fi; "
        "exec 3>\"$d/ddprun\" 4>\"$d/library\"; chmod 700 \"$d/ddprun\"; rm -rf \"$d\"; d=; "
        "head -c %zu >&3 && test $(wc -c </proc/self/fd/3) -eq %zu && "
        "tail -c %zu /proc/self/fd/3 >&4 || exit 6; "
        "exec 3</proc/self/fd/3 4</proc/self/fd/4; exec /proc/self/fd/3 --relay",
        f->machine, f->machine, f->ship.len + f->ship_library, f->ship.len, f->ship.len, f->ship_library);
}

/* Append a word to the NULL-terminated array *argv, which has *n words. */
static bool add_word(char ***argv, int *n, const char *word)
{
    char **grown = realloc(*argv, (size_t)(*n + 2) * sizeof(*grown));
    if (grown == NULL)
        return false;
    *argv = grown;
    grown[*n] = strdup(word);
    grown[*n + 1] = NULL;
    return grown[(*n)++] != NULL;
}

/* Return true if `program` is the first word of --remote_shell, with or without a directory. */
static bool shell_is(const char *shell, const char *program)
{
    shell += strspn(shell, " ");
    size_t len = strcspn(shell, " ");
    const char *slash = memrchr(shell, '/', len);
    if (slash != NULL)
        len -= (size_t)(slash + 1 - shell), shell = slash + 1;
    return len == strlen(program) && memcmp(shell, program, len) == 0;
}

/* The remote shells to which ddprun adds options. ssh passes the command to a login shell. srun executes the command
 * itself. */
enum known_shell { SHELL_SSH, SHELL_SRUN, KNOWN_SHELLS };

static const struct known_shell_row {
    const char *program;
    const char *options[8];
} known_shells[KNOWN_SHELLS] = {
    [SHELL_SSH] = { "ssh",
                    { "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                      "ServerAliveCountMax=2" } },
    [SHELL_SRUN] = { "srun", { "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet" } },
};

static enum known_shell find_shell(const char *shell)
{
    int known = 0;
    while (known < KNOWN_SHELLS && !shell_is(shell, known_shells[known].program))
        known++;
    return (enum known_shell)known;
}

bool start_by_srun(const struct cli *cli)
{
    return find_shell(cli->remote_shell) == SHELL_SRUN;
}

/* Add the words of --remote_shell, which are separated by blanks. Then add the options that ddprun sets for this shell.
 * The host's port precedes a port in --remote_shell, because ssh uses the first port of its command line.
 *
 * The last option is the interval at which ssh checks the connection. ssh ends after three intervals without a byte
 * from the host. So the interval is a third of the node timeout. The interval is at least 3 s, because a busy host may
 * answer ssh only after some seconds. */
static bool add_shell(char ***argv, int *n, const struct cli *cli, int port)
{
    const enum known_shell known = find_shell(cli->remote_shell);
    const uint64_t third_s = cli->node_timeout_ms / 3000;
    char *copy = strdup(cli->remote_shell), *rest, number[16], interval[48];
    bool ok = copy != NULL;
    snprintf(number, sizeof(number), "-p%d", port);
    snprintf(interval, sizeof(interval), "ServerAliveInterval=%" PRIu64, third_s > 3 ? third_s : 3);
    for (char *word = ok ? strtok_r(copy, " ", &rest) : NULL; ok && word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        ok = add_word(argv, n, word);
        if (*n == 1 && known == SHELL_SSH && port > 0)
            ok = ok && add_word(argv, n, number);
    }
    for (int i = 0; ok && known < KNOWN_SHELLS && known_shells[known].options[i] != NULL; i++)
        ok = add_word(argv, n, known_shells[known].options[i]);
    if (known == SHELL_SSH)
        ok = ok && add_word(argv, n, "-o") && add_word(argv, n, interval);
    free(copy);
    return ok;
}

static bool add_host_and_script(char ***argv, int *n, const struct start_facts *f,
                                const struct host_spec *host, const char *script)
{
    char node[HOST_NAME_SIZE + 16];
    struct buf line = { 0 };
    bool ok;
    if (start_by_srun(f->cli)) {
        snprintf(node, sizeof(node), "--nodelist=%s", bare_name(host));
        return add_word(argv, n, node) && add_word(argv, n, "sh") && add_word(argv, n, "-c") &&
               add_word(argv, n, script);
    }
    ok = buf_printf(&line, "sh -c ") && shell_word(&line, script) && buf_append(&line, "", 1) &&
         add_word(argv, n, host->name) && add_word(argv, n, (const char *)line.data);
    buf_free(&line);
    return ok;
}

int start_readers(const struct cli *cli, const struct host_spec *hosts, int n, bool *reads)
{
    const int highest = rank_set_highest(&cli->input.ranks);
    bool known = true;
    int first = 0;
    for (int i = 0; i < n; i++) {
        const bool counted = hosts[i].count[0] != '\0';
        const int workers = counted ? hosts[i].slots : cli->nproc.kind == NPROC_NUMBER ? cli->nproc.count : 0;
        known = known && workers > 0;
        reads[i] = cli->input.all;
        for (int r = first; r <= highest && !(known && r >= first + workers); r++)
            reads[i] = reads[i] || rank_set_has(&cli->input.ranks, r);
        first += workers > 0 ? workers : 1; /* count an unknown number of workers as 1, the minimum */
    }
    return known ? first : 0;
}

/* Reject a rank in --stdin that does not exist, because the input for this rank would be lost. */
static ddp_status check_readers(const struct cli *cli, const struct host_spec *hosts, int n,
                                struct ddp_err *err)
{
    bool *reads = calloc((size_t)n, sizeof(*reads));
    const int highest = rank_set_highest(&cli->input.ranks);
    const int size = reads != NULL ? start_readers(cli, hosts, n, reads) : 0;
    free(reads);
    if (size == 0 || highest < size)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--stdin: rank %d does not exist; list only ranks up to %d, the highest rank of these hosts", highest,
        size - 1);
}

ddp_status start_check(const struct cli *cli, const struct host_spec *hosts, int n, struct ddp_err *err)
{
    if (cli_gives(cli, OPT_SSH_FANOUT) && cli->ssh_fanout > 0 && start_by_srun(cli))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--ssh_fanout: cannot be used with --remote_shell=srun: srun itself starts the hosts as a "
            "tree; leave out --ssh_fanout");
    for (int i = 0; i < n; i++) {
        if (cli_gives(cli, OPT_NPROC_PER_NODE) && hosts[i].count[0] != '\0')
            return ddp_fail(err, DDP_ERR_ARG,
                            "--nproc_per_node: cannot be used, because the list of hosts already sets the "
                            "number of workers (host %.64s: %s); leave out --nproc_per_node, or the numbers "
                            "in the list",
                            hosts[i].name, hosts[i].count);
        if (hosts[i].port > 0 && find_shell(cli->remote_shell) != SHELL_SSH)
            return ddp_fail(err, DDP_ERR_ARG,
                            "host %.64s: port %d: ddprun can pass a port only to ssh; remove the port "
                            "from the list, and set the port in --remote_shell (now '%.200s')",
                            hosts[i].name, hosts[i].port, cli->remote_shell);
    }
    return check_readers(cli, hosts, n, err);
}

/* Build the tree level by level. The hosts of a level have consecutive indexes. Each level has `fanout` times as many
 * hosts as the level above. */
void start_tree(const struct start_facts *f, const struct host_spec *hosts, int n, int *above)
{
    const bool given = cli_gives(f->cli, OPT_SSH_FANOUT);
    const bool grows = given || (n >= START_TREE_MIN && !start_by_srun(f->cli));
    const long fanout = !grows ? n : given ? f->cli->ssh_fanout : START_FANOUT;
    /* `begin` is the first host of the level of host i, and `size` is the number of hosts in this level */
    long begin = 0, size = fanout > 0 ? fanout : n;
    /* `before` and `size_before` describe the level above in the same way. The values -1 and 1 mean that the starter is
     * the level above */
    long before = -1, size_before = 1;
    for (int i = 0; i < n; i++) {
        if (i == begin + size) {
            before = begin, size_before = size;
            begin += size;
            size = size * fanout < n ? size * fanout : n;
        }
        above[i] = before < 0 || is_this_host(f, &hosts[i]) ? -1 : (int)(before + (i - begin) % size_before);
    }
}

ddp_status start_command(const struct start_facts *f, const struct host_spec *host, char ***argv,
                         struct ddp_err *err)
{
    struct buf script = { 0 };
    int n = 0;
    bool ok;
    *argv = NULL;
    if (is_this_host(f, host))
        ok = add_word(argv, &n, f->program) && add_word(argv, &n, "--relay");
    else
        ok = (start_ships(f, host) ? append_ship_script(f, &script) : append_script(f, &script)) &&
             buf_append(&script, "", 1) && add_shell(argv, &n, f->cli, host->port) &&
             add_host_and_script(argv, &n, f, host, (const char *)script.data);
    buf_free(&script);
    if (ok)
        return DDP_OK;
    start_free(*argv);
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the command of %.64s", host->name);
}

void start_free(char **argv)
{
    for (char **at = argv; at != NULL && *at != NULL; at++)
        free(*at);
    free(argv);
}

/* --- the job ------------------------------------------------------------------------------------------------- */

/* The variables that every host gets. A name that ends in '*' is a prefix. */
static const char *const carried[] = { "PATH",       "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX",
                                       "PYTHONPATH", "NCCL_*",          "UCX_*",       "OMP_*",
                                       "TORCH_*",    "DDP_*",           "PET_*" };

static bool is_carried(const struct cli *cli, const char *variable)
{
    for (size_t i = 0; i < cli->env.n_names; i++) {
        const size_t len = strlen(cli->env.names[i]);
        if (strncmp(variable, cli->env.names[i], len) == 0 && variable[len] == '=')
            return true;
    }
    for (size_t i = 0; i < sizeof(carried) / sizeof(carried[0]); i++) {
        const size_t len = strlen(carried[i]);
        const bool prefix = carried[i][len - 1] == '*';
        if (strncmp(variable, carried[i], len - prefix) == 0 && (prefix || variable[len] == '='))
            return true;
    }
    return false;
}

/* Append the options that the starter chooses. The user's options come later and override the starter's options.
 * main.c has already rejected options that contradict --hosts. With --dry_run, m->address is NULL, and the options for
 * the store are left out. */
static bool add_options(cJSON *array, const struct start_facts *f, const struct host_spec *host, int rank,
                        const struct start_meeting *m)
{
    const struct cli *cli = f->cli;
    const bool own_prefix = cli->prefix != PREFIX_AUTO || cli->prefix_template != NULL;
    struct buf out = { 0 };
    bool ok = buf_printf(&out, "--one_console%c--scheduler=none%c", 0, 0);
    if (m->nodes > 1)
        ok = ok && buf_printf(&out, "--nnodes=%d%c--node_rank=%d%c", m->nodes, 0, rank, 0);
    if (m->nodes > 1 && m->address != NULL)
        ok = ok && buf_printf(&out, "--master_addr=%s%c--master_port=%d%c--secret_file=-%c", m->address, 0,
                              m->port, 0, 0);
    if (host->count[0] != '\0')
        ok = ok && buf_printf(&out, "--nproc_per_node=%s%c", host->count, 0);
    if (cli->job == NULL)
        ok = ok && buf_printf(&out, "--rdzv_id=%s%c", f->job, 0);
    if (!own_prefix)
        ok = ok && buf_printf(&out, "--log_line_prefix_template=[%s:${rank}] %c", bare_name(host), 0);
    if (rank > 0 && !cli->verbose)
        ok = ok && buf_printf(&out, "--quiet%c", 0);
    if (f->log_name != NULL)
        ok = ok && buf_printf(&out, "--log_name=%s_node%d%c", f->log_name, rank, 0);
    for (size_t at = 0; ok && at < out.len; at += strlen((const char *)out.data + at) + 1)
        ok = cJSON_AddItemToArray(array, cJSON_CreateString((const char *)out.data + at));
    buf_free(&out);
    return ok;
}

/* Add texts to an array. If `filter` is not NULL, the texts are variables. In this case, add only the variables that
 * every host receives. */
static bool add_texts(cJSON *array, char *const *texts, const struct cli *filter)
{
    bool ok = array != NULL;
    for (; ok && *texts != NULL; texts++)
        if (filter == NULL || is_carried(filter, *texts))
            ok = cJSON_AddItemToArray(array, cJSON_CreateString(*texts));
    return ok;
}

/* Add the variables of the host's ddprun. DDPRUN_TERMINAL is "1" if the starter's stderr is a terminal, otherwise "",
 * which replaces a value that the starter has inherited from another ddprun. */
static bool add_variables(cJSON *array, const struct start_facts *f)
{
    return add_texts(array, f->environ_block, f->cli) &&
           cJSON_AddItemToArray(array,
                                cJSON_CreateString(f->terminal ? "DDPRUN_TERMINAL=1" : "DDPRUN_TERMINAL="));
}

uint64_t start_silent_ms(const struct cli *cli)
{
    const uint64_t least_ms = cli->collect_logs ? REMOTE_SLOW_DISK_MS : 3 * REMOTE_BEAT_MS;
    return cli->node_timeout_ms > least_ms ? cli->node_timeout_ms : least_ms;
}

/* Add the log directory of the node. The relay sends the files in this directory at the end of the job. */
static bool add_collect(cJSON *o, const struct start_facts *f, int rank)
{
    struct buf path = { 0 };
    const bool ok = buf_printf(&path, "%s/%s_node%d", f->cli->log_dir, f->log_name, rank) &&
                    buf_append(&path, "", 1) && json_add_text(o, "collect", (const char *)path.data);
    buf_free(&path);
    return ok;
}

static bool add_limits(cJSON *o, const struct start_facts *f)
{
    bool ok = true;
#define X(id, name, ...) ok = ok && json_add_number(o, name, f->limits[REMOTE_LIMIT_##id]);
    REMOTE_LIMITS(X)
#undef X
    return ok;
}

bool start_job(const struct start_facts *f, const struct host_spec *host, int rank, bool input,
               const struct start_meeting *m, struct buf *out)
{
    cJSON *o = cJSON_CreateObject(), *argv = cJSON_AddArrayToObject(o, "argv");
    bool ok = argv != NULL && json_add_text(o, "directory", f->directory) &&
              json_add_text(o, "log_dir", f->cli->log_dir) && json_add_number(o, "umask", f->umask) &&
              json_add_number(o, "silent_ms", (double)start_silent_ms(f->cli)) &&
              json_add_number(o, "grace_ms", (double)f->cli->grace_ms) && add_limits(o, f) &&
              json_add_bool(o, "quiet", f->cli->quiet) && json_add_bool(o, "input", input) &&
              json_add_text(o, "secret", m->nodes > 1 ? m->secret : "") &&
              cJSON_AddItemToArray(argv, cJSON_CreateString(f->argv[0])) &&
              add_options(argv, f, host, rank, m) && add_texts(argv, f->argv + 1, NULL) &&
              add_variables(cJSON_AddArrayToObject(o, "env"), f) && json_add_text(o, "token", m->token) &&
              (f->log_name == NULL || add_collect(o, f, rank));
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    ok = text != NULL && buf_append(out, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(o);
    return ok;
}

/* --- --dry_run ------------------------------------------------------------------------------------------------ */

/* Append the command line that the relay of a host executes, without --dry_run. */
static bool add_started(cJSON *array, const struct start_facts *f, const struct host_spec *host, int rank,
                        int n)
{
    const struct start_meeting meeting = { .nodes = n };
    bool ok = cJSON_AddItemToArray(array, cJSON_CreateString(f->argv[0])) &&
              add_options(array, f, host, rank, &meeting);
    for (char *const *word = f->argv + 1; ok && *word != NULL; word++)
        if (word + 1 >= f->cli->args || strncmp(*word, "--dry", 5) != 0)
            ok = cJSON_AddItemToArray(array, cJSON_CreateString(*word));
    return ok;
}

/* Append two lines for a host: the command that starts its relay, and the command line that the relay executes. */
static bool add_start_line(struct buf *out, const char *runs_on, char *const *argv, const cJSON *started)
{
    bool ok = runs_on == NULL || buf_printf(out, "%s: ", runs_on);
    const cJSON *text;
    for (char *const *word = argv; ok && *word != NULL; word++)
        ok = (word == argv || buf_printf(out, " ")) && shell_word(out, *word);
    ok = ok && buf_printf(out, "\n    starts:");
    cJSON_ArrayForEach(text, started) ok =
        ok && buf_printf(out, " ") && shell_word(out, cJSON_GetStringValue(text));
    return ok && buf_printf(out, "\n");
}

/* Append the command for a host as an object. "runs_on" is null if the starter itself runs the command. */
static bool add_start_json(cJSON *hosts, const char *name, const char *runs_on, char *const *argv,
                           const cJSON *started)
{
    cJSON *row = cJSON_CreateObject(), *command = NULL;
    bool ok = cJSON_AddItemToArray(hosts, row) && cJSON_AddStringToObject(row, "host", name) != NULL &&
              cJSON_AddItemToObject(row, "runs_on",
                                    runs_on != NULL ? cJSON_CreateString(runs_on) : cJSON_CreateNull()) &&
              (command = cJSON_AddArrayToObject(row, "command")) != NULL;
    for (; ok && *argv != NULL; argv++)
        ok = cJSON_AddItemToArray(command, cJSON_CreateString(*argv));
    return ok && cJSON_AddItemToObject(row, "starts", cJSON_Duplicate(started, true));
}

bool start_print(const struct start_facts *facts, const struct host_spec *hosts, int n, bool as_json,
                 struct buf *out)
{
    struct ddp_err err;
    int *above = calloc((size_t)n, sizeof(*above));
    cJSON *json = as_json ? cJSON_CreateObject() : NULL, *list = cJSON_AddArrayToObject(json, "hosts");
    bool ok = above != NULL && (!as_json || list != NULL);
    if (ok)
        start_tree(facts, hosts, n, above);
    for (int i = 0; ok && i < n; i++) {
        const char *runs_on = above[i] >= 0 ? hosts[above[i]].name : NULL;
        char **argv;
        ok = start_command(facts, &hosts[i], &argv, &err) == DDP_OK;
        if (ok) {
            cJSON *started = cJSON_CreateArray();
            ok = started != NULL && add_started(started, facts, &hosts[i], i, n) &&
                 (as_json ? add_start_json(list, hosts[i].name, runs_on, argv, started)
                          : add_start_line(out, runs_on, argv, started));
            cJSON_Delete(started);
            start_free(argv);
        }
    }
    free(above);
    if (ok && as_json)
        return json_print(out, json, true);
    cJSON_Delete(json);
    return ok;
}

/* --- the store's address --------------------------------------------------------------------------------------- */

static bool has_word(const char *text, const char *word, size_t len)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        if (n == len && memcmp(text, word, len) == 0)
            return true;
        text += n + (text[n] != '\0');
    }
    return false;
}

void start_choose_address(const char *own, const char *const *reached, int n, char address[ENDPOINT_HOST_MAX])
{
    for (const char *at = own; *at != '\0';) {
        const size_t len = strcspn(at, " ");
        int by = 0;
        while (by < n && has_word(reached[by], at, len))
            by++;
        if (by == n && len > 0 && len < ENDPOINT_HOST_MAX) {
            snprintf(address, ENDPOINT_HOST_MAX, "%.*s", (int)len, at);
            return;
        }
        at += len + (at[len] != '\0');
    }
    address[0] = '\0';
}

/* --- names of log files ------------------------------------------------------------------------------------------ */

bool collect_name_is_safe(struct slice name)
{
    const char *at = name.data, *end = at + name.len;
    int parts = 0;
    if (name.len == 0 || name.len > COLLECT_NAME_MAX)
        return false;
    for (const char *c = at; c < end; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    for (; at <= end; parts++) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const size_t len = (size_t)((slash != NULL ? slash : end) - at);
        if (len == 0 || len > NAME_MAX || (len <= 2 && memcmp(at, "..", len) == 0))
            return false;
        at += len + 1;
    }
    return parts <= COLLECT_DEPTH + 1;
}

void collect_folder(int rank, const struct host_spec *host, char folder[COLLECT_FOLDER_MAX])
{
    snprintf(folder, COLLECT_FOLDER_MAX, "node%d_%.64s", rank, bare_name(host));
    for (char *c = folder; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '_';
}

/* --- why a relay did not start ---------------------------------------------------------------------------------- */

enum { START_SHELL_MAX = 224 };
/* Format --remote_shell with the port of the host, for the advice of a finding. Return `out`. */
static const char *start_shell(const struct cli *cli, const struct host_spec *host, char out[START_SHELL_MAX])
{
    const int n = snprintf(out, START_SHELL_MAX, "%.200s", cli->remote_shell);
    if (host->port > 0)
        snprintf(out + n, START_SHELL_MAX - (size_t)n, " -p %d", host->port);
    return out;
}

/* Format the name of a host as known_hosts contains it. Return `out`. */
static const char *known_name(const struct host_spec *host, char out[HOST_NAME_SIZE + 16])
{
    snprintf(out, HOST_NAME_SIZE + 16, host->port > 0 && host->port != 22 ? "\"[%s]:%d\"" : "%s",
             bare_name(host), host->port);
    return out;
}

/* Error texts of OpenSSH, of shells and of strerror. The first row whose exit status and text both match gives the
 * finding. Exit status -1 matches every status, and text "" matches every text. Errors of ssh itself come first,
 * because the stderr of ssh also contains the banner of the host, and a banner may contain the text of a later row by
 * chance. */
static const struct failed_start {
    int exit_code;
    const char *piece;
    enum finding_code code;
} failed_starts[] = {
    { 255, "request failed on channel", FINDING_HOST_BUSY }, /* sshd cannot fork */
    { 255, "exchange_identification", FINDING_HOST_BUSY },   /* sshd accepts no more logins: MaxStartups */
    { 255, "Could not resolve hostname", FINDING_HOST_NOT_REACHED },
    { 255, "Permission denied", FINDING_HOST_REJECTS_LOGIN },
    { 255, "Too many authentication failures", FINDING_HOST_REJECTS_LOGIN },
    { 255, "has changed and you have requested", FINDING_HOST_KEY_DIFFERS },
    { 255, "was revoked and you have requested", FINDING_HOST_KEY_DIFFERS },
    { 255, "HOST IDENTIFICATION HAS CHANGED", FINDING_HOST_KEY_DIFFERS },
    { 255, "Host key verification failed", FINDING_HOST_KEY_UNKNOWN },
    { -1, "No space left on device", FINDING_HOST_DISK_FULL },
    { -1, "Disk quota exceeded", FINDING_HOST_QUOTA_FULL },
    { -1, "Cannot fork", FINDING_HOST_BUSY },
    { -1, "Resource temporarily unavailable", FINDING_HOST_BUSY },
    { -1, "Cannot allocate memory", FINDING_HOST_BUSY },
    { -1, "cannot run a ddprun for", FINDING_HOST_MACHINE_DIFFERS },
    { -1, "error while loading shared libraries", FINDING_HOST_CANNOT_RUN_DDPRUN },
    { -1, "not found (required by", FINDING_HOST_CANNOT_RUN_DDPRUN },
    { -1, "account is currently not available", FINDING_HOST_HAS_NO_SHELL }, /* nologin */
    { 255, "", FINDING_HOST_NOT_REACHED },
    { 127, "", FINDING_HOST_HAS_NO_DDPRUN },
    { -1, "", FINDING_HOST_NOT_READY },
};

static const struct failed_start *find_start(int exit_code, const char *words)
{
    const struct failed_start *row = failed_starts;
    while ((row->exit_code >= 0 && row->exit_code != exit_code) || strstr(words, row->piece) == NULL)
        row++;
    return row;
}

enum finding_code start_code(const char *words)
{
    return find_start(-1, words)->code;
}

/* Return the last line of `text` that contains `piece`. If `piece` is "", return the last line that is not blank.
 * Blanks and the newline at the end of the line are left out. */
static struct slice line_with_piece(const char *text, const char *piece)
{
    size_t end = piece[0] != '\0' ? 0 : strlen(text);
    for (const char *at = text; piece[0] != '\0' && (at = strstr(at, piece)) != NULL; at++)
        end = (size_t)(at - text);
    end += piece[0] != '\0' ? strcspn(text + end, "\n") : 0;
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    return slice_of(text + begin, end - begin);
}

/* Return true if the host `via` could not connect to another host or log in there. The starter may still be able to
 * connect to that other host. */
static bool is_hop(const char *via, const struct failed_start *row)
{
    return via != NULL && (row->code == FINDING_HOST_NOT_REACHED || row->code == FINDING_HOST_REJECTS_LOGIN ||
                           row->code == FINDING_HOST_KEY_UNKNOWN || row->code == FINDING_HOST_KEY_DIFFERS);
}

void start_explain(const struct start_facts *f, const struct host_spec *host, const char *via, int exit_code,
                   const char *words, uint64_t tried_ms, struct finding *out)
{
    const struct failed_start *row = find_start(exit_code, words);
    char text[FINDING_TEXT_MAX / 2], time[TEXT_MS_MAX], tried[TEXT_MS_MAX + 16], status[32],
        shell[START_SHELL_MAX], known[HOST_NAME_SIZE + 16];
    const struct slice line = line_with_piece(words, row->piece);
    snprintf(status, sizeof(status), "exit status %d", exit_code);
    snprintf(tried, sizeof(tried), " (tried for %s)", text_ms(tried_ms, time));
    snprintf(text, sizeof(text), "%.*s", (int)line.len, line.len > 0 ? (const char *)line.data : "");
    text_disarm(text, strlen(text), '\0');
    const bool is_there = row->code == FINDING_HOST_HAS_NO_DDPRUN && start_ships(f, host);
    const enum finding_code code = is_there           ? FINDING_HOST_CANNOT_RUN_DDPRUN
                                   : is_hop(via, row) ? FINDING_HOST_HOP_FAILED
                                                      : row->code;
    finding_make(out, code, host->name, "words", text[0] != '\0' ? text : status, "path", f->program,
                 "remote_shell", start_shell(f->cli, host, shell), "starting_host", via != NULL ? via : "",
                 "known_name", known_name(host, known), "tried", tried, "time", time, NULL);
}

void start_explain_late(const struct start_facts *f, const struct host_spec *host, const char *via,
                        bool is_probe, struct finding *out)
{
    char words[64], shell[START_SHELL_MAX];
    snprintf(words, sizeof(words), "no answer%s within %.10g s", is_probe ? " to the probe" : "",
             (double)start_limit_ms(f, host, is_probe) / 1000);
    finding_make(out, via == NULL ? FINDING_HOST_NOT_REACHED : FINDING_HOST_HOP_FAILED, host->name, "words",
                 words, "remote_shell", start_shell(f->cli, host, shell), "starting_host",
                 via != NULL ? via : "", "tried", "", NULL);
}

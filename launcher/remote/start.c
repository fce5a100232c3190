/* start.c -- see remote.h. Messages, commands and decisions of --hosts, without processes or sockets.
 *
 * The login shell of a host may be of any kind, so the command line for a host is one quoted script for sh. */
#include "remote/remote.h"

#include "base/text.h"
#include "base/endpoint.h"
#include "tables/text.h"
#include "tables/worker_env.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- messages --------------------------------------------------------------------------------------------- */

static const struct {
    uint8_t type;
    uint32_t limit;
} messages[REMOTE_MESSAGE_KINDS] = {
#define X(id, type, limit, ...) [REMOTE_##id] = { type, limit },
    REMOTE_MESSAGES(X) REMOTE_FILE_MESSAGES(X)
#undef X
};

bool remote_put(struct buf *out, enum remote_message kind, struct slice body)
{
    const size_t n = body.len;
    const uint8_t header[REMOTE_HEADER_BYTES] = { messages[kind].type, (uint8_t)(n >> 24), (uint8_t)(n >> 16),
                                                  (uint8_t)(n >> 8), (uint8_t)n };
    return n <= messages[kind].limit && buf_append(out, header, sizeof(header)) &&
           (n == 0 || buf_append(out, body.data, n));
}

int remote_take(struct slice in, enum remote_message *kind, struct slice *body, size_t *size)
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

static const char *const news_words[REMOTE_NEWS] = { "here", "reached", "ended", "files" };

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
    while (out->news < REMOTE_NEWS && strcmp(word, news_words[out->news]) != 0)
        out->news++;
    out->port = atoi(port);
    snprintf(out->addresses, sizeof(out->addresses), "%s", text + used);
    return out->news < REMOTE_NEWS && out->port >= 0 && out->port <= 65535;
}

/* --- the command for a host --------------------------------------------------------------------------------- */

/* Return the host's name without `USER@`. */
static const char *bare_name(const struct host_spec *host)
{
    const char *at = strchr(host->name, '@');
    return at != NULL ? at + 1 : host->name;
}

static bool is_this_host(const struct start_facts *f, const struct host_spec *host)
{
    return strcmp(host->name, "localhost") == 0 || strcmp(host->name, f->host) == 0;
}

/* Append the script that finds ddprun on the host: in the virtual environment, at the path of this ddprun, or in
 * PATH. */
static bool put_script(const struct start_facts *f, struct buf *out)
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

/* Append the words of --remote_shell and, if the program is ssh, options for ssh. */
static bool add_shell(char ***argv, int *n, const char *shell)
{
    static const char *const ssh_options[] = {
        "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"
    };
    char *copy = strdup(shell), *rest;
    bool ok = copy != NULL;
    for (char *word = ok ? strtok_r(copy, " ", &rest) : NULL; ok && word != NULL;
         word = strtok_r(NULL, " ", &rest))
        ok = add_word(argv, n, word);
    const char *program = ok && *n > 0 ? (*argv)[0] : "", *slash = strrchr(program, '/');
    if (strcmp(slash != NULL ? slash + 1 : program, "ssh") == 0)
        for (size_t i = 0; ok && i < sizeof(ssh_options) / sizeof(ssh_options[0]); i++)
            ok = add_word(argv, n, ssh_options[i]);
    free(copy);
    return ok;
}

ddp_status start_command(const struct start_facts *f, const struct host_spec *host, char ***argv,
                         struct ddp_err *err)
{
    struct buf script = { 0 }, line = { 0 };
    int n = 0;
    bool ok;
    *argv = NULL;
    if (is_this_host(f, host)) {
        ok = add_word(argv, &n, f->program) && add_word(argv, &n, "--relay");
    } else {
        ok = put_script(f, &script) && buf_append(&script, "", 1) && buf_printf(&line, "sh -c ") &&
             shell_word(&line, (const char *)script.data) && buf_append(&line, "", 1) &&
             add_shell(argv, &n, f->cli->remote_shell) && add_word(argv, &n, host->name) &&
             add_word(argv, &n, (const char *)line.data);
    }
    buf_free(&script);
    buf_free(&line);
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

/* Variables that every host receives from the starting host. A name that ends in '*' is a prefix. */
static const char *const carried[] = { "PATH",       "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX",
                                       "PYTHONPATH", "NCCL_*",          "UCX_*",       "OMP_*",
                                       "TORCH_*",    "DDP_*",           "PET_*" };

static bool is_carried(const char *variable)
{
    for (size_t i = 0; i < sizeof(carried) / sizeof(carried[0]); i++) {
        const size_t len = strlen(carried[i]);
        const bool prefix = carried[i][len - 1] == '*';
        if (strncmp(variable, carried[i], len - prefix) == 0 && (prefix || variable[len] == '='))
            return true;
    }
    return false;
}

/* Append the options that the starter chooses. The user's options follow and override them. main.c has rejected
 * the user's options that contradict --hosts. */
static bool add_options(cJSON *array, const struct start_facts *f, const struct host_spec *host, int rank,
                        const struct start_meeting *m)
{
    const struct cli *cli = f->cli;
    const bool own_prefix = cli->prefix != PREFIX_AUTO || cli->prefix_template != NULL;
    struct buf out = { 0 };
    bool ok = buf_printf(&out, "--one_console%c--scheduler=none%c", 0, 0);
    if (m->nodes > 1)
        ok = ok &&
             buf_printf(&out,
                        "--nnodes=%d%c--node_rank=%d%c--master_addr=%s%c--master_port=%d%c--secret_file=-%c",
                        m->nodes, 0, rank, 0, m->address, 0, m->port, 0, 0);
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

static bool add_texts(cJSON *array, char *const *texts, bool (*wanted)(const char *text))
{
    bool ok = array != NULL;
    for (; ok && *texts != NULL; texts++)
        if (wanted == NULL || wanted(*texts))
            ok = cJSON_AddItemToArray(array, cJSON_CreateString(*texts));
    return ok;
}

/* Return how long the starter may be silent before a relay ends the job: the node timeout, at least three
 * heartbeats. */
static uint64_t silent_ms(const struct cli *cli)
{
    return cli->node_timeout_ms > 3 * REMOTE_BEAT_MS ? cli->node_timeout_ms : 3 * REMOTE_BEAT_MS;
}

/* Add the log directory of the node, which the relay sends at the end. */
static bool add_collect(cJSON *o, const struct start_facts *f, int rank, const char *token)
{
    struct buf path = { 0 };
    const bool ok = buf_printf(&path, "%s/%s_node%d", f->cli->log_dir, f->log_name, rank) &&
                    buf_append(&path, "", 1) && json_add_text(o, "collect", (const char *)path.data) &&
                    json_add_text(o, "token", token);
    buf_free(&path);
    return ok;
}

bool start_job(const struct start_facts *f, const struct host_spec *host, int rank,
               const struct start_meeting *m, struct buf *out)
{
    cJSON *o = cJSON_CreateObject(), *argv = cJSON_AddArrayToObject(o, "argv");
    bool ok =
        argv != NULL && json_add_text(o, "directory", f->directory) &&
        json_add_number(o, "umask", f->umask) && json_add_number(o, "silent_ms", (double)silent_ms(f->cli)) &&
        json_add_bool(o, "input", rank == 0) && json_add_text(o, "secret", m->nodes > 1 ? m->secret : "") &&
        cJSON_AddItemToArray(argv, cJSON_CreateString(f->argv[0])) && add_options(argv, f, host, rank, m) &&
        add_texts(argv, f->argv + 1, NULL) &&
        add_texts(cJSON_AddArrayToObject(o, "env"), f->environ_block, is_carried) &&
        (f->log_name == NULL || add_collect(o, f, rank, m->token));
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    ok = text != NULL && buf_append(out, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(o);
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

/* Error texts of OpenSSH. The first row whose exit status and text match decides. Exit status -1 and text "" match
 * any. */
static const struct failed_start {
    int exit_code;
    const char *piece;
    enum finding_code code;
} failed_starts[] = {
    { 255, "Could not resolve hostname", FINDING_HOST_NOT_REACHED },
    { 255, "Permission denied", FINDING_HOST_REJECTS_LOGIN },
    { 255, "Too many authentication failures", FINDING_HOST_REJECTS_LOGIN },
    { 255, "Host key verification failed", FINDING_HOST_KEY_DIFFERS },
    { 255, "HOST IDENTIFICATION HAS CHANGED", FINDING_HOST_KEY_DIFFERS },
    { 255, "", FINDING_HOST_NOT_REACHED },
    { 127, "", FINDING_HOST_HAS_NO_DDPRUN },
    { -1, "", FINDING_HOST_NOT_READY },
};

/* Return the last line that is not blank, without its newline. */
static struct slice last_line(const char *text)
{
    size_t end = strlen(text);
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    return slice_of(text + begin, end - begin);
}

void start_explain(const struct start_facts *f, const struct host_spec *host, int exit_code,
                   const char *words, struct finding *out)
{
    const struct failed_start *row = failed_starts;
    char text[FINDING_TEXT_MAX / 2], status[32];
    const struct slice line = last_line(words);
    while ((row->exit_code >= 0 && row->exit_code != exit_code) || strstr(words, row->piece) == NULL)
        row++;
    snprintf(status, sizeof(status), "exit status %d", exit_code);
    snprintf(text, sizeof(text), "%.*s", (int)line.len, line.len > 0 ? (const char *)line.data : "");
    text_disarm(text, strlen(text), '\0');
    finding_make(out, row->code, host->name, "words", text[0] != '\0' ? text : status, "path", f->program,
                 "shell", f->cli->remote_shell, NULL);
}

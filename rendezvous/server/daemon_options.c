/* daemon_options.c -- see daemon_options.h.
 *
 * The default address is loopback, because without a secret every host that reaches the port can write every key. To
 * serve other hosts, use --listen and --secret_file. To serve other users of this host, use --insecure. */
#include "server/daemon_options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parse the address. If the value is only a port, endpoint_parse leaves the host empty, which means all addresses. */
static ddp_status parse_listen(const char *value, void *to, struct ddp_err *err)
{
    struct ddp_err why;
    if (endpoint_parse(value, DAEMON_DEFAULT_PORT, to, &why) != DDP_OK)
        return ddp_fail(err, DDP_ERR_ARG, "HOST, HOST:PORT, :PORT or [IPv6 address]:PORT; %s", why.msg);
    return DDP_OK;
}

/* Parse a size below 2^63, so that sums of sizes cannot overflow. */
static ddp_status parse_max_bytes(const char *value, void *to, struct ddp_err *err)
{
    uint64_t bytes;
    const bool ok = options_size(value, UINT64_MAX >> 1, &bytes);
    if (!ok || bytes == 0)
        return ddp_fail(err, DDP_ERR_ARG, "a number from 1 to 8589934591G (suffixes: K, M, G)");
    *(uint64_t *)to = bytes;
    return DDP_OK;
}

/* Parse a number of seconds from 1 to SECONDS_MAX (366 days), and store milliseconds. */
static ddp_status parse_keep(const char *value, void *to, struct ddp_err *err)
{
    enum { SECONDS_MAX = 366 * 24 * 3600 };
    char *end = NULL;
    const unsigned long long n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    if (end == NULL || *end != '\0' || n < 1 || n > SECONDS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "a number of seconds from 1 to %d", SECONDS_MAX);
    *(uint64_t *)to = n * 1000;
    return DDP_OK;
}

/* Reject the options --port and --host. Users know these options from other servers, so the error names the option
 * --listen, which replaces them. */
static ddp_status refuse_place(const char *value, void *to, struct ddp_err *err)
{
    (void)value, (void)to;
    return ddp_fail(err, DDP_ERR_ARG, "--listen=HOST:PORT, which sets host and port");
}

#define AT(field) offsetof(struct daemon_options, field)
static const struct option_row rows[] = {
    { .name = "listen",
      .value = "HOST:PORT",
      .parse = parse_listen,
      .at = AT(listen),
      .help = "address of the store: HOST:PORT, [IPV6]:PORT, HOST (port 29400), or :PORT or PORT (all "
              "addresses); "
              "port 0: any free port (default: 127.0.0.1:29400)" },
    { .name = "max-bytes",
      .value = "N",
      .parse = parse_max_bytes,
      .at = AT(max_bytes),
      .help =
          "limit in bytes for all keys, values and queues; N may end in K, M or G (default: 1G). The limit "
          "of a user is half of the memory that no other user uses; another host counts as one user. To get "
          "the limit of a job, subtract the memory of the user's other jobs from the user's limit, and halve "
          "the rest. Example for 1G: the only user gets at most 512M, and the only job of this user at most "
          "256M" },
    { .name = "keep",
      .value = "SECONDS",
      .parse = parse_keep,
      .at = AT(keep_ms),
      .help = "delete a job and its keys after SECONDS without any connection (default: 1800)" },
    { .name = "secret_file",
      .value = "FILE",
      .type = OPTION_TEXT,
      .min = 1,
      .at = AT(secret_file),
      .help = "file of secrets, mode 0600. Each line is 'SECRET' (made by 'ddprun --make_secret'), or "
              "'PREFIX SECRET' for job ids that begin with PREFIX; the longest matching prefix applies. "
              "ddprun and ddpctl need the same secret in their --secret_file" },
    { .name = "encrypt",
      .type = OPTION_FLAG,
      .at = AT(encrypt),
      .help = "reject unencrypted connections from other hosts; the encryption is TLS 1.3 with keys from the "
              "secrets, and needs OpenSSL 1.1.1 or later. Also pass --encrypt to ddprun and ddpctl" },
    { .name = "insecure",
      .type = OPTION_FLAG,
      .at = AT(insecure),
      .help = "serve every user of this host, and without --secret_file also every user of all other hosts "
              "(default: serve only root and the user who started ddp-rendezvous)" },
    { .name = "torch21",
      .type = OPTION_FLAG,
      .at = AT(torch21),
      .help = "serve clients of torch 2.1, not of older versions: opcode 8 means APPEND, not DELETE_KEY. "
              "Clients of torch 2.2 or later do not need this option" },
    { .name = "events",
      .value = "FILE",
      .type = OPTION_TEXT,
      .min = 1,
      .at = AT(events),
      .help = "append events of all jobs to FILE as JSON lines, for 'ddpctl timeline'" },
    { .name = "verbose",
      .type = OPTION_FLAG,
      .at = AT(log_peers),
      .help = "log every client that connects and disconnects" },
    { .name = "quiet", .type = OPTION_SET, .at = AT(log_level), .min = LOG_ERROR, .help = "log errors only" },
    { .name = "help",
      .letter = 'h',
      .type = OPTION_SET,
      .at = AT(action),
      .min = DAEMON_HELP,
      .help = "print this help and exit" },
    { .name = "version",
      .type = OPTION_SET,
      .at = AT(action),
      .min = DAEMON_VERSION,
      .help = "print the version and the build, and exit; --json prints JSON" },
    { .name = "json", .type = OPTION_FLAG, .at = AT(json) },
    { .name = "port", .value = "PORT", .type = OPTION_TEXT, .parse = refuse_place },
    { .name = "host", .value = "HOST", .type = OPTION_TEXT, .parse = refuse_place },
    { .name = "help-man", .type = OPTION_SET, .at = AT(action), .min = DAEMON_HELP_MAN },
};
static const struct option_table table = OPTION_TABLE(rows, OPTIONS_PLAIN);

static const char head[] =
    "Usage: ddp-rendezvous [options]\n"
    "\n"
    "A key-value store for the rendezvous of distributed training. It uses the protocol of\n"
    "PyTorch's TCPStore, serves many jobs, and runs until SIGTERM or SIGINT; a second signal ends\n"
    "it at once. When it is ready, it prints one line on stdout: listening on HOST:PORT\n"
    "\n"
    "options:\n";

static const char tail[] =
    "\n"
    "On this host, only processes of root and of the user who runs ddp-rendezvous can connect.\n"
    "--insecure serves every user of this host and, without --secret_file, every other host:\n"
    "all can read and write every key. With --secret_file, the store serves other hosts: ddprun\n"
    "there must have the secret of the job, and confirms the connections of its workers.\n"
    "\n"
    "exit status: 0 ended by a signal, 1 cannot listen or run, 2 wrong command line\n";

ddp_status daemon_options_parse(int argc, char *const argv[], struct daemon_options *out, struct ddp_err *err)
{
    *out = (struct daemon_options){ .listen = { "127.0.0.1", DAEMON_DEFAULT_PORT }, .log_level = LOG_INFO };
    const ddp_status status = options_parse(&table, argc, argv, out, NULL, err);
    if (status == DDP_OK && out->encrypt && out->secret_file == NULL && out->action == DAEMON_SERVE)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--encrypt: no secret; add --secret_file=FILE ('ddprun --make_secret FILE' makes "
                        "one)");
    if (status == DDP_OK && out->json && out->action == DAEMON_SERVE)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--json: only --version prints JSON; add --version or remove --json");
    return status;
}

enum finding_code daemon_options_check_open(const struct daemon_options *o, struct finding *finding)
{
    const char *host = o->listen.host;
    char address[ENDPOINT_TEXT_MAX], subject[FINDING_SUBJECT_MAX];
    if (o->secret_file != NULL || endpoint_is_loopback(host) || strcmp(host, "localhost") == 0)
        return FINDING_NONE;
    snprintf(subject, sizeof(subject), "the store at %.120s",
             endpoint_print(host[0] != '\0' ? host : "*", o->listen.port, address));
    finding_make(finding, o->insecure ? FINDING_STORE_IS_OPEN : FINDING_NO_SECRET, subject, "why", "", NULL);
    return finding->code;
}

bool daemon_options_text(enum daemon_action action, struct buf *out)
{
    switch (action) {
    case DAEMON_HELP:
        return buf_printf(out, "%s", head) && options_help(&table, out) && buf_printf(out, "%s", tail);
    case DAEMON_HELP_MAN:
        return options_man(&table, out);
    case DAEMON_VERSION:
    case DAEMON_SERVE:
        break;
    }
    return true;
}

/* daemon_options.c -- see daemon_options.h. Pure: no printing, no exit.
 *
 * The default is loopback, because the protocol has no password: every host that reaches the port can write every
 * key. Serving a network takes an explicit --listen, serving other users of this host --insecure. */
#include "server/daemon_options.h"

#include "ddp/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The port alone is a habit from other daemons; endpoint_parse leaves the host empty then: every address. */
static ddp_status set_listen(void *into, const char *value, struct ddp_err *err)
{
    struct daemon_options *o = into;
    return endpoint_parse(value, DAEMON_DEFAULT_PORT, &o->listen, err);
}

/* "123", "64K", "64M", "2G". The limit is half of 2^64, so that sums of sizes cannot overflow anywhere. */
static ddp_status set_max_bytes(void *into, const char *value, struct ddp_err *err)
{
    static const char units[] = "KMG";
    struct daemon_options *o = into;
    char *end = NULL;
    errno = 0;
    unsigned long long n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    if (end == NULL || end[unit != NULL] != '\0' || n == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'%s' is not a size (expected a number, or one with K, M or G behind it)", value);
    if (errno == ERANGE || n > UINT64_MAX >> 1 >> shift)
        return ddp_fail(err, DDP_ERR_ARG, "'%s' is too much", value);
    o->max_bytes = n << shift;
    return DDP_OK;
}

/* Whole seconds, at most a year. */
static ddp_status set_keep(void *into, const char *value, struct ddp_err *err)
{
    enum { SECONDS_MAX = 366 * 24 * 3600 };
    struct daemon_options *o = into;
    char *end = NULL;
    const unsigned long long n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
    if (end == NULL || *end != '\0' || n < 1 || n > SECONDS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "'%s' is not a number of seconds from 1 to %d", value, SECONDS_MAX);
    o->keep_ms = n * 1000;
    return DDP_OK;
}

static ddp_status set_events(void *into, const char *value, struct ddp_err *err)
{
    (void)err;
    ((struct daemon_options *)into)->events = value;
    return DDP_OK;
}

/* Options without a value differ only in what they set. */
#define SETS(name, statement)                                                  \
    static ddp_status name(void *into, const char *value, struct ddp_err *err) \
    {                                                                          \
        struct daemon_options *o = into;                                       \
        (void)value;                                                           \
        (void)err;                                                             \
        statement;                                                             \
        return DDP_OK;                                                         \
    }
SETS(set_quiet, o->log_level = LOG_ERROR)
SETS(set_verbose, o->log_peers = true)
SETS(set_insecure, o->insecure = true)
SETS(set_torch21, o->torch21 = true)
SETS(set_help, o->action = DAEMON_HELP)
SETS(set_help_man, o->action = DAEMON_HELP_MAN)
SETS(set_version, o->action = DAEMON_VERSION)

static const struct option_row table[] = {
    { "listen", "HOST:PORT",
      "where to listen: HOST:PORT, [IPV6]:PORT, :PORT or PORT (every address),\n"
      "HOST (port 29400). Port 0 takes any free one. Default 127.0.0.1:29400",
      set_listen },
    { "max-bytes", "N",
      "keep at most N bytes of keys, values and queues (K, M, G; default 1G).\n"
      "The jobs of one user or address get at most half of what others leave,\n"
      "one job half of that",
      set_max_bytes },
    { "keep", "SECONDS",
      "forget a job and its keys when nobody has been connected to it for so long\n(default 1800)",
      set_keep },
    { "insecure", NULL,
      "serve every user of this host; without it only the user who started\n"
      "ddp-rendezvous and root are served",
      set_insecure },
    { "torch21", NULL, "opcode 8 of an old client means APPEND, as in torch 2.1", set_torch21 },
    { "events", "FILE", "append what happens in all jobs to FILE as JSON lines, for 'ddpctl timeline'",
      set_events },
    { "verbose", NULL, "log every client that comes and goes", set_verbose },
    { "quiet", NULL, "log errors only", set_quiet },
    { "help", NULL, "print this and exit, also -h", set_help },
    { "h", NULL, NULL, set_help },
    { "version", NULL, "print the version and exit", set_version },
    { "help-man", NULL, NULL, set_help_man },
    { 0 },
};

static const char head[] =
    "usage: ddp-rendezvous [options]\n"
    "\n"
    "A key-value store for the rendezvous of distributed training. It speaks the protocol of\n"
    "PyTorch's TCPStore, serves many jobs, and runs until SIGTERM or SIGINT (a second one ends\n"
    "it at once). When it is ready it prints one line on stdout: listening on HOST:PORT\n"
    "\n"
    "options:\n";

static const char tail[] =
    "\n"
    "On this host only processes of the user who runs ddp-rendezvous and of root can connect.\n"
    "To serve several users of a host, start it with --insecure: then every user can read\n"
    "and write every key. Other hosts need no password: a HOST that they can reach is open\n"
    "to them.\n"
    "\n"
    "exit status: 0 ended by a signal, 1 cannot listen or run, 2 wrong usage\n";

ddp_status daemon_options_parse(int argc, char *const argv[], struct daemon_options *out, struct ddp_err *err)
{
    *out = (struct daemon_options){ .listen = { "127.0.0.1", DAEMON_DEFAULT_PORT }, .log_level = LOG_INFO };
    return options_parse(table, argc, argv, out, NULL, err);
}

bool daemon_options_text(enum daemon_action action, struct buf *out)
{
    switch (action) {
    case DAEMON_HELP:
        return buf_printf(out, "%s", head) && options_help(table, out) && buf_printf(out, "%s", tail);
    case DAEMON_HELP_MAN:
        return options_man(table, out);
    case DAEMON_VERSION:
        return buf_printf(out, "ddp-rendezvous %s\n", DDP_VERSION);
    case DAEMON_SERVE:
        break;
    }
    return true;
}

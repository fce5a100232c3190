/* main.c -- ddp-rendezvous: the store alone, as a daemon.
 *
 * The server has its own thread; this one only waits for a signal. Signals are blocked before that thread
 * exists and fetched with sigwait, so there is no handler and nothing can interrupt anything. */
#include "base/log.h"
#include "server/daemon_options.h"
#include "server/store_server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum exit_code { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int print_text(enum daemon_action action)
{
    struct buf text = { 0 };
    bool ok = daemon_options_text(action, &text) && fwrite(text.data, 1, text.len, stdout) == text.len;
    ok = fflush(stdout) == 0 && ok;
    buf_free(&text);
    return ok ? EXIT_OK : EXIT_FAILED;
}

/* SIGPIPE too: a peer that has gone is an error of write, not the end of the store. */
static void block_stop_signals(sigset_t *set)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigprocmask(SIG_BLOCK, set, NULL);
}

/* The line on stdout is for programs: with port 0 it is the only way to learn the port, and it comes when
 * connections are accepted already. The warning goes to stderr. */
static void announce(const struct daemon_options *o, const struct store_server *server)
{
    const char *host = o->listen.host;
    printf("listening on %s\n", store_server_address(server));
    fflush(stdout);
    if (strncmp(host, "127.", 4) != 0 && strcmp(host, "::1") != 0 && strcmp(host, "localhost") != 0)
        log_warn("there is no password: whoever reaches %s can read and write every key",
                 store_server_address(server));
}

/* Returns with the first signal; from then on the next one has its usual effect: the end, at once. */
static void wait_for_stop(const sigset_t *set)
{
    int sig = 0;
    while (sigwait(set, &sig) != 0)
        continue;
    log_info("%s, stopping", sig == SIGINT ? "interrupted" : "told to end");
    sigprocmask(SIG_UNBLOCK, set, NULL);
}

static ddp_status start(const struct daemon_options *o, struct store_server **server, struct ddp_err *err)
{
    struct store_server_options options = { .host = o->listen.host,
                                            .port = o->listen.port,
                                            .limits = HUB_LIMITS_DEFAULT,
                                            .log_peers = o->log_peers };
    if (o->max_bytes > 0)
        options.limits.max_bytes = o->max_bytes;
    options.limits.many_jobs = true;
    options.limits.dialect_b = o->torch21;
    return store_server_start(&options, server, err);
}

static int serve(const struct daemon_options *o)
{
    struct store_server *server;
    struct ddp_err err;
    sigset_t stop_signals;
    block_stop_signals(&stop_signals);
    if (start(o, &server, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_FAILED;
    }
    announce(o, server);
    wait_for_stop(&stop_signals);
    store_server_stop(server);
    return EXIT_OK;
}

/* The log has a name before the options are read, since they may be wrong. */
int main(int argc, char **argv)
{
    struct daemon_options options;
    struct ddp_err err;
    log_setup("ddp-rendezvous", LOG_INFO);
    if (daemon_options_parse(argc, argv, &options, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_USAGE;
    }
    if (options.action != DAEMON_SERVE)
        return print_text(options.action);
    log_setup("ddp-rendezvous", options.log_level);
    return serve(&options);
}

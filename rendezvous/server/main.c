/* main.c -- ddp-rendezvous, the store as a daemon.
 *
 * The server has its own thread; the main thread only waits for a signal with sigwait. The signals are blocked before
 * the server's thread starts, so that the kernel does not deliver them to the server's thread. */
#include "auth/secret.h"
#include "base/clock.h"
#include "base/events.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/options.h"
#include "server/daemon_options.h"
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum exit_code { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int print_text(const struct daemon_options *o)
{
    struct buf text = { 0 };
    const bool made = o->action == DAEMON_VERSION
                          ? version_print(&text, "ddp-rendezvous", build_commit, o->json)
                          : daemon_options_text(o->action, &text);
    return print_stdout(made, &text) ? EXIT_OK : EXIT_FAILED;
}

/* Block the signals that stop the daemon, and return them in *set for sigwait. Ignore SIGPIPE, because otherwise a
 * write to a closed connection would end the process. */
static void block_stop_signals(sigset_t *set)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigprocmask(SIG_BLOCK, set, NULL);
}

/* Print a finding in three lines, as ddprun does, and the hint (log_hint_is_due). */
static void print_finding(const struct daemon_options *o, enum log_level level, const struct finding *finding)
{
    log_line(level, "%s", finding->sentence);
    if (level > o->log_level)
        return;
    fprintf(stderr, "  try      %s\n  finding  %s\n", finding->advice, finding_code_name(finding->code));
    if (log_hint_is_due())
        fprintf(stderr, "  (ddprun explain %s)\n", finding_code_name(finding->code));
}

/* Print the line "listening on ..." on stdout. If other hosts can reach the store without a secret, first print a
 * finding. The store must already accept connections, because programs wait for this line, read the port from it, and
 * connect at once. If the line cannot be printed, log an error. In this case, return false if the kernel has chosen the
 * port, because no program can find the store without the line. In all other cases, return true. */
static bool announce(const struct daemon_options *o, const struct store_server *server)
{
    struct finding finding;
    struct buf line = { 0 };
    if (daemon_options_check_open(o, &finding) == FINDING_STORE_IS_OPEN)
        print_finding(o, LOG_WARN, &finding);
    if (o->insecure)
        log_warn("--insecure: every user of this host can read and write every key");
    return print_stdout(buf_printf(&line, "listening on %s\n", store_server_address(server)), &line) ||
           o->listen.port != 0;
}

/* Read the secrets. If the file has no valid secret, log an error and return false. Do the same if other hosts could
 * reach the store without a secret. */
static bool read_secrets(const struct daemon_options *o, struct secret **secrets)
{
    struct ddp_err err;
    struct finding finding;
    const enum finding_code code = daemon_options_check_open(o, &finding);
    *secrets = NULL;
    if (code == FINDING_NO_SECRET)
        print_finding(o, LOG_ERROR, &finding);
    if (o->secret_file == NULL)
        return code != FINDING_NO_SECRET;
    if (secret_read_tenants(o->secret_file, secrets, &err) == DDP_OK)
        return true;
    log_error("%s", err.msg);
    return false;
}

/* Wait for the first signal. Then unblock the signals, so that a second signal ends the process at once. */
static void wait_for_stop(const sigset_t *set)
{
    int sig = 0;
    while (sigwait(set, &sig) != 0)
        continue;
    log_info("received %s: stopping", sig == SIGINT ? "SIGINT" : "SIGTERM");
    sigprocmask(SIG_UNBLOCK, set, NULL);
}

/* --- the event log ---------------------------------------------------------------------------------------- */

struct event_log {
    struct line_file *file; /* owned; NULL = no event log */
    const char *path;       /* borrowed; NULL = --events was not given */
    bool warned;            /* the warning was logged, and must not be logged again */
};

/* Warn once that events are missing in the file. Do nothing if `state` contains no error. */
static void warn_of(struct event_log *log, struct line_file_state state)
{
    if (state.error != 0 && !log->warned)
        log_warn("--events=%.1000s: events are missing: %s", log->path,
                 state.why[0] != '\0' ? state.why : strerror(state.error));
    log->warned = log->warned || state.error != 0;
}

/* Append an event to the event log. Called on the server's thread; another thread writes the file. */
static void on_event(void *user, const char *json)
{
    struct event_log *log = user;
    struct buf line = { 0 }, more = { 0 };
    char time[EVENT_TIME_MAX];
    event_time(time, clock_unix_us());
    if (buf_printf(&more, ",\"time\":\"%s\"", time) && event_line(&line, slice_str(json), buf_slice(&more)))
        line_file_append(log->file, buf_slice(&line));
    buf_free(&more);
    buf_free(&line);
    warn_of(log, line_file_state(log->file));
}

/* Open the event log. If the file cannot be opened, log a warning and continue, because jobs do not need an event
 * log. */
static void open_events(struct event_log *log, const char *path)
{
    struct line_file_state state = { 0 };
    *log = (struct event_log){ .path = path };
    if (path != NULL)
        log->file = line_file_open(path, &state.error);
    if (log->file != NULL)
        state.error = 0;
    else if (path != NULL)
        write_error_text(state.error, path, state.why);
    warn_of(log, state);
}

/* --- the server ------------------------------------------------------------------------------------------- */

static ddp_status start(const struct daemon_options *o, const struct secret *secrets,
                        struct event_log *events, struct store_server **server, struct ddp_err *err)
{
    struct store_server_options options = { .host = o->listen.host,
                                            .port = o->listen.port,
                                            .port_option = "--listen",
                                            .limits = HUB_LIMITS_DEFAULT,
                                            .event = events->file != NULL ? on_event : NULL,
                                            .event_user = events,
                                            .encrypt = o->encrypt,
                                            .insecure = o->insecure,
                                            .log_peers = o->log_peers };
    if (o->max_bytes > 0)
        options.limits.max_bytes = o->max_bytes;
    if (o->keep_ms > 0)
        options.limits.keep_ms = o->keep_ms;
    options.limits.many_jobs = true;
    options.limits.secret = secrets;
    options.limits.guarded = secrets != NULL;
    options.limits.dialect_b = o->torch21;
    return store_server_start(&options, server, err);
}

/* Serve until a signal, and return the exit code. Block the signals before the first thread starts, because threads
 * inherit the mask. */
static int serve(const struct daemon_options *o, const struct secret *secrets)
{
    struct store_server *server;
    struct event_log events;
    struct ddp_err err;
    sigset_t stop_signals;
    block_stop_signals(&stop_signals);
    open_events(&events, o->events);
    if (start(o, secrets, &events, &server, &err) != DDP_OK) {
        log_error("%s", err.msg);
        line_file_close(events.file, 0);
        return EXIT_FAILED;
    }
    const bool announced = announce(o, server);
    if (announced)
        wait_for_stop(&stop_signals);
    store_server_stop(server);
    warn_of(&events, line_file_close(events.file, LINE_FILE_CLOSE_MS));
    return announced ? EXIT_OK : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct daemon_options options;
    struct secret *secrets;
    struct ddp_err err;
    keep_standard_fds();
    log_setup("ddp-rendezvous", LOG_INFO);
    if (daemon_options_parse(argc, argv, &options, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_USAGE;
    }
    if (options.action != DAEMON_SERVE)
        return print_text(&options);
    log_setup("ddp-rendezvous", options.log_level);
    const int code = read_secrets(&options, &secrets) ? serve(&options, secrets) : EXIT_FAILED;
    secret_free(secrets);
    return code;
}

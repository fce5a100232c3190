/* ddpctl.c -- prints the nodes, ranks and waiters of a running store, draws event logs, and compares flight records.
 * Two tables (options.c, tables.c) define the requests and the format of the answers, so this file only connects, reads
 * files and prints. */
#include "auth/auth.h"
#include "auth/tls.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "base/options.h"
#include "client/call.h"
#include "contain/job_record.h"
#include "record/flight_dump.h"
#include "diagnosis/findings.h"
#include "ctl/options.h"
#include "ctl/tables.h"
#include "ctl/timeline.h"
#include "ddp/store.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

/* --- files ------------------------------------------------------------------------------------------------- */

enum { DUMP_MAX = 64 << 20, EVENTS_MAX = 1 << 30 };

/* Open a file without waiting. A FIFO without a writer would otherwise block the program before it reads the other
 * files. */
static int open_output(const char *name)
{
    const int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, 0);
    return fd;
}

static bool read_file(const char *name, size_t most, struct buf *text)
{
    char why[WRITE_ERROR_MAX];
    const char *shown = name[0] != '\0' ? name : "''";
    const int fd = open_output(name);
    const bool ok = fd >= 0 && read_whole_file(fd, most, text);
    if (!ok)
        log_error("%.1000s: cannot read: %s", shown, path_error_text(errno, name, "check the path", why));
    else if (text->len >= most)
        log_error("%.1000s: cannot read: larger than %zu MiB; check that this is the right file", shown,
                  most >> 20);
    if (fd >= 0)
        close(fd);
    return ok && text->len < most;
}

/* --- flight records ------------------------------------------------------------------------------------------ */

/* This section reads the files; record/flight_dump.c interprets them. */

/* Read one record. If the file cannot be read or is not a record, log an error and return false. */
static bool read_dump(const char *name, struct flight_dump *dump)
{
    struct buf text = { 0 };
    struct ddp_err err;
    bool ok = read_file(name, DUMP_MAX, &text);
    if (ok && flight_dump_read(dump, name, buf_slice(&text), &err) != DDP_OK) {
        log_error("%.1000s: %s%s", name, err.msg,
                  err.code == DDP_ERR_CORRUPT ? "; pass complete files flight_*.json or flight_torch_*" : "");
        ok = false;
    }
    buf_free(&text);
    return ok;
}

/* Return true if record `n` is of the same rank as an earlier record, and log an error in this case. Restarts may leave
 * several records of a rank, which a comparison would treat as different ranks. */
static bool is_second(const struct flight_dump *dumps, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (dumps[i].rank == dumps[n].rank) {
            log_error("%s: not used, because another file has a record of rank %d; pass the records of one "
                      "attempt only",
                      name, dumps[n].rank);
            return true;
        }
    return false;
}

/* Compare flight records and return the answer, which the caller frees (cJSON_Delete). After an error, log the error
 * and return NULL. Set `*all_read` to false if a file could not be read, because its rank is then missing in the
 * answer. */
static cJSON *ctl_flight(const struct ctl_options *o, bool *all_read)
{
    cJSON *answer = NULL;
    size_t n = 0;
    struct flight_dump *dumps = calloc(o->n_files, sizeof(*dumps));
    for (size_t i = 0; dumps != NULL && i < o->n_files; i++)
        if (read_dump(o->files[i], &dumps[n])) {
            if (is_second(dumps, n, o->files[i]))
                flight_dump_free(&dumps[n]);
            else
                n++;
        } else
            *all_read = false;
    if (n > 0)
        answer = flight_compare(dumps, n);
    if (dumps == NULL || (n > 0 && answer == NULL))
        log_error("out of memory" MEMORY_REMEDY);
    for (size_t i = 0; i < n; i++)
        flight_dump_free(&dumps[i]);
    free(dumps);
    return answer;
}

/* --- watch ------------------------------------------------------------------------------------------------ */

/* The screen is redrawn with ANSI sequences, line by line from the top, so that it does not flicker and the scrollback
 * remains. */

enum { EVERY_MS = 1000, CTRL_D = 4 };

static struct termios before;
static bool has_keyboard;

/* Restore the terminal, and raise the signal again. SA_RESETHAND has restored the signal's default action. The signal
 * is blocked until this function returns, and then ends the program. tcsetattr() and raise() are async-signal-safe. */
static void on_end_signal(int sig)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    raise(sig);
}

/* Read keys one at a time and without echo, if stdin is a terminal. A signal, such as that of Ctrl-C, restores the
 * terminal and ends the program even while the store does not answer. Ctrl-Z is disabled, because the shell would get
 * the terminal without echo. */
static void ctl_watch_begin(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    struct sigaction on_end = { .sa_handler = on_end_signal, .sa_flags = (int)SA_RESETHAND };
    has_keyboard = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (!has_keyboard)
        return;
    sigaddset(&on_end.sa_mask, SIGTTOU); /* otherwise tcsetattr() stops a background process */
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &on_end, NULL);
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_lflag |= ISIG;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void ctl_watch_end(void)
{
    if (has_keyboard)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    has_keyboard = false;
}

/* Append the text with the sequences that redraw the screen. */
static bool append_lines(struct buf *out, struct slice text)
{
    const char *at = text.data, *end = at + text.len;
    bool ok = buf_printf(out, "\033[H");
    while (ok && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((newline != NULL ? newline : end) - at);
        ok = buf_append(out, at, len) && buf_printf(out, "\033[K\n");
        at += len + 1;
    }
    return ok && buf_printf(out, "\033[J");
}

/* Show `text` in place of the previous text. If stdout is not a terminal, print `text` below the previous text. Return
 * false if writing fails. */
static bool ctl_watch_show(struct slice text)
{
    struct buf out = { 0 };
    bool ok = isatty(STDOUT_FILENO) ? append_lines(&out, text)
                                    : buf_append(&out, text.data, text.len) && buf_append(&out, "\n", 1);
    return print_stdout(ok, &out);
}

/* Wait for a second. Return false if the user has pressed q or Ctrl-D, or if stdin has ended. */
static bool ctl_watch_wait(void)
{
    struct pollfd keys = { .fd = has_keyboard ? STDIN_FILENO : -1, .events = POLLIN };
    char key = 0;
    if (poll(&keys, 1, EVERY_MS) <= 0)
        return true;
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != CTRL_D;
}

/* --- timeline --------------------------------------------------------------------------------------------- */

/* This section reads and writes files; timeline.c interprets them. */

enum { COMPLAINTS_MAX = 20 };

/* timeline.html, which the Makefile turns into an object file. */
extern const char timeline_page[];

static void complain(void *user, const char *file, size_t line, const char *what)
{
    size_t *n = user;
    if (++*n <= COMPLAINTS_MAX)
        log_warn("%s:%zu: %s; line skipped", file, line, what);
}

static bool read_events(struct timeline_events *events, const char *name)
{
    struct buf text = { 0 };
    const bool ok = read_file(name, EVENTS_MAX, &text);
    if (ok && text.len > 0)
        timeline_read(events, name, buf_slice(&text));
    buf_free(&text);
    return ok;
}

static bool write_file(const char *name, const struct buf *text)
{
    char why[WRITE_ERROR_MAX];
    FILE *file = fopen(name, "we");
    bool ok = file != NULL && fwrite(text->data, 1, text->len, file) == text->len;
    if (file != NULL && fclose(file) != 0)
        ok = false;
    if (!ok)
        log_error("%.1000s: cannot write: %s", name, write_error_text(errno, name, why));
    return ok;
}

static bool write_timeline(const struct ctl_options *o, const struct timeline_events *events)
{
    struct timeline t;
    struct buf out = { 0 };
    const bool is_page = strcmp(o->output + strlen(o->output) - 5, ".html") == 0;
    bool ok = timeline_make(&t, events) &&
              (is_page ? timeline_html(&t, timeline_page, &out) : timeline_trace(&t, &out));
    if (!ok)
        log_error("out of memory" MEMORY_REMEDY);
    ok = ok && write_file(o->output, &out);
    timeline_free(&t);
    buf_free(&out);
    return ok;
}

/* Draw a timeline. After an error, log the error and return false. */
static bool ctl_timeline(const struct ctl_options *o)
{
    size_t complaints = 0;
    struct timeline_events events = { .complain = complain, .user = &complaints };
    bool ok = true;
    for (size_t i = 0; i < o->n_files && ok; i++)
        ok = read_events(&events, o->files[i]);
    if (complaints > COMPLAINTS_MAX)
        log_warn("%zu more line%s skipped", complaints - COMPLAINTS_MAX,
                 complaints - COMPLAINTS_MAX == 1 ? " was" : "s were");
    if (ok && !timeline_choose(&events, o->job)) {
        if (events.no_memory)
            log_error("out of memory" MEMORY_REMEDY);
        else if (o->job != NULL)
            log_error("--job=%s: these files contain no events of this job; check --job", o->job);
        else
            log_error(
                "timeline: these files contain no events of a job; pass files that 'ddprun --events' has "
                "written");
        ok = false;
    }
    if (ok && events.other_lives > 0)
        log_info("the drawing shows the latest run of job '%s'; skipped lines of other jobs or earlier "
                 "runs: %zu",
                 events.job, events.other_lives);
    ok = ok && write_timeline(o, &events);
    timeline_events_free(&events);
    return ok;
}

enum exit_code { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum {
    PATIENCE_MS = 1000, /* time until the first warning */
    DEFAULT_MS = 500    /* timeout for the default address */
};

#define DEFAULT_STORE "127.0.0.1:29500" /* the default address of ddprun */

/* --- the secret --------------------------------------------------------------------------------------------- */

/* The identity of ddpctl. ddpctl is an operator, so it may only read data and cancel barriers. Without a secret,
 * ddpctl asks a store on another host for a credential. The credential contains the secret, which MUNGE has encrypted
 * for the user of the job. */
static struct operator
{
    struct secret *secret; /* owned; NULL if not known */
    bool asks;             /* the next connection requests the credential from the store */
    const char *unproven;  /* reason if the store answered that it has no secret or credential; else NULL */
    bool was_proven;       /* a store has proved the secret of a credential */
    const char *job;
    struct auth auth;
    struct tls_context *context; /* owned; NULL without --encrypt, or if the secret is not known */
    struct tls *tls;             /* owned; NULL before the handshake */
    struct buf answer;           /* bytes of the store's answer to the request for the credential */
}
operator;

static bool operator_greet(void *user, struct buf *out)
{
    struct operator* o = user;
    uint8_t nonce[AUTH_NONCE_BYTES], hello[AUTH_HELLO_BYTES];
    if (o->secret == NULL) {
        auth_ask(hello);
        return buf_append(out, hello, AUTH_ASK_BYTES);
    }
    if (sys_getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return false;
    auth_hello(&o->auth, o->secret, AUTH_OPERATOR, o->job != NULL ? o->job : "", nonce, hello);
    return buf_append(out, hello, sizeof(hello));
}

/* Decode the credential in the store's answer, and store the secret in `o`. This may take a while, because the daemon
 * munged decodes the credential. */
static bool operator_unseal(struct operator* o, enum auth_result result, struct slice credential,
                            struct ddp_err *err)
{
    if (result == AUTH_NO_SECRET || result == AUTH_NO_CREDENTIAL)
        o->unproven = auth_result_text(result);
    if (result != AUTH_OK) {
        ddp_fail(err, DDP_ERR_MISMATCH, "%s", auth_result_text(result));
        return false;
    }
    struct secret_call *call = secret_unseal_begin(credential.data, credential.len);
    while (!secret_call_is_over(call))
        usleep(1000);
    secret_free(o->secret);
    o->secret = NULL;
    return secret_unseal_end(call, &o->secret, err) == DDP_OK;
}

static bool operator_prove(void *user, struct slice answer, struct buf *out, struct ddp_err *err)
{
    struct operator* o = user;
    uint8_t proof[AUTH_PROOF_BYTES];
    char theirs[AUTH_PRINT_TEXT], why[256];
    struct slice credential;
    if (o->secret == NULL) {
        const enum auth_result taken = auth_read_answer(answer, &credential);
        return operator_unseal(o, taken, credential, err) && operator_greet(o, out);
    }
    const enum auth_result result = auth_prove(&o->auth, o->secret, answer, proof, theirs);
    if (result == AUTH_OK)
        return buf_append(out, proof, sizeof(proof));
    auth_explain(result, o->secret, theirs, why, sizeof(why));
    ddp_fail(err, DDP_ERR_MISMATCH, "%s", why);
    return false;
}

static bool operator_is_proof(void *user)
{
    const struct operator* o = user;
    return o->auth.state == AUTH_PROVEN;
}

static bool operator_append_frame(void *user, uint8_t kind, struct slice frame, struct buf *out)
{
    struct operator* o = user;
    return auth_append_frame(&o->auth, kind, frame, out);
}

static bool operator_open(void *user, uint8_t kind, struct slice *frame)
{
    struct operator* o = user;
    return auth_open(&o->auth, kind, frame);
}

static bool operator_open_tls(struct operator* o, struct ddp_err *err)
{
    return tls_context_open(TLS_CLIENT, o->secret, o->job != NULL ? o->job : "", &o->context, err) == DDP_OK;
}

/* Forget a secret that a credential contained, so that the next connection requests the credential again. A job that is
 * started again has a new secret. */
static void operator_forget(struct operator* o)
{
    tls_free(o->tls);
    tls_context_close(o->context);
    secret_free(o->secret);
    o->tls = NULL;
    o->context = NULL;
    o->secret = NULL;
}

/* Begin the TLS handshake. If no secret is known, request the credential instead, because the credential contains the
 * secret. */
static bool tls_begin(void *user, struct buf *out)
{
    struct operator* o = user;
    struct buf none = { 0 };
    uint8_t ask[AUTH_ASK_TLS_BYTES];
    tls_free(o->tls);
    o->tls = NULL;
    o->answer.len = 0;
    if (o->context == NULL) {
        auth_ask_tls(ask);
        return buf_append(out, ask, sizeof(ask));
    }
    o->tls = tls_new(o->context);
    return o->tls != NULL && tls_receive(o->tls, slice_of(NULL, 0), &none, out) == TLS_HANDSHAKE;
}

/* Receive the credential, and begin the handshake with the secret that the credential contains. Return the same values
 * as client_tls.receive. */
static int receive_credential(struct operator* o, struct slice bytes, struct buf *out, struct ddp_err *err)
{
    struct slice credential = slice_of(NULL, 0);
    enum auth_result result;
    if (!buf_append(&o->answer, bytes.data, bytes.len)) {
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
        return -1;
    }
    const int got = auth_read_answer_tls(buf_slice(&o->answer), &result, &credential);
    if (got == 0)
        return 0;
    if (got < 0)
        ddp_fail(err, DDP_ERR_CORRUPT,
                 "the reply is not a MUNGE credential; check that --addr is a store of ddprun");
    if (got < 0 || !operator_unseal(o, result, credential, err) || !operator_open_tls(o, err))
        return -1;
    if (tls_begin(o, out))
        return 0;
    ddp_fail(err, DDP_ERR_NOMEM, "cannot begin TLS: out of memory");
    return -1;
}

/* Decrypt the store's bytes. After the alert TLS_ALERT_PLAIN, report that the store does not encrypt. If the handshake
 * fails without this alert, report two likely reasons: the store has another secret, or the store does not encrypt. */
static int tls_read(void *user, struct slice bytes, struct buf *plain, struct buf *out, struct ddp_err *err)
{
    struct operator* o = user;
    if (o->tls == NULL)
        return receive_credential(o, bytes, out, err);
    const bool was_open = tls_state(o->tls) != TLS_HANDSHAKE;
    const enum tls_state state = tls_receive(o->tls, bytes, plain, out);
    if (state == TLS_FAILED && tls_alert_code(bytes) == TLS_ALERT_PLAIN)
        ddp_fail(err, DDP_ERR_MISMATCH, "the store was started without --encrypt; leave out --encrypt");
    else if (state == TLS_FAILED && !was_open)
        ddp_fail(err, DDP_ERR_MISMATCH,
                 "the TLS handshake failed: the store has another secret, or does not use --encrypt; check "
                 "--secret_file and --encrypt");
    else if (state == TLS_FAILED)
        ddp_fail(err, DDP_ERR_CORRUPT, "%s", tls_why(o->tls));
    return state == TLS_FAILED ? -1 : state != TLS_HANDSHAKE;
}

static bool tls_write(void *user, struct slice plain, struct buf *out)
{
    struct operator* o = user;
    return tls_send(o->tls, plain, out);
}

static const struct client_tls operator_tls = {
    .user = &operator, .begin = tls_begin, .receive = tls_read, .send = tls_write
};

static struct client_auth operator_auth = { .user = &operator,
                                            .greet = operator_greet,
                                            .prove = operator_prove,
                                            .is_proof = operator_is_proof,
                                            .put_frame = operator_append_frame,
                                            .open = operator_open };

/* Write the text to stdout and free it. Return the exit code. `complete` is false if the text is incomplete,
 * because memory was short. */
static int print_text(struct buf *text, bool complete)
{
    return print_stdout(complete, text) ? EXIT_OK : EXIT_FAILED;
}

/* Connect and send IDENTIFY with the role "ctl". A server that is not a store of ddprun rejects IDENTIFY, and then gets
 * no further request. If the store answers that it has no secret or no credential, warn and connect again without a
 * secret. ddpctl can then only read. Do not connect again if --encrypt is set, or if a store has proved the secret
 * before, because the store may belong to an attacker. */
static ddp_status connect_for(const struct ctl_options *o, uint32_t timeout_ms, ddp_store **store,
                              struct ddp_err *err)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "ctl";
    options.connect_timeout_ms = timeout_ms;
    options.timeout_ms = o->timeout_ms;
    if (operator.asks) {
        const ddp_status status =
            client_open(o->addr.host, o->addr.port, &options, &operator_auth, store, err);
        if (status == DDP_OK || operator.unproven == NULL || o->encrypt || operator.was_proven)
            return status;
        log_warn("store %s:%d: %s, so its answers cannot be verified; run ddpctl on %s as the user of the "
                 "job, or start the job with --secret_file=FILE and pass the same option to ddpctl",
                 o->addr.host, o->addr.port, operator.unproven, o->addr.host);
        operator.asks = false;
    }
    return client_open(o->addr.host, o->addr.port, &options, operator.secret != NULL ? &operator_auth : NULL,
                       store, err);
}

/* Append a remedy to the error of a store that does not answer. An error with a semicolon stays as it is, because only a
 * remedy follows a semicolon (client/connect.c). */
static ddp_status add_remedy(ddp_status status, struct ddp_err *err)
{
    if (status != DDP_ERR_TIMEOUT || strchr(err->msg, ';') != NULL)
        return status;
    const size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof(err->msg) - n,
             "; check that the job runs; 'ddprun --verbose' prints the address of its store");
    return status;
}

/* Connect. If the store does not answer within PATIENCE_MS, warn and retry. The library alone would retry silently
 * until its deadline, which looks like a hang on a terminal. */
static ddp_status connect_patiently(const struct ctl_options *o, ddp_store **store, struct ddp_err *err)
{
    char left[TEXT_MS_MAX];
    if (o->timeout_ms <= PATIENCE_MS || o->watch)
        return add_remedy(connect_for(o, o->timeout_ms, store, err), err);
    ddp_status status = connect_for(o, PATIENCE_MS, store, err);
    if (status != DDP_ERR_TIMEOUT)
        return status;
    log_warn("%s; retrying for %s", err->msg, text_ms((uint64_t)(o->timeout_ms - PATIENCE_MS), left));
    status = connect_for(o, o->timeout_ms - PATIENCE_MS, store, err);
    if (status != DDP_ERR_TIMEOUT)
        return status;
    const struct ddp_err last = *err;
    /* the error of the second try contains only the duration of this try; replace this duration by the duration of both
     * tries */
    const char *within = strstr(last.msg, "no connection within ");
    const char *colon = within != NULL ? strstr(within, ": ") : NULL;
    const char *reason = colon != NULL ? colon + 2 : last.msg;
    char at[ENDPOINT_TEXT_MAX];
    ddp_fail(err, status, "store %s: no connection within %.10g s (--timeout): %.300s",
             endpoint_print(o->addr.host, o->addr.port, at), o->timeout_ms / 1000.0, reason);
    return add_remedy(status, err);
}

/* Make one connection, send one CONTROL request and read one answer. Return the answer as malloc'ed JSON. Return NULL
 * after a failure, with the reason in `err`. */
static char *ask(const struct ctl_options *o, struct ddp_err *err)
{
    ddp_store *store;
    char *request = ctl_options_request(o), *reply = NULL;
    if (request == NULL)
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    else if (connect_patiently(o, &store, err) == DDP_OK) {
        ddp_store_control(store, request, o->timeout_ms, &reply, err);
        ddp_store_close(store);
    }
    free(request);
    return reply;
}

/* Replace control characters: the text has names of hosts, jobs and programs, and is printed on a terminal. */
static void disarm(struct buf *text)
{
    if (text->len > 0)
        text_disarm(text->data, text->len, '\n');
}

static bool append_text(const struct ctl_options *o, const cJSON *answer, struct buf *text)
{
    bool ok = o->command->format(answer, text);
    disarm(text);
    return ok;
}

/* Append the answer as tables, or unchanged with --json. Return false if memory is short. */
static bool append_answer(const struct ctl_options *o, const cJSON *answer, struct buf *text)
{
    if (!o->json)
        return append_text(o, answer, text);
    char *pretty = cJSON_Print(answer);
    bool ok = pretty != NULL && buf_printf(text, "%s\n", pretty);
    free(pretty);
    return ok;
}

/* Return the code for the hint: the code of the first error, or of the first finding if no finding is an error. Return
 * FINDING_NONE for an empty list, or if the code is unknown. */
static enum finding_code hint_code(const cJSON *findings)
{
    enum finding_code first = FINDING_NONE;
    const cJSON *row;
    cJSON_ArrayForEach(row, findings)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "code"));
        const enum finding_code code = name != NULL ? finding_by_name(name) : FINDING_NONE;
        if (code != FINDING_NONE && strcmp(finding_grade_name(code), "error") == 0)
            return code;
        first = first == FINDING_NONE ? code : first;
    }
    return first;
}

/* Print the answer. The exit code shows whether the store has accepted the request. An error of the store goes to
 * stderr, and with --json to stdout, too. */
static int show(const struct ctl_options *o, const cJSON *answer)
{
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "error"));
    const bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok"));
    struct buf text = { 0 };
    char at[ENDPOINT_TEXT_MAX];
    if (!ok)
        log_error("store %s: rejected the request: %s", endpoint_print(o->addr.host, o->addr.port, at),
                  error != NULL
                      ? error
                      : "the store sent no reason; check that ddpctl and ddprun have the same version");
    if (!ok && !o->json)
        return EXIT_FAILED;
    const int code = print_text(&text, append_answer(o, answer, &text));
    const enum finding_code finding = hint_code(cJSON_GetObjectItemCaseSensitive(answer, "findings"));
    if (finding != FINDING_NONE && !o->json && log_hint_is_due())
        printf("  (ddprun explain %s)\n", finding_code_name(finding));
    return ok ? code : EXIT_FAILED;
}

static int ask_once(const struct ctl_options *o)
{
    struct ddp_err err = { 0 };
    char *reply = ask(o, &err);
    if (reply == NULL) {
        log_error("%s", err.msg);
        return EXIT_FAILED;
    }
    cJSON *answer = cJSON_Parse(reply);
    int exit_code = show(o, answer);
    cJSON_Delete(answer);
    free(reply);
    return exit_code;
}

/* Show the answer once, or the reason why the store has sent no answer. Return false if writing fails. */
static bool watch_once(const struct ctl_options *o)
{
    struct ddp_err err = { 0 };
    struct buf text = { 0 };
    char at[ENDPOINT_TEXT_MAX];
    char *reply = ask(o, &err);
    operator.was_proven = operator.was_proven ||(reply != NULL && operator.secret != NULL);
    if (reply == NULL && err.code == DDP_ERR_MISMATCH && operator.asks)
        operator_forget(&operator);
    cJSON *answer = reply != NULL ? cJSON_Parse(reply) : NULL;
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "error"));
    bool ok = answer == NULL  ? buf_printf(&text, "%s\n", err.msg)
              : error != NULL ? buf_printf(&text, "store %s: rejected the request: %s\n",
                                           endpoint_print(o->addr.host, o->addr.port, at), error)
                              : append_answer(o, answer, &text);
    if (!o->json)
        disarm(&text);
    ok = ok && ctl_watch_show(buf_slice(&text));
    cJSON_Delete(answer);
    free(reply);
    buf_free(&text);
    return ok;
}

/* Print the explanation of a finding or an exit code, without a store. */
static int explain(const struct ctl_options *o)
{
    struct buf text = { 0 };
    struct ddp_err err;
    const ddp_status status =
        o->n_files > 1 ? ddp_fail(&err, DDP_ERR_ARG,
                                  "explain: expected at most one code; 'ddpctl explain' lists all codes")
                       : explain_code(o->argument, o->json, &text, &err);
    if (status == DDP_OK)
        return print_text(&text, true);
    buf_free(&text);
    log_error("%s", err.msg);
    return EXIT_USAGE;
}

/* Run a command that needs no store, but only files. */
static int from_files(const struct ctl_options *o)
{
    struct buf text = { 0 };
    if (o->command->draws)
        return ctl_timeline(o) ? EXIT_OK : EXIT_FAILED;
    if (o->command->format == NULL)
        return explain(o);
    bool all_read = true;
    cJSON *answer = ctl_flight(o, &all_read);
    const int code = answer != NULL ? print_text(&text, append_answer(o, answer, &text)) : EXIT_FAILED;
    cJSON_Delete(answer);
    return all_read ? code : EXIT_FAILED;
}

/* Show the answer repeatedly until the user quits or the output is closed. */
static int watch(const struct ctl_options *o)
{
    ctl_watch_begin();
    bool ok = watch_once(o);
    while (ok && ctl_watch_wait())
        ok = watch_once(o);
    ctl_watch_end();
    return ok ? EXIT_OK : EXIT_FAILED;
}

/* --- the user's jobs on this host ----------------------------------------------------------------------- */

struct jobs {
    struct ctl_job *items; /* owned */
    size_t n;
    bool ok;
};

static void add_job(void *user, const struct record_job *r)
{
    struct jobs *jobs = user;
    struct ctl_job *items = realloc(jobs->items, (jobs->n + 1) * sizeof(*items)), *job;
    jobs->ok = jobs->ok && items != NULL;
    if (items == NULL)
        return;
    jobs->items = items;
    job = &items[jobs->n++];
    *job = (struct ctl_job){ .pid = r->pid, .age_ms = r->age_ms };
    snprintf(job->id, sizeof(job->id), "%s", r->job);
    snprintf(job->store, sizeof(job->store), "%s", r->store);
}

/* Try the store at the default address, because no job of this user was found on this host. The job may run in
 * another PID namespace, or root may ask about another user's job. */
static ddp_status try_default(struct ctl_options *o, struct ddp_err *err)
{
    ddp_store *store;
    struct ddp_err why = { 0 };
    ddp_status status = endpoint_parse(DEFAULT_STORE, 0, &o->addr, &why);
    if (status == DDP_OK)
        status = connect_for(o, DEFAULT_MS, &store, &why);
    if (status != DDP_OK)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "%.600s; this address is the default, because you have no running job on this machine; "
            "set --addr HOST:PORT",
            why.msg);
    ddp_store_close(store);
    log_info("you have no running job on this machine; using the store at the default "
             "address " DEFAULT_STORE);
    return DDP_OK;
}

/* Find the user's job on this host, and use its store and its name. If several jobs run, fail and print a table of
 * them. */
static ddp_status find_store(struct ctl_options *o, struct ddp_err *err)
{
    static char id[sizeof(((struct ctl_job *)NULL)->id)];
    const struct ctl_job *found;
    struct jobs jobs = { .ok = true };
    struct buf list = { 0 };
    record_each(add_job, &jobs);
    ddp_status status = jobs.ok ? ctl_jobs_choose(jobs.items, jobs.n, o->job, &found, &list, err)
                                : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (status == DDP_OK)
        status = endpoint_parse(found->store, 0, &o->addr, err);
    if (status == DDP_OK) {
        snprintf(id, sizeof(id), "%s", found->id);
        o->job = id;
    }
    /* a command that changes the store is never sent to a guessed address */
    if (status == DDP_ERR_ARG && list.len == 0 && o->job == NULL && o->command->argument == NULL)
        status = try_default(o, err);
    if (status != DDP_OK) {
        log_error("%s", err->msg);
        if (list.len > 0)
            fwrite(list.data, 1, list.len, stderr);
    }
    buf_free(&list);
    free(jobs.items);
    return status;
}

/* Copy the host of the job's store into the address `to`, if the store listens on the port of `to`. */
static void match_port(void *to, const struct record_job *r)
{
    struct endpoint *addr = to, store;
    struct ddp_err why;
    if (endpoint_parse(r->store, 0, &store, &why) == DDP_OK && store.port == addr->port)
        snprintf(addr->host, sizeof(addr->host), "%s", store.host);
}

/* Add the host to an address that has only a port. If a job of this user has its store on this port, use the host of
 * the store's address. The store may listen only there. In all other cases, use the loopback address. */
static void complete_addr(struct endpoint *addr)
{
    record_each(match_port, addr);
    if (addr->host[0] == '\0')
        snprintf(addr->host, sizeof(addr->host), "127.0.0.1");
}

/* Return true if the address belongs to this host. If a host sends a packet to its own address, the kernel uses this
 * address as the source, too. A connected UDP socket shows the source, and connecting such a socket sends no packet. */
static bool is_own_sockaddr(const struct addrinfo *to)
{
    struct sockaddr_storage from = { 0 };
    socklen_t len = sizeof(from);
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool known = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                       getsockname(fd, (struct sockaddr *)&from, &len) == 0;
    if (fd >= 0)
        close(fd);
    if (!known || from.ss_family != to->ai_addr->sa_family)
        return false;
    if (from.ss_family == AF_INET)
        return ((struct sockaddr_in *)&from)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)to->ai_addr)->sin_addr.s_addr;
    return from.ss_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&((struct sockaddr_in6 *)&from)->sin6_addr,
                              &((const struct sockaddr_in6 *)(const void *)to->ai_addr)->sin6_addr);
}

/* Return true if the store is on this host. Compare a name only with the names of this host, because a look-up may take
 * long. */
static bool is_on_this_host(const char *address)
{
    const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_DGRAM };
    struct addrinfo *to;
    char name[ENDPOINT_HOST_MAX] = "";
    gethostname(name, sizeof(name) - 1);
    if (endpoint_is_loopback(address) || strcmp(address, "localhost") == 0 || strcmp(address, name) == 0)
        return true;
    if (getaddrinfo(address, "9", &hints, &to) != 0)
        return false;
    const bool is_own = is_own_sockaddr(to);
    freeaddrinfo(to);
    return is_own;
}

/* Read the secret. The first row that applies determines the source:
 *
 *     --secret_file is set                            the file of this option
 *     the address is a loopback address               no secret, because the store checks the user instead
 *     PET_SECRET_FILE is set                          the file that this variable names, as in ddprun
 *     a store on another host, or --encrypt           the MUNGE credential, which the store sends
 *     otherwise                                       no secret */
static ddp_status read_secret(const struct ctl_options *o, struct ddp_err *err)
{
    const char *file = o->secret_file;
    if (file == NULL && !endpoint_is_loopback(o->addr.host))
        file = getenv("PET_SECRET_FILE");
    if (file != NULL && file[0] != '\0')
        return secret_read(file, &operator.secret, err);
    operator.asks = !endpoint_is_loopback(o->addr.host) && (o->encrypt || !is_on_this_host(o->addr.host));
    return DDP_OK;
}

/* Exit code 2 means that the command line is wrong, or that the address or the secret of the store could not be
 * determined. Exit code 1 means that a request to the store failed. */
int main(int argc, char **argv)
{
    struct ctl_options options;
    struct ddp_err err = { 0 };
    struct buf text = { 0 };
    keep_standard_fds();
    log_setup("ddpctl", LOG_INFO);
    log_on_terminal(isatty(STDOUT_FILENO) == 1); /* stdout gets the findings */
    if (ctl_options_parse(argc, argv, getenv, &options, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_USAGE;
    }
    if (options.action == CTL_VERSION)
        return print_text(&text, version_print(&text, "ddpctl", build_commit, options.json));
    if (options.action != CTL_ASK)
        return print_text(&text, ctl_options_text(&options, &text));
    if (options.command->op == NULL)
        return from_files(&options);
    if (options.addr.port == 0 && find_store(&options, &err) != DDP_OK)
        return EXIT_USAGE;
    if (options.addr.host[0] == '\0')
        complete_addr(&options.addr);
    if (read_secret(&options, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_USAGE;
    }
    if (options.encrypt && operator.secret == NULL && !operator.asks) {
        log_error("--encrypt: no secret of the job; add --secret_file=FILE");
        return EXIT_USAGE;
    }
    operator.job = options.job;
    operator_auth.tls = options.encrypt ? &operator_tls : NULL;
    if (options.encrypt && operator.secret != NULL && !operator_open_tls(&operator, & err)) {
        log_error("%s", err.msg);
        secret_free(operator.secret);
        return EXIT_FAILED;
    }
    const int code = options.watch ? watch(&options) : ask_once(&options);
    tls_free(operator.tls);
    tls_context_close(operator.context);
    buf_free(&operator.answer);
    secret_free(operator.secret);
    return code;
}

/* dial_plan.c -- see dial_plan.h. A round tries every address of the name once, and the failure at the latest stage is
 * the finding of the round. The first pauses are short, because the store is usually just starting. The pauses grow,
 * because a store may start minutes later, and a thousand nodes may dial its host. */
#include "net/dial_plan.h"

#include "auth/tls.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Time limit of a lookup in ms, and also the maximum age of its result. If a lookup takes longer, a finding reports
     * the slow lookup, and the lookup continues. If the result is older than RESOLVE_MS at the next attempt to connect,
     * the name is looked up again. */
    RESOLVE_MS = 5000
};

static const struct row {
    enum finding_code finding;
    enum dial_stage stage;
    int error;
    uint64_t least_ms;
    bool sure;
} rows[] = {
#define X(code, stage, error, least_ms, sure) { FINDING_##code, STAGE_##stage, error, least_ms, sure },
    DIAL_FINDINGS(X)
#undef X
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Return the finding of the first row that matches. The last row of each stage matches every error. */
static enum finding_code dial_finding_of(const struct dial_met *met)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].stage == met->stage && (rows[i].error == 0 || rows[i].error == met->error) &&
            met->took_ms >= rows[i].least_ms)
            return rows[i].finding;
    return FINDING_NONE;
}

static void enter(struct dial *d, enum dial_phase phase, uint64_t now_ms)
{
    d->phase = phase;
    d->since_ms = now_ms;
}

/* Return a random number (xorshift). Pauses have a random part, because all nodes of a job begin to dial at the same
 * time. */
static uint32_t next_random(struct dial *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 17;
    d->random ^= d->random << 5;
    return d->random;
}

/* --- results -------------------------------------------------------------------------------------------- */

/* Map errors with the same remedy to one error. A packet filter causes EPERM, or EACCES for IPv6. A name server causes
 * EAI_NONAME for an unknown name, and EAI_NODATA for a name without an address. */
static int plain_error(int error)
{
    switch (error) {
    case EAI_NODATA:
        return EAI_NONAME;
    case EPERM:
        return EACCES;
    case EAFNOSUPPORT:
        return EADDRNOTAVAIL;
    case ENFILE:
        return EMFILE;
    default:
        return error;
    }
}

/* Copy the first line of an answer, with dots instead of unprintable characters. */
static void append_printable(char *out, size_t size, struct slice bytes)
{
    const unsigned char *p = bytes.data;
    size_t n = 0;
    for (; n < bytes.len && n + 1 < size && p[n] != '\r' && p[n] != '\n'; n++)
        out[n] = (char)(p[n] >= ' ' && p[n] <= '~' ? p[n] : '.');
    out[n] = '\0';
}

static bool begins(struct slice bytes, const char *text)
{
    return bytes.len >= strlen(text) && memcmp(bytes.data, text, strlen(text)) == 0;
}

/* Return the error for an answer of a service that is not a store. A TLS record begins with 22 (handshake) or 21
 * (alert) and major version 3 (RFC 8446, section 5.1). A TLS server sends an alert to a client without TLS. */
int dial_answer_kind(struct slice bytes)
{
    const unsigned char *p = bytes.data;
    if (bytes.len == 0)
        return HELLO_CLOSED;
    if (begins(bytes, "HTTP"))
        return HELLO_HTTP;
    if (begins(bytes, "SSH-"))
        return HELLO_SSH;
    if (tls_alert_code(bytes) == TLS_ALERT_ENCRYPTED)
        return HELLO_ENCRYPTED;
    if (bytes.len >= 2 && (p[0] == 21 || p[0] == 22) && p[1] == 3)
        return HELLO_TLS;
    return HELLO_OTHER;
}

/* Keep the failure at the latest stage of this round. For example, if IPv6 has no route and the peer refuses IPv4, keep
 * the refusal. Of two failures at the same stage, keep the first, because the resolver returns the best address
 * first. */
static void meet(struct dial *d, const struct dial_met *met)
{
    if (d->round_met && met->stage <= d->worst.stage)
        return;
    d->worst = *met;
    d->round_met = true;
}

/* Add a finding to the history. A repeated finding only extends the last row. If the history is full, the second row
 * is dropped. */
static void remember(struct dial *d, uint64_t now_ms)
{
    const uint64_t at_ms = now_ms - d->begun_ms;
    struct dial_past *last = d->n_past > 0 ? &d->history[d->n_past - 1] : NULL;
    if (last != NULL && last->finding == d->finding) {
        last->to_ms = at_ms;
        last->times++;
        return;
    }
    if (d->n_past == DIAL_HISTORY_MAX) { /* keep the first row: it shows how the dial began */
        memmove(&d->history[1], &d->history[2], (DIAL_HISTORY_MAX - 2) * sizeof(d->history[0]));
        d->n_past--;
        d->past_lost++;
    }
    d->history[d->n_past++] = (struct dial_past){ d->finding, at_ms, at_ms, 1 };
}

/* Record the finding of a round. `finding_since_ms` changes only when the finding changes. */
static void dial_count_met(struct dial *d, const struct dial_met *met, uint64_t now_ms)
{
    const enum finding_code finding = dial_finding_of(met);
    d->verdict = *met;
    if (finding != d->finding)
        d->finding_since_ms = now_ms;
    d->finding = finding;
    remember(d, now_ms);
}

/* --- rounds --------------------------------------------------------------------------------------------- */

static void begin_race(struct dial *d, uint64_t now_ms)
{
    race_begin(&d->race, now_ms);
    d->round_met = false;
    enter(d, DIAL_RACING, now_ms);
}

/* Begin a lookup. The old addresses are dropped, because the store may have another address now. */
static void begin_lookup(struct dial *d, uint64_t now_ms)
{
    d->race.n = 0;
    d->next_ms = now_ms; /* becomes UINT64_MAX as soon as dial_next has returned RESOLVE */
    d->seen[STAGE_RESOLVE].tries++;
    enter(d, DIAL_RESOLVING, now_ms);
}

/* End a round, after a failed lookup or after all connection attempts have failed. If the store's name resolves to this
 * machine by mistake, this mistake causes all other errors, so record it as the error of the round. */
static void end_round(struct dial *d, const struct dial_met *met, uint64_t now_ms)
{
    struct dial_met loopback = *met;
    if (d->only_loopback && met->stage != STAGE_RESOLVE) {
        loopback.stage = STAGE_RESOLVE;
        loopback.error = DIAL_LOOPBACK;
    }
    dial_count_met(d, &loopback, now_ms);
    enter(d, DIAL_PAUSING, now_ms);
    d->next_ms = now_ms + race_pause_ms(d->failed_rounds++, next_random(d));
}

/* Return true if the name resolves to this machine by mistake. "localhost" resolves to this machine on purpose. */
static bool means_us(const struct dial *d)
{
    bool all = d->race.n > 0 && !d->options.master && !d->options.literal &&
               strcmp(d->options.host, "localhost") != 0;
    for (int i = 0; i < d->race.n; i++)
        all = all && endpoint_is_loopback(d->race.runners[i].address);
    return all;
}

/* Begin a dial. Replace a seed of 0 by 1, because xorshift returns only zeros for the seed 0. */
void dial_begin(struct dial *d, const struct dial_options *options, uint64_t now_ms)
{
    *d = (struct dial){ .options = *options, .begun_ms = now_ms };
    d->random = options->seed != 0 ? options->seed : 1;
    begin_lookup(d, now_ms);
}

/* Process the addresses of the name. Ignore the addresses if no lookup is in progress. */
void dial_resolved(struct dial *d, const char *const *addresses, int n, const char *hosts_line,
                   uint64_t now_ms)
{
    if (d->phase != DIAL_RESOLVING)
        return;
    d->seen[STAGE_RESOLVE].done++;
    d->seen[STAGE_RESOLVE].took_ms = now_ms - d->since_ms;
    d->resolved_ms = now_ms;
    race_line_up(&d->race, addresses, n);
    snprintf(d->hosts_line, sizeof(d->hosts_line), "%s", hosts_line != NULL ? hosts_line : "");
    d->only_loopback = means_us(d);
    begin_race(d, now_ms);
}

void dial_unresolved(struct dial *d, int error, uint64_t now_ms)
{
    if (d->phase != DIAL_RESOLVING)
        return;
    const struct dial_met met = { .stage = STAGE_RESOLVE,
                                  .error = plain_error(error),
                                  .took_ms = now_ms - d->since_ms };
    end_round(d, &met, now_ms);
}

/* --- one runner ----------------------------------------------------------------------------------------- */

/* Record that a runner has connected. Only the answer to the greeting shows whether the peer is a store. */
void dial_connected(struct dial *d, int runner, const char *source, uint64_t now_ms)
{
    struct race_runner *r = &d->race.runners[runner];
    d->seen[STAGE_ROUTE].done++;
    d->seen[STAGE_CONNECT].done++;
    d->seen[STAGE_CONNECT].took_ms = now_ms - r->since_ms;
    d->seen[STAGE_HELLO].tries++;
    snprintf(d->source, sizeof(d->source), "%s", source);
    race_connected(&d->race, runner, now_ms);
}

/* Record a failed attempt. If this node does not host the store and a loopback address refuses the connection, the
 * error is DIAL_REFUSED_HERE. Usually the store is then on another machine, or has not started yet. */
static void dial_count_failure(struct dial *d, struct race_runner *r, const struct dial_met *what,
                               uint64_t now_ms)
{
    struct dial_met met = *what;
    met.took_ms = now_ms - r->since_ms;
    snprintf(met.address, sizeof(met.address), "%s", r->address);
    if (met.error == ECONNREFUSED && endpoint_is_loopback(r->address) && !d->options.master)
        met.error = DIAL_REFUSED_HERE;
    r->state = RUNNER_FAILED;
    if (met.stage == STAGE_CONNECT)
        d->seen[STAGE_ROUTE].done++;
    meet(d, &met);
}

/* Return the stage of a failure. A connect() that fails at once (`on_the_spot`) has usually found no route. There are
 * two exceptions: this machine has refused the connection, or descriptors have run out. */
static enum dial_stage stage_of(const struct race_runner *r, bool on_the_spot, int error)
{
    if (r->state == RUNNER_GREETS)
        return STAGE_HELLO;
    return on_the_spot && error != ECONNREFUSED && error != EMFILE ? STAGE_ROUTE : STAGE_CONNECT;
}

/* Process the failure of a runner. Do nothing if dial_next has already recorded a timeout of this runner. */
void dial_failed(struct dial *d, int runner, bool on_the_spot, int error, struct slice answer,
                 uint64_t now_ms)
{
    struct race_runner *r = &d->race.runners[runner];
    struct dial_met met = { .error = plain_error(error) };
    if (r->state == RUNNER_FAILED)
        return;
    met.stage = stage_of(r, on_the_spot, met.error);
    append_printable(met.bytes, error == HELLO_NO_SECRET ? DIAL_REASON_MAX : DIAL_BYTES_MAX, answer);
    dial_count_failure(d, r, &met, now_ms);
}

void dial_arrived(struct dial *d, int runner, uint64_t now_ms)
{
    d->seen[STAGE_HELLO].done++;
    d->seen[STAGE_HELLO].took_ms = now_ms - d->race.runners[runner].since_ms;
    enter(d, DIAL_ARRIVED, now_ms);
}

void dial_continued(struct dial *d, int runner, uint64_t now_ms)
{
    race_connected(&d->race, runner, now_ms);
}

/* --- next step ------------------------------------------------------------------------------------------ */

static struct dial_step wait_until(uint64_t at_ms)
{
    return (struct dial_step){ .what = DIAL_WAIT, .at_ms = at_ms };
}

/* Return the step RESOLVE once for each lookup, and then the step WAIT. If the lookup exceeds its limit, record a
 * finding, but let the lookup continue. */
static struct dial_step next_lookup(struct dial *d, uint64_t now_ms)
{
    const struct dial_met silent = { .stage = STAGE_RESOLVE, .error = ETIMEDOUT, .took_ms = RESOLVE_MS };
    if (d->next_ms != UINT64_MAX) {
        d->next_ms = UINT64_MAX;
        return (struct dial_step){ .what = DIAL_RESOLVE };
    }
    if (now_ms < d->since_ms + RESOLVE_MS)
        return wait_until(d->since_ms + RESOLVE_MS);
    if (d->finding != FINDING_RESOLVER_SILENT)
        dial_count_met(d, &silent, now_ms);
    return wait_until(UINT64_MAX);
}

/* Return the next step of the race between the addresses. Record tries and failures for the report. */
static struct dial_step next_of_race(struct dial *d, uint64_t now_ms)
{
    const struct race_step step = race_next(&d->race, now_ms);
    struct race_runner *r = &d->race.runners[step.runner];
    const bool greets = r->state == RUNNER_GREETS;
    const struct dial_met late = { .stage = greets ? STAGE_HELLO : STAGE_CONNECT,
                                   .error = greets ? HELLO_SILENT : ETIMEDOUT };
    switch (step.what) {
    case RACE_START:
        d->seen[STAGE_ROUTE].tries++;
        d->seen[STAGE_CONNECT].tries++;
        return (struct dial_step){ .what = DIAL_CONNECT, .runner = step.runner };
    case RACE_LATE:
        dial_count_failure(d, r, &late, now_ms);
        return (struct dial_step){ .what = DIAL_DROP, .runner = step.runner };
    case RACE_LOST:
        end_round(d, &d->worst, now_ms);
        return wait_until(now_ms);
    case RACE_WAIT:
        break;
    }
    return wait_until(step.at_ms);
}

/* Return the step after a pause. If the addresses are older than RESOLVE_MS, look the name up again, because the
 * addresses may have changed. */
static struct dial_step next_after_pause(struct dial *d, uint64_t now_ms)
{
    if (now_ms < d->next_ms)
        return wait_until(d->next_ms);
    if (d->race.n > 0 && (d->options.literal || now_ms < d->resolved_ms + RESOLVE_MS))
        begin_race(d, now_ms);
    else
        begin_lookup(d, now_ms);
    return wait_until(now_ms);
}

static struct dial_step next_in_phase(struct dial *d, uint64_t now_ms)
{
    switch (d->phase) {
    case DIAL_RESOLVING:
        return next_lookup(d, now_ms);
    case DIAL_RACING:
        return next_of_race(d, now_ms);
    case DIAL_PAUSING:
        return next_after_pause(d, now_ms);
    case DIAL_ARRIVED:
    case DIAL_OVER:
        break;
    }
    return wait_until(UINT64_MAX);
}

/* Return the next step. No round may begin after the timeout, so check the timeout first. If next_in_phase returns WAIT
 * without a time in the future, the phase has changed, so call next_in_phase again. */
struct dial_step dial_next(struct dial *d, uint64_t now_ms)
{
    const uint64_t end_ms = d->begun_ms + d->options.budget_ms;
    if (d->phase != DIAL_ARRIVED && now_ms >= end_ms) {
        d->phase = DIAL_OVER;
        return (struct dial_step){ .what = DIAL_GIVE_UP };
    }
    struct dial_step step = next_in_phase(d, now_ms);
    while (step.what == DIAL_WAIT && step.at_ms <= now_ms)
        step = next_in_phase(d, now_ms);
    if (step.what == DIAL_WAIT && d->phase != DIAL_ARRIVED && end_ms < step.at_ms)
        step.at_ms = end_ms;
    return step;
}

/* --- messages -------------------------------------------------------------------------------------------
 *
 * The sentences are in findings.h, and this part fills in their values. A finding is printed in full or in one line:
 *
 *     at once         in full, if waiting rarely resolves it
 *     after 2 s       in one line: what the node waits for (a faster start prints no message)
 *     later           in one line when it changes, and in full when it has not changed for 8 s
 *     every 30 s      in one line, with the time that is left */

enum { FIRST_WORD_MS = 2000, STANDS_MS = 8000, AGAIN_MS = 30000, CHANGE_MS = 2000 };

static const char *const stage_names[DIAL_STAGES] = {
#define X(id, name) [STAGE_##id] = name,
    DIAL_STAGES_LIST(X)
#undef X
};

const char *dial_code(enum finding_code finding)
{
    return finding_code_name(finding != FINDING_NONE ? finding : FINDING_NO_ANSWER_YET);
}

/* Return true if waiting rarely resolves the finding, for example when the name resolves to this machine by mistake.
 * Such a finding is printed in full at once. Any other finding is printed in full after STANDS_MS. */
static bool is_sure(enum finding_code finding)
{
    int i = 0;
    while (i < ROWS && rows[i].finding != finding)
        i++;
    return i < ROWS && rows[i].sure;
}

/* Append "host:port", with brackets around an IPv6 address, so that a user can copy the text into
 * --rdzv_endpoint. */
static bool append_endpoint(struct buf *out, const char *host, int port)
{
    char text[ENDPOINT_TEXT_MAX];
    return buf_printf(out, "%s", endpoint_print(host, port, text));
}

/* Append all addresses: "10.0.0.1, 10.1.0.1". */
static bool append_addresses(struct buf *out, const struct dial *d)
{
    bool ok = true;
    for (int i = 0; i < d->race.n; i++)
        ok = ok && buf_printf(out, "%s%s", i > 0 ? ", " : "", d->race.runners[i].address);
    return ok;
}

static bool is_name(struct slice name, const char *wanted)
{
    return slice_equal(name, slice_str(wanted));
}

/* Append the value of a placeholder in a finding's sentence. Return false for an unknown placeholder. */
static bool append_value(void *user, struct slice name, struct buf *out)
{
    const struct dial *d = user;
    const struct dial_met *met = &d->verdict;
    if (is_name(name, "host"))
        return buf_printf(out, "%s", d->options.host);
    if (is_name(name, "this_host"))
        return buf_printf(out, "%s", d->options.here);
    if (is_name(name, "port"))
        return buf_printf(out, "%d", d->options.port);
    if (is_name(name, "at"))
        return append_endpoint(out, met->address, d->options.port);
    if (is_name(name, "address"))
        return met->address[0] != '\0' ? buf_printf(out, "%s", met->address) : append_addresses(out, d);
    if (is_name(name, "took"))
        return text_append_ms(out, met->took_ms);
    if (is_name(name, "open_files"))
        return buf_printf(out, "%llu", (unsigned long long)d->options.open_files);
    if (is_name(name, "bytes"))
        return buf_printf(out, "%s", met->bytes);
    if (is_name(name, "hosts"))
        return d->hosts_line[0] == '\0' ||
               buf_printf(out, " (/etc/hosts has the line \"%s\")", d->hosts_line);
    return is_name(name, "error") &&
           buf_printf(out, "%s", met->error > 0 ? strerror(met->error) : gai_strerror(met->error));
}

static bool fill_in(struct buf *out, const struct dial *d, const char *text)
{
    return finding_fill(out, text, append_value, (void *)d);
}

/* Describe the current step of the dial. Messages show this text until a finding exists. */
static const char *meanwhile(const struct dial *d)
{
    for (int i = 0; i < d->race.n; i++)
        if (d->race.runners[i].state == RUNNER_GREETS)
            return "the port accepts connections, but has not answered yet";
    return d->phase == DIAL_RESOLVING ? "the lookup of the host name has not ended yet"
                                      : "no answer to the connection attempt yet";
}

/* Append the sentence of the finding, or the current step of the dial if no finding exists yet. */
static bool append_sentence(struct buf *out, const struct dial *d)
{
    return d->finding == FINDING_NONE ? buf_printf(out, "%s", meanwhile(d))
                                      : fill_in(out, d, finding_sentence(d->finding));
}

/* Append the warning about a loopback address. The finding MASTER_IS_LOOPBACK already contains this warning. */
static bool append_local_only(struct buf *out, const struct dial *d)
{
    const char *words = d->options.local_only;
    return words == NULL || words[0] == '\0' || d->finding == FINDING_MASTER_IS_LOOPBACK ||
           buf_printf(out, "; %s", words);
}

/* Append the option that sets the timeout, such as " (--timeout)". */
static bool append_knob(struct buf *out, const struct dial *d)
{
    return d->options.knob == NULL || buf_printf(out, " (%s)", d->options.knob);
}

/* Append "waiting for the store at n0:29500 for 2.0 s: ...; giving up in 14 min (--timeout)". */
static bool append_short(struct buf *out, const struct dial *d, uint64_t now_ms)
{
    const uint64_t spent_ms = now_ms - d->begun_ms;
    return buf_printf(out, "waiting for %s at ", d->options.who) &&
           append_endpoint(out, d->options.host, d->options.port) && buf_printf(out, " for ") &&
           text_append_ms(out, spent_ms) && buf_printf(out, ": ") && append_sentence(out, d) &&
           append_local_only(out, d) && buf_printf(out, "; giving up in ") &&
           text_append_ms(out, d->options.budget_ms > spent_ms ? d->options.budget_ms - spent_ms : 0) &&
           append_knob(out, d);
}

/* Append the advice, then the code for `ddprun explain`. */
static bool append_advice(struct buf *out, const struct dial *d)
{
    const char *note = d->options.note;
    return buf_printf(out, "\n  try      ") && fill_in(out, d, finding_advice(d->finding)) &&
           (note == NULL || note[0] == '\0' || buf_printf(out, "\n  place    %s", note)) &&
           buf_printf(out, FINDING_CODE_MARK "%s", dial_code(d->finding));
}

static bool append_full(struct buf *out, const struct dial *d, uint64_t now_ms)
{
    return append_short(out, d, now_ms) && append_advice(out, d);
}

/* Return true if the finding must be printed in full now. The same finding is printed in full again only if another
 * finding was printed meanwhile. */
static bool full_is_due(const struct dial *d, uint64_t now_ms)
{
    const bool was_printed = d->printed.in_full && d->printed.finding == d->finding;
    return d->finding != FINDING_NONE && !was_printed &&
           (is_sure(d->finding) || now_ms >= d->finding_since_ms + STANDS_MS);
}

/* Return true if a short message is due. The first message is due FIRST_WORD_MS after the beginning of the dial. A
 * further message is due AGAIN_MS after the last message. If the finding differs from the finding of the last message,
 * a further message is due CHANGE_MS after the last message. */
static bool short_is_due(const struct dial *d, uint64_t now_ms)
{
    const struct dial_printed *printed = &d->printed;
    if (!printed->anything)
        return now_ms >= d->begun_ms + FIRST_WORD_MS;
    return now_ms >= printed->at_ms + AGAIN_MS ||
           (printed->finding != d->finding && now_ms >= printed->at_ms + CHANGE_MS);
}

/* Append the messages that are due now and mark them as printed. Return false if no message is due. */
static bool append_status(struct dial *d, struct buf *out, uint64_t now_ms)
{
    const bool full = full_is_due(d, now_ms);
    if (d->phase == DIAL_ARRIVED || d->phase == DIAL_OVER || (!full && !short_is_due(d, now_ms)))
        return false;
    const bool still = d->printed.in_full && d->printed.finding == d->finding;
    d->printed = (struct dial_printed){
        .at_ms = now_ms, .finding = d->finding, .anything = true, .in_full = full || still
    };
    return full ? append_full(out, d, now_ms) : append_short(out, d, now_ms);
}

void dial_print_status(struct dial *d, uint64_t now_ms, void (*print)(void *user, const char *words),
                       void *user)
{
    struct buf words = { 0 };
    if (append_status(d, &words, now_ms) && buf_append(&words, "", 1))
        print(user, (const char *)words.data);
    buf_free(&words);
}

/* Return the time at which full_is_due() or short_is_due() becomes true. Ignore a finding for which is_sure() is true,
 * because the loop prints such a finding before it calls this function. */
uint64_t dial_status_due(const struct dial *d)
{
    const struct dial_printed *printed = &d->printed;
    uint64_t at_ms = printed->anything ? printed->at_ms + AGAIN_MS : d->begun_ms + FIRST_WORD_MS;
    const uint64_t full_ms = d->finding_since_ms + STANDS_MS, change_ms = printed->at_ms + CHANGE_MS;
    if (d->finding == FINDING_NONE)
        return at_ms;
    if (!(printed->in_full && printed->finding == d->finding) && full_ms < at_ms)
        at_ms = full_ms;
    return printed->anything && printed->finding != d->finding && change_ms < at_ms ? change_ms : at_ms;
}

/* Append the line of a stage. A stage without a failure gets a line, too: "4 of 4 tries worked" shows that this stage
 * is not the cause. */
static bool append_stage(struct buf *out, const struct dial *d, enum dial_stage stage)
{
    const struct dial_stage_seen *seen = &d->seen[stage];
    bool ok = buf_printf(out, "\n  %-8s ", stage_names[stage]);
    if (seen->tries == 0)
        return ok && buf_printf(out, "not reached");
    ok = ok && buf_printf(out, "%u of %u tries worked", seen->done, seen->tries);
    if (stage == STAGE_RESOLVE && seen->done > 0 && d->race.n > 0)
        ok = ok && buf_printf(out, ": %s is ", d->options.host) && append_addresses(out, d);
    if (stage == STAGE_ROUTE && d->source[0] != '\0')
        ok = ok && buf_printf(out, ": from %s", d->source);
    if (stage != STAGE_ROUTE && seen->done > 0)
        ok = ok && buf_printf(out, "; the last success took ") && text_append_ms(out, seen->took_ms);
    return ok;
}

/* Append a row of the history: "0.5 s to 3.0 s: CONNECT_REFUSED, 12 times". */
static bool append_past(struct buf *out, const struct dial_past *past)
{
    bool ok = buf_printf(out, "\n  history  ") && text_append_ms(out, past->from_ms);
    if (past->times > 1)
        ok = ok && buf_printf(out, " to ") && text_append_ms(out, past->to_ms);
    return ok && buf_printf(out, ": %s%s", dial_code(past->finding), past->times > 1 ? ", " : "") &&
           (past->times == 1 || buf_printf(out, "%u times", past->times));
}

/* Append the history of findings. If rows were dropped, the line after the first row shows their number. */
static bool append_history(struct buf *out, const struct dial *d)
{
    bool ok = true;
    for (unsigned i = 0; i < d->n_past; i++) {
        if (i == 1 && d->past_lost > 0)
            ok = ok && buf_printf(out, "\n  history  ... %u changes omitted", d->past_lost);
        ok = ok && append_past(out, &d->history[i]);
    }
    return ok;
}

/* Append the finding, the advice, the stages and the history, in this order, because most users need only the first
 * two. */
bool dial_report(const struct dial *d, struct buf *out, uint64_t now_ms)
{
    bool ok = buf_printf(out, "%s cannot reach %s at ", d->options.here, d->options.who) &&
              append_endpoint(out, d->options.host, d->options.port) &&
              buf_printf(out, ", and gives up after ") && text_append_ms(out, now_ms - d->begun_ms) &&
              append_knob(out, d) && buf_printf(out, ": ") && append_sentence(out, d) &&
              append_local_only(out, d);
    if (d->finding != FINDING_NONE)
        ok = ok && append_advice(out, d);
    for (int stage = 0; stage < DIAL_STAGES; stage++)
        ok = ok && append_stage(out, d, (enum dial_stage)stage);
    return ok && append_history(out, d);
}

/* --- large packets -------------------------------------------------------------------------------------- */

/* Return the next step. Kernels send only about 6 ICMP answers in a burst, and then 1 per second (icmp_ratelimit). So
 * missing answers do not always mean lost packets. Therefore small and large packets alternate: if the small packets
 * get no answer, either, the result is unknown. */
enum path_step path_next(const struct path_answers *a)
{
    enum { LARGE_TRIES = 3, SMALL_LOST_MAX = 1 };
    if (a->answered[PATH_LARGE] > 0 || a->is_reported)
        return PROBE_CARRIES;
    if (a->has_error || a->sent[PATH_SMALL] - a->answered[PATH_SMALL] > SMALL_LOST_MAX)
        return PROBE_UNKNOWN;
    if (a->answered[PATH_SMALL] <= a->sent[PATH_LARGE])
        return PROBE_SEND_SMALL;
    return a->sent[PATH_LARGE] < LARGE_TRIES ? PROBE_SEND_LARGE : PROBE_LOSES;
}

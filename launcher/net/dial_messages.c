/* dial_messages.c -- see dial_messages.h.
 *
 * All sentences are rows of findings.h; here they are filled in.
 *
 * When the user hears of it:
 *
 *     at once         a finding that waiting will hardly cure, in full
 *     after 2 s       what we wait for, in one line; a start that takes less is not worth a word
 *     then            when the finding changes, in one line; in full once it has stood for 8 s
 *     every 30 s      one line with the time that is left */
#include "net/dial_messages.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_WORD_MS = 2000, STANDS_MS = 8000, AGAIN_MS = 30000, CHANGE_MS = 2000 };

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

static const char *const stage_names[DIAL_STAGES] = {
#define X(id, name) [STAGE_##id] = name,
    DIAL_STAGES_LIST(X)
#undef X
};

/* Each stage has a row for any error, so there is always one. The first that fits, so special rows stand
 * before general ones. */
enum finding_code dial_finding_of(const struct dial_met *met)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].stage == met->stage && (rows[i].error == 0 || rows[i].error == met->error) &&
            met->took_ms >= rows[i].least_ms)
            return rows[i].finding;
    return FINDING_NONE;
}

const char *dial_code(enum finding_code finding)
{
    return finding != FINDING_NONE ? finding_code_name(finding) : "NO_ANSWER_YET";
}

/* What will not change by waiting ("the name leads to this machine") is said at once and in full; what may
 * be a store that is still starting, only when it has stood for STANDS_MS. */
static bool is_sure(enum finding_code finding)
{
    int i = 0;
    while (i < ROWS && rows[i].finding != finding)
        i++;
    return i < ROWS && rows[i].sure;
}

/* --- filling in ----------------------------------------------------------------------------------------- */

/* With brackets around an IPv6 address, so that it can be copied into --rdzv_endpoint. */
static bool put_endpoint(struct buf *out, const char *host, int port)
{
    char text[ENDPOINT_TEXT_MAX];
    return buf_printf(out, "%s", endpoint_print(host, port, text));
}

/* All addresses, as "10.0.0.1, 10.1.0.1". */
static bool put_addresses(struct buf *out, const struct dial *d)
{
    bool ok = true;
    for (int i = 0; i < d->n; i++)
        ok = ok && buf_printf(out, "%s%s", i > 0 ? ", " : "", d->runners[i].address);
    return ok;
}

static bool is_name(struct slice name, const char *wanted)
{
    return slice_equal(name, slice_str(wanted));
}

/* The words that sentences in dial_findings.h may use. False for any other. */
static bool put_value(void *user, struct slice name, struct buf *out)
{
    const struct dial *d = user;
    const struct dial_met *met = &d->verdict;
    if (is_name(name, "host"))
        return buf_printf(out, "%s", d->options.host);
    if (is_name(name, "here"))
        return buf_printf(out, "%s", d->options.here);
    if (is_name(name, "at"))
        return put_endpoint(out, met->address, d->options.port);
    if (is_name(name, "address"))
        return met->address[0] != '\0' ? buf_printf(out, "%s", met->address) : put_addresses(out, d);
    if (is_name(name, "took"))
        return text_put_ms(out, met->took_ms);
    if (is_name(name, "bytes"))
        return buf_printf(out, "%s", met->bytes);
    if (is_name(name, "hosts"))
        return d->hosts_line[0] == '\0' || buf_printf(out, " (/etc/hosts says \"%s\")", d->hosts_line);
    return is_name(name, "error") &&
           buf_printf(out, "%s", met->error > 0 ? strerror(met->error) : "it fails");
}

static bool fill_in(struct buf *out, const struct dial *d, const char *text)
{
    return finding_fill(out, text, put_value, (void *)d);
}

/* Before any round has ended. */
static const char *meanwhile(const struct dial *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->runners[i].state == RUNNER_GREETS)
            return "it takes connections, but has not said a word yet";
    return d->phase == DIAL_LOOKING_UP ? "its name is being looked up" : "a connection is not answered yet";
}

/* The table's words, once there is a finding; they are the same on the screen, in the report and in the
 * manual. */
static bool put_sentence(struct buf *out, const struct dial *d)
{
    return d->finding == FINDING_NONE ? buf_printf(out, "%s", meanwhile(d))
                                      : fill_in(out, d, finding_sentence(d->finding));
}

/* --- meanwhile ------------------------------------------------------------------------------------------ */

static bool put_local_only(struct buf *out, const struct dial *d)
{
    const char *words = d->options.local_only;
    return words == NULL || words[0] == '\0' || buf_printf(out, "; %s", words);
}

/* "waiting for the store at n0:29500 for 2.0 s: ...; giving up in 14 min (--timeout)" */
static bool put_short(struct buf *out, const struct dial *d, uint64_t now_ms)
{
    const uint64_t spent_ms = now_ms - d->begun_ms;
    return buf_printf(out, "waiting for %s at ", d->options.who) &&
           put_endpoint(out, d->options.host, d->options.port) && buf_printf(out, " for ") &&
           text_put_ms(out, spent_ms) && buf_printf(out, ": ") && put_sentence(out, d) &&
           put_local_only(out, d) && buf_printf(out, "; giving up in ") &&
           text_put_ms(out, d->options.budget_ms > spent_ms ? d->options.budget_ms - spent_ms : 0) &&
           buf_printf(out, " (%s)", d->options.knob);
}

/* The code comes last: it is for the manual and for bug reports, not for reading. */
static bool put_advice(struct buf *out, const struct dial *d)
{
    const char *note = d->options.note;
    return buf_printf(out, "\n  try      ") && fill_in(out, d, finding_advice(d->finding)) &&
           (note == NULL || note[0] == '\0' || buf_printf(out, "\n  place    %s", note)) &&
           buf_printf(out, "\n  finding  %s", dial_code(d->finding));
}

/* The short words with their advice behind, so both read alike. */
static bool put_full(struct buf *out, const struct dial *d, uint64_t now_ms)
{
    return put_short(out, d, now_ms) && put_advice(out, d);
}

/* In full once for each finding: it has several lines, and a user who waits for an hour knows them. */
static bool full_is_due(const struct dial *d, uint64_t now_ms)
{
    const bool was_said = d->said.in_full && d->said.finding == d->finding;
    return d->finding != FINDING_NONE && !was_said &&
           (is_sure(d->finding) || now_ms >= d->finding_since_ms + STANDS_MS);
}

/* A finding that changes is news, but two that take turns must not fill the screen: hence CHANGE_MS. */
static bool short_is_due(const struct dial *d, uint64_t now_ms)
{
    const struct dial_said *said = &d->said;
    if (!said->anything)
        return now_ms >= d->begun_ms + FIRST_WORD_MS;
    return now_ms >= said->at_ms + AGAIN_MS ||
           (said->finding != d->finding && now_ms >= said->at_ms + CHANGE_MS);
}

bool dial_say(struct dial *d, struct buf *out, uint64_t now_ms)
{
    const bool full = full_is_due(d, now_ms);
    if (d->phase == DIAL_ARRIVED || d->phase == DIAL_OVER || (!full && !short_is_due(d, now_ms)))
        return false;
    const bool still = d->said.in_full && d->said.finding == d->finding;
    d->said = (struct dial_said){
        .at_ms = now_ms, .finding = d->finding, .anything = true, .in_full = full || still
    };
    return full ? put_full(out, d, now_ms) : put_short(out, d, now_ms);
}

/* The same questions as above, turned into a time: the shell has one timer, and is to wake when there is
 * something to say and not to look whether there is. */
uint64_t dial_say_at(const struct dial *d)
{
    const struct dial_said *said = &d->said;
    uint64_t at_ms = said->anything ? said->at_ms + AGAIN_MS : d->begun_ms + FIRST_WORD_MS;
    const uint64_t full_ms = d->finding_since_ms + STANDS_MS, change_ms = said->at_ms + CHANGE_MS;
    if (d->finding == FINDING_NONE)
        return at_ms;
    if (!(said->in_full && said->finding == d->finding) && full_ms < at_ms)
        at_ms = full_ms;
    return said->anything && said->finding != d->finding && change_ms < at_ms ? change_ms : at_ms;
}

/* --- in the end ----------------------------------------------------------------------------------------- */

/* All stages are shown, also those that worked: "4 of 4 worked" is what keeps the user from looking at the
 * name server. */
static bool put_stage(struct buf *out, const struct dial *d, enum dial_stage stage)
{
    const struct dial_stage_seen *seen = &d->seen[stage];
    bool ok = buf_printf(out, "\n  %-8s ", stage_names[stage]);
    if (seen->tries == 0)
        return ok && buf_printf(out, "not reached");
    ok = ok && buf_printf(out, "%u of %u worked", seen->done, seen->tries);
    if (stage == STAGE_RESOLVE && seen->done > 0 && d->n > 0)
        ok = ok && buf_printf(out, ": %s is ", d->options.host) && put_addresses(out, d);
    if (stage == STAGE_ROUTE && d->source[0] != '\0')
        ok = ok && buf_printf(out, ": from %s", d->source);
    if (stage != STAGE_ROUTE && seen->done > 0)
        ok = ok && buf_printf(out, ", the last in ") && text_put_ms(out, seen->took_ms);
    return ok;
}

static bool put_past(struct buf *out, const struct dial_past *past)
{
    bool ok = buf_printf(out, "\n  history  ") && text_put_ms(out, past->from_ms);
    if (past->times > 1)
        ok = ok && buf_printf(out, " to ") && text_put_ms(out, past->to_ms);
    return ok && buf_printf(out, ": %s%s", dial_code(past->finding), past->times > 1 ? ", " : "") &&
           (past->times == 1 || buf_printf(out, "%u times", past->times));
}

/* The gap is told where it is, behind the first row, which is always kept. */
static bool put_history(struct buf *out, const struct dial *d)
{
    bool ok = true;
    for (unsigned i = 0; i < d->n_past; i++) {
        if (i == 1 && d->past_lost > 0)
            ok = ok && buf_printf(out, "\n  history  ... %u changes left out", d->past_lost);
        ok = ok && put_past(out, &d->history[i]);
    }
    return ok;
}

/* What is known, what to do, how far it came, what was met and when: in this order, since most readers stop
 * after the second. */
bool dial_report(const struct dial *d, struct buf *out, uint64_t now_ms)
{
    bool ok = buf_printf(out, "%s cannot reach %s at ", d->options.here, d->options.who) &&
              put_endpoint(out, d->options.host, d->options.port) &&
              buf_printf(out, ", and gives up after ") && text_put_ms(out, now_ms - d->begun_ms) &&
              buf_printf(out, " (%s): ", d->options.knob) && put_sentence(out, d) && put_local_only(out, d);
    if (d->finding != FINDING_NONE)
        ok = ok && put_advice(out, d);
    for (int stage = 0; stage < DIAL_STAGES; stage++)
        ok = ok && put_stage(out, d, (enum dial_stage)stage);
    return ok && put_history(out, d);
}

/* screen.c -- see screen.h.
 *
 *     job 'k3': 1 of 2 nodes is here after 62.0 s; giving up in 13 min (--timeout is 900 s)
 *       NODE  HOST  ADDRESS    PID  WORKERS     SINCE  STATE
 *          0  n0    10.9.0.1   411        4    62.0 s  waits
 *          1  -     -            -        -         -  has not come
 *       error    node 1 has not come: ...  [NODE_NEVER_CAME]
 *         try    is ddprun started there ...
 *
 * It is made where the store is, once, and sent as text: all users then read the same words, and a terminal needs no
 * table. Rows are cut to what a screen holds; the counts are whole. */
#include "diagnosis/screen.h"

#include "base/text.h"
#include "diagnosis/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* --- the headline --------------------------------------------------------------------------------------- */

/* "1 of 2 nodes is here", "1 of at least 2 nodes is here", "nobody has come" */
static bool put_who_is_here(const struct snapshot *s, struct buf *out)
{
    if (s->max == 0)
        return buf_printf(out, s->n_gone > 0 ? "nobody is here any more" : "nobody has come");
    return buf_printf(out, "%u of %s%u node%s %s here", s->n_nodes,
                      s->elastic && s->min < s->max ? "at least " : "", s->elastic ? s->min : s->max,
                      s->max == 1 ? "" : "s", s->n_nodes == 1 ? "is" : "are");
}

/* With the name of the option: who reads it wants to know how long it goes on, and how to change that. */
static bool put_limit(const struct snapshot *s, struct buf *out)
{
    words left;
    if (s->limit_ms == 0)
        return true;
    if (!s->is_final && s->left_ms != UINT64_MAX &&
        !buf_printf(out, "; giving up in %s", duration(left, s->left_ms)))
        return false;
    return buf_printf(out, " (%s is %llu s)", s->knob, (unsigned long long)(s->limit_ms / 1000));
}

static bool put_gathering(const struct snapshot *s, struct buf *out)
{
    words waited;
    if (!buf_printf(out, s->is_final ? "given up: " : "") || !put_who_is_here(s, out))
        return false;
    if (s->max == 0) /* nobody has begun to wait */
        return true;
    return buf_printf(out, " after %s", duration(waited, s->waited_ms)) && put_limit(s, out);
}

/* "attempt 0 runs with 2 nodes and 8 ranks; 7 ranks wait in barrier 'x', for 60.0 s now" */
static bool put_running(const struct snapshot *s, struct buf *out)
{
    const struct snapshot_wait *wait = main_wait(s);
    words nodes, ranks, who, what, time;
    bool ok = buf_printf(out, "attempt %u runs with %s and %s", s->round - 1,
                         counted(nodes, members_of(s), "node"), counted(ranks, s->world_size, "rank"));
    if (wait == NULL)
        return ok;
    return ok && buf_printf(out, "; %s %s %s, for %s now", waiters_of(who, wait),
                            wait->is_barrier ? "in" : "for", place(what, wait), duration(time, wait->for_ms));
}

/* What is waited for, for how long, and which knob limits it; one line without newline. */
static bool put_headline(const struct snapshot *s, struct buf *out)
{
    words waited;
    bool ok = s->job[0] != '\0' ? buf_printf(out, "job '%s': ", s->job) : buf_printf(out, "no job yet: ");
    switch (s->phase) {
    case PHASE_GATHERING:
        return ok && put_gathering(s, out);
    case PHASE_RUNNING:
        return ok && put_running(s, out);
    case PHASE_STOPPING:
        return ok && buf_printf(out, "attempt %u has been stopped for %s", s->round - 1,
                                duration(waited, s->waited_ms));
    case PHASE_OVER:
        break;
    }
    return ok && buf_printf(out, "it has been over for %s", duration(waited, s->waited_ms));
}

/* --- the nodes ------------------------------------------------------------------------------------------ */

/* A column is never empty, so that a line can be cut into words by a script. */
static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

/* Widths for what is usual (IPv4, 16 letters of host); a longer address shifts its own line only. */
static bool put_row(struct buf *out, const char *rank, const char *host, const char *addr, const char *pid,
                    const char *workers, const char *since, const char *state)
{
    return buf_printf(out, "\n  %4s  %-16.24s %-15.40s %8s %8s %9s  %s", rank, host, addr, pid, workers,
                      since, state);
}

static bool put_node(struct buf *out, const struct snapshot_node *node)
{
    words rank = "-", pid, workers, since;
    if (node->node_rank >= 0)
        number(rank, (uint64_t)node->node_rank);
    return put_row(out, rank, node->host, or_dash(node->addr), number(pid, (uint64_t)node->pid),
                   number(workers, node->nproc), duration(since, node->joined_ms), node->state);
}

/* Where one ran that is gone, and how it ended, is told by the finding; one that was refused is to be looked for now. */
static bool put_gone_state(const struct snapshot *s, uint32_t rank, struct buf *out)
{
    words text, pid;
    const struct snapshot_refused *r = refused_as(s, (int32_t)rank);
    if (r != NULL)
        return put_row(out, number(text, rank), r->host, "-", number(pid, (uint64_t)r->pid), "-", "-",
                       "was refused and has ended");
    return put_row(out, number(text, rank), "-", "-", "-", "-", "-",
                   node_was_here(s, (int32_t)rank) ? "was here and is gone" : "has not come");
}

/* Static jobs know who is missing. The rows are few and the rest is a number; ranges of ranks are in the
 * finding. */
static bool put_missing(const struct snapshot *s, struct buf *out)
{
    uint32_t shown = 0, missing = 0;
    bool ok = true;
    for (uint32_t rank = 0; !s->elastic && s->phase == PHASE_GATHERING && rank < s->max; rank++) {
        if (node_with_rank(s, (int32_t)rank) != NULL)
            continue;
        missing++;
        if (shown == SCREEN_MISSING)
            continue;
        shown++;
        ok = ok && put_gone_state(s, rank, out);
    }
    return ok &&
           (missing == shown || buf_printf(out, "\n        and %u more that are not here", missing - shown));
}

static bool put_nodes(const struct snapshot *s, struct buf *out)
{
    const uint32_t shown = s->n_nodes < SCREEN_NODES ? s->n_nodes : SCREEN_NODES;
    bool ok = s->max == 0 || put_row(out, "NODE", "HOST", "ADDRESS", "PID", "WORKERS", "SINCE", "STATE");
    for (uint32_t i = 0; ok && i < shown; i++)
        ok = put_node(out, &s->nodes[i]);
    if (ok && s->n_nodes > shown)
        ok = buf_printf(out, "\n        and %u more that are here", s->n_nodes - shown);
    return ok && put_missing(s, out);
}

/* --- the findings --------------------------------------------------------------------------------------- */

/* An advice that would be repeated by the next finding waits for that one. */
static bool advice_is_due(const struct diagnosis *d, uint32_t i)
{
    return i + 1 == d->n || d->list[i + 1].code != d->list[i].code ||
           strcmp(d->list[i + 1].advice, d->list[i].advice) != 0;
}

static bool put_finding(const struct diagnosis *d, uint32_t i, struct buf *out)
{
    const struct finding *f = &d->list[i];
    bool ok = buf_printf(out, "\n  %-8s %s  [%s]", finding_grade_name(f->code), f->sentence,
                         finding_code_name(f->code));
    if (ok && f->more > 0)
        ok = buf_printf(out, "\n           and %u more like this", f->more);
    return ok && (!advice_is_due(d, i) || buf_printf(out, "\n    try    %s", f->advice));
}

/* Names come from other machines. Over everything at once: no row can be forgotten. */
static void disarm(struct buf *out, size_t from)
{
    if (out->len > from)
        text_disarm(out->data + from, out->len - from, '\n');
}

static bool put_findings(const struct diagnosis *d, struct buf *out)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < d->n; i++)
        ok = put_finding(d, i, out);
    return ok;
}

/* Nodes come within seconds of each other, so there is no finding about them at first: "node 1", "at least 2 more nodes", or ""
 * when nobody has to come. */
static const char *awaited(words out, const struct snapshot *s)
{
    words nodes;
    uint32_t never = 0;
    out[0] = '\0';
    if (s->phase != PHASE_GATHERING || s->max == 0)
        return out;
    for (uint32_t rank = 0; !s->elastic && rank < s->max; rank++)
        never += never_came(s, (int32_t)rank);
    if (never > 0)
        return missing_nodes(out, s, never);
    if (s->elastic && s->n_nodes < s->min)
        snprintf(out, WORDS_LEN, "at least %.200s", counted(nodes, s->min - s->n_nodes, "more node"));
    return out;
}

static bool put_no_findings(const struct snapshot *s, struct buf *out)
{
    words who;
    if (awaited(who, s)[0] != '\0' && !buf_printf(out, "\n  waiting for %s", who))
        return false;
    return buf_printf(out, "%snothing %s wrong as far as the store can see", who[0] != '\0' ? "; " : "\n  ",
                      who[0] != '\0' ? "else is" : "is");
}

bool screen_put(const struct snapshot *s, const struct diagnosis *d, struct buf *out)
{
    const size_t from = out->len;
    bool ok = put_headline(s, out) && put_nodes(s, out) && put_findings(d, out);
    if (ok && d->left_out > 0)
        ok = buf_printf(out, "\n           and %u other findings", d->left_out);
    ok = ok && (d->n > 0 || put_no_findings(s, out));
    disarm(out, from);
    return ok;
}

/* The headline and some findings, when all else was told: `before` of the others are as they were. The table of nodes is not
 * repeated: who came and went is in the findings, and in the lines that count. */
static bool put_news(const struct snapshot *s, const struct diagnosis *news, uint32_t before, struct buf *out)
{
    const size_t from = out->len;
    bool ok = put_headline(s, out) && put_findings(news, out);
    if (ok && before > 0)
        ok = buf_printf(out, "\n           the rest is as told before");
    disarm(out, from);
    return ok;
}

/* As text and as code: programs go by the code, whose sentence may be worded better one day. */
static cJSON *finding_json(const struct finding *f)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "code", finding_code_name(f->code));
    cJSON_AddStringToObject(o, "grade", finding_grade_name(f->code));
    cJSON_AddStringToObject(o, "subject", f->subject);
    cJSON_AddStringToObject(o, "sentence", f->sentence);
    cJSON_AddStringToObject(o, "advice", f->advice);
    if (f->more > 0)
        cJSON_AddNumberToObject(o, "more", f->more);
    return o;
}

static bool add_findings(cJSON *o, const struct finding *list, uint32_t n)
{
    cJSON *array = cJSON_AddArrayToObject(o, "findings");
    bool ok = array != NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
        cJSON *row = finding_json(&list[i]);
        ok = row != NULL && cJSON_AddItemToArray(array, row);
        if (!ok)
            cJSON_Delete(row);
    }
    return ok;
}

bool screen_add_findings(cJSON *o, const struct diagnosis *d)
{
    return add_findings(o, d->list, d->n);
}

static bool add_text(cJSON *o, struct buf *text)
{
    bool ok = buf_append(text, "", 1) && cJSON_AddStringToObject(o, "text", (const char *)text->data) != NULL;
    buf_free(text);
    return ok;
}

/* Both forms go out, the text for people and the findings for programs: made of one snapshot, they cannot
 * differ. */
bool screen_add(cJSON *o, const struct snapshot *s, const struct diagnosis *d)
{
    struct buf text = { 0 };
    bool ok = screen_put(s, d, &text);
    return add_text(o, &text) && ok && screen_add_findings(o, d);
}

/* Who only reads what is legal but seldom meant needs no remedy. */
bool screen_add_line(cJSON *o, const struct finding *f)
{
    struct buf text = { 0 };
    bool ok = buf_printf(&text, "%s", f->sentence);
    if (ok && f->more > 0)
        ok = buf_printf(&text, "; and %u more like this", f->more);
    if (ok && finding_is_trouble(f->code))
        ok = buf_printf(&text, "  [%s]\n  try    %s", finding_code_name(f->code), f->advice);
    disarm(&text, 0);
    return add_text(o, &text) && ok;
}

bool screen_add_one(cJSON *o, const struct finding *f)
{
    return screen_add_line(o, f) && add_findings(o, f, 1);
}

bool screen_add_news(cJSON *o, const struct snapshot *s, const struct diagnosis *news, uint32_t before)
{
    struct buf text = { 0 };
    bool ok = put_news(s, news, before, &text);
    cJSON_AddNumberToObject(o, "before", before);
    return add_text(o, &text) && ok && screen_add_findings(o, news);
}

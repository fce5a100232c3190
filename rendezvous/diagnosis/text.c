/* text.c -- see text.h. Short texts are in buffers of fixed size on the caller's stack, so that a diagnosis is possible
 * even if memory is short. Host names, key names and parts of sentences come from workers and other hosts. Terminals
 * print the text, so control characters are escaped before a text leaves this file (text_append, text_disarm). */
#include "diagnosis/text.h"

#include "base/text.h"
#include "diagnosis/torch_keys.h"
#include "store/barrier.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* --- the list of findings: the culprit first, and short enough for a screen ----------------------------- */

/* Return the number of findings with this code. If there are any, set *last to the index of the last. */
static uint32_t count_code(const struct diagnosis *d, enum finding_code code, uint32_t *last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->list[i].code != code)
            continue;
        *last = i;
        n++;
    }
    return n;
}

/* Return true if a finding with `code` is printed after a finding with `other`. Findings are in the order of the table.
 * But notes are last, because no note names the culprit. */
static bool sorts_after(enum finding_code code, enum finding_code other)
{
    const bool is_note = !finding_is_trouble(code), other_is_note = !finding_is_trouble(other);
    return is_note != other_is_note ? is_note : code > other;
}

/* Make room for a new finding, and return its slot. Return NULL if the list has no room for the finding. The list is
 * sorted by sorts_after, and then by time of insertion. A full list drops its last finding, which is the least
 * important. The list has at most DIAGNOSIS_SAME findings of each code, because otherwise hundreds of missing nodes
 * would hide other findings. Further findings of a code are only counted, in the member `more` of the last finding with
 * this code. */
struct finding *diagnosis_slot(struct diagnosis *d, enum finding_code code)
{
    uint32_t last = 0, at = d->n;
    if (count_code(d, code, &last) >= DIAGNOSIS_SAME) {
        d->list[last].more++;
        return NULL;
    }
    while (at > 0 && sorts_after(d->list[at - 1].code, code))
        at--;
    if (d->n == DIAGNOSIS_MAX)
        d->left_out++;
    if (at == DIAGNOSIS_MAX)
        return NULL;
    if (d->n == DIAGNOSIS_MAX) /* drop the last finding, and the findings that `more` counts */
        d->left_out += d->list[DIAGNOSIS_MAX - 1].more;
    const uint32_t behind = (d->n < DIAGNOSIS_MAX ? d->n : DIAGNOSIS_MAX - 1) - at;
    memmove(&d->list[at + 1], &d->list[at], behind * sizeof(d->list[0]));
    d->n += d->n < DIAGNOSIS_MAX;
    return &d->list[at];
}

/* Keep only the findings with this code. Callers run the whole diagnosis even for one code, so that each finding has
 * only one function that makes it. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->list[i].code == code)
            d->list[kept++] = d->list[i];
    d->n = kept;
    return kept > 0;
}

/* These limits decide what the texts contain. */

enum {
    MOMENT_MS = 1000, /* a place counts as the main wait only if ranks have waited there for this time */
    QUIET_MS = 10000, /* after this time without progress, also show when the next stack check is due */
    HOSTS_SHOWN = 6,  /* maximum number of hosts in a list; a longer list ends with "and 3 more" */
    RANGES_SHOWN = 8, /* maximum number of ranges in a list; a longer list ends with "and more" */
};

/* --- texts ---------------------------------------------------------------------------------------------- */

/* Append the description of the key or barrier, then its name. */
bool diagnose_append_place(struct slice name, bool is_barrier, struct buf *out)
{
    struct torch_key key;
    const bool is_torch = !is_barrier && torch_key_read(name, &key);
    bool ok = !is_torch || (torch_key_append(&key, out) && buf_printf(out, " ("));
    return ok && buf_printf(out, is_barrier ? "barrier '" : "key '") &&
           text_append(out, name, DIAGNOSE_NAME_SHOWN) && buf_printf(out, is_torch ? "')" : "'");
}

/* Return true if two waits are at the same place. First compare the names. Then call torch_key_may_set_up before
 * torch_key_read, because torch_key_may_set_up is fast and rejects most keys that are not PyTorch's. */
bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier)
{
    struct torch_key x, y;
    if (a_is_barrier != b_is_barrier)
        return false;
    if (a_is_barrier || slice_equal(a, b) || !torch_key_may_set_up(a) || !torch_key_may_set_up(b))
        return slice_equal(a, b);
    return torch_key_read(a, &x) && torch_key_read(b, &y) && torch_key_same_setup(&x, &y);
}

/* Copy `text` into `out`, and free `text`. If memory is short the text is incomplete. */
static const char *settle(words out, struct buf *text)
{
    snprintf(out, WORDS_LEN, "%.*s", (int)text->len, text->data != NULL ? (const char *)text->data : "");
    buf_free(text);
    return out;
}

const char *number(words out, uint64_t n)
{
    snprintf(out, WORDS_LEN, "%llu", (unsigned long long)n);
    return out;
}

const char *counted(words out, uint64_t n, const char *what)
{
    snprintf(out, WORDS_LEN, "%llu %s%s", (unsigned long long)n, what, n == 1 ? "" : "s");
    return out;
}

const char *duration(words out, uint64_t ms)
{
    return text_ms(ms, out);
}

const char *exit_time(words out, uint64_t ago_ms, bool is_one)
{
    words time;
    snprintf(out, WORDS_LEN, ", %s%.40s ago,", is_one ? "" : "the first ",
             ago_ms > 0 ? duration(time, ago_ms) : "less than 1 ms");
    return out;
}

const char *process(words out, const char *host, const char *addr, int pid)
{
    snprintf(out, WORDS_LEN, "%.120s (%.60s%spid %d)", host, addr, addr[0] != '\0' ? ", " : "", pid);
    return out;
}

/* Format the key or barrier for which ranks wait. Its name is from a worker and may contain any bytes, so
 * diagnose_append_place escapes the name. */
const char *place(words out, const struct snapshot_wait *wait)
{
    struct buf text = { 0 };
    diagnose_append_place(wait->name, wait->is_barrier, &text);
    return settle(out, &text);
}

/* Format "node 3 (n3, pid 77)". If the node rank is unknown, format "n3 (pid 77)". If the node was never seen, format
 * "node 3". */
const char *node_named(words out, int32_t node_rank, const char *host, int pid)
{
    struct buf text = { 0 };
    if (node_rank >= 0)
        buf_printf(&text, "node %d%s", node_rank, host[0] != '\0' ? " (" : "");
    buf_printf(&text, "%s", host);
    if (pid != 0)
        buf_printf(&text, "%spid %d%s", node_rank >= 0 ? ", " : " (", pid, node_rank >= 0 ? "" : ")");
    if (node_rank >= 0 && host[0] != '\0')
        buf_printf(&text, ")");
    return settle(out, &text);
}

const char *node_words(words out, const struct snapshot_node *node)
{
    return node_named(out, node->node_rank, node->host, node->pid);
}

/* Format the first HOSTS_SHOWN hosts, because a sentence has room for only a few hosts. */
const char *all_hosts(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    for (uint32_t i = 0; i < s->n_nodes && i < HOSTS_SHOWN; i++)
        buf_printf(&text, "%s%s", i > 0 ? ", " : "", s->nodes[i].host);
    if (s->n_nodes > HOSTS_SHOWN)
        buf_printf(&text, " and %u more", s->n_nodes - HOSTS_SHOWN);
    if (s->n_nodes == 0)
        buf_printf(&text, "none");
    return settle(out, &text);
}

/* Append ranges such as "64-127", because the nodes of a rack often fail together. Append at most RANGES_SHOWN ranges,
 * so that the text fits in one line. */
void append_ranges(struct buf *out, const void *of, uint32_t n, bool (*is)(const void *of, uint32_t i))
{
    uint32_t shown = 0;
    for (uint32_t from = 0; from < n; from++) {
        uint32_t to = from;
        if (!is(of, from))
            continue;
        while (to + 1 < n && is(of, to + 1))
            to++;
        if (shown++ == RANGES_SHOWN) {
            buf_printf(out, " and more");
            return;
        }
        buf_printf(out, from == to ? "%s%u" : "%s%u-%u", shown > 1 ? ", " : "", from, to);
        from = to;
    }
}

/* Return true if no node with this node rank was ever seen. */
static bool is_unseen(const void *snapshot, uint32_t node_rank)
{
    const struct snapshot *s = snapshot;
    return never_came(s, (int32_t)node_rank);
}

/* Return true if no node has this node rank now. */
static bool is_unclaimed(const void *snapshot, uint32_t node_rank)
{
    const struct snapshot *s = snapshot;
    return node_with_rank(s, (int32_t)node_rank) == NULL;
}

const char *missing_nodes(words out, const struct snapshot *s, uint32_t never)
{
    struct buf text = { 0 };
    buf_printf(&text, "node%s ", never == 1 ? "" : "s");
    append_ranges(&text, s, s->max, is_unseen);
    return settle(out, &text);
}

/* Format a part of a report about two nodes with the same rank: "; no node has node rank 3". If every node rank has a
 * node, return "". */
const char *unclaimed_ranks(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    append_ranges(&text, s, s->max, is_unclaimed);
    const bool none = text.len == 0;
    words ranges;
    settle(ranges, &text);
    snprintf(out, WORDS_LEN, "%s%.100s", none ? "" : "; no node has node rank ", ranges);
    return out;
}

/* Format "rank 3 waits" for one waiter with a known rank, otherwise a number: "1 rank waits", "2 ranks wait". A rank is
 * unknown until its client sends IDENTIFY. */
const char *waiters_of(words out, const struct snapshot_wait *wait)
{
    if (wait->waiting == 1 && wait->rank != UINT32_MAX)
        snprintf(out, WORDS_LEN, "rank %u waits", wait->rank);
    else
        snprintf(out, WORDS_LEN, "%u rank%s", wait->waiting, wait->waiting == 1 ? " waits" : "s wait");
    return out;
}

/* Return true if rank `i` waits at the place where most ranks wait. The result is computed for each report, because
 * reports are rare, and the snapshot contains only plain data. */
static bool is_at_main_wait(const void *snapshot, uint32_t i)
{
    const struct snapshot *s = snapshot;
    const struct snapshot_wait *main = main_wait(s);
    return main != NULL && waits_in(&s->ranks[i], main);
}

static bool is_absent(const void *snapshot, uint32_t i)
{
    const struct snapshot *s = snapshot;
    const struct snapshot_wait *main = main_wait(s);
    return !is_at_main_wait(s, i) && (main == NULL || is_needed(main, s->ranks[i].rank));
}

static uint32_t count_ranks(const struct snapshot *s, bool (*is)(const void *snapshot, uint32_t i))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        n += is(s, i);
    return n;
}

/* Append "rank 3" or "ranks 1, 3-7". */
static void append_ranks(struct buf *out, const struct snapshot *s,
                         bool (*is)(const void *snapshot, uint32_t i))
{
    buf_printf(out, "rank%s ", count_ranks(s, is) == 1 ? "" : "s");
    append_ranges(out, s, s->n_ranks, is);
}

/* Format the needed ranks that do not wait at main_wait(). If the rank of a waiting client is unknown, format
 * "unknown", because a list could wrongly contain this rank. */
const char *absent_ranks(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    const struct snapshot_wait *main = main_wait(s);
    if (main != NULL && count_ranks(s, is_at_main_wait) < main->waiting)
        buf_printf(&text, "unknown");
    else if (count_ranks(s, is_absent) > 0)
        append_ranks(&text, s, is_absent);
    else
        buf_printf(&text, "none");
    return settle(out, &text);
}

/* Name the waiting ranks only if all of them are known. A reader assumes that a list such as "ranks 0-2" is
 * complete. */
const char *named_waiters(words out, const struct snapshot *s, const struct snapshot_wait *wait)
{
    struct buf text = { 0 };
    const uint32_t known = wait == main_wait(s) ? count_ranks(s, is_at_main_wait) : 0;
    if (known == 0 || known != wait->waiting)
        return waiters_of(out, wait);
    append_ranks(&text, s, is_at_main_wait);
    for (uint32_t i = 0; known == 1 && i < s->n_ranks; i++)
        if (is_at_main_wait(s, i) && s->ranks[i].host != NULL)
            buf_printf(&text, " (%.100s, pid %d)", s->ranks[i].host, s->ranks[i].pid);
    buf_printf(&text, known == 1 ? " waits" : " wait");
    return settle(out, &text);
}

/* --- questions ------------------------------------------------------------------------------------------ */

/* Find a node by binary search. The nodes are sorted by node rank; nodes without a rank (-1) are first. */
const struct snapshot_node *node_with_rank(const struct snapshot *s, int32_t node_rank)
{
    uint32_t low = 0, high = s->n_nodes;
    while (low < high && node_rank >= 0) {
        const uint32_t mid = low + (high - low) / 2;
        if (s->nodes[mid].node_rank == node_rank)
            return &s->nodes[mid];
        if (s->nodes[mid].node_rank < node_rank)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Return the last departed node with this node rank, or NULL. A linear scan is fast enough, because `gone` has at most
 * 32 rows. */
static const struct snapshot_gone *gone_as(const struct snapshot *s, int32_t node_rank)
{
    for (uint32_t i = 0; i < s->n_gone; i++)
        if (s->gone[i].node_rank == node_rank)
            return &s->gone[i];
    return NULL;
}

/* Return true if a rejected node has joined since the rejection. Host and pid identify the node, because a ddprun that
 * retries keeps its pid. */
bool came_in_later(const struct snapshot *s, const struct snapshot_refused *r)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].pid == r->pid && strcmp(s->nodes[i].host, r->host) == 0)
            return true;
    return false;
}

/* Return true if a node with this node rank left within the last `ago_ms` milliseconds. */
static bool was_here_since(const struct snapshot *s, int32_t node_rank, uint64_t ago_ms)
{
    for (uint32_t i = 0; i < s->n_gone; i++)
        if (s->gone[i].node_rank == node_rank && s->gone[i].gone_ms < ago_ms)
            return true;
    return false;
}

/* Return the last rejection for this node rank, or NULL. Ignore the rejection if a node with this rank has joined and
 * left the job later. */
const struct snapshot_refused *refused_as(const struct snapshot *s, int32_t node_rank)
{
    const struct snapshot_refused *last = NULL;
    for (uint32_t i = 0; i < s->n_refused; i++)
        if (s->refused[i].node_rank == node_rank && (last == NULL || s->refused[i].ago_ms < last->ago_ms))
            last = &s->refused[i];
    return last != NULL && !was_here_since(s, node_rank, last->ago_ms) ? last : NULL;
}

/* Return true if the node has never arrived. A node that has left or was rejected has another finding, with another
 * remedy. */
bool never_came(const struct snapshot *s, int32_t node_rank)
{
    return node_with_rank(s, node_rank) == NULL && gone_as(s, node_rank) == NULL &&
           refused_as(s, node_rank) == NULL;
}

uint32_t members_of(const struct snapshot *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        n += !s->nodes[i].is_spare;
    return n;
}

/* Return the place with the most waiting ranks, or the first of several such places. Skip waits below MOMENT_MS,
 * because they are normal. In the last check (is_final), include these waits, too. */
const struct snapshot_wait *main_wait(const struct snapshot *s)
{
    const struct snapshot_wait *most = NULL;
    for (uint32_t i = 0; i < s->n_waits; i++) {
        const struct snapshot_wait *wait = &s->waits[i];
        if ((wait->for_ms >= MOMENT_MS || s->is_final) && wait->waiting > 0 &&
            (most == NULL || wait->waiting > most->waiting))
            most = wait;
    }
    return most;
}

bool waits_in(const struct snapshot_rank *rank, const struct snapshot_wait *wait)
{
    return rank->waits.name.data != NULL &&
           diagnose_is_place(rank->waits.name, rank->waits.in_barrier, wait->name, wait->is_barrier);
}

bool is_needed(const struct snapshot_wait *wait, uint32_t rank)
{
    return wait->barrier == NULL || barrier_needs(wait->barrier, rank);
}

/* --- screen ----------------------------------------------------------------------------------------------- */

/* The screen:
 *
 *       error    node 1 has not joined within 62.0 s  [NODE_MISSING]
 *         try    check that ddprun runs on each missing node ...
 *     job 'k3': 1 of 2 nodes has joined after 62.0 s; giving up in 13 min (--timeout is 900 s)
 *       NODE  HOST  ADDRESS    PID  WORKERS     SINCE  STATE
 *          0  n0    10.9.0.1   411        4    62.0 s  waiting
 *          1  -     -            -        -         -  missing
 *
 * The store formats this text and sends it to all nodes. Only the first rows are printed, but the counts are
 * complete. */

/* --- the headline --------------------------------------------------------------------------------------- */

/* Append "1 of 2 nodes has joined", "1 of 2 to 4 nodes has joined" (elastic), or "no node has joined". */
static bool append_joined(const struct snapshot *s, struct buf *out)
{
    if (s->max == 0)
        return buf_printf(out, s->n_gone > 0 ? "all nodes have left" : "no node has joined");
    return buf_printf(out, "%u of ", s->n_nodes) &&
           (!s->elastic || s->min >= s->max || buf_printf(out, "%u to ", s->min)) &&
           buf_printf(out, "%u node%s %s joined", s->max, s->max == 1 ? "" : "s",
                      s->n_nodes == 1 ? "has" : "have");
}

/* Append the time limit with the name of the option that sets it: "; giving up in 13 min (--timeout is 900 s)". If the
 * workers will start after a pause, append the time until their start instead. */
static bool append_limit(const struct snapshot *s, struct buf *out)
{
    words left;
    if (s->pause_ms > 0)
        return buf_printf(out, "; the workers start in %s", duration(left, s->pause_ms));
    if (s->limit_ms == 0)
        return true;
    if (!s->is_final && s->left_ms != UINT64_MAX &&
        !buf_printf(out, "; giving up in %s", duration(left, s->left_ms)))
        return false;
    return buf_printf(out, " (%s is %llu s)", s->knob, (unsigned long long)(s->limit_ms / 1000));
}

/* Append the state of a job that waits for nodes. `max` is 0 while the job has no node. */
static bool append_gathering(const struct snapshot *s, struct buf *out)
{
    words waited;
    if (!buf_printf(out, s->is_final ? "given up: " : "") || !append_joined(s, out))
        return false;
    if (s->max == 0) /* the job has no node */
        return true;
    return buf_printf(out, " after %s", duration(waited, s->waited_ms)) && append_limit(s, out);
}

/* Append "attempt 0 runs with 2 nodes and 8 ranks; 7 ranks wait in barrier 'x', for 60.0 s now". Without agents there
 * is no rendezvous, so the text has neither attempt nor nodes. */
static bool append_running(const struct snapshot *s, struct buf *out)
{
    const struct snapshot_wait *wait = main_wait(s);
    words nodes, ranks, who, what, time;
    counted(ranks, s->world_size, "rank");
    bool ok = s->round > 0 ? buf_printf(out, "attempt %u runs with %s and %s", s->round - 1,
                                        counted(nodes, members_of(s), "node"), ranks)
                           : buf_printf(out, "%s without ddprun", ranks);
    if (wait == NULL)
        return ok;
    return ok && buf_printf(out, "; %s %s %s, for %s now", waiters_of(who, wait),
                            wait->is_barrier ? "in" : "for", place(what, wait), duration(time, wait->for_ms));
}

/* Append the headline, one line without a newline: the name and the state of the job. */
static bool append_headline(const struct snapshot *s, struct buf *out)
{
    words waited;
    bool ok = s->job[0] != '\0' ? buf_printf(out, "job '%s': ", s->job) : buf_printf(out, "no job yet: ");
    switch (s->phase) {
    case PHASE_GATHERING:
        return ok && append_gathering(s, out);
    case PHASE_RUNNING:
        return ok && append_running(s, out);
    case PHASE_STOPPING:
        return ok && buf_printf(out, "attempt %u has been stopping for %s", s->round - 1,
                                duration(waited, s->waited_ms));
    case PHASE_OVER:
        break;
    }
    return ok && buf_printf(out, "ended %s ago", duration(waited, s->waited_ms));
}

/* --- the nodes ------------------------------------------------------------------------------------------ */

/* Return "-" for an empty text, so that a script can split a line into words. */
static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

/* Append a row. The widths fit IPv4 addresses and host names of 16 letters; a longer value shifts only its own
 * row. */
static bool append_row(struct buf *out, const char *rank, const char *host, const char *addr, const char *pid,
                       const char *workers, const char *since, const char *state)
{
    return buf_printf(out, "\n  %4s  %-16.24s %-15.40s %8s %8s %9s  %s", rank, host, addr, pid, workers,
                      since, state);
}

/* Append the row of a node that has joined. A node without a node rank yet has the rank "-". */
static bool append_node(struct buf *out, const struct snapshot_node *node)
{
    words rank = "-", pid, workers, since;
    if (node->node_rank >= 0)
        number(rank, (uint64_t)node->node_rank);
    return append_row(out, rank, node->host, or_dash(node->addr), number(pid, (uint64_t)node->pid),
                      number(workers, node->nproc), duration(since, node->joined_ms), node->state);
}

/* Append the row of a missing node. Host and pid are known if the node was rejected or has left. */
static bool append_gone_state(const struct snapshot *s, uint32_t rank, struct buf *out)
{
    words text, pid;
    const struct snapshot_refused *r = refused_as(s, (int32_t)rank);
    if (r != NULL)
        return append_row(out, number(text, rank), r->host, "-", number(pid, (uint64_t)r->pid), "-", "-",
                          "rejected, has exited");
    const struct snapshot_gone *gone = gone_as(s, (int32_t)rank);
    if (gone != NULL)
        return append_row(out, number(text, rank), gone->host, "-", number(pid, (uint64_t)gone->pid), "-",
                          "-", "has left");
    return append_row(out, number(text, rank), "-", "-", "-", "-", "-", "missing");
}

/* Append a few rows about missing nodes, then the number of further missing nodes. An elastic job has no rows of
 * missing nodes, because it has no fixed node ranks. */
static bool append_missing(const struct snapshot *s, struct buf *out)
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
        ok = ok && append_gone_state(s, rank, out);
    }
    words more;
    return ok && (missing == shown ||
                  buf_printf(out, "\n        and %s", counted(more, missing - shown, "more missing node")));
}

/* Append the table of nodes: the first SCREEN_NODES nodes, then the missing nodes. A job without a node has no
 * table. */
static bool append_nodes(const struct snapshot *s, struct buf *out)
{
    const uint32_t shown = s->n_nodes < SCREEN_NODES ? s->n_nodes : SCREEN_NODES;
    words more;
    bool ok = s->max == 0 || append_row(out, "NODE", "HOST", "ADDRESS", "PID", "WORKERS", "SINCE", "STATE");
    for (uint32_t i = 0; ok && i < shown; i++)
        ok = append_node(out, &s->nodes[i]);
    if (ok && s->n_nodes > shown)
        ok = buf_printf(out, "\n        and %s", counted(more, s->n_nodes - shown, "more node"));
    return ok && append_missing(s, out);
}

/* --- the findings --------------------------------------------------------------------------------------- */

/* Return true if the advice is printed after finding `i`. If successive findings have the same code and the same
 * advice, the advice is printed only after the last of these findings. */
static bool advice_is_due(const struct diagnosis *d, uint32_t i)
{
    return i + 1 == d->n || d->list[i + 1].code != d->list[i].code ||
           strcmp(d->list[i + 1].advice, d->list[i].advice) != 0;
}

/* Append a finding, the number of left-out findings with the same code, and the advice if it is due. The advice comes
 * last, because it applies to the left-out findings, too. */
static bool append_finding(const struct diagnosis *d, uint32_t i, struct buf *out)
{
    const struct finding *f = &d->list[i];
    bool ok = buf_printf(out, "  %-8s %s  [%s]\n", finding_grade_name(f->code), f->sentence,
                         finding_code_name(f->code));
    if (ok && f->more > 0)
        ok = buf_printf(out, "           and %u more like this\n", f->more);
    return ok && (!advice_is_due(d, i) || buf_printf(out, "    try    %s\n", f->advice));
}

/* Escape the control characters after position `from`, because other hosts have sent parts of the text. Newlines stay,
 * because they end the lines of the screen. */
static void disarm(struct buf *out, size_t from)
{
    if (out->len > from)
        text_disarm(out->data + from, out->len - from, '\n');
}

static bool append_findings(const struct diagnosis *d, struct buf *out)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < d->n; i++)
        ok = append_finding(d, i, out);
    return ok;
}

/* Format the nodes that the job waits for. For a static job, name the nodes that have never arrived ("node 1"). For an
 * elastic job, give a number ("at least 2 more nodes"). The text is "" if there are no such nodes, or if no node has
 * joined yet. */
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

/* Append that the store has found no problem. After QUIET_MS without a sign of progress, also append when the store
 * compares the stacks next, and why earlier comparisons gave no verdict. Otherwise a user who asks after 20 s would
 * conclude that nothing is wrong. */
static bool append_no_findings(const struct snapshot *s, struct buf *out)
{
    words who, still, due;
    if (awaited(who, s)[0] != '\0' && !buf_printf(out, "\n  waiting for %s", who))
        return false;
    const bool ok = buf_printf(out, "%sthe store has found no %sproblem", who[0] != '\0' ? "; " : "\n  ",
                               who[0] != '\0' ? "other " : "");
    if (s->phase != PHASE_RUNNING || s->hang.due_ms == 0 || s->hang.still_ms < QUIET_MS)
        return ok;
    if (!ok || !buf_printf(out, " yet, but has seen no progress for %s; ", duration(still, s->hang.still_ms)))
        return false;
    if (s->hang.in_vain > 0 && s->hang.why_not != NULL &&
        !buf_printf(out, "the store has compared the stacks %u time%s, without a result: %s; ",
                    s->hang.in_vain, s->hang.in_vain == 1 ? "" : "s", s->hang.why_not))
        return false;
    return buf_printf(
        out,
        "after %s without progress, the store compares the stacks of all ranks%s ('ddpctl stacks' "
        "prints the stacks now)",
        duration(due, s->hang.due_ms), s->hang.in_vain > 0 ? " again" : "");
}

/* Append the findings with their advice first, because the first line must name the culprit. Then append the headline
 * and the nodes. The last line ends without a newline. */
static bool screen_append(const struct snapshot *s, const struct diagnosis *d, struct buf *out)
{
    const size_t from = out->len;
    words others;
    bool ok = append_findings(d, out);
    if (ok && d->left_out > 0)
        ok = buf_printf(out, "           and %s\n", counted(others, d->left_out, "other finding"));
    ok = ok && append_headline(s, out) && append_nodes(s, out) && (d->n > 0 || append_no_findings(s, out));
    disarm(out, from);
    return ok;
}

/* Append the new findings and the headline, for users who have seen an earlier report. `before` is the number of
 * findings that the earlier report contained and that still apply. The table of nodes is not repeated. */
static bool append_news(const struct snapshot *s, const struct diagnosis *news, uint32_t before,
                        struct buf *out)
{
    const size_t from = out->len;
    bool ok = append_findings(news, out);
    if (ok && before > 0)
        ok = buf_printf(out, "           all other findings are unchanged\n");
    ok = ok && append_headline(s, out);
    disarm(out, from);
    return ok;
}

/* Return a finding as JSON, with its text and its code. Programs use the code, because the wording of a sentence may
 * change. */
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

/* Add the findings as an array. If cJSON cannot append a row, free the row here, because cJSON does not own it. */
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

bool diagnosis_add_findings(cJSON *o, const struct diagnosis *d)
{
    return add_findings(o, d->list, d->n);
}

/* Add the text as member "text", and free the buffer in any case. */
static bool add_text(cJSON *o, struct buf *text)
{
    bool ok = buf_append(text, "", 1) && cJSON_AddStringToObject(o, "text", (const char *)text->data) != NULL;
    buf_free(text);
    return ok;
}

/* Add the text for readers and the findings for programs. Both are from one snapshot, so they never contradict each
 * other. */
bool diagnosis_add_text(cJSON *o, const struct snapshot *s, const struct diagnosis *d)
{
    struct buf text = { 0 };
    bool ok = screen_append(s, d, &text);
    return add_text(o, &text) && ok && diagnosis_add_findings(o, d);
}

/* Add a finding as text. Add its code and advice only if its grade is WARNING or ERROR, because a NOTE is harmless. */
bool diagnosis_add_line(cJSON *o, const struct finding *f)
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

bool diagnosis_add_one(cJSON *o, const struct finding *f)
{
    return diagnosis_add_line(o, f) && add_findings(o, f, 1);
}

bool diagnosis_add_news(cJSON *o, const struct snapshot *s, const struct diagnosis *news, uint32_t before)
{
    struct buf text = { 0 };
    bool ok = append_news(s, news, before, &text);
    cJSON_AddNumberToObject(o, "before", before);
    return add_text(o, &text) && ok && diagnosis_add_findings(o, news);
}

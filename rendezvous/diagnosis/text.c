/* text.c -- see text.h. */
#include "diagnosis/text.h"

#include "base/text.h"
#include "diagnosis/torch_keys.h"

#include <stdio.h>

/* --- the list of findings: in the order of the table, and short enough for a screen --------------------- */

/* How often a code is in the list, and where last: there `more` is counted, so that "and 396 more like
 * this" stands under the last one that is shown. `last` stays as it is when there is none. */
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

/* Behind all that stand above it in the table; when there is no room, the last one has to go. A full list
 * still takes a cause: what falls off its end is the least of the consequences. Of one code only the first
 * DIAGNOSIS_SAME are spelled out, else four hundred nodes that have not come would push the reason off the
 * screen. Insertion into an array is enough for a dozen rows, and equal codes stay in the order of their
 * numbers. */
struct finding *diagnosis_slot(struct diagnosis *d, enum finding_code code)
{
    uint32_t last = 0, at = d->n;
    if (count_code(d, code, &last) >= DIAGNOSIS_SAME) {
        d->list[last].more++;
        return NULL;
    }
    while (at > 0 && d->list[at - 1].code > code)
        at--;
    if (d->n == DIAGNOSIS_MAX)
        d->left_out++;
    if (at == DIAGNOSIS_MAX)
        return NULL;
    const uint32_t behind = (d->n < DIAGNOSIS_MAX ? d->n : DIAGNOSIS_MAX - 1) - at;
    memmove(&d->list[at + 1], &d->list[at], behind * sizeof(d->list[0]));
    d->n += d->n < DIAGNOSIS_MAX;
    return &d->list[at];
}

/* For one who has a single question and takes the whole diagnosis for it: two ways to the same finding
 * would in time give two answers. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->list[i].code == code)
            d->list[kept++] = d->list[i];
    d->n = kept;
    return kept > 0;
}

/* Every word is a text of fixed size that the caller has on its stack: a diagnosis is made when things go
 * wrong, and must not fail because memory is short as well. What does not fit is cut, host names shorter
 * than the rest, so that pid and rank behind them are always to be read. */

enum { MOMENT_MS = 1000, HOSTS_SHOWN = 6, RANGES_SHOWN = 8 };

/* --- words ---------------------------------------------------------------------------------------------- */

/* The bytes stay behind the words: who looks for the key in a program or a log needs them. */
bool diagnose_put_place(struct slice name, bool is_barrier, struct buf *out)
{
    struct torch_key key;
    const bool is_torch = !is_barrier && torch_key_read(name, &key);
    bool ok = !is_torch || (torch_key_put(&key, out) && buf_printf(out, " ("));
    return ok && buf_printf(out, is_barrier ? "barrier '" : "key '") &&
           text_put(out, name, DIAGNOSE_NAME_SHOWN) && buf_printf(out, is_torch ? "')" : "'");
}

bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier)
{
    struct torch_key x, y;
    if (a_is_barrier != b_is_barrier)
        return false;
    if (a_is_barrier || slice_equal(a, b) || !torch_key_may_set_up(a) || !torch_key_may_set_up(b))
        return slice_equal(a, b);
    return torch_key_read(a, &x) && torch_key_read(b, &y) && torch_key_same_setup(&x, &y);
}

/* What has gathered in `text`, which is freed. Memory that was short leaves the word shorter, which is
 * better than no finding. */
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
    struct buf text = { 0 };
    text_put_ms(&text, ms);
    return settle(out, &text);
}

const char *process(words out, const char *host, int pid)
{
    snprintf(out, WORDS_LEN, "%.200s (pid %d)", host, pid);
    return out;
}

/* Names come from workers and may hold any bytes; text_put escapes them, and cuts before the quote is lost. */
const char *place(words out, const struct snapshot_wait *wait)
{
    struct buf text = { 0 };
    diagnose_put_place(wait->name, wait->is_barrier, &text);
    return settle(out, &text);
}

/* "node 3 (n3, pid 77)", and less when less is known: "n3 (pid 77)" for one without a rank, "node 3" for
 * one that was never seen. */
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

/* A few are enough to see which hosts of the list are not among them. */
const char *all_hosts(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    for (uint32_t i = 0; i < s->n_nodes && i < HOSTS_SHOWN; i++)
        buf_printf(&text, "%s%s", i > 0 ? ", " : "", s->nodes[i].host);
    if (s->n_nodes > HOSTS_SHOWN)
        buf_printf(&text, " and %u more", s->n_nodes - HOSTS_SHOWN);
    if (s->n_nodes == 0)
        buf_printf(&text, "nobody");
    return settle(out, &text);
}

/* Ranges, because nodes are missing in racks: "64-127" tells of a switch what sixty-four numbers hide. It ends
 * with the eighth range, so a job with every other node missing costs no more than the line. */
void put_ranges(struct buf *out, const void *of, uint32_t n, bool (*is)(const void *of, uint32_t i))
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

static bool is_unseen(const void *snapshot, uint32_t node_rank)
{
    const struct snapshot *s = snapshot;
    return never_came(s, (int32_t)node_rank);
}

/* Unlike above, a rank whose node was here and has gone counts: it is free for whoever was refused. */
static bool is_unclaimed(const void *snapshot, uint32_t node_rank)
{
    const struct snapshot *s = snapshot;
    return node_with_rank(s, (int32_t)node_rank) == NULL;
}

const char *missing_nodes(words out, const struct snapshot *s, uint32_t never)
{
    struct buf text = { 0 };
    buf_printf(&text, "node%s ", never == 1 ? "" : "s");
    put_ranges(&text, s, s->max, is_unseen);
    return settle(out, &text);
}

const char *unclaimed_ranks(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    put_ranges(&text, s, s->max, is_unclaimed);
    const bool none = text.len == 0;
    words ranges;
    settle(ranges, &text);
    snprintf(out, WORDS_LEN, "%s%.100s%s", none ? "" : "; nobody has claimed ", ranges,
             none ? "" : ": was the same --node_rank used on every node?");
    return out;
}

/* A rank is only known of a client that has introduced itself; PyTorch's cannot, and is counted. */
const char *waiters_of(words out, const struct snapshot_wait *wait)
{
    if (wait->waiting == 1 && wait->rank != UINT32_MAX)
        snprintf(out, WORDS_LEN, "rank %u waits", wait->rank);
    else
        snprintf(out, WORDS_LEN, "%u rank%s", wait->waiting, wait->waiting == 1 ? " waits" : "s wait");
    return out;
}

static bool is_at_main_wait(const void *snapshot, uint32_t i)
{
    const struct snapshot *s = snapshot;
    const struct snapshot_wait *main = main_wait(s);
    return main != NULL && waits_in(&s->ranks[i], main);
}

static bool is_absent(const void *snapshot, uint32_t i)
{
    const struct snapshot *s = snapshot;
    return !is_at_main_wait(s, i);
}

static uint32_t count_ranks(const struct snapshot *s, bool (*is)(const void *snapshot, uint32_t i))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        n += is(s, i);
    return n;
}

/* "rank 3", "ranks 1, 3-7" */
static void put_ranks(struct buf *out, const struct snapshot *s, bool (*is)(const void *snapshot, uint32_t i))
{
    buf_printf(out, "rank%s ", count_ranks(s, is) == 1 ? "" : "s");
    put_ranges(out, s, s->n_ranks, is);
}

/* A client that nobody has vouched for may be any of those that seem to be missing. */
const char *absent_ranks(words out, const struct snapshot *s)
{
    struct buf text = { 0 };
    const struct snapshot_wait *main = main_wait(s);
    if (main != NULL && count_ranks(s, is_at_main_wait) < main->waiting)
        buf_printf(&text, "it is not known which ranks");
    else if (count_ranks(s, is_absent) > 0)
        put_ranks(&text, s, is_absent);
    else
        buf_printf(&text, "nobody");
    return settle(out, &text);
}

/* By their ranks only when all of them are known: who reads "ranks 0-2" takes it for all. */
const char *named_waiters(words out, const struct snapshot *s, const struct snapshot_wait *wait)
{
    struct buf text = { 0 };
    const uint32_t known = wait == main_wait(s) ? count_ranks(s, is_at_main_wait) : 0;
    if (known == 0 || known != wait->waiting)
        return waiters_of(out, wait);
    put_ranks(&text, s, is_at_main_wait);
    for (uint32_t i = 0; known == 1 && i < s->n_ranks; i++)
        if (is_at_main_wait(s, i) && s->ranks[i].host != NULL)
            buf_printf(&text, " (%.100s, pid %d)", s->ranks[i].host, s->ranks[i].pid);
    buf_printf(&text, known == 1 ? " waits" : " wait");
    return settle(out, &text);
}

/* --- questions ------------------------------------------------------------------------------------------ */

/* A world may have 16,384 nodes, and each of its ranks is asked for. Hence by halves: monitor.c has sorted
 * them by their rank. Nodes without a rank (-1) stand in front and are never asked for. */
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

/* The last 32 that have gone, in a line: a search would save nothing. */
bool node_was_here(const struct snapshot *s, int32_t node_rank)
{
    for (uint32_t i = 0; i < s->n_gone; i++)
        if (s->gone[i].node_rank == node_rank)
            return true;
    return false;
}

/* By its process: it was refused, has mended what it said, and asked again. */
bool came_in_later(const struct snapshot *s, const struct snapshot_refused *r)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].pid == r->pid && strcmp(s->nodes[i].host, r->host) == 0)
            return true;
    return false;
}

/* The node was let in after `ago_ms`, and has gone since. */
static bool was_here_since(const struct snapshot *s, int32_t node_rank, uint64_t ago_ms)
{
    for (uint32_t i = 0; i < s->n_gone; i++)
        if (s->gone[i].node_rank == node_rank && s->gone[i].gone_ms < ago_ms)
            return true;
    return false;
}

const struct snapshot_refused *refused_as(const struct snapshot *s, int32_t node_rank)
{
    const struct snapshot_refused *last = NULL;
    for (uint32_t i = 0; i < s->n_refused; i++)
        if (s->refused[i].node_rank == node_rank && (last == NULL || s->refused[i].ago_ms < last->ago_ms))
            last = &s->refused[i];
    return last != NULL && !was_here_since(s, node_rank, last->ago_ms) ? last : NULL;
}

/* Those that came and went, or were turned away at the door, have findings of their own. */
bool never_came(const struct snapshot *s, int32_t node_rank)
{
    return node_with_rank(s, node_rank) == NULL && !node_was_here(s, node_rank) &&
           refused_as(s, node_rank) == NULL;
}

uint32_t members_of(const struct snapshot *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        n += !s->nodes[i].is_spare;
    return n;
}

/* Where most of the ranks wait, for longer than a moment: a healthy job is always in some barrier, its
 * ranks a few milliseconds apart. */
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

bool waits_in(const struct rank_facts *rank, const struct snapshot_wait *wait)
{
    return rank->waits.name.data != NULL &&
           diagnose_is_place(rank->waits.name, rank->waits.in_barrier, wait->name, wait->is_barrier);
}

/* diagnose_words.c -- see diagnose_words.h.
 *
 * Every word is a text of fixed size that the caller has on its stack: a diagnosis is made when things go
 * wrong, and must not fail because memory is short as well. What does not fit is cut, host names shorter
 * than the rest, so that pid and rank behind them are always to be read. */
#include "core/diagnose_words.h"

#include "base/text.h"

#include <stdio.h>

enum { MOMENT_MS = 1000, NAME_SHOWN = 120, HOSTS_SHOWN = 6, RANGES_SHOWN = 8 };

/* --- words ---------------------------------------------------------------------------------------------- */

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

const char *numbered(words out, const char *what, int64_t n)
{
    snprintf(out, WORDS_LEN, "%s %lld", what, (long long)n);
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
    if (buf_printf(&text, wait->is_barrier ? "barrier '" : "key '") &&
        text_put(&text, wait->name, NAME_SHOWN))
        buf_append(&text, "'", 1);
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

/* "1, 3-7 and more": the numbers 0 .. n-1 for which `is` holds. Ranges, because nodes are missing in racks:
 * "64-127" tells of a switch what sixty-four numbers hide. It ends with the eighth range, so a job with
 * every other node missing costs no more than the line. */
static void put_ranges(struct buf *out, const struct snapshot *s, uint32_t n,
                       bool (*is)(const struct snapshot *s, uint32_t i))
{
    uint32_t shown = 0;
    for (uint32_t from = 0; from < n; from++) {
        uint32_t to = from;
        if (!is(s, from))
            continue;
        while (to + 1 < n && is(s, to + 1))
            to++;
        if (shown++ == RANGES_SHOWN) {
            buf_printf(out, " and more");
            return;
        }
        buf_printf(out, from == to ? "%s%u" : "%s%u-%u", shown > 1 ? ", " : "", from, to);
        from = to;
    }
}

static bool never_came(const struct snapshot *s, uint32_t node_rank)
{
    return node_with_rank(s, (int32_t)node_rank) == NULL && !node_was_here(s, (int32_t)node_rank);
}

/* Unlike above, a rank whose node was here and has gone counts: it is free for whoever was refused. */
static bool is_unclaimed(const struct snapshot *s, uint32_t node_rank)
{
    return node_with_rank(s, (int32_t)node_rank) == NULL;
}

const char *missing_nodes(words out, const struct snapshot *s, uint32_t never)
{
    struct buf text = { 0 };
    buf_printf(&text, "node%s ", never == 1 ? "" : "s");
    put_ranges(&text, s, s->max, never_came);
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

/* --- questions ------------------------------------------------------------------------------------------ */

/* A world may have 16,384 nodes, and each of its ranks is asked for. Hence by halves: job_look.c has sorted
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
    return rank->waits.name.data != NULL && rank->waits.in_barrier == wait->is_barrier &&
           slice_equal(rank->waits.name, wait->name);
}

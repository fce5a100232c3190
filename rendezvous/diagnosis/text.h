/* text.h -- the text of a diagnosis: a snapshot and its findings as a screen of text and as JSON. Private to
 * the diagnosis are the list of findings, the pieces of their sentences, and simple queries on a snapshot.
 *
 * Each function that makes text writes it into its first argument, cut if need be, and returns it. So one
 * call can build a sentence. */
#ifndef RENDEZVOUS_DIAGNOSIS_TEXT_H
#define RENDEZVOUS_DIAGNOSIS_TEXT_H

#include "diagnosis/snapshot.h"

enum { WORDS_LEN = 256 };
typedef char words[WORDS_LEN];

const char *number(words out, uint64_t n);                      /* "7" */
const char *counted(words out, uint64_t n, const char *what);   /* "1 node", "2 nodes" */
const char *duration(words out, uint64_t ms);                   /* "1.2 s" */
const char *process(words out, const char *host, int pid);      /* "n1 (pid 77)" */
const char *place(words out, const struct snapshot_wait *wait); /* "barrier 'x'", as diagnose_put_place */
/* "1, 3-7 and more": the numbers below `n` for which `is` holds. */
void put_ranges(struct buf *out, const void *of, uint32_t n, bool (*is)(const void *of, uint32_t i));
/* "node 1 (n1, pid 77)", with the known parts. */
const char *node_named(words out, int32_t node_rank, const char *host, int pid);
const char *node_words(words out, const struct snapshot_node *node);
/* "n0, n1, n2 and 61 more", or "none". */
const char *all_hosts(words out, const struct snapshot *s);
/* "node 3", "nodes 1, 3-7": the `never` node ranks that have never connected. */
const char *missing_nodes(words out, const struct snapshot *s, uint32_t never);
/* "1-3" followed by the question whether every node has the same --node_rank, or an empty text. */
const char *unclaimed_ranks(words out, const struct snapshot *s);
/* diagnosis.c: return room for one more finding in the order of the table, or NULL. */
struct finding *diagnosis_slot(struct diagnosis *d, enum finding_code code);
/* ranks.c: find the ranks that stand still while others wait for them in a collective. */
void diagnose_still(struct diagnosis *d, const struct snapshot *s);

/* "rank 3 (n1, pid 77) waits", "ranks 0-2 wait"; as below if their ranks are unknown. */
const char *named_waiters(words out, const struct snapshot *s, const struct snapshot_wait *wait);
/* "rank 3", "ranks 1, 3-7": those that are not at the main wait. If the list is empty, or a waiter's rank is unknown,
 * a general text. */
const char *absent_ranks(words out, const struct snapshot *s);
/* "rank 3 waits", "7 ranks wait" */
const char *waiters_of(words out, const struct snapshot_wait *wait);

const struct snapshot_node *node_with_rank(const struct snapshot *s, int32_t node_rank);
/* Return the last rejected ddprun that requested this node rank, or NULL. */
const struct snapshot_refused *refused_as(const struct snapshot *s, int32_t node_rank);
/* Check whether the rejected node has joined since. */
bool came_in_later(const struct snapshot *s, const struct snapshot_refused *r);
/* True if no node has requested this node rank. */
bool never_came(const struct snapshot *s, int32_t node_rank);
/* Return the number of nodes in the round. */
uint32_t members_of(const struct snapshot *s);
/* The place where most ranks wait, if the wait is long enough to report; else NULL. */
const struct snapshot_wait *main_wait(const struct snapshot *s);
bool waits_in(const struct rank_facts *rank, const struct snapshot_wait *wait);

/* --- the screen: ddpctl and every agent print the text unchanged, so that all nodes read the same
 * ---------- */

enum {
    SCREEN_NODES = 8,   /* rows of nodes that have joined */
    SCREEN_MISSING = 4, /* rows of missing nodes */
};

/* Append the awaited nodes, the time, and the option that limits it; then the nodes, and the findings with
 * their advice. Lines end with a newline, except the last one. */
bool screen_put(const struct snapshot *s, const struct diagnosis *d, struct buf *out);
/* Add "findings": [{"code":..,"grade":..,"subject":..,"sentence":..,"advice":..,"more":2}] to an object.
 * False if memory is short. */
bool screen_add_findings(struct cJSON *o, const struct diagnosis *d);
/* Add the findings, and the screen as "text". */
bool screen_add(struct cJSON *o, const struct snapshot *s, const struct diagnosis *d);
/* Add a sentence as "text"; for a warning or an error also its code and its advice. */
bool screen_add_line(struct cJSON *o, const struct finding *f);
/* Add the line, and the finding as the only one of "findings". */
bool screen_add_one(struct cJSON *o, const struct finding *f);
/* Add the headline and the new findings only; `before` of the others are unchanged. */
bool screen_add_news(struct cJSON *o, const struct snapshot *s, const struct diagnosis *news,
                     uint32_t before);

#endif

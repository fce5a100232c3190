/* text.h -- the text of a diagnosis: a snapshot and its findings, as text for a screen and as JSON. This header also
 * declares functions for the list of findings, for parts of sentences, and for queries on a snapshot. Only the
 * diagnosis and the hub use these functions. */
#ifndef RENDEZVOUS_DIAGNOSIS_TEXT_H
#define RENDEZVOUS_DIAGNOSIS_TEXT_H

#include "diagnosis/snapshot.h"

/* Each function that formats a text writes it into the first argument, and cuts the text if necessary. The function
 * returns its first argument, so calls can be nested. The caller owns `out`, and no text borrows from the snapshot. A
 * pointer to a node, a wait or a rejected ddprun points into the snapshot, which borrows from the hub: use the pointer
 * only as long as the snapshot. */

enum { WORDS_LEN = 256 };
typedef char words[WORDS_LEN];

const char *number(words out, uint64_t n);                    /* such as "7" */
const char *counted(words out, uint64_t n, const char *what); /* such as "1 node" */
const char *duration(words out, uint64_t ms);                 /* such as "1.2 s" */
/* Format ", 12.3 s ago," for one rank that has exited, or ", the first 12.3 s ago," for several. */
const char *exit_time(words out, uint64_t ago_ms, bool is_one);
/* Format "n1 (10.0.0.2, pid 77)". If `addr` is "", leave the address out. */
const char *process(words out, const char *host, const char *addr, int pid);
const char *place(words out, const struct snapshot_wait *wait); /* such as "barrier 'x'" */
/* Append the numbers below `n` for which `is` returns true, as ranges: "1, 3-7". End a long list with "and more". */
void append_ranges(struct buf *out, const void *of, uint32_t n, bool (*is)(const void *of, uint32_t i));
/* Format "node 1 (n1, pid 77)". Leave out unknown parts. */
const char *node_named(words out, int32_t node_rank, const char *host, int pid);
const char *node_words(words out, const struct snapshot_node *node);
/* Format "n0, n1, n2 and 61 more", or "none". */
const char *all_hosts(words out, const struct snapshot *s);
/* Format "node 3" or "nodes 1, 3-7": the node ranks that have never connected. `never` is their number. */
const char *missing_nodes(words out, const struct snapshot *s, uint32_t never);
/* Format the node ranks that no node has, and a question to the user: "; no node has node rank 2: was the same ...?".
 * If every node rank is in use, the text is empty. */
const char *unclaimed_ranks(words out, const struct snapshot *s);
/* Insert a finding of this code, in the order of printing (findings.h). Return its slot. Return NULL if the list has no
 * room for the finding, or already has DIAGNOSIS_SAME findings of this code. The list owns the slot, and the next call
 * may move it. */
struct finding *diagnosis_slot(struct diagnosis *d, enum finding_code code);
/* Report ranks that make no progress while other ranks wait for them in a collective (ranks.c). */
void diagnose_still(struct diagnosis *d, const struct snapshot *s);

/* Format which ranks wait: "rank 3 (n1, pid 77) waits" or "ranks 0-2 wait". If `wait` is not main_wait(), or some of
 * its ranks are unknown, return waiters_of(): "3 ranks wait". */
const char *named_waiters(words out, const struct snapshot *s, const struct snapshot_wait *wait);
/* Format the ranks that are missing at the place where most ranks wait: "rank 3" or "ranks 1, 3-7". The text is "none"
 * if no rank is missing, and "unknown" if some of the waiting ranks are unknown. */
const char *absent_ranks(words out, const struct snapshot *s);
/* Format "rank 3 waits" or "7 ranks wait". */
const char *waiters_of(words out, const struct snapshot_wait *wait);

/* Return the node with this node rank, or NULL. The results of this function, refused_as() and main_wait() are borrowed
 * from the snapshot. */
const struct snapshot_node *node_with_rank(const struct snapshot *s, int32_t node_rank);
/* Return the latest rejected ddprun that requested this node rank, or NULL. */
const struct snapshot_refused *refused_as(const struct snapshot *s, int32_t node_rank);
/* Return true if the rejected node has joined since its rejection. */
bool came_in_later(const struct snapshot *s, const struct snapshot_refused *r);
/* Return true if no node with this node rank has joined, left or been rejected. */
bool never_came(const struct snapshot *s, int32_t node_rank);
/* Return the number of nodes in the round. */
uint32_t members_of(const struct snapshot *s);
/* Return the place where most ranks wait, if they have waited long enough for a report; else NULL. */
const struct snapshot_wait *main_wait(const struct snapshot *s);
bool waits_in(const struct snapshot_rank *rank, const struct snapshot_wait *wait);
/* Return true if the ranks that wait at `wait` may need `rank`. A barrier may have only some ranks as members. */
bool is_needed(const struct snapshot_wait *wait, uint32_t rank);

/* --- the screen: a text that the store formats, and that ddpctl and every agent print ---------- */

enum {
    SCREEN_NODES = 8,   /* maximum number of rows for nodes that have joined */
    SCREEN_MISSING = 4, /* maximum number of rows for missing nodes */
};

/* The caller owns `o`. The members that a function adds contain copies. If the function fails, `o` may have some of
 * them. */

/* Add "findings": [{"code":..,"grade":..,"subject":..,"sentence":..,"advice":..,"more":2}] to an object. Return false
 * if memory is short. */
bool diagnosis_add_findings(struct cJSON *o, const struct diagnosis *d);
/* Add two members: "findings", and "text" with the findings, the state of the job, and its nodes. ddpctl and the agents
 * print "text" unchanged. */
bool diagnosis_add_text(struct cJSON *o, const struct snapshot *s, const struct diagnosis *d);
/* Add the sentence of a finding as "text". For a warning or an error, the text also contains the code and the
 * advice. */
bool diagnosis_add_line(struct cJSON *o, const struct finding *f);
/* Add a finding in two forms: as "text" (see diagnosis_add_line), and as the only element of "findings". */
bool diagnosis_add_one(struct cJSON *o, const struct finding *f);
/* Add the headline and the new findings. `before` is the number of findings that an earlier report has shown
 * and that are unchanged. */
bool diagnosis_add_news(struct cJSON *o, const struct snapshot *s, const struct diagnosis *news,
                        uint32_t before);

#endif

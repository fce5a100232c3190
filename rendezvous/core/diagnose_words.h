/* diagnose_words.h -- pieces of sentences for diagnose_job.c and screen.c, and the small questions to a snapshot. Private
 * to them.
 *
 * Each function that makes words writes them into its first argument, cut if need be, and returns it: so a sentence can
 * be put together in one call. */
#ifndef RENDEZVOUS_DIAGNOSE_WORDS_H
#define RENDEZVOUS_DIAGNOSE_WORDS_H

#include "core/snapshot.h"

enum { WORDS_LEN = 256 };
typedef char words[WORDS_LEN];

const char *number(words out, uint64_t n);                      /* "7" */
const char *numbered(words out, const char *what, int64_t n);   /* "node rank 7" */
const char *counted(words out, uint64_t n, const char *what);   /* "1 node", "2 nodes" */
const char *duration(words out, uint64_t ms);                   /* "1.2 s" */
const char *process(words out, const char *host, int pid);      /* "n1 (pid 77)" */
const char *place(words out, const struct snapshot_wait *wait); /* "barrier 'x'", "key '/y'" */
/* "node 1 (n1, pid 77)", with whatever of it is known. */
const char *node_named(words out, int32_t node_rank, const char *host, int pid);
const char *node_words(words out, const struct snapshot_node *node);
/* "n0, n1, n2 and 61 more", "nobody" */
const char *all_hosts(words out, const struct snapshot *s);
/* "node 3", "nodes 1, 3-7": those `never` node ranks that have never been seen. */
const char *missing_nodes(words out, const struct snapshot *s, uint32_t never);
/* "; nobody has claimed 1-3: was the same --node_rank used on every node?", or nothing. */
const char *unclaimed_ranks(words out, const struct snapshot *s);
/* "rank 3 waits", "7 ranks wait" */
const char *waiters_of(words out, const struct snapshot_wait *wait);

const struct snapshot_node *node_with_rank(const struct snapshot *s, int32_t node_rank);
/* Has it been here and gone again? */
bool node_was_here(const struct snapshot *s, int32_t node_rank);
/* Nodes that are in the round. */
uint32_t members_of(const struct snapshot *s);
/* Where most ranks wait, when somebody has waited for long enough to look at it; NULL: nobody. */
const struct snapshot_wait *main_wait(const struct snapshot *s);
bool waits_in(const struct rank_facts *rank, const struct snapshot_wait *wait);

#endif

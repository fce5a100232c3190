/* sim_rdzv.h -- a rendezvous on a clock that the test advances, and nodes that send the test's messages.
 *
 * Node 3 is "n3", with pid 103. The log and the messages of the rendezvous are kept as a trace:
 *
 *     [     0] n0 joined (1 of 2)                        a log line
 *     [     0]   keys of attempt 0                       the key space was emptied
 *     [     0]   n0 < round 1: node 0 of 2, ranks from 0 of 4     a message to a node */
#ifndef TESTS_SIM_RDZV_H
#define TESTS_SIM_RDZV_H

#include "base/buf.h"
#include "job/rendezvous.h"

enum { SIM_NODES = 2048 };

struct sim_rdzv {
    struct rdzv *r;
    struct quota quota;
    uint64_t now_ms;
    struct rdzv_join join; /* what rsim_join sends for every node; the test may change it */
    int64_t progress;      /* progress that the workers have reported */
    bool no_memory;        /* true = the next key space gets no memory */
    bool brief;            /* trace only lines about the whole job */
    uint32_t told[RDZV_NOTICE_VERDICT + 1];
    bool beats[SIM_NODES]; /* these nodes send a heartbeat every second */
    struct buf trace;
    struct rdzv_refusal refusal; /* refusal of the latest rsim_join */
};

/* Initialize a job of two static nodes with two workers each and no restarts. node_timeout is 0, so no heartbeats are
 * needed. If `sim` has a rendezvous, free it. Otherwise `sim` must be zeroed. */
void rsim_init(struct sim_rdzv *sim);
/* Initialize as rsim_init does, but with an elastic job of `min` to `max` nodes. */
void rsim_init_elastic(struct sim_rdzv *sim, uint32_t min, uint32_t max);
/* Free the rendezvous, and expect that every byte of the quota was returned. */
void rsim_free(struct sim_rdzv *sim);

/* Move the clock, and process every deadline and every heartbeat on the way. */
void rsim_at(struct sim_rdzv *sim, uint64_t now_ms);
/* Stop the server until `now_ms`, so that no code runs during that time. */
void rsim_freeze_until(struct sim_rdzv *sim, uint64_t now_ms);

enum rdzv_refused rsim_join(struct sim_rdzv *sim, int node);
enum rdzv_refused rsim_join_as(struct sim_rdzv *sim, int node, const struct rdzv_join *join);
/* Join again after a verdict "restart". The join contains the instance text of the rendezvous (rdzv_instance). */
enum rdzv_refused rsim_rejoin(struct sim_rdzv *sim, int node);
/* Let nodes `first` to `last` join, as with rsim_join. */
void rsim_join_all(struct sim_rdzv *sim, int first, int last);
/* Report that `signal` killed a worker. If `signal` is negative, report that the worker exited with `-signal`. */
enum rdzv_answer rsim_fail(struct sim_rdzv *sim, int node, uint32_t round, int rank, int signal);
enum rdzv_answer rsim_done(struct sim_rdzv *sim, int node, uint32_t round);
enum rdzv_answer rsim_stopped(struct sim_rdzv *sim, int node, uint32_t round);
void rsim_leave(struct sim_rdzv *sim, int node, int signal);
void rsim_lost(struct sim_rdzv *sim, int node);

/* Expect that the trace so far equals `text`, then empty the trace. */
#define rsim_expect(sim, text) rsim_expect_at(sim, text, __FILE__, __LINE__)
void rsim_expect_at(struct sim_rdzv *sim, const char *text, const char *file, int line);
/* Expect that the trace so far contains `text`, then empty the trace. */
#define rsim_expect_part(sim, text) rsim_expect_part_at(sim, text, __FILE__, __LINE__)
void rsim_expect_part_at(struct sim_rdzv *sim, const char *text, const char *file, int line);
void rsim_forget(struct sim_rdzv *sim);

enum rdzv_state rsim_state(const struct sim_rdzv *sim);
/* Return the node's rank in the round that runs, or -1 if the node is not in the round. */
int rsim_rank(const struct sim_rdzv *sim, int node);

#endif

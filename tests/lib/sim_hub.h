/* sim_hub.h -- a hub without sockets on a clock that stands still until told otherwise.
 *
 * Connections are numbers. Bytes go in as hex text or as ready-made requests; what comes out is kept for each
 * connection and compared as hex text too, blanks ignored. A closed connection reads "closed: why". */
#ifndef SIM_HUB_H
#define SIM_HUB_H

#include "base/buf.h"
#include "hub/hub.h"

enum { SIM_CONNS = 512 };

struct sim_conn {
    struct buf out;   /* what the hub has sent and no one has looked at */
    bool open;        /* from our side */
    char closed[256]; /* the hub's reason, "" while it is open */
};

struct sim {
    struct hub *hub;
    uint64_t now_ms;
    struct sim_conn conn[SIM_CONNS];
    struct buf trace; /* "[  1000] line\n" for each log line of the hub, and each sim_note */
};

/* `limits` NULL = the defaults. Fails the test when memory is short. */
void sim_init(struct sim *sim, const struct hub_limits *limits);
void sim_free(struct sim *sim);

/* Move the clock, ringing every deadline of the hub on the way. */
void sim_at(struct sim *sim, uint64_t now_ms);

/* Connections are numbered 1, 2, ... by the caller. */
void sim_connect(struct sim *sim, conn_id conn);
void sim_disconnect(struct sim *sim, conn_id conn);

/* "03 0500000000000000 ..." as bytes; the second form feeds piece by piece of `step` bytes. */
void sim_feed(struct sim *sim, conn_id conn, const char *hex);
void sim_feed_cut(struct sim *sim, conn_id conn, const char *hex, size_t step);
void sim_feed_bytes(struct sim *sim, conn_id conn, struct slice bytes);

/* Fail the test unless exactly these bytes (hex), or "closed: ..." up to the text's length, arrived since the
 * last call. */
#define sim_expect(sim, conn, hex) sim_expect_at(sim, conn, hex, __FILE__, __LINE__)
void sim_expect_at(struct sim *sim, conn_id conn, const char *hex, const char *file, int line);

/* The trace so far must be exactly this; it is emptied. */
#define sim_expect_trace(sim, text) sim_expect_trace_at(sim, text, __FILE__, __LINE__)
void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line);
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Hex text (blanks allowed) to bytes appended to `out`, and back to compact hex text in `out`. */
void hex_read(const char *hex, struct buf *out);
void hex_write(struct slice bytes, struct buf *out);

/* --- sim job ---------------------------------------------------------------------------------------------- */

/* Simulated workers and an agent, talking to a simulated hub; what they live through becomes a trace.
 *
 * Worker N is rank N on connection N + 1; the agent is connection SIM_AGENT. Every answer that a worker gets is
 * noted the moment it comes: "rank 1 passes 'a'", or the message it is given, line by line. */

enum { SIM_AGENT = SIM_CONNS - 1, SIM_OPERATOR = SIM_CONNS - 2 };

/* An agent declares attempt `attempt` of job "demo" with `world` ranks (connecting first if need be). */
void sim_job(struct sim *sim, int attempt, int world);
/* The agent joins job "demo" as its only node, with `world` ranks: attempt 0 begins. */
void sim_node(struct sim *sim, int world);
/* The node reports: the process of a rank runs (host "n1", pid 100 + rank), or has ended. */
void sim_started(struct sim *sim, int rank);
void sim_exited(struct sim *sim, int rank, int exit_code, int signal);

/* A worker connects and introduces itself. */
void sim_worker(struct sim *sim, int rank, int attempt, int world);
/* `members` NULL = all, else "0 2 3". */
void sim_barrier(struct sim *sim, int rank, const char *name, int64_t timeout_ms, const char *members);
void sim_cancel_wait(struct sim *sim, int rank);
void sim_wait_key(struct sim *sim, int rank, const char *key);
void sim_set_key(struct sim *sim, int rank, const char *key);
void sim_worker_gone(struct sim *sim, int rank);

/* sim_at, and the workers read what came meanwhile. Deadlines are met exactly when this stops at each of them. */
void sim_later(struct sim *sim, uint64_t now_ms);

/* CONTROL from any connection; the answer's JSON text is valid until the next call. */
const char *sim_control(struct sim *sim, conn_id conn, const char *json);
/* The same without looking at what comes back. */
void sim_say(struct sim *sim, conn_id conn, const char *json);
/* Connect and greet in dialect C. */
void sim_client(struct sim *sim, conn_id conn);
/* IDENTIFY with any JSON; returns the status byte, `text` (may be NULL) gets the words. */
int sim_identify(struct sim *sim, conn_id conn, const char *json, struct buf *text);

#endif

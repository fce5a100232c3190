/* sim_hub.h -- a hub without sockets, on a clock that only the test moves.
 *
 * Connections are numbers. Bytes are passed in as hex text or as complete requests; the output is kept for each
 * connection and compared as hex text, too, ignoring blanks. A closed connection reads "closed: why". */
#ifndef SIM_HUB_H
#define SIM_HUB_H

#include "base/buf.h"
#include "hub/hub.h"

enum { SIM_CONNS = 512 };

struct sim_conn {
    struct buf out;   /* bytes that the hub has sent and the test has not read */
    bool open;        /* closed from our side */
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

/* Move the clock, through every deadline of the hub on the way. */
void sim_at(struct sim *sim, uint64_t now_ms);

/* The caller numbers connections 1, 2, ... */
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

/* Expect that the trace so far is exactly this; then empty it. */
#define sim_expect_trace(sim, text) sim_expect_trace_at(sim, text, __FILE__, __LINE__)
void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line);
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Append hex text (blanks allowed) as bytes to `out`, and back as compact hex text to `out`. */
void hex_read(const char *hex, struct buf *out);
void hex_write(struct slice bytes, struct buf *out);

/* --- sim job ---------------------------------------------------------------------------------------------- */

/* Simulated workers and an agent that use a simulated hub; a trace records what happens to them.
 *
 * Worker N is rank N on connection N + 1; the agent is connection SIM_AGENT. Every answer that a worker gets is
 * recorded at once: "rank 1 passes 'a'", or its message, line by line. */

enum { SIM_AGENT = SIM_CONNS - 1, SIM_OPERATOR = SIM_CONNS - 2 };

/* An agent declares attempt `attempt` of job "demo" with `world` ranks (connecting first if need be). */
void sim_job(struct sim *sim, int attempt, int world);
/* The agent joins job "demo" as its only node, with `world` ranks: attempt 0 begins. */
void sim_node(struct sim *sim, int world);
/* The node reports: the process of a rank runs (host "n1", pid 100 + rank), or has ended. */
void sim_started(struct sim *sim, int rank);
void sim_exited(struct sim *sim, int rank, int exit_code, int signal);

/* A worker connects and sends IDENTIFY. */
void sim_worker(struct sim *sim, int rank, int attempt, int world);
/* `members` NULL = all, else "0 2 3". */
void sim_barrier(struct sim *sim, int rank, const char *name, int64_t timeout_ms, const char *members);
void sim_cancel_wait(struct sim *sim, int rank);
void sim_wait_key(struct sim *sim, int rank, const char *key);
void sim_set_key(struct sim *sim, int rank, const char *key);
void sim_worker_gone(struct sim *sim, int rank);

/* sim_at, and the workers read what has arrived. Deadlines are exact when this stops at each of them. */
void sim_later(struct sim *sim, uint64_t now_ms);

/* CONTROL from any connection; the answer's JSON text is valid until the next call. */
const char *sim_control(struct sim *sim, conn_id conn, const char *json);
/* The same without checking the answer. */
void sim_say(struct sim *sim, conn_id conn, const char *json);
/* Connect and greet in dialect C. */
void sim_client(struct sim *sim, conn_id conn);
/* Send IDENTIFY with any JSON; return the status byte, `text` (may be NULL) gets the reason. */
int sim_identify(struct sim *sim, conn_id conn, const char *json, struct buf *text);

#endif

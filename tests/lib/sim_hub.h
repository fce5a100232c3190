/* sim_hub.h -- a hub without sockets, on a clock that only the test moves.
 *
 * Connections are numbers. The test passes bytes as hex text or as complete requests. The hub's output is kept for each
 * connection, and is compared as hex text without blanks. A closed connection has the output "closed: why". */
#ifndef SIM_HUB_H
#define SIM_HUB_H

#include "base/buf.h"
#include "hub/hub.h"

enum { SIM_CONNS = 512 };

struct sim_conn {
    struct buf out;   /* bytes that the hub has sent and the test has not read */
    bool open;        /* the test has not closed the connection */
    bool is_stopped;  /* the hub has stopped reading from the connection */
    char closed[256]; /* the hub's reason for closing; "" while the connection is open */
};

struct sim {
    struct hub *hub;
    uint64_t now_ms;
    struct sim_conn conn[SIM_CONNS];
    struct buf trace; /* "[  1000] line\n" for each log line of the hub, and each sim_note */
};

/* Open a hub. If `limits` is NULL, use the defaults. Fail the test if memory is short. */
void sim_init(struct sim *sim, const struct hub_limits *limits);
void sim_free(struct sim *sim);

/* Move the clock to `now_ms`, and let the hub handle each deadline on the way. */
void sim_at(struct sim *sim, uint64_t now_ms);

/* Open or close a connection. The caller chooses the number `conn`: 1, 2, ... */
void sim_connect(struct sim *sim, conn_id conn);
void sim_disconnect(struct sim *sim, conn_id conn);

/* Send the bytes of a hex text such as "03 0500000000000000 ...". sim_feed_cut sends the bytes in pieces of `step`
 * bytes. */
void sim_feed(struct sim *sim, conn_id conn, const char *hex);
void sim_feed_cut(struct sim *sim, conn_id conn, const char *hex, size_t step);
void sim_feed_bytes(struct sim *sim, conn_id conn, struct slice bytes);

/* Fail the test unless exactly this output has arrived since the last call: bytes in hex, or "closed: " and the
 * beginning of the reason. In the reason, '*' stands for any text. "" means that nothing has arrived, and that the hub
 * has not closed the connection. */
#define sim_expect(sim, conn, hex) sim_expect_at(sim, conn, hex, __FILE__, __LINE__)
void sim_expect_at(struct sim *sim, conn_id conn, const char *hex, const char *file, int line);

/* Expect that the trace so far equals `text`, then empty the trace. */
#define sim_expect_trace(sim, text) sim_expect_trace_at(sim, text, __FILE__, __LINE__)
void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line);
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Append the bytes of a hex text (blanks are allowed) to `out`. */
void hex_read(const char *hex, struct buf *out);
/* Append bytes as compact hex text. */
void hex_write(struct slice bytes, struct buf *out);

/* --- sim job ---------------------------------------------------------------------------------------------- */

/* Simulated workers and an agent that use a simulated hub; a trace records the events of the workers.
 *
 * Worker N is rank N on connection N + 1; the agent is connection SIM_AGENT. For each answer to a worker, the trace
 * gets a line such as "rank 1 passes". For an error, the trace gets the lines of the error message. */

enum { SIM_AGENT = SIM_CONNS - 1, SIM_OPERATOR = SIM_CONNS - 2 };

/* Let an agent declare attempt `attempt` of job "demo" with `world` ranks. The agent connects first if needed. */
void sim_job(struct sim *sim, int attempt, int world);
/* Let the agent join job "demo" as the only node, with `world` ranks. Attempt 0 begins. */
void sim_node(struct sim *sim, int world);
/* Let the node report the start of a rank's process (host "n1", pid 100 + rank). sim_exited reports the end. */
void sim_started(struct sim *sim, int rank);
void sim_exited(struct sim *sim, int rank, int exit_code, int signal);

/* Let a worker connect and send IDENTIFY. */
void sim_worker(struct sim *sim, int rank, int attempt, int world);
/* Let a worker wait at a barrier. `members` is a text such as "0 2 3", or NULL for all ranks. */
void sim_barrier(struct sim *sim, int rank, const char *name, int64_t timeout_ms, const char *members);
void sim_cancel_wait(struct sim *sim, int rank);
void sim_wait_key(struct sim *sim, int rank, const char *key);
void sim_set_key(struct sim *sim, int rank, const char *key);
void sim_worker_gone(struct sim *sim, int rank);

/* Move the clock as sim_at does, and then let the workers read their answers. An answer appears in the trace only when
 * its worker reads the answer. So the trace shows the exact time of a deadline only if the test calls this function for
 * each deadline. */
void sim_later(struct sim *sim, uint64_t now_ms);

/* Send CONTROL from any connection. The answer's JSON text is valid until the next call. */
const char *sim_control(struct sim *sim, conn_id conn, const char *json);
/* Send CONTROL without checking the answer. */
void sim_say(struct sim *sim, conn_id conn, const char *json);
/* Connect and greet in dialect C. */
void sim_client(struct sim *sim, conn_id conn);
/* Send IDENTIFY with any JSON; return the status byte. `text` (may be NULL) gets the reason. */
int sim_identify(struct sim *sim, conn_id conn, const char *json, struct buf *text);

#endif

/* sim_hub.h -- a hub without sockets on a clock that stands still until told otherwise.
 *
 * Connections are numbers. Bytes go in as hex text or as ready-made requests; what comes out is kept for each
 * connection and compared as hex text too, blanks ignored. A closed connection reads "closed: why". */
#ifndef TESTS_SIM_HUB_H
#define TESTS_SIM_HUB_H

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

/* Fails the test unless exactly these bytes (hex), or "closed: ..." up to the text's length, have come since
 * last time. */
#define sim_expect(sim, conn, hex) sim_expect_at(sim, conn, hex, __FILE__, __LINE__)
void sim_expect_at(struct sim *sim, conn_id conn, const char *hex, const char *file, int line);

/* The trace so far must be exactly this; it is emptied. */
#define sim_expect_trace(sim, text) sim_expect_trace_at(sim, text, __FILE__, __LINE__)
void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line);
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Hex text (blanks allowed) to bytes appended to `out`, and back to compact hex text in `out`. */
void hex_read(const char *hex, struct buf *out);
void hex_write(struct slice bytes, struct buf *out);

#endif

/* conn.h -- one TCP client, from its accepted descriptor to the last callback. Bytes only; what they mean is
 * not known here.
 *
 * A conn lives inside an object of its owner (clients.c: struct client). It has one libuv handle, so
 * libuv's close callback is the one place where it ends: host->on_closed, after which the owner frees the
 * whole object. */
#ifndef RENDEZVOUS_CONN_H
#define RENDEZVOUS_CONN_H

#include "base/buf.h"

#include <uv.h>

enum { CONN_READ_BYTES = 64 * 1024 };

struct conn;
struct outbox;

/* What all connections of one loop share. The buffer is here, not in struct conn, because a connection is
 * idle for nearly all of its life and there may be ten thousand; bytes are consumed before the next read
 * needs the buffer. */
struct conn_host {
    uv_loop_t *loop;
    size_t max_queue_bytes; /* unsent bytes one connection may have */
    size_t queued_bytes,
        max_queued_bytes; /* memory for the unsent bytes of all; a block that is held counts as a whole */
    void (*on_bytes)(struct conn *conn, struct slice bytes); /* borrowed for the call */
    void (*on_end)(struct conn *conn,
                   const char *why);       /* the peer has ended or failed; conn closes by itself */
    void (*on_drained)(struct conn *conn); /* some of its queue is out */
    void (*on_closed)(struct conn *conn);  /* last callback; the memory is the owner's again */
    char *read_buffer;                     /* CONN_READ_BYTES of the owner's */
};

enum conn_state {
    CONN_OPEN,
    CONN_FLUSHING,  /* no more input is taken; closes when the queue is out */
    CONN_LINGERING, /* FIN is sent; waits for the peer's, so that nobody gets a reset */
    CONN_CLOSING,   /* uv_close was called */
};

struct conn {
    uv_tcp_t tcp;
    struct conn_host *host;
    struct outbox *outbox; /* NULL while nothing is queued, which is nearly always */
    enum conn_state state;
    bool is_stopped; /* nothing is read */
    bool peer_ended; /* the peer's FIN has come */
    bool linger;     /* for the end of CONN_FLUSHING */
};

enum conn_sent {
    CONN_SENT,    /* written, or queued */
    CONN_SLOW,    /* the peer does not read: more than max_queue_bytes would be queued */
    CONN_NO_ROOM, /* more than max_queued_bytes would be queued for all together */
    CONN_GONE,    /* the peer has closed or died, and its end has not been read yet */
    CONN_BROKEN,  /* the socket reports another error, or memory is short */
};

/* Take over `fd` (accepted, non-blocking) and start reading. Whatever happens, on_closed comes in the end;
 * false: it could not be started and is closing already. */
bool conn_open(struct conn *conn, struct conn_host *host, int fd);

/* Write now what the socket takes, queue the rest: the bytes themselves if `holder` has them (base/buf.h) and a copy would
 * not cost much less, else a copy. After any other result than SENT a part may have been sent,
 * and the caller is expected to call conn_abort. A connection that is not open swallows the bytes. */
enum conn_sent conn_send(struct conn *conn, struct slice bytes, struct shared *holder);

/* The bytes that are queued. */
size_t conn_queued(const struct conn *conn);

/* Stop reading, and start again. */
void conn_stop_reading(struct conn *conn);
void conn_start_reading(struct conn *conn);

/* Close after what is queued is out. With `linger` the peer is given the time to close first (call conn_abort
 * when that takes too long); a second call without it ends the lingering. */
void conn_finish(struct conn *conn, bool linger);

/* Close now; what is queued is lost. May be called any number of times. */
void conn_abort(struct conn *conn);

#endif

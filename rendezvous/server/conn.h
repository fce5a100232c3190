/* conn.h -- one TCP client, from its accepted descriptor to the last callback. It moves bytes and does not
 * parse them.
 *
 * A conn lives inside an object of its owner (clients.c: struct client). It has one libuv handle, so it ends
 * in one place, libuv's close callback. That calls host->on_closed, and the owner then frees the whole
 * object. */
#ifndef RENDEZVOUS_CONN_H
#define RENDEZVOUS_CONN_H

#include "base/buf.h"

#include <uv.h>

enum { CONN_READ_BYTES = 64 * 1024 };

struct conn;
struct outbox;

/* Shared by all connections of one loop. The read buffer is here and not in struct conn, because a connection
 * is idle most of its life and ten thousand may exist. The bytes are consumed before the next read needs the
 * buffer. */
struct conn_host {
    uv_loop_t *loop;
    size_t max_queue_bytes; /* unsent bytes one connection may have */
    size_t queued_bytes,
        max_queued_bytes; /* memory for the unsent bytes of all connections; a held block counts as a whole */
    void (*on_bytes)(struct conn *conn, struct slice bytes); /* borrowed for the call */
    void (*on_end)(struct conn *conn,
                   const char *why);       /* the peer has ended or failed; conn closes by itself */
    void (*on_drained)(struct conn *conn); /* some of its queue is out */
    void (*on_closed)(struct conn *conn);  /* last callback; the owner may free the memory */
    char *read_buffer;                     /* CONN_READ_BYTES, owned by the owner */
};

enum conn_state {
    CONN_OPEN,
    CONN_FLUSHING,  /* no more input is read; closes when the queue is written */
    CONN_LINGERING, /* FIN is sent; waits for the peer's FIN, so that the peer gets no reset */
    CONN_CLOSING,   /* uv_close was called */
};

struct conn {
    uv_tcp_t tcp;
    struct conn_host *host;
    struct outbox *outbox; /* NULL while nothing is queued, which is nearly always */
    enum conn_state state;
    bool is_stopped; /* nothing is read */
    bool peer_ended; /* the peer's FIN has arrived */
    bool linger;     /* for the end of CONN_FLUSHING */
};

enum conn_sent {
    CONN_SENT,    /* written, or queued */
    CONN_SLOW,    /* the peer does not read: more than max_queue_bytes would be queued */
    CONN_NO_ROOM, /* more than max_queued_bytes would be queued for all connections together */
    CONN_GONE,    /* the peer has closed or died, and its end has not been read yet */
    CONN_BROKEN,  /* the socket reports another error, or memory is short */
};

/* Take over `fd` (accepted, non-blocking) and start reading. on_closed is always called in the end. False:
 * the start failed and the connection is closing already. */
bool conn_open(struct conn *conn, struct conn_host *host, int fd);

/* Write as much as the socket takes now and queue the rest. The rest is held if `holder` owns the bytes
 * (base/buf.h) and a copy would not cost much less; otherwise it is copied. After any result but SENT a part
 * may have been sent, and the caller must call conn_abort. A connection that is not open discards the
 * bytes. */
enum conn_sent conn_send(struct conn *conn, struct slice bytes, struct shared *holder);

/* Return the number of queued bytes. */
size_t conn_queued(const struct conn *conn);

/* Stop reading, and start again. */
void conn_stop_reading(struct conn *conn);
void conn_start_reading(struct conn *conn);

/* Close after the queue is written. With `linger` the peer may close first (call conn_abort when that takes
 * too long). A second call without it ends the lingering. */
void conn_finish(struct conn *conn, bool linger);

/* Close now and discard the queue. May be called any number of times. */
void conn_abort(struct conn *conn);

#endif

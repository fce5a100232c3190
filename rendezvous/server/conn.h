/* conn.h -- one TCP client, from its accepted descriptor to the last callback. A conn moves bytes and does not parse
 * them.
 *
 * A conn is a member of an object of its owner (clients.c: struct client). A conn has one libuv handle, so a conn
 * always ends in libuv's close callback. The callback calls host->on_closed, in which the owner frees the whole
 * object. */
#ifndef RENDEZVOUS_CONN_H
#define RENDEZVOUS_CONN_H

#include "base/buf.h"

#include <uv.h>

enum { CONN_READ_BYTES = 64 * 1024 };

struct conn;
struct outbox;

/* Shared by all connections of one loop. The read buffer is here instead of in struct conn, because ten thousand
 * connections may exist and most are idle. Bytes are used before the next read needs the buffer. */
struct conn_host {
    uv_loop_t *loop;
    size_t max_queue_bytes; /* unsent bytes that a connection may have */
    size_t queued_bytes,
        max_queued_bytes; /* limit for the unsent bytes of all connections; a held block is included as a
                           * whole */
    void (*on_bytes)(struct conn *conn, struct slice bytes); /* the bytes are borrowed for the call */
    void (*on_end)(struct conn *conn, const char *why); /* the peer has ended or failed; conn closes itself */
    void (*on_drained)(struct conn *conn);              /* a part of the queue was written */
    void (*on_closed)(struct conn *conn);               /* last callback; the owner may free the memory */
    char *read_buffer;                                  /* CONN_READ_BYTES, owned by the owner of the host */
};

enum conn_state {
    CONN_OPEN,
    CONN_FLUSHING,  /* input is no longer read; closes when the queue is written */
    CONN_LINGERING, /* FIN was sent; waits for the peer's FIN, so that the peer gets no reset */
    CONN_CLOSING,   /* uv_close was called */
};

struct conn {
    uv_tcp_t tcp;
    struct conn_host *host;
    struct outbox *outbox; /* NULL while the queue is empty, as it nearly always is */
    enum conn_state state;
    bool is_stopped; /* reading is stopped */
    bool peer_ended; /* the peer's FIN has arrived */
    bool linger;     /* wait for the peer's FIN after CONN_FLUSHING */
};

enum conn_sent {
    CONN_SENT,    /* written, or queued */
    CONN_SLOW,    /* the peer does not read, so more than max_queue_bytes would be queued */
    CONN_NO_ROOM, /* more than max_queued_bytes would be queued for all connections together */
    CONN_GONE,    /* the peer has closed or died, but its FIN was not read yet */
    CONN_BROKEN,  /* the socket reports another error, or memory is short */
};

/* Take over `fd` (accepted, non-blocking) and start reading. Return false if the start failed; the connection is then
 * closing already. on_closed is called in both cases. */
bool conn_open(struct conn *conn, struct conn_host *host, int fd);

/* Write as many bytes as the socket accepts now and queue the rest. The rest is held by reference if `holder` owns
 * the bytes (base/buf.h), unless a copy costs much less. After any result except CONN_SENT, a part may have been
 * sent, and the caller must call conn_abort. If the connection is not open, discard the bytes. */
enum conn_sent conn_send(struct conn *conn, struct slice bytes, struct shared *holder);

/* Return the number of queued bytes. */
size_t conn_queued(const struct conn *conn);

/* Stop reading, and start again. */
void conn_stop_reading(struct conn *conn);
void conn_start_reading(struct conn *conn);

/* Close after the queue was written. With `linger`, wait for the peer to close first. The caller calls conn_abort if
 * the peer takes too long. A second call without `linger` ends the wait. */
void conn_finish(struct conn *conn, bool linger);

/* Close now and discard the queue. Further calls do nothing. */
void conn_abort(struct conn *conn);

#endif

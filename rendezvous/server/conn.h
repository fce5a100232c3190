/* conn.h -- one TCP connection of a client, from the accepted descriptor to the close. A conn moves bytes but does not
 * parse them. The owner may free a conn only in host->on_closed, because libuv uses its handle until the close
 * callback. */
#ifndef RENDEZVOUS_CONN_H
#define RENDEZVOUS_CONN_H

#include "base/buf.h"

#include <uv.h>

enum { CONN_READ_BYTES = 64 * 1024 }; /* maximum number of bytes that one read passes to on_bytes */

struct conn;
struct outbox;

/* The data that all connections of a loop share. All connections use one read buffer, because a store may have ten
 * thousand connections, most of them idle. */
struct conn_host {
    uv_loop_t *loop;
    size_t max_queue_bytes; /* limit for the unsent bytes of one connection */
    /* queued_bytes: number of unsent bytes of all connections; max_queued_bytes: the limit of queued_bytes. If a
     * connection keeps a reference to a value, queued_bytes counts the whole memory block of the value. */
    size_t queued_bytes, max_queued_bytes;
    /* Handle received bytes. `bytes` is valid during the call. */
    void (*on_bytes)(struct conn *conn, struct slice bytes);
    /* Handle the end of an open connection by a FIN or an error. `why` is valid during the call. */
    void (*on_end)(struct conn *conn, const char *why);
    void (*on_drained)(struct conn *conn); /* called when some queued bytes were written */
    void (*on_closed)(struct conn *conn);  /* the last callback: the owner may free the conn */
    char *read_buffer;                     /* CONN_READ_BYTES bytes, owned by the creator of this struct */
};

enum conn_state {
    CONN_OPEN,
    CONN_FLUSHING, /* input is discarded; the connection closes after the queue is written */
    CONN_WAIT_FIN, /* the server's FIN was sent; the connection waits for the peer's FIN */
    CONN_CLOSING,  /* uv_close was called */
};

/* A connection. It is a member of its owner's struct (struct client in clients.c) and has one libuv handle. All
 * functions run on the thread of host->loop. */
struct conn {
    uv_tcp_t tcp;
    struct conn_host *host; /* borrowed */
    struct outbox *outbox;  /* owned; NULL = the queue is empty */
    enum conn_state state;
    bool is_stopped; /* conn_stop_reading was called */
    bool peer_ended; /* the peer's FIN or an error was received */
    bool is_cut;     /* the connection broke without the peer's FIN, so the network may be at fault */
    bool wait_fin;   /* after CONN_FLUSHING, wait for the peer's FIN */
};

/* The result of conn_send. */
enum conn_sent {
    CONN_SENT,    /* the bytes were written or queued */
    CONN_SLOW,    /* with these bytes, this connection would have more than max_queue_bytes unsent bytes */
    CONN_NO_ROOM, /* the unsent bytes of all connections would exceed max_queued_bytes */
    CONN_GONE,    /* the peer has closed the connection */
    CONN_BROKEN,  /* another error of the socket, or memory is short */
};

/* Open a connection on `fd`, which must be accepted and non-blocking; the conn owns `fd` from now on. Return false
 * after a failure. The connection is then closing, and on_closed follows. */
bool conn_open(struct conn *conn, struct conn_host *host, int fd);

/* Write as many bytes as the socket accepts, and queue the rest. `holder` is the shared block that contains the bytes
 * (base/buf.h), or NULL. Bytes of a shared block can be queued without a copy. If the connection is not open, discard
 * the bytes and return CONN_SENT. If the result is not CONN_SENT, the caller must call conn_abort, because the socket
 * may have accepted a part of the bytes. */
enum conn_sent conn_send(struct conn *conn, struct slice bytes, struct shared *holder);

/* Return the number of queued bytes that the socket has not accepted yet. */
size_t conn_queued(const struct conn *conn);

/* Stop reading. The peer then fills the buffers of the kernel and must wait. While reading is stopped, the end of the
 * connection is not detected. */
void conn_stop_reading(struct conn *conn);
/* Resume reading. Do nothing if reading is not stopped. */
void conn_start_reading(struct conn *conn);

/* Write the queue, then close. If `wait_fin` is true, wait for the peer's FIN between these two steps. This wait has no
 * time limit: the caller calls conn_abort if the wait is too long. A second call, with `wait_fin` = false, ends the
 * wait. */
void conn_finish(struct conn *conn, bool wait_fin);

/* Close at once and discard the queue. Further calls do nothing. */
void conn_abort(struct conn *conn);

#endif

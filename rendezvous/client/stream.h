/* stream.h -- a connected TCP socket on which every call has a deadline.
 *
 * The socket is non-blocking; a call tries first or polls until `deadline_ms` (clock_ms), so that no peer can
 * hold us longer than we said. What comes in goes through a small buffer: a short reply costs one recv, and
 * bytes that nobody asked for are found before the next request goes out. The words of an error do not name
 * the peer; the caller does. */
#ifndef RENDEZVOUS_CLIENT_STREAM_H
#define RENDEZVOUS_CLIENT_STREAM_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdint.h>

struct client_stream {
    int fd;    /* -1: not connected */
    size_t at; /* in[at .. len) has been received and not been read yet */
    size_t len;
    uint8_t in[4096];
};

/* What is left until `deadline_ms`, in the form that poll(2) wants. */
int client_remaining_ms(uint64_t deadline_ms);

/* Take over a connected socket. */
void client_stream_attach(struct client_stream *s, int fd);

/* Close; allowed any number of times. */
void client_stream_close(struct client_stream *s);

/* Before a request: nothing may have come in unasked. DDP_ERR_CORRUPT: something has, the replies are out of
 * step. DDP_ERR_CLOSED: the peer has closed. */
ddp_status client_stream_check_quiet(struct client_stream *s, struct ddp_err *err);

/* Send all of `bytes`. */
ddp_status client_stream_send(struct client_stream *s, struct slice bytes, uint64_t deadline_ms,
                              struct ddp_err *err);

/* Read exactly `len` bytes. On DDP_ERR_TIMEOUT some of them may be lost, but none of them if `len` is 1. */
ddp_status client_stream_read(struct client_stream *s, void *to, size_t len, uint64_t deadline_ms,
                              struct ddp_err *err);

#endif

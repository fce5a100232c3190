/* auth_peer.h -- a client that has the secret of a store, and functions that attack AUTH with the client's messages.
 * The test provides connect(), and so chooses the host of the client.
 *
 * The job is "demo". Every expectation has a deadline of PEER_DEADLINE_MS. */
#ifndef TESTS_LIB_AUTH_PEER_H
#define TESTS_LIB_AUTH_PEER_H

#include "auth/auth.h"
#include "base/buf.h"
#include "store/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* The store that the functions below use. Set `auth_peer` first. */
extern struct auth_peer {
    int (*connect)(void); /* connects and exchanges the greeting of dialect C */
    const struct secret *secret;
} auth_peer;

struct client {
    int fd;
    struct auth auth;
    uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
    struct buf sent; /* all bytes after the greeting */
};

/* Send a request. If `tagged` is true, append the tag that authenticates the request. */
void peer_send_frame(struct client *c, enum op_id op, struct slice bytes, bool tagged);

/* Read a blob. Return its length, or -1 if the store closes the connection. */
int64_t peer_read_blob(int fd, uint8_t *bytes, size_t room);

/* Expect that the store closes the connection without another byte. */
void peer_expect_closed(struct client *c, const char *what);

/* Connect, and compute the first message of AUTH without sending the message. */
void peer_greet(struct client *c, enum auth_role role);
void peer_authenticate(struct client *c, enum auth_role role);
void peer_identify(struct client *c, const char *role);
void peer_expect_welcome(struct client *c);

/* Call the store, skip its push messages, and return the answer. */
const char *peer_call(struct client *c, const char *json);

/* Join the job as one of `nodes` nodes. */
void peer_join(struct client *c, int node_rank, int nodes);
void peer_end(struct client *c);

/* Expect that `n` nodes are members of the job. */
void peer_expect_nodes(int n);

/* Send the store's own proof back to the store, in place of a client's proof. In a second connection, send the store's
 * whole answer back. */
void attack_with_stores_messages(void);

/* Send a frame of the store back to the store. The tag of this frame is for the other direction. */
void attack_with_stores_frames(void);

/* Authenticate as an operator, and try to become an agent. */
void attack_as_operator(void);

/* Authenticate as an agent that is not a member of the job. Send reports about the job's ranks, and join as the node
 * `taken`, which is running. */
void attack_with_reports(int taken);

/* Join again and again, each time with one wrong bit in one message. */
void attack_with_wrong_bits(void);

#endif

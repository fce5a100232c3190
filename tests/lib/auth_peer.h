/* auth_peer.h -- a client that has a store's secret, and attacks with the client's messages. The job is "demo".
 *
 * The test provides connect(), which chooses the client's host. Every expectation has a deadline of
 * PEER_DEADLINE_MS. */
#ifndef TESTS_LIB_AUTH_PEER_H
#define TESTS_LIB_AUTH_PEER_H

#include "auth/auth.h"
#include "base/buf.h"
#include "store/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* The store that is used. Set `auth_peer` first. */
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

/* Send a request, with its authentication tag if `tagged`. */
void peer_send_frame(struct client *c, enum op_id op, struct slice bytes, bool tagged);

/* Read a blob. Return its length, or -1 after a close. */
int64_t peer_read_blob(int fd, uint8_t *bytes, size_t room);

/* Expect that the store closes the connection without a byte. */
void peer_expect_closed(struct client *c, const char *what);

/* Connect, and compute the first message of AUTH without sending it. */
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

/* Send the store's own proof back, then in a second connection its whole answer. */
void attack_with_stores_messages(void);

/* Send a frame of the store back. Its tag is for the other direction. */
void attack_with_stores_frames(void);

/* Authenticate as an operator, and try to become an agent. */
void attack_as_operator(void);

/* Authenticate as an agent outside of the job. Send reports about its ranks, and join as the running node `taken`. */
void attack_with_reports(int taken);

/* Join repeatedly, with one wrong bit in one message. */
void attack_with_wrong_bits(void);

#endif

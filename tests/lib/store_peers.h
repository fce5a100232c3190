/* store_peers.h -- both ends of a connection to the store: the real server, clients that check each byte, and wrong
 * servers.
 *
 * serve() starts a server inside the test, on a free port of 127.0.0.1. serve_end() asserts that its loop is empty. */
#ifndef STORE_PEERS_H
#define STORE_PEERS_H

#include "base/buf.h"
#include "server/server.h"

#include <stdbool.h>
#include <stdint.h>

/* Start (.init) or stop (.fini) a server. */
void serve(void);
void serve_end(void);

/* Return the port of the running server. */
int served_port(void);
/* Start a server with `options`. */
void serve_with(const struct store_server_options *options);

/* Seal a secret with MUNGE, and wait for the result. */
struct secret;
ddp_status peer_seal(const struct secret *secret, char *credential, struct ddp_err *err);

/* --- peer ------------------------------------------------------------------------------------------------- */

/* A client of the store over a real socket, which checks each byte.
 *
 * Bytes are hex text with optional blanks. Every expectation has a deadline of PEER_DEADLINE_MS. */

enum { PEER_DEADLINE_MS = 30000 };

/* Greeting of dialect C (VALIDATE, PING), and the answer. */
#define PEER_GREETING        "00 cef7853c 0d c6100000"
#define PEER_GREETING_ANSWER "c6100000"

/* Connect to 127.0.0.1 with TCP_NODELAY, or fail the test. The caller closes the socket. */
int peer_connect(int port);

/* Connect, and exchange the greeting of dialect C. */
int peer_connect_c(int port);

/* Send all bytes; peer_send_cut in segments of `step` bytes. Return false if the server has closed. */
bool peer_send(int fd, struct slice bytes);
bool peer_send_hex(int fd, const char *hex);
bool peer_send_cut(int fd, const char *hex, size_t step);

/* Expect exactly these bytes next. */
#define peer_expect(fd, hex) peer_expect_at(fd, hex, __FILE__, __LINE__)
void peer_expect_at(int fd, const char *hex, const char *file, int line);

/* Expect that no byte has arrived. Then send a request, and expect no byte before its answer. `dialect` is 'A' or
 * 'C'. */
#define peer_expect_silence(fd, dialect) peer_expect_silence_at(fd, dialect, __FILE__, __LINE__)
void peer_expect_silence_at(int fd, char dialect, const char *file, int line);

/* Expect a FIN, not a reset, after any bytes. Close `fd`. */
#define peer_expect_end(fd) peer_expect_end_at(fd, __FILE__, __LINE__)
void peer_expect_end_at(int fd, const char *file, int line);

/* Send requests of dialect C. `key` is unchanged. */
bool peer_set(int fd, const char *key, struct slice value);
int64_t peer_add(int fd, const char *key, int64_t delta);
void peer_wait(int fd, const char *key); /* only sends the request */

/* Expect that the server accepts a new client. */
#define peer_expect_service(port) peer_expect_service_at(port, __FILE__, __LINE__)
void peer_expect_service_at(int port, const char *file, int line);

/* --- fake store ------------------------------------------------------------------------------------------- */

/* A peer that follows a script.
 *
 *     struct fake_store *fake = fake_store_start((const char *[]){ "< 00 cef7853c 0d ?? ?? ?? ?? > @", NULL });
 *     ... connect to fake_store_port(fake) ...
 *     cr_assert_null(fake_store_stop(fake));
 *
 * Each connection has a script, in order; the last is for all further ones. Words of a script:
 *
 *     <       expect the following bytes: two hex digits for each (blanks are ignored), or ?? for any byte
 *     >       send the following bytes: hex digits, @ (the last 4 bytes that matched ??), or text after a '
 *     blob    (after <) any blob: its length and its bytes
 *     slowly  from here on each byte is sent in a separate segment
 *     hangup  close at once
 *
 * Then the connection stays open until the client closes it. */

struct fake_store;

/* Serve on a free port of 127.0.0.1. `scripts` ends with NULL, and stays valid until fake_store_stop. */
struct fake_store *fake_store_start(const char *const *scripts);

int fake_store_port(const struct fake_store *fake);

/* Return the number of connections so far. */
int fake_store_connections(const struct fake_store *fake);

/* Stop and free the fake store. Return the first difference from the script, or NULL, valid until the next call. */
const char *fake_store_stop(struct fake_store *fake);

/* Bind a port of 127.0.0.1 without listening, and return the socket, which the caller closes. */
int fake_port_reserve(int *port);

/* --- rude ------------------------------------------------------------------------------------------------- */

/* Servers that are no stores, each on a free port of 127.0.0.1 with a thread. */

enum rude_kind {
    RUDE_SILENT, /* accepts connections and sends nothing */
    RUDE_CLOSER, /* accepts connections and closes them */
    RUDE_HTTP,
    RUDE_TLS,
    RUDE_SSH,
    RUDE_TORCH, /* greets like PyTorch's store, and closes at an unknown request */
    RUDE_OTHER
};

/* Start a server that lives until the test ends; return its port. */
int rude_start(enum rude_kind kind);

/* Return a port of 127.0.0.1 without a listener. */
int rude_closed_port(void);

/* Open a listener whose queue is full. */
int rude_full_port(void);

/* Run the rest of this test in a new network or mount namespace, or skip the test. */
void rude_own_network(void);
void rude_own_mounts(void);

/* Run `ip`, or skip the test if it fails. */
void rude_ip(const char *arguments);

/* Replace a file in this mount namespace. */
void rude_replace(const char *path, const char *text);

#endif

/* store_peers.h -- both ends of a connection to the store: the real server, clients that check each byte, and servers
 * that misbehave or are not stores.
 *
 * serve() starts a store server inside the test, on a free port of 127.0.0.1. Criterion runs every test in its own
 * process, so there is only one server. serve_end() asserts that the server's loop is empty. */
#ifndef STORE_PEERS_H
#define STORE_PEERS_H

#include "base/buf.h"
#include "server/server.h"

#include <stdbool.h>
#include <stdint.h>

/* Start and stop a server, as .init and .fini of a test. */
void serve(void);
void serve_end(void);

/* Return the port of the running server. */
int served_port(void);
/* Start a server as serve() does, but with `options`. */
void serve_with(const struct store_server_options *options);

/* Seal a secret with MUNGE, and wait for the result. */
struct secret;
ddp_status peer_seal(const struct secret *secret, char *credential, struct ddp_err *err);

/* --- peer ------------------------------------------------------------------------------------------------- */

/* A client of the store over a real socket, which checks each byte.
 *
 * Bytes are hex text with optional blanks. Every expectation has a deadline of PEER_DEADLINE_MS. */

enum { PEER_DEADLINE_MS = 30000 };

/* The greeting of a dialect C client (VALIDATE, PING), and the store's answer, as hex digits. */
#define PEER_GREETING        "00 cef7853c 0d c6100000"
#define PEER_GREETING_ANSWER "c6100000"

/* Connect to 127.0.0.1 with TCP_NODELAY and return the socket, which the caller closes. Fail the test if there is no
 * connection. */
int peer_connect(int port);

/* Connect, and exchange the greeting of dialect C. */
int peer_connect_c(int port);

/* Send all bytes. peer_send_cut sends pieces of `step` bytes, each in a separate segment. Return false if the server
 * has closed the connection. */
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

/* Expect that the server closes the connection with FIN (a reset fails the test). Ignore earlier bytes, and close
 * `fd`. */
#define peer_expect_end(fd) peer_expect_end_at(fd, __FILE__, __LINE__)
void peer_expect_end_at(int fd, const char *file, int line);

/* Send requests of dialect C on a connection after its handshake. No prefix is added to `key`. */
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
 * There is one script for each connection, in order. The last script serves all further connections. Words of a
 * script:
 *
 *     <       expect the following bytes: two hex digits for each (blanks are ignored), or ?? for any byte
 *     >       send the following bytes: hex digits, @ (the last 4 bytes that matched ??), or text after a '
 *     blob    (after <) any blob: its length and its bytes
 *     slowly  from here on each byte is sent in a separate segment
 *     hangup  close at once
 *
 * At the end of its script a connection stays open and silent until the client closes the connection. */

struct fake_store;

/* Serve on a free port of 127.0.0.1, on a thread. `scripts` ends with NULL. The list and its texts must stay valid
 * until fake_store_stop. */
struct fake_store *fake_store_start(const char *const *scripts);

int fake_store_port(const struct fake_store *fake);

/* Return the number of connections so far. */
int fake_store_connections(const struct fake_store *fake);

/* Stop and free the fake store. Return the first difference between the received bytes and the script, or NULL. The
 * text is valid until the next call. */
const char *fake_store_stop(struct fake_store *fake);

/* Bind a port of 127.0.0.1 without listening, so that connections are refused. Return the socket, which the caller
 * closes. */
int fake_port_reserve(int *port);

/* --- rude ------------------------------------------------------------------------------------------------- */

/* Servers that are no stores, each on a free port of 127.0.0.1 with a thread. */

enum rude_kind {
    RUDE_SILENT, /* accepts connections and sends nothing */
    RUDE_CLOSER, /* accepts connections and closes them */
    RUDE_HTTP,
    RUDE_TLS,
    RUDE_SSH,
    RUDE_TORCH, /* answers the greeting like PyTorch's store, and closes the connection at an unknown request */
    RUDE_OTHER
};

/* Start a server and return its port. The thread lives until the test's process ends. */
int rude_start(enum rude_kind kind);

/* Return a port of 127.0.0.1 without a listener. */
int rude_closed_port(void);

/* Open a listener that accepts no further connection, because its queue is full. */
int rude_full_port(void);

/* Run the rest of this test in a new network namespace (rude_own_network) or in a new mount namespace
 * (rude_own_mounts). Skip the test if the kernel does not allow a new namespace. */
void rude_own_network(void);
void rude_own_mounts(void);

/* Run `ip` with `arguments`. Skip the test if the command fails. */
void rude_ip(const char *arguments);

/* Replace a file by `text`, in this mount namespace. */
void rude_replace(const char *path, const char *text);

#endif

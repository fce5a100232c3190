/* peer.h -- a client of the store over a real socket, for tests that want to see each byte.
 *
 * Bytes are written as hex text, blanks ignored. Every expectation has a deadline of PEER_DEADLINE_MS and fails the
 * test at the line it stands in. */
#ifndef TESTS_LIB_PEER_H
#define TESTS_LIB_PEER_H

#include "base/buf.h"

#include <stdint.h>

enum { PEER_DEADLINE_MS = 30000 };

/* Bytes of the greeting of a dialect C client (VALIDATE, PING), and its answer. */
#define PEER_GREETING        "00 cef7853c 0d c6100000"
#define PEER_GREETING_ANSWER "c6100000"

/* Connected to 127.0.0.1, TCP_NODELAY; fails the test otherwise. Close it with close(2). */
int peer_connect(int port);

/* The same, and greeted in dialect C. */
int peer_connect_c(int port);

/* Send everything (peer_send_cut: in pieces of `step` bytes, one segment each). False when the server has closed. */
bool peer_send(int fd, struct slice bytes);
bool peer_send_hex(int fd, const char *hex);
bool peer_send_cut(int fd, const char *hex, size_t step);

/* Exactly these bytes come next. */
#define peer_expect(fd, hex) peer_expect_at(fd, hex, __FILE__, __LINE__)
void peer_expect_at(int fd, const char *hex, const char *file, int line);

/* Nothing is there to read, and nothing comes before the answer to a request that is sent now. `dialect` 'A' or 'C'. */
#define peer_expect_silence(fd, dialect) peer_expect_silence_at(fd, dialect, __FILE__, __LINE__)
void peer_expect_silence_at(int fd, char dialect, const char *file, int line);

/* The server closes: with FIN (a reset fails the test), what comes before it is thrown away. Closes `fd`. */
#define peer_expect_end(fd) peer_expect_end_at(fd, __FILE__, __LINE__)
void peer_expect_end_at(int fd, const char *file, int line);

/* Requests of dialect C on a greeted connection; `key` is used as it is. */
bool peer_set(int fd, const char *key, struct slice value);
int64_t peer_add(int fd, const char *key, int64_t delta);
void peer_wait(int fd, const char *key); /* sends only */

/* Is the server there for a new client? */
#define peer_expect_service(port) peer_expect_service_at(port, __FILE__, __LINE__)
void peer_expect_service_at(int port, const char *file, int line);

#endif

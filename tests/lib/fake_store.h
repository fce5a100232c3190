/* fake_store.h -- a peer that says exactly what a test tells it to.
 *
 *     struct fake_store *fake = fake_store_start((const char *[]){ "< 00 cef7853c 0d ?? ?? ?? ?? > @", NULL });
 *     ... connect to fake_store_port(fake) ...
 *     cr_assert_null(fake_store_stop(fake));
 *
 * There is one script for each connection, in order; the last one serves all further connections. Words of a
 * script:
 *
 *     <       what follows is expected, byte by byte: two hex digits (blanks are free), or ?? for any byte
 *     >       what follows is sent: hex digits, @ (the last 4 bytes that met ??), or a 'text without blanks
 *     blob    (behind <) any blob, a length and its bytes
 *     slowly  from here on each byte is sent in a segment of its own
 *     hangup  close at once
 *
 * At the end of its script a connection stays open, silent, until the client closes it. */
#ifndef TESTS_LIB_FAKE_STORE_H
#define TESTS_LIB_FAKE_STORE_H

struct fake_store;

/* Serve on a free port of 127.0.0.1, on a thread. `scripts` ends with NULL; the texts are borrowed until the
 * stop. */
struct fake_store *fake_store_start(const char *const *scripts);

int fake_store_port(const struct fake_store *fake);

/* How many connections have come so far. */
int fake_store_connections(const struct fake_store *fake);

/* Stop and free. Returns what the clients said against the script, NULL if nothing; valid until the next
 * stop. */
const char *fake_store_stop(struct fake_store *fake);

/* A port of 127.0.0.1 that is bound but not listened on: connections are refused. Returns the socket; close
 * it. */
int fake_port_reserve(int *port);

#endif

/* Replies that do not fit into the socket are sent later, in order. The connection copies a reply, or holds a reference
 * to the block that contains it. With a reference, the whole block counts as queued. */
#include "server/conn.h"
#include "server/listen.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 8 << 20 };

static uv_loop_t loop;
static char input[CONN_READ_BYTES];
static struct conn_host host;
static struct conn conn;
static int peer;
static struct shared *block;
static bool is_closed;

static void ignore_bytes(struct conn *c, struct slice bytes)
{
    (void)c;
    (void)bytes;
}

static void ignore_end(struct conn *c, const char *why)
{
    (void)c;
    (void)why;
}

static void ignore_drained(struct conn *c)
{
    (void)c;
}

static void note_closed(struct conn *c)
{
    (void)c;
    is_closed = true;
}

/* Return byte `i` of a sequence that repeats after 251 bytes. The sizes of buffers are not multiples of 251, so the
 * test detects bytes from a wrong position. */
static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i % 251);
}

static void make(void)
{
    int ends[2];
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer = ends[1];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    host = (struct conn_host){ .loop = &loop,
                               .max_queue_bytes = 8 * BLOCK,
                               .max_queued_bytes = 8 * BLOCK,
                               .on_bytes = ignore_bytes,
                               .on_end = ignore_end,
                               .on_drained = ignore_drained,
                               .on_closed = note_closed,
                               .read_buffer = input };
    cr_assert(conn_open(&conn, &host, ends[0]));
    block = shared_resize(NULL, BLOCK, 0);
    for (size_t i = 0; i < BLOCK; i++)
        block->bytes[i] = byte_at(i);
}

static void done(void)
{
    conn_abort(&conn);
    while (!is_closed)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(host.queued_bytes, 0);
    cr_expect_eq(block->holders, 1);
    shared_release(block);
    close(peer);
    cr_expect_eq(uv_loop_close(&loop), 0);
}

TestSuite(conn, .init = make, .fini = done, .timeout = 60);

static void expect_sent(size_t from, size_t len)
{
    cr_expect_eq(conn_send(&conn, slice_of(block->bytes + from, len), block), CONN_SENT);
}

/* Expect that the next `len` bytes for the peer are the bytes of the block from offset `from` on. */
static void expect_arrive(size_t from, size_t len)
{
    static uint8_t got[1 << 16];
    for (size_t done = 0; done < len;) {
        const size_t want = len - done < sizeof(got) ? len - done : sizeof(got);
        const ssize_t n = recv(peer, got, want, MSG_DONTWAIT);
        if (n <= 0)
            uv_run(&loop, UV_RUN_ONCE);
        for (ssize_t i = 0; i < n; i++, done++)
            cr_assert_eq(got[i], byte_at(from + done), "byte %zu of %zu", done, len);
    }
}

Test(conn, a_large_part_of_a_block_is_held_and_counts_as_the_whole)
{
    expect_sent(BLOCK / 4, BLOCK / 2 + BLOCK / 4);
    cr_expect_eq(block->holders, 2);
    cr_expect_eq(host.queued_bytes, BLOCK);
    expect_arrive(BLOCK / 4, BLOCK / 2 + BLOCK / 4);
}

Test(conn, a_small_part_of_a_block_is_copied)
{
    expect_sent(0, BLOCK / 3);
    cr_expect_eq(block->holders, 1);
    cr_expect_leq(host.queued_bytes, BLOCK / 3);
    expect_arrive(0, BLOCK / 3);
}

Test(conn, a_block_that_does_not_fit_is_copied_if_its_part_does)
{
    host.max_queued_bytes = BLOCK - 1;
    expect_sent(0, BLOCK - 2);
    cr_expect_eq(block->holders, 1);
    cr_expect_leq(host.queued_bytes, host.max_queued_bytes);
    cr_expect_eq(conn_send(&conn, slice_of(block->bytes, BLOCK), block), CONN_NO_ROOM);
}

Test(conn, held_and_copied_replies_arrive_in_order)
{
    static const struct {
        size_t from, len;
    } parts[] = { { 0, BLOCK },     { 7, 100 }, { 9, 1000 },     { 1, BLOCK - 1 },
                  { 3, BLOCK / 4 }, { 5, 9 },   { 2, BLOCK / 2 } };
    enum { PARTS = sizeof(parts) / sizeof(parts[0]) };
    for (int i = 0; i < PARTS; i++)
        expect_sent(parts[i].from, parts[i].len);
    cr_expect_eq(block->holders, 4);
    for (int i = 0; i < PARTS; i++)
        expect_arrive(parts[i].from, parts[i].len);
    while (conn_queued(&conn) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect_eq(block->holders, 1);
    cr_expect_eq(host.queued_bytes, 0);
}

/* Tests of the kernel's counter of connections that are dropped because the queue of the listening socket is full. */

enum { QUEUE = 2, CLIENTS = 8 };

static int listener;
static struct sockaddr_in at;

static void set_up(void)
{
    socklen_t len = sizeof(at);
    at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(listen(listener, QUEUE), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
}

static void tear_down(void)
{
    close(listener);
}

TestSuite(listen_queue, .init = set_up, .fini = tear_down);

Test(listen_queue, has_the_limit_that_was_asked_for)
{
    cr_assert_eq(listen_queue_limit(listener), QUEUE);
    cr_assert_eq(listen_queue_drops(listener), 0);
}

/* On loopback, the kernel counts a drop before connect() returns, so the test does not wait. */
Test(listen_queue, drops_are_counted_once_it_is_full)
{
    for (int i = 0; i < CLIENTS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(fd, (struct sockaddr *)&at, sizeof(at));
    }
    cr_assert_geq(listen_queue_drops(listener), CLIENTS - QUEUE - 1);
}

Test(listen_queue, what_is_no_listening_socket_has_none)
{
    cr_assert_eq(listen_queue_drops(-1), 0);
    cr_assert_eq(listen_queue_limit(-1), 0);
}

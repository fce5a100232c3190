/* peer.c -- see peer.h. */
#include "peer.h"

#include "base/clock.h"
#include "store/encode.h"
#include "sim_hub.h" /* hex_read, hex_write */

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int peer_connect(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int yes = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    int rc = connect(fd, (struct sockaddr *)&to, sizeof(to));
    cr_assert_eq(rc, 0, "connect to port %d: %s", port, strerror(errno));
    return fd;
}

int peer_connect_c(int port)
{
    int fd = peer_connect(port);
    peer_send_hex(fd, PEER_GREETING);
    peer_expect(fd, PEER_GREETING_ANSWER);
    return fd;
}

/* --- send ---------------------------------------------------------------------------------------------- */

bool peer_send(int fd, struct slice bytes)
{
    const char *at = bytes.data;
    size_t left = bytes.len;
    while (left > 0) {
        ssize_t n = send(fd, at, left, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

bool peer_send_cut(int fd, const char *hex, size_t step)
{
    struct buf bytes = { 0 };
    bool ok = true;
    hex_read(hex, &bytes);
    for (size_t at = 0; ok && at < bytes.len; at += step) {
        size_t left = bytes.len - at;
        ok = peer_send(fd, slice_of(bytes.data + at, left < step ? left : step));
    }
    buf_free(&bytes);
    return ok;
}

bool peer_send_hex(int fd, const char *hex)
{
    return peer_send_cut(fd, hex, SIZE_MAX / 2);
}

/* --- expect -------------------------------------------------------------------------------------------- */

/* Bytes read (0 = FIN), or -1 with errno; ETIMEDOUT when `until_ms` passes. */
static ssize_t read_some(int fd, void *to, size_t size, uint64_t until_ms)
{
    struct pollfd p = { fd, POLLIN, 0 };
    uint64_t now_ms = clock_ms();
    if (poll(&p, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0) > 0)
        return recv(fd, to, size, 0);
    errno = ETIMEDOUT;
    return -1;
}

/* Read `len` bytes more; says what went wrong, or NULL. */
static const char *read_all(int fd, struct buf *got, size_t len)
{
    uint64_t until_ms = clock_ms() + PEER_DEADLINE_MS;
    uint8_t *to = buf_reserve(got, len + 1);
    while (got->len < len) {
        ssize_t n = read_some(fd, to + got->len, len - got->len, until_ms);
        if (n == 0)
            return "the server has closed the connection";
        if (n < 0)
            return strerror(errno);
        got->len += (size_t)n;
    }
    return NULL;
}

void peer_expect_at(int fd, const char *hex, const char *file, int line)
{
    struct buf wanted = { 0 }, got = { 0 }, text = { 0 };
    hex_read(hex, &wanted);
    const char *trouble = read_all(fd, &got, wanted.len);
    hex_write(buf_slice(&got), &text);
    if (trouble != NULL || !slice_equal(buf_slice(&wanted), buf_slice(&got)))
        cr_assert_fail("%s:%d: expected %.200s, got %.*s (%s)", file, line, hex, (int)text.len,
                       text.len > 0 ? (char *)text.data : "", trouble != NULL ? trouble : "other bytes");
    buf_free(&wanted);
    buf_free(&got);
    buf_free(&text);
}

void peer_expect_silence_at(int fd, char dialect, const char *file, int line)
{
    char byte;
    cr_assert_lt(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), 0, "%s:%d: there is something to read", file,
                 line);
    peer_send_hex(fd, dialect == 'C' ? "0d 12345678" : "03 0300000000000000 2f7878 0000000000000000");
    peer_expect_at(fd, dialect == 'C' ? "12345678" : "0000000000000000", file, line);
}

void peer_expect_end_at(int fd, const char *file, int line)
{
    static char sink[256 * 1024];
    uint64_t until_ms = clock_ms() + PEER_DEADLINE_MS;
    ssize_t n;
    while ((n = read_some(fd, sink, sizeof(sink), until_ms)) > 0)
        continue;
    cr_assert_eq(n, 0, "%s:%d: expected the end, got: %s", file, line, strerror(errno));
    close(fd);
}

/* --- requests ------------------------------------------------------------------------------------------ */

static bool send_and_free(int fd, struct buf *request)
{
    bool ok = peer_send(fd, buf_slice(request));
    buf_free(request);
    return ok;
}

bool peer_set(int fd, const char *key, struct slice value)
{
    struct buf b = { 0 };
    put_u8(&b, 0x01);
    put_blob(&b, slice_str(key));
    put_blob(&b, value);
    return send_and_free(fd, &b);
}

int64_t peer_add(int fd, const char *key, int64_t delta)
{
    struct buf b = { 0 }, answer = { 0 };
    put_u8(&b, 0x04);
    put_blob(&b, slice_str(key));
    put_i64(&b, delta);
    send_and_free(fd, &b);
    const char *trouble = read_all(fd, &answer, 8);
    cr_assert_null(trouble, "ADD %s: %s", key, trouble);
    int64_t sum = (int64_t)get_u64(answer.data);
    buf_free(&answer);
    return sum;
}

void peer_wait(int fd, const char *key)
{
    struct buf b = { 0 };
    put_u8(&b, 0x06);
    put_u64(&b, 1);
    put_blob(&b, slice_str(key));
    send_and_free(fd, &b);
}

void peer_expect_service_at(int port, const char *file, int line)
{
    int fd = peer_connect(port);
    peer_send_hex(fd, PEER_GREETING);
    peer_expect_at(fd, PEER_GREETING_ANSWER, file, line);
    close(fd);
}

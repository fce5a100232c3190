/* farm.c -- see farm.h. This program uses one epoll and no thread, because the measured time must be the time of the
 * store and not the time of this program. */
#include "farm.h"

#include "timed.h"

#include "store/encode.h"
#include "store/ops.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 4096, READ_BYTES = 256 << 10, NAP_US = 500 };

static bool trouble(struct farm *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (f->trouble[0] == '\0')
        vsnprintf(f->trouble, sizeof(f->trouble), format, args);
    va_end(args);
    return false;
}

static void must(bool ok)
{
    if (!ok)
        abort(); /* out of memory: there is nothing to measure */
}

void farm_put_greeting(struct buf *out)
{
    must(append_u8(out, 0) && append_u32(out, 0x3c85f7ce));
}

void farm_put_identify(struct buf *out, const char *json)
{
    must(append_u8(out, (uint8_t)op_table[OP_IDENTIFY].code[DIALECT_C]) && append_blob(out, slice_str(json)));
}

void farm_put_control(struct buf *out, const char *format, ...)
{
    char json[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(json, sizeof(json), format, args);
    va_end(args);
    must(append_u8(out, (uint8_t)op_table[OP_CONTROL].code[DIALECT_C]) && append_blob(out, slice_str(json)));
}

void farm_put_barrier(struct buf *out, const char *name, int64_t timeout_ms)
{
    must(append_u8(out, (uint8_t)op_table[OP_BARRIER_NAMED].code[DIALECT_C]) &&
         append_blob(out, slice_str(name)) && append_i64(out, timeout_ms) && append_blob(out, slice_str("")));
}

bool farm_say(struct farm *f, uint32_t i, struct slice bytes)
{
    ssize_t n = send(f->member[i].fd, bytes.data, bytes.len, MSG_NOSIGNAL);
    return n == (ssize_t)bytes.len || trouble(f, "member %u cannot send: %s", i, strerror(errno));
}

static const struct {
    const char *begins;
    enum farm_kind kind;
} kinds[] = {
    { "{\"push\":\"round\"", FARM_ROUND },
    { "{\"push\":\"stop\"", FARM_STOP },
    { "{\"push\":\"verdict\"", FARM_VERDICT },
    { "{\"push\"", FARM_OTHER },
};

static enum farm_kind kind_of(const char *text)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(text, kinds[i].begins, strlen(kinds[i].begins)) == 0)
            return kinds[i].kind;
    return strstr(text, "\"ok\":true") != NULL ? FARM_OK : FARM_REFUSED;
}

static void count(struct farm *f, enum farm_kind kind)
{
    f->count[kind]++;
    f->last_ms[kind] = timed_now();
}

static void note_text(struct farm *f, struct farm_member *m)
{
    m->text[m->n_text] = '\0';
    const enum farm_kind kind = kind_of(m->text);
    const char *first = kind == FARM_ROUND ? strstr(m->text, "\"first_rank\":") : NULL;
    if (first != NULL)
        m->rank = (uint32_t)strtoul(first + strlen("\"first_rank\":"), NULL, 10);
    if (kind == FARM_REFUSED)
        trouble(f, "refused: %.200s", m->text);
    count(f, kind);
}

/* Count a complete message: the answer to IDENTIFY or BARRIER_NAMED, or a JSON object. */
static void note(struct farm *f, struct farm_member *m)
{
    if (!m->identified) {
        m->identified = true;
        if (m->head[0] != 0)
            trouble(f, "not let in: %.*s", m->n_text, m->text);
    } else if (f->of_workers) {
        if (m->head[0] != 0)
            trouble(f, "the barrier failed: %.*s", m->n_text, m->text);
        count(f, FARM_BARRIER);
    } else {
        note_text(f, m);
    }
    m->have = 0;
    m->n_text = 0;
}

/* Return the size of a message's head: 8 bytes with the length of the rest. In an answer to IDENTIFY or BARRIER_NAMED,
 * another byte comes before these 8 bytes. */
static uint8_t head_bytes(const struct farm *f, const struct farm_member *m)
{
    return !m->identified || f->of_workers ? 9 : 8;
}

static size_t parse_head(struct farm *f, struct farm_member *m, const uint8_t *bytes, size_t n)
{
    const size_t want = head_bytes(f, m), more = want - m->have < n ? want - m->have : n;
    memcpy(m->head + m->have, bytes, more);
    m->have = (uint8_t)(m->have + more);
    if (m->have == want && (m->left = get_u64(m->head + want - 8)) == 0)
        note(f, m);
    return more;
}

static size_t take_body(struct farm *f, struct farm_member *m, const uint8_t *bytes, size_t n)
{
    const size_t more = m->left < n ? (size_t)m->left : n, room = sizeof(m->text) - 1 - m->n_text;
    const size_t kept = more < room ? more : room;
    memcpy(m->text + m->n_text, bytes, kept);
    m->n_text = (uint16_t)(m->n_text + kept);
    m->left -= more;
    if (m->left == 0)
        note(f, m);
    return more;
}

static bool read_member(struct farm *f, struct farm_member *m)
{
    static uint8_t bytes[READ_BYTES];
    ssize_t n = recv(m->fd, bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0)
        return trouble(f, "the store has closed a connection: %s", n == 0 ? "end of file" : strerror(errno));
    for (size_t at = 0; at < (size_t)n;)
        at += (m->have < head_bytes(f, m) ? parse_head : take_body)(f, m, bytes + at, (size_t)n - at);
    return f->trouble[0] == '\0';
}

/* Handle the events of one poll. Return true if bytes arrived. */
static bool turn(struct farm *f, int limit_ms, farm_words hello, void *user)
{
    static struct epoll_event events[EVENTS];
    const int n = epoll_wait(f->epoll, events, EVENTS, limit_ms);
    for (int e = 0; e < n; e++) {
        const uint32_t i = events[e].data.u32;
        struct farm_member *m = &f->member[i];
        if (m->connected) {
            read_member(f, m);
            continue;
        }
        struct buf words = { 0 };
        struct epoll_event in = { .events = EPOLLIN, .data.u32 = i };
        m->connected = true;
        f->connected++;
        epoll_ctl(f->epoll, EPOLL_CTL_MOD, m->fd, &in);
        hello(user, i, &words);
        farm_say(f, i, buf_slice(&words));
        buf_free(&words);
    }
    return n > 0;
}

/* Wait for messages. Sleep NAP_US before each read, so that one read gets many messages. Otherwise each message would
 * wake this process, which shares the processors with the store, and would slow down the store. Real agents have other
 * processors. The sleep adds at most NAP_US to the measured time. */
bool farm_wait(struct farm *f, enum farm_kind kind, uint32_t wanted, double limit_ms)
{
    const double until = timed_now() + limit_ms;
    while (f->count[kind] < wanted && f->trouble[0] == '\0') {
        const double left = until - timed_now();
        usleep(NAP_US);
        if (left <= 0 || !turn(f, (int)left + 1, NULL, NULL))
            return trouble(f, "%u of %u messages of kind %d came within %.0f ms", f->count[kind], wanted,
                           (int)kind, limit_ms);
    }
    return f->trouble[0] == '\0';
}

void farm_forget(struct farm *f)
{
    memset(f->count, 0, sizeof(f->count));
}

/* Begin to connect. With IP_BIND_ADDRESS_NO_PORT, bind(2) sets only the local address. connect(2) then chooses the
 * local port. At this point both addresses are known, so the same port can be used again with another local address. */
static bool start_connecting(struct farm *f, uint32_t i, uint32_t number)
{
    struct farm_member *m = &f->member[i];
    const int on = 1;
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)f->port) };
    const struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f010001 + number) };
    struct epoll_event out = { .events = EPOLLOUT, .data.u32 = i };
    m->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->fd < 0)
        return trouble(f, "no socket for member %u: %s", i, strerror(errno));
    setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(m->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (bind(m->fd, (const struct sockaddr *)&from, sizeof(from)) != 0 ||
        (connect(m->fd, (const struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS))
        return trouble(f, "member %u cannot connect: %s", i, strerror(errno));
    return epoll_ctl(f->epoll, EPOLL_CTL_ADD, m->fd, &out) == 0 || trouble(f, "epoll: %s", strerror(errno));
}

bool farm_connect(struct farm *f, uint32_t at_once, farm_words hello, void *user)
{
    uint32_t started = 0;
    while (f->connected < f->n && f->trouble[0] == '\0') {
        for (; started < f->n && started - f->connected < at_once; started++)
            if (!start_connecting(f, started, f->member[started].rank))
                return false;
        if (!turn(f, 20000, hello, user))
            return trouble(f, "%u of %u connected, and nothing more for 20 s", f->connected, f->n);
    }
    return f->trouble[0] == '\0';
}

bool farm_open(struct farm *f, int port, uint32_t first, uint32_t n, bool of_workers)
{
    *f = (struct farm){
        .epoll = epoll_create1(EPOLL_CLOEXEC), .port = port, .of_workers = of_workers, .n = n
    };
    f->member = calloc(n, sizeof(*f->member));
    if (f->epoll < 0 || f->member == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++)
        f->member[i] = (struct farm_member){ .fd = -1, .rank = first + i };
    return true;
}

void farm_close(struct farm *f)
{
    for (uint32_t i = 0; f->member != NULL && i < f->n; i++)
        if (f->member[i].fd >= 0)
            close(f->member[i].fd);
    close(f->epoll);
    free(f->member);
}

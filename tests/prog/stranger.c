/* stranger.c -- a client that is not part of the job: sends bytes to a store and prints the reply.
 *
 *     stranger HOST PORT HEX          prints "closed after N bytes: HEX", or "open after N bytes: HEX" after 8 s
 *     stranger HOST PORT half N       begins authentications until killed, and keeps the latest N connections open;
 *                                     prints "half done" after N
 *     stranger HOST PORT hold N       keeps N connections with a GET open until killed; prints "hold done" after N
 *     stranger HOST PORT many N       connects N times, then adds 1 to a key on each; prints "many done: SUM"
 *     stranger HOST PORT ATTACK N     attacks on N connections, OPEN_MAX at a time, until the store has closed each;
 *                                     prints "ATTACK done: N closed". The table `attacks` lists the attacks. */
#include "base/clock.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 8000, BYTES_MAX = 4096, HELLO = 5 + 9 + 34 };
enum { OPEN_MAX = 200, CHUNK = 64 << 10, GREETING = 5, PAUSE_MS = 100, GIVE_UP_MS = 60000 };

static int dial(const char *host, const char *port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        printf("cannot connect: %s\n", strerror(errno));
        exit(1);
    }
    return fd;
}

static size_t read_hex(const char *hex, uint8_t *bytes)
{
    size_t n = 0;
    for (; hex[0] != '\0' && hex[1] != '\0' && n < BYTES_MAX; hex += 2)
        bytes[n++] = (uint8_t)strtoul((char[]){ hex[0], hex[1], '\0' }, NULL, 16);
    return n;
}

static int send_bytes(const char *host, const char *port, const char *hex)
{
    static uint8_t bytes[BYTES_MAX], got[BYTES_MAX];
    const uint64_t until_ms = clock_ms() + WAIT_MS;
    const int fd = dial(host, port);
    const size_t len = read_hex(hex, bytes);
    size_t n = 0;
    ssize_t more = -1;
    if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len && errno != EPIPE && errno != ECONNRESET)
        return 1;
    while (clock_ms() < until_ms && n < sizeof(got)) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (poll(&ready, 1, (int)(until_ms - clock_ms())) <= 0)
            continue;
        more = recv(fd, got + n, sizeof(got) - n, 0);
        if (more <= 0)
            break;
        n += (size_t)more;
    }
    printf("%s after %zu bytes: ", more == 0 || (more < 0 && clock_ms() < until_ms) ? "closed" : "open", n);
    for (size_t i = 0; i < n; i++)
        printf("%02x", got[i]);
    printf("\n");
    return 0;
}

/* Raise the limit of descriptors to the maximum. Return a new array for `count` descriptors; end the program if memory
 * is short. */
static int *many_fds(int count)
{
    struct rlimit files;
    int *fds = calloc((size_t)count, sizeof(*fds));
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (fds != NULL)
        return fds;
    printf("out of memory\n");
    exit(1);
}

_Noreturn static void begin_many(const char *host, const char *port, int count)
{
    static const uint8_t head[] = { 0, 0xce, 0xf7, 0x85, 0x3c, 0x83, 34, 0, 0, 0, 0, 0, 0, 0, 2, 1 };
    uint8_t hello[HELLO] = { 0 };
    int *kept = many_fds(count);
    memcpy(hello, head, sizeof(head));
    for (int i = 0;; i++) {
        int *slot = &kept[i % count];
        if (i >= count)
            close(*slot);
        *slot = dial(host, port);
        hello[sizeof(hello) - 1] = (uint8_t)i;
        (void)!send(*slot, hello, i % 2 == 0 ? sizeof(hello) : sizeof(head), MSG_NOSIGNAL);
        if (i == count)
            printf("half done\n");
        if (i >= count)
            usleep(1000);
    }
}

_Noreturn static void hold_many(const char *host, const char *port, int count)
{
    static const uint8_t greet_and_get[] = { 0, 0xce, 0xf7, 0x85, 0x3c, 3, 1, 0, 0, 0, 0, 0, 0, 0, 'k' };
    int *fds = many_fds(count);
    for (int i = 0; i < count; i++) {
        fds[i] = dial(host, port);
        (void)!send(fds[i], greet_and_get, sizeof(greet_and_get), MSG_NOSIGNAL);
    }
    printf("hold done\n");
    for (;;)
        pause();
}

static int add_on_many(const char *host, const char *port, int count)
{
    static const uint8_t greet_and_add[] = { 0,   0xce, 0xf7, 0x85, 0x3c,             /* VALIDATE */
                                             4,   2,    0,    0,    0,    0, 0, 0, 0, /* ADD */
                                             '/', 'n',  1,    0,    0,    0, 0, 0, 0, 0 };
    uint64_t sum = 0, most = 0;
    int *fds = many_fds(count);
    for (int i = 0; i < count; i++)
        fds[i] = dial(host, port);
    for (int i = 0; i < count; i++)
        if (send(fds[i], greet_and_add, sizeof(greet_and_add), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(greet_and_add))
            printf("connection %d: cannot send: %s\n", i, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (recv(fds[i], &sum, sizeof(sum), MSG_WAITALL) != (ssize_t)sizeof(sum))
            printf("connection %d: no answer: %s\n", i, strerror(errno));
        most = sum > most ? sum : most;
    }
    printf("many done: %llu\n", (unsigned long long)most);
    free(fds);
    return 0;
}

/* --- attacks ------------------------------------------------------------------------------------------------ */

/* Each make_* writes the next bytes of connection `i`, and returns their number. `n` counts the connection's earlier
 * calls. */

/* Make a SET of a new, large value. */
static size_t make_fill(int i, unsigned n, uint8_t *bytes)
{
    static const uint8_t set[] = { 1, 12, 0, 0, 0, 0, 0, 0, 0, 'e', 'v', 'i', 'l' };
    const uint32_t key[] = { htole32((uint32_t)i), htole32(n) };
    const uint64_t size = htole64(CHUNK - sizeof(set) - sizeof(key) - sizeof(size));
    memset(bytes, 'v', CHUNK);
    memcpy(bytes, set, sizeof(set));
    memcpy(bytes + sizeof(set), key, sizeof(key));
    memcpy(bytes + sizeof(set) + sizeof(key), &size, sizeof(size));
    return CHUNK;
}

/* Write byte `n` of an AUTH request or a SET request. Every third connection sends only four bytes. */
static size_t make_stall(int i, unsigned n, uint8_t *bytes)
{
    static const uint8_t set[] = { 1, 0, 0, 1 }, auth[] = { 0x83, 34, 0, 0, 0, 0, 0, 0, 0, 2 };
    const uint8_t *head = i % 2 == 0 ? auth : set;
    bytes[0] = n < (i % 2 == 0 ? sizeof(auth) : sizeof(set)) ? head[n] : 0;
    return i % 3 == 0 && n >= 4 ? 0 : 1;
}

/* Make PINGs, whose replies stay unread. */
static size_t make_unread(int i, unsigned n, uint8_t *bytes)
{
    static const uint8_t ping[] = { 0x0d, 1, 2, 3, 4 };
    (void)i, (void)n;
    for (size_t at = 0; at < 1000; at += sizeof(ping))
        memcpy(bytes + at, ping, sizeof(ping));
    return 1000;
}

/* Make a request with a length far above every limit. */
static size_t make_huge(int i, unsigned n, uint8_t *bytes)
{
    static const uint8_t ops[] = { 1, 3, 6, 10, 11, 0x80, 0x81, 0x82, 0x83 };
    static const uint64_t lengths[] = { 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7 };
    const uint64_t length = htole64(lengths[i % 5]);
    bytes[0] = ops[i % (int)sizeof(ops)];
    memcpy(bytes + 1, &length, sizeof(length));
    return n == 0 ? 1 + sizeof(length) : 0;
}

static size_t make_random(int i, unsigned n, uint8_t *bytes)
{
    (void)i, (void)n;
    for (size_t at = 0; at < 1000; at++)
        bytes[at] = (uint8_t)rand();
    return 1000;
}

static const struct attack {
    const char *name;
    size_t (*make)(int i, unsigned n, uint8_t *bytes);
    bool is_slow; /* call `make` only every PAUSE_MS */
    bool reads;   /* reads what the store sends */
} attacks[] = { { "fill", make_fill, false, true },
                { "stall", make_stall, true, true },
                { "unread", make_unread, false, false },
                { "huge", make_huge, true, true },
                { "random", make_random, true, true } };

struct target {
    int fd; /* -1 = not open */
    int i;
    unsigned n;
    size_t at, len;
    uint8_t bytes[CHUNK];
};

static void open_target(struct target *t, const char *host, const char *port, int i, const struct attack *a)
{
    static const uint8_t greeting[GREETING] = { 0, 0xce, 0xf7, 0x85, 0x3c };
    *t = (struct target){ .fd = dial(host, port), .i = i, .len = sizeof(greeting) };
    memcpy(t->bytes, greeting, sizeof(greeting));
    if (a->make == make_random && i % 2 == 0)
        t->len = 0;
}

/* Read replies if a->reads is true. Send the bytes that the socket accepts. Make new bytes only if `is_time` is true.
 * Return false if the store has closed the connection. */
static bool attack_target(struct target *t, const struct attack *a, bool is_time)
{
    struct pollfd state = { .fd = t->fd, .events = POLLRDHUP };
    uint8_t got[512];
    ssize_t more = 1;
    if (poll(&state, 1, 0) > 0 && state.revents != 0)
        return false;
    while (a->reads && (more = recv(t->fd, got, sizeof(got), MSG_DONTWAIT)) > 0)
        ;
    if (more == 0 || (more < 0 && errno != EAGAIN))
        return false;
    if (t->at == t->len && is_time) {
        t->len = a->make(t->i, t->n++, t->bytes);
        t->at = 0;
    }
    while (t->at < t->len) {
        more = send(t->fd, t->bytes + t->at, t->len - t->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more < 0)
            return errno == EAGAIN;
        t->at += (size_t)more;
    }
    return true;
}

static int attack_all(const struct attack *a, const char *host, const char *port, int count)
{
    static struct target targets[OPEN_MAX];
    const uint64_t until_ms = clock_ms() + GIVE_UP_MS;
    int opened = 0, closed = 0;
    for (int k = 0; k < OPEN_MAX; k++)
        targets[k].fd = -1;
    for (uint64_t next_ms = 0; closed < count && clock_ms() < until_ms;) {
        const bool is_time = !a->is_slow || clock_ms() >= next_ms;
        if (is_time)
            next_ms = clock_ms() + PAUSE_MS;
        for (int k = 0; k < OPEN_MAX; k++) {
            struct target *t = &targets[k];
            if (t->fd < 0 && opened < count)
                open_target(t, host, port, opened++, a);
            if (t->fd < 0 || attack_target(t, a, is_time))
                continue;
            close(t->fd);
            t->fd = -1;
            closed++;
        }
        poll(NULL, 0, 1);
    }
    printf("%s done: %d closed\n", a->name, closed);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 5 && strcmp(argv[3], "half") == 0)
        begin_many(argv[1], argv[2], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[3], "hold") == 0)
        hold_many(argv[1], argv[2], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[3], "many") == 0)
        return add_on_many(argv[1], argv[2], atoi(argv[4]));
    for (size_t i = 0; argc == 5 && i < sizeof(attacks) / sizeof(attacks[0]); i++)
        if (strcmp(argv[3], attacks[i].name) == 0)
            return attack_all(&attacks[i], argv[1], argv[2], atoi(argv[4]));
    return argc == 4 ? send_bytes(argv[1], argv[2], argv[3]) : 2;
}

/* stranger.c -- a client that is not part of the job: sends bytes to a store and prints what it gets.
 *
 *     stranger HOST PORT HEX          prints "closed after N bytes: HEX", or "open after N bytes: HEX" after 8 s
 *     stranger HOST PORT half N       begins authentications, without an end, until killed; prints "half done"
 *                                     after N
 *     stranger HOST PORT many N       connects N times, then adds 1 to a key on each; prints "many done: SUM" */
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 8000, BYTES_MAX = 4096, KEPT = 512, HELLO = 5 + 9 + 282 };

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
    if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
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

_Noreturn static void begin_many(const char *host, const char *port, int count)
{
    static const uint8_t head[] = { 0, 0xce, 0xf7, 0x85, 0x3c, 0x83, 26, 1, 0, 0, 0, 0, 0, 0, 1, 1 };
    uint8_t hello[HELLO] = { 0 };
    int kept[KEPT] = { 0 };
    memcpy(hello, head, sizeof(head));
    for (int i = 0;; i++) {
        int *slot = &kept[i % KEPT];
        if (i >= KEPT)
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

static int add_on_many(const char *host, const char *port, int count)
{
    static const uint8_t greet_and_add[] = { 0,   0xce, 0xf7, 0x85, 0x3c,             /* VALIDATE */
                                             4,   2,    0,    0,    0,    0, 0, 0, 0, /* ADD */
                                             '/', 'n',  1,    0,    0,    0, 0, 0, 0, 0 };
    uint64_t sum = 0, most = 0;
    int *fds = calloc((size_t)count, sizeof(*fds));
    for (int i = 0; fds != NULL && i < count; i++)
        fds[i] = dial(host, port);
    for (int i = 0; fds != NULL && i < count; i++)
        if (send(fds[i], greet_and_add, sizeof(greet_and_add), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(greet_and_add))
            printf("connection %d: cannot send: %s\n", i, strerror(errno));
    for (int i = 0; fds != NULL && i < count; i++) {
        if (recv(fds[i], &sum, sizeof(sum), MSG_WAITALL) != (ssize_t)sizeof(sum))
            printf("connection %d: no answer: %s\n", i, strerror(errno));
        most = sum > most ? sum : most;
    }
    printf("many done: %llu\n", (unsigned long long)most);
    free(fds);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 5 && strcmp(argv[3], "half") == 0)
        begin_many(argv[1], argv[2], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[3], "many") == 0)
        return add_on_many(argv[1], argv[2], atoi(argv[4]));
    return argc == 4 ? send_bytes(argv[1], argv[2], argv[3]) : 2;
}

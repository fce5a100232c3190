/* fake_store.c -- see fake_store.h. One thread; one connection at a time, the others wait in the backlog. */
#include "fake_store.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fake_store {
    const char *const *scripts;
    int listener, port;
    pthread_t thread;
    atomic_int connections;
    char complaint[256]; /* "" as long as all went by the script */
};

struct player {
    struct fake_store *fake;
    int fd;
    bool sends, slowly;
    uint8_t wild[4]; /* the last bytes that met ??, newest last */
};

static int listen_on_loopback(bool listening, int *port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&addr, len) != 0 || (listening && listen(fd, 16) != 0) ||
        getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        abort();
    *port = ntohs(addr.sin_port);
    return fd;
}

int fake_port_reserve(int *port)
{
    return listen_on_loopback(false, port);
}

static void complain(struct player *p, const char *what, unsigned got, unsigned expected)
{
    if (p->fake->complaint[0] == '\0')
        snprintf(p->fake->complaint, sizeof(p->fake->complaint), "connection %d: %s (%02x, expected %02x)",
                 p->fake->connections, what, got, expected);
}

static bool send_bytes(struct player *p, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    const size_t piece = p->slowly ? 1 : len;
    for (size_t at = 0; at < len; at += piece)
        if (send(p->fd, from + at, piece, MSG_NOSIGNAL) < 0)
            return false;
    return true;
}

/* One byte from the client against `word`: two hex digits or "??". */
static bool expect_byte(struct player *p, const char *word)
{
    uint8_t got;
    char hex[3] = { word[0], word[1], '\0' };
    unsigned expected = (unsigned)strtoul(hex, NULL, 16);
    if (recv(p->fd, &got, 1, 0) != 1) {
        complain(p, "the client stopped in the middle", 0, expected);
        return false;
    }
    if (*word == '?') {
        memmove(p->wild, p->wild + 1, sizeof(p->wild) - 1);
        p->wild[sizeof(p->wild) - 1] = got;
    } else if (got != expected) {
        complain(p, "the client said something else", got, expected);
        return false;
    }
    return true;
}

static bool play_hex(struct player *p, const char *word, size_t len)
{
    for (size_t i = 0; i + 1 < len; i += 2) {
        char hex[3] = { word[i], word[i + 1], '\0' };
        uint8_t byte = (uint8_t)strtoul(hex, NULL, 16);
        if (p->sends ? !send_bytes(p, &byte, 1) : !expect_byte(p, word + i))
            return false;
    }
    return true;
}

/* Any blob: a length, and that many bytes. */
static bool expect_blob(struct player *p)
{
    uint64_t len;
    uint8_t byte;
    if (recv(p->fd, &len, sizeof(len), MSG_WAITALL) != sizeof(len))
        return false;
    while (len > 0 && recv(p->fd, &byte, 1, 0) == 1)
        len--;
    return len == 0;
}

/* False: the connection is over. */
static bool play_word(struct player *p, const char *word, size_t len)
{
    if (*word == '<' || *word == '>')
        p->sends = *word == '>';
    else if (len == 6 && memcmp(word, "slowly", len) == 0)
        p->slowly = true;
    else if (len == 6 && memcmp(word, "hangup", len) == 0)
        return false;
    else if (len == 4 && memcmp(word, "blob", len) == 0)
        return expect_blob(p);
    else if (*word == '@')
        return send_bytes(p, p->wild, sizeof(p->wild));
    else if (*word == '\'')
        return send_bytes(p, word + 1, len - 1);
    else
        return play_hex(p, word, len);
    return true;
}

static void play(struct player *p, const char *script)
{
    bool going = true;
    while (going && *(script += strspn(script, " \n")) != '\0') {
        size_t len = strcspn(script, " \n");
        going = play_word(p, script, len);
        script += len;
    }
    uint8_t rest;
    if (going && recv(p->fd, &rest, 1, 0) == 1)
        complain(p, "the client went on after the end", rest, 0);
    close(p->fd);
}

static void *serve(void *arg)
{
    struct fake_store *fake = arg;
    const char *const *script = fake->scripts;
    for (int fd; (fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        const struct timeval patience = { .tv_sec = 20 };
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        fake->connections++;
        play(&(struct player){ .fake = fake, .fd = fd }, *script);
        if (script[1] != NULL)
            script++;
    }
    return NULL;
}

struct fake_store *fake_store_start(const char *const *scripts)
{
    struct fake_store *fake = calloc(1, sizeof(*fake));
    if (fake == NULL)
        abort();
    fake->scripts = scripts;
    fake->listener = listen_on_loopback(true, &fake->port);
    if (pthread_create(&fake->thread, NULL, serve, fake) != 0)
        abort();
    return fake;
}

int fake_store_port(const struct fake_store *fake)
{
    return fake->port;
}

int fake_store_connections(const struct fake_store *fake)
{
    return fake->connections;
}

const char *fake_store_stop(struct fake_store *fake)
{
    static char complaint[256];
    shutdown(fake->listener, SHUT_RDWR); /* ends accept */
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    memcpy(complaint, fake->complaint, sizeof(complaint));
    free(fake);
    return complaint[0] != '\0' ? complaint : NULL;
}

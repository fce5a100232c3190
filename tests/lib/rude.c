/* rude.c -- see rude.h. */
#include "rude.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct rude {
    enum rude_kind kind;
    int fd;
};

static int listen_on(int backlog, int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    cr_assert(backlog < 0 || listen(fd, backlog) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static const char *words_of(enum rude_kind kind)
{
    switch (kind) {
    case RUDE_HTTP:
        return "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    case RUDE_TLS:
        return "\x15\x03\x01\x02\x02\x28x";
    case RUDE_SSH:
        return "SSH-2.0-OpenSSH_9.2\r\n";
    case RUDE_OTHER:
        return "220 mail.example ESMTP\r\n";
    default:
        return "";
    }
}

/* The nonce stands behind VALIDATE, the magic and PING. */
static void answer(enum rude_kind kind, int fd)
{
    char in[256];
    const ssize_t n = kind == RUDE_SSH ? 0 : read(fd, in, sizeof(in));
    if (kind == RUDE_TORCH && n >= 10)
        send(fd, in + 6, 4, MSG_NOSIGNAL);
    else
        send(fd, words_of(kind), strlen(words_of(kind)), MSG_NOSIGNAL);
}

static void *serve_rudely(void *arg)
{
    struct rude *r = arg;
    for (;;) {
        const int fd = accept(r->fd, NULL, NULL);
        if (fd < 0 && errno != EINTR)
            break;
        if (r->kind == RUDE_SILENT)
            continue; /* kept open, and never looked at again */
        if (r->kind != RUDE_CLOSER)
            answer(r->kind, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    free(r);
    return NULL;
}

int rude_start(enum rude_kind kind)
{
    pthread_t thread;
    int port;
    struct rude *r = malloc(sizeof(*r));
    cr_assert_not_null(r);
    *r = (struct rude){ .kind = kind, .fd = listen_on(16, &port) };
    cr_assert_eq(pthread_create(&thread, NULL, serve_rudely, r), 0);
    pthread_detach(thread);
    return port;
}

int rude_closed_port(void)
{
    int port;
    listen_on(-1, &port); /* bound, so that nobody else gets it */
    return port;
}

/* Connections of our own fill the queue: the kernel takes one more than its length, and then drops what comes. */
int rude_full_port(void)
{
    int port;
    listen_on(0, &port);
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 4; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        cr_assert(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
    }
    return port;
}

void rude_own_network(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        cr_skip_test("skipped, because a network namespace needs root");
    rude_ip("link set lo up");
}

void rude_own_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        cr_skip_test("skipped, because a mount namespace needs root");
}

void rude_ip(const char *arguments)
{
    char command[256];
    snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin ip %s >/dev/null 2>&1", arguments);
    if (system(command) != 0)
        cr_skip_test("skipped, because 'ip' (package iproute2) or the kernel cannot do it here");
}

void rude_replace(const char *path, const char *text)
{
    char name[] = "/tmp/rude_XXXXXX";
    const int fd = mkstemp(name);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, 0644);
    close(fd);
    const int rc = mount(name, path, NULL, MS_BIND, NULL);
    unlink(name);
    if (rc != 0)
        cr_skip_test("skipped, because a file cannot be mounted over another here");
}

/* The kernel's counter of connections that nobody accepted in time. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* On loopback a connection is dropped within connect(). */
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

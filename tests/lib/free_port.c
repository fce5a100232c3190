/* free_port.c -- see free_port.h.
 *
 * A port that bind() has chosen and that was closed again may be anybody's a moment later: one of the many connections of
 * other tests. So it comes from below the range that the kernel chooses from, and from a place there that depends on our
 * process id, as each test is a process. */
#include "free_port.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Away from 29500, ddprun's own, and from those that tests of port ranges name. */
enum { LOWEST = 10000, HIGHEST = 19999, APART = 7 };

static bool is_free(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is = bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    close(fd);
    return is;
}

int free_port(void)
{
    static int given;
    const int count = HIGHEST - LOWEST + 1;
    for (int tries = 0; tries < count; tries++) {
        const int port = LOWEST + (int)(((long)getpid() * APART + given++) % count);
        if (is_free(port))
            return port;
    }
    cr_assert_fail("no port from %d to %d is free", LOWEST, HIGHEST);
    return -1;
}

const char *free_port_option(const char *option)
{
    static char text[96];
    snprintf(text, sizeof(text), "%s%d", option, free_port());
    return text;
}

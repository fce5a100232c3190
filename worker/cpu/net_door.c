/* net_door.c -- see net_door.h.
 *
 * Nothing of a guest is believed before its hello is whole and right, and nothing is allocated for it: a
 * scanner costs one of 32 places for five seconds. */
#include "cpu/net_door.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_MS = 5000 };

void net_door_open(struct net_door *door, int fd, const struct net_hello *mine)
{
    *door = (struct net_door){ .fd = fd, .mine = mine };
    for (int i = 0; i < NET_GUESTS; i++)
        door->guests[i].fd = -1;
}

static void show_out(struct net_guest *guest)
{
    close(guest->fd);
    guest->fd = -1;
}

void net_door_close(struct net_door *door)
{
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            show_out(&door->guests[i]);
    if (door->fd >= 0)
        close(door->fd);
    door->fd = -1;
}

int net_door_polls(const struct net_door *door, struct pollfd *polls)
{
    int n = 0;
    polls[n++] = (struct pollfd){ .fd = door->fd, .events = POLLIN };
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            polls[n++] = (struct pollfd){ .fd = door->guests[i].fd, .events = POLLIN };
    return n;
}

/* --- guests --------------------------------------------------------------------------------------------- */

/* A free place, or that of the one who has been silent for longest. A rank says its hello with its first
 * packet, so whoever is silent for longest is the least likely to be one. */
static struct net_guest *find_place(struct net_door *door)
{
    struct net_guest *oldest = &door->guests[0];
    for (int i = 0; i < NET_GUESTS; i++) {
        if (door->guests[i].fd < 0)
            return &door->guests[i];
        if (door->guests[i].since_ms < oldest->since_ms)
            oldest = &door->guests[i];
    }
    show_out(oldest);
    return oldest;
}

/* Until the queue is empty: thousands of ranks come at the same moment, and the kernel drops what it has no
 * room for. */
static void accept_all(struct net_door *door)
{
    int fd;
    while ((fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        *find_place(door) = (struct net_guest){ .fd = fd, .since_ms = clock_ms() };
}

/* The link that waits for the sender of `hello`; NULL: none does. */
static struct net_link *expected(struct net_links *links, const struct net_hello *hello)
{
    for (int i = 0; i < links->count; i++)
        if (links->list[i].rank == hello->from && links->list[i].lane == hello->lane)
            return &links->list[i];
    return NULL;
}

/* A hello is complete: in, or out with an answer. */
static bool judge(struct net_guest *guest, const struct net_hello *mine, struct net_links *links)
{
    struct net_hello hello;
    uint8_t bytes[NET_ANSWER];
    enum net_answer answer = net_take_hello(guest->bytes, mine, &hello);
    struct net_link *link = expected(links, &hello);

    if (answer == NET_WELCOME && link == NULL)
        answer = NET_OTHER_RANK;
    if (answer == NET_WELCOME && link->fd >= 0)
        answer = NET_TWICE;
    net_put_answer(bytes, answer);
    /* A fresh connection has room for 8 bytes; if it is broken, the link will say so. */
    if (send(guest->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes) || answer != NET_WELCOME) {
        show_out(guest);
        return false;
    }
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    if (getpeername(guest->fd, (struct sockaddr *)&peer, &len) == 0)
        endpoint_of_sockaddr((struct sockaddr *)&peer, link->where);
    link->pid = hello.pid;
    memcpy(link->name, hello.host, NET_HOST);
    net_link_attach(link, guest->fd);
    guest->fd = -1;
    return true;
}

/* True: let in. Exactly the hello is read: what follows belongs to the link. */
static bool listen_to(struct net_guest *guest, const struct net_hello *mine, struct net_links *links)
{
    ssize_t n = recv(guest->fd, guest->bytes + guest->got, NET_HELLO - guest->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (clock_ms() - guest->since_ms > HELLO_MS)
            show_out(guest);
        return false;
    }
    if (n > 0)
        guest->got += (size_t)n;
    if (n <= 0 || !net_may_be_hello(guest->bytes, guest->got))
        show_out(guest);
    else if (guest->got == NET_HELLO)
        return judge(guest, mine, links);
    return false;
}

/* All places are looked at, whatever poll has said: a recv that finds nothing is cheaper than to find out
 * whom it meant. */
int net_door_serve(struct net_door *door, struct net_links *links)
{
    int let_in = 0;
    accept_all(door);
    for (int i = 0; i < NET_GUESTS; i++)
        if (door->guests[i].fd >= 0)
            let_in += listen_to(&door->guests[i], door->mine, links);
    return let_in;
}

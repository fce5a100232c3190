/* rank0_store.c -- behaves like a PyTorch without libuv, for end-to-end tests. The program replaces a Python
 * interpreter and ignores its arguments. If ddprun tells the workers to use the launcher's store, the program fails,
 * because such a PyTorch cannot use that store. With ANY_STORE=1 it exits with 0 instead. If ddprun lets rank 0 host
 * the store, rank 0 listens at MASTER_PORT, and the other ranks connect to this port.
 *
 * With FAIL_ONCE=1, rank 1 fails in the first attempt, when all ranks have met. */
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

enum { TRIES = 600, PAUSE_MS = 50, FAILED = 3, REFUSED = 4, USAGE = 5 };

static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : "";
}

static bool is(const char *name, const char *value)
{
    return strcmp(text_of(name), value) == 0;
}

static void say_met(void)
{
    printf("rank %s: attempt %s has met\n", text_of("RANK"), text_of("TORCHELASTIC_RESTART_COUNT"));
    fflush(stdout);
}

/* Bind like PyTorch's server: to all addresses, with SO_REUSEADDR. */
static int serve(int others)
{
    const int yes = 1, no = 0;
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    at.sin6_port = htons((unsigned short)atoi(text_of("MASTER_PORT")));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, others) != 0) {
        perror("rank 0 cannot listen");
        return FAILED;
    }
    for (int i = 0; i < others; i++) {
        const int peer = accept(fd, NULL, NULL);
        if (peer < 0)
            return FAILED;
        /* Report before the last rank gets its answer. That rank may fail at once after the answer, and the launcher
         * would then stop rank 0 before rank 0 has reported. */
        if (i == others - 1)
            say_met();
        if (write(peer, "0", 1) != 1)
            return FAILED;
    }
    return 0;
}

static int try_once(void)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    char byte = 0;
    if (getaddrinfo(text_of("MASTER_ADDR"), text_of("MASTER_PORT"), &hints, &found) != 0)
        return FAILED;
    const int fd = socket(found->ai_family, SOCK_STREAM, 0);
    const bool met = connect(fd, found->ai_addr, found->ai_addrlen) == 0 && read(fd, &byte, 1) == 1;
    freeaddrinfo(found);
    close(fd);
    return met && byte == '0' ? 0 : FAILED;
}

/* Try to connect until the store of rank 0 answers, because rank 0 may start later. */
static int join(void)
{
    for (int i = 0; i < TRIES; i++) {
        if (try_once() == 0) {
            say_met();
            return 0;
        }
        poll(NULL, 0, PAUSE_MS);
    }
    return FAILED;
}

int main(void)
{
    const int rank = atoi(text_of("RANK")), world = atoi(text_of("WORLD_SIZE"));
    if (is("TORCHELASTIC_USE_AGENT_STORE", "True")) {
        printf("rank %d: launcher's store\n", rank);
        return is("ANY_STORE", "1") ? 0 : REFUSED;
    }
    if (!is("USE_LIBUV", "0") || getenv("DDPRUN_STORE") != NULL)
        return USAGE;
    const int code = rank == 0 ? serve(world - 1) : join();
    if (code != 0)
        return code;
    if (is("FAIL_ONCE", "1") && is("TORCHELASTIC_RESTART_COUNT", "0")) {
        if (rank == 1)
            return FAILED;
        pause();
    }
    return 0;
}

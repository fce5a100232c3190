/* connector.c -- see connector.h. Each lookup calls lookup_run on a separate thread. The thread owns struct name_lookup
 * until lookup_run returns. If the caller ends the lookup earlier, the thread frees the struct. */
#include "base/connector.h"

#include "base/timed_call.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- names ---------------------------------------------------------------------------------------------- */

struct name_lookup {
    struct timed_call *call; /* owned */
    struct name_found found; /* until lookup_run has returned, only its thread may use this member */
    char host[];
};

/* Return true if a line of /etc/hosts contains the name `host`. Case is ignored, as in resolvers. */
static bool names_host(const char *line, const char *host)
{
    const size_t len = strlen(host);
    line += strcspn(line, " \t");
    while (*line != '\0' && *line != '#') {
        line += strspn(line, " \t");
        const size_t word = strcspn(line, " \t#");
        if (word == len && strncasecmp(line, host, len) == 0)
            return true;
        line += word;
    }
    return false;
}

/* Find the first line of /etc/hosts that names `host`, because the C library uses this line. An error message shows
 * this line if the name resolves to a loopback address, because the line is then usually wrong. Replace control
 * characters by blanks, because the line is printed on a terminal. */
static void find_hosts_line(const char *host, char line[HOSTS_LINE_MAX])
{
    char text[1024];
    FILE *file = fopen("/etc/hosts", "re");
    line[0] = '\0';
    while (file != NULL && line[0] == '\0' && fgets(text, sizeof(text), file) != NULL) {
        text[strcspn(text, "\r\n")] = '\0';
        for (char *p = text; *p != '\0'; p++)
            if (iscntrl((unsigned char)*p))
                *p = ' ';
        if (names_host(text, host))
            snprintf(line, HOSTS_LINE_MAX, "%.*s", HOSTS_LINE_MAX - 1, text);
    }
    if (file != NULL)
        fclose(file);
}

/* Find the IPv4 and IPv6 addresses of `host`. Do not set AI_ADDRCONFIG: this flag would remove all addresses on a
 * laptop without a network, which has only loopback addresses. Keep the order of the C library (RFC 6724), because
 * other programs try the same address first. */
static void resolve_host(const char *host, int flags, struct name_found *found)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    struct addrinfo *list = NULL;
    *found = (struct name_found){ .error = getaddrinfo(host, NULL, &hints, &list) };
    if (found->error != 0)
        return;
    for (const struct addrinfo *at = list; at != NULL && found->n < RACE_ADDRESSES_MAX; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, found->addresses[found->n], RACE_TEXT_MAX, NULL, 0,
                        NI_NUMERICHOST) == 0)
            found->n++;
    freeaddrinfo(list);
    if (found->n == 0)
        found->error = EAI_NONAME;
}

bool name_is_literal(const char *host, struct name_found *found)
{
    resolve_host(host, AI_NUMERICHOST, found);
    return found->error == 0;
}

/* Resolve the name. A separate thread calls this function, because getaddrinfo takes half a minute if no name server
 * answers. */
static void lookup_run(void *user)
{
    struct name_lookup *l = user;
    resolve_host(l->host, 0, &l->found);
    find_hosts_line(l->host, l->found.hosts_line);
}

int name_lookup_begin(const char *host, struct name_lookup **out)
{
    struct name_lookup *l = calloc(1, sizeof(*l) + strlen(host) + 1);
    if (l == NULL)
        return ENOMEM;
    strcpy(l->host, host);
    struct timed_call *call = timed_call_begin(lookup_run, free, l);
    if (call == NULL) {
        const int error = errno;
        free(l);
        return error;
    }
    l->call = call;
    *out = l;
    return 0;
}

int name_lookup_fd(const struct name_lookup *l)
{
    return timed_call_fd(l->call);
}

bool name_lookup_result(struct name_lookup *l, struct name_found *found)
{
    if (!timed_call_has_returned(l->call))
        return false;
    *found = l->found;
    return true;
}

void name_lookup_end(struct name_lookup *l)
{
    if (l != NULL && timed_call_end(l->call))
        free(l);
}

/* --- connections ---------------------------------------------------------------------------------------- */

int connector_begin(const char *address, int port, int max_segment)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *at;
    char service[8];
    const int on = 1;
    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(address, service, &hints, &at) != 0)
        return -EADDRNOTAVAIL;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (fd >= 0 && max_segment > 0)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &max_segment, sizeof(max_segment));
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
        error = errno;
        close(fd);
    }
    freeaddrinfo(at);
    return error != 0 ? -error : fd;
}

/* Return true if a socket is connected to itself. This may happen on a connect to an ephemeral port of this host if no
 * process listens there. In one of 28,000 connects, the kernel chooses the same port for the client. TCP then treats
 * the connect as a simultaneous open. Such a socket echoes all bytes, and it occupies the port on which the store must
 * listen. */
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

int connector_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        return errno;
    return error == 0 && is_connected_to_itself(fd) ? ECONNREFUSED : error;
}

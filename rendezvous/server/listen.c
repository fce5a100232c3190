/* listen.c -- see listen.h. The parts are the listener, the acceptor, and the search for the process that uses a port.
 * libuv only polls the sockets: its own functions would always set SO_REUSEADDR, and would drop waiting clients when
 * descriptors run out. */
#include "server/listen.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/syscalls.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t listen_queue_drops(int fd)
{
    uint32_t numbers[SK_MEMINFO_VARS] = { 0 };
    socklen_t len = sizeof(numbers);
    return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, numbers, &len) == 0 ? numbers[SK_MEMINFO_DROPS] : 0;
}

/* Read the limit of the accept queue: the backlog, but at most net.core.somaxconn. For a listening socket, Linux
 * reports this limit in tcpi_sacked; see tcp_get_info() of the kernel. */
uint64_t listen_queue_limit(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_sacked : 0;
}

/* --- listener --------------------------------------------------------------------------------------------- */

/* The sockets are created without libuv, which always sets SO_REUSEADDR.
 *
 * A fixed port needs SO_REUSEADDR: a restarted daemon must not wait until old connections leave TIME_WAIT. Port 0 must
 * not have SO_REUSEADDR. Otherwise another user could bind the chosen port on a more specific address before this
 * process calls listen. This could also happen with a fixed port, so listen follows bind at once.
 *
 * Two ddpruns of a job on one host can bind the same port at the same time. If both then call listen, Linux rejects
 * both calls, and no process hosts the store. So if listen has failed after bind has succeeded, try again. */

enum { TRIES = 12, PAUSE_US = 4000 /* longest pause before the next try */ };

/* Open a listening socket. Return its descriptor, or -errno after an error. Set *met to true if bind succeeds but
 * listen fails because the port is in use. Another process has then probably bound the same port at the same time. */
static int listen_once(const struct addrinfo *at, bool reuse, bool *met)
{
    const int yes = 1, no = 0;
    *met = false;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (reuse)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    /* The kernel limits the backlog to net.core.somaxconn. The backlog must be long, because all clients of torch 1.13
     * connect at the same time, and each client connects twice. A client that the kernel drops tries again only after a
     * second. */
    const bool bound = bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (bound && listen(fd, 65535) == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes,
                   sizeof(yes)); /* allows a restarted store to bind the port */
        return fd;
    }
    int error = errno;
    *met = bound && error == EADDRINUSE;
    close(fd);
    return -error;
}

/* Sleep for a random time, because two processes with equal pauses would collide again. */
static void pause_a_moment(void)
{
    uint32_t chance = (uint32_t)getpid();
    if (sys_getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance ^= (uint32_t)clock_us();
    nanosleep(&(struct timespec){ .tv_nsec = (long)(chance % PAUSE_US) * 1000 }, NULL);
}

/* Listen on one address. Try again if another process has bound the port at the same time. */
static int listen_on(const struct addrinfo *at, bool reuse)
{
    bool met = false;
    int fd = listen_once(at, reuse, &met);
    for (int tries = 1; met && tries < TRIES; tries++) {
        pause_a_moment();
        fd = listen_once(at, reuse, &met);
    }
    return fd;
}

/* Listen on the first address of `list` that can be used. Return the descriptor, or -errno of the last try. */
static int listen_on_first(const struct addrinfo *list, bool reuse)
{
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        fd = listen_on(at, reuse);
        /* Do not try further addresses after EADDRINUSE or EACCES. If an address is in use, its clients would reach
         * another service. A privileged port is privileged on every address. */
        if (fd >= 0 || fd == -EADDRINUSE || fd == -EACCES)
            break;
    }
    return fd;
}

/* Listen on all addresses. An IPv6 socket also accepts IPv4 clients, so IPv4 is used only if the kernel has no IPv6.
 * PyTorch clients try IPv6 first. */
static int listen_everywhere(int port)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct addrinfo second = { .ai_family = AF_INET, .ai_addr = (void *)&v4, .ai_addrlen = sizeof(v4) };
    struct addrinfo first = { .ai_family = AF_INET6, .ai_addr = (void *)&v6, .ai_addrlen = sizeof(v6) };
    first.ai_next = &second;
    return listen_on_first(&first, port != 0);
}

/* Return the lowest port that a process without privileges may use. Linux before 4.11 always uses 1024. */
static int lowest_free_port(void)
{
    char text[16];
    const ssize_t n =
        read_small_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", text, sizeof(text));
    return n > 0 ? atoi(text) : 1024;
}

/* Format the error message with the reason and the remedy. If the port is in use, the reason names the process that
 * uses the port. */
static ddp_status explain(const char *host, int port, const char *option, int error, struct ddp_err *err)
{
    char at[ENDPOINT_TEXT_MAX], who[400];
    struct port_holder holder = { 0 };
    endpoint_print(host[0] != '\0' ? host : "*", port, at);
    if (error == EADDRINUSE && port != 0) {
        port_holder_find(port, &holder);
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot listen: port %d is in use by %s; %s, or pass another %s",
                        at, port, port_holder_words(&holder, who, sizeof(who)),
                        holder.leftover ? "try again then" : "stop that process",
                        option != NULL ? option : "port");
    }
    char remedy[FILES_REMEDY_MAX];
    const int lowest = lowest_free_port();
    files_remedy(error, remedy);
    if (error == EADDRNOTAVAIL)
        snprintf(remedy, sizeof(remedy), "; choose an address of this host, as listed by 'ip address'");
    else if (error == EACCES && port < lowest)
        snprintf(remedy, sizeof(remedy),
                 "; choose a port of at least %d (net.ipv4.ip_unprivileged_port_start)", lowest);
    return ddp_fail(err, DDP_ERR_IO, "%s: cannot listen: %s%s", at, strerror(error), remedy);
}

/* Fill in *out with the port and the address that the kernel reports for the socket. */
static ddp_status describe_listener(int fd, struct listener *out)
{
    struct sockaddr_storage addr = { 0 };
    socklen_t len = sizeof(addr);
    getsockname(fd, (struct sockaddr *)&addr, &len);
    out->fd = fd;
    out->port = ntohs(addr.ss_family == AF_INET ? ((struct sockaddr_in *)&addr)->sin_port
                                                : ((struct sockaddr_in6 *)&addr)->sin6_port);
    endpoint_of_sockaddr((struct sockaddr *)&addr, out->address);
    return DDP_OK;
}

ddp_status listener_open(const char *host, int port, const char *option, struct listener *out,
                         struct ddp_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *list = NULL;
    char service[16];
    int fd;
    if (host == NULL || host[0] == '\0') {
        host = "";
        fd = listen_everywhere(port);
    } else {
        snprintf(service, sizeof(service), "%d", port);
        int rc = getaddrinfo(host, service, &hints, &list);
        if (rc != 0)
            return ddp_fail(err, DDP_ERR_IO, "%s: cannot listen: cannot resolve the name: %s; check the name",
                            host, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        fd = listen_on_first(list, port != 0);
        freeaddrinfo(list);
    }
    return fd >= 0 ? describe_listener(fd, out) : explain(host, port, option, -fd, err);
}

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* The calls when no failure occurs: the socket becomes readable -> on_connectable -> accept4 until the queue is empty
 * -> on_client for each accepted client.
 *
 * Descriptors have run out if accept4 fails with EMFILE, or if `open` reaches `max`. New clients then stay in the
 * kernel's queue. The acceptor stops polling, because otherwise the loop would run without a pause. The callback
 * make_room may close clients that have sent no request. The acceptor tries again when a client leaves, or after
 * PAUSE_MS.
 *
 * uv_listen is not used, because on EMFILE it would accept and close all waiting clients without a report. */

enum {
    PAUSE_MS = 100, /* ms between two tries to accept a client while no descriptor is free */
    AT_ONCE = 64,   /* maximum number of clients that are accepted in one turn of the loop */
    RESERVE = 64,   /* descriptors that clients may not use: ddprun needs some to start workers */
};

static void on_connectable(uv_poll_t *poll, int status, int events);

/* Return the number of clients in the accept queue, which Linux reports in tcpi_unacked of a listening socket. */
static unsigned waiting_clients(const struct acceptor *a)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(a->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_unacked : 0;
}

/* Stop accepting for PAUSE_MS. If a client waits, call on_short. If on_short was called before, do not call it again
 * until a client has been accepted. */
static void pause_for(struct acceptor *a, const char *why)
{
    unsigned waiting = waiting_clients(a);
    uv_poll_stop(&a->poll);
    a->resume_ms = uv_now(a->loop) + PAUSE_MS;
    a->make_room(a, waiting);
    if (!a->short_of_fds && waiting > 0) {
        a->short_of_fds = true;
        a->on_short(a, waiting, why);
    }
}

/* Return true if acceptor_close was called, for example by on_client. In this case a->fd is closed, and its number may
 * belong to another file. */
static bool is_closed(const struct acceptor *a)
{
    return uv_is_closing((const uv_handle_t *)&a->poll);
}

/* Accept a client. Return false if no client waits, or if descriptors have run out. */
static bool accept_one(struct acceptor *a)
{
    struct sockaddr_storage peer = { 0 };
    socklen_t len = sizeof(peer);
    if (a->open >= a->max) {
        pause_for(a, "the limit is reached");
        return false;
    }
    int fd = accept4(a->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        a->open++;
        a->short_of_fds = false;
        a->on_client(a, fd, (struct sockaddr *)&peer);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        pause_for(a, strerror(errno));
    else if (errno != EAGAIN)
        return true; /* for example ECONNABORTED: this client has left, but another client may wait */
    return false;
}

static void on_connectable(uv_poll_t *poll, int status, int events)
{
    struct acceptor *a = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < AT_ONCE && !is_closed(a) && accept_one(a); i++)
        continue; /* libuv calls this function again if more clients wait */
}

/* Raise the soft limit of descriptors to the hard limit, because torch 1.13 needs two sockets for each rank. Return the
 * number of descriptors that clients may use. The other descriptors are kept for ddprun. Their number is RESERVE, or a
 * quarter of the limit if a quarter is less than RESERVE. */
static unsigned raise_limit(void)
{
    struct rlimit limit = { 1024, 1024 };
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    /* 2^20 is the size of the map in clients.c. */
    unsigned fds = limit.rlim_cur < 1u << 20 ? (unsigned)limit.rlim_cur : 1u << 20;
    unsigned reserve = fds / 4 < RESERVE ? fds / 4 : RESERVE;
    return fds - reserve;
}

int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd)
{
    a->loop = loop;
    a->fd = fd;
    a->open = 0;
    a->max = raise_limit();
    a->resume_ms = UINT64_MAX;
    a->short_of_fds = false;
    int rc = uv_poll_init(loop, &a->poll, fd);
    a->poll.data = a;
    return rc != 0 ? rc : uv_poll_start(&a->poll, UV_READABLE, on_connectable);
}

void acceptor_client_closed(struct acceptor *a)
{
    a->open--;
    if (a->resume_ms != UINT64_MAX)
        acceptor_tick(a, a->resume_ms);
}

void acceptor_tick(struct acceptor *a, uint64_t now_ms)
{
    if (now_ms < a->resume_ms || is_closed(a))
        return;
    a->resume_ms = UINT64_MAX;
    uv_poll_start(&a->poll, UV_READABLE, on_connectable);
}

void acceptor_close(struct acceptor *a, uv_close_cb closed)
{
    a->resume_ms = UINT64_MAX;
    uv_close((uv_handle_t *)&a->poll, closed);
    close(a->fd);
}

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The files /proc/net/tcp and tcp6 show the inode of each socket that listens or is connected. /proc/PID/fd shows the
 * descriptors of a process as links such as "socket:[inode]". Only root can read these links for processes of other
 * users.
 *
 * Two lines of /proc/net/tcp: a listener, and a connection in TIME_WAIT. Ports and states are hexadecimal, uid and
 * inode are decimal; addresses are in the byte order of the host:
 *
 *     0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 ...
 *     1: 0100007F:72D8 0100007F:C350 06 00000000:00000000 03:00000B7A 00000000     0        0 0 3 ...
 *
 * Inode 0 means that no process has the socket open any more. */

enum { STATE_LISTEN = 0x0a }; /* TCP_LISTEN of the kernel (tcp_states.h) */

/* Parse a line with the fields "sl: LOCAL:PORT REMOTE:PORT STATE queues timer retransmissions uid timeout inode
 * ...". Return false for any other line. */
static bool parse_line(const char *line, int *port, unsigned *state, struct port_holder *out)
{
    unsigned local_port = 0;
    int n = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u %*s %lu", &local_port,
                   state, &out->uid, &out->inode);
    *port = (int)local_port;
    return n == 4;
}

/* Find the socket with the local port `port` in `table`, the text of /proc/net/tcp or tcp6. Store the socket's inode
 * and uid in `out`. Accepted connections have the same local port, so prefer a listener. If no process has such a
 * socket open, return false, and set `leftover` if a connection is in TIME_WAIT. */
static bool port_table_find(const char *table, int port, struct port_holder *out)
{
    *out = (struct port_holder){ 0 };
    for (const char *line = table; line != NULL && *line != '\0';) {
        struct port_holder row = { 0 };
        unsigned state;
        int row_port;
        const char *end = strchr(line, '\n');
        if (parse_line(line, &row_port, &state, &row) && row_port == port) {
            if (row.inode == 0)
                out->leftover = out->inode == 0; /* no process has the connection open any more (TIME_WAIT) */
            else if (out->inode == 0 || state == STATE_LISTEN)
                *out = row;
            if (state == STATE_LISTEN)
                break;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return out->inode != 0;
}

/* Format the age of a process, such as ", running for 45 s". The unit is s, min or h. If the age is unknown, write
 * nothing. */
static int age_words(char *text, size_t size, long age_s)
{
    if (age_s <= 0)
        return 0;
    if (age_s < 120)
        return snprintf(text, size, ", running for %ld s", age_s);
    return age_s < 7200 ? snprintf(text, size, ", running for %ld min", age_s / 60)
                        : snprintf(text, size, ", running for %ld h", age_s / 3600);
}

/* Format the job of a process as ", rank 1 of ddprun job k3" or ", a worker of torchrun job k3". Write nothing if the
 * process has no job. */
static void job_words(char *text, size_t size, const struct port_holder *h)
{
    if (h->job[0] != '\0')
        snprintf(text, size, ", %s%s of %s job %s", h->rank[0] != '\0' ? "rank " : "a worker", h->rank,
                 h->by_torchrun ? "torchrun" : "ddprun", h->job);
}

/* Format a process as "redis-server (pid 812, user redis, running for 3 h: redis-server *:6379)". */
static void format_process(const struct port_holder *h, char *text, size_t size)
{
    char age[40] = "", job[120] = "";
    age_words(age, sizeof(age), h->age_s);
    job_words(job, sizeof(job), h);
    snprintf(text, size, "%s (pid %d%s%s%s%s%s%s)", h->name, h->pid, h->user[0] != '\0' ? ", user " : "",
             h->user, age, job, h->command[0] != '\0' ? ": " : "", h->command);
}

/* Describe the process with all known details, because the user must decide whether to end it. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size)
{
    if (holder->pid > 0)
        format_process(holder, text, size);
    else if (holder->inode != 0 && holder->user[0] != '\0')
        snprintf(text, size, "a process of user %s (its pid is hidden from you)", holder->user);
    else if (holder->inode != 0)
        snprintf(text, size, "a process of user id %u (its pid is hidden from you)", holder->uid);
    else if (holder->leftover)
        snprintf(text, size, "old connections that close within a minute");
    else
        snprintf(text, size, "a process that is hidden from you");
    return text;
}

/* --- port holder, from /proc ------------------------------------------------------------------------------ */

/* Read a file of /proc into `text`, and append a NUL. Return false if the file cannot be read or memory is short. The
 * caller must free `text` in both cases. */
static bool read_file(const char *path, struct buf *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool ok = fd >= 0 && read_whole_file(fd, SIZE_MAX, text);
    if (fd >= 0)
        close(fd);
    return ok && buf_append(text, "", 1);
}

/* Find the socket with the local port `port` in a file of /proc/net (port_table_find). */
static bool in_table(const char *path, int port, struct port_holder *out)
{
    struct buf text = { 0 };
    *out = (struct port_holder){ 0 };
    bool found = read_file(path, &text) && port_table_find((const char *)text.data, port, out);
    buf_free(&text);
    return found;
}

/* Return true if /proc/PID/fd of the process shows the socket. Return false if the process does not have the socket
 * open, or if this directory is not readable. */
static bool has_socket(const char *pid, const char *link_wanted)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        found = strcmp(target, link_wanted) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* Set `name` to the program name in /proc/PID/comm. */
static void name_process(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/comm", out->pid);
    if (read_file(path, &text))
        snprintf(out->name, sizeof(out->name), "%.*s", (int)strcspn((char *)text.data, "\n"),
                 (char *)text.data);
    buf_free(&text);
}

/* Set `user` to the name of the uid, or leave `user` empty if the uid has no name. */
static void name_user(struct port_holder *out)
{
    char space[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(out->uid, &entry, space, sizeof(space), &found) == 0 && found != NULL)
        snprintf(out->user, sizeof(out->user), "%.31s", found->pw_name);
}

/* Copy the command line, with spaces instead of NULs and '?' instead of unprintable bytes. If the line is too long, end
 * the copy with "...". */
static void set_command(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    size_t n = 0;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", out->pid);
    if (read_file(path, &text))
        for (; n + 2 < text.len && n + 1 < sizeof(out->command); n++)
            out->command[n] = (char)(text.data[n] == '\0'         ? ' '
                                     : isprint(text.data[n]) != 0 ? text.data[n]
                                                                  : '?');
    out->command[n] = '\0';
    if (n + 2 < text.len)
        memcpy(out->command + sizeof(out->command) - sizeof("..."), "...", sizeof("..."));
    buf_free(&text);
}

/* Copy the value of the variable `name` ("RANK=") from an environment, with '?' instead of unprintable bytes. If the
 * variable is unset, do nothing. */
static void copy_variable(const struct buf *text, const char *name, char *out, size_t size)
{
    for (size_t at = 0; at < text->len; at += strlen((char *)text->data + at) + 1)
        if (strncmp((char *)text->data + at, name, strlen(name)) == 0)
            snprintf(out, size, "%s", (char *)text->data + at + strlen(name));
    for (char *p = out; *p != '\0'; p++)
        if (isprint((unsigned char)*p) == 0)
            *p = '?';
}

/* Set the job and the rank of a worker from the worker's environment. The variables of torchrun do not show that
 * torchrun started the worker, because ddprun sets these variables, too. So if DDPRUN_JOB is also set, the job belongs
 * to ddprun. */
static void set_job(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/environ", out->pid);
    if (read_file(path, &text)) {
        copy_variable(&text, "TORCHELASTIC_RUN_ID=", out->job, sizeof(out->job));
        out->by_torchrun = out->job[0] != '\0';
        copy_variable(&text, "RANK=", out->rank, sizeof(out->rank));
    }
    if (text.len > 0 && out->by_torchrun) {
        char job[sizeof(out->job)] = "";
        copy_variable(&text, "DDPRUN_JOB=", job, sizeof(job));
        out->by_torchrun = job[0] == '\0';
    }
    buf_free(&text);
}

/* Set the age of the process from the field "starttime" of /proc/PID/stat. The process name may contain any byte, so
 * count the fields after the last ')'. */
static void set_age(struct port_holder *out)
{
    char path[64];
    struct buf stat = { 0 }, uptime = { 0 };
    unsigned long long start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", out->pid);
    if (read_file(path, &stat) && read_file("/proc/uptime", &uptime)) {
        const char *fields = strrchr((char *)stat.data, ')');
        if (fields != NULL && sscanf(fields,
                                     ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                     "%*s %*s %*s %llu",
                                     &start) == 1)
            out->age_s = atol((char *)uptime.data) - (long)(start / (unsigned long long)sysconf(_SC_CLK_TCK));
    }
    buf_free(&stat);
    buf_free(&uptime);
}

/* Find the process that has the socket open, and fill in its details. The search is slow, because it reads the links
 * of all descriptors of all processes. */
static void find_process(struct port_holder *out)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", out->inode);
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc != NULL && out->pid == 0 && (entry = readdir(proc)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) && has_socket(entry->d_name, wanted))
            out->pid = atoi(entry->d_name);
    if (proc != NULL)
        closedir(proc);
    if (out->pid <= 0)
        return;
    name_process(out);
    set_command(out);
    set_job(out);
    set_age(out);
}

/* Find the process that uses the port. Search tcp6, too, because an IPv6 socket may use the port for IPv4. */
bool port_holder_find(int port, struct port_holder *out)
{
    if (!in_table("/proc/net/tcp", port, out)) {
        bool leftover = out->leftover;
        if (!in_table("/proc/net/tcp6", port, out)) {
            out->leftover |= leftover;
            return false;
        }
    }
    name_user(out);
    find_process(out);
    return true;
}

bool port_holder_of_socket(unsigned long inode, struct port_holder *out)
{
    *out = (struct port_holder){ .inode = inode };
    find_process(out);
    return out->pid > 0;
}

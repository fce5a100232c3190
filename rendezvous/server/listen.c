/* listen.c -- see listen.h. From the kernel's counters to the process that holds a port; each part says which
 * interface it uses and why. */
#include "server/listen.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/endpoint.h"
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

/* On a listening socket the field for selectively acknowledged segments holds the limit of its queue, see
 * tcp_get_info() of the kernel. */
uint64_t listen_queue_limit(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_sacked : 0;
}

/* --- listener --------------------------------------------------------------------------------------------- */

/* The socket is made here, because libuv always sets SO_REUSEADDR, and between bind and listen that lets another user
 * bind the same port on a more specific address. This code sets it only for a port given by number, so that a
 * restarted daemon need not wait for TIME_WAIT, and listens right after bind.
 *
 * SO_REUSEADDR also lets two nodes of a job bind the same port. If both then listen at once, Linux rejects both, and
 * each would join a store that does not exist. So a node whose listen failed, but not its bind, tries again. */

enum { TRIES = 12, PAUSE_US = 4000 };

/* Return a descriptor, or -errno. `met`: another socket was about to listen there. */
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
    /* The kernel cuts the backlog down to net.core.somaxconn. torch 1.13 clients open two connections each,
     * all at once, and retry only after a second. */
    const bool bound = bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (bound && listen(fd, 65535) == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)); /* for its connections, see above */
        return fd;
    }
    int error = errno;
    *met = bound && error == EADDRINUSE;
    close(fd);
    return -error;
}

/* Sleep for a random time, because two nodes with equal pauses would collide again. */
static void pause_a_moment(void)
{
    uint32_t chance = (uint32_t)getpid();
    if (sys_getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance ^= (uint32_t)clock_us();
    nanosleep(&(struct timespec){ .tv_nsec = (long)(chance % PAUSE_US) * 1000 }, NULL);
}

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

/* Listen on the first address of `list` that works; return -errno of the last try otherwise. A port in use
 * ends the search, because another address of the same name would be a different service for half of the
 * clients. */
static int listen_on_first(const struct addrinfo *list, bool reuse)
{
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        fd = listen_on(at, reuse);
        if (fd >= 0 || fd == -EADDRINUSE || fd == -EACCES)
            break;
    }
    return fd;
}

/* IPv6 first, because its socket accepts IPv4 clients too; IPv4 alone where the kernel has no IPv6. PyTorch's
 * clients try IPv6 first, so an IPv4 socket alone would cost each of them a failed attempt. */
static int listen_everywhere(int port)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct addrinfo second = { .ai_family = AF_INET, .ai_addr = (void *)&v4, .ai_addrlen = sizeof(v4) };
    struct addrinfo first = { .ai_family = AF_INET6, .ai_addr = (void *)&v6, .ai_addrlen = sizeof(v6) };
    first.ai_next = &second;
    return listen_on_first(&first, port != 0);
}

/* Format the failure and its remedy into `err`. */
static ddp_status explain(const char *host, int port, int error, struct ddp_err *err)
{
    char at[ENDPOINT_TEXT_MAX], who[400];
    struct port_holder holder = { 0 };
    endpoint_print(host[0] != '\0' ? host : "*", port, at);
    if (error == EADDRINUSE && port != 0) {
        port_holder_find(port, &holder);
        return ddp_fail(err, DDP_ERR_IO,
                        "cannot listen on %s: port %d is in use by %s; stop it or choose another port", at,
                        port, port_holder_words(&holder, who, sizeof(who)));
    }
    const char *remedy = error == EADDRNOTAVAIL
                             ? "; this machine has no such address ('ip address' lists its own)"
                         : error == EACCES ? "; choose a port from 1024 up"
                                           : "";
    return ddp_fail(err, DDP_ERR_IO, "cannot listen on %s: %s%s", at, strerror(error), remedy);
}

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

ddp_status listener_open(const char *host, int port, struct listener *out, struct ddp_err *err)
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
            return ddp_fail(err, DDP_ERR_IO, "cannot listen on '%s': its address cannot be found: %s", host,
                            rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        fd = listen_on_first(list, port != 0);
        freeaddrinfo(list);
    }
    return fd >= 0 ? describe_listener(fd, out) : explain(host, port, -fd, err);
}

/* --- acceptor --------------------------------------------------------------------------------------------- */

/* The happy path: the socket becomes readable -> on_connectable -> accept4 until the queue is empty ->
 * on_client.
 *
 * Failure: no descriptor is left for the next client, because accept4 returns EMFILE or `max` is reached.
 * Then the client stays in the kernel's queue and polling stops, since a readable socket that is not read
 * would make the loop spin. The acceptor tries again when a client leaves, or after a pause. make_room may
 * close clients that have sent no request.
 *
 * uv_listen is not used, because on EMFILE libuv opens its reserve descriptor, then accepts and closes every
 * waiting client without a report. `max` exists because the store may live inside the launcher, which needs
 * descriptors to start its workers. */

enum { PAUSE_MS = 100, AT_ONCE = 64, RESERVE = 64 };

static void on_connectable(uv_poll_t *poll, int status, int events);

/* On a listening socket the kernel reports its accept queue in this field. */
static unsigned waiting_clients(const struct acceptor *a)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(a->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_unacked : 0;
}

/* One report per shortage, not per attempt, and only while a client waits. */
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

/* Also called by on_client, because the server's last deadline may pass during it. Then the descriptor's number may
 * already be another file's. */
static bool is_closed(const struct acceptor *a)
{
    return uv_is_closing((const uv_handle_t *)&a->poll);
}

/* False if no client waits, or no descriptor is free. */
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
        return true; /* for example ECONNABORTED: this client has gone, the next may work */
    return false;
}

static void on_connectable(uv_poll_t *poll, int status, int events)
{
    struct acceptor *a = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < AT_ONCE && !is_closed(a) && accept_one(a); i++)
        continue; /* the remaining clients make the socket readable again, after the accepted ones had their
                   * turn */
}

/* Raise the soft limit to the hard one, because a store of a big job has two sockets for each torch 1.13
 * rank. */
static unsigned raise_limit(void)
{
    struct rlimit limit = { 1024, 1024 };
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
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

void acceptor_put_back(struct acceptor *a)
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

/* The kernel's tables name a socket by its inode, and every process shows its descriptors as links like
 * "socket:[inode]". Without root, only the links of processes of this user are readable, so the message
 * states as much as was found. A socket that is bound but does not listen is in no table; then nothing is
 * known. */

/* A listener and an old connection, as /proc/net/tcp shows them (addresses in the host's byte order; all in
 * hex but the uid and the inode):
 *
 *     0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 ...
 *     1: 0100007F:72D8 0100007F:C350 06 00000000:00000000 03:00000B7A 00000000     0        0 0 3 ...
 *
 * Inode 0 means that no process has the socket any more: the kernel waits for stray packets (TIME_WAIT). */

enum { STATE_LISTEN = 0x0a };

/* One line: "sl: LOCAL:PORT REMOTE:PORT STATE queues timer retransmissions uid timeout inode ..." */
static bool parse_line(const char *line, int *port, unsigned *state, struct port_holder *out)
{
    unsigned local_port = 0;
    int n = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u %*s %lu", &local_port,
                   state, &out->uid, &out->inode);
    *port = (int)local_port;
    return n == 4;
}

/* Connections of a listener have its port too and may come first, so a line is kept only until a better one is found. */
bool port_table_find(const char *table, int port, struct port_holder *out)
{
    *out = (struct port_holder){ 0 };
    for (const char *line = table; line != NULL && *line != '\0';) {
        struct port_holder row = { 0 };
        unsigned state;
        int row_port;
        const char *end = strchr(line, '\n');
        if (parse_line(line, &row_port, &state, &row) && row_port == port) {
            if (row.inode == 0)
                out->leftover = out->inode == 0; /* for example TIME_WAIT */
            else if (out->inode == 0 || state == STATE_LISTEN)
                *out = row;
            if (state == STATE_LISTEN)
                break;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return out->inode != 0;
}

/* Format ", for 45 s", ", for 12 min", ", for 3 h"; "" if the age is unknown. */
static int age_words(char *text, size_t size, long age_s)
{
    if (age_s <= 0)
        return 0;
    if (age_s < 120)
        return snprintf(text, size, ", for %ld s", age_s);
    return age_s < 7200 ? snprintf(text, size, ", for %ld min", age_s / 60)
                        : snprintf(text, size, ", for %ld h", age_s / 3600);
}

/* Format ", rank 1 of ddprun job k3", ", a worker of torchrun job none"; "" if the process belongs to no
 * job. */
static void job_words(char *text, size_t size, const struct port_holder *h)
{
    if (h->job[0] != '\0')
        snprintf(text, size, ", %s%s of %s job %s", h->rank[0] != '\0' ? "rank " : "a worker", h->rank,
                 h->by_torchrun ? "torchrun" : "ddprun", h->job);
}

/* "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)" */
static void put_process(const struct port_holder *h, char *text, size_t size)
{
    char age[40] = "", job[120] = "";
    age_words(age, sizeof(age), h->age_s);
    job_words(job, sizeof(job), h);
    snprintf(text, size, "%s (pid %d%s%s%s%s%s%s)", h->name, h->pid, h->user[0] != '\0' ? ", user " : "",
             h->user, age, job, h->command[0] != '\0' ? ": " : "", h->command);
}

/* The most exact description comes first; each later one is less certain. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size)
{
    if (holder->pid > 0)
        put_process(holder, text, size);
    else if (holder->inode != 0 && holder->user[0] != '\0')
        snprintf(text, size, "a process of user %s (its pid cannot be seen by this user)", holder->user);
    else if (holder->inode != 0)
        snprintf(text, size, "a process of user id %u (its pid cannot be seen by this user)", holder->uid);
    else if (holder->leftover)
        snprintf(text, size, "old connections that are still closing (at most a minute)");
    else
        snprintf(text, size, "a process that cannot be seen from here");
    return text;
}

/* --- port holder, from /proc
 * --------------------------------------------------------------------------------- */

/* Read a whole file of /proc and append a NUL; the caller frees `text`. */
static bool read_file(const char *path, struct buf *text)
{
    enum { STEP = 64 * 1024 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    while (fd >= 0 && buf_reserve(text, STEP) != NULL && (n = read(fd, text->data + text->len, STEP)) > 0)
        text->len += (size_t)n;
    if (fd >= 0)
        close(fd);
    return n == 0 && buf_append(text, "", 1);
}

static bool in_table(const char *path, int port, struct port_holder *out)
{
    struct buf text = { 0 };
    *out = (struct port_holder){ 0 };
    bool found = read_file(path, &text) && port_table_find((const char *)text.data, port, out);
    buf_free(&text);
    return found;
}

/* Check whether the process has the socket open. False if its directory cannot be opened for lack of
 * permission. */
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

/* Find the owner's name. `user` stays empty if the uid has no name; the message then shows the number. */
static void name_user(struct port_holder *out)
{
    char space[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(out->uid, &entry, space, sizeof(space), &found) == 0 && found != NULL)
        snprintf(out->user, sizeof(out->user), "%.31s", found->pw_name);
}

/* In /proc/PID/cmdline a NUL ends each word. */
static void put_command(struct port_holder *out)
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
    buf_free(&text);
}

/* Copy the value of `name` ("RANK=") from the text of an environment, made printable; nothing if it is
 * unset. */
static void put_variable(const struct buf *text, const char *name, char *out, size_t size)
{
    for (size_t at = 0; at < text->len; at += strlen((char *)text->data + at) + 1)
        if (strncmp((char *)text->data + at, name, strlen(name)) == 0)
            snprintf(out, size, "%s", (char *)text->data + at + strlen(name));
    for (char *p = out; *p != '\0'; p++)
        if (isprint((unsigned char)*p) == 0)
            *p = '?';
}

/* A worker's environment names its job, also after its launcher has died. Workers of ddprun have torchrun's
 * variables as well. */
static void put_job(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/environ", out->pid);
    if (read_file(path, &text)) {
        put_variable(&text, "TORCHELASTIC_RUN_ID=", out->job, sizeof(out->job));
        out->by_torchrun = out->job[0] != '\0';
        put_variable(&text, "RANK=", out->rank, sizeof(out->rank));
    }
    if (text.len > 0 && out->by_torchrun) {
        char job[sizeof(out->job)] = "";
        put_variable(&text, "DDPRUN_JOB=", job, sizeof(job));
        out->by_torchrun = job[0] == '\0';
    }
    buf_free(&text);
}

/* The name may hold any byte, so fields are counted after it; "start" is the 20th, in ticks since boot. */
static void put_age(struct port_holder *out)
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

/* Slow, because it visits every descriptor of every process, but it runs once, for an error message. */
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
    put_command(out);
    put_job(out);
    put_age(out);
}

/* A socket for IPv6 may block the port for IPv4 as well, and is in the other table only. */
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

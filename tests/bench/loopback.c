/* loopback.c -- see loopback.h. Each server is a separate process, so that its memory and processor time can
 * be read. */
#include "loopback.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- sockets -------------------------------------------------------------------------------------------- */

bool bench_write(int fd, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

bool bench_read(int fd, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(fd, (char *)bytes + done, len - done, 0);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)port) };
}

int bench_connect(int port)
{
    const struct sockaddr_in to = loopback(port);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

int bench_connect_store(int port)
{
    static const uint8_t greeting[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d, 1, 2, 3, 4 };
    uint8_t echo[4];
    int fd = bench_connect(port);
    if (fd >= 0 && (!bench_write(fd, greeting, sizeof(greeting)) || !bench_read(fd, echo, sizeof(echo)) ||
                    memcmp(echo, greeting + 6, sizeof(echo)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* --- the bare echo -------------------------------------------------------------------------------------- */

enum { ECHO_BYTES = 64 * 1024, ECHO_TURN = 64 };

struct echo_client {
    int fd;
    uint32_t size[2]; /* size of a request, then size of a reply */
    size_t have;      /* received bytes of the first message (the two sizes) or of the current request */
    bool sized;
};

/* Process `n` received bytes. If the result is false, the caller closes the connection. */
static bool echo_take(struct echo_client *c, const char *bytes, size_t n)
{
    if (!c->sized) {
        if (n != sizeof(c->size))
            return false;
        memcpy(c->size, bytes, n);
        c->sized = c->size[0] > 0 && c->size[1] <= ECHO_BYTES;
        return c->sized;
    }
    c->have += n;
    return true;
}

static bool echo_reply(struct echo_client *c)
{
    static const char reply[ECHO_BYTES];
    for (; c->sized && c->have >= c->size[0]; c->have -= c->size[0])
        if (write(c->fd, reply, c->size[1]) != (ssize_t)c->size[1])
            return false;
    return true;
}

static void echo_accept(int epoll, int listener)
{
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct echo_client *c = calloc(1, sizeof(*c));
    if (fd < 0 || c == NULL)
        abort();
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN, .data.ptr = c });
}

static bool echo_read(struct echo_client *c)
{
    static char bytes[ECHO_BYTES];
    ssize_t n = read(c->fd, bytes, sizeof(bytes));
    return n > 0 && echo_take(c, bytes, (size_t)n);
}

static void echo_end(struct echo_client *c)
{
    close(c->fd);
    free(c);
}

/* Handle one poll. Replies are sent after all requests of the poll have been read, as in the store. */
static void echo_turn(int epoll, int listener)
{
    struct epoll_event events[ECHO_TURN];
    struct echo_client *heard[ECHO_TURN];
    int n_heard = 0, n = epoll_wait(epoll, events, ECHO_TURN, -1);
    for (int i = 0; i < n; i++) {
        struct echo_client *c = events[i].data.ptr;
        if (c == NULL)
            echo_accept(epoll, listener);
        else if (echo_read(c))
            heard[n_heard++] = c;
        else
            echo_end(c);
    }
    for (int i = 0; i < n_heard; i++)
        if (!echo_reply(heard[i]))
            echo_end(heard[i]);
}

_Noreturn static void echo_main(int listener)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &(struct epoll_event){ .events = EPOLLIN });
    for (;;)
        echo_turn(epoll, listener);
}

bool bench_start_echo(struct bench_server *out)
{
    struct sockaddr_in here = loopback(0);
    socklen_t len = sizeof(here);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&here, len) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&here, &len) != 0)
        return false;
    *out = (struct bench_server){ .pid = fork(), .port = ntohs(here.sin_port) };
    if (out->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        echo_main(listener);
    }
    close(listener);
    return out->pid > 0;
}

/* --- the store ------------------------------------------------------------------------------------------ */

/* Return the path of ddp-rendezvous in the build folder of this program. */
static const char *beside_this(char *path, size_t size)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[len > 0 ? len : 0] = '\0';
    for (int up = 0; up < 3; up++)
        *(strrchr(self, '/') != NULL ? strrchr(self, '/') : self) = '\0';
    snprintf(path, size, "%s/ddp-rendezvous", self);
    return path;
}

/* Start the server `argv` and read the first line of its output. The server prints this line when it accepts
 * connections. The server is killed when this program ends. */
static bool start(const char *const argv[], struct bench_server *out, char *line, int size)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        return false;
    out->pid = fork();
    if (out->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ready[1], STDOUT_FILENO);
        execv(argv[0], (char *const *)argv);
        fprintf(stderr, "cannot execute %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(ready[1]);
    FILE *in = fdopen(ready[0], "r");
    bool ok = in != NULL && fgets(line, size, in) != NULL;
    if (in != NULL)
        fclose(in);
    return ok;
}

bool bench_start_store(const char *path, struct bench_server *out)
{
    char own[4096 + 32], line[128] = "";
    if (path == NULL)
        path = beside_this(own, sizeof(own));
    return start((const char *const[]){ path, "--listen", "127.0.0.1:0", "--quiet", NULL }, out, line,
                 sizeof(line)) &&
           sscanf(line, "listening on 127.0.0.1:%d", &out->port) == 1;
}

bool bench_start_genuine(const char *python, struct bench_genuine *out)
{
    char line[128] = "", dialect = 0;
    if (!start((const char *const[]){ python, "tests/bench/torch/server.py", NULL }, &out->server, line,
               sizeof(line)))
        return false;
    int n = sscanf(line, "%d %c %31s %15s", &out->server.port, &dialect, out->version, out->backend);
    out->newest_dialect = dialect == 'C';
    return n == 4;
}

void bench_stop(struct bench_server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

static long status_kib(const struct bench_server *server, const char *name)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)server->pid);
    FILE *in = fopen(path, "r");
    while (in != NULL && fgets(line, sizeof(line), in) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtol(line + strlen(name), NULL, 10);
            break;
        }
    if (in != NULL)
        fclose(in);
    return kib;
}

long bench_resident_kib(const struct bench_server *server)
{
    return status_kib(server, "VmRSS:");
}

long bench_peak_kib(const struct bench_server *server)
{
    return status_kib(server, "VmHWM:");
}

double bench_processor_ms(const struct bench_server *server)
{
    struct timespec used = { 0 };
    clockid_t clock;
    if (clock_getcpuclockid(server->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return NAN;
    return (double)used.tv_sec * 1000 + (double)used.tv_nsec / 1e6;
}

/* Return the number of requests in the answer to CONTROL status. */
long bench_requests(int fd)
{
    static const char question[] = "{\"op\":\"status\"}", field[] = "\"requests\":";
    const uint8_t head[9] = { 0x82, sizeof(question) - 1 };
    uint64_t len = 0;
    long requests = -1;
    if (!bench_write(fd, head, sizeof(head)) || !bench_write(fd, question, sizeof(question) - 1) ||
        !bench_read(fd, &len, sizeof(len)) || len > 2 << 20)
        return -1;
    char *answer = calloc(1, (size_t)len + 1);
    if (answer != NULL && bench_read(fd, answer, (size_t)len) && strstr(answer, field) != NULL)
        requests = strtol(strstr(answer, field) + strlen(field), NULL, 10);
    free(answer);
    return requests;
}

/* --- processors ----------------------------------------------------------------------------------------- */

/* Return the first processor of `number`, `number` + `step`, ... that is in `all`. */
static cpu_set_t only(const cpu_set_t *all, int number, int step)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    while (!CPU_ISSET((size_t)number, all))
        number += step;
    CPU_SET((size_t)number, &one);
    return one;
}

bool bench_stay(enum bench_place place)
{
    static cpu_set_t all;
    static bool is_known;
    if (!is_known && sched_getaffinity(0, sizeof(all), &all) != 0)
        return false;
    is_known = true;
    const cpu_set_t there = place == BENCH_FIRST  ? only(&all, 0, 1)
                            : place == BENCH_LAST ? only(&all, CPU_SETSIZE - 1, -1)
                                                  : all;
    sched_setaffinity(0, sizeof(there), &there);
    return true;
}

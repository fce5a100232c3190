/* vouch.c -- see vouch.h.
 *
 * One look at /proc finds the sockets of all our workers, and the store asks in bursts: when a hundred workers have
 * connected, the first question pays for the look and the others are answered from it. Only a socket that is not in
 * the list, because it is younger, makes us look again. */
#include "node/vouch.h"

#include "base/endpoint.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the connection's inode ------------------------------------------------------------------------------- */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* One end, as the kernel wants it; the address family, or 0 when the text is no literal address. */
static int put_end(const char *text, __be32 address[static 4], __be16 *port)
{
    struct endpoint end;
    if (endpoint_parse(text, 0, &end, NULL) != DDP_OK)
        return 0;
    *port = htons((uint16_t)end.port);
    if (inet_pton(AF_INET, end.host, address) == 1)
        return AF_INET;
    return inet_pton(AF_INET6, end.host, address) == 1 ? AF_INET6 : 0;
}

/* Without NLM_F_DUMP and with all four numbers: a lookup in the kernel's hash table. A dump of a machine
 * with 10,000 connections takes milliseconds for each question. */
static bool ask(int fd, const char *ours, const char *theirs)
{
    struct question q = {
        .head = { .nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
        .body = { .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u }
    };
    struct inet_diag_sockid *id = &q.body.id;
    int family = put_end(ours, id->idiag_src, &id->idiag_sport);
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (family == 0 || put_end(theirs, id->idiag_dst, &id->idiag_dport) != family)
        return false;
    q.body.sdiag_family = (uint8_t)family;
    return send(fd, &q, sizeof(q), 0) == (ssize_t)sizeof(q);
}

/* The answer lies there when send returns. One that has been closed by its process (FIN_WAIT ...) belongs to nobody
 * any more, and the kernel shows it with inode 0. */
static uint64_t answer(int fd)
{
    union {
        struct nlmsghdr head;
        char room[1024];
    } reply;
    ssize_t n = recv(fd, &reply, sizeof(reply), MSG_DONTWAIT);
    const struct inet_diag_msg *msg = NLMSG_DATA(&reply.head);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof(*msg)) || reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return 0;
    bool is_held = msg->idiag_state == TCP_ESTABLISHED || msg->idiag_state == TCP_CLOSE_WAIT;
    return is_held ? msg->idiag_inode : 0;
}

/* A socket for each question: it needs no rights, and one that stays open would be another handle to close. */
uint64_t vouch_inode(const char *ours, const char *theirs)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return 0;
    uint64_t inode = ask(fd, ours, theirs) ? answer(fd) : 0;
    close(fd);
    return inode;
}

/* --- the sockets of our workers --------------------------------------------------------------------------- */

struct vouch_socket {
    uint64_t inode;
    struct vouch_process process;
};

/* Of 32-bit numbers a difference would do; inodes have 64. */
static int by_inode(const void *a, const void *b)
{
    uint64_t x = ((const struct vouch_socket *)a)->inode, y = ((const struct vouch_socket *)b)->inode;
    return (x > y) - (x < y);
}

/* "socket:[88213]" -> 88213, 0 for anything else. */
static uint64_t inode_of_link(int dir, const char *name)
{
    char link[64];
    unsigned long long inode;
    ssize_t n = readlinkat(dir, name, link, sizeof(link) - 1);
    if (n <= 0)
        return 0;
    link[n] = '\0';
    return sscanf(link, "socket:[%llu]", &inode) == 1 ? inode : 0;
}

/* Memory that is short leaves sockets out: they are nobody's then. */
static void look_at_process(struct vouch *v, struct vouch_process process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)process.pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct vouch_socket s = { inode_of_link(dirfd(dir), entry->d_name), process };
        if (s.inode != 0)
            (void)buf_append(&v->sockets, &s, sizeof(s));
    }
    if (dir != NULL)
        closedir(dir);
}

/* The children of one thread are put behind `family`. They inherit the rank: a data loader's connection is
 * its worker's. */
static void add_children(struct buf *family, const char *path, int rank)
{
    int pid;
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1) {
        struct vouch_process child = { pid, rank };
        if (!buf_append(family, &child, sizeof(child)))
            break;
    }
    if (file != NULL)
        fclose(file);
}

/* A child belongs to the thread that has made it. */
static void add_all_children(struct buf *family, struct vouch_process of)
{
    char path[400];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)of.pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)of.pid, entry->d_name);
        add_children(family, path, of.rank);
    }
    if (dir != NULL)
        closedir(dir);
}

/* The list grows while it is walked: workers first, then children, then theirs. So each entry is copied out
 * before anything is appended, which may move the array. A family cannot be circular, and one that forks on
 * while we look is cut by its own speed: what is not seen now is looked for with the next question. */
static void look(struct vouch *v, const struct vouch_process *workers, size_t n)
{
    struct buf family = { 0 };
    v->sockets.len = 0;
    bool ok = buf_append(&family, workers, n * sizeof(*workers));
    for (size_t i = 0; ok && i < family.len / sizeof(*workers); i++) {
        struct vouch_process process = ((const struct vouch_process *)(const void *)family.data)[i];
        look_at_process(v, process);
        add_all_children(&family, process);
    }
    buf_free(&family);
    if (v->sockets.len > 0)
        qsort(v->sockets.data, v->sockets.len / sizeof(struct vouch_socket), sizeof(struct vouch_socket),
              by_inode);
}

/* A socket may be held by several, a worker and what it has forked: any of them names the rank. */
static bool known(const struct vouch *v, uint64_t inode, struct vouch_process *found)
{
    struct vouch_socket key = { .inode = inode };
    const struct vouch_socket *s = NULL;
    if (v->sockets.len > 0)
        s = bsearch(&key, v->sockets.data, v->sockets.len / sizeof(key), sizeof(key), by_inode);
    if (s != NULL)
        *found = s->process;
    return s != NULL;
}

/* An inode's number may be used again by another process's socket; so the list is believed only about a process that
 * still lives, which is as good as looking again for what it is used for. */
static bool known_and_alive(const struct vouch *v, uint64_t inode, struct vouch_process *found)
{
    char path[64];
    if (!known(v, inode, found))
        return false;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)found->pid);
    return access(path, F_OK) == 0;
}

bool vouch_find(struct vouch *v, const struct vouch_process *workers, size_t n, const char *ours,
                const char *theirs, struct vouch_process *found)
{
    uint64_t inode = n > 0 ? vouch_inode(ours, theirs) : 0;
    if (inode == 0)
        return false;
    if (known_and_alive(v, inode, found))
        return true;
    look(v, workers, n);
    return known(v, inode, found);
}

/* The list is all that is kept between two questions. */
void vouch_free(struct vouch *v)
{
    buf_free(&v->sockets);
}

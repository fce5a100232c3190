/* peer_lookup.c -- see peer_lookup.h. One walk through /proc finds the sockets of all workers and their descendants. So
 * when a hundred workers connect, one walk answers all questions of the store. A question about a newer socket waits
 * for the next walk, because otherwise an unknown client could cause a walk with each connection. */
#include "net/peer_lookup.h"

#include "base/endpoint.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the connection's owner ------------------------------------------------------------------------------- */

/* Parse an address with a port. Return false for other texts. */
static bool parse_end(const char *text, struct sockaddr_storage *out)
{
    struct endpoint end;
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;
    *out = (struct sockaddr_storage){ 0 };
    if (endpoint_parse(text, 0, &end, NULL) != DDP_OK)
        return false;
    v4->sin_port =
        htons((uint16_t)end.port); /* the port is at the same offset in sockaddr_in and sockaddr_in6 */
    if (inet_pton(AF_INET, end.host, &v4->sin_addr) == 1) {
        out->ss_family = AF_INET;
        return true;
    }
    out->ss_family = AF_INET6;
    return inet_pton(AF_INET6, end.host, &v6->sin6_addr) == 1;
}

/* Find the owner of a socket on this host. Return false if no process holds the socket. */
static bool peer_lookup_owner(struct peer_lookup *v, const char *ours, const char *theirs,
                              struct socket_owner *owner)
{
    struct sockaddr_storage near, far;
    return parse_end(ours, &near) && parse_end(theirs, &far) &&
           socket_owner_find(&v->owners, (struct sockaddr *)&near, (struct sockaddr *)&far, owner) ==
               SOCKET_OPEN;
}

/* Search again with v->own in place of the address in `ours`, because a router may have translated the address. Such a
 * router usually keeps the port. */
static bool translated_owner(struct peer_lookup *v, const char *ours, const char *theirs,
                             struct socket_owner *owner)
{
    struct endpoint end;
    char text[ENDPOINT_TEXT_MAX];
    return v->own[0] != '\0' && endpoint_parse(ours, 0, &end, NULL) == DDP_OK &&
           strcmp(end.host, v->own) != 0 &&
           peer_lookup_owner(v, endpoint_print(v->own, end.port, text), theirs, owner);
}

/* --- the sockets of the workers --------------------------------------------------------------------------- */

enum {
    WALK_EVERY_MS = 100, /* minimum time between two walks; a question waits at most this long */
    QUESTIONS_MAX = 4096
};

struct owned_socket {
    uint64_t inode;
    struct peer_process process;
};

/* Compare two sockets by inode. A subtraction of 64-bit inodes would not fit into an int. */
static int by_inode(const void *a, const void *b)
{
    uint64_t x = ((const struct owned_socket *)a)->inode, y = ((const struct owned_socket *)b)->inode;
    return (x > y) - (x < y);
}

/* Return 88213 for "socket:[88213]", and 0 for any other text. */
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

/* Add the sockets of a process. If memory is short, sockets are left out. */
static void check_process(struct peer_lookup *v, struct peer_process process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)process.pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct owned_socket s = { inode_of_link(dirfd(dir), entry->d_name), process };
        if (s.inode != 0)
            (void)buf_append(&v->sockets, &s, sizeof(s));
    }
    if (dir != NULL)
        closedir(dir);
}

/* Append the child processes of one thread to `family`, with the rank of their worker. Data loaders are such children,
 * and they connect to the store, too. */
static void add_children(struct buf *family, const char *path, int rank)
{
    int pid;
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1) {
        struct peer_process child = { pid, rank };
        if (!buf_append(family, &child, sizeof(child)))
            break;
    }
    if (file != NULL)
        fclose(file);
}

/* Append the children of all threads, because the kernel lists a child only under the thread that created the
 * child. */
static void add_all_children(struct buf *family, struct peer_process of)
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

/* Walk through all workers and their descendants. The list `family` grows during the walk, so each entry is copied
 * before the array may move. */
static void walk_processes(struct peer_lookup *v, const struct peer_process *workers, size_t n)
{
    struct buf family = { 0 };
    v->sockets.len = 0;
    bool ok = buf_append(&family, workers, n * sizeof(*workers));
    for (size_t i = 0; ok && i < family.len / sizeof(*workers); i++) {
        struct peer_process process = ((const struct peer_process *)(const void *)family.data)[i];
        check_process(v, process);
        add_all_children(&family, process);
    }
    buf_free(&family);
    if (v->sockets.len > 0)
        qsort(v->sockets.data, v->sockets.len / sizeof(struct owned_socket), sizeof(struct owned_socket),
              by_inode);
}

/* Find a process that has the socket. If several processes have the socket, any of them is correct, because they
 * belong to the same worker. */
static bool known(const struct peer_lookup *v, uint64_t inode, struct peer_process *found)
{
    struct owned_socket key = { .inode = inode };
    const struct owned_socket *s = NULL;
    if (v->sockets.len > 0)
        s = bsearch(&key, v->sockets.data, v->sockets.len / sizeof(key), sizeof(key), by_inode);
    if (s != NULL)
        *found = s->process;
    return s != NULL;
}

/* Find the process that had the socket during the last walk through the processes. Return false if no process had the
 * socket. Return false also if the process has ended, because another socket may now have the same inode number. */
static bool known_and_alive(const struct peer_lookup *v, uint64_t inode, struct peer_process *found)
{
    char path[64];
    if (!known(v, inode, found))
        return false;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)found->pid);
    return access(path, F_OK) == 0;
}

/* --- questions -------------------------------------------------------------------------------------------- */

enum peer_answer peer_lookup_find(struct peer_lookup *v, const char *ours, const char *theirs,
                                  struct peer_process *found, struct socket_owner *owner)
{
    if (!peer_lookup_owner(v, ours, theirs, owner) && !translated_owner(v, ours, theirs, owner))
        return PEER_CLOSED;
    if (owner->uid != geteuid()) /* sock_diag reports the uid, so no walk is needed */
        return PEER_FOREIGN;
    return known_and_alive(v, owner->inode, found) ? PEER_FOUND : PEER_UNKNOWN;
}

uint64_t peer_lookup_put_off(struct peer_lookup *v, const struct peer_question *question, uint64_t now_ms)
{
    if (v->questions.len / sizeof(*question) >= QUESTIONS_MAX ||
        !buf_append(&v->questions, question, sizeof(*question)))
        return UINT64_MAX;
    return v->next_walk_ms > now_ms ? v->next_walk_ms : now_ms;
}

void peer_lookup_walk(struct peer_lookup *v, const struct peer_process *workers, size_t n, uint64_t now_ms)
{
    v->walks++;
    v->next_walk_ms = now_ms + WALK_EVERY_MS;
    walk_processes(v, workers, n);
}

bool peer_lookup_next(struct peer_lookup *v, struct peer_question *question, bool *is_found,
                      struct peer_process *found)
{
    if (v->questions.len < sizeof(*question))
        return false;
    v->questions.len -= sizeof(*question);
    memcpy(question, v->questions.data + v->questions.len, sizeof(*question));
    *is_found = known(v, question->inode, found);
    return true;
}

bool peer_lookup_knows(const struct peer_lookup *v, uint64_t inode)
{
    struct peer_process found;
    return known(v, inode, &found);
}

void peer_lookup_free(struct peer_lookup *v)
{
    socket_owners_close(&v->owners);
    buf_free(&v->questions);
    buf_free(&v->sockets);
}

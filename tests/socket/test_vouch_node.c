/* Whose connection is that? Real sockets, real processes. */
#include "base/endpoint.h"
#include "net/peer_lookup.h"
#include "run.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void serve_all(void)
{
    serve_with(&(struct store_server_options){
        .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT, .insecure = true });
}

TestSuite(vouch_node, .init = serve_all, .fini = serve_end, .timeout = 120);

struct ends {
    char ours[ENDPOINT_TEXT_MAX], theirs[ENDPOINT_TEXT_MAX];
};

static struct ends ends_of(int fd)
{
    struct sockaddr_storage at = { 0 };
    struct ends e;
    socklen_t len = sizeof(at);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    endpoint_of_sockaddr((struct sockaddr *)&at, e.ours);
    len = sizeof(at);
    cr_assert_eq(getpeername(fd, (struct sockaddr *)&at, &len), 0);
    endpoint_of_sockaddr((struct sockaddr *)&at, e.theirs);
    return e;
}

/* A worker that holds `fd`, itself or (deep) by a grandchild that has left its session; we close ours. */
static pid_t worker_with(int fd, bool deep)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (deep && fork() != 0) {
            close(fd);
        } else if (deep) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setsid();
        }
        for (;;)
            pause();
    }
    cr_assert_gt(pid, 0);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(vouch_node, an_open_connection_has_an_owner)
{
    int fd = peer_connect(served_port());
    struct ends e = ends_of(fd);
    struct vouch v = { 0 };
    struct socket_owner owner;
    cr_assert(vouch_owner(&v, e.ours, e.theirs, &owner));
    cr_assert_eq(owner.uid, geteuid());
    close(fd);
    cr_assert_not(vouch_owner(&v, e.ours, e.theirs, &owner));
    cr_assert_not(vouch_owner(&v, "no address", e.theirs, &owner));
    cr_assert_not(vouch_owner(&v, "[::1]:4", "127.0.0.1:4", &owner));
    vouch_free(&v);
}

/* A connection of ours whose other end the server has, held by nobody but the new worker. */
static struct vouch_process worker_of(int rank, bool deep, struct ends *e)
{
    int fd = peer_connect_c(served_port());
    *e = ends_of(fd);
    struct vouch_process worker = { worker_with(fd, deep), rank };
    close(fd);
    return worker;
}

/* By the list, else by a walk. */
static bool find(struct vouch *v, const struct vouch_process *workers, size_t n, const struct ends *e,
                 struct vouch_process *found)
{
    struct socket_owner owner;
    struct vouch_question q = { .conn = 7 };
    bool is_found = false;
    const enum vouch_answer answer = vouch_find(v, e->ours, e->theirs, found, &owner);
    if (answer != VOUCH_UNKNOWN)
        return answer == VOUCH_FOUND;
    q.inode = owner.inode;
    cr_assert_neq(vouch_put_off(v, &q, 0), UINT64_MAX);
    vouch_walk(v, workers, n, 0);
    cr_assert(vouch_next(v, &q, &is_found, found));
    cr_assert_eq(q.conn, 7);
    return is_found;
}

Test(vouch_node, the_worker_that_holds_it_is_found)
{
    struct ends a, b;
    struct vouch_process found, worker[2] = { worker_of(4, false, &a), worker_of(5, false, &b) };
    struct vouch v = { 0 };
    cr_assert(find(&v, worker, 2, &b, &found));
    cr_assert(found.rank == 5 && found.pid == worker[1].pid);
    cr_assert(find(&v, worker, 2, &a, &found));
    cr_assert(found.rank == 4 && found.pid == worker[0].pid);
    end(worker[0].pid);
    cr_assert_not(find(&v, worker, 2, &a, &found));
    end(worker[1].pid);
    vouch_free(&v);
}

/* "bash train.sh" and what it starts; a session of its own hides nobody. */
Test(vouch_node, a_grandchild_s_connection_is_its_worker_s)
{
    struct ends e;
    struct vouch_process found, worker = worker_of(7, true, &e);
    bool ok = false;
    for (struct patience p = { 0 };
         !ok && patience_left(&p);) { /* until the worker has closed its own copy */
        struct vouch v = { 0 };
        ok = find(&v, &worker, 1, &e, &found) && found.pid != worker.pid;
        vouch_free(&v);
    }
    cr_assert(ok && found.rank == 7);
    kill(found.pid, SIGKILL);
    end(worker.pid);
}

Test(vouch_node, a_stranger_s_connection_is_nobody_s)
{
    struct ends a, b;
    struct vouch_process found, worker = worker_of(0, false, &a), stranger = worker_of(0, false, &b);
    struct vouch v = { 0 };
    cr_assert_not(find(&v, &worker, 1, &b, &found));
    vouch_free(&v);
    v = (struct vouch){ 0 };
    cr_assert_not(find(&v, NULL, 0, &a, &found));
    end(worker.pid);
    end(stranger.pid);
    vouch_free(&v);
}

/* 366 connections a second from a stranger must not cost 366 walks through /proc. */
Test(vouch_node, walks_are_a_tenth_of_a_second_apart)
{
    enum { SECOND_MS = 1000 };
    struct ends e;
    struct vouch_process found, stranger = worker_of(0, false, &e);
    struct vouch_question q = { 0 };
    struct socket_owner owner;
    struct vouch v = { 0 };
    bool is_found;
    unsigned answered = 0;
    for (uint64_t now_ms = 5000, walk_ms = UINT64_MAX; now_ms < 5000 + SECOND_MS; now_ms++) {
        cr_assert_eq(vouch_find(&v, e.ours, e.theirs, &found, &owner), VOUCH_UNKNOWN);
        const uint64_t at_ms = vouch_put_off(&v, &q, now_ms);
        cr_assert(at_ms >= now_ms && at_ms < now_ms + 100);
        walk_ms = at_ms < walk_ms ? at_ms : walk_ms;
        if (walk_ms > now_ms)
            continue;
        vouch_walk(&v, NULL, 0, now_ms);
        walk_ms = UINT64_MAX;
        for (; vouch_next(&v, &q, &is_found, &found); answered++)
            cr_assert_not(is_found);
    }
    cr_expect_eq(v.walks, SECOND_MS / 100);
    cr_expect_geq(answered, SECOND_MS - 100);
    end(stranger.pid);
    vouch_free(&v);
}

Test(vouch_node, another_user_s_connection_costs_no_walk)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can run a process of another user");
    struct ends e;
    int up[2];
    cr_assert_eq(pipe(up), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setuid(NOBODY) != 0)
            _exit(1);
        e = ends_of(peer_connect(served_port()));
        (void)!write(up[1], &e, sizeof(e));
        for (;;)
            pause();
    }
    cr_assert_eq(read(up[0], &e, sizeof(e)), (ssize_t)sizeof(e));
    struct vouch v = { 0 };
    struct vouch_process found;
    struct socket_owner owner;
    cr_expect_eq(vouch_find(&v, e.ours, e.theirs, &found, &owner), VOUCH_FOREIGN);
    cr_expect_eq(owner.uid, NOBODY);
    end(pid);
    vouch_free(&v);
}

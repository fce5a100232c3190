/* Whose connection is that? Real sockets, real processes. */
#include "base/endpoint.h"
#include "node/vouch.h"
#include "patience.h"
#include "peer.h"
#include "served.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(vouch_node, .init = serve, .fini = serve_end, .timeout = 120);

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

Test(vouch_node, the_worker_that_holds_it_is_found)
{
    struct ends a, b;
    struct vouch_process found, worker[2] = { worker_of(4, false, &a), worker_of(5, false, &b) };
    struct vouch v = { 0 };
    cr_assert(vouch_find(&v, worker, 2, b.ours, b.theirs, &found));
    cr_assert(found.rank == 5 && found.pid == worker[1].pid);
    cr_assert(vouch_find(&v, worker, 2, a.ours, a.theirs, &found));
    cr_assert(found.rank == 4 && found.pid == worker[0].pid);
    end(worker[0].pid);
    cr_assert_not(vouch_find(&v, worker, 2, a.ours, a.theirs, &found));
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
        ok = vouch_find(&v, &worker, 1, e.ours, e.theirs, &found) && found.pid != worker.pid;
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
    cr_assert_not(vouch_find(&v, &worker, 1, b.ours, b.theirs, &found));
    cr_assert_not(vouch_find(&v, NULL, 0, a.ours, a.theirs, &found));
    end(worker.pid);
    end(stranger.pid);
    vouch_free(&v);
}

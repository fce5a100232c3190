/* test_listener.c -- several servers compete for the same port, and exactly one gets it. The servers are threads
 * that start at the same moment, because a race for a port is a matter of microseconds. */
#include "run.h"

#include "server/listen.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { RIVALS = 3, ROUNDS = 100 };

struct rival {
    pthread_t thread;
    pthread_barrier_t *start;
    int port;
    struct listener listener;
    struct ddp_err err;
    ddp_status status;
};

static void *rival_main(void *arg)
{
    struct rival *r = arg;
    pthread_barrier_wait(r->start);
    r->status = listener_open("127.0.0.1", r->port, "--listen", &r->listener, &r->err);
    return NULL;
}

/* Let all rivals listen on the same port at once, then close the listeners. Return how many rivals got the port. */
static int race(struct rival rivals[RIVALS])
{
    pthread_barrier_t start;
    int winners = 0;
    pthread_barrier_init(&start, NULL, RIVALS);
    const int port = free_port();
    for (int i = 0; i < RIVALS; i++) {
        rivals[i] = (struct rival){ .start = &start, .port = port };
        cr_assert_eq(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < RIVALS; i++)
        pthread_join(rivals[i].thread, NULL);
    for (int i = 0; i < RIVALS; i++)
        if (rivals[i].status == DDP_OK) {
            winners++;
            close(rivals[i].listener.fd);
        }
    pthread_barrier_destroy(&start);
    return winners;
}

Test(listener, of_those_who_come_at_once_exactly_one_gets_the_port)
{
    struct rival rivals[RIVALS];
    for (int round = 0; round < ROUNDS; round++)
        cr_assert_eq(race(rivals), 1, "round %d: %s; %s; %s", round, rivals[0].err.msg, rivals[1].err.msg,
                     rivals[2].err.msg);
}

static int refusals;

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);

int __wrap_listen(int fd, int backlog)
{
    if (refusals == 0)
        return __real_listen(fd, backlog);
    refusals--;
    errno = EADDRINUSE;
    return -1;
}

Test(listener, who_has_met_another_on_the_same_way_tries_again)
{
    struct listener listener;
    struct ddp_err err;
    refusals = 3;
    cr_assert_eq(listener_open("127.0.0.1", free_port(), "--listen", &listener, &err), DDP_OK, "%s", err.msg);
    close(listener.fd);
}

Test(listener, who_is_refused_every_time_gives_up)
{
    struct listener listener;
    struct ddp_err err;
    refusals = 1000;
    cr_expect_eq(listener_open("127.0.0.1", free_port(), "--listen", &listener, &err), DDP_ERR_IO);
    cr_expect_gt(refusals, 0);
}

Test(listener, who_comes_later_is_told_who_has_it)
{
    struct listener first, second;
    struct ddp_err err;
    const int port = free_port();
    cr_assert_eq(listener_open("127.0.0.1", port, "--listen", &first, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(listener_open("127.0.0.1", port, "--listen", &second, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, "in use"), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "another --listen"), "%s", err.msg);
    close(first.fd);
}

/* The kernel refuses port 1 to a process without privileges, unless ip_unprivileged_port_start is 0 or 1. */
Test(listener, who_may_not_have_the_port_is_told_the_lowest)
{
    struct listener listener;
    struct ddp_err err;
    char text[64];
    int lowest = 1024;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    if (file != NULL) {
        cr_assert_eq(fscanf(file, "%d", &lowest), 1);
        fclose(file);
    }
    if (lowest <= 1)
        cr_skip_test("this host permits port 1 to all users");
    const uid_t uid = geteuid();
    if (uid == 0 && seteuid(65534) != 0)
        cr_skip_test("skipped, because this namespace has no other user");
    const ddp_status status = listener_open("127.0.0.1", 1, "--listen", &listener, &err);
    cr_assert_eq(seteuid(uid), 0);
    prctl(PR_SET_DUMPABLE, 1); /* LeakSanitizer needs this flag, which seteuid has cleared */
    cr_assert_eq(status, DDP_ERR_IO);
    snprintf(text, sizeof(text), " %d (net.ipv4.", lowest);
    cr_expect_not_null(strstr(err.msg, text), "%s", err.msg);
}

/* test_doorbell.c -- a loop that another thread wakes, also while the loop's thread has a real-time priority. */
#include "output/output.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(doorbell, .timeout = 120);

enum { RINGS = 20 };

static uv_loop_t loop;
static struct doorbell bell;
static atomic_int heard;

static void on_rung(void *user)
{
    cr_assert_eq(user, &heard);
    if (atomic_fetch_add(&heard, 1) + 1 == RINGS)
        doorbell_close(&bell, NULL);
}

/* Each is heard before the next. */
static void *ring(void *unused)
{
    (void)unused;
    for (int i = 0; i < RINGS; i++) {
        doorbell_ring(&bell);
        while (atomic_load(&heard) == i)
            sched_yield();
    }
    return NULL;
}

static void listen_to_rings(void)
{
    pthread_t ringer;
    pthread_attr_t usual;
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert(doorbell_open(&bell, &loop, on_rung, &heard));
    pthread_attr_init(&usual);
    pthread_attr_setinheritsched(&usual, PTHREAD_EXPLICIT_SCHED); /* SCHED_OTHER */
    cr_assert_eq(pthread_create(&ringer, &usual, ring, NULL), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(ringer, NULL);
    pthread_attr_destroy(&usual);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(atomic_load(&heard), RINGS);
}

Test(doorbell, every_ring_is_heard)
{
    listen_to_rings();
}

/* The ringer is pushed off the processor by each ring. A loop that waited for it there would burn a second for each, until
 * the kernel takes the processor away from it. */
Test(doorbell, who_is_served_first_does_not_wait_for_the_ringer)
{
    cpu_set_t one;
    struct rusage used;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    if (sched_setscheduler(0, SCHED_RR, &(struct sched_param){ .sched_priority = 1 }) != 0)
        cr_skip_test("skipped, because we may not be served first here: %s", strerror(errno));
    listen_to_rings();
    getrusage(RUSAGE_THREAD, &used);
    cr_expect_lt(used.ru_utime.tv_sec, 2, "%ld s of the processor for %d rings", used.ru_utime.tv_sec, RINGS);
}

/* Work that hangs is left behind, and frees what it has when it comes to its end after all. */
#include "output/disk_watch.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>

enum { FOR_EVER_MS = 60000 };

TestSuite(aside, .timeout = 120);

struct hanging {
    sem_t go_on, released;
    pthread_t thread;
    bool ended;
};

static void await(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        continue;
}

static void hang(void *user)
{
    struct hanging *hanging = user;
    hanging->thread = pthread_self();
    await(&hanging->go_on);
    hanging->ended = true;
}

static void release(void *user)
{
    sem_post(&((struct hanging *)user)->released);
}

static void make(struct hanging *hanging)
{
    *hanging = (struct hanging){ .thread = pthread_self() };
    sem_init(&hanging->go_on, 0, 0);
    sem_init(&hanging->released, 0, 0);
}

Test(aside, what_ends_in_time_is_done_on_another_thread)
{
    struct hanging hanging;
    int released;
    make(&hanging);
    sem_post(&hanging.go_on);
    cr_expect(aside_run(&(struct aside){ hang, release, &hanging }, FOR_EVER_MS));
    cr_expect(hanging.ended);
    cr_expect(!pthread_equal(hanging.thread, pthread_self()));
    sem_getvalue(&hanging.released, &released);
    cr_expect_eq(released, 0, "it is the caller's again");
}

Test(aside, what_hangs_is_left_behind_with_what_it_has)
{
    struct hanging hanging;
    make(&hanging);
    cr_expect_not(aside_run(&(struct aside){ hang, release, &hanging }, 20));
    sem_post(&hanging.go_on);
    await(&hanging.released);
    cr_expect(hanging.ended);
}

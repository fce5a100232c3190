/* The last words reach who reads slowly, and wait for nobody who does not read. */
#include "output/writer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 1 << 20, FOR_EVER_MS = 60000 };

static int ends[2];
static char *text;

static void make(void)
{
    signal(SIGPIPE, SIG_IGN);
    text = malloc(MANY);
    memset(text, 'x', MANY);
    cr_assert_eq(pipe(ends), 0);
}

static void done(void)
{
    close(ends[0]);
    close(ends[1]);
    free(text);
}

TestSuite(patient_write, .init = make, .fini = done, .timeout = 120);

static void *read_slowly(void *got)
{
    char bite[1000];
    for (ssize_t n; *(size_t *)got < MANY && (n = read(ends[0], bite, sizeof(bite))) > 0;)
        *(size_t *)got += (size_t)n;
    return NULL;
}

static void expect_all_read(void)
{
    pthread_t thread;
    size_t got = 0;
    cr_assert_eq(pthread_create(&thread, NULL, read_slowly, &got), 0);
    cr_expect_eq(patient_write(ends[1], slice_of(text, MANY), FOR_EVER_MS), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(got, MANY);
}

Test(patient_write, all_of_it_comes_to_a_reader)
{
    expect_all_read();
}

/* Who made it so may be the user's shell. */
Test(patient_write, also_through_a_descriptor_that_does_not_block)
{
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    expect_all_read();
}

/* Nearly full, as a pipe is after a reader has stopped: there is room, but not for all. */
Test(patient_write, nobody_who_does_not_read_is_waited_for)
{
    cr_expect_eq(patient_write(ends[1], slice_of(text, MANY), 1), ETIMEDOUT);
    cr_expect_eq(read(ends[0], text, 5000), 5000);
    cr_expect_eq(patient_write(ends[1], slice_of(text, 20000), 1), ETIMEDOUT);
}

Test(patient_write, a_reader_who_is_gone_is_an_error)
{
    close(ends[0]);
    cr_expect_eq(patient_write(ends[1], slice_of(text, 10), FOR_EVER_MS), EPIPE);
    ends[0] = open("/dev/null", O_RDONLY);
}

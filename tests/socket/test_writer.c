/* test_writer.c -- the writer's thread and the sinks on it: everything comes out, in order, in whole pieces. */
#include "writer.h"

#include "procstat.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(writer, .timeout = 20);

static int pipe_fds[2];
static atomic_int progressed;

static void on_progress(void *user)
{
    (void)user;
    atomic_fetch_add(&progressed, 1);
}

static void open_pipe(void)
{
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
}

/* Read `n` bytes, or what comes until the end of file. */
static size_t read_n(char *to, size_t n)
{
    size_t got = 0;
    for (ssize_t r; got < n && (r = read(pipe_fds[0], to + got, n - got)) > 0;)
        got += (size_t)r;
    return got;
}

Test(writer, bytes_come_out_in_order, .init = open_pipe)
{
    enum { PIECES = 2000 };
    char text[64], got[64];
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    for (int i = 0; i < PIECES; i++) {
        snprintf(text, sizeof(text), "piece %06d\n", i);
        writer_put(w, slot, slice_str(text));
    }
    for (int i = 0; i < PIECES; i++) {
        snprintf(text, sizeof(text), "piece %06d\n", i);
        cr_assert_eq(read_n(got, strlen(text)), strlen(text));
        cr_assert_arr_eq(got, text, strlen(text));
    }
    writer_free(w);
    close(pipe_fds[0]);
}

/* Two slots on one pipe, each piece bigger than what the pipe takes at once. */
Test(writer, pieces_of_two_slots_do_not_mix, .init = open_pipe)
{
    enum { BIG = 300000, ROUNDS = 5 };
    static char a[BIG], b[BIG], got[BIG];
    struct writer *w = writer_new(on_progress, NULL);
    int first = writer_add(w, pipe_fds[1], true), second = writer_add(w, pipe_fds[1], false);
    memset(a, 'a', BIG);
    memset(b, 'b', BIG);
    for (int i = 0; i < ROUNDS; i++) {
        writer_put(w, first, slice_of(a, BIG));
        writer_put(w, second, slice_of(b, BIG));
    }
    for (int i = 0; i < 2 * ROUNDS; i++) {
        cr_assert_eq(read_n(got, BIG), BIG);
        cr_expect_arr_eq(got, got[0] == 'a' ? a : b, BIG, "piece %d is mixed", i);
    }
    writer_free(w);
    close(pipe_fds[0]);
}

Test(writer, the_queue_tells_what_is_not_yet_written, .init = open_pipe)
{
    static char big[1 << 20];
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    cr_expect_eq(writer_queued(w), 0);
    writer_put(w, slot, slice_of(big, sizeof(big)));
    cr_expect_gt(writer_queued(w), 0, "a pipe does not hold a MiB");
    cr_expect_eq(read_n(big, sizeof(big)), sizeof(big));
    while (atomic_load(&progressed) == 0)
        continue;
    cr_expect_eq(writer_queued(w), 0);
    writer_free(w);
    close(pipe_fds[0]);
}

Test(writer, a_writer_that_hangs_can_be_freed, .init = open_pipe)
{
    static char big[1 << 20];
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    writer_put(w, slot, slice_of(big, sizeof(big)));
    cr_expect_eq(read_n(big, 1), 1, "it writes");
    writer_free(w);
    close(pipe_fds[0]);
}

Test(writer, a_closed_pipe_is_an_error_that_is_kept, .init = open_pipe)
{
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    close(pipe_fds[0]);
    writer_put(w, slot, slice_str("nobody reads this"));
    while (atomic_load(&progressed) == 0)
        continue;
    cr_expect_eq(writer_error(w, slot), EPIPE);
    writer_put(w, slot, slice_str("nor this"));
    while (writer_queued(w) > 0)
        continue;
    cr_expect_eq(writer_error(w, slot), EPIPE);
    writer_free(w);
}

/* A terminal may have been made non-blocking by somebody who shares it. */
Test(writer, a_non_blocking_descriptor_is_waited_for, .init = open_pipe)
{
    static char big[1 << 20];
    fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    writer_put(w, slot, slice_of(big, sizeof(big)));
    cr_expect_eq(read_n(big, sizeof(big)), sizeof(big));
    while (atomic_load(&progressed) == 0)
        continue;
    cr_expect_eq(writer_error(w, slot), 0);
    writer_free(w);
    close(pipe_fds[0]);
}

Test(writer, without_bytes_there_is_no_thread)
{
    struct writer *w = writer_new(on_progress, NULL);
    writer_add(w, STDOUT_FILENO, false);
    writer_free(w);
}

/* No address space is left for a thread's stack. */
Test(writer, without_room_for_a_thread_nothing_is_lost, .init = open_pipe)
{
    struct rlimit before, none = { 0 };
    char got[16] = "";
    if (procstat_is_sanitized(getpid()))
        cr_skip_test("skipped, because a sanitizer needs address space of its own");
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    getrlimit(RLIMIT_AS, &before);
    none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_AS, &none);
    writer_put(w, slot, slice_str("hello\n"));
    setrlimit(RLIMIT_AS, &before);
    cr_expect_eq(writer_error(w, slot), 0);
    cr_expect_eq(writer_queued(w), 0);
    cr_expect_eq(read_n(got, 6), 6);
    cr_expect_str_eq(got, "hello\n");
    writer_free(w);
    close(pipe_fds[0]);
}

/* Tests of the writer's thread and of the sinks that use it. All bytes arrive, in order and in whole pieces. */
#include "output/disk_watch.h"
#include "base/timed_call.h"
#include "output/output.h"
#include "output/writer.h"
#include "procstat.h"
#include "run.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(writer, .timeout = 120);

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

/* Read `n` bytes, or up to the end of file. */
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
        writer_append(w, slot, slice_str(text));
    }
    for (int i = 0; i < PIECES; i++) {
        snprintf(text, sizeof(text), "piece %06d\n", i);
        cr_assert_eq(read_n(got, strlen(text)), strlen(text));
        cr_assert_arr_eq(got, text, strlen(text));
    }
    writer_free(w);
    close(pipe_fds[0]);
}

/* Two slots write to one pipe. Each piece is bigger than the free space of the pipe. */
Test(writer, pieces_of_two_slots_do_not_mix, .init = open_pipe)
{
    enum { BIG = 300000, ROUNDS = 5 };
    static char a[BIG], b[BIG], got[BIG];
    struct writer *w = writer_new(on_progress, NULL);
    int first = writer_add(w, pipe_fds[1], true), second = writer_add(w, pipe_fds[1], false);
    memset(a, 'a', BIG);
    memset(b, 'b', BIG);
    for (int i = 0; i < ROUNDS; i++) {
        writer_append(w, first, slice_of(a, BIG));
        writer_append(w, second, slice_of(b, BIG));
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
    writer_append(w, slot, slice_of(big, sizeof(big)));
    cr_expect_gt(writer_queued(w), 0, "a pipe does not hold a MiB");
    cr_expect_eq(read_n(big, sizeof(big)), sizeof(big));
    for (struct patience p = { 0 }; writer_queued(w) > 0 && patience_left(&p);)
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
    writer_append(w, slot, slice_of(big, sizeof(big)));
    cr_expect_eq(read_n(big, 1), 1, "it writes");
    writer_free(w);
    close(pipe_fds[0]);
}

Test(writer, a_closed_pipe_is_an_error_that_is_kept, .init = open_pipe)
{
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    close(pipe_fds[0]);
    writer_append(w, slot, slice_str("without a reader"));
    while (atomic_load(&progressed) == 0)
        continue;
    cr_expect_eq(writer_state(w, slot).error, EPIPE);
    writer_append(w, slot, slice_str("nor this"));
    while (writer_queued(w) > 0)
        continue;
    cr_expect_eq(writer_state(w, slot).error, EPIPE);
    writer_free(w);
}

/* Another process that shares the terminal may have made the descriptor non-blocking. */
Test(writer, a_non_blocking_descriptor_is_waited_for, .init = open_pipe)
{
    static char big[1 << 20];
    fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    writer_append(w, slot, slice_of(big, sizeof(big)));
    cr_expect_eq(read_n(big, sizeof(big)), sizeof(big));
    while (atomic_load(&progressed) == 0)
        continue;
    cr_expect_eq(writer_state(w, slot).error, 0);
    writer_free(w);
    close(pipe_fds[0]);
}

static nlink_t tasks(void)
{
    struct stat st;
    cr_assert_eq(stat("/proc/self/task", &st), 0);
    return st.st_nlink;
}

Test(writer, without_bytes_there_is_no_thread, .init = open_pipe)
{
    char got[1];
    const nlink_t before = tasks();
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    cr_expect_eq(tasks(), before);
    writer_append(w, slot, slice_str("x"));
    cr_expect_eq(read_n(got, 1), 1);
    cr_expect_eq(tasks(), before + 1, "with bytes there is one");
    writer_free(w);
    close(pipe_fds[0]);
}

/* Put bytes while no address space is left for a thread's stack. */
static void put_without_thread(struct writer *w, int slot, const char *text)
{
    struct rlimit before, none = { 0 };
    if (procstat_is_sanitized(getpid()))
        cr_skip_test("skipped, because a sanitizer needs its own address space");
    getrlimit(RLIMIT_AS, &before);
    none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_AS, &none);
    writer_append(w, slot, slice_str(text));
    setrlimit(RLIMIT_AS, &before);
}

Test(writer, without_room_for_a_thread_nothing_is_lost, .init = open_pipe)
{
    char got[16] = "";
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    put_without_thread(w, slot, "hello\n");
    cr_expect_eq(writer_state(w, slot).error, 0);
    cr_expect_eq(writer_queued(w), 0);
    cr_expect_eq(read_n(got, 6), 6);
    cr_expect_str_eq(got, "hello\n");
    writer_free(w);
    close(pipe_fds[0]);
}

/* A disk with `room` free bytes, and its content. */
static struct disk {
    pthread_mutex_t lock;
    size_t room;
    int error;
    char got[4096];
    size_t n;
    bool closed;
    atomic_int asked; /* number of write attempts */
} disk;

static size_t disk_write(void *user, const uint8_t *data, size_t len, int *error)
{
    struct disk *d = user;
    atomic_fetch_add(&d->asked, 1);
    pthread_mutex_lock(&d->lock);
    size_t n = len < d->room ? len : d->room;
    memcpy(d->got + d->n, data, n);
    d->n += n;
    d->room -= n;
    *error = n < len ? d->error : 0;
    pthread_mutex_unlock(&d->lock);
    return n;
}

static void disk_close(void *user)
{
    ((struct disk *)user)->closed = true;
}

static void disk_gives(size_t room)
{
    pthread_mutex_lock(&disk.lock);
    disk.room = room;
    pthread_mutex_unlock(&disk.lock);
}

static struct writer *writer_on_disk(enum writer_policy policy, size_t room, int error, int *slot)
{
    struct writer *w = writer_new(on_progress, NULL);
    disk = (struct disk){ .lock = PTHREAD_MUTEX_INITIALIZER, .room = room, .error = error };
    writer_set_policy(w, policy, UINT64_MAX);
    *slot = writer_add_target(w, (struct writer_target){ disk_write, disk_close, &disk });
    return w;
}

static void until_empty(struct writer *w)
{
    while (writer_queued(w) > 0)
        sched_yield();
}

/* Expect on the disk: `before`, a line that states the number of missing bytes, and `after`. */
static void expect_gap(const char *before, int bytes, const char *after)
{
    char begin[64], end[64];
    snprintf(begin, sizeof(begin), "%s[ddprun: %d bytes ", before, bytes);
    snprintf(end, sizeof(end), "]\n%s", after);
    const size_t len = strlen(disk.got);
    cr_expect(strncmp(disk.got, begin, strlen(begin)) == 0 && len > strlen(begin) + strlen(end) &&
                  strcmp(disk.got + len - strlen(end), end) == 0,
              "%s", disk.got);
}

static void until_error(struct writer *w, int slot, int error)
{
    while (writer_state(w, slot).error != error)
        sched_yield();
}

Test(writer, a_full_disk_is_tried_again_until_it_has_room_and_nothing_is_lost)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_BLOCK, 3, ENOSPC, &slot);
    writer_append(w, slot, slice_str("hello\n"));
    until_error(w, slot, ENOSPC);
    writer_append(w, slot, slice_str("world\n"));
    cr_expect_eq(writer_queued(w), 9);
    disk_gives(sizeof(disk.got));
    until_empty(w);
    cr_expect_arr_eq(disk.got, "hello\nworld\n", 12);
    cr_expect_eq(writer_state(w, slot).dropped, 0);
    cr_expect_eq(writer_written(w), 12);
    writer_free(w);
    cr_expect(disk.closed);
}

Test(writer, dropped_bytes_are_counted_and_a_line_marks_the_hole)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_DROP, 3, ENOSPC, &slot);
    writer_append(w, slot, slice_str("hello\n"));
    until_error(w, slot, ENOSPC);
    disk_gives(sizeof(disk.got));
    writer_append(w, slot, slice_str("world\n"));
    until_empty(w);
    struct writer_state state = writer_state(w, slot);
    cr_expect_eq(state.dropped, 3);
    cr_expect_eq(state.error, 0);
    cr_expect_not(state.dropping);
    expect_gap("hel\n", 3, "world\n");
    cr_expect_eq(writer_written(w) + state.dropped, 12, "written and dropped bytes add up to the input");
    writer_free(w);
}

Test(writer, without_room_for_a_thread_what_the_disk_does_not_take_is_counted)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_BLOCK, 3, ENOSPC, &slot);
    put_without_thread(w, slot, "hello\n");
    cr_expect_eq(writer_state(w, slot).dropped, 3);
    cr_expect_eq(writer_state(w, slot).error, ENOSPC);
    cr_expect_eq(writer_written(w), 3);
    writer_free(w);
}

/* These errors are permanent, so waiting would never end. */
Test(writer, an_error_that_does_not_pass_drops_also_where_nothing_shall_be_lost)
{
    static const int errors[] = { EIO, EFBIG, EROFS };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        int slot;
        struct writer *w = writer_on_disk(WRITER_BLOCK, 0, errors[i], &slot);
        writer_append(w, slot, slice_str("lost\n"));
        until_empty(w);
        cr_expect_eq(writer_state(w, slot).dropped, 5);
        cr_expect_eq(writer_state(w, slot).error, errors[i]);
        writer_free(w);
    }
}

Test(writer, at_the_end_a_full_disk_is_not_waited_for)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_BLOCK, 0, ENOSPC, &slot);
    writer_append(w, slot, slice_str("hello\n"));
    until_error(w, slot, ENOSPC);
    writer_set_policy(w, WRITER_DROP, UINT64_MAX);
    until_empty(w);
    cr_expect_eq(writer_state(w, slot).dropped, 6);
    writer_free(w);
}

Test(writer, who_is_too_slow_loses_what_is_over_the_limit_in_one_hole, .init = open_pipe)
{
    static char big[1 << 20], got[1 << 21];
    struct writer *w = writer_new(on_progress, NULL);
    int slot = writer_add(w, pipe_fds[1], true);
    writer_set_policy(w, WRITER_DROP, 1000);
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\n';
    writer_append(w, slot, slice_of(big, sizeof(big)));
    writer_append(w, slot, slice_str("lost\n"));
    writer_append(w, slot, slice_str("lost, too\n"));
    cr_expect_eq(writer_state(w, slot).dropped, 15);
    cr_expect(writer_state(w, slot).dropping);
    cr_expect_eq(read_n(got, sizeof(big)), sizeof(big));
    until_empty(w);
    /* these bytes follow the gap, whose size is known only now */
    writer_append(w, slot, slice_str("after\n"));
    writer_append(w, slot, slice_str("end\n"));
    writer_end(w, slot);
    size_t n = read_n(got, sizeof(got) - 1);
    got[n] = '\0';
    cr_expect_not_null(strstr(got, " missing "), "%s", got);
    cr_expect_str_eq(got + n - 4, "end\n");
    writer_free(w);
    close(pipe_fds[0]);
}

/* "lost" is dropped while the thread still writes "hello". The gap must be between "hello" and "after", not at the
 * end. */
Test(writer, a_hole_behind_the_bytes_that_are_being_written_is_one_hole_and_not_the_end)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_DROP, sizeof(disk.got), 0, &slot);
    writer_set_policy(w, WRITER_DROP, 4);
    pthread_mutex_lock(&disk.lock);
    writer_append(w, slot, slice_str("hello\n"));
    while (atomic_load(&disk.asked) == 0)
        sched_yield();
    writer_append(w, slot, slice_str("lost\n"));
    cr_expect(writer_state(w, slot).dropping);
    pthread_mutex_unlock(&disk.lock);
    until_empty(w);
    writer_append(w, slot, slice_str("after\n"));
    until_empty(w);
    expect_gap("hello\n", 5, "after\n");
    cr_expect_eq(writer_state(w, slot).dropped, 5);
    cr_expect_not(writer_state(w, slot).dropping);
    writer_free(w);
}

Test(writer, a_slot_that_has_ended_is_closed_behind_its_last_byte)
{
    int slot;
    struct writer *w = writer_on_disk(WRITER_BLOCK, sizeof(disk.got), 0, &slot);
    writer_append(w, slot, slice_str("hello\n"));
    writer_end(w, slot);
    while (!writer_state(w, slot).closed)
        sched_yield();
    cr_expect(disk.closed);
    cr_expect_eq(disk.n, 6);
    writer_release(w, slot);
    cr_expect_eq(writer_add(w, -1, false), slot, "the number is given anew");
    writer_free(w);
}

/* The last bytes reach a slow reader. If a reader reads nothing, these bytes are dropped after a time limit. */

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

TestSuite(write_timeout, .init = make, .fini = done, .timeout = 120);

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
    cr_expect_eq(write_timeout(ends[1], slice_of(text, MANY), FOR_EVER_MS), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(got, MANY);
}

Test(write_timeout, all_of_it_comes_to_a_reader)
{
    expect_all_read();
}

/* The user's shell may have made the descriptor non-blocking. */
Test(write_timeout, also_through_a_descriptor_that_does_not_block)
{
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    expect_all_read();
}

/* The first call fills the pipe, because no thread reads from the pipe. The test then reads 5000 bytes. So the pipe has
 * room again, but not for the 20000 bytes of the second call. */
Test(write_timeout, nobody_who_does_not_read_is_waited_for)
{
    cr_expect_eq(write_timeout(ends[1], slice_of(text, MANY), 1), ETIMEDOUT);
    cr_expect_eq(read(ends[0], text, 5000), 5000);
    cr_expect_eq(write_timeout(ends[1], slice_of(text, 20000), 1), ETIMEDOUT);
}

Test(write_timeout, a_reader_who_is_gone_is_an_error)
{
    close(ends[0]);
    cr_expect_eq(write_timeout(ends[1], slice_of(text, 10), FOR_EVER_MS), EPIPE);
    ends[0] = open("/dev/null", O_RDONLY);
}

/* Tests of timed_call_run, which runs work on another thread and waits for this work with a time limit. If the work
 * hangs, the caller continues without the work. If this work ends later, the other thread frees the data of the
 * work. */

enum { HANGS_MS = 60000 };

TestSuite(timed_call, .timeout = 120);

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

static void make_work(struct hanging *hanging)
{
    *hanging = (struct hanging){ .thread = pthread_self() };
    sem_init(&hanging->go_on, 0, 0);
    sem_init(&hanging->released, 0, 0);
}

Test(timed_call, what_ends_in_time_is_done_on_another_thread)
{
    struct hanging hanging;
    int released;
    make_work(&hanging);
    sem_post(&hanging.go_on);
    cr_expect(timed_call_run(hang, release, &hanging, HANGS_MS));
    cr_expect(hanging.ended);
    cr_expect(!pthread_equal(hanging.thread, pthread_self()));
    sem_getvalue(&hanging.released, &released);
    cr_expect_eq(released, 0, "it is the caller's again");
}

Test(timed_call, what_hangs_is_left_behind_with_what_it_has)
{
    struct hanging hanging;
    make_work(&hanging);
    cr_expect_not(timed_call_run(hang, release, &hanging, 20));
    sem_post(&hanging.go_on);
    await(&hanging.released);
    cr_expect(hanging.ended);
}

/* Tests of a loop that another thread wakes. In one test the thread of the loop has a real-time priority. */

TestSuite(wakeup, .timeout = 120);

enum { RINGS = 20 };

static uv_loop_t loop;
static struct wakeup bell;
static atomic_int heard;

static void on_rung(void *user)
{
    cr_assert_eq(user, &heard);
    if (atomic_fetch_add(&heard, 1) + 1 == RINGS)
        wakeup_close(&bell, NULL);
}

/* Wake the loop RINGS times. Before each further wakeup, wait until the loop has handled the previous wakeup. */
static void *ring(void *unused)
{
    (void)unused;
    for (int i = 0; i < RINGS; i++) {
        wakeup_ring(&bell);
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
    cr_assert(wakeup_open(&bell, &loop, on_rung, &heard));
    pthread_attr_init(&usual);
    pthread_attr_setinheritsched(&usual, PTHREAD_EXPLICIT_SCHED); /* SCHED_OTHER */
    cr_assert_eq(pthread_create(&ringer, &usual, ring, NULL), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(ringer, NULL);
    pthread_attr_destroy(&usual);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(atomic_load(&heard), RINGS);
}

Test(wakeup, every_ring_is_heard)
{
    listen_to_rings();
}

/* The loop runs in a thread with a real-time priority, on the same processor as the thread that wakes the loop. The
 * waking thread can run only while the loop sleeps. If the loop waited for the waking thread without sleeping, each
 * wakeup would take up to a second of processor time. */
Test(wakeup, who_is_served_first_does_not_wait_for_the_ringer)
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

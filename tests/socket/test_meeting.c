/* test_meeting.c -- tests of cpu/shm.h. Only one rank is real. The other ranks do not exist: the test writes the keys
 * that these ranks would write to the store. */
#include "cpu/shm.h"

#include "base/clock.h"
#include "core/backend.h"
#include "cpu/net_plan.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { NOBODY = 65534, WORLD = 2, BYTES = 4096 };

/* The value that rank 0 writes to the store begins with '+'. This struct is the rest of the value. Its last member is
 * the table of hosts. */
struct hello {
    struct segment_offer offer;
    uint8_t nonce[SHM_NONCE];
    uint32_t hosts;
    uint16_t host_of[WORLD + 4];
};
enum { HELLO_BYTES = 48 + WORLD * sizeof(uint16_t) };

static ddp_store *store;
static struct bootstrap bootstrap;
static struct ddp_err err;

static ddp_status connect_once_more(void *user, uint32_t timeout_ms, ddp_store **out, struct ddp_err *error)
{
    (void)user, (void)timeout_ms;
    return ddp_store_connect("127.0.0.1", served_port(), NULL, out, error);
}

static void set_up(void)
{
    serve();
    cr_assert_eq(connect_once_more(NULL, 0, &store, &err), DDP_OK, "%s", err.msg);
    bootstrap = (struct bootstrap){ .store = store,
                                    .prefix = "ddp/j/0",
                                    .test_host = "",
                                    .world_size = WORLD,
                                    .timeout_ms = 30000,
                                    .deadline_ms = clock_ms() + 30000,
                                    .reconnect = connect_once_more };
}

static void tear_down(void)
{
    ddp_store_close(store);
    serve_end();
}

TestSuite(meeting_join, .init = set_up, .fini = tear_down, .timeout = 60);

static void put(const char *key, const void *value, size_t len)
{
    cr_assert_eq(ddp_store_set(store, key, value, len, &err), DDP_OK, "%s", err.msg);
}

static void put_text(const char *key, const char *text)
{
    put(key, text, strlen(text));
}

static void put_hello(const struct hello *hello)
{
    uint8_t message[1 + HELLO_BYTES] = { '+' };
    memcpy(message + 1, hello, HELLO_BYTES);
    put("ddp/j/0/hosts", message, sizeof(message));
}

static void expect_failure(int rank, ddp_status status, const char *words)
{
    struct meeting meeting;
    bootstrap.rank = rank;
    cr_expect_eq(meeting_join(&bootstrap, &meeting, &err), status, "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, words), "%s", err.msg);
    meeting_close(&meeting); /* the owner of a meeting also closes it after a failure */
}

static void expect_no_table(uint32_t hosts, uint16_t first, uint16_t second)
{
    const struct hello hello = { .hosts = hosts, .host_of = { first, second } };
    put_hello(&hello);
    expect_failure(1, DDP_ERR_CORRUPT, "invalid table");
    cr_assert_eq(ddp_store_delete(store, "ddp/j/0/rank/1", NULL, &err), DDP_OK);
}

Test(meeting_join, a_table_with_a_host_without_ranks_is_refused)
{
    expect_no_table(2, 0, 0);
    expect_no_table(0, 0, 0);
    expect_no_table(NET_HOSTS_MAX + 1, 0, 1);
}

Test(meeting_join, a_table_that_is_not_in_the_order_of_ranks_is_refused)
{
    expect_no_table(2, 1, 0);
    expect_no_table(2, 1, 1);
    expect_no_table(1, 0, 1);
}

#define CARD_1 "4711 1 another-kernel node7"

Test(meeting_join, rank_0_does_not_overwrite_a_table_of_somebody_else)
{
    void *value;
    size_t len;
    put_text("ddp/j/0/rank/1", CARD_1);
    put_text("ddp/j/0/hosts", "+forged");
    expect_failure(0, DDP_ERR_MISMATCH, "ddp/j/0/hosts before rank 0");
    cr_assert_eq(ddp_store_get(store, "ddp/j/0/hosts", 0, &value, &len, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(((char *)value)[0], '-', "the others learn the reason");
    free(value);
}

Test(meeting_join, a_card_without_a_process_is_refused)
{
    put_text("ddp/j/0/rank/1", "0 1 another-kernel node7");
    expect_failure(0, DDP_ERR_CORRUPT, "ddp/j/0/rank/1");
}

Test(meeting_join, a_refusal_with_an_unknown_status_is_told)
{
    put_text("ddp/j/0/hosts", "-99 the words");
    expect_failure(1, DDP_ERR_CORRUPT, "the words");
}

Test(meeting_join, an_empty_message_is_refused)
{
    put("ddp/j/0/hosts", "", 0);
    expect_failure(1, DDP_ERR_CORRUPT, "holds 0 bytes");
}

Test(meeting_join, a_negative_count_of_meetings_is_refused)
{
    bootstrap.ddprun_store = true;
    put_text("ddp/j/0/met", "-3");
    expect_failure(1, DDP_ERR_CORRUPT, "holds -3");
}

static void offer_as_nobody(int fd)
{
    struct segment segment;
    struct segment_offer offer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setuid(NOBODY) == 0 && segment_create(&segment, BYTES, &err) == DDP_OK &&
        segment_describe(&segment, &offer, &err) == DDP_OK && write(fd, &offer, sizeof(offer)) > 0)
        pause();
    _exit(1);
}

Test(meeting_join, memory_of_another_user_is_refused)
{
    int ends[2];
    struct segment segment;
    struct segment_offer offer;
    if (geteuid() != 0)
        cr_skip_test("skipped, because another user needs root");
    cr_assert_eq(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        offer_as_nobody(ends[1]);
    cr_assert_eq(read(ends[0], &offer, sizeof(offer)), (ssize_t)sizeof(offer));
    cr_expect_eq(segment_attach(&segment, &offer, BYTES, &err), DDP_ERR_CORRUPT);
    cr_expect_not_null(strstr(err.msg, "uid 65534, but"), "%s", err.msg);
    kill(pid, SIGKILL);
    close(ends[0]);
    close(ends[1]);
}

/* Open the communicator of a rank. After a failure, the communicator closes its meeting, although meeting_join has
 * already closed the meeting. */
static ddp_status open_communicator(int rank)
{
    struct comm *comm;
    bootstrap.rank = rank;
    const struct comm_setup setup = { .rank = rank,
                                      .world_size = WORLD,
                                      .step_timeout_ms = 1000,
                                      .iface = "",
                                      .port_range = "",
                                      .bootstrap = &bootstrap };
    return cpu_comm_ops.open(&setup, &comm, &err);
}

/* Rank 0 has found all other ranks, but cannot create the shared memory. A limit on the size of files also applies to
 * this memory, so it has the effect of a full /dev/shm. */
Test(meeting_join, rank_0_without_memory_for_the_page_frees_once)
{
    struct rlimit limit = { 100, RLIM_INFINITY };
    put_text("ddp/j/0/rank/1", CARD_1);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const ddp_status status = open_communicator(0);
    limit.rlim_cur = RLIM_INFINITY; /* Criterion writes files, so remove the limit */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(status, DDP_ERR_NOMEM, "%s", err.msg);
}

Test(meeting_join, a_rank_that_finds_no_page_frees_once)
{
    const struct hello hello = { .offer = { .pid = getpid(), .fd = 999999 }, .hosts = 1 };
    put_hello(&hello);
    cr_expect_eq(open_communicator(1), DDP_ERR_IO, "%s", err.msg);
}

static void ignore_tick(int signal)
{
    (void)signal;
}

/* Kernels before 6.9 end fallocate with EINTR if a handler has to run. The timer expires every millisecond. */
Test(meeting_join, a_timer_does_not_interrupt_the_allocation_of_memory)
{
    const struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
    const size_t bytes = 256u << 20;
    struct segment segment = { 0 };
    sigset_t mask;
    signal(SIGALRM, ignore_tick);
    cr_assert_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    const ddp_status status = segment_create(&segment, bytes, &err);
    cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    cr_assert_eq(status, DDP_OK, "%s", err.msg);
    cr_assert_eq(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    cr_expect_eq(sigismember(&mask, SIGALRM), 0);
}

/* When a rank dies, hangs, gives up or makes a different call, the other ranks soon get an error. The error names the
 * failed rank, its host and the call. Each later call returns the same text. */
#include "base/endpoint.h"
#include "job.h"
#include "net/peer_lookup.c"
#include "ranks.h"
#include "run.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* These timeouts are long enough for every rank that takes part. */
enum { N = 100000, STEP_MS = 2000, INIT_MS = 2000 };

static float buffer[N];

static ddp_status all_reduce(ddp_ctx *ctx, float *x, size_t n)
{
    return ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL);
}

/* Keep the error of the call; a second call must return the same error, and finalize must not wait. */
static void keep_and_ask_again(struct rank *me, ddp_ctx *ctx, ddp_status status)
{
    rank_keep(me, status);
    if (status == DDP_OK)
        return;
    ddp_status again = all_reduce(ctx, buffer, 1);
    rank_expect(me, again == status && strcmp(ddp_last_error(), me->words) == 0, "then: %s; now: %s",
                me->words, ddp_last_error());
    again = ddp_finalize(ctx);
    rank_expect(me, again == status, "finalize: %s", ddp_status_name(again));
}

/* Expect that all ranks of `run` except rank 2 got `status`. The text of this error must contain `part` and name rank 2
 * with its pid. */
static void expect_survivors_told(const struct ranks *run, ddp_status status, const char *part)
{
    char who[64];
    snprintf(who, sizeof(who), "rank 2 (pid %d", run->rank[2].pid);
    for (int r = 0; r < run->n; r++) {
        if (r == 2)
            continue;
        ranks_expect_error(run, r, status, (const char *const[]){ who, part, NULL });
        cr_assert_eq(run->rank[r].exit_status, 0);
    }
}

static ddp_ctx *init_and_warm_up(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, all_reduce(ctx, buffer, N));
    return ctx;
}

static void die_before(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    if (me->rank == 2)
        raise(SIGKILL);
    keep_and_ask_again(me, ctx, all_reduce(ctx, buffer, N));
}

Test(lost_peers, a_rank_that_dies_before_a_collective_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(4, die_before, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_PEER_LOST, "in all_reduce #3 (f32 x 100000, sum)");
    ranks_free(&run);
}

/* Die inside a collective. The pages after `in` cannot be read, so rank 2 dies while it copies these pages. */
static void die_inside(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    float *x = buffer;
    if (me->rank == 2) {
        signal(SIGSEGV, SIG_DFL);
        x = mmap(NULL, sizeof(buffer), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    keep_and_ask_again(me, ctx, all_reduce(ctx, x, N));
}

Test(lost_peers, a_rank_that_dies_inside_a_collective_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(4, die_inside, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_PEER_LOST, "has ended while rank");
    ranks_free(&run);
}

/* Die after a collective that has succeeded on all ranks, so that the next collective fails. */
static void die_after(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), 0));
    if (me->rank == 2)
        raise(SIGKILL);
    keep_and_ask_again(me, ctx, ddp_barrier(ddp_world(ctx), 0));
}

Test(lost_peers, a_rank_that_dies_after_a_collective_spoils_only_the_next_one, .timeout = 120)
{
    struct ranks run = ranks_run(4, die_after, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_PEER_LOST, "in barrier #4");
    ranks_free(&run);
}

static void leave_without_finalize(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    if (me->rank == 2)
        _exit(0);
    rank_keep(me, ddp_finalize(ctx));
}

Test(lost_peers, a_rank_that_leaves_without_finalize_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(3, leave_without_finalize, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_PEER_LOST, "in finalize #3");
    ranks_free(&run);
}

/* Join and leave many times. A peer that ends right after finalize must never look like a dead peer. */
static void finalize_at_once(struct rank *me)
{
    int before = rank_open_files();
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        setenv("TORCHELASTIC_RUN_ID", id, 1);
        rank_expect_ok(me, ddp_finalize(init_and_warm_up(me)));
    }
    rank_expect(me, rank_open_files() == before, "%d descriptors are left open", rank_open_files() - before);
}

Test(lost_peers, ending_after_finalize_is_not_dying, .timeout = 120)
{
    ranks_all_well(4, finalize_at_once, RANKS_PLAIN_STORE, NULL);
}

/* Stop rank 2 with SIGSTOP before a collective. When the collective has failed on rank 0, rank 0 sends SIGCONT to
 * rank 2. The collective must then fail with the same status on rank 2. */
static void stop_for_a_while(struct rank *me)
{
    ddp_options options = DDP_OPTIONS_INIT;
    options.step_timeout_ms = STEP_MS;
    ddp_ctx *ctx = rank_init(me, &options);
    rank_expect_ok(me, all_reduce(ctx, buffer, N));
    if (me->rank == 2)
        raise(SIGSTOP);
    else
        job_until_state((me - me->rank + 2)->pid, 'T');
    ddp_status status = all_reduce(ctx, buffer, N);
    if (me->rank == 0)
        kill((me + 2)->pid, SIGCONT);
    keep_and_ask_again(me, ctx, status);
}

Test(lost_peers, a_stopped_rank_is_named_when_the_step_takes_too_long, .timeout = 120)
{
    struct ranks run = ranks_run(4, stop_for_a_while, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_TIMEOUT, "is stopped");
    ranks_expect_error(&run, 2, DDP_ERR_TIMEOUT, (const char *const[]){ "1 of 4 ranks", "waited 2 s", NULL });
    ranks_expect_error(&run, 0, DDP_ERR_TIMEOUT,
                       (const char *const[]){ "all_reduce #2 (f32 x 100000, sum)", NULL });
    ranks_free(&run);
}

static void call_something_else(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    if (me->rank == 2)
        rank_keep(me, ddp_broadcast(ddp_world(ctx), buffer, 10, DDP_F32, 1, NULL, NULL));
    else
        keep_and_ask_again(me, ctx, all_reduce(ctx, buffer, 5));
}

Test(lost_peers, different_calls_are_both_named_on_every_rank, .timeout = 120)
{
    struct ranks run = ranks_run(3, call_something_else, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH,
                           (const char *const[]){ "rank 0 called all_reduce #3 (f32 x 5, sum)",
                                                  "rank 2 called broadcast #3 (f32 x 10, root 1)", NULL });
    ranks_free(&run);
}

static void different_sizes(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    rank_keep(me, all_reduce(ctx, buffer, me->rank == 1 ? 70000 : 70001));
}

Test(lost_peers, different_sizes_are_both_named, .timeout = 120)
{
    struct ranks run = ranks_run(2, different_sizes, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH,
                           (const char *const[]){ "(f32 x 70001, sum)", "(f32 x 70000, sum)", NULL });
    ranks_free(&run);
}

static void abort_the_job(struct rank *me)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/error.json", (const char *)me->user);
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    ddp_ctx *ctx = init_and_warm_up(me);
    if (me->rank == 1)
        ddp_abort(ctx, 7, "loss is \"nan\"");
    rank_keep(me, all_reduce(ctx, buffer, N));
    ddp_finalize(ctx);
}

Test(lost_peers, abort_frees_everybody_with_the_reason, .timeout = 120)
{
    char *dir = job_dir();
    struct ranks run = ranks_run(3, abort_the_job, RANKS_PLAIN_STORE, dir);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&run, r, DDP_ERR_ABORTED,
                           (const char *const[]){ "rank 1 gave|loss is \"nan\"", NULL });
    ranks_free(&run);
    char *text = job_file(dir, "error.json");
    cr_assert(text != NULL, "no error file");
    cr_assert(strstr(text, "\"message\":\"loss is \\\"nan\\\"\",\"exit_code\":7") != NULL, "%s", text);
    free(text);
    job_dir_remove(dir);
}

static void init_with_short_time(struct rank *me)
{
    ddp_ctx *ctx = NULL;
    ddp_options options = DDP_OPTIONS_INIT;
    options.init_timeout_ms = INIT_MS;
    rank_keep(me, ddp_init_from_env(&options, &ctx));
}

Test(lost_peers, a_rank_that_never_joins_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(4, init_with_short_time, RANKS_PLAIN_STORE | RANKS_SKIP_LAST, NULL);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&run, r, DDP_ERR_TIMEOUT,
                           (const char *const[]){ "1 of 4 ranks has", "2 s: rank 3", NULL });
    ranks_free(&run);
}

static void two_times_rank_one(struct rank *me)
{
    if (me->rank == 2)
        setenv("RANK", "1", 1);
    init_with_short_time(me);
}

Test(lost_peers, a_rank_that_is_started_twice_is_told_so, .timeout = 120)
{
    struct ranks run = ranks_run(3, two_times_rank_one, RANKS_PLAIN_STORE, NULL);
    int second = run.rank[1].status == DDP_ERR_MISMATCH ? 1 : 2;
    ranks_expect_error(&run, second, DDP_ERR_MISMATCH,
                       (const char *const[]){ "rank 1 has", "each rank", NULL });
    ranks_expect_error(&run, 0, DDP_ERR_TIMEOUT, (const char *const[]){ "rank 2", NULL });
    ranks_free(&run);
}

/* Allow this process `n` more descriptors. The numbers of the open descriptors may have gaps. So this function opens
 * `n` files, and sets the limit just above the highest number. */
static void allow_descriptors(int n)
{
    int fd[8], got = 0;
    while (got < n && (fd[got] = open("/dev/null", O_RDONLY)) >= 0)
        got++;
    struct rlimit limit = { (rlim_t)fd[got - 1] + 1, (rlim_t)fd[got - 1] + 1 };
    while (got > 0)
        close(fd[--got]);
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Allow rank 1 so few descriptors that it cannot watch its third peer, rank 3. */
static void too_few_descriptors(struct rank *me)
{
    if (me->rank == 1)
        allow_descriptors(3);
    init_with_short_time(me);
}

Test(lost_peers, a_rank_that_runs_out_of_descriptors_tells_everybody, .timeout = 120)
{
    struct ranks run = ranks_run(4, too_few_descriptors, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 4; r++)
        ranks_expect_error(&run, r, DDP_ERR_IO, (const char *const[]){ "watch rank 3", "'ulimit -n'", NULL });
    ranks_free(&run);
}

static void nobody_listens(struct rank *me)
{
    setenv("MASTER_PORT", "1", 1);
    init_with_short_time(me);
}

Test(lost_peers, a_store_that_is_not_there_is_named_with_its_address, .timeout = 120)
{
    struct ranks run = ranks_run(2, nobody_listens, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&run, 1, DDP_ERR_TIMEOUT, (const char *const[]){ "rank 1 of 2", "127.0.0.1:1", NULL });
    ranks_free(&run);
}

static void meet_by_name(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, ddp_barrier_named(ctx, "data is there", 5000));
    rank_expect(me, ddp_barrier_named(ctx, "data is there", 5000) == DDP_ERR_MISMATCH,
                "a name is good for one use");
    if (me->rank == 0)
        rank_expect(me, ddp_barrier_named(ctx, "alone", 100) == DDP_ERR_TIMEOUT, "no other rank arrives");
    rank_keep(me, DDP_OK);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(lost_peers, a_named_barrier_is_counted_where_the_store_knows_no_names, .timeout = 120)
{
    ranks_all_well(3, meet_by_name, RANKS_PLAIN_STORE, NULL);
}

static void die_before_the_named_barrier(struct rank *me)
{
    ddp_ctx *ctx = init_and_warm_up(me);
    if (me->rank == 2)
        raise(SIGKILL);
    rank_keep(me, ddp_barrier_named(ctx, "end", 0));
    ddp_finalize(ctx);
}

Test(lost_peers, a_death_ends_a_counted_barrier_too, .timeout = 120)
{
    struct ranks run = ranks_run(3, die_before_the_named_barrier, RANKS_PLAIN_STORE, NULL);
    expect_survivors_told(&run, DDP_ERR_PEER_LOST, "has ended; ");
    ranks_free(&run);
}

/* The tests of vouch_node find the worker that owns a connection. These tests use real sockets and real processes. */

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

/* Start a worker that holds `fd`. If `deep` is true, a child of the worker holds `fd` instead, in another session. The
 * caller closes its own copy. */
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
    struct peer_lookup v = { 0 };
    struct socket_owner owner;
    cr_assert(peer_lookup_owner(&v, e.ours, e.theirs, &owner));
    cr_assert_eq(owner.uid, geteuid());
    close(fd);
    cr_assert_not(peer_lookup_owner(&v, e.ours, e.theirs, &owner));
    cr_assert_not(peer_lookup_owner(&v, "no address", e.theirs, &owner));
    cr_assert_not(peer_lookup_owner(&v, "[::1]:4", "127.0.0.1:4", &owner));
    peer_lookup_free(&v);
}

/* Connect to the server, and start a worker that alone owns the connection. */
static struct peer_process worker_of(int rank, bool deep, struct ends *e)
{
    int fd = peer_connect_c(served_port());
    *e = ends_of(fd);
    struct peer_process worker = { worker_with(fd, deep), rank };
    close(fd);
    return worker;
}

/* Find the owner in the results of the last walk through /proc, otherwise by a new walk. */
static bool find(struct peer_lookup *v, const struct peer_process *workers, size_t n, const struct ends *e,
                 struct peer_process *found)
{
    struct socket_owner owner;
    struct peer_question q = { .conn = 7 };
    bool is_found = false;
    const enum peer_answer answer = peer_lookup_find(v, e->ours, e->theirs, found, &owner);
    if (answer != PEER_UNKNOWN)
        return answer == PEER_FOUND;
    q.inode = owner.inode;
    cr_assert_neq(peer_lookup_put_off(v, &q, 0), UINT64_MAX);
    peer_lookup_walk(v, workers, n, 0);
    cr_assert(peer_lookup_next(v, &q, &is_found, found));
    cr_assert_eq(q.conn, 7);
    return is_found;
}

Test(vouch_node, the_worker_that_holds_it_is_found)
{
    struct ends a, b;
    struct peer_process found, worker[2] = { worker_of(4, false, &a), worker_of(5, false, &b) };
    struct peer_lookup v = { 0 };
    cr_assert(find(&v, worker, 2, &b, &found));
    cr_assert(found.rank == 5 && found.pid == worker[1].pid);
    cr_assert(find(&v, worker, 2, &a, &found));
    cr_assert(found.rank == 4 && found.pid == worker[0].pid);
    end(worker[0].pid);
    cr_assert_not(find(&v, worker, 2, &a, &found));
    end(worker[1].pid);
    peer_lookup_free(&v);
}

/* As with "bash train.sh", a child of the worker holds the connection. The child is found although it is in another
 * session. */
Test(vouch_node, a_grandchild_s_connection_is_its_worker_s)
{
    struct ends e;
    struct peer_process found, worker = worker_of(7, true, &e);
    bool ok = false;
    /* until the worker has closed its copy of the socket */
    for (struct patience p = { 0 }; !ok && patience_left(&p);) {
        struct peer_lookup v = { 0 };
        ok = find(&v, &worker, 1, &e, &found) && found.pid != worker.pid;
        peer_lookup_free(&v);
    }
    cr_assert(ok && found.rank == 7);
    kill(found.pid, SIGKILL);
    end(worker.pid);
}

Test(vouch_node, a_stranger_s_connection_is_nobody_s)
{
    struct ends a, b;
    struct peer_process found, worker = worker_of(0, false, &a), stranger = worker_of(0, false, &b);
    struct peer_lookup v = { 0 };
    cr_assert_not(find(&v, &worker, 1, &b, &found));
    peer_lookup_free(&v);
    v = (struct peer_lookup){ 0 };
    cr_assert_not(find(&v, NULL, 0, &a, &found));
    end(worker.pid);
    end(stranger.pid);
    peer_lookup_free(&v);
}

/* A stranger makes 366 connections a second, which must not cost 366 walks through /proc. */
Test(vouch_node, walks_are_a_tenth_of_a_second_apart)
{
    enum { SECOND_MS = 1000 };
    struct ends e;
    struct peer_process found, stranger = worker_of(0, false, &e);
    struct peer_question q = { 0 };
    struct socket_owner owner;
    struct peer_lookup v = { 0 };
    bool is_found;
    unsigned answered = 0;
    for (uint64_t now_ms = 5000, walk_ms = UINT64_MAX; now_ms < 5000 + SECOND_MS; now_ms++) {
        cr_assert_eq(peer_lookup_find(&v, e.ours, e.theirs, &found, &owner), PEER_UNKNOWN);
        const uint64_t at_ms = peer_lookup_put_off(&v, &q, now_ms);
        cr_assert(at_ms >= now_ms && at_ms < now_ms + 100);
        walk_ms = at_ms < walk_ms ? at_ms : walk_ms;
        if (walk_ms > now_ms)
            continue;
        peer_lookup_walk(&v, NULL, 0, now_ms);
        walk_ms = UINT64_MAX;
        for (; peer_lookup_next(&v, &q, &is_found, &found); answered++)
            cr_assert_not(is_found);
    }
    cr_expect_eq(v.walks, SECOND_MS / 100);
    cr_expect_geq(answered, SECOND_MS - 100);
    end(stranger.pid);
    peer_lookup_free(&v);
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
    struct peer_lookup v = { 0 };
    struct peer_process found;
    struct socket_owner owner;
    cr_expect_eq(peer_lookup_find(&v, e.ours, e.theirs, &found, &owner), PEER_FOREIGN);
    cr_expect_eq(owner.uid, NOBODY);
    end(pid);
    peer_lookup_free(&v);
}

/* ranks.c -- see ranks.h. */
#include "ranks.h"

#include "server/server.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 150 };

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const struct rank *me)
{
    set_number("RANK", me->rank);
    set_number("WORLD_SIZE", me->world);
    set_number("LOCAL_RANK", me->rank);
    set_number("LOCAL_WORLD_SIZE", me->world);
    set_number("MASTER_PORT", me->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("DDPRUN_STORE", me->flags & RANKS_DDPRUN_STORE ? 1 : 0);
}

/* All begin at once: the time of one must not run while another is not born yet. */
static void wait_for_all(const struct rank *me)
{
    const struct rank *first = me - me->rank;
    const int started = me->flags & RANKS_SKIP_LAST ? me->world - 1 : me->world;
    for (int r = 0; r < started; r++)
        while (__atomic_load_n(&first[r].pid, __ATOMIC_ACQUIRE) == 0)
            usleep(500);
    while (__atomic_load_n(&me->port, __ATOMIC_ACQUIRE) == 0)
        usleep(500);
}

static pid_t start_rank(struct rank *me, rank_main rank_function)
{
    pid_t parent = getpid(), pid = fork();
    cr_assert(pid >= 0, "fork failed");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    alarm(LIMIT_S);
    __atomic_store_n(&me->pid, getpid(), __ATOMIC_RELEASE);
    wait_for_all(me);
    set_environment(me);
    rank_function(me);
    /* Not exit: what Criterion has registered to happen then belongs to the test. Leaks of the library are
     * looked for in worker_probe, a program of its own. */
    _exit(0);
}

/* The server comes last: its thread could hold AddressSanitizer's locks at a fork, and a rank would never get them. */
struct ranks ranks_run(int n, rank_main main, unsigned flags, const void *user)
{
    const struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    struct ranks ranks = { .n = n };
    struct store_server *server = NULL;
    struct ddp_err err;
    pid_t pids[RANKS_MAX];
    int started = flags & RANKS_SKIP_LAST ? n - 1 : n;

    ranks.rank = mmap(NULL, sizeof(struct rank) * (size_t)n, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(ranks.rank != MAP_FAILED && n <= RANKS_MAX);
    for (int r = 0; r < n; r++)
        ranks.rank[r] = (struct rank){ .rank = r, .world = n, .flags = flags, .user = user };
    for (int r = 0; r < started; r++)
        pids[r] = start_rank(&ranks.rank[r], main);
    cr_assert_eq(store_server_start(&options, &server, &err), DDP_OK, "%s", err.msg);
    for (int r = 0; r < started; r++)
        __atomic_store_n(&ranks.rank[r].port, store_server_port(server), __ATOMIC_RELEASE);
    for (int r = 0; r < started; r++)
        waitpid(pids[r], &ranks.rank[r].exit_status, 0);
    store_server_stop(server);
    return ranks;
}

void ranks_free(struct ranks *ranks)
{
    munmap(ranks->rank, sizeof(struct rank) * (size_t)ranks->n);
}

void ranks_expect_ok(const struct ranks *ranks)
{
    for (int r = 0; r < ranks->n; r++) {
        const struct rank *rank = &ranks->rank[r];
        cr_assert_str_empty(rank->failure, "rank %d: %s", r, rank->failure);
        cr_assert_eq(rank->exit_status, 0, "rank %d ended with wait status %d", r, rank->exit_status);
    }
}

void ranks_all_well(int n, rank_main main, unsigned flags, const void *user)
{
    struct ranks ranks = ranks_run(n, main, flags, user);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

void ranks_expect_error(const struct ranks *ranks, int rank, ddp_status status, const char *const parts[])
{
    const struct rank *r = &ranks->rank[rank];
    cr_assert_str_empty(r->failure, "rank %d: %s", rank, r->failure);
    cr_assert_eq(r->status, status, "rank %d: %s expected, got %s: %s", rank, ddp_status_name(status),
                 ddp_status_name(r->status), r->words);
    for (size_t i = 0; parts[i] != NULL; i++)
        cr_assert(strstr(r->words, parts[i]) != NULL, "rank %d: \"%s\" is not in \"%s\"", rank, parts[i],
                  r->words);
}

ddp_ctx *rank_init(struct rank *me, const ddp_options *options)
{
    ddp_ctx *ctx = NULL;
    rank_expect_ok(me, ddp_init_from_env(options, &ctx));
    return ctx;
}

void rank_keep(struct rank *me, ddp_status status)
{
    me->status = status;
    snprintf(me->words, sizeof(me->words), "%s", status == DDP_OK ? "" : ddp_last_error());
}

void rank_expect(struct rank *me, bool truth, const char *fmt, ...)
{
    va_list ap;
    if (truth)
        return;
    va_start(ap, fmt);
    vsnprintf(me->failure, sizeof(me->failure), fmt, ap);
    va_end(ap);
    _exit(1);
}

int rank_open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

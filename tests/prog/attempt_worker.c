/* attempt_worker.c -- a worker that fails on purpose and is restarted; linked with libddp.
 *
 *     attempt_worker keys N          fails until attempt N; each attempt prints whether an earlier one left a key
 *     attempt_worker leftover FILE   leaves a daemon behind and fails; the second attempt searches for this daemon
 *     attempt_worker progress STEP   reports STEP, then fails
 *     attempt_worker leave           rank 0 ends with 0 while the other ranks wait for it
 *     attempt_worker give_up         rank 1 releases the other ranks, which end before rank 1 fails */
#include "ddp/ddp.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAILS = 9, IS_WRONG = 99 };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static int failed(ddp_status status)
{
    printf("%s\n", ddp_last_error());
    return ddp_exit_code(status);
}

/* Set the keys of an attempt. All attempts use the same names, so a key that an earlier attempt has left would be
 * detected. */
static int keys(ddp_ctx *ctx, int good_attempt)
{
    struct ddp_err err;
    const char *const left[] = { "left" };
    int there = 0, attempt = ddp_restart_count(ctx);
    ddp_status status = ddp_barrier_named(ctx, "all-here", 0);
    if (status != DDP_OK)
        return failed(status);
    if (ddp_store_check(ddp_context_store(ctx), left, 1, &there, &err) != DDP_OK)
        return IS_WRONG;
    printf("attempt %d of %s, port %s, error file %s, key %s\n", attempt, getenv("TORCHELASTIC_MAX_RESTARTS"),
           getenv("MASTER_PORT"), getenv("TORCHELASTIC_ERROR_FILE"), there ? "is left" : "is not there");
    fflush(stdout);
    if (ddp_barrier_named(ctx, "all-looked", 0) != DDP_OK ||
        ddp_store_set(ddp_context_store(ctx), left[0], "x", 1, &err) != DDP_OK)
        return IS_WRONG;
    if (attempt >= good_attempt)
        return ddp_finalize(ctx) == DDP_OK ? 0 : IS_WRONG;
    if (ddp_rank(ctx) == 1)
        return FAILS;
    return failed(ddp_barrier_named(ctx, "never", 0));
}

/* Start a daemon that is in no group of the job and ignores SIGTERM. */
static void leave_daemon(const char *path)
{
    int ready[2];
    char byte;
    if (pipe(ready) != 0)
        exit(IS_WRONG);
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        FILE *file = fopen(path, "w");
        if (file != NULL)
            fprintf(file, "%d\n", (int)getpid());
        if (file != NULL)
            fclose(file);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    while (read(ready[0], &byte, 1) < 0 && errno == EINTR)
        ;
}

static int leftover(ddp_ctx *ctx, const char *path)
{
    int pid = 0;
    if (ddp_restart_count(ctx) == 0) {
        leave_daemon(path);
        return FAILS;
    }
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%d", &pid) != 1)
        return IS_WRONG;
    fclose(file);
    printf("the daemon %s\n", kill(pid, 0) == 0 ? "is alive" : "is gone");
    return 0;
}

static int progress(ddp_ctx *ctx, const char *step)
{
    if (ddp_progress(ctx, strtoull(step, NULL, 10)) != DDP_OK)
        return IS_WRONG;
    return FAILS;
}

/* Return true if all ranks except rank 0 are at the barrier. */
static bool others_wait(ddp_ctx *ctx)
{
    char *reply = NULL;
    struct ddp_err err;
    const bool asked =
        ddp_store_control(ddp_context_store(ctx), "{\"op\":\"barriers\"}", 0, &reply, &err) == DDP_OK;
    const bool wait = asked && strstr(reply, "\"missing\":[0]") != NULL;
    free(reply);
    return wait;
}

/* Enter the last barrier. Rank 0 does not enter: it returns when all other ranks wait in the barrier. */
static int leave(ddp_ctx *ctx)
{
    if (ddp_rank(ctx) == 0) {
        while (!others_wait(ctx))
            sleep_ms(10);
        return 0;
    }
    return failed(ddp_barrier_named(ctx, "epoch-3", 0));
}

/* Return true if /proc lists other children of the parent. Return false if /proc has no such list. */
static bool has_siblings(void)
{
    char path[64];
    int pid, n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        n++;
    if (file != NULL)
        fclose(file);
    return n > 1;
}

/* Simulate a rank that fails but ends slowly, so that all other ranks end first. */
static int give_up(ddp_ctx *ctx)
{
    if (ddp_rank(ctx) == 1) {
        ddp_abort(ctx, 7, "full disk");
        while (has_siblings())
            sleep_ms(5);
        return 7;
    }
    return failed(ddp_barrier(ddp_world(ctx), 0));
}

static int act(ddp_ctx *ctx, const char *mode, const char *value)
{
    if (strcmp(mode, "keys") == 0)
        return keys(ctx, atoi(value));
    if (strcmp(mode, "leftover") == 0)
        return leftover(ctx, value);
    if (strcmp(mode, "progress") == 0)
        return progress(ctx, value);
    if (strcmp(mode, "leave") == 0)
        return leave(ctx);
    return strcmp(mode, "give_up") == 0 ? give_up(ctx) : IS_WRONG;
}

/* End like a program that fails: call _exit, without closing or freeing anything. */
int main(int argc, char **argv)
{
    ddp_ctx *ctx;
    ddp_status status = ddp_init_from_env(NULL, &ctx);
    int code = status != DDP_OK ? failed(status) : act(ctx, argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
    fflush(stdout);
    _exit(code);
}

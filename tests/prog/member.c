/* member.c -- a rank of a job, linked with libddp, which executes its arguments one after the other.
 *
 *     member only:3 key:answer all barrier:epoch-1
 *
 * An argument is NAME or NAME:VALUE; the table `actions` lists them. Three arguments limit the following arguments, up
 * to "all": "only:RANK" to one rank, "but:RANK" to all other ranks, and "attempt:N" to one attempt. If a call fails,
 * the program prints the reason and exits with ddp_exit_code(). At the end the program finalizes and exits with 0. */
#include "ddp/ddp.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WRONG_ARGUMENT = 113 };

static ddp_ctx *ctx;
static bool skipping;

static void must(ddp_status status)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "%s\n", ddp_last_error());
    exit(ddp_exit_code(status));
}

static void do_only(const char *rank)
{
    skipping = atoi(rank) != ddp_rank(ctx);
}

static void do_but(const char *rank)
{
    skipping = atoi(rank) == ddp_rank(ctx);
}

/* Skip the following arguments if this is not attempt `number`. The launcher's variable counts the earlier starts of
 * the workers. */
static void do_attempt(const char *number)
{
    const char *attempt = getenv("DDPRUN_ATTEMPT");
    skipping = attempt == NULL || strcmp(attempt, number) != 0;
}

static void do_all(const char *unused)
{
    (void)unused;
    skipping = false;
}

static void do_say(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

static void do_err(const char *text)
{
    fprintf(stderr, "%s\n", text);
}

static void do_barrier(const char *name)
{
    must(ddp_barrier_named(ctx, name, 0));
}

/* Call an all-reduce of the world. */
static void do_sum(const char *unused)
{
    (void)unused;
    float one = 1;
    must(ddp_all_reduce(ddp_world(ctx), &one, &one, 1, DDP_F32, DDP_SUM, NULL, NULL));
}

static void do_key(const char *name)
{
    void *value;
    size_t len;
    struct ddp_err err = { 0 };
    if (ddp_store_get(ddp_context_store(ctx), name, 600000, &value, &len, &err) != DDP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    free(value);
}

static void do_sleep(const char *ms)
{
    const long n = atol(ms);
    nanosleep(&(struct timespec){ .tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000 }, NULL);
}

static void do_forever(const char *unused)
{
    (void)unused;
    for (;;)
        pause();
}

static void do_spin(const char *unused)
{
    (void)unused;
    for (volatile unsigned long n = 0;; n++)
        continue;
}

static void do_stop(const char *unused)
{
    (void)unused;
    raise(SIGSTOP);
}

static void do_exit(const char *code)
{
    _exit(atoi(code));
}

static const struct {
    const char *name;
    void (*run)(const char *value);
} actions[] = {
    { "only", do_only },       { "but", do_but },         { "all", do_all },   { "attempt", do_attempt },
    { "say", do_say },         { "err", do_err },         { "sum", do_sum },   { "key", do_key },
    { "barrier", do_barrier }, { "forever", do_forever }, { "spin", do_spin }, { "stop", do_stop },
    { "sleep", do_sleep },     { "exit", do_exit },
};

static int act(const char *arg)
{
    const size_t len = strcspn(arg, ":");
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        void (*run)(const char *) = actions[i].run;
        if (strncmp(actions[i].name, arg, len) != 0 || actions[i].name[len] != '\0')
            continue;
        if (!skipping || run == do_only || run == do_but || run == do_all)
            run(arg[len] == ':' ? arg + len + 1 : "");
        return 0;
    }
    fprintf(stderr, "member: what is '%s'?\n", arg);
    return WRONG_ARGUMENT;
}

int main(int argc, char **argv)
{
    must(ddp_init_from_env(NULL, &ctx));
    for (int i = 1; i < argc; i++)
        if (act(argv[i]) != 0)
            return WRONG_ARGUMENT;
    must(ddp_finalize(ctx));
    return 0;
}

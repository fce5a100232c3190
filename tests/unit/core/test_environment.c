/* Tests of how libddp reads RANK, WORLD_SIZE and other variables. The environment is a list of texts. */
#include "core/environment.h"

#include <criterion/criterion.h>
#include <string.h>

/* Find a name in `user`, a NULL-terminated list of "NAME=value". */
static const char *look_up(void *user, const char *name)
{
    size_t len = strlen(name);
    for (const char *const *e = user; *e != NULL; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}

static struct worker_env env;
static struct ddp_err err;

static ddp_status read_list(const char *const list[])
{
    err = (struct ddp_err){ 0 };
    return worker_env_read(&env, look_up, (void *)list, &err);
}

#define READ(...) read_list((const char *const[]){ __VA_ARGS__, NULL })
#define CORE      "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"

static void expect_words(const char *part)
{
    cr_assert_eq(err.code, DDP_ERR_ENV);
    cr_assert(strstr(err.msg, part) != NULL, "\"%s\" is not in \"%s\"", part, err.msg);
}

Test(worker_env, nothing_set_is_a_world_of_one)
{
    cr_assert_eq(READ("HOME=/root"), DDP_OK);
    cr_assert_eq(env.rank, 0);
    cr_assert_eq(env.world_size, 1);
    cr_assert_eq(env.local_rank, 0);
    cr_assert_eq(env.local_world_size, 1);
    cr_assert_eq(env.ddprun_store, 0);
    cr_assert_eq(env.init_timeout_ms, 60000);
    cr_assert_eq(env.step_timeout_ms, 600000);
    cr_assert_str_eq(env.run_id, "none");
}

Test(worker_env, the_launcher_sets_everything)
{
    cr_assert_eq(READ(CORE, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=3",
                      "TORCHELASTIC_RUN_ID=job-7", "DDPRUN_STORE=1", "DDPRUN_INIT_TIMEOUT_MS=5000",
                      "DDPRUN_STEP_TIMEOUT_MS=7000", "TORCHELASTIC_ERROR_FILE=/tmp/e.json"),
                 DDP_OK);
    cr_assert_eq(env.rank, 1);
    cr_assert_eq(env.world_size, 4);
    cr_assert_str_eq(env.master_addr, "127.0.0.1");
    cr_assert_eq(env.master_port, 29500);
    cr_assert_eq(env.local_rank, 1);
    cr_assert_eq(env.local_world_size, 2);
    cr_assert_eq(env.restart_count, 3);
    cr_assert_eq(env.attempt, -1, "not known");
    cr_assert_str_eq(env.run_id, "job-7");
    cr_assert_eq(env.ddprun_store, 1);
    cr_assert_eq(env.init_timeout_ms, 5000);
    cr_assert_eq(env.step_timeout_ms, 7000);
    cr_assert_str_eq(env.error_file, "/tmp/e.json");
}

Test(worker_env, without_local_variables_all_ranks_are_on_this_host)
{
    cr_assert_eq(READ(CORE), DDP_OK);
    cr_assert_eq(env.local_rank, 1);
    cr_assert_eq(env.local_world_size, 4);
    cr_assert_eq(READ("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=1", "LOCAL_WORLD_SIZE=2"),
                 DDP_OK);
    cr_assert_eq(env.local_rank, 1);
}

Test(worker_env, a_partly_set_environment_names_what_is_missing)
{
    READ("RANK=0", "MASTER_ADDR=h");
    expect_words("WORLD_SIZE, MASTER_PORT: missing");
    expect_words("RANK, MASTER_ADDR are set");
    READ("RANK=0", "WORLD_SIZE=2", "MASTER_PORT=29500");
    expect_words("MASTER_ADDR: missing");
    expect_words("RANK, WORLD_SIZE, MASTER_PORT are set");
}

Test(worker_env, an_empty_value_counts_as_missing)
{
    cr_assert_eq(READ("RANK=", "TORCHELASTIC_ERROR_FILE="), DDP_OK);
    cr_assert_eq(env.world_size, 1);
    READ("RANK=", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    expect_words("RANK: missing");
}

Test(worker_env, wrong_numbers_are_named_with_variable_and_value)
{
    static const char *const wrong[] = { "RANK=one", "RANK=-1", "RANK=1x", "RANK=99999999999999999999",
                                         "RANK=0x1" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(READ(wrong[i], "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1"), DDP_ERR_ENV, "%s",
                     wrong[i]);
        expect_words(wrong[i]);
    }
    READ("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=65536");
    expect_words("MASTER_PORT=65536: ");
    expect_words("1 to 65535");
    READ("DDPRUN_STEP_TIMEOUT_MS=soon");
    expect_words("DDPRUN_STEP_TIMEOUT_MS=soon");
}

Test(worker_env, ranks_must_lie_inside_their_world)
{
    READ("RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=1");
    expect_words("RANK=4: ");
    expect_words(" 0 to 3, ");
    expect_words(" WORLD_SIZE is 4");
    READ(CORE, "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2");
    expect_words("LOCAL_RANK=2: ");
    expect_words(" 0 to 1, ");
    expect_words(" LOCAL_WORLD_SIZE is 2");
    READ(CORE, "LOCAL_WORLD_SIZE=5");
    expect_words("LOCAL_WORLD_SIZE=5: ");
    expect_words(" 1 to 4, ");
    expect_words(" WORLD_SIZE is 4");
}

Test(worker_env, texts_that_are_too_long_are_refused)
{
    char addr[400] = "MASTER_ADDR=";
    memset(addr + strlen(addr), 'a', 300);
    READ("RANK=0", "WORLD_SIZE=2", addr, "MASTER_PORT=1");
    expect_words("300");
    expect_words("255 bytes");
}

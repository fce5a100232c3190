/* A run as a file: it fits the run that goes on, or says what differs. */
#include "train/checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/ddp-train-XXXXXX", path[64];
static struct ddp_err err;
enum { PARAMS = 1999 };
static float memory[2][3 * PARAMS];

static struct checkpoint in(int which)
{
    float *m = memory[which];
    return (struct checkpoint){ .fact = { 3, 180, 1, 42, 100, 6000 },
                                .count = PARAMS,
                                .params = m,
                                .m = m + PARAMS,
                                .v = m + 2 * PARAMS };
}

static void make_dir(void)
{
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/train.ckpt", dir);
    for (int i = 0; i < 3 * PARAMS; i++)
        memory[0][i] = (float)i;
    struct checkpoint c = in(0);
    cr_assert_eq(checkpoint_save(dir, &c, &err), DDP_OK, "%s", err.msg);
}

static void remove_dir(void)
{
    unlink(path);
    cr_expect_eq(rmdir(dir), 0);
}

TestSuite(checkpoint, .init = make_dir, .fini = remove_dir);

Test(checkpoint, what_was_saved_comes_back)
{
    struct checkpoint c = in(1);
    int found;
    c.fact[FACT_EPOCHS] = c.fact[FACT_STEPS] = 0;
    cr_assert_eq(checkpoint_load(dir, &c, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect(found && c.fact[FACT_EPOCHS] == 3 && c.fact[FACT_STEPS] == 180);
    cr_expect_eq(memcmp(memory[0], memory[1], sizeof(memory[0])), 0);
}

Test(checkpoint, none_there_is_no_error)
{
    struct checkpoint c = in(1);
    int found = 1;
    unlink(path);
    cr_expect_eq(checkpoint_load(dir, &c, &found, &err), DDP_OK);
    cr_expect_not(found);
}

Test(checkpoint, of_another_run_it_names_the_difference_and_changes_nothing)
{
    const char *says[FACTS] = { [FACT_MODEL] = "--model",
                                [FACT_SEED] = "--seed was 42, now it is 43",
                                [FACT_GLOBAL_BATCH] = "global batch",
                                [FACT_SAMPLES] = "training samples" };
    for (int i = FACT_MODEL; i < FACTS; i++) {
        struct checkpoint c = in(1);
        int found;
        c.fact[i]++;
        cr_expect_eq(checkpoint_load(dir, &c, &found, &err), DDP_ERR_MISMATCH);
        cr_expect(strstr(err.msg, path) && strstr(err.msg, says[i]), "%s", err.msg);
        cr_expect_eq(memory[1][1], 0);
    }
}

Test(checkpoint, damaged_it_says_where_and_what_to_do)
{
    struct checkpoint c = in(1);
    int found;
    cr_assert_eq(truncate(path, 1000), 0);
    cr_expect_eq(checkpoint_load(dir, &c, &found, &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, path) && strstr(err.msg, "offset 1000") && strstr(err.msg, "delete it"), "%s",
              err.msg);
    cr_expect_eq(memory[1][1], 0);
}

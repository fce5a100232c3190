/* Which store ddpctl asks when no address is given. */
#include "ctl/tables.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct ctl_job jobs[] = { { "alpha", "127.0.0.1:29500", 812, 3723000 },
                                       { "beta", "10.0.0.1:29400", 913, 59999 },
                                       { "alpha", "127.0.0.1:29500", 820, 1000 } };
static struct ddp_err err;
static const struct ctl_job *found;

static ddp_status choose(size_t n, const char *id, struct buf *list)
{
    const ddp_status status = ctl_jobs_choose(jobs, n, id, &found, list, &err);
    cr_assert(buf_append(list, "", 1));
    return status;
}

Test(ctl_jobs, one_job_is_used)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(1, NULL, &list), DDP_OK);
    cr_expect_str_eq(found->store, "127.0.0.1:29500");
    cr_expect_eq(list.len, 1);
    buf_free(&list);
}

Test(ctl_jobs, several_jobs_are_listed)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(3, NULL, &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "choose one with --addr or --job"), "%s", err.msg);
    cr_expect_not_null(strstr((char *)list.data, "127.0.0.1:29500               812    1:02:03  alpha\n"),
                       "%s", (char *)list.data);
    cr_expect_not_null(strstr((char *)list.data, "10.0.0.1:29400                913    0:00:59  beta\n"),
                       "%s", (char *)list.data);
    buf_free(&list);
}

Test(ctl_jobs, an_id_chooses_and_the_nodes_of_a_job_share_a_store)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(3, "beta", &list), DDP_OK);
    cr_expect_eq(found->pid, 913);
    cr_assert_eq(choose(3, "alpha", &list), DDP_OK);
    cr_expect_str_eq(found->store, "127.0.0.1:29500");
    buf_free(&list);
}

Test(ctl_jobs, without_a_job_the_user_reads_what_to_give)
{
    struct buf list = { 0 };
    cr_assert_eq(choose(0, NULL, &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "no job of yours runs on this machine"), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "give --addr HOST:PORT (ddprun's default port is 29500"), "%s",
                       err.msg);
    cr_assert_eq(choose(3, "gamma", &list), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "no job 'gamma' of yours"), "%s", err.msg);
    buf_free(&list);
}

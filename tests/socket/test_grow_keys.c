/* ddp_grow_waiting and ddp_grow_agree: the keys that they read and set in a ddprun store; other launchers cannot
 * grow. */
#include "store_peers.h"

#include "ddp/ddp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ddp_ctx *ctx;

/* A world of one that ddprun has started, with the store of the test. */
static void one_rank(const char *ddprun)
{
    char port[16];
    serve();
    snprintf(port, sizeof(port), "%d", served_port());
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("DDPRUN_STORE", ddprun, 1);
    cr_assert_eq(ddp_init_from_env(NULL, &ctx), DDP_OK, "%s", ddp_last_error());
}

static void under_ddprun(void)
{
    one_rank("1");
}

static void under_torchrun(void)
{
    one_rank("0");
}

static void tear_down(void)
{
    ddp_finalize(ctx);
    serve_end();
}

Test(grow_keys, nobody_waits_until_the_store_says_so, .init = under_ddprun, .fini = tear_down)
{
    struct ddp_err err;
    struct ddp_store *store;
    uint32_t nodes = 7;
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(nodes, 0);
    cr_assert_eq(ddp_store_connect("127.0.0.1", served_port(), NULL, &store, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_set(store, "ddprun/waiting_nodes", "2", 1, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, (const char *const[]){ "ddprun/waiting_nodes" }, 1, 0, &err), DDP_OK);
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(nodes, 2);
    cr_assert_eq(ddp_grow_agree(ctx), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(ddp_store_wait(store, (const char *const[]){ "ddprun/grow/0" }, 1, 5000, &err), DDP_OK, "%s",
                 err.msg);
    ddp_store_close(store);
}

Test(grow_keys, another_launcher_cannot_grow, .init = under_torchrun, .fini = tear_down)
{
    uint32_t nodes = 7;
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_ERR_UNSUPPORTED);
    cr_assert_eq(nodes, 0);
    cr_assert_eq(ddp_grow_agree(ctx), DDP_ERR_UNSUPPORTED);
}

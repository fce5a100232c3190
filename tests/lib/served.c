/* served.c -- see served.h. */
#include "served.h"

#include "base/log.h"

#include <criterion/criterion.h>

static struct store_server *server;

void serve_with(const struct store_server_options *options)
{
    struct ddp_err err = { 0 };
    log_setup("test", LOG_ERROR); /* the tests are rude on purpose; warnings about it are noise */
    cr_assert_eq(store_server_start(options, &server, &err), DDP_OK, "%s", err.msg);
}

void serve(void)
{
    serve_with(&(struct store_server_options){ .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT });
}

void serve_end(void)
{
    store_server_stop(server);
    server = NULL;
}

int served_port(void)
{
    return store_server_port(server);
}

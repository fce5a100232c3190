/* link_end.c -- see link_core.h: how the link ends. It is lost, by whatever goes wrong; then its owner closes it, and the
 * last of its handles frees it. Both may happen within a callback, and either may come first. */
#include "node/link_core.h"

#include "base/clock.h"

#include <stdlib.h>

/* A pause that is over for long, or was too short to be noticed by anybody, is not what the store is lost by. */
static bool stood_still(const struct store_link *link, uint64_t now_ms)
{
    const uint64_t limit_ms = link->options.silent_ms;
    return link->stood_ms > 0 && 2 * link->stood_ms >= limit_ms && now_ms - link->woke_ms <= limit_ms;
}

const struct link_fate *store_link_fate(const struct store_link *link)
{
    return &link->fate;
}

/* Told once: `lost` is taken out before it is called, so whatever it leads to finds the link over. The
 * heartbeat stops with it, since beats for nobody would fill the queue. */
void link_lose(struct store_link *link, const char *why)
{
    if (link_is_over(link))
        return;
    void (*lost)(void *, const char *) = link->options.calls.lost;
    link->options.calls.lost = NULL;
    link->fate.stood_ms = stood_still(link, clock_ms()) ? link->stood_ms : 0;
    uv_read_stop((uv_stream_t *)&link->tcp);
    uv_timer_stop(&link->heartbeat);
    lost(link->options.user, why);
}

/* libuv may touch a handle until its close callback has run; all four must have. */
static void handle_closed(uv_handle_t *handle)
{
    struct store_link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    link_queue_free(&link->out);
    buf_free(&link->sending);
    buf_free(&link->in);
    free(link);
}

/* A write of this turn of the loop may be done and its callback yet to come, so libuv is asked and not `writing`: behind
 * one that is really under way it takes nothing. */
static void send_last(struct store_link *link)
{
    const uv_buf_t bytes = uv_buf_init((char *)link->out.bytes.data, (unsigned)link->out.bytes.len);
    if (link->connected && bytes.len > 0)
        uv_try_write((uv_stream_t *)&link->tcp, &bytes, 1);
}

/* What was told last goes out if there is room: the kernel sends it before the end. */
void store_link_close(struct store_link *link)
{
    if (link == NULL || link->closing)
        return;
    link->options.calls.lost = NULL;
    send_last(link);
    link->closing = true;
    uv_close((uv_handle_t *)&link->tcp, handle_closed);
    uv_close((uv_handle_t *)&link->heartbeat, handle_closed);
    uv_close((uv_handle_t *)&link->patience, handle_closed);
    uv_close((uv_handle_t *)&link->before_poll, handle_closed);
}

/* hub_steps.h -- the meaning of a fuzz program's input. The input is a sequence of steps. A step is two bytes and a
 * text. The lowest two bits of the first byte choose one of four connections. The next three bits choose the event on
 * this connection. The second byte is the length of the text.
 *
 * Each fuzz program has one .c file, which includes this file and opens the connections. */
#ifndef TESTS_FUZZ_HUB_STEPS_H
#define TESTS_FUZZ_HUB_STEPS_H

#include "hub/hub.h"

#include <assert.h>
#include <stdint.h>

enum { STEPS_CONNS = 4, STEPS_LOCAL }; /* STEPS_LOCAL: id of the fuzz program's own connection */

static struct hub *hub;
static bool is_open[STEPS_LOCAL + 1];
static uint64_t now_ms;

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)user, (void)is_news;
    assert(is_open[conn] && why[0] != '\0');
    is_open[conn] = false;
}

static void take_time(uint64_t ms)
{
    now_ms += ms;
    while (hub_deadline(hub) <= now_ms)
        hub_tick(hub, now_ms);
}

static void do_step(uint8_t what, struct slice bytes, void (*open)(conn_id conn))
{
    const conn_id conn = (what & 3u) + 1;
    const unsigned action = what >> 2 & 7;
    if (!is_open[conn]) {
        open(conn);
    } else if (action == 7) {
        is_open[conn] = false;
        hub_disconnect(hub, conn, "closed by the peer", now_ms);
    } else if (action == 6) {
        take_time(bytes.len * 100);
    }
    if (is_open[conn])
        hub_receive(hub, conn, bytes, now_ms);
}

/* Make a hub and carry out all steps. End with end_steps. */
static void do_steps(const struct hub_limits *limits, const struct hub_sink *sink, const uint8_t *data,
                     size_t size, void (*open)(conn_id conn))
{
    now_ms = 0;
    hub = hub_new(limits, sink);
    for (size_t at = 0; at + 2 <= size;) {
        size_t len = data[at + 1];
        len = len < size - at - 2 ? len : size - at - 2;
        do_step(data[at], slice_of(data + at + 2, len), open);
        at += 2 + len;
    }
}

static void end_steps(void)
{
    hub_free(hub);
    for (int i = 0; i <= STEPS_LOCAL; i++)
        is_open[i] = false;
}

#endif

/* sim_hub.c -- see sim_hub.h. */
#include "sim_hub.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>

static void keep(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    struct sim *sim = user;
    cr_assert(sim->conn[conn].open, "bytes for connection %d, which is closed", (int)conn);
    cr_assert(buf_append(&sim->conn[conn].out, bytes.data, bytes.len));
}

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)is_news;
    struct sim *sim = user;
    cr_assert(sim->conn[conn].open, "connection %d is closed twice", (int)conn);
    sim->conn[conn].open = false;
    snprintf(sim->conn[conn].closed, sizeof(sim->conn[conn].closed), "%s", why);
}

static void note_line(void *user, const char *line)
{
    sim_note(user, "%s", line);
}

void sim_note(struct sim *sim, const char *fmt, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    cr_assert(buf_printf(&sim->trace, "[%6llu] %s\n", (unsigned long long)sim->now_ms, line));
}

void sim_init(struct sim *sim, const struct hub_limits *limits)
{
    struct hub_limits defaults = HUB_LIMITS_DEFAULT;
    struct hub_sink sink = { .user = sim, .send = keep, .close = note_close, .log = note_line };
    memset(sim, 0, sizeof(*sim));
    sim->hub = hub_new(limits ? limits : &defaults, &sink);
    cr_assert_not_null(sim->hub);
}

void sim_free(struct sim *sim)
{
    hub_free(sim->hub);
    buf_free(&sim->trace);
    for (int i = 0; i < SIM_CONNS; i++)
        buf_free(&sim->conn[i].out);
}

void sim_at(struct sim *sim, uint64_t now_ms)
{
    for (uint64_t due; (due = hub_deadline(sim->hub)) <= now_ms;) {
        sim->now_ms = due > sim->now_ms ? due : sim->now_ms;
        hub_tick(sim->hub, sim->now_ms);
        cr_assert(hub_deadline(sim->hub) > sim->now_ms, "the hub asks for a tick that is over");
    }
    sim->now_ms = now_ms;
}

void sim_connect(struct sim *sim, conn_id conn)
{
    char peer[32];
    snprintf(peer, sizeof(peer), "peer:%d", (int)conn);
    sim->conn[conn].open = true;
    sim->conn[conn].closed[0] = '\0';
    cr_assert(hub_connect(sim->hub, conn, peer, sim->now_ms));
}

void sim_disconnect(struct sim *sim, conn_id conn)
{
    if (!sim->conn[conn].open)
        return;
    sim->conn[conn].open = false;
    hub_disconnect(sim->hub, conn, "closed by the peer", sim->now_ms);
}

void sim_feed_bytes(struct sim *sim, conn_id conn, struct slice bytes)
{
    /* An exact copy on the heap, so that a sanitizer sees a read past the end. */
    struct buf copy = { 0 };
    cr_assert(buf_append(&copy, bytes.data, bytes.len));
    uint8_t *exact = bytes.len ? realloc(copy.data, bytes.len) : NULL;
    hub_feed(sim->hub, conn, slice_of(exact, bytes.len), sim->now_ms);
    free(exact);
}

void sim_feed_cut(struct sim *sim, conn_id conn, const char *hex, size_t step)
{
    struct buf bytes = { 0 };
    hex_read(hex, &bytes);
    for (size_t at = 0; at < bytes.len && sim->conn[conn].open; at += step) {
        size_t n = bytes.len - at < step ? bytes.len - at : step;
        sim_feed_bytes(sim, conn, slice_of(bytes.data + at, n));
    }
    buf_free(&bytes);
}

void sim_feed(struct sim *sim, conn_id conn, const char *hex)
{
    sim_feed_cut(sim, conn, hex, SIZE_MAX / 2);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = strchr(digits, c);
    cr_assert(c != '\0' && at != NULL, "'%c' is not hex", c);
    return (int)(at - digits);
}

void hex_read(const char *hex, struct buf *out)
{
    for (; *hex; hex++) {
        if (*hex == ' ' || *hex == '\n')
            continue;
        uint8_t byte = (uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
        cr_assert(buf_append(out, &byte, 1));
        hex++;
    }
}

void hex_write(struct slice bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++)
        cr_assert(buf_printf(out, "%02x", ((const uint8_t *)bytes.data)[i]));
    cr_assert(buf_printf(out, "%s", ""));
    out->data[out->len] = '\0';
}

static void expect_closed(struct sim *sim, conn_id conn, const char *why, const char *file, int line)
{
    cr_assert(!sim->conn[conn].open, "%s:%d: connection %d is still open", file, line, (int)conn);
    cr_assert(strncmp(sim->conn[conn].closed, why, strlen(why)) == 0, "%s:%d: connection %d closed: %s", file,
              line, (int)conn, sim->conn[conn].closed);
}

void sim_expect_at(struct sim *sim, conn_id conn, const char *hex, const char *file, int line)
{
    struct buf want = { 0 }, want_hex = { 0 }, got_hex = { 0 };
    if (strncmp(hex, "closed: ", 8) == 0) {
        expect_closed(sim, conn, hex + 8, file, line);
        return;
    }
    hex_read(hex, &want);
    hex_write(buf_slice(&want), &want_hex);
    hex_write(buf_slice(&sim->conn[conn].out), &got_hex);
    cr_assert_str_eq((char *)got_hex.data, (char *)want_hex.data, "%s:%d: connection %d got %s, not %s%s%s",
                     file, line, (int)conn, (char *)got_hex.data, (char *)want_hex.data,
                     sim->conn[conn].closed[0] ? "; closed: " : "", sim->conn[conn].closed);
    sim->conn[conn].out.len = 0;
    buf_free(&want);
    buf_free(&want_hex);
    buf_free(&got_hex);
}

void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line)
{
    cr_assert(buf_append(&sim->trace, "", 1));
    cr_assert_str_eq((char *)sim->trace.data, text, "%s:%d: the trace is\n%s", file, line,
                     (char *)sim->trace.data);
    sim->trace.len = 0;
}

/* hub_out.c -- what goes out: bytes to connections, lines to the log.
 *
 * While one connection's bytes are worked off (`feeding`) its answers gather in `out` and leave in one piece
 * at the end; whatever goes to others in between (a SET that wakes) leaves at once. So each connection gets
 * its bytes in order, and a pipeline of a hundred requests costs one send:
 *
 *     A sends  SET x, GET x, GET y   ->   to B: the zero byte of its WAIT x   (at once)
 *                                         to A: value of x, value of y        (one send, at the end)
 *
 * Everything that answers stands on this file; it knows nobody above it. */
#include "hub/session.h"

#include "base/shared.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    OUT_DIRECT = SHARED_MIN, /* a value this big goes out from where it lies, and gathered answers leave when
                            * they pile up so high */
    OUT_KEPT = 1 << 20,      /* an output buffer grown beyond this is given back */
};

/* Small replies are not asked for: the shell stops reading before they grow. */
bool hub_may_reply(struct hub *hub, uint64_t bytes)
{
    if (bytes >= OUT_DIRECT && hub->sink.may_reply != NULL)
        hub->must_repeat = !hub->sink.may_reply(hub->sink.user, hub->feeding->id, bytes);
    return !hub->must_repeat;
}

static void check_backlog(struct hub *hub)
{
    if (hub->sink.may_reply != NULL)
        hub->is_backed_up = !hub->sink.may_reply(hub->sink.user, hub->feeding->id, 0);
}

/* The buffer is kept for the next call unless a big answer has blown it up. */
void hub_flush(struct hub *hub)
{
    if (hub->out.len > 0) {
        hub->sink.send(hub->sink.user, hub->feeding->id, buf_slice(&hub->out), NULL);
        check_backlog(hub);
    }
    hub->out.len = 0;
    if (hub->out.cap > OUT_KEPT)
        buf_free(&hub->out);
}

/* To the one being fed: first what has gathered for it. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes)
{
    if (s == hub->feeding)
        hub_flush(hub);
    hub->sink.send(hub->sink.user, s->id, bytes, NULL);
    if (s == hub->feeding)
        check_backlog(hub);
}

/* Memory that is short costs this push, never half of it. */
void hub_push_text(struct hub *hub, struct session *s, struct slice text)
{
    struct buf direct = { 0 }, *out = s == hub->feeding ? &hub->out : &direct;
    size_t before = out->len;
    if (!put_blob(out, text))
        out->len = before;
    else if (s != hub->feeding)
        hub_send(hub, s, buf_slice(&direct));
    buf_free(&direct);
}

void hub_push(struct hub *hub, struct session *s, const struct cJSON *o)
{
    enum { USUAL_BYTES = 1024 };
    char *text = o != NULL ? cJSON_PrintBuffered(o, USUAL_BYTES, false) : NULL;
    if (text != NULL)
        hub_push_text(hub, s, slice_str(text));
    cJSON_free(text);
}

bool hub_reply_blob(struct hub *hub, struct slice value, struct shared *holder)
{
    if (!put_u64(&hub->out, value.len))
        return false;
    if (hub->out.len >= OUT_DIRECT || value.len >= OUT_DIRECT)
        hub_flush(hub);
    if (value.len < OUT_DIRECT)
        return buf_append(&hub->out, value.data, value.len);
    hub->sink.send(hub->sink.user, hub->feeding->id, value, holder);
    check_backlog(hub);
    return true;
}

/* On the stack, cut when it is longer: a log line is no reason to fail. */
void hub_log(struct hub *hub, const char *fmt, ...)
{
    char line[1024];
    if (hub->sink.log == NULL)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    hub->sink.log(hub->sink.user, line);
}

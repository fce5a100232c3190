/* link_core.h -- private to the files of the link: the link itself.
 *
 * The files are the rungs of a ladder: each calls only those below it.
 *
 *     store_link.c     the connection, what goes out, the beat
 *     link_answers.c   what comes in, and who is told of it
 *     link_end.c       lost, closed, freed
 *     link_frames.c    the bytes of both ways; link_say.c and link_hear.c: their words */
#ifndef LAUNCHER_LINK_CORE_H
#define LAUNCHER_LINK_CORE_H

#include "base/limits.h"
#include "node/link_frames.h"
#include "node/store_link.h"

enum { LINK_READ_BYTES = 4096, LINK_INSTANCE_MAX = LIMIT_INSTANCE };

/* Two buffers for what goes out: libuv needs the bytes of a write to stay where they are until it
 * is done, so new words gather in `out` meanwhile. This also puts the words about many workers into
 * few writes. */
struct store_link {
    struct store_link_options options;
    uv_tcp_t tcp;
    uv_timer_t heartbeat, patience;
    uv_prepare_t before_poll;
    uv_connect_t connect;
    uv_write_t write;
    struct link_queue out; /* not yet handed to libuv */
    struct buf sending;    /* libuv's until on_written */
    struct buf in;
    char chunk[LINK_READ_BYTES];
    uint64_t asked, answered; /* requests but IDENTIFY, and answers to them */
    uint64_t asked_join;      /* number of the latest join */
    uint64_t begun_join;      /* and of the one that the latest round has answered */
    char instance[LINK_INSTANCE_MAX];
    int round; /* 0 = none yet */
    uint64_t heard_ms, beat_at_ms;
    uint64_t stood_ms, woke_ms; /* how long this process stood still last, and until when */
    struct link_fate fate;
    bool connected, writing, welcome, closing;
    bool urgent; /* something in `out` is */
    int open_handles;
};

static inline bool link_is_over(const struct store_link *link)
{
    return link->closing || link->options.calls.lost == NULL;
}

/* --- link_end.c --- */

/* After this nothing more is heard from the link. It stays allocated until its owner closes it, who
 * may do that from within the callback. */
void link_lose(struct store_link *link, const char *why);

/* --- link_answers.c --- */

/* The answer to IDENTIFY, and one JSON object after it. */
void link_take_welcome(struct store_link *link, uint8_t status, struct slice text);
void link_take_answer(struct store_link *link, struct slice text);

#endif

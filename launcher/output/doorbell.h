/* doorbell.h -- another thread wakes the loop; several rings before it wakes may be one. As uv_async, but who is woken never
 * waits for who has rung. */
#ifndef LAUNCHER_DOORBELL_H
#define LAUNCHER_DOORBELL_H

#include <stdbool.h>
#include <uv.h>

struct doorbell {
    uv_poll_t poll;
    int fd; /* -1: there is none */
    void (*rung)(void *user);
};

/* False when there is no descriptor for it; then nothing is to be closed. */
bool doorbell_open(struct doorbell *bell, uv_loop_t *loop, void (*rung)(void *user), void *user);

/* From any thread, until doorbell_close is called. */
void doorbell_ring(const struct doorbell *bell);

/* `closed` comes with `poll`, whose data is the `user` of the beginning, by a later turn of the loop. */
void doorbell_close(struct doorbell *bell, uv_close_cb closed);

#endif

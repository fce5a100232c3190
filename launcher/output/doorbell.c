/* doorbell.c -- see doorbell.h.
 *
 * uv_async_send marks its handle, wakes the loop, and marks it once more; a loop that comes in between waits for the
 * second mark, turning in a circle. While the loop's thread is served first (contain/hurry.h) it comes in between each
 * time that both share a processor: the wake-up takes it from the other thread, which then cannot make its mark before
 * the kernel takes pity, after a second. A counter in the kernel needs no second mark. */
#include "output/doorbell.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void on_ring(uv_poll_t *poll, int status, int events)
{
    struct doorbell *bell = (struct doorbell *)poll;
    uint64_t rings;
    (void)status;
    (void)events;
    /* 0 bytes can only mean that nobody has rung. */
    if (read(bell->fd, &rings, sizeof(rings)) == sizeof(rings))
        bell->rung(poll->data);
}

bool doorbell_open(struct doorbell *bell, uv_loop_t *loop, void (*rung)(void *user), void *user)
{
    *bell = (struct doorbell){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .rung = rung };
    if (bell->fd >= 0 && uv_poll_init(loop, &bell->poll, bell->fd) != 0) {
        close(bell->fd);
        bell->fd = -1;
    }
    if (bell->fd < 0)
        return false;
    bell->poll.data = user;
    uv_poll_start(&bell->poll, UV_READABLE, on_ring);
    return true;
}

/* It fails only when it is full of rings that nobody has heard. */
void doorbell_ring(const struct doorbell *bell)
{
    const uint64_t one = 1;
    ssize_t ignored = write(bell->fd, &one, sizeof(one));
    (void)ignored;
}

/* libuv looks at the descriptor no more from uv_close on. */
void doorbell_close(struct doorbell *bell, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&bell->poll, closed);
    close(bell->fd);
    bell->fd = -1;
}

/* Parse any bytes that a process may write to the FIFO of the file timer. The bytes arrive in pieces of any size, while
 * time passes. */
#include "node/file_timer.c"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Remove the expired timers. Abort if a removed timer has not expired or has no pid, or if an expired timer remains. */
static void drain(struct timer_table *t, double now)
{
    struct timer_row row;
    double next;
    while (timer_table_remove(t, now, &row))
        if (row.expires > now || row.pid <= 0)
            abort();
    if (timer_table_next(t, &next) && next <= now)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct timer_table t = { 0 };
    double now = 0;
    while (size > 0) {
        size_t n = 1 + data[0] % 97;
        n = n < size ? n : size;
        timer_table_add(&t, (const char *)data, n);
        data += n;
        size -= n;
        drain(&t, now += 10);
    }
    timer_table_free(&t);
    return 0;
}

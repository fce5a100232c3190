/* client_pause.c -- see client_pause.h.
 *
 * 20 ms, 30, 45, ... 2 s: a store that is being started is met within a few milliseconds, and one that is away for
 * minutes costs its machine next to nothing. */
#include "client/client_pause.h"

enum { FIRST_PAUSE_MS = 20, LAST_PAUSE_MS = 2000 };

uint32_t client_pause_ms(unsigned round, uint32_t luck)
{
    uint32_t pause = FIRST_PAUSE_MS;
    while (round-- > 0 && pause < LAST_PAUSE_MS)
        pause += pause / 2;
    if (pause > LAST_PAUSE_MS)
        pause = LAST_PAUSE_MS;
    return pause / 2 + luck % (pause + 1); /* half to one and a half */
}

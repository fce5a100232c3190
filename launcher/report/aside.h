/* aside.h -- work that may hang, as files of a server that does not answer: on a thread of its own, and waited for a while only. */
#ifndef LAUNCHER_REPORT_ASIDE_H
#define LAUNCHER_REPORT_ASIDE_H

#include <stdbool.h>

struct aside {
    void (*run)(void *user); /* on the thread */
    void (*release)(
        void *user); /* there, too, when it comes to its end too late; else `user` is yours again */
    void *user;
};

/* True when `run` came to its end within `limit_ms`. False: `user` is the thread's for ever. Where no thread can be had it runs
 * here, as long as it takes. */
bool aside_run(const struct aside *work, int limit_ms);

#endif

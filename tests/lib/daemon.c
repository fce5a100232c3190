/* daemon.c -- see daemon.h. */
#include "daemon.h"

#include "patience.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The test's own limit is what counts: with its end the daemon ends, too. */
static const struct run_options as_long_as_the_test = { .timeout_ms = 600000 };

static struct daemon wait_ready(struct run_process *process)
{
    struct daemon d = { .process = process };
    if (!run_until_output(process, "\n", PATIENCE_MS)) {
        struct run_result r = run_wait(process);
        cr_assert_fail("the daemon does not start: %s", r.err);
    }
    d.port = atoi(strrchr(run_output(process), ':') + 1);
    return d;
}

struct daemon daemon_start(const char *listen, const char *option)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", listen, option, NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

struct daemon daemon_start_insecure(const char *max_bytes)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", "127.0.0.1:0", "--insecure",
                           "--max-bytes",         max_bytes,  NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

struct daemon daemon_start_limited(int max_fds)
{
    char command[64];
    snprintf(command, sizeof(command), "ulimit -n %d; exec \"$0\" --listen 127.0.0.1:0", max_fds);
    const char *argv[] = { "/bin/sh", "-c", command, bin("ddp-rendezvous"), NULL };
    return wait_ready(run_start(argv, &as_long_as_the_test));
}

void daemon_stop(struct daemon *d)
{
    run_signal(d->process, SIGTERM);
    struct run_result r = run_wait(d->process);
    cr_assert_eq(r.exit_code, 0, "the daemon ended with %d, signal %d: %s", r.exit_code, r.signal, r.err);
    run_free(&r);
    d->process = NULL;
}

/* probes.c -- see probes.h. Every wait has a limit. At the end of a job, all its processes are killed. */
#include "probes.h"

#include "peer_job.h"
#include "timed.h"
#include "torn.h"

#include "procstat.h"
#include "tests/survivors/tree.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WORKERS = 4,
    END_MS = 12000, /* time limit from the workers' start to the end of the job */
    LEFT_MS = 3000, /* ms until processes that still run count as survivors */
    LOOK_MS = 20,
    READY_WAIT_MS = 10,
    CODES = 8, /* maximum number of exit codes in one cell */
    HUNG = -1,
    HUNG_MAX = 3, /* the series ends after this number of hung trials */
    REAP_MS = 1000,
    TRIALS_MAX = 100,
    TEXT = 64 * 1024,
    FIRST_CODE = 52 /* exit code of rank 1 in probe_first */
};

static char worker[512], survivor[512], torn_writer[512], no_program[512];

void probes_open(const char *programs)
{
    snprintf(worker, sizeof(worker), "%s/probe_worker", programs);
    snprintf(survivor, sizeof(survivor), "%s/survivor", programs);
    snprintf(torn_writer, sizeof(torn_writer), "%s/torn_writer", programs);
    snprintf(no_program, sizeof(no_program), "%s/not-executable", peer_jobs_scratch());
    int fd = open(no_program, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

/* --- cells ---------------------------------------------------------------------------------------------- */

struct tally {
    int code[CODES], times[CODES], different, all;
};

__attribute__((format(printf, 2, 3))) static void add(char cell[PROBE_CELL], const char *words, ...)
{
    size_t n = strlen(cell);
    va_list args;
    va_start(args, words);
    vsnprintf(cell + n, PROBE_CELL - n, words, args);
    va_end(args);
}

static void count(struct tally *t, int code)
{
    int i = 0;
    while (i < t->different && t->code[i] != code)
        i++;
    t->all++;
    if (i == CODES)
        return;
    t->code[i] = code;
    t->times[i]++;
    if (i == t->different)
        t->different++;
}

static bool enough(const struct tally *t, int trials)
{
    int hung = 0;
    for (int i = 0; i < t->different; i++)
        hung += t->code[i] == HUNG ? t->times[i] : 0;
    return t->all >= trials || hung >= HUNG_MAX;
}

/* Format the results as "3", or "3 (9 of 10), hung (1 of 10)". */
static void tell(const struct tally *t, char cell[PROBE_CELL])
{
    for (int i = 0; i < t->different; i++) {
        add(cell, i > 0 ? ", " : "");
        if (t->code[i] == HUNG)
            add(cell, "hung");
        else
            add(cell, "%d", t->code[i]);
        if (t->all > 1)
            add(cell, " (%d of %d)", t->times[i], t->all);
    }
}

/* --- jobs ----------------------------------------------------------------------------------------------- */

static const char *expanded(const char *arg)
{
    if (strcmp(arg, "%w") == 0)
        return worker;
    if (strcmp(arg, "%s") == 0)
        return survivor;
    return strcmp(arg, "%x") == 0 ? no_program : arg;
}

static bool start(struct peer_job *j, const struct probe *q, const struct peer *p)
{
    const char *args[PROBE_ARGS + 1] = { NULL };
    for (int i = 0; i < PROBE_ARGS && q->args[i] != NULL; i++)
        args[i] = expanded(q->args[i]);
    return peer_job_start(j, p, false, WORKERS, args);
}

/* Wait up to `ms` for the end of the launcher. Return its exit code, or HUNG if the launcher still runs. */
static int code_within(struct peer_job *j, int ms)
{
    return peer_job_wait(j, ms) ? peer_job_code(j) : HUNG;
}

static int run(struct peer_job *j, const struct probe *q, const struct peer *p)
{
    if (!start(j, q, p))
        return HUNG;
    peer_job_ready(j, p->start_ms);
    return code_within(j, END_MS);
}

/* Wait until the launcher and all its processes have ended. Return false if a process still runs after LEFT_MS.
 * Processes are found by their environment. A dying process loses its environment early, so the caller may still have
 * to reap the launcher. */
static bool nobody_left(struct peer_job *j, int64_t *gone_ns)
{
    const int64_t from = notes_now();
    bool nobody;
    while (!(nobody = peer_job_alive(NULL) == 0) && notes_now() - from < (int64_t)LEFT_MS * 1000000) {
        /* Reap adopted processes. Once the launcher has ended, this call returns at once, so sleep afterwards. */
        peer_job_wait(j, LOOK_MS);
        if (j->ended)
            usleep(LOOK_MS * 1000);
    }
    *gone_ns = notes_now() - from;
    return nobody;
}

/* --- exit codes ----------------------------------------------------------------------------------------- */

void probe_code(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    struct tally t = { .all = 0 };
    while (!enough(&t, q->trials)) {
        struct peer_job j;
        count(&t, run(&j, q, p));
        peer_job_end(&j);
    }
    tell(&t, cell);
}

void probe_all_done(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    struct peer_job j;
    struct tally t = { .all = 0 };
    int done = 0;
    count(&t, run(&j, q, p));
    for (int i = 0; i < WORKERS; i++)
        done += peer_jobs_notes()->of[i].done != 0;
    tell(&t, cell);
    if (done < WORKERS)
        add(cell, ", %d of %d workers were ended early", WORKERS - done, WORKERS);
    peer_job_end(&j);
}

/* Return true if the text contains `number`, not as a part of a longer number or word. If torchrun has printed "Root
 * Cause", search only after these words, because the text before them lists all failures. */
static bool names(const char *text, int number)
{
    char digits[16];
    size_t n = (size_t)snprintf(digits, sizeof(digits), "%d", number);
    const char *cause = strstr(text, "Root Cause");
    const char *begin = cause != NULL ? cause : text;
    for (const char *at = begin; (at = strstr(at, digits)) != NULL; at++)
        if ((at == begin || (!isalnum((unsigned char)at[-1]) && at[-1] != '.')) &&
            !isalnum((unsigned char)at[n]))
            return true;
    return false;
}

void probe_first(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    static char text[TEXT];
    struct tally t = { .all = 0 };
    int named = 0;
    while (!enough(&t, q->trials)) {
        struct peer_job j;
        count(&t, run(&j, q, p));
        peer_job_text(&j, text, sizeof(text));
        named += names(text, FIRST_CODE);
        peer_job_end(&j);
    }
    tell(&t, cell);
    add(cell, "; %d of %d named it", named, t.all);
}

/* --- signals -------------------------------------------------------------------------------------------- */

/* Return how many microseconds a start without a signal takes, or 0 if the start fails. probe_start_signal spreads its
 * signals over this time. */
static int start_takes_us(const struct probe *q, const struct peer *p)
{
    struct peer_job j;
    int64_t from = notes_now(), us = 0;
    if (start(&j, q, p) && peer_job_ready(&j, p->start_ms))
        us = (notes_now() - from) / 1000;
    peer_job_end(&j);
    return (int)us;
}

void probe_start_signal(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    const int takes_us = start_takes_us(q, p);
    struct tally t = { .all = 0 };
    int with_survivors = 0;
    while (!enough(&t, q->trials)) {
        struct peer_job j;
        int64_t gone;
        if (start(&j, q, p)) {
            usleep((useconds_t)((int64_t)takes_us * (t.all + 1) / (q->trials + 1)));
            kill(j.launcher, q->signal);
            nobody_left(&j, &gone);
            with_survivors += peer_job_alive("probe_worker") > 0;
        }
        count(&t, code_within(&j, REAP_MS));
        peer_job_end(&j);
    }
    tell(&t, cell);
    if (with_survivors > 0)
        add(cell, "; survivors in %d", with_survivors);
}

void probe_agent(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    struct peer_job j;
    int64_t gone;
    if (!p->has_agent) {
        add(cell, "- (has none)");
        return;
    }
    pid_t agent = 0;
    if (start(&j, q, p) && peer_job_ready(&j, p->start_ms))
        agent = procstat_child(j.launcher, 0);
    if (agent > 0) {
        kill(agent, q->signal);
        nobody_left(&j, &gone);
        int left = peer_job_alive("probe_worker"), code = code_within(&j, REAP_MS);
        if (code == HUNG)
            add(cell, "hung");
        else
            add(cell, "%d", code);
        add(cell, ", %d left", left);
    } else {
        add(cell, "it did not start");
    }
    peer_job_end(&j);
}

/* Wait until all survivors have printed their line. Check repeatedly, because the launcher may print a line late. */
static bool survivors_ready(struct peer_job *j, const struct peer *p)
{
    static char text[TEXT];
    const int64_t until = notes_now() + (int64_t)p->start_ms * 1000000;
    while (notes_now() < until && !peer_job_wait(j, READY_WAIT_MS)) {
        int ready = 0;
        peer_job_text(j, text, sizeof(text));
        for (const char *at = text; (at = strstr(at, "ready\n")) != NULL; at++)
            ready++;
        if (ready == WORKERS)
            return true;
    }
    return false;
}

void probe_survivors(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    struct peer_job j;
    int64_t gone;
    if (!start(&j, q, p) || !survivors_ready(&j, p)) {
        add(cell, "it did not start");
        peer_job_end(&j);
        return;
    }
    int all = peer_job_alive("survivor");
    kill(j.launcher, q->signal);
    bool nobody = nobody_left(&j, &gone);
    int left = peer_job_alive("survivor");
    add(cell, left > 0 ? "**%d of %d**" : "%d of %d", left, all);
    if (nobody)
        add(cell, " (%.2f s)", (double)gone / 1e9);
    if (!peer_job_wait(&j, REAP_MS))
        add(cell, ", launcher still waits");
    peer_job_end(&j);
}

/* --- lines, and time ------------------------------------------------------------------------------------ */

void probe_torn(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    struct torn_count c = { 0 };
    for (int i = 0; i < q->trials; i++)
        torn_try(p, torn_writer, &c);
    add(cell, "%ld of %ld%s", torn_lines(&c), (long)c.jobs * TORN_ALL, c.hung > 0 ? ", hung" : "");
}

void probe_reaction(const struct probe *q, const struct peer *p, char cell[PROBE_CELL])
{
    double ms[TRIALS_MAX];
    struct tally t = { .all = 0 };
    size_t n = 0;
    while (!enough(&t, q->trials)) {
        struct peer_job j;
        int code = run(&j, q, p);
        if (code != HUNG)
            ms[n++] = (double)(j.ended_ns - peer_jobs_notes()->of[1].done) / 1e6;
        count(&t, code);
        peer_job_end(&j);
    }
    if (n > 0)
        add(cell, "median %.1f ms; ", timed_median(ms, n));
    tell(&t, cell);
}

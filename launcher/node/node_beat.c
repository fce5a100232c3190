/* node_beat.c -- see node_core.h. With each beat one look at the workers' processes: a small file of /proc for each, and
 * another one for who sleeps. What is not news is not told. */
#include "node/node_core.h"

#include "contain/procfs.h"

#include "base/clock.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

/* Who runs sleeps nowhere; "0" is the kernel's word for that, or for one who may not know. (Without ptrace
 * rights on the process /proc/PID/wchan reads "0", and no error.) */
static void look_where(pid_t pid, struct beat_look *look)
{
    if (look->state != 'R')
        procfs_line(pid, "wchan", look->where, sizeof(look->where));
    if (strcmp(look->where, "0") == 0)
        look->where[0] = '\0';
}

static struct beat_look look_at(pid_t pid)
{
    struct beat_look look = { .at_us = clock_us() };
    struct proc_stat stat;
    if (!procfs_stat(pid, &stat))
        return look;
    look.state = stat.state;
    look.cpu_ticks = stat.cpu_ticks;
    look_where(pid, &look);
    return look;
}

/* beat_take compares with the last look and adds a row only for news: in a healthy job of 64 workers a beat
 * stays empty. */
static struct beat_step_look look_at_step(const struct flight *f)
{
    struct beat_step_look look = { 0 };
    if (f == NULL)
        return look;
    look.step = atomic_load_explicit(&f->step, memory_order_relaxed);
    look.records = atomic_load_explicit(&f->records, memory_order_relaxed);
    look.call = atomic_load_explicit(&f->call, memory_order_relaxed);
    const enum flight_state state = flight_state(look.call);
    if (state == FLIGHT_STARTED || state == FLIGHT_SCHEDULED)
        flight_word(look.word, f->kinds, FLIGHT_KINDS, flight_kind(look.call));
    return look;
}

void node_on_beat(void *user, struct cJSON *beat)
{
    struct node *n = user;
    const uint64_t ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    cJSON *workers = cJSON_AddArrayToObject(beat, "workers");
    cJSON *steps = n->pages.n > 0 ? cJSON_AddArrayToObject(beat, "steps") : NULL;
    for (int i = 0; i < n->plan->nproc; i++) {
        if (n->pids[i] == 0)
            continue;
        const struct beat_look look = look_at(n->pids[i]);
        beat_take(&n->known[i], i, n->pids[i], &look, ticks_per_s, workers);
        const struct beat_step_look step = look_at_step(rank_page(&n->pages, i));
        beat_take_step(&n->steps[i], i, n->pids[i], &step, steps);
    }
}

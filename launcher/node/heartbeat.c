/* heartbeat.c -- see heartbeat.h. The heartbeats of a healthy job with many workers are almost empty, because only
 * changes are sent. This module does no input or output. */
#include "node/heartbeat.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* Return the CPU share since the last sample, in percent of one processor. With several threads the share may exceed
 * 100. Return 0 if there is no earlier sample. */
static int cpu_percent(const struct heartbeat_known *k, const struct heartbeat_sample *sample,
                       uint64_t ticks_per_s)
{
    const uint64_t us = sample->at_us - k->at_us;
    if (k->at_us == 0 || us == 0 || sample->cpu_ticks < k->cpu_ticks)
        return 0;
    return (int)((sample->cpu_ticks - k->cpu_ticks) * 100000000 / ticks_per_s / us);
}

/* Return true if the CPU share shows a running process. The limit is low, because a busy machine leaves a process
 * only a small share. */
static bool has_share(int percent)
{
    return percent >= BEAT_CPU_SHARE;
}

/* Return true if the sample must be sent: its state or kernel function is new, or its CPU share has changed by
 * BEAT_CPU_STEP or has crossed BEAT_CPU_SHARE. */
static bool is_news(const struct heartbeat_known *k, const struct heartbeat_sample *sample, int percent)
{
    return k->state != sample->state || strcmp(k->where, sample->where) != 0 ||
           abs(k->cpu_percent - percent) >= BEAT_CPU_STEP || has_share(k->cpu_percent) != has_share(percent);
}

static void add_row(struct cJSON *workers, int local_rank, int program, const struct heartbeat_known *k)
{
    const char state[2] = { k->state, '\0' };
    cJSON *row = cJSON_CreateArray();
    cJSON_AddItemToArray(row, cJSON_CreateNumber(local_rank));
    cJSON_AddItemToArray(row, cJSON_CreateString(state));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(k->cpu_percent));
    cJSON_AddItemToArray(row, cJSON_CreateString(k->where));
    if (program != 0)
        cJSON_AddItemToArray(row, cJSON_CreateNumber(program));
    if (!cJSON_AddItemToArray(workers, row))
        cJSON_Delete(row);
}

/* Set the state of a busy process to R (running). Otherwise the state would alternate between R and S, and each
 * change would be sent. */
static void settle(struct heartbeat_sample *sample, int percent)
{
    if (percent >= BEAT_CPU_STEP && (sample->state == 'R' || sample->state == 'S')) {
        sample->state = 'R';
        sample->where[0] = '\0';
    }
}

void heartbeat_compare(struct heartbeat_known *k, int local_rank, int pid, int program,
                       const struct heartbeat_sample *seen, uint64_t ticks_per_s, struct cJSON *workers)
{
    struct heartbeat_sample sample = *seen;
    if (k->pid != pid)
        *k = (struct heartbeat_known){ .pid = pid };
    if (sample.state == '\0')
        return;
    const int percent = cpu_percent(k, &sample, ticks_per_s);
    settle(&sample, percent);
    k->at_us = sample.at_us;
    k->cpu_ticks = sample.cpu_ticks;
    if (!is_news(k, &sample, percent))
        return;
    k->state = sample.state;
    k->cpu_percent = percent;
    memcpy(k->where, sample.where, sizeof(k->where));
    add_row(workers, local_rank, program, k);
}

/* --- steps ---------------------------------------------------------------------------------------------- */

/* Append the training step and the latest call of a worker. `sample->step` is the step plus 1, or 0 without a step. */
static void add_step(struct cJSON *steps, int local_rank, const struct heartbeat_step_sample *sample)
{
    cJSON *row = cJSON_CreateArray();
    cJSON_AddItemToArray(row, cJSON_CreateNumber(local_rank));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(sample->step > 0 ? (double)(sample->step - 1) : -1));
    cJSON_AddItemToArray(row, cJSON_CreateNumber((double)flight_seq(sample->call)));
    cJSON_AddItemToArray(row, cJSON_CreateString(sample->word));
    if (!cJSON_AddItemToArray(steps, row))
        cJSON_Delete(row);
}

struct heartbeat_step_sample beat_read_step(const struct flight *page)
{
    struct heartbeat_step_sample sample = { 0 };
    if (page == NULL)
        return sample;
    sample.step = atomic_load_explicit(&page->step, memory_order_relaxed);
    sample.records = atomic_load_explicit(&page->records, memory_order_relaxed);
    sample.call = atomic_load_explicit(&page->call, memory_order_relaxed);
    const enum flight_state state = flight_state(sample.call);
    if (state == FLIGHT_STARTED || state == FLIGHT_SCHEDULED)
        flight_word(sample.word, page->kinds, FLIGHT_KINDS, flight_kind(sample.call));
    return sample;
}

/* Append the worker's position only if it has changed, because the store measures the time since the last change. */
void heartbeat_compare_step(struct heartbeat_step *k, int local_rank, int pid,
                            const struct heartbeat_step_sample *sample, struct cJSON *steps)
{
    if (steps == NULL || sample->records == 0)
        return;
    if (k->pid == pid && k->step == sample->step && k->call == sample->call)
        return;
    *k = (struct heartbeat_step){ .pid = pid, .step = sample->step, .call = sample->call };
    add_step(steps, local_rank, sample);
}

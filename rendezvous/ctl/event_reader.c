/* event_reader.c -- see timeline.h. The module is pure: its input is text, and its output is a list. The events are
 * sorted last, because times of two nodes can be compared only after their conversion to the store's clock. */

/* Each run of a job has an instance, an id that the store makes. Reading has four steps:
 *
 *     1. Read all lines in any order.
 *     2. Choose one instance of one job.
 *     3. Convert all times to the store's clock.
 *     4. If several logs report an event, keep one copy. */

#include "ctl/timeline.h"

#include <stdio.h>
#include <stdlib.h>

const char *timeline_text(const struct timeline_event *event, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event->o, name));
    return text != NULL ? text : "";
}

/* Return a whole number from a log, or -1. Reject numbers from 4e15 on, because a double represents whole numbers
 * exactly only up to 2^53 (about 9e15). */
static int64_t number_of(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 4e15
               ? (int64_t)item->valuedouble
               : -1;
}

int64_t timeline_number(const struct timeline_event *event, const char *name)
{
    return number_of(cJSON_GetObjectItemCaseSensitive(event->o, name));
}

/* Return the time `name` of an event in ms, or -1 if the event has no valid time `name`. A time above 100 years is
 * invalid, so that sums of times do not overflow, even in microseconds. */
int64_t timeline_time(const struct timeline_event *event, const char *name)
{
    const int64_t ms = timeline_number(event, name);
    return ms <= 100ll * 366 * 86400 * 1000 ? ms : -1;
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* Return a list that has room for another element. If memory is short, return NULL. The caller then still owns the old
 * list. */
static void *grow_list(void *list, size_t *room, size_t n, size_t size)
{
    if (n < *room)
        return list;
    const size_t more = *room > 0 ? 2 * *room : 64;
    void *larger = realloc(list, more * size);
    if (larger != NULL)
        *room = more;
    return larger;
}

/* Return the index of a process in the list, and add the process if it is missing. Return SIZE_MAX if memory is short.
 * Search from the end, because consecutive lines are usually of one process. */
static size_t agent_of(struct timeline_events *e, const char *host, int64_t pid)
{
    for (size_t i = e->n_agents; i-- > 0;)
        if (e->agents[i].pid == (int)pid && strcmp(e->agents[i].host, host) == 0)
            return i;
    struct timeline_agent *list = grow_list(e->agents, &e->agents_room, e->n_agents, sizeof(*list));
    e->agents = list != NULL ? list : e->agents;
    char *copy = list != NULL ? strdup(host) : NULL;
    e->no_memory = e->no_memory || copy == NULL;
    if (copy == NULL)
        return SIZE_MAX;
    e->agents[e->n_agents] = (struct timeline_agent){ .host = copy, .pid = (int)pid };
    return e->n_agents++;
}

static void complain(const struct timeline_events *e, const char *file, size_t line, const char *what)
{
    if (e->complain != NULL)
        e->complain(e->user, file, line, what);
}

/* Return NULL if a line is an event that can be drawn, otherwise the reason. A full disk or a killed process may cut a
 * log anywhere. So a wrong line is reported with its number, and reading continues. */
static const char *check_line(struct timeline_event *event)
{
    if (!cJSON_IsObject(event->o))
        return "not a JSON object: the line may be cut off";
    if (timeline_text(event, "event")[0] == '\0')
        return "no \"event\"";
    event->kind = event_kind_of(timeline_text(event, "event"));
    if (event->kind == EVENT_N_KINDS)
        return "unknown kind of event";
    event->by_store = event->kind < EVENT_LAUNCHED;
    event->n = (double)timeline_number(event, "n");
    if (event->by_store && (event->n < 0 || timeline_time(event, "store_ms") < 0))
        return "an event of the store needs \"n\" and \"store_ms\"";
    if (!event->by_store && (timeline_time(event, "ms") < 0 || timeline_number(event, "agent_pid") < 0))
        return "an event of a node needs \"ms\" and \"agent_pid\"";
    return NULL;
}

/* Find the process of an event. The store's events about a node have the same host and pid as the node's own events. */
static void find_agent(struct timeline_events *e, struct timeline_event *event)
{
    const char *host = event->by_store ? "host" : "agent_host", *pid = event->by_store ? "pid" : "agent_pid";
    event->agent = SIZE_MAX;
    if (timeline_number(event, pid) >= 0)
        event->agent = agent_of(e, timeline_text(event, host), timeline_number(event, pid));
}

static void add_line(struct timeline_events *e, const char *file, size_t number, struct slice line)
{
    struct timeline_event *list = grow_list(e->list, &e->room, e->n, sizeof(*list));
    if (list == NULL) {
        e->no_memory = true;
        return;
    }
    e->list = list;
    struct timeline_event *event = &list[e->n];
    *event = (struct timeline_event){ .order = e->n, .o = cJSON_ParseWithLength(line.data, line.len) };
    const char *why = line.len > TIMELINE_LINE_MAX ? "line too long" : check_line(event);
    if (why != NULL) {
        complain(e, file, number, why);
        cJSON_Delete(event->o);
        return;
    }
    find_agent(e, event);
    e->n++;
}

/* Read a log. The last line may have no newline, because a process may still be writing the line. */
void timeline_read(struct timeline_events *e, const char *file, struct slice text)
{
    const char *at = text.data, *end = at + text.len;
    for (size_t number = 1; at < end && !e->no_memory; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        if (e->n >= TIMELINE_EVENTS_MAX) {
            if (!e->is_full)
                complain(e, file, number, "too many events; reading ends here");
            e->is_full = true;
            return;
        }
        if (stop > at)
            add_line(e, file, number, slice_of(at, (size_t)(stop - at)));
        at = stop + 1;
    }
}

/* --- wall clock ------------------------------------------------------------------------------------------- */

/* Return the days from 1970 to a date. The year begins in March, so that the leap day is its last day. timegm() is not
 * pure, because it may read the file of the time zone. */
static int64_t day_of(int year, int month, int day)
{
    const int y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    return 365ll * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719469;
}

static bool is_between(int value, int least, int most)
{
    return value >= least && value <= most;
}

/* Return the milliseconds from 1970 to a time such as "2026-11-21T16:24:00.123456Z". Return -1 if the text is not
 * such a time. Second 60 is valid, because it may be a leap second. */
static int64_t wall_ms(const struct timeline_event *event)
{
    int year, month, day, hour, minute, second, us;
    if (sscanf(timeline_text(event, "time"), "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ", &year, &month, &day, &hour,
               &minute, &second, &us) != 7 ||
        year < 1970 || !is_between(month, 1, 12) ||
        !is_between(day, 1, (int)(day_of(year, month + 1, 1) - day_of(year, month, 1))) ||
        !is_between(hour, 0, 23) || !is_between(minute, 0, 59) || !is_between(second, 0, 60) || us < 0)
        return -1;
    return (day_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) * 1000 + us / 1000;
}

/* --- job and instance ----------------------------------------------------------------------------------- */

/* Choose the instance of the line with the latest time. If `job` is not NULL, search only lines of this job. If no line
 * has a time, choose the instance of the last line that names an instance. */
static void choose_instance(struct timeline_events *e, const char *job)
{
    const char *latest_job = "", *latest_instance = "";
    int64_t latest_ms = -1;
    for (size_t i = 0; i < e->n; i++) {
        const char *name = timeline_text(&e->list[i], "job"),
                   *instance = timeline_text(&e->list[i], "instance");
        const int64_t ms = wall_ms(&e->list[i]);
        const bool is_first = instance[0] != '\0' && latest_instance[0] == '\0';
        if ((job != NULL && strcmp(job, name) != 0) || (instance[0] == '\0' && latest_instance[0] != '\0') ||
            (ms < latest_ms && !is_first))
            continue;
        latest_job = name;
        latest_instance = instance;
        latest_ms = ms;
    }
    e->job = strdup(latest_job);
    e->instance = strdup(latest_instance);
    e->no_memory = e->no_memory || e->job == NULL || e->instance == NULL;
}

static bool is_of_instance(const struct timeline_events *e, const struct timeline_event *event)
{
    return strcmp(timeline_text(event, "job"), e->job) == 0 &&
           strcmp(timeline_text(event, "instance"), e->instance) == 0;
}

/* Return true if an event belongs to the chosen instance of the chosen job. An event of this job may name no instance.
 * Such an event belongs to the chosen instance if choose() has chosen the event's process. */
static bool is_chosen(const struct timeline_events *e, const struct timeline_event *event)
{
    if (is_of_instance(e, event))
        return true;
    return timeline_text(event, "instance")[0] == '\0' && strcmp(timeline_text(event, "job"), e->job) == 0 &&
           event->agent != SIZE_MAX && e->agents[event->agent].is_chosen;
}

/* Choose the events of one instance. Exclude a process whose lines name only other instances. Include a process whose
 * lines name no instance: it never reached the store, which may be the reason why the job did not start. */
static void choose(struct timeline_events *e)
{
    bool *of_another = calloc(e->n_agents + 1, sizeof(*of_another));
    e->no_memory = e->no_memory || of_another == NULL;
    for (size_t i = 0; i < e->n && of_another != NULL; i++) {
        const struct timeline_event *event = &e->list[i];
        if (event->agent == SIZE_MAX)
            continue;
        if (is_of_instance(e, event))
            e->agents[event->agent].is_chosen = true;
        else if (timeline_text(event, "instance")[0] != '\0')
            of_another[event->agent] = true;
    }
    for (size_t i = 0; i < e->n_agents && of_another != NULL; i++)
        e->agents[i].is_chosen = e->agents[i].is_chosen || !of_another[i];
    free(of_another);
    for (size_t i = 0; i < e->n; i++) {
        e->list[i].is_chosen = is_chosen(e, &e->list[i]);
        e->other_lives += !e->list[i].is_chosen;
    }
}

/* --- times on the store's clock ------------------------------------------------------------------------- */

/* Return the store's clock minus the wall clock, from the first line that contains the times of both clocks. Return 0
 * if no line contains both times. */
static int64_t ahead_of_wall(const struct timeline_events *e)
{
    for (size_t i = 0; i < e->n; i++) {
        const int64_t store = timeline_time(&e->list[i], "store_ms"), wall = wall_ms(&e->list[i]);
        if (e->list[i].is_chosen && store >= 0 && wall >= 0)
            return store - wall;
    }
    return 0;
}

/* Set the clock offset of a process once, from the first line of the process that also has the store's time. The drift
 * between the two monotonic clocks is too small to see. */
static void learn_offset(struct timeline_events *e, const struct timeline_event *event, int64_t store_ms)
{
    struct timeline_agent *agent = event->agent != SIZE_MAX ? &e->agents[event->agent] : NULL;
    const int64_t ms = timeline_time(event, "ms");
    if (agent == NULL || agent->has_offset || ms < 0 || store_ms < 0)
        return;
    agent->ahead_ms = store_ms - ms;
    agent->has_offset = true;
}

/* Convert all times to the store's clock. For a process that never reached the store, use the wall clock, which is
 * only as accurate as NTP on the hosts. */
static void place_all(struct timeline_events *e)
{
    const int64_t ahead_ms = ahead_of_wall(e);
    for (size_t i = 0; i < e->n; i++)
        if (e->list[i].is_chosen)
            learn_offset(e, &e->list[i], timeline_time(&e->list[i], "store_ms"));
    for (size_t i = 0; i < e->n; i++) /* this loop sets the offset of processes that have no offset yet,
                                       * because they never reached the store */
        if (e->list[i].is_chosen && wall_ms(&e->list[i]) >= 0)
            learn_offset(e, &e->list[i], wall_ms(&e->list[i]) + ahead_ms);
    for (size_t i = 0; i < e->n; i++) {
        struct timeline_event *event = &e->list[i];
        const int64_t store_ms = timeline_time(event, "store_ms");
        event->at_ms = store_ms >= 0 ? store_ms : timeline_time(event, "ms");
        if (store_ms < 0 && event->agent != SIZE_MAX)
            event->at_ms += e->agents[event->agent].ahead_ms;
    }
}

static int sign(double x)
{
    return (x > 0) - (x < 0);
}

/* Compare the identity of two events. Return 0 if both lines report the same event. The store numbers its events, so a
 * number identifies an event of the store. An event of a node is identified by process, time, kind and rank. */
static int twins(const struct timeline_event *x, const struct timeline_event *y)
{
    int order = y->is_chosen - x->is_chosen;
    if (order == 0)
        order = y->by_store - x->by_store;
    if (order != 0 || x->by_store)
        return order != 0 ? order : sign(x->n - y->n);
    order = sign((double)x->agent - (double)y->agent);
    if (order == 0)
        order = sign((double)timeline_time(x, "ms") - (double)timeline_time(y, "ms"));
    if (order == 0)
        order = (int)x->kind - (int)y->kind;
    return order != 0 ? order : sign((double)timeline_number(x, "rank") - (double)timeline_number(y, "rank"));
}

static int by_twins(const void *a, const void *b)
{
    const struct timeline_event *x = a, *y = b;
    const int order = twins(x, y);
    return order != 0 ? order : sign((double)x->order - (double)y->order);
}

/* Compare two events. All chosen events are before all other events. Within each of these two groups, events are in the
 * order of their times. Two events of the store in the same millisecond are in the order of the numbers that the store
 * gave them. All other events with equal times are in the order of reading. Within one log, this is the order of
 * writing. */
static int by_time(const void *a, const void *b)
{
    const struct timeline_event *x = a, *y = b;
    int order = y->is_chosen - x->is_chosen;
    if (order == 0)
        order = sign((double)x->at_ms - (double)y->at_ms);
    if (order == 0 && x->by_store && y->by_store)
        order = sign(x->n - y->n);
    return order != 0 ? order : sign((double)x->order - (double)y->order);
}

/* Keep only one of several equal events: the event that was read first. Equal events occur, for example, if the user
 * names a log twice. After the sort, equal events are adjacent, in the order of reading. Begin with the last event.
 * A loop from the front would drop the second of three equal events, and then compare the third with the second.
 * twins() never treats a dropped event and a kept event as equal, so this loop would keep the third event. */
static void drop_twins(struct timeline_events *e)
{
    qsort(e->list, e->n, sizeof(*e->list), by_twins);
    for (size_t i = e->n; i-- > 1;)
        if (e->list[i].is_chosen && twins(&e->list[i - 1], &e->list[i]) == 0)
            e->list[i].is_chosen = false;
}

/* Keep each event of the latest instance once, sorted by time, and drop all others. If `job` is not NULL, choose the
 * latest instance of this job. Return false if no event is left or memory is short. */
bool timeline_choose(struct timeline_events *e, const char *job)
{
    if (e->n == 0 || e->no_memory)
        return false;
    choose_instance(e, job);
    if (!e->no_memory)
        choose(e);
    if (e->no_memory)
        return false;
    place_all(e);
    drop_twins(e);
    qsort(e->list, e->n, sizeof(*e->list), by_time);
    while (e->n > 0 && !e->list[e->n - 1].is_chosen)
        cJSON_Delete(e->list[--e->n].o);
    return e->n > 0;
}

void timeline_events_free(struct timeline_events *e)
{
    for (size_t i = 0; i < e->n; i++)
        cJSON_Delete(e->list[i].o);
    for (size_t i = 0; i < e->n_agents; i++)
        free(e->agents[i].host);
    free(e->list);
    free(e->agents);
    free(e->job);
    free(e->instance);
    e->list = NULL;
    e->agents = NULL;
    e->n = e->n_agents = 0;
}

/* node_flights.c -- see node_core.h. A rank that has seen the error has written its record itself (worker/core/recorder.h). One that was
 * stopped, looped or was killed has not, and it is mostly that one which is looked for: its record lies in the memory that we share
 * with it, and is written here.
 *
 * Where they go is the user's choice, perhaps a server that does not answer any more, and the agent has other duties: so it waits
 * a while for the thread that writes, no longer. */
#include "node/aside.h"
#include "node/node_core.h"

#include "agent/ending.h"
#include "output/disk_watch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { WRITE_MS = 5000, STOPPED_WRITE_MS = 500, WHY = ENDING_MAX + 32 };

/* All that the thread needs, as it may outlive the node. */
struct records {
    struct rank_pages pages;
    char pattern[PATH_MAX];
    bool kept; /* one of them at least */
    int n;
    struct one {
        int rank;
        char why[WHY];
    } each[];
};

/* As the report says it: "killed by signal 9 (SIGKILL)". */
static void say_why(const struct node *n, int local_rank, char why[WHY])
{
    char how[ENDING_MAX];
    ending_text(how, agent_worker(n->agent, local_rank));
    snprintf(why, WHY, "written by ddprun: %s", how);
}

static void records_free(void *user)
{
    struct records *records = user;
    rank_pages_close(&records->pages);
    free(records);
}

/* NULL: there are none, or no memory for them. */
static struct records *records_of(const struct node *n, const char *pattern)
{
    const size_t nproc = (size_t)n->plan->nproc;
    struct records *records = calloc(1, sizeof(*records) + nproc * sizeof(records->each[0]));
    if (records == NULL)
        return NULL;
    rank_pages_share(&n->pages, &records->pages);
    records->n = records->pages.n;
    for (int i = 0; i < records->n; i++) {
        records->each[i].rank = node_rank(n, i);
        say_why(n, i, records->each[i].why);
    }
    if ((size_t)snprintf(records->pattern, PATH_MAX, "%s", pattern) < PATH_MAX && records->n > 0)
        return records;
    records_free(records);
    return NULL;
}

static void write_records(void *user)
{
    struct records *records = user;
    char path[PATH_MAX];
    disk_begin(DISK_FLIGHTS, records->pattern);
    for (int i = 0; i < records->n; i++)
        if (flight_path(path, sizeof(path), records->pattern, records->each[i].rank) &&
            rank_page_keep(&records->pages, i, path, records->each[i].why))
            records->kept = true;
    disk_end(DISK_FLIGHTS);
}

void node_keep_flights(struct node *n)
{
    const char *pattern = plan_flight(n->plan);
    struct records *records = pattern != NULL ? records_of(n, pattern) : NULL;
    if (records == NULL)
        return;
    /* A user who stops the job, or a disk that hangs already, leaves less time. */
    const bool hurry = agent_stop_signal(n->agent) != 0 || disk_hangs(DISK_HUNG_MS, NULL);
    const int limit_ms = hurry ? STOPPED_WRITE_MS : WRITE_MS;
    if (!aside_run(&(struct aside){ write_records, records_free, records }, limit_ms)) {
        output_note(
            n->output,
            "warning: the ranks' last calls cannot be written to %s: the file system has not answered for "
            "%d ms",
            pattern, limit_ms);
        return;
    }
    n->kept_flights = n->kept_flights || records->kept;
    records_free(records);
}

/* node_flights.c -- see node_core.h. A rank that has seen the error has written its record itself (worker/recorder.h). One that was
 * stopped, looped or was killed has not, and it is mostly that one which is looked for: its record lies in the memory that we share
 * with it, and is written here. */
#include "node/node_core.h"

#include "agent/ending.h"

#include <limits.h>
#include <stdio.h>

/* As the report says it: "killed by signal 9 (SIGKILL)". */
static void say_why(const struct node *n, int local_rank, char why[ENDING_MAX + 32])
{
    char how[ENDING_MAX];
    ending_text(how, agent_worker(n->agent, local_rank));
    snprintf(why, ENDING_MAX + 32, "written by ddprun: %s", how);
}

void node_keep_flights(struct node *n)
{
    char path[PATH_MAX], why[ENDING_MAX + 32];
    const char *pattern = plan_flight(n->plan);
    for (int i = 0; pattern != NULL && i < n->plan->nproc; i++) {
        say_why(n, i, why);
        if (flight_path(path, sizeof(path), pattern, node_rank(n, i)) &&
            rank_page_keep(&n->pages, i, path, why))
            n->kept_flights = true;
    }
}

/* proc_stat.c -- see proc_stat.h. */
#include "contain/proc_stat.h"

#include <stdio.h>
#include <string.h>

bool proc_stat_parse(const char *text, struct proc_stat *out)
{
    unsigned long long start, user, system;
    /* The name in parentheses may hold anything, also parentheses and spaces: look behind the last one. */
    const char *end = strrchr(text, ')');
    if (end == NULL || sscanf(end + 1,
                              " %c %d %d %*d %*d %d %u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %d %*d "
                              "%llu",
                              &out->state, &out->parent, &out->group, &out->foreground, &out->flags, &user,
                              &system, &out->threads, &start) != 9)
        return false;
    out->cpu_ticks = user + system;
    out->start_ticks = start;
    return true;
}

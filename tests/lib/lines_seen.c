/* lines_seen.c -- see lines_seen.h. */
#include "lines_seen.h"

#include <stdio.h>
#include <string.h>

enum { WORKERS_MAX = 256, BODY = 300 };

/* Rank of a line's head, which is number `*number` of it; *used = its length. -1 when it is no head. */
static int read_head(const char *line, bool coloured, int *number, int *used)
{
    int prefix, rank, n;
    *used = 0;
    if (coloured)
        n = sscanf(line, "\033[%*dm[%d]\033[0m <%d:%6d:%n", &prefix, &rank, number, used);
    else
        n = sscanf(line, "[%d] <%d:%6d:%n", &prefix, &rank, number, used);
    return n == 3 && *used > 0 && prefix == rank && rank < WORKERS_MAX ? rank : -1;
}

struct lines_seen lines_seen(char *text, bool coloured)
{
    struct lines_seen seen = { 0 };
    int next[WORKERS_MAX] = { 0 };
    char body[BODY + 2] = { 0 };
    memset(body, 'x', BODY / 2);
    memset(body + BODY / 2, 'y', BODY / 2);
    body[BODY] = '>';
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        int number, used;
        *end = '\0';
        int rank = read_head(line, coloured, &number, &used);
        bool ok = rank >= 0 && number == next[rank] && strcmp(line + used, body) == 0;
        if (ok)
            next[rank]++;
        seen.whole += ok;
        seen.torn += !ok;
    }
    return seen;
}

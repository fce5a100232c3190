/* torn.c -- see torn.h. A line counts as whole only if every byte of the line is as expected. */
#include "torn.h"

#include "peer_job.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RUN = 150, TAIL = 2 * RUN + 1, LIMIT_MS = 40000 };

/* Return the rest of the line after the prefix, or the whole line if the prefix is missing. */
static const char *skip_prefix(const char *line, const char *prefix)
{
    const char *at = line;
    for (; *prefix != '\0'; prefix++) {
        if (*prefix == '#' && isdigit((unsigned char)*at))
            at += strspn(at, "0123456789");
        else if (*prefix == *at)
            at++;
        else
            return line;
    }
    return at;
}

/* Return true if `line` is a complete line such as "<3:000017:xxx...yyy>". The caller has removed its newline. */
static bool is_whole(const char *line)
{
    static char tail[TAIL + 1];
    int used = 0;
    if (tail[0] == '\0') {
        memset(tail, 'x', RUN);
        memset(tail + RUN, 'y', RUN);
        tail[TAIL - 1] = '>';
    }
    sscanf(line, "<%*[0-9]:%*6[0-9]:%n", &used);
    return used > 0 && strcmp(line + used, tail) == 0;
}

static void count_lines(struct torn_count *c, FILE *in, const char *prefix)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    rewind(in);
    while ((n = getline(&line, &room, in)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (is_whole(skip_prefix(line, prefix)))
            c->whole++;
        else
            c->other++;
    }
    free(line);
}

/* Count the torn lines in the output of a launcher. The launcher writes to a file, so that no reader can affect the
 * lines. */
void torn_try(const struct peer *p, const char *writer, struct torn_count *c)
{
    char lines[16];
    struct peer_job j;
    snprintf(lines, sizeof(lines), "%d", TORN_LINES);
    c->jobs++;
    if (!peer_job_start(&j, p, true, TORN_WORKERS, (const char *const[]){ writer, lines, NULL }) ||
        !peer_job_wait(&j, p->start_ms + LIMIT_MS))
        c->hung++;
    if (j.out != NULL)
        count_lines(c, j.out, p->prefix);
    peer_job_end(&j);
}

long torn_lines(const struct torn_count *c)
{
    return (long)c->jobs * TORN_ALL - c->whole;
}

/* bench_torn.c -- does a launcher keep lines whole that its workers write in pieces?
 *
 *     bench_torn DDPRUN TORN_WRITER [ROUNDS]
 *
 * 16 workers (tests/prog/torn_writer.c) write 2,000 lines each in three write() calls. A line counts as whole when it is
 * exactly one worker's line with at most a "[rank] " in front; every line that did not come out so was torn or lost.
 * Prints a markdown table, and JSON lines on descriptor 3 when it is open. */
#include "timed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 16, LINES = 2000, LIMIT_MS = 30000 };

struct count {
    long whole, torn;
    int hung;
};

/* The part behind the prefix: "<3:000017:xxx...yyy>" without the newline. */
static bool whole_line(const char *line, size_t n)
{
    static char body[302];
    int used = 0;
    if (body[0] == '\0') {
        memset(body, 'x', 150);
        memset(body + 150, 'y', 150);
        body[300] = '>';
    }
    if (line[0] == '[') {
        const char *end = memchr(line, ']', n);
        if (end == NULL || (size_t)(end - line) + 2 > n || end[1] != ' ')
            return false;
        n -= (size_t)(end + 2 - line);
        line = end + 2;
    }
    sscanf(line, "<%*[0-9]:%*6[0-9]:%n", &used);
    return used > 0 && n == (size_t)used + 301 && memcmp(line + used, body, 301) == 0;
}

static void count_lines(FILE *in, struct count *c)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while ((n = getline(&line, &room, in)) > 0) {
        if (line[n - 1] == '\n')
            line[--n] = '\0';
        if (whole_line(line, (size_t)n))
            c->whole++;
        else
            c->torn++;
    }
    free(line);
}

/* The output goes to a file first: the reader must not be what decides about the lines. */
static void run(char *const argv[], int rounds, struct count *c)
{
    for (int i = 0; i < rounds; i++) {
        FILE *out = tmpfile();
        if (out == NULL)
            return;
        struct timed t = timed_run(argv, fileno(out), LIMIT_MS);
        c->hung += t.hung;
        rewind(out);
        count_lines(out, c);
        fclose(out);
    }
}

static void cell(const struct count *c, int rounds)
{
    long all = (long)rounds * WORKERS * LINES;
    if (c->whole + c->torn == 0)
        printf(" skipped, because it is not installed |");
    else
        printf(" %ld of %ld torn%s |", all - c->whole, all, c->hung > 0 ? ", hung" : "");
}

static void json_line(FILE *json, const char *who, const struct count *c, int rounds)
{
    if (json != NULL)
        fprintf(json,
                "{\"bench\":\"torn\",\"who\":\"%s\",\"lines\":%ld,\"whole\":%ld,\"torn\":%ld,\"hung\":%d}\n",
                who, (long)rounds * WORKERS * LINES, c->whole, c->torn, c->hung);
}

int main(int argc, char *argv[])
{
    int rounds = argc > 3 ? atoi(argv[3]) : 1;
    if (argc < 3 || rounds < 1) {
        fprintf(stderr, "usage: bench_torn DDPRUN TORN_WRITER [ROUNDS]\n");
        return 2;
    }
    char *ours[] = { argv[1], "--nproc_per_node=16", argv[2], "2000", NULL };
    char *hydra[] = { "mpiexec.hydra", "-prepend-rank", "-n", "16", argv[2], "2000", NULL };
    struct count a = { 0 }, b = { 0 };
    run(ours, rounds, &a);
    if (timed_have("mpiexec.hydra"))
        run(hydra, rounds, &b);
    printf("| torn lines | ddprun | mpiexec.hydra -prepend-rank |\n|---|---|---|\n");
    printf("| 16 workers × 2,000 lines, each written in three pieces |");
    cell(&a, rounds);
    cell(&b, rounds);
    printf("\n");
    FILE *json = fcntl(3, F_GETFD) >= 0 ? fdopen(3, "w") : NULL;
    json_line(json, "ddprun", &a, rounds);
    json_line(json, "mpiexec.hydra", &b, rounds);
    if (json != NULL)
        fclose(json);
    return 0;
}

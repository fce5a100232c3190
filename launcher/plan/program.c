/* program.c -- see program.h.
 *
 *     PROGRAM        what is executed
 *     ./train        ./train ARGS
 *     train.py       python3 -u train.py ARGS
 *     -m pkg.mod     python3 -u -m pkg.mod ARGS
 *
 * Which python: $PYTHON_EXEC, else the first python3 in the worker's PATH, which is the one of an activated
 * virtual environment. torchrun takes the one that runs torchrun; a C program has none of its own. */
#include "plan/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rank_mark[] = "${local_rank}"; /* torchrun's macro */

/* The name decides, not the file's content: the file may be on PATH, or made by the time it runs. */
static bool is_python(const struct cli *cli)
{
    size_t len = strlen(cli->program);
    if (cli->no_python)
        return false;
    return cli->module || (len > 3 && strcmp(cli->program + len - 3, ".py") == 0);
}

/* Words in front of PROGRAM; returns how many. */
static size_t interpreter_words(const struct cli *cli, const char *python_exec, const char *words[3])
{
    size_t n = 0;
    if (!is_python(cli))
        return 0;
    words[n++] = python_exec != NULL && python_exec[0] != '\0' ? python_exec : "python3";
    words[n++] = "-u"; /* unbuffered: its last words must not be lost in its own buffer */
    if (cli->module)
        words[n++] = "-m";
    return n;
}

/* Append `arg` with the mark replaced, and a NUL. */
static bool add_argument(struct buf *text, const char *arg, int local_rank)
{
    const char *mark;
    bool ok = true;
    while ((mark = strstr(arg, rank_mark)) != NULL) {
        ok = ok && buf_append(text, arg, (size_t)(mark - arg)) && buf_printf(text, "%d", local_rank);
        arg = mark + strlen(rank_mark);
    }
    return ok && buf_append(text, arg, strlen(arg) + 1);
}

/* Pointers first, their texts behind them: one block, one free. */
static char **pack(const struct buf *text, size_t n)
{
    size_t pointers = (n + 1) * sizeof(char *);
    char **argv = malloc(pointers + text->len);
    if (argv == NULL)
        return NULL;
    char *p = (char *)argv + pointers;
    memcpy(p, text->data, text->len);
    for (size_t i = 0; i < n; i++, p += strlen(p) + 1)
        argv[i] = p;
    argv[n] = NULL;
    return argv;
}

char **program_argv(const struct cli *cli, const char *python_exec, int local_rank)
{
    const char *front[3];
    struct buf text = { 0 };
    size_t n = interpreter_words(cli, python_exec, front);
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok = ok && buf_append(&text, front[i], strlen(front[i]) + 1);
    ok = ok && buf_append(&text, cli->program, strlen(cli->program) + 1);
    n++;
    for (char *const *arg = cli->args; *arg != NULL; arg++, n++)
        ok = ok && add_argument(&text, *arg, local_rank);
    char **argv = ok ? pack(&text, n) : NULL;
    buf_free(&text);
    return argv;
}

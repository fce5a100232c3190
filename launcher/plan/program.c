/* program.c -- see program.h.
 *
 *     PROGRAM        what is executed
 *     ./train        ./train ARGS
 *     train.py       python3 -u train.py ARGS
 *     -m pkg.mod     python3 -u -m pkg.mod ARGS
 *     --run_path     python3 -u -c '(runpy)' train.py ARGS
 *
 * Which python: $PYTHON_EXEC, else the first python3 in the worker's PATH, which is the one of an activated
 * virtual environment. torchrun takes the one that runs torchrun; a C program has none of its own. */
#include "plan/program.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rank_name[] = "local_rank"; /* torchrun's macro is ${local_rank} */

/* What runpy needs, in as few words as torchrun's own: argv as the script expects it. */
static const char run_path_code[] =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

enum { FRONT_MAX = 4 };

/* The name decides, not the file's content: the file may be on PATH, or made by the time it runs. Started as torchrun,
 * every program is Python's unless it was said otherwise. */
static bool is_python(const struct cli *cli)
{
    size_t len = strlen(cli->program);
    if (cli->run_path)
        return true;
    if (cli->no_python)
        return false;
    return cli->module || cli->torchrun || (len > 3 && strcmp(cli->program + len - 3, ".py") == 0);
}

static const char *interpreter(const char *python_exec)
{
    return python_exec != NULL && python_exec[0] != '\0' ? python_exec : "python3";
}

static bool is_named_python(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strncmp(slash != NULL ? slash + 1 : program, "python", strlen("python")) == 0;
}

const char *program_python(const struct cli *cli, const char *python_exec)
{
    if (is_python(cli))
        return interpreter(python_exec);
    return is_named_python(cli->program) ? cli->program : NULL;
}

const char *program_script(const struct cli *cli, const char *python_exec)
{
    const bool is_file = is_python(cli) && !cli->module && strcmp(cli->program, "-") != 0;
    return is_file && is_named_python(interpreter(python_exec)) ? cli->program : NULL;
}

/* Words in front of PROGRAM; returns how many. */
static size_t interpreter_words(const struct cli *cli, const char *python_exec, const char *words[FRONT_MAX])
{
    size_t n = 0;
    if (!is_python(cli))
        return 0;
    words[n++] = interpreter(python_exec);
    words[n++] = "-u"; /* unbuffered: its last words must not be lost in its own buffer */
    if (cli->run_path) {
        words[n++] = "-c";
        words[n++] = run_path_code;
    } else if (cli->module) {
        words[n++] = "-m";
    }
    return n;
}

/* Length of the mark at `at`, 0 when there is none. torchrun also knows it without braces. */
static size_t mark_length(const char *at, bool braces_only)
{
    const size_t len = sizeof(rank_name) - 1;
    if (at[0] == '$' && at[1] == '{' && strncmp(at + 2, rank_name, len) == 0 && at[2 + len] == '}')
        return len + 3;
    if (braces_only || at[0] != '$' || strncmp(at + 1, rank_name, len) != 0)
        return 0;
    const unsigned char next = (unsigned char)at[1 + len];
    return isalnum(next) || next == '_' ? 0 : len + 1;
}

/* Append `arg` with the marks replaced, and a NUL. As torchrun: Python's Template.safe_substitute, by which "$$" is
 * one dollar, too. */
static bool add_argument(struct buf *text, const struct cli *cli, const char *arg, int local_rank)
{
    bool ok = true;
    while (ok && *arg != '\0') {
        const size_t mark = mark_length(arg, !cli->torchrun);
        if (mark > 0) {
            ok = buf_printf(text, "%d", local_rank);
            arg += mark;
        } else {
            ok = buf_append(text, arg, 1);
            arg += cli->torchrun && arg[0] == '$' && arg[1] == '$' ? 2 : 1;
        }
    }
    return ok && buf_append(text, "", 1);
}

/* As torch.distributed.launch: the script's first argument. */
static bool add_rank_argument(struct buf *text, const struct cli *cli, int local_rank, size_t *n)
{
    if (cli->rank_argument == NULL || cli->use_env)
        return true;
    ++*n;
    return buf_printf(text, "--%s=%d", cli->rank_argument, local_rank) && buf_append(text, "", 1);
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
    const char *front[FRONT_MAX];
    struct buf text = { 0 };
    size_t n = interpreter_words(cli, python_exec, front);
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok = ok && buf_append(&text, front[i], strlen(front[i]) + 1);
    ok = ok && buf_append(&text, cli->program, strlen(cli->program) + 1);
    n++;
    ok = ok && add_rank_argument(&text, cli, local_rank, &n);
    for (char *const *arg = cli->args; *arg != NULL; arg++, n++)
        ok = ok && add_argument(&text, cli, *arg, local_rank);
    char **argv = ok ? pack(&text, n) : NULL;
    buf_free(&text);
    return argv;
}

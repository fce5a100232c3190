/* cli_complete.c -- --print_completion: what makes a shell complete our options, from the rows that parse them.
 *
 *     ddprun --print_completion=bash >/etc/bash_completion.d/ddprun
 *
 * Behind an option that takes a value, and behind the program, the shell's own completion goes on (files). */
#include "cli/cli_table.h"

#include <string.h>

/* "--name " for each, with "=" where a value follows. */
static bool put_names(struct buf *out, const char *front)
{
    bool ok = true;
    for (int i = 0; i < OPTIONS; i++)
        ok = ok && buf_printf(out, "%s%s%s%s", i > 0 ? " " : "", front, cli_rows[i].name,
                              cli_is_switch(&cli_rows[i]) ? "" : "=");
    return ok;
}

/* Options only in front of the program: the first word that is none ends them. No blank behind "=". */
static bool print_bash(struct buf *out, const char *name)
{
    return buf_printf(out,
                      "_%s() {\n"
                      "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                      "    [[ $cur == -* ]] || return\n"
                      "    mapfile -t COMPREPLY < <(compgen -W '",
                      name) &&
           put_names(out, "--") &&
           buf_printf(out,
                      "' -- \"$cur\")\n"
                      "    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
                      "}\n"
                      "complete -o default -F _%s %s\n",
                      name, name);
}

/* Brackets, colons and quotes mean something to _arguments. */
static bool put_zsh_text(struct buf *out, const char *text)
{
    bool ok = true;
    for (; *text != '\0'; text++)
        ok = ok &&
             (*text == '\'' ? buf_printf(out, "'\\''")
                            : buf_printf(out, "%s%c", strchr("[]:\\", *text) != NULL ? "\\" : "", *text));
    return ok;
}

static bool print_zsh(struct buf *out, const char *name)
{
    bool ok = buf_printf(out, "#compdef %s\n_arguments -S \\\n", name);
    for (int i = 0; i < OPTIONS; i++) {
        const struct cli_row *row = &cli_rows[i];
        ok = ok && buf_printf(out, "  '--%s%s[", row->name, cli_is_switch(row) ? "" : "=") &&
             put_zsh_text(out, row->help) &&
             buf_printf(out, "]%s%s%s' \\\n", cli_is_switch(row) ? "" : ":", row->value,
                        cli_is_switch(row) ? "" : ":_files");
    }
    return ok && buf_printf(out, "  '*::program:_normal'\n");
}

static bool print_tcsh(struct buf *out, const char *name)
{
    return buf_printf(out, "complete %s 'c/--/(", name) && put_names(out, "") && buf_printf(out, ")/'\n");
}

bool cli_print_completion(const struct cli *cli, struct buf *out)
{
    static bool (*const print[])(struct buf *, const char *) = {
        [SHELL_BASH] = print_bash, [SHELL_ZSH] = print_zsh, [SHELL_TCSH] = print_tcsh
    };
    return print[cli->completion](out, cli->torchrun ? "torchrun" : "ddprun");
}

/* completion.c -- see options.h. A script consists of fixed texts and of lists that are made from the table of options,
 * so that a new option needs no change here. The scripts for bash, zsh and fish work alike: the words before the cursor
 * show what the user is typing. */
#include "base/options.h"

#include <string.h>

static bool is_shown(const struct option_row *o)
{
    return o->help != NULL;
}

enum value_kind { VALUE_NONE, VALUE_WORDS, VALUE_FILE, VALUE_DIR };

/* Return how the value of an option is completed. Return VALUE_NONE if the option has no value, or if any text is
 * valid. */
static enum value_kind kind_of(const struct option_row *o)
{
    if (o->words != NULL && o->words->list != NULL)
        return VALUE_WORDS;
    if (options_is_switch(o))
        return VALUE_NONE;
    if (strcmp(o->value, "DIR") == 0)
        return VALUE_DIR;
    return strcmp(o->value, "FILE") == 0 || strcmp(o->value, "PATTERN") == 0 ? VALUE_FILE : VALUE_NONE;
}

/* Append `text`, and replace each backquote with the program's name. */
static bool append_template(struct buf *out, const struct completion *c, const char *text)
{
    bool ok = true;
    for (const char *at; (at = strchr(text, '`')) != NULL; text = at + 1)
        ok = ok && buf_append(out, text, (size_t)(at - text)) && buf_printf(out, "%s", c->program);
    return ok && buf_printf(out, "%s", text);
}

/* Append the names of all options that take a value, such as "--a --b". If `with_value` is false, append the names of
 * all switches instead. */
static bool append_names(struct buf *out, const struct completion *c, bool with_value)
{
    const char *blank = "";
    bool ok = true;
    for (size_t i = 0; i < c->options->n; i++)
        if (is_shown(&c->options->rows[i]) && options_is_switch(&c->options->rows[i]) != with_value) {
            ok = ok && buf_printf(out, "%s--%s", blank, c->options->rows[i].name);
            blank = " ";
        }
    return ok;
}

/* Append the letters of all options that take a value, such as "r t". */
static bool append_letters(struct buf *out, const struct completion *c)
{
    const char *blank = "";
    bool ok = true;
    for (size_t i = 0; i < c->options->n; i++) {
        const struct option_row *o = &c->options->rows[i];
        if (o->letter != 0 && !options_is_switch(o)) {
            ok = ok && buf_printf(out, "%s%c", blank, o->letter);
            blank = " ";
        }
    }
    return ok;
}

static bool append_words(struct buf *out, const struct option_row *o)
{
    const char *blank = "";
    bool ok = true;
    for (size_t i = 0; i < options_word_count(o->words); i++)
        if (o->words->list[i] != NULL) {
            ok = ok && buf_printf(out, "%s%s", blank, o->words->list[i]);
            blank = " ";
        }
    return ok;
}

/* Append the name with underscores, because the scripts compare names in this form. */
static bool append_key(struct buf *out, const char *name)
{
    bool ok = true;
    for (; *name != '\0'; name++)
        ok = ok && buf_append(out, *name == '-' ? "_" : name, 1);
    return ok;
}

/* Append the line `KEY) BEFORE words AFTER ;;` for each option whose value can be completed. If the value is a file or
 * a directory, the line is `KEY) FILE ;;` or `KEY) DIR ;;`. */
static bool append_cases(struct buf *out, const struct completion *c, const char *before, const char *after,
                         const char *file, const char *dir)
{
    bool ok = true;
    for (size_t i = 0; i < c->options->n; i++) {
        const struct option_row *o = &c->options->rows[i];
        const enum value_kind kind = kind_of(o);
        if (kind == VALUE_NONE)
            continue;
        ok = ok && buf_printf(out, "    ") && append_key(out, o->name);
        if (o->letter != 0)
            ok = ok && buf_printf(out, "|%c", o->letter);
        ok = ok && buf_printf(out, ") ");
        if (kind == VALUE_WORDS)
            ok = ok && buf_printf(out, "%s", before) && append_words(out, o) && buf_printf(out, "%s", after);
        else
            ok = ok && buf_printf(out, "%s", kind == VALUE_DIR ? dir : file);
        ok = ok && buf_printf(out, " ;;\n");
    }
    return ok;
}

/* Append a pattern that matches the commands whose arguments are files, such as "-|a|b". */
static bool append_file_commands(struct buf *out, const struct completion *c)
{
    /* begin with "-", which is no command's name, because the pattern must not be empty if no command takes files */
    bool ok = buf_printf(out, "-");
    for (size_t i = 0; i < c->n_commands; i++)
        if (c->commands[i].files)
            ok = ok && buf_printf(out, "|%s", c->commands[i].name);
    return ok;
}

static bool append_commands(struct buf *out, const struct completion *c)
{
    bool ok = true;
    for (size_t i = 0; i < c->n_commands; i++)
        ok = ok && buf_printf(out, "%s%s", i > 0 ? " " : "", c->commands[i].name);
    return ok;
}

/* Append a help text up to its first `;`, `:`, `(` or newline, escaped for a text in single quotes of a shell. The
 * appended text has no colon, because zsh separates name and text by a colon. */
static bool append_help(struct buf *out, const char *help, bool fish)
{
    size_t len = strcspn(help, ";:(\n");
    bool ok = true;
    while (len > 0 && help[len - 1] == ' ')
        len--;
    for (size_t i = 0; i < len; i++)
        ok = ok && (help[i] == '\''   ? buf_printf(out, fish ? "\\'" : "'\\''")
                    : help[i] == '\\' ? buf_printf(out, "\\\\")
                                      : buf_append(out, help + i, 1));
    return ok;
}

/* --- bash ----------------------------------------------------------------------------------------------- */

/* The scripts for bash, zsh and fish walk over the words before the cursor. The result shows what the user is typing:
 * an option, its value, the command, or its argument. */

/* This part of the bash script walks over the words before the cursor. bash splits --name=value into three words,
 * unless COMP_WORDBREAKS was changed. */
static const char bash_walk[] =
    "' prefix= cur=${COMP_WORDS[COMP_CWORD]} i word name= first=0\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]} name=\n"
    "        case $word in\n"
    "        --) first=$((i + 1)); break ;;\n"
    "        -?*=*) ;;\n"
    "        --*)\n"
    "            name=${word#--} name=${name//-/_}\n"
    "            if [[ ${COMP_WORDS[i + 1]} == = ]]; then ((i += 2))\n"
    "            elif [[ \" ${valued//-/_}\" == *\" __$name\"* ]]; then ((i++)); fi ;;\n"
    "        -?) [[ \" $letters \" != *\" ${word#-} \"* ]] || { name=${word#-}; ((i++)); } ;;\n"
    "        -?*) ;;\n";
static const char bash_value[] =
    "    if ((i > COMP_CWORD)); then\n"
    "        [[ $cur != = ]] || cur=\n"
    "        _`_value\n"
    "        return\n"
    "    elif [[ $first == 0 && $cur == --*=* ]]; then\n"
    "        name=${cur%%=*} name=${name#--} name=${name//-/_} prefix=${cur%%=*}= cur=${cur#*=}\n"
    "        _`_value\n"
    "        return\n"
    "    fi\n";
static const char bash_options[] = "        local all=\"$switches ${valued// /= }=\"\n"
                                   "        [[ $cur != --*-* ]] || all=\"${all//_/-}\"\n"
                                   "        mapfile -t COMPREPLY < <(compgen -W \"$all\" -- \"$cur\")\n"
                                   "        [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n";
static const char bash_program[] = "        *) first=$i; break ;;\n"
                                   "        esac\n"
                                   "    done\n";
static const char bash_program_end[] = "    if [[ $first == 0 && $cur == -* ]]; then\n";
static const char bash_program_rest[] =
    "    elif ((first > 0 && first < COMP_CWORD)); then\n"
    "        if declare -F _comp_command_offset >/dev/null; then _comp_command_offset \"$first\"\n"
    "        elif declare -F _command_offset >/dev/null; then _command_offset \"$first\"\n"
    "        else compopt -o default; fi\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen ${cur:+-c} -f -- \"$cur\"; compgen -W '";
static const char bash_program_last[] = "' -- \"$cur\")\n"
                                        "        compopt -o filenames\n"
                                        "    fi\n"
                                        "}\n";
static const char bash_command[] = "        *) command=${command:-$word} ;;\n"
                                   "        esac\n"
                                   "    done\n";

static bool print_bash(const struct completion *c, struct buf *out)
{
    bool ok =
        append_template(
            out, c,
            "# Completes the command line of ` in bash.\n_`_value() {\n    local words=\n    case $name "
            "in\n") &&
        append_cases(
            out, c, "words='", "'",
            "mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -f -- \"$cur\"); compopt -o filenames",
            "mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -d -- \"$cur\"); compopt -o filenames") &&
        append_template(
            out, c,
            "    esac\n"
            "    [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -W \"$words\" -- "
            "\"$cur\")\n"
            "}\n\n_`() {\n    local command= switches='") &&
        append_names(out, c, false) && buf_printf(out, "' valued='") && append_names(out, c, true) &&
        buf_printf(out, "' letters='") && append_letters(out, c) && append_template(out, c, bash_walk);
    if (c->program_follows)
        ok = ok && append_template(out, c, bash_program) && append_template(out, c, bash_value) &&
             append_template(out, c, bash_program_end) && append_template(out, c, bash_options) &&
             append_template(out, c, bash_program_rest) && append_commands(out, c) &&
             append_template(out, c, bash_program_last);
    else
        ok = ok && append_template(out, c, bash_command) && append_template(out, c, bash_value) &&
             buf_printf(out, "    if [[ $cur == -* ]]; then\n") && append_template(out, c, bash_options) &&
             buf_printf(out, "    elif [[ -z $command ]]; then\n"
                             "        mapfile -t COMPREPLY < <(compgen -W '") &&
             append_commands(out, c) &&
             buf_printf(out, "' -- \"$cur\")\n    else\n        case $command in\n        ") &&
             append_file_commands(out, c) &&
             buf_printf(out, ") mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); compopt -o filenames ;;\n"
                             "        esac\n    fi\n}\n");
    return ok && append_template(out, c, "complete -F _` `\n");
}

/* --- zsh ------------------------------------------------------------------------------------------------ */

static const char zsh_walk[] =
    "    for (( i = 2; i < CURRENT; i++ )); do\n"
    "        word=$words[i] name=\n"
    "        case $word in\n"
    "        (--) first=$(( i + 1 )); break ;;\n"
    "        (-?*=*) ;;\n"
    "        (--*) name=${${word#--}//-/_}; [[ -z ${(M)${valued//-/_}:#__${name}*} ]] || (( i++ )) ;;\n"
    "        (-?) [[ \" $letters \" != *\" ${word#-} \"* ]] || { name=${word#-}; (( i++ )) } ;;\n"
    "        (-?*) ;;\n";
static const char zsh_value[] = "    if (( i > CURRENT )); then\n"
                                "        _`_value $name\n"
                                "        return\n"
                                "    elif [[ $first == 0 && $cur == --*=* ]]; then\n"
                                "        name=${${cur%%=*}#--}\n"
                                "        compset -P 1 '*='\n"
                                "        _`_value ${name//-/_}\n"
                                "        return\n"
                                "    fi\n";
static const char zsh_options[] = "        if [[ $cur == --*-* ]]; then\n"
                                  "            switches=(\"${(@)switches/(#m)[^:]##/${MATCH//_/-}}\") "
                                  "valued=(\"${(@)valued/(#m)[^:]##/${MATCH//_/-}}\")\n"
                                  "        fi\n"
                                  "        _describe -o option switches -- valued -qS =\n";
static const char zsh_program_rest[] =
    "    elif (( first > 0 && first < CURRENT )); then\n"
    "        words=(\"${(@)words[first,-1]}\")\n"
    "        (( CURRENT -= first - 1 ))\n"
    "        _normal\n"
    "    else\n"
    "        _alternative 'files:program:_files' 'commands:command:_command_names -e' 'own:ddprun command:(";

/* Append "'--name:help'" for each option. */
static bool append_described(struct buf *out, const struct completion *c, bool with_value)
{
    bool ok = true;
    for (size_t i = 0; i < c->options->n; i++) {
        const struct option_row *o = &c->options->rows[i];
        if (is_shown(o) && options_is_switch(o) != with_value)
            ok = ok && buf_printf(out, "\n        '--%s:", o->name) && append_help(out, o->help, false) &&
                 buf_printf(out, "'");
    }
    return ok;
}

static bool append_zsh_commands(struct buf *out, const struct completion *c)
{
    bool ok = buf_printf(out, "    elif [[ -z $command ]]; then\n        subcommands=(");
    for (size_t i = 0; i < c->n_commands; i++)
        ok = ok && buf_printf(out, "\n            '%s:", c->commands[i].name) &&
             append_help(out, c->commands[i].help, false) && buf_printf(out, "'");
    return ok &&
           buf_printf(
               out,
               ")\n        _describe command subcommands\n    else\n        case $command in\n        (") &&
           append_file_commands(out, c) && buf_printf(out, ") _files ;;\n        esac\n    fi\n}\n");
}

static bool print_zsh(const struct completion *c, struct buf *out)
{
    bool ok = append_template(
                  out, c,
                  "#compdef `\n# Completes the command line of ` in zsh.\n_`_value() {\n    case $1 in\n") &&
              append_cases(out, c, "compadd -- ", "", "_files", "_path_files -/") &&
              append_template(out, c,
                              "    esac\n}\n\n_`() {\n    setopt localoptions extendedglob\n"
                              "    local cur=$words[CURRENT] i word name= first=0 command= letters='") &&
              append_letters(out, c) && buf_printf(out, "'\n    local -a subcommands switches=(") &&
              append_described(out, c, false) && buf_printf(out, ") valued=(") &&
              append_described(out, c, true) && buf_printf(out, ")\n") && append_template(out, c, zsh_walk);
    if (c->program_follows)
        ok = ok && buf_printf(out, "        (*) first=$i; break ;;\n        esac\n    done\n") &&
             append_template(out, c, zsh_value) &&
             buf_printf(out, "    if [[ $first == 0 && $cur == -* ]]; then\n") &&
             append_template(out, c, zsh_options) && append_template(out, c, zsh_program_rest) &&
             append_commands(out, c) && buf_printf(out, ")'\n    fi\n}\n");
    else
        ok = ok && buf_printf(out, "        (*) command=${command:-$word} ;;\n        esac\n    done\n") &&
             append_template(out, c, zsh_value) && buf_printf(out, "    if [[ $cur == -* ]]; then\n") &&
             append_template(out, c, zsh_options) && append_zsh_commands(out, c);
    return ok &&
           append_template(out, c, "\nif [[ $funcstack[1] == _` ]]; then _` \"$@\"; else compdef _` `; fi\n");
}

/* --- fish ----------------------------------------------------------------------------------------------- */

/* This part of the fish script walks over the words before the cursor. */
static const char fish_walk[] =
    "function __`_words\n"
    "    set -l words (commandline -opc)\n"
    "    set -e words[1]\n"
    "    while set -q words[1]\n"
    "        set -l word $words[1]\n"
    "        set -e words[1]\n"
    "        switch $word\n"
    "            case --\n"
    "                test -n \"$words\"; and printf '%s\\n' $words; or echo\n"
    "                return\n"
    "            case '-?*=*'\n"
    "            case '--*'\n"
    "                contains -- (string replace -a -- - _ $word) $__`_valued; and set -e words[1]\n"
    "            case '-?'\n"
    "                contains -- $word $__`_valued; and set -e words[1]\n"
    "            case '-?*'\n"
    "            case '*'\n";

/* This function of the fish script checks whether the current word or the previous word has a dash inside a name, as in
 * "--log-". Only then does the script of ddprun offer names with dashes, such as --log-dir. */
static const char fish_dashes[] =
    "function __`_dashes\n"
    "    string match -qr -- '^--[^=]*[^-=]-' (commandline -ct) (commandline -opc)[-1]\n"
    "end\n";

/* Append the list of options that take a value, with underscores in place of dashes: "__nproc_per_node -r". The
 * function __`_words of fish_walk searches this list for each typed option. */
static bool append_fish_valued(struct buf *out, const struct completion *c)
{
    bool ok = append_template(out, c, "set -g __`_valued");
    for (size_t i = 0; i < c->options->n; i++) {
        const struct option_row *o = &c->options->rows[i];
        if (is_shown(o) && !options_is_switch(o))
            ok = ok && buf_printf(out, " __") && append_key(out, o->name);
        if (!options_is_switch(o) && o->letter != 0)
            ok = ok && buf_printf(out, " -%c", o->letter);
    }
    return ok && buf_printf(out, "\n");
}

static bool append_fish_option(struct buf *out, const struct completion *c, const struct option_row *o,
                               bool dashes)
{
    const enum value_kind kind = kind_of(o);
    const bool switch_only = options_is_switch(o);
    bool ok =
        append_template(out, c, c->program_follows ? "complete -c ` -n 'not __`_has_word" : "complete -c `");
    if (c->program_follows)
        ok = ok && append_template(out, c, dashes ? "; and __`_dashes'" : "'");
    ok = ok && buf_printf(out, " -l ");
    for (const char *p = o->name; *p != '\0'; p++)
        ok = ok && buf_append(out, dashes && *p == '_' ? "-" : p, 1);
    if (o->letter != 0 && !dashes)
        ok = ok && buf_printf(out, " -s %c", o->letter);
    if (!switch_only)
        ok = ok && buf_printf(out, kind == VALUE_FILE ? " -rF" : " -x");
    if (!switch_only && kind == VALUE_WORDS)
        ok = ok && buf_printf(out, " -a '") && append_words(out, o) && buf_printf(out, "'");
    if (kind == VALUE_DIR)
        ok = ok && buf_printf(out, " -a '(__fish_complete_directories)'");
    return ok && buf_printf(out, " -d '") && append_help(out, o->help, true) && buf_printf(out, "'\n");
}

static bool append_fish_words(struct buf *out, const struct completion *c)
{
    bool ok = true;
    if (c->program_follows)
        ok = append_template(
            out, c,
            "complete -c ` -n 'not __`_has_word' -a '(__fish_complete_path (commandline -ct))'\n"
            "complete -c ` -n 'not __`_has_word; and test -n (commandline -ct)' -a "
            "'(__fish_complete_command)'\n"
            "complete -c ` -n __`_has_word -a '(complete -C (string join -- \" \" (__`_words) "
            "(commandline -ct)))'\n");
    for (size_t i = 0; i < c->n_commands; i++)
        ok = ok && append_template(out, c, "complete -c ` -n 'not __`_has_word' -a ") &&
             buf_printf(out, "%s -d '", c->commands[i].name) && append_help(out, c->commands[i].help, true) &&
             buf_printf(out, "'\n");
    for (size_t i = 0; i < c->n_commands; i++)
        if (c->commands[i].files)
            ok = ok && append_template(out, c, "complete -c ` -F -n 'contains -- ") &&
                 buf_printf(out, "%s", c->commands[i].name) && append_template(out, c, " (__`_words)'\n");
    return ok;
}

static bool print_fish(const struct completion *c, struct buf *out)
{
    bool ok =
        append_template(out, c, "# Completes the command line of ` in fish.\n") &&
        append_fish_valued(out, c) && append_template(out, c, fish_walk) &&
        append_template(out, c,
                        c->program_follows
                            ? "                printf '%s\\n' $word $words\n                return\n"
                            : "                printf '%s\\n' $word\n") &&
        append_template(
            out, c,
            "        end\n    end\nend\nfunction __`_has_word\n    test (count (__`_words)) -gt 0\nend\n") &&
        append_template(out, c, fish_dashes) && append_template(out, c, "complete -c ` -f\n");
    for (size_t i = 0; i < c->options->n && ok; i++) {
        const struct option_row *o = &c->options->rows[i];
        ok = !is_shown(o) || (append_fish_option(out, c, o, false) &&
                              (strchr(o->name, '_') == NULL || append_fish_option(out, c, o, true)));
    }
    return ok && append_fish_words(out, c);
}

/* --- tcsh ----------------------------------------------------------------------------------------------- */

static bool print_tcsh(const struct completion *c, struct buf *out)
{
    bool ok = append_template(out, c, "complete ` 'c/--/(");
    for (size_t i = 0; i < c->options->n; i++)
        if (is_shown(&c->options->rows[i]))
            ok = ok && buf_printf(out, "%s%s%s", i > 0 ? " " : "", c->options->rows[i].name,
                                  options_is_switch(&c->options->rows[i]) ? "" : "=");
    return ok && buf_printf(out, ")/'\n");
}

static const char *const shells[SHELLS] = {
    [SHELL_BASH] = "bash", [SHELL_ZSH] = "zsh", [SHELL_FISH] = "fish", [SHELL_TCSH] = "tcsh"
};
const struct option_words completion_shells = { NULL, shells, SHELLS };

bool completion_print(enum completion_shell shell, const struct completion *c, struct buf *out)
{
    static bool (*const print[SHELLS])(const struct completion *,
                                       struct buf *) = { [SHELL_BASH] = print_bash,
                                                         [SHELL_ZSH] = print_zsh,
                                                         [SHELL_FISH] = print_fish,
                                                         [SHELL_TCSH] = print_tcsh };
    return print[shell](c, out);
}

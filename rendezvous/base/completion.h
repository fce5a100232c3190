/* completion.h -- scripts by which bash, zsh, fish and tcsh complete the command line of a program, from rows of its options.
 *
 * A name with underscores is completed with dashes, too, once a dash is typed. A value is completed as a file where its name in
 * the help is FILE or PATTERN, as a directory where that is DIR, and else by its words alone. */
#ifndef BASE_COMPLETION_H
#define BASE_COMPLETION_H

#include "base/options.h"

struct completion_command {
    const char *name, *help;
    bool files; /* its arguments are files */
};

struct completion {
    const char *program;
    const struct option_table *options;
    const struct completion_command *commands; /* what the first word may be; */
    size_t n_commands;                         /* 0 = a program to run, whose own completion follows */
};

enum completion_shell { SHELL_NONE, SHELL_BASH, SHELL_ZSH, SHELL_FISH, SHELL_TCSH, SHELLS };

/* For OPTION_WORD: the index of a word is its enum completion_shell. */
extern const struct option_words completion_shells;

/* Append the script for `shell`, which is not SHELL_NONE. False when memory is short. For tcsh it has the names of options only. */
bool completion_print(enum completion_shell shell, const struct completion *c, struct buf *out);

#endif

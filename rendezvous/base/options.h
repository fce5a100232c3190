/* options.h -- parses command lines by a table with one row for each option. --help, the manual page and the shell
 * completions (completion.c) of each program are made from the same rows. The module returns texts and prints
 * nothing. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdint.h>

/* The type of a field, and its valid values. */
enum option_type {
    OPTION_FLAG,   /* bool: a switch */
    OPTION_SET,    /* a switch that stores `min` in an int or enum */
    OPTION_INT,    /* int, min to max */
    OPTION_COUNT,  /* uint64_t, min to max */
    OPTION_REAL,   /* double above 0 */
    OPTION_REAL_0, /* double of 0 or more */
    OPTION_TEXT,   /* const char * of min to OPTION_TEXT_MAX bytes, borrowed from argv */
    OPTION_WORD,   /* int or enum: an index in option_row.words */
    OPTION_NAME,   /* const char *: one of option_row.words, borrowed from argv */
};

/* Maximum length of the text of an option, which is also the maximum length of a path. An error that shows a longer
 * text could have no room for its reason. */
enum { OPTION_TEXT_MAX = 4095 };

struct option_words {
    const char *note; /* reason and remedy that follow the words in an error: "; use --x"; NULL if none */
    const char *const *list; /* words that the option accepts; NULL if none */
    size_t n;                /* number of words; 0 if the list ends with a NULL */
};
#define OPTION_WORDS(note, ...)                                           \
    {                                                                     \
        note, (const char *const[]){ __VA_ARGS__ },                       \
            sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) \
    }

/* The row of an option, for example:
 *
 *     { .name = "max-bytes", .value = "N", .parse = set_max_bytes, .help = "keep at most N bytes" }
 *
 * This row accepts --max-bytes N, --max-bytes=N and --max_bytes=N: in names, '-' and '_' are equal. */
struct option_row {
    const char *name;  /* without dashes in front */
    char letter;       /* letter of the short form; 0 if none */
    const char *value; /* name of the value in the help; NULL for a switch; "[=X]" if the value is optional */
    enum option_type type;
    /* Parse `text` ("1" for a switch) and store the value in the field `to`. If `parse` is NULL, `type` determines how
     * the text is parsed. Set `err` to the valid values only, such as "a number", because options_store prepends
     * "--limit=0: expected ". If `parse` leaves `err` empty, options_store appends the list `words`. */
    ddp_status (*parse)(const char *text, void *to, struct ddp_err *err);
    size_t at;                        /* offset of the field in the struct of the program's options */
    const char *preset;               /* default, as a user would type it; NULL if none */
    uint64_t min, max;                /* limits of OPTION_INT and OPTION_COUNT; OPTION_SET stores `min` */
    const struct option_words *words; /* for OPTION_WORD, OPTION_NAME and completions; NULL if none */
    unsigned char group;              /* section of the help; only ddprun uses it (launcher/cli/help.c) */
    unsigned char rank;               /* if an abbreviation matches several options, the lowest value wins */
    bool in_environment;              /* the environment variable PET_<NAME> sets the option, too */
    const char *help;                 /* NULL if the option is hidden */
};

/* How options are written. */
enum option_style {
    OPTIONS_PLAIN,    /* names must be complete; the help writes "--name VALUE" */
    OPTIONS_ARGPARSE, /* names may be abbreviated, and letters may be combined; the help writes "--name=VALUE" */
};

/* A table of options. The rows are borrowed and usually static. */
struct option_table {
    const struct option_row *rows;
    size_t n;
    enum option_style style;
};
#define OPTION_TABLE(rows, style)                     \
    {                                                 \
        rows, sizeof(rows) / sizeof((rows)[0]), style \
    }

/* Store the defaults, then the options in argv[1..], in the struct `into`. Stop at the first word that is not an
 * option, and set *rest to its index in argv. If `rest` is NULL, such a word is an error. After DDP_ERR_ARG, `err` has
 * the option and the remedy. */
ddp_status options_parse(const struct option_table *table, int argc, char *const argv[], void *into,
                         int *rest, struct ddp_err *err);

/* The state of the parser, for callers that read one option at a time with options_next. */
struct option_reader {
    const struct option_table *table; /* borrowed */
    char *const *at;                  /* the next word */
    char *const *end;                 /* address after the last word; NULL if the list ends with a NULL */
    const char *letters; /* letters of an argument such as -qv that are not parsed yet; NULL if none */
    char spelled[80];    /* the option that was read last, as error texts show it */
};

/* Read the next option. Set *row to its row and *text to its value ("1" for a switch). If all words are read, or the
 * next word is not an option, set *row to NULL. A "--" ends the options and is skipped. If the option is unknown, set
 * *row to NULL and return DDP_ERR_ARG. *row and *text are borrowed from the table and from argv, or are constant. */
ddp_status options_next(struct option_reader *reader, const struct option_row **row, const char **text,
                        struct ddp_err *err);

/* Store `text` as the value of the row's option in `into`. */
ddp_status options_store(const struct option_row *row, const char *text, const char *spelled, void *into,
                         struct ddp_err *err);

/* Append a value to a list for an error: "'a'", ", 'b'", " or 'c'". `is_last` selects the separator of the last value. A
 * list begins as "", and its end is cut if it exceeds `size` bytes. */
void options_list_add(char *list, size_t size, bool is_last, const char *fmt, ...) DDP_PRINTF(4, 5);

/* Return the number of entries in the list. */
size_t options_word_count(const struct option_words *words);
/* Return the index of `text` in the list, or -1 if `text` is not in the list. */
int options_word(const struct option_words *words, const char *text);

/* Parse a number of bytes, such as "123", "64K", "64M" or "2G". If the text is invalid, set *out to 0 and return false.
 * If the number exceeds `most`, set *out to UINT64_MAX and return false. */
bool options_size(const char *text, uint64_t most, uint64_t *out);

/* Return true if the option needs no value. A switch with "[=X]" also accepts a value. */
bool options_is_switch(const struct option_row *row);

/* Append the text of --help (options_help), or the manual page in roff (options_man). The functions with `_row` append
 * the text of one option only. Return false if memory is short. */
bool options_help_row(const struct option_table *table, const struct option_row *row, const char *preset,
                      struct buf *out);
bool options_help(const struct option_table *table, struct buf *out);
bool options_man_row(const struct option_table *table, const struct option_row *row, struct buf *out);
bool options_man(const struct option_table *table, struct buf *out);

/* Append `text` in lines of at most 80 bytes. The first line begins at column `at`, and the following lines are
 * indented by `column` blanks. */
bool options_wrap(struct buf *out, const char *text, size_t at, size_t column);
/* Append `text` with the escapes of roff. */
bool options_roff(struct buf *out, const char *text);

/* Format the name of the row's environment variable: "PET_NPROC_PER_NODE". */
enum { OPTION_PET_MAX = 64 };
void options_pet_name(char out[OPTION_PET_MAX], const struct option_row *row);

/* --- completion.c: scripts with which bash, zsh, fish and tcsh complete command lines ----------------------- */

/* These structs describe a program for its completion script. The name of an option's value (option_row.value)
 * determines how the script completes the value. If this name is FILE or PATTERN, the script offers names of files. If
 * this name is DIR, the script offers names of directories. Any other value is completed with option_row.words. */

struct completion_command {
    const char *name, *help;
    bool files; /* the arguments of the command are files */
};

/* The program whose completion script is made; all pointers are borrowed. */
struct completion {
    const char *program;
    const struct option_table *options;
    const struct completion_command *commands; /* commands that the first word may name */
    size_t n_commands;
    bool program_follows; /* the first word may be a program; the completion script of this program then
                           * completes the later words */
};

enum completion_shell { SHELL_NONE, SHELL_BASH, SHELL_ZSH, SHELL_FISH, SHELL_TCSH, SHELLS };

/* The shells, for OPTION_WORD. The index of a word is its enum completion_shell. */
extern const struct option_words completion_shells;

/* Append the script for `shell`, which is not SHELL_NONE. Return false if memory is short. The script for tcsh
 * completes only names of options. */
bool completion_print(enum completion_shell shell, const struct completion *c, struct buf *out);

/* --- version ------------------------------------------------------------------------------------------------ */

/* These functions print the version of a program, and check whether programs of two versions work together. */

/* The commit that a program is built from, or "unknown". The text is not in a library, because all tests would then be
 * linked again after each commit. */
extern const char build_commit[];

/* Append "PROGRAM 0.1.0 (commit, architecture, C library)", or the same facts as a JSON object, and a newline. Return
 * false if memory is short. */
bool version_print(struct buf *out, const char *program, const char *commit, bool json);

/* Return true if programs of these two versions work together, as two nodes or as a node and a store. Such versions
 * have equal major and minor numbers. */
bool version_matches(const char *a, const char *b);

#endif

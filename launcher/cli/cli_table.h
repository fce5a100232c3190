/* cli_table.h -- private to the files of the command line: the rows of options.h as data, and the parsers
 * they name.
 *
 * A parser reads `text` into the field that `to` points at. DDP_OK; or DDP_ERR_ARG with `err` saying what
 * would be right, to which cli.c adds option and value; or DDP_ERR_NOMEM. */
#ifndef LAUNCHER_CLI_TABLE_H
#define LAUNCHER_CLI_TABLE_H

#include "cli/cli.h"

#define CLI_KINDS(X) \
    X(NPROC)         \
    X(NNODES)        \
    X(NODE_RANK)     \
    X(SWITCH)        \
    X(TEXT)          \
    X(SCHEDULER)     \
    X(HOST)          \
    X(JOB)           \
    X(PORT)          \
    X(ENV)           \
    X(STD_MAP)       \
    X(PATTERN)       \
    X(ROTATE)        \
    X(POLICY)        \
    X(RANKS)         \
    X(INPUT)         \
    X(PREFIX)        \
    X(NO_PREFIX)     \
    X(CONTAIN)       \
    X(SIGNALS)       \
    X(COUNT)         \
    X(EXIT_POLICY)   \
    X(DURATION)      \
    X(TIMEOUT)       \
    X(BACKEND)       \
    X(ENDPOINT)      \
    X(RDZV_CONF)     \
    X(HOST_STORE)    \
    X(TORCH_STORE)   \
    X(GROW)          \
    X(NODE_TIMEOUT)  \
    X(ROLE)          \
    X(START_METHOD)  \
    X(RANK_ARGUMENT) \
    X(EVENT_HANDLER) \
    X(LOGS_SPECS)    \
    X(SECONDS)       \
    X(INTERVAL)      \
    X(BINDING)       \
    X(FILTERS)       \
    X(SHELL)         \
    X(HELP_PAGE)

#define X(kind) ddp_status cli_value_##kind(const char *text, void *to, struct ddp_err *err);
CLI_KINDS(X)
#undef X

enum cli_kind {
#define X(kind) KIND_##kind,
    CLI_KINDS(X)
#undef X
        KINDS
};

enum cli_section {
#define X(id, title) SECTION_##id,
    OPTION_SECTIONS(X)
#undef X
        SECTIONS
};

enum cli_whose { WHOSE_FIRST, WHOSE_THEIRS, WHOSE_OURS };

struct cli_row {
    const char *name; /* with underscores */
    char letter;      /* 0 = no short form */
    enum cli_kind kind;
    ddp_status (*parse)(const char *text, void *to, struct ddp_err *err);
    size_t at;           /* of the field in struct cli */
    const char *value;   /* "" = a switch; "[=X]" = a switch that accepts a value, written with '=' only */
    const char *preset;  /* default as it would be typed, or NULL */
    bool in_environment; /* PET_<NAME> is read */
    enum cli_whose whose;
    enum cli_section section;
    const char *help;
};

/* cli.c */
extern const struct cli_row cli_rows[OPTIONS];

/* A row without a name for its value takes none. */
static inline bool cli_is_switch(const struct cli_row *row)
{
    return row->value[0] == '\0' || row->value[0] == '[';
}

/* A switch that accepts a value behind '='. */
static inline bool cli_may_have_value(const struct cli_row *row)
{
    return row->value[0] == '[';
}

/* The option's default, as it would be typed; NULL = none. torchrun's where that differs and we are called so. */
const char *cli_preset(const struct cli *cli, enum cli_option option);

/* Make the option one that nobody has given, its default apart; false when torchrun refuses an empty value of it. */
bool cli_forget(struct cli *cli, enum cli_option option);

/* Is this the path of a program called torchrun? */
bool cli_is_torchrun(const char *path);

/* What several parsers need. A decimal number between `low` and `high`, and nothing else. */
bool cli_whole_number(const char *text, long low, long high, int *to);

/* Which of the words is it? -1: none. Places that a table leaves out are NULL. */
int cli_word_in(const char *text, const char *const words[], size_t n);
#define CLI_WORD_IN(text, words) cli_word_in(text, words, sizeof(words) / sizeof((words)[0]))

/* values.c: the words that options of this kind accept. The index of `text` among them, -1 when it is none of them. */
int cli_word_of(enum cli_kind kind, const char *text);

/* The list itself, with `*n` places, of which some may be NULL. *n = 0: the kind has no words. */
const char *const *cli_words(enum cli_kind kind, size_t *n);

/* "1500ms", "30s", "2m", "1h", and plain seconds, with a fraction if wanted; at most a year. */
bool cli_duration(const char *text, uint64_t *to_ms);

/* "PET_NPROC_PER_NODE" */
enum { CLI_PET_MAX = 64 };
void cli_pet_name(char out[CLI_PET_MAX], const struct cli_row *row);

#endif

/* cli.h -- the command line of ddprun, from the one table of options in options.h. The parser, the defaults from PET_*
 * variables, --help and the manual page all use that table. The rules are the same as in Python's argparse, because
 * users come from torchrun. */
#ifndef LAUNCHER_CLI_CLI_H
#define LAUNCHER_CLI_CLI_H

#include "base/buf.h"
#include "base/options.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "cli/options.h"
#include "ddp/error.h"
#include "base/exit_codes.h"
#include "record/rank_set.h"
#include "tables/signals.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_NPROC_MAX = LIMIT_NPROC, /* largest number of workers on one node */
    CLI_NODES_MAX = LIMIT_NODES,
    CLI_COUNT_MAX = 10000,      /* limit of --max_restarts and similar counts */
    CLI_RANK_MAX = 1048575,     /* highest rank in a map of --tee or --redirects */
    CLI_STDMAP_ITEMS_MAX = 4096 /* largest number of items in a map of --tee or --redirects */
};

/* The index of each row of options.h: OPT_NPROC_PER_NODE and so on. */
enum cli_option {
#define X(id, ...) OPT_##id,
    DDPRUN_OPTIONS(X)
#undef X
        OPTIONS
};

/* The index of each row of DDPRUN_COMMANDS: COMMAND_EXPLAIN and so on. */
enum cli_command {
#define X(id, ...) COMMAND_##id,
    DDPRUN_COMMANDS(X)
#undef X
        COMMANDS
};

extern const struct completion_command cli_commands[COMMANDS];

/* The source of an option's value; a later source overrides an earlier source. */
enum cli_origin { FROM_DEFAULT, FROM_SCHEDULER, FROM_ENVIRONMENT, FROM_COMMAND_LINE };

enum nproc_kind {
    NPROC_DEFAULT, /* one worker per visible GPU, or one worker if no GPU is visible */
    NPROC_NUMBER,  /* `count` workers */
    NPROC_GPU,     /* one worker per visible GPU, or an error if no GPU is visible */
    NPROC_CPU,     /* one worker per CPU that this process may use */
    NPROC_AUTO     /* as NPROC_GPU if a GPU is visible, else as NPROC_CPU */
};

struct cli_nproc {
    enum nproc_kind kind;
    int count;
};

/* Streams of a worker, as bits. torchrun's values 0 to 3 have the same bits. */
enum { STD_OUT = 1, STD_ERR = 2, STD_BOTH = 3 };

/* A value of --tee or --redirects: "3" for all ranks, or "0:3,1:1" by local rank. A zeroed map selects no stream. */
struct std_map {
    struct std_map_item {
        int rank;    /* local rank */
        int streams; /* STD_OUT, STD_ERR, STD_BOTH or 0 */
    } * items;       /* owned by the map, sorted by rank */
    size_t n;
    int all; /* streams of the ranks that are not in `items` */
};

/* Return the streams that the map selects for `local_rank`, as bits. */
int std_map_get(const struct std_map *map, int local_rank);

/* Return the highest local rank in the map, or -1 if the map contains no rank. */
int std_map_highest(const struct std_map *map);

enum contain_kind { CONTAIN_AUTO, CONTAIN_PLAIN, CONTAIN_CGROUP, CONTAIN_PIDNS }; /* see contain.h */

/* The value of --log_rotate determines when ddprun starts a new log file, and how many old files ddprun keeps. */
struct log_rotate {
    uint64_t bytes; /* size at which a new file is started; 0 if never */
    int keep;       /* number of old files to keep; 0 to keep all */
};

enum log_policy { LOG_BLOCK, LOG_DROP }; /* what happens when output arrives faster than it can be written */

/* With PREFIX_ON, the lines of workers have a prefix. With PREFIX_AUTO, plan.c chooses: usually the lines have a prefix
 * if several workers write to the console. */
enum prefix_mode { PREFIX_AUTO, PREFIX_ON, PREFIX_OFF };

/* The values of --numa_binding. A worker is bound to CPUs near its GPU, and the value selects these CPUs. */
enum numa_binding { NUMA_NONE, NUMA_NODE, NUMA_SOCKET, NUMA_EXCLUSIVE, NUMA_CORE_COMPLEX };

#define CLI_HANG_OFF UINT64_MAX /* value of hang_timeout_ms for --hang_timeout=off */
enum on_hang { ON_HANG_REPORT, ON_HANG_STOP, ON_HANG_RESTART };

/* The member `help` of struct cli determines how much --help prints. HELP_NONE means that no help was requested. */
enum cli_help { HELP_NONE, HELP_SHORT, HELP_ALL };

/* The words of --duplicate_stdout_filters or --duplicate_stderr_filters. Lines with one of these words are also
 * written to a file. */
struct cli_filters {
    char **items; /* owned; one allocation contains the pointers and the texts */
    size_t n;     /* 0 if not given */
};

struct cli_nnodes {
    int min, max;
    bool is_range; /* the user wrote MIN:MAX */
};

enum rdzv_backend { BACKEND_UNSAID, BACKEND_STATIC, BACKEND_C10D };
enum grow_policy { GROW_AGREED, GROW_NOW, GROW_NEVER };
enum torch_store { TORCH_STORE_AUTO, TORCH_STORE_LAUNCHER, TORCH_STORE_RANK0 };
enum host_store { HOST_STORE_AUTO, HOST_STORE_YES, HOST_STORE_NO };

enum { CLI_CONF_KEY_MAX = 64 };

/* The value of --rdzv_conf. For most of its keys, ddprun has an option, too. A time that is not given is 0. */
struct cli_rdzv_conf {
    uint64_t join_ms, last_call_ms, keep_alive_ms;
    int keep_alive_attempts;
    enum host_store is_host;
    const char *idle;     /* static text: the last given key that has no effect; NULL without such a key */
    const char *idle_why; /* why `idle` has no effect, a static text */
    bool lenient;         /* unknown keys of --rdzv_conf are ignored, as in torchrun */
    char unknown[CLI_CONF_KEY_MAX]; /* the last unknown key; "" if all keys are known */
};

/* The values of LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE for the only worker of a task
 * (--per_task). The rendezvous cannot provide these values, because it counts each task as a node. */
struct cli_task {
    int local_rank, local_world_size, node_rank, nnodes;
};

/* The ranks that read ddprun's stdin. */
struct cli_input {
    bool all;
    struct rank_set ranks; /* the ranks if `all` is false; owned */
};

/* The parsed command line. Texts are borrowed from argv or from the environment block. */
struct cli {
    bool torchrun; /* argv[0] is torchrun, so the defaults are torchrun's */
    struct cli_nproc nproc;
    struct cli_nnodes nnodes;
    int node_rank; /* valid if the option was given */
    enum rdzv_backend backend;
    struct endpoint endpoint; /* host is "" if not given; port is -1 if not given */
    struct cli_rdzv_conf rdzv_conf;
    const char *local_addr;  /* NULL if not given */
    const char *secret_file; /* NULL if not given */
    char *hosts;             /* owned: the lists of all --hosts, joined by commas; NULL if not given */
    const char *hostfile;    /* NULL if not given */
    const char *remote_shell;
    const char *log_name; /* name of the log directory below --log_dir; NULL for a new random name */
    bool collect_logs, detach;
    int ssh_fanout; /* valid if the option was given */
    bool ship;
    bool relay;       /* run as the relay on a host of --hosts */
    bool one_console; /* a ddprun with --hosts has started this ddprun and shows its output */
    enum host_store host_store;
    enum torch_store torch_store;
    enum grow_policy grow;
    uint64_t node_timeout_ms, exit_barrier_ms;
    bool standalone, uneven, insecure, encrypt;
    const char *scheduler; /* "auto", "none" or a name */
    bool per_task, explain;
    struct cli_task task;                /* values of the scheduler; valid if per_task is set */
    char master_addr[ENDPOINT_HOST_MAX]; /* host in --master_addr, without brackets */
    int master_port;                     /* 0 for any free port */
    const char *job;                     /* --rdzv_id; NULL if not given */
    uint64_t timeout_ms, grace_ms;
    struct cli_input input;
    signal_set stop_signals; /* signals that stop the job in addition to SIGTERM, SIGINT and SIGHUP */
    int max_restarts, max_no_progress; /* max_no_progress is 0 for no limit */
    uint64_t backoff_ms, backoff_cap_ms;
    enum exit_policy exit_policy;
    uint64_t hang_timeout_ms; /* 0 if adaptive, CLI_HANG_OFF if off */
    enum on_hang on_hang;
    const char *progress; /* a valid regular expression; NULL if not given */
    bool module, no_python, run_path, use_env, virtual_local_rank, share_gpu, flight_recorder, profile_ranks;
    /* name of the option that passes the local rank to PROGRAM: "local-rank" or "local_rank"; NULL if no option
     * passes the local rank */
    const char *rank_argument;
    const char *role;
    enum numa_binding numa_binding;
    const char *event_log_handler, *start_method, *monitor_interval,
        *logs_specs;      /* the values are checked and have no effect */
    const char *log_dir;  /* NULL if not given */
    const char *log_file; /* pattern for names of log files (tables/text.h); NULL if not given */
    const char *events;   /* name of the event log, a pattern of text.h; NULL without an event log */
    bool log_merge;
    struct log_rotate log_rotate;
    enum log_policy log_policy;
    struct std_map tee, redirects;
    struct cli_filters filters[2]; /* words of --duplicate_stdout_filters and --duplicate_stderr_filters */
    enum prefix_mode prefix;
    const char *prefix_template; /* NULL if not given */
    bool timestamps, fold;
    /* local ranks that the console shows; all ranks if console_ranks.limit is 0 */
    struct rank_set console_ranks;
    enum contain_kind contain;
    struct cli_env {
        const char **items; /* "KEY=VALUE"; the array is owned, the texts are borrowed */
        size_t n;
        const char **names; /* names from --env=NAME, whose values are in `items`; owned like `items` */
        size_t n_names;
    } env;
    bool dry_run, quiet, verbose, json;
    enum completion_shell completion;
    enum cli_help help;
    bool version, print_prefix, print_man; /* print a text and exit 0; the other members may be unset */
    const char *make_secret; /* write a new secret to this file and exit 0; NULL if not requested */
    enum cli_origin origin[OPTIONS];
    const char *program; /* PROGRAM, or the module's name with -m */
    char *const *args;   /* the words after PROGRAM, NULL-terminated */
};

/* Read the defaults (torchrun's if argv[0] is torchrun), then PET_* variables, then argv. `environ_block` is an array
 * of "KEY=VALUE" texts. Both arrays end with NULL. cli_check checks combinations of options.
 *
 * In argv, "--name value" and "--name=value" are equal, and dashes and underscores are equal. A name may be shortened
 * as long as the short form is unambiguous. Everything after PROGRAM belongs to PROGRAM.
 *
 * After DDP_OK the caller frees `cli` with cli_free; argv and environ_block must outlive `cli`. Return DDP_ERR_ARG if a
 * value is not valid; `err` contains the option, the value and the valid values. After an error the caller frees
 * nothing. */
ddp_status cli_read(struct cli *cli, int argc, char *const *argv, char *const *environ_block,
                    struct ddp_err *err);
void cli_free(struct cli *cli);

/* Set an option to a value of the scheduler. The caller has checked that the user has not set the option. Errors name
 * `from`, the source of `text`, for example a variable. `text` must outlive `cli`. Return DDP_ERR_ARG if `text` is not
 * valid. */
ddp_status cli_offer(struct cli *cli, enum cli_option option, const char *text, const char *from,
                     struct ddp_err *err);

/* Check combinations of options, after cli_read and cli_offer. Return DDP_ERR_ARG with the reason in `err`. */
ddp_status cli_check(const struct cli *cli, struct ddp_err *err);

/* Return true if the command line, the environment or the scheduler has set the option. */
bool cli_gives(const struct cli *cli, enum cli_option option);

/* Return true if the job is elastic: nodes may join and leave (torchrun's c10d backend). In other jobs --nnodes
 * and --node_rank define the nodes. */
bool cli_is_elastic(const struct cli *cli);

/* Append a text for the user to `out`: the help, the manual page (roff), a shell's completion script, or the help of
 * one command. `cli->help` selects the short or the long help. Return false if memory is short. */
bool cli_print_help(const struct cli *cli, struct buf *out);
bool cli_print_man(struct buf *out);
bool cli_print_completion(const struct cli *cli, struct buf *out);
bool cli_print_command_help(enum cli_command command, struct buf *out);

/* Return true if the command line only requests a text, such as --help, and starts no job. The other members of
 * the struct may then be unset. */
bool cli_only_prints(const struct cli *cli);

/* Return the first variable "PET_X=..." that sets no option, or NULL. The result points into `environ_block`. If ddprun
 * has option X, but no variable can set this option, set *option to the name of X. Otherwise set *option to NULL. */
const char *cli_idle_pet(char *const *environ_block, const char **option);

/* --- the rows of options.h as data, for this folder and its tests ------------------------------------------ */

enum cli_section {
#define X(id, title) SECTION_##id,
    OPTION_SECTIONS(X)
#undef X
        SECTIONS
};

/* The column "whose" of options.h. FIRST: torchrun 1.13 already has the option. THEIRS: only later versions of torchrun
 * have the option. OURS: only ddprun has the option. If an abbreviation fits several options, FIRST has precedence over
 * THEIRS, and THEIRS over OURS. */
enum cli_whose { WHOSE_FIRST, WHOSE_THEIRS, WHOSE_OURS };

/* values.c defines both tables. */
extern const struct option_row cli_rows[OPTIONS];
extern const struct option_table cli_table;

/* Return the option's default, as a user would type it, or NULL. If cli->torchrun is true, return torchrun's default.
 * The text is constant. */
const char *cli_preset(const struct cli *cli, enum cli_option option);

/* Check a value of --nproc_per_node. Return DDP_ERR_ARG with the valid values in `err`. */
ddp_status cli_check_nproc(const char *text, struct ddp_err *err);

#endif

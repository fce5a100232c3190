/* start.h -- the decisions of --hosts, and the messages between the starter and a relay. Pure. remote.h shows who sends
 * what. */
#ifndef LAUNCHER_REMOTE_START_H
#define LAUNCHER_REMOTE_START_H

#include "cli/cli.h"
#include "contain/contain.h"
#include "diagnosis/findings.h"
#include "net/messages.h"
#include "plan/hosts.h"

#include <stdint.h>

/* --- messages: starter to relay ------------------------------------------------------------------------------ */

/* A message is its type, the length of its body in 4 bytes (big-endian), and the body. Columns: name, type,
 * longest body in bytes, content of the body. */
#define REMOTE_MESSAGES(X)                                                                            \
    X(LISTEN, 'l', 8, "a port: listen there and report the port; 0 = any")                            \
    X(PROBE, 'p', 8192,                                                                               \
      "port, token, addresses, separated by blanks: report the addresses that answer with the token") \
    X(JOB, 'j', 4 << 20, "the job, as JSON: start it")                                                \
    X(SIGNAL, 's', 4, "a number: send this signal to the job")                                        \
    X(INPUT, 'i', REMOTE_INPUT_MAX, "bytes for the job's stdin; an empty body ends stdin")            \
    X(BEAT, 'b', 0, "heartbeat of the starter")                                                       \
    X(END, 'x', 0, "end the job, and stay for its log files")                                         \
    X(NEWS, 'n', NEWS_MAX, "finding of another host (net/messages.h): pass it to the job")

/* With --collect_logs: messages from a relay to the starter, after its answer FILES. */
#define REMOTE_FILE_MESSAGES(X)                                         \
    X(TOTAL, 't', 64, "the numbers of files and bytes that follow")     \
    X(FILE, 'f', 1100, "a size, a blank and a name: this file follows") \
    X(DATA, 'd', 32768, "bytes of the file")                            \
    X(FILES_END, 'e', 79, "the end, and a reason if entries are left out")

/* Messages between the starter and a branch. A slot is two bytes (big-endian), which name a process of the branch. */
#define REMOTE_TREE_MESSAGES(X)                                                                             \
    X(BRANCH, 'c', 12, "milliseconds: become a branch, which ends if the starter is silent for that time")  \
    X(OPEN, 'o', 1 << 20,                                                                                   \
      "slot, bytes of this program for --ship or 0, words of a command, a NUL after each: run it; without " \
      "words, run a relay")                                                                                 \
    X(PASS, 'w', REMOTE_PIECE_MAX + 2, "slot, bytes for its stdin")                                         \
    X(CLOSE, 'q', 2, "slot: close its stdin")                                                               \
    X(KILL, 'k', 8, "slot, a number: send it this signal")                                                  \
    X(OUT, '1', REMOTE_PIECE_MAX + 2, "slot, bytes of its stdout")                                          \
    X(ERR, '2', REMOTE_PIECE_MAX + 2, "slot, bytes of its stderr")                                          \
    X(EXIT, '0', 8, "slot, exit status: it has ended")

enum remote_message {
#define X(id, ...) REMOTE_##id,
    REMOTE_MESSAGES(X) REMOTE_FILE_MESSAGES(X) REMOTE_TREE_MESSAGES(X)
#undef X
        REMOTE_MESSAGE_KINDS
};

enum {
    REMOTE_HEADER_BYTES = 5,
    REMOTE_BEAT_MS = 1000,
    REMOTE_ADDRESSES_MAX = 64,
    REMOTE_LINE_MAX = 8192,
    REMOTE_INSIDE_MAX = NEWS_MAX + 128, /* an answer ROOM or FINDING */
    REMOTE_INPUT_MAX = 65536,
    REMOTE_PIECE_MAX = 32768,
    REMOTE_INPUT_WINDOW = 1 << 20, /* bytes of input that the starter sends before the job takes them */
    REMOTE_TOKEN_MAX = 33
};

/* Append a message to `out`. Return false if memory is short or the body is too long. */
bool remote_encode(struct buf *out, enum remote_message kind, struct slice body);

/* Parse the first message of `in`; `body` points into `in`. Return 1 and store in *size how many bytes the message
 * has, 0 if the message is incomplete, -1 if the bytes are not a message. */
int remote_decode(struct slice in, enum remote_message *kind, struct slice *body, size_t *size);

/* --- answers: relay to starter ------------------------------------------------------------------------------- */

/* Prefix of an answer, which is a line on the relay's stdout. A login shell may print lines before the first
 * answer. */
#define REMOTE_ANSWER "\036ddprun "

/* Kinds of answers: HERE at the relay's start and after LISTEN, REACHED after PROBE, ENDED before the relay exits. FILES
 * replaces ENDED if log files follow, and FAILED if the job could not start there. ROOM and FINDING may be anywhere in
 * the job's output: ROOM reports how much input the job has taken, FINDING has a finding for the other hosts. The token of
 * answers after JOB is that of the message JOB, so a worker cannot print these answers. */
enum remote_news {
    REMOTE_HERE,
    REMOTE_REACHED,
    REMOTE_ENDED,
    REMOTE_FILES,
    REMOTE_ROOM,
    REMOTE_FAILED,
    REMOTE_FINDING,
    REMOTE_ANSWERS
};

struct remote_answer {
    enum remote_news news;
    char version[32]; /* version of the relay's ddprun */
    int port; /* HERE after LISTEN: the port that answers probes; 0 = none. ENDED, FILES: the exit code */
    char token[REMOTE_TOKEN_MAX]; /* before JOB: random text that the port sends to each probe; "-" = none */
    char addresses
        [REMOTE_LINE_MAX]; /* HERE: the host's own; REACHED: those that answered; blanks between. ROOM: bytes. FINDING: JSON */
    size_t before; /* bytes of an unfinished line of a login shell or worker, before the answer */
};

/* Append the answer to `out` as a line. Return false if memory is short. */
bool remote_print_answer(const struct remote_answer *answer, struct buf *out);

/* Parse a line without its newline. Return false if the line is not an answer. */
bool remote_parse_answer(struct slice line, struct remote_answer *out);

/* Move the bytes of `held` to `out` without the answers ROOM, FINDING and FILES. Store in *taken the number of the last
 * ROOM, and append the text of each FINDING to `findings`, with a newline. After FILES, store its exit code in *files,
 * which the caller initializes with -1, and leave all later bytes in `held`, because they are files. Bytes that may begin
 * an answer stay in `held`, too. Return false if memory is short. */
bool remote_split(struct buf *held, const char *token, struct buf *out, uint64_t *taken, struct buf *findings,
                  int *files);

/* --- limits -------------------------------------------------------------------------------------------------- */

/* Soft limits that the job has on every host as here, as far as the host's hard limits allow. Columns: id, name in JOB,
 * description, way to raise the hard limit. */
#define REMOTE_LIMITS(X)                                       \
    X(NOFILE, "nofile", "open files", "nofile in limits.conf") \
    X(MEMLOCK, "memlock", "bytes of locked memory", "memlock in limits.conf")

enum remote_limit {
#define X(id, ...) REMOTE_LIMIT_##id,
    REMOTE_LIMITS(X)
#undef X
        REMOTE_LIMIT_COUNT
};

enum { REMOTE_UNLIMITED = -1 };

/* --- decisions -------------------------------------------------------------------------------------- */

/* Facts about the starting host. The caller owns the strings. */
struct start_facts {
    const struct cli *cli;
    char *const *argv;          /* arguments of this ddprun */
    char *const *environ_block; /* environment of this ddprun; start_job sends a part of it */
    const char *program;        /* path of this ddprun */
    const char *directory;      /* working directory */
    const char *host;           /* name of this host */
    const char *job;            /* job id */
    int umask;
    const char *log_name; /* with --collect_logs: the starter's directory below --log_dir; else NULL */
    double limits[REMOTE_LIMIT_COUNT]; /* REMOTE_UNLIMITED = no limit */
    struct slice ship;                 /* --ship: bytes of this program; none = use the ddprun of each host */
    const char *machine;               /* --ship: the machine that it is for, as `uname -m` prints */
};

/* Check what the list and the options say together. DDP_ERR_ARG: `err` names the host. */
ddp_status start_check(const struct cli *cli, const struct host_spec *hosts, int n, struct ddp_err *err);

/* Store in above[i] the host that starts host i, or -1 if the starter does. From START_TREE_MIN hosts on, or with
 * --ssh_fanout, each host starts at most START_FANOUT or --ssh_fanout others. The starter starts this host itself. */
enum { START_TREE_MIN = 64, START_FANOUT = 16 };
void start_tree(const struct start_facts *facts, const struct host_spec *hosts, int n, int *above);

/* Return true if --remote_shell is srun, which starts steps inside an allocation of Slurm. */
bool start_by_srun(const struct cli *cli);

/* Build the command that starts the relay of a host: --remote_shell, options for ssh, the host's name and a shell
 * script. For this host the command is the relay itself. Store a NULL-terminated array, which start_free frees.
 * Return DDP_OK or DDP_ERR_NOMEM. */
ddp_status start_command(const struct start_facts *facts, const struct host_spec *host, char ***argv,
                         struct ddp_err *err);
void start_free(char **argv);
/* Append the command of each host, in lines or as a JSON object. "n0: COMMAND" is a command that n0 runs. Return false
 * if memory is short. */
bool start_print(const struct start_facts *facts, const struct host_spec *hosts, int n, bool as_json,
                 struct buf *out);

/* Return true if the command for the host reads the program of --ship from its stdin before it answers. */
bool start_ships(const struct start_facts *facts, const struct host_spec *host);

/* Where the nodes of a job meet: equal for all nodes. */
struct start_meeting {
    int nodes;
    const char *address; /* of the store: a numeric address, or the name from --master_addr */
    int port;
    const char *secret; /* 64 hexadecimal digits */
    const char *token;  /* of all answers after JOB */
};

/* Return how long the starter may be silent before a relay or a branch ends the job: the node timeout, at least three
 * heartbeats. */
uint64_t start_silent_ms(const struct cli *cli);

/* Append the body of JOB for node `rank` to `out`. Return false if memory is short. */
bool start_job(const struct start_facts *facts, const struct host_spec *host, int rank,
               const struct start_meeting *meeting, struct buf *out);

/* Store in `address` the first address of `own` that all `n` lists of `reached` contain, or "". The lists are
 * separated by blanks. */
void start_choose_address(const char *own, const char *const *reached, int n,
                          char address[ENDPOINT_HOST_MAX]);

/* Format the remote shell with the port of the host, for an advice. Return `out`. */
enum { START_SHELL_MAX = 224 };
const char *start_shell(const struct cli *cli, const struct host_spec *host, char out[START_SHELL_MAX]);

/* Return the finding for the text of a system error. */
enum finding_code start_code(const char *words);

/* Explain why a relay did not start. `via` is the name of the host that started it, or NULL; `exit_code` is the exit
 * status of its remote shell, `words` the shell's stderr. */
void start_explain(const struct start_facts *facts, const struct host_spec *host, const char *via,
                   int exit_code, const char *words, struct finding *out);

/* --- log files -------------------------------------------------------------------------------------------------- */

/* Limits for each host. */
enum {
    COLLECT_NAME_MAX = 1024,
    COLLECT_DEPTH = 16,
    COLLECT_PIECE_MAX = 32768,
    COLLECT_FILES_MAX = 100000,
    COLLECT_FOLDER_MAX = 96
};
#define COLLECT_BYTES_MAX (UINT64_C(64) << 30)

/* Return true if the name of a file cannot leave its directory: a relative name without control characters, without
 * empty parts, "." and "..". */
bool collect_name_is_safe(struct slice name);

/* Format the folder of a host: "node0_n0". Folders of different ranks differ. */
void collect_folder(int rank, const struct host_spec *host, char folder[COLLECT_FOLDER_MAX]);

#endif

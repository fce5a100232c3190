/* start.h -- the decisions of --hosts, and the messages between the starter, relays and branches. All functions are
 * pure. remote.h explains these processes. */
#ifndef LAUNCHER_REMOTE_START_H
#define LAUNCHER_REMOTE_START_H

#include "cli/cli.h"
#include "contain/contain.h"
#include "diagnosis/findings.h"
#include "net/messages.h"
#include "plan/hosts.h"

#include <stdint.h>

/* --- messages: starter to relay ------------------------------------------------------------------------------ */

/* A message is its type, the length of its body in 4 bytes (big-endian), and the body. Columns: name, type, longest
 * body in bytes, content and action. */
#define REMOTE_MESSAGES(X)                                                                             \
    X(LISTEN, 'l', 8, "a port: listen on this port and report its number; 0 = any free port")          \
    X(PROBE, 'p', 8192,                                                                                \
      "a port, a token and addresses, separated by blanks: report the addresses that answer with the " \
      "token")                                                                                         \
    X(JOB, 'j', 4 << 20, "the job as JSON: start the job")                                             \
    X(SIGNAL, 's', 4, "a number: send this signal to the job")                                         \
    X(INPUT, 'i', REMOTE_INPUT_MAX, "bytes for the job's stdin; an empty body ends stdin")             \
    X(BEAT, 'b', 0, "heartbeat of the starter")                                                        \
    X(END, 'x', 0, "end the job, then send its log files")                                             \
    X(NEWS, 'n', NEWS_MAX,                                                                             \
      "a finding of another host (struct news in net/messages.h): pass the finding to the job")

/* With --collect_logs, a relay sends these messages to the starter after the answer FILES. */
#define REMOTE_FILE_MESSAGES(X)                                      \
    X(TOTAL, 't', 64, "the numbers of files and bytes that follow")  \
    X(FILE, 'f', 1100, "'SIZE NAME': the bytes of this file follow") \
    X(DATA, 'd', 32768, "bytes of the file")                         \
    X(FILES_END, 'e', 79, "end of the files; if files were omitted, the body has their number and the reason")

/* Messages between the starter and a branch. A slot (two bytes, big-endian) identifies a process of the branch. */
#define REMOTE_TREE_MESSAGES(X)                                                                          \
    X(BRANCH, 'c', 12,                                                                                   \
      "a time in ms: start further hosts from now on, as a branch of the tree; exit if the starter "     \
      "sends no message for this time")                                                                  \
    X(OPEN, 'o', 1 << 20,                                                                                \
      "slot; size of the program that --ship sends (0 = none); a command, with a NUL after each of its " \
      "words: run this command. If the command is empty, run a relay")                                   \
    X(PASS, 'w', REMOTE_PIECE_MAX + 2, "slot, bytes for the stdin of the process")                       \
    X(CLOSE, 'q', 2, "slot: close the stdin of the process")                                             \
    X(KILL, 'k', 8, "slot, signal number: send the signal to the process")                               \
    X(OUT, '1', REMOTE_PIECE_MAX + 2, "slot, bytes of the process's stdout")                             \
    X(ERR, '2', REMOTE_PIECE_MAX + 2, "slot, bytes of the process's stderr")                             \
    X(EXIT, '0', 8, "slot, exit status: the process has ended")

enum remote_message {
#define X(id, ...) REMOTE_##id,
    REMOTE_MESSAGES(X) REMOTE_FILE_MESSAGES(X) REMOTE_TREE_MESSAGES(X)
#undef X
        REMOTE_MESSAGE_KINDS
};

enum {
    REMOTE_HEADER_BYTES = 5,
    REMOTE_BEAT_MS = 1000,
    /* with --collect_logs: how many ms a slow disk may delay the starter's heartbeats */
    REMOTE_SLOW_DISK_MS = 30000,
    REMOTE_ADDRESSES_MAX = 64,
    REMOTE_LINE_MAX = 8192,
    REMOTE_INSIDE_MAX = NEWS_MAX + 128, /* largest length of an answer ROOM, FINDING or FILES, in bytes */
    REMOTE_INPUT_MAX = 65536,
    REMOTE_PIECE_MAX = 32768,
    /* limit of sent bytes that the job's pipe has not accepted yet; at this limit, the starter stops sending input */
    REMOTE_INPUT_WINDOW = 1 << 20,
    REMOTE_TOKEN_MAX = 33
};

/* Append a message to `out`. Return false if memory is short or the body is too long. */
bool remote_encode(struct buf *out, enum remote_message kind, struct slice body);

/* Parse the first message of `in`. Return 1 for a complete message: *body points into `in`, and *size is the length of
 * the whole message. Return 0 for an incomplete message, and -1 if the bytes are not a message. */
int remote_decode(struct slice in, enum remote_message *kind, struct slice *body, size_t *size);

/* Append the body of a message NEWS about a host that has ended. `stops` means the same as in struct news. Return false
 * if memory is short. */
bool remote_encode_end(const char *host, const struct finding *f, bool stops, struct buf *out);

/* --- answers: relay to starter ------------------------------------------------------------------------------- */

/* Prefix of an answer on the relay's stdout, which also carries other text. An answer ends with a newline. */
#define REMOTE_ANSWER "\036ddprun "

/* The kinds of answers. The last answer of a relay is ENDED, FAILED or FILES. Answers after the message JOB contain
 * the token of this message, so that a worker cannot forge an answer. */
enum remote_news {
    REMOTE_HERE,    /* the relay has started, or has begun to listen after the message LISTEN */
    REMOTE_REACHED, /* the result of PROBE */
    REMOTE_ENDED,   /* the job has ended on this host */
    REMOTE_FILES,   /* the job has ended on this host, and its log files follow */
    REMOTE_ROOM,    /* how many input bytes the job's pipe has accepted; may be inside the job's output */
    REMOTE_FAILED,  /* the relay could not start the job */
    REMOTE_FINDING, /* a finding for the other hosts; may be inside the job's output */
    REMOTE_ANSWERS
};

struct remote_answer {
    enum remote_news news;
    char version[32]; /* version of the relay's ddprun */
    int port; /* in HERE: port for probes; 0 before the message LISTEN. In ENDED, FAILED, FILES: exit code */
    /* Before the message JOB arrives, `token` is the random text that answers probes, or "-" if the relay answers no
     * probes. Later, `token` is the token that JOB contains. */
    char token[REMOTE_TOKEN_MAX];
    /* In HERE: the addresses of the host, separated by blanks. In REACHED: the addresses that answered. In ROOM: a
     * number of bytes. In FINDING: JSON. */
    char addresses[REMOTE_LINE_MAX];
    size_t before; /* length of other text before the answer, on the same line */
};

/* Append the answer to `out` as a line. Return false if memory is short. */
bool remote_print_answer(const struct remote_answer *answer, struct buf *out);

/* Parse a line without its newline. Return false if the line is not an answer. */
bool remote_parse_answer(struct slice line, struct remote_answer *out);

/* Separate the output of a job from the answers ROOM, FINDING and FILES. Move the output from `held` to `out`. Bytes
 * that may begin an answer stay in `held`. Return false if memory is short.
 *
 *   - ROOM: store its number of bytes in *taken.
 *   - FINDING: append its text and a newline to `findings`.
 *   - FILES: store its exit code in *files, which the caller initializes with -1. All later bytes are files and stay in
 *     `held`. */
bool remote_split(struct buf *held, const char *token, struct buf *out, uint64_t *taken, struct buf *findings,
                  int *files);

/* --- limits -------------------------------------------------------------------------------------------------- */

/* The soft limits that a relay raises to the values of the starter's soft limits. Columns: id, name in JOB and in
 * limits.conf, description. */
#define REMOTE_LIMITS(X)              \
    X(NOFILE, "nofile", "open files") \
    X(MEMLOCK, "memlock", "bytes of locked memory")

enum remote_limit {
#define X(id, ...) REMOTE_LIMIT_##id,
    REMOTE_LIMITS(X)
#undef X
        REMOTE_LIMIT_COUNT
};

enum { REMOTE_UNLIMITED = -1 };

/* --- decisions -------------------------------------------------------------------------------------- */

/* Facts about the starter and its host. The caller owns all strings. */
struct start_facts {
    const struct cli *cli;
    char *const *argv;          /* arguments of this ddprun */
    char *const *environ_block; /* environment of this ddprun; start_job sends a part of the environment */
    const char *program;        /* path of this ddprun */
    const char *directory;      /* working directory */
    const char *host;           /* name of this host */
    const char *job;            /* job id */
    int umask;
    bool terminal;        /* stderr of this ddprun is a terminal */
    const char *log_name; /* with --collect_logs: the starter's directory below --log_dir; else NULL */
    double limits[REMOTE_LIMIT_COUNT]; /* REMOTE_UNLIMITED if there is no limit */
    struct slice ship;   /* --ship: this program and its library; empty if each host uses its own ddprun */
    size_t ship_library; /* how many bytes at the end of `ship` belong to the library */
    const char *machine; /* --ship: the architecture of this program, as `uname -m` prints it */
};

/* Check that the list of hosts and the options do not contradict each other. Return DDP_OK or DDP_ERR_ARG. */
ddp_status start_check(const struct cli *cli, const struct host_spec *hosts, int n, struct ddp_err *err);

/* Store in above[i] the index of the host that starts host i, or -1 if the starter starts host i. The starter and each
 * host start at most N other hosts. N is the value of --ssh_fanout; 0 means that the starter starts all hosts. Without
 * this option, N is START_FANOUT. But with fewer than START_TREE_MIN hosts, or if --remote_shell is srun, the starter
 * starts all hosts. The starter always starts its own host. */
enum { START_TREE_MIN = 64, START_FANOUT = 16 };
void start_tree(const struct start_facts *facts, const struct host_spec *hosts, int n, int *above);

bool start_by_srun(const struct cli *cli);

/* Build the command that starts the relay of a host: --remote_shell, options for ssh, the host's name and a shell
 * script. For the starter's own host, the command is the relay itself. Store a NULL-terminated array, which start_free
 * frees. Return DDP_OK or DDP_ERR_NOMEM. */
ddp_status start_command(const struct start_facts *facts, const struct host_spec *host, char ***argv,
                         struct ddp_err *err);
void start_free(char **argv);
/* Append two commands for each host: the command that starts its relay, and the ddprun command that the relay runs.
 * Append lines, or one JSON object if `as_json` is true. A line "n0: COMMAND" means that n0 runs the command. Return
 * false if memory is short. */
bool start_print(const struct start_facts *facts, const struct host_spec *hosts, int n, bool as_json,
                 struct buf *out);

/* Return true if --ship sends the program to `host`. Such a host answers only after it has read the program. */
bool start_ships(const struct start_facts *facts, const struct host_spec *host);

/* Return how many ms the starter waits for an answer of a host's relay. If `is_probe` is true, the starter waits for
 * the answer to PROBE. Otherwise the starter waits for the first answer of the relay. With --ship, the limit of the
 * first answer includes the transfer of the program over a slow connection. If --timeout is shorter than the limit,
 * --timeout replaces the limit. But the limit for PROBE is at least 4 s. */
uint64_t start_limit_ms(const struct start_facts *facts, const struct host_spec *host, bool is_probe);

/* The values in the message JOB that are equal for all nodes. All texts are borrowed. */
struct start_meeting {
    int nodes;
    const char *address; /* address of the store: numeric, or the name from --master_addr */
    int port;            /* port of the store */
    const char *secret;  /* secret of the job: 64 hexadecimal digits */
    const char *token;   /* token that the answers after the message JOB contain */
};

/* Return the longest allowed silence of the starter, in ms: the node timeout, but at least three heartbeats. With
 * --collect_logs, return at least REMOTE_SLOW_DISK_MS. After a longer silence, a relay or a branch ends the job. */
uint64_t start_silent_ms(const struct cli *cli);

/* Set reads[i] to true if --stdin names a rank that is, or may be, on host i. The ranks of a host are uncertain if the
 * options do not give the number of workers of an earlier host. Return the world size, or 0 if it is unknown. */
int start_readers(const struct cli *cli, const struct host_spec *hosts, int n, bool *reads);

/* Append the body of the message JOB for node `rank` to `out`. If `input` is true, the starter sends the user's stdin
 * to the host. Return false if memory is short. */
bool start_job(const struct start_facts *facts, const struct host_spec *host, int rank, bool input,
               const struct start_meeting *meeting, struct buf *out);

/* Choose an address of the first host. `own` lists all addresses of the first host. Each of the `n` texts in `reached`
 * lists the addresses that another host has reached. Blanks separate the addresses. Store in `address` the first
 * address of `own` that is in all lists, or "" if no address is in all lists. */
void start_choose_address(const char *own, const char *const *reached, int n,
                          char address[ENDPOINT_HOST_MAX]);

/* Return the code of the finding about a host that cannot start the job for the reason `words`. If `words` contains a
 * known error text, for example a text of strerror, return the code for this error. Otherwise return
 * FINDING_HOST_NOT_READY. */
enum finding_code start_code(const char *words);

/* Make the finding about a relay that did not start. `via` is the name of the host that ran the remote shell, or NULL
 * if the starter ran it. `exit_code` is the exit status of the remote shell, `words` is the shell's stderr, and
 * `tried_ms` is the time since the shell's start. */
void start_explain(const struct start_facts *facts, const struct host_spec *host, const char *via,
                   int exit_code, const char *words, uint64_t tried_ms, struct finding *out);

/* Make the finding about a relay that did not answer within start_limit_ms. See start_explain for `via`. */
void start_explain_late(const struct start_facts *facts, const struct host_spec *host, const char *via,
                        bool is_probe, struct finding *out);

/* --- log files -------------------------------------------------------------------------------------------------- */

/* Limits for each host, so that a faulty host cannot fill the disk of the starter. */
enum {
    COLLECT_NAME_MAX = 1024,   /* bytes of a file's name, relative to the log directory */
    COLLECT_DEPTH = 16,        /* largest number of directories between the log directory and a file */
    COLLECT_PIECE_MAX = 32768, /* bytes in a message DATA */
    COLLECT_FILES_MAX = 100000,
    COLLECT_FOLDER_MAX = 96 /* bytes of a folder's name */
};
#define COLLECT_BYTES_MAX (UINT64_C(64) << 30)

/* Return true if a file's name is safe to create below a directory. A safe name is relative and has no control
 * characters. No part between slashes is empty, "." or "..". */
bool collect_name_is_safe(struct slice name);

/* Format the name of a host's folder: "node0_n0". Hosts with different node ranks have different folders. */
void collect_folder(int rank, const struct host_spec *host, char folder[COLLECT_FOLDER_MAX]);

#endif

/* remote.h -- one command for all nodes: --hosts.
 *
 *     ddprun --hosts a:8,b:8 train.py
 *        |-- ssh a --- ddprun --relay --- ddprun --node_rank=0 ...
 *        '-- ssh b --- ddprun --relay --- ddprun --node_rank=1 ...
 *
 * The starter (starter.c) runs a remote shell for each host and carries output and input. A relay (relay.c) reads messages of the
 * starter on its stdin, starts the host's ddprun and passes signals on. When its stdin ends or falls silent, because the starter,
 * the remote shell or the network has died, the relay ends the job there. start.c decides, and is pure.
 *
 * The relays find an address of the first host that all others reach: that of the store. */
#ifndef LAUNCHER_REMOTE_REMOTE_H
#define LAUNCHER_REMOTE_REMOTE_H

#include "cli/cli.h"
#include "contain/contain.h"
#include "diagnosis/findings.h"
#include "plan/hosts.h"

#include <stdint.h>

/* --- messages: starter to relay ------------------------------------------------------------------------------ */

/* A message is its type, the length of its body in 4 bytes (big-endian), and the body. Columns: name, type, longest body, body. */
#define REMOTE_MESSAGES(X)                                                                                \
    X(LISTEN, 'l', 8, "a port: hold it and report it; 0 = any")                                           \
    X(PROBE, 'p', 8192,                                                                                   \
      "a port, a token and addresses, between blanks: report those addresses that answer with the token") \
    X(JOB, 'j', 4 << 20, "the job, as JSON: start it")                                                    \
    X(SIGNAL, 's', 4, "a number: send this signal to the job")                                            \
    X(INPUT, 'i', 65536, "bytes for the job's stdin; none = its end")                                     \
    X(BEAT, 'b', 0, "the starter lives")

enum remote_message {
#define X(id, ...) REMOTE_##id,
    REMOTE_MESSAGES(X)
#undef X
        REMOTE_MESSAGE_KINDS
};

enum {
    REMOTE_HEADER_BYTES = 5,
    REMOTE_BEAT_MS = 1000,
    REMOTE_ADDRESSES_MAX = 64,
    REMOTE_LINE_MAX = 8192,
    REMOTE_TOKEN_MAX = 33
};

/* Append a message. False: out of memory, or the body is too long. */
bool remote_put(struct buf *out, enum remote_message kind, struct slice body);

/* Take the first message of `in`, whose bytes `body` borrows. 1: *size bytes were used. 0: it is not complete. -1: it is not a
 * message. */
int remote_take(struct slice in, enum remote_message *kind, struct slice *body, size_t *size);

/* --- answers: relay to starter ------------------------------------------------------------------------------- */

/* A line on the relay's stdout, before the job writes there. A login shell may print lines of its own before. */
#define REMOTE_ANSWER "\036ddprun "

/* What a relay reports: HERE when it starts and after LISTEN, REACHED after PROBE, ENDED as its last act. */
enum remote_news { REMOTE_HERE, REMOTE_REACHED, REMOTE_ENDED, REMOTE_NEWS };

struct remote_answer {
    enum remote_news news;
    char version[32]; /* of its ddprun */
    int port;         /* on which it answers probes, after LISTEN; 0 = none. ENDED: the exit code */
    char token[REMOTE_TOKEN_MAX];    /* the answer to a probe, random; "-" = none */
    char addresses[REMOTE_LINE_MAX]; /* HERE: its own; REACHED: those that it reached; between blanks */
    size_t before; /* bytes of the line before the answer: the unfinished line of a login shell or worker */
};

/* Append the line. False: out of memory. */
bool remote_print_answer(const struct remote_answer *answer, struct buf *out);

/* Parse a line without its end. False: it is not an answer. */
bool remote_parse_answer(struct slice line, struct remote_answer *out);

/* --- decisions (start.c) -------------------------------------------------------------------------------------- */

/* Facts about the starting host; borrowed. */
struct start_facts {
    const struct cli *cli;
    char *const *argv;          /* of this ddprun */
    char *const *environ_block; /* carried by start_job, as far as CARRIED names the variables */
    const char *program;        /* path of this ddprun */
    const char *directory;      /* working directory */
    const char *host;           /* name of this host */
    const char *job;            /* job id */
    int umask;
};

/* Build the command that starts the relay of a host: the words of --remote_shell, options of ssh, host, and a line for the shell
 * there; or the relay itself for this host. Store a NULL-terminated array; free it with start_free. DDP_ERR_NOMEM. */
ddp_status start_command(const struct start_facts *facts, const struct host_spec *host, char ***argv,
                         struct ddp_err *err);
void start_free(char **argv);

/* The same for all nodes of the job. */
struct start_meeting {
    int nodes;
    const char *address; /* of the store, numeric or a name of --master_addr */
    int port;
    const char *secret; /* as 64 digits */
};

/* Append the body of JOB for node `rank`. False: out of memory. */
bool start_job(const struct start_facts *facts, const struct host_spec *host, int rank,
               const struct start_meeting *meeting, struct buf *out);

/* Store the first of `own` (between blanks) that all `n` lists of `reached` contain, or "". */
void start_choose_address(const char *own, const char *const *reached, int n,
                          char address[ENDPOINT_HOST_MAX]);

/* Explain why a relay did not start, from the exit status of its remote shell and the last line on its stderr. */
void start_explain(const struct start_facts *facts, const struct host_spec *host, int exit_code,
                   const char *words, struct finding *out);

/* --- shells ----------------------------------------------------------------------------------------------------- */

/* Run `ddprun --relay`. Return the exit code of the job. */
int relay_run(void);

struct starter_job {
    const struct start_facts *facts;
    struct host_spec *hosts;
    int n;
};

/* A guardian_body: start the job on all hosts, carry its output, and return its exit code. `job` is a struct starter_job. */
int starter_run(void *job, int lifeline);

#endif

/* messages.h -- the control messages between agents, operators and the store: one table. The rows generate the structs
 * below, the encoder, the decoder, the tables in docs/protocol.md and the dictionary of the fuzzers. */
#ifndef RENDEZVOUS_MESSAGES_H
#define RENDEZVOUS_MESSAGES_H

#include "base/buf.h"
#include "record/failure.h"
#include "base/limits.h"
#include "ddp/error.h"
#include "diagnosis/findings.h"
#include "store/ops.h"

#include <cjson/cJSON.h>
#include <stddef.h>

/* --- rows ----------------------------------------------------------------------------------------------- */

/* A message is a JSON object. Each member has a row: kind, name, limits, default, and meaning. A receiver ignores
 * members with unknown names. */

/* Default of a row whose member may be missing. The receiver stores MESSAGE_NONE for a missing number, and NULL for
 * a missing text. */
#define MESSAGE_NONE   INT64_MIN
#define MESSAGE_NEEDED (INT64_MIN + 1) /* default of a row: a message without this member is rejected */

/* A kind defines the type of a member in JSON and in the struct. The comment of a kind says when the sender includes a
 * member of this kind. */
#define MESSAGE_KINDS(X)                                                                 \
    X(WHOLE, "whole number")         /* left out if MESSAGE_NONE */                      \
    X(LIMIT, "whole number or null") /* always sent; MESSAGE_NONE is sent as null */     \
    X(CODE, "exit code")             /* sent like WHOLE; read as 125 if invalid */       \
    X(MAYBE, "boolean")              /* left out if MESSAGE_NONE; 0 = false, 1 = true */ \
    X(TEXT, "text")                  /* left out if NULL */                              \
    X(FLAG, "boolean")                                                                   \
    X(MARK, "true")     /* sent only if true */                                          \
    X(LIST, "list")     /* left out if NULL; the encoder takes ownership */              \
    X(OBJECT, "object") /* always sent; NULL is sent as null; the encoder takes ownership */

#define MESSAGE_NUMBER_MAX 999999999999999ll /* a double, the type of JSON numbers, stores it exactly */

/* The longest time in a request, in ms: a year, so that the sum of a few times cannot overflow. */
#define MESSAGE_MS_MAX (366ll * 24 * 3600 * 1000)

/* X(kind, name, least, most, default, description). For a text, `most` is the longest length in bytes, and `least`
 * is ignored. */
#define ROUND_OF_SENDER(X) X(WHOLE, round, 0, UINT32_MAX, MESSAGE_NONE, "sender's round; 0 before the first")
#define JOB_OF_CALL(X)     X(TEXT, job, 0, LIMIT_TEXT - 1, MESSAGE_NONE, "if there are several jobs")

/* An exit code above 255 is invalid, because exit() keeps only the lowest byte: 256 would look like success. */
enum { MESSAGE_CODE_MAX = 255, MESSAGE_SIGNAL_MAX = 64 };

/* How a worker ended: by an error at its start, by a signal, or with an exit code. */
#define FIELDS_OF_ENDING(X)                                             \
    X(WHOLE, error, 0, 4095, 0, "errno of a failed start")              \
    X(WHOLE, signal, 0, MESSAGE_SIGNAL_MAX, 0, "that ended the worker") \
    X(CODE, exit_code, 0, MESSAGE_CODE_MAX, 0, "")

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Members that many messages share. */
#define FIELDS_OF_sender(X) ROUND_OF_SENDER(X)
#define FIELDS_OF_op(X)     X(TEXT, op, 0, 64, MESSAGE_NEEDED, "")

#define FIELDS_OF_push(X) X(TEXT, push, 0, 64, 0, "")

/* Workers must send rank and world size; other roles send only the role. */
#define FIELDS_OF_identify(X)                                     \
    X(TEXT, role, 0, 16, MESSAGE_NEEDED, "worker, agent or ctl")  \
    X(TEXT, job, 0, LIMIT_TEXT - 1, MESSAGE_NONE, "default none") \
    X(TEXT, host, 0, LIMIT_TEXT - 1, MESSAGE_NONE, "")            \
    X(WHOLE, pid, 0, INT32_MAX, 0, "")                            \
    X(WHOLE, attempt, 0, INT32_MAX, 0, "from 0")                  \
    X(WHOLE, world_size, 1, WIRE_MAX_RANKS, MESSAGE_NONE, "")     \
    X(WHOLE, rank, 0, WIRE_MAX_RANKS, MESSAGE_NONE, "")

#define FIELDS_OF_heartbeat(X)                                                                          \
    X(LIST, workers, 0, 0, 0,                                                                           \
      "changed processes: [local rank, state, CPU percent, kernel function, pid of the program that a " \
      "script runs]")                                                                                   \
    X(LIST, steps, 0, 0, 0, "progress: [local rank, step, number of the collective, its name]")         \
    X(WHOLE, moved_ms, 0, MESSAGE_MS_MAX, MESSAGE_NONE, "time since progress")                          \
    X(LIST, errors, 0, 0, 0, "last traceback line: [local rank, text]; empty text deletes it")          \
    X(WHOLE, heard, 0, MESSAGE_NUMBER_MAX, MESSAGE_NONE,                                                \
      "number of received frames; the first one carries `token`")                                       \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_hello(X)

#define FIELDS_OF_job(X)                                          \
    X(TEXT, job, 0, LIMIT_TEXT - 1, MESSAGE_NONE, "default none") \
    X(WHOLE, attempt, 0, INT32_MAX, MESSAGE_NEEDED, "from 0")     \
    X(WHOLE, world_size, 1, WIRE_MAX_RANKS, MESSAGE_NEEDED, "")

#define FIELDS_OF_worker_started(X)                       \
    X(WHOLE, rank, 0, WIRE_MAX_RANKS, MESSAGE_NEEDED, "") \
    X(WHOLE, pid, 1, INT32_MAX, MESSAGE_NEEDED, "")       \
    X(TEXT, host, 0, LIMIT_TEXT - 1, MESSAGE_NONE, "")    \
    X(WHOLE, local_rank, -1, WIRE_MAX_RANKS, -1, "")      \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_worker_exited(X)                        \
    X(WHOLE, rank, 0, WIRE_MAX_RANKS, MESSAGE_NEEDED, "") \
    X(WHOLE, pid, 1, INT32_MAX, 0, "")                    \
    X(WHOLE, signal, 0, 255, 0, "that ended the worker")  \
    X(WHOLE, exit_code, INT32_MIN, INT32_MAX, 0, "")      \
    X(MARK, told, 0, 0, 0, "stopped by the agent")        \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_join(X)                                                                            \
    X(TEXT, job, 0, LIMIT_TEXT - 1, MESSAGE_NEEDED, "")                                              \
    X(TEXT, instance, 0, LIMIT_TEXT - 1, 0, "copied from the answer to the first join")              \
    X(TEXT, version, 0, LIMIT_TEXT - 1, MESSAGE_NEEDED, "of ddprun")                                 \
    X(TEXT, host, 0, LIMIT_TEXT - 1, MESSAGE_NEEDED, "")                                             \
    X(WHOLE, pid, 1, INT32_MAX, MESSAGE_NEEDED, "")                                                  \
    X(WHOLE, pid_start, 0, 1ll << 52, 0, "start of the agent in clock ticks")                        \
    X(TEXT, boot_id, 0, LIMIT_TEXT - 1, 0, "")                                                       \
    X(TEXT, addr, 0, LIMIT_TEXT - 1, 0, "address for other nodes (default: connection's source)")    \
    X(TEXT, own, 0, LIMIT_TEXT - 1, 0, "local address of this connection")                           \
    X(TEXT, mode, 0, 16, 0, "static (default) or elastic")                                           \
    X(WHOLE, nnodes_min, 1, INT32_MAX, MESSAGE_NEEDED, "")                                           \
    X(WHOLE, nnodes_max, 1, INT32_MAX, MESSAGE_NEEDED, "")                                           \
    X(WHOLE, node_rank, -1, INT32_MAX, -1, "-1 = any")                                               \
    X(WHOLE, nproc, 1, INT32_MAX, MESSAGE_NEEDED, "workers")                                         \
    X(WHOLE, store_port, 0, UINT16_MAX, 0, "port for the workers' store, if rank 0 runs here")       \
    X(FLAG, nproc_given, 0, 0, 0, "the user set `nproc`")                                            \
    X(FLAG, uneven, 0, 0, 0, "`nproc` may differ")                                                   \
    X(TEXT, task, 0, LIMIT_TEXT - 1, 0, "scheduler, if it starts several ddprun per node")           \
    X(TEXT, program, 0, LIMIT_TEXT - 1, 0, "program's name; empty = not compared")                   \
    X(TEXT, role, 0, LIMIT_TEXT - 1, 0, "of the workers")                                            \
    X(MARK, events, 0, 0, 0, "requests `event`")                                                     \
    X(WHOLE, max_restarts, 0, INT32_MAX, 0, "")                                                      \
    X(WHOLE, max_no_progress, 0, INT32_MAX, 0, "")                                                   \
    X(WHOLE, backoff_ms, 0, MESSAGE_MS_MAX, 0, "least pause before a restart")                       \
    X(WHOLE, backoff_cap_ms, 0, MESSAGE_MS_MAX, 0, "greatest pause")                                 \
    X(WHOLE, last_call_ms, 0, MESSAGE_MS_MAX, 0, "wait for more nodes after enough have joined")     \
    X(WHOLE, join_timeout_ms, 0, MESSAGE_MS_MAX, 0, "time for enough nodes to join")                 \
    X(WHOLE, node_timeout_ms, 0, MESSAGE_MS_MAX, 0, "0 = never")                                     \
    X(TEXT, join_knob, 0, LIMIT_TEXT - 1, 0, "option that sets `join_timeout_ms`")                   \
    X(TEXT, grow, 0, 16, 0, "agreed (default), now, never")                                          \
    X(WHOLE, hang_ms, 0, MESSAGE_MS_MAX, MESSAGE_NONE, "--hang_timeout, 0 = off, absent = adaptive") \
    X(TEXT, on_hang, 0, 16, 0, "report (default), stop, restart")                                    \
    X(MARK, profile, 0, 0, 0, "--profile_ranks")                                                     \
    X(MARK, resumes, 0, 0, 0, "may send `resume`")                                                   \
    X(WHOLE, grace_ms, 0, MESSAGE_MS_MAX, 0, "")

#define FIELDS_OF_resume(X)                                     \
    X(TEXT, job, 0, LIMIT_TEXT - 1, MESSAGE_NEEDED, "")         \
    X(TEXT, token, 0, LIMIT_TOKEN, MESSAGE_NEEDED, "from join") \
    X(WHOLE, heard, 0, MESSAGE_NUMBER_MAX, MESSAGE_NEEDED,      \
      "number of received frames; the first one carries `token`")

#define FIELDS_OF_failed(X)                                                              \
    X(WHOLE, rank, 0, WIRE_MAX_RANKS, MESSAGE_NEEDED, "")                                \
    X(WHOLE, local_rank, -1, WIRE_MAX_RANKS, -1, "")                                     \
    X(WHOLE, pid, 0, INT32_MAX, 0, "")                                                   \
    FIELDS_OF_ENDING(X)                                                                  \
    X(TEXT, no_retry, 0, 64, 0, "why a restart would fail: cannot_start, usage, import") \
    X(TEXT, words, 0, 4096, 0, "how it ended")                                           \
    X(TEXT, log, 0, 4096, 0, "path")                                                     \
    X(LIST, stderr, 0, LIMIT_LAST_LINES, 0, "last lines of the log, oldest first")       \
    X(MARK, victim, 0, 0, 0, "another worker was lost")                                  \
    FAILURE_FACTS(X)                                                                     \
    X(WHOLE, round, 0, UINT32_MAX, MESSAGE_NEEDED, "")

/* Details of a failure that an earlier `failed` has reported. */
#define FIELDS_OF_explain(X) FIELDS_OF_failed(X)

#define FIELDS_OF_done(X) X(WHOLE, round, 0, UINT32_MAX, MESSAGE_NEEDED, "")

#define FIELDS_OF_stopped(X)                                                                                 \
    X(FLAG, unkillable, 0, 0, 0, "")                                                                         \
    X(CODE, max_code, 0, MESSAGE_CODE_MAX, 0, "highest exit code of workers that ended by themselves")       \
    X(CODE, rank0_code, 0, MESSAGE_CODE_MAX, MESSAGE_NONE, "rank 0's exit code, if it ended here by itself") \
    X(LIST, stacks, 0, 0, 0, "as in report.json")                                                            \
    X(WHOLE, round, 0, UINT32_MAX, MESSAGE_NEEDED, "")

#define FIELDS_OF_leave(X)                                                 \
    X(WHOLE, signal, 0, MESSAGE_SIGNAL_MAX, 0, "of the user or scheduler") \
    X(TEXT, by, 0, 4096, 0, "its sender")                                  \
    X(TEXT, code, 0, FINDING_SUBJECT_MAX - 1, 0, "of a finding")           \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_vouch(X)                                              \
    X(WHOLE, conn, 1, 1ll << 53, MESSAGE_NEEDED, "from `who`")          \
    X(WHOLE, rank, -1, WIRE_MAX_RANKS, -1, "-1 = process without rank") \
    X(WHOLE, pid, 0, INT32_MAX, 0, "0 = only the user is known")        \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_owner(X)                                     \
    X(WHOLE, conn, 1, 1ll << 53, MESSAGE_NEEDED, "from `who`") \
    X(WHOLE, pid, 1, INT32_MAX, MESSAGE_NEEDED, "")            \
    X(TEXT, words, 0, 256, MESSAGE_NEEDED, "description")      \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_notice(X)                                                                  \
    X(TEXT, code, 0, FINDING_SUBJECT_MAX - 1, MESSAGE_NEEDED, "of a finding")                \
    X(TEXT, subject, 0, FINDING_SUBJECT_MAX - 1, MESSAGE_NEEDED, "")                         \
    X(TEXT, sentence, 0, FINDING_TEXT_MAX - 1, MESSAGE_NEEDED, "\"\" withdraws the finding") \
    X(TEXT, advice, 0, FINDING_TEXT_MAX - 1, 0, "remedy")                                    \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_sampled(X)                                             \
    X(WHOLE, id, 1, MESSAGE_NUMBER_MAX, MESSAGE_NEEDED, "from `sample`") \
    X(LIST, stacks, 0, 0, 0, "as in report.json")                        \
    X(MARK, cut, 0, 0, 0, "")                                            \
    X(LIST, calls, 0, 0, 0, "objects `flight_call`")                     \
    ROUND_OF_SENDER(X)

#define FIELDS_OF_trouble(X)                                                  \
    X(TEXT, code, 0, FINDING_SUBJECT_MAX - 1, MESSAGE_NEEDED, "of a finding") \
    X(TEXT, words, 0, FINDING_TEXT_MAX - 1, MESSAGE_NEEDED, "what happened")

#define FIELDS_OF_barrier_cancel(X) \
    JOB_OF_CALL(X)                  \
    X(TEXT, name, 0, WIRE_MAX_KEY, MESSAGE_NEEDED, "")

#define FIELDS_OF_jobs(X)
#define FIELDS_OF_rejects(X)
#define FIELDS_OF_why(X)      JOB_OF_CALL(X)
#define FIELDS_OF_waiters(X)  JOB_OF_CALL(X)
#define FIELDS_OF_barriers(X) JOB_OF_CALL(X)
#define FIELDS_OF_status(X) \
    JOB_OF_CALL(X)          \
    ROUND_OF_SENDER(X)
#define FIELDS_OF_stacks(X)                                            \
    JOB_OF_CALL(X)                                                     \
    X(TEXT, ranks, 0, LIMIT_TEXT - 1, 0, "such as 0,2-5; empty = all") \
    X(FLAG, native, 0, 0, 0, "also C frames")
#define FIELDS_OF_keys(X)                   \
    JOB_OF_CALL(X)                          \
    X(TEXT, prefix, 0, WIRE_MAX_KEY, 0, "") \
    X(WHOLE, limit, 0, INT32_MAX, 1000, "default 1000")

/* --- answers -------------------------------------------------------------------------------------------- */

#define FIELDS_OF_refusal(X)                                                                  \
    X(TEXT, code, 0, LIMIT_TEXT, 0,                                                           \
      "STALE_ROUND, NO_MEMBER, VOUCH_REFUSED, NOTICE_REFUSED, or a code of `ddprun explain`") \
    X(TEXT, advice, 0, LIMIT_WORDS, 0, "remedy")

#define FIELDS_OF_answer(X)  \
    X(FLAG, ok, 0, 0, 0, "") \
    X(TEXT, error, 0, LIMIT_WORDS, 0, "")

#define FIELDS_OF_joined(X)                                                      \
    X(TEXT, job, 0, LIMIT_TEXT, 0, "job id")                                     \
    X(TEXT, instance, 0, LIMIT_INSTANCE, 0, "")                                  \
    X(WHOLE, ms, 0, MESSAGE_NUMBER_MAX, 0, "store's clock (only with `events`)") \
    X(TEXT, token, 0, LIMIT_TOKEN, 0, "")                                        \
    X(TEXT, state, 0, 16, 0, "waiting or spare")

#define FIELDS_OF_resumed(X) X(WHOLE, received, 0, MESSAGE_NUMBER_MAX, 0, "calls since the first join")

/* The lists in the answer to `status`. */
#define FIELDS_OF_status_lists(X)                    \
    X(LIST, nodes, 0, 0, 0, "objects `node_status`") \
    X(LIST, members, 0, 0, 0, "ranks")

/* The lists in the answer to `stacks`. */
#define FIELDS_OF_stacks_lists(X)                                      \
    X(LIST, stacks, 0, 0, 0, "as in report.json")                      \
    X(LIST, missing, 0, 0, 0, "nodes without answer: node_rank, host") \
    X(MARK, cut, 0, 0, 0, "")

#define FIELDS_OF_node_status(X)                                                                    \
    X(WHOLE, node_rank, 0, INT32_MAX, -1, "")                                                       \
    X(TEXT, host, 0, LIMIT_TEXT - 1, 0, "")                                                         \
    X(TEXT, addr, 0, LIMIT_TEXT - 1, 0, "")                                                         \
    X(WHOLE, pid, 0, INT32_MAX, 0, "")                                                              \
    X(WHOLE, nproc, 0, INT32_MAX, 0, "workers")                                                     \
    X(TEXT, state, 0, 16, 0, "waiting, spare, running, done, stopping, stopped, resting, finished") \
    X(WHOLE, joined_ms, 0, MESSAGE_NUMBER_MAX, 0, "since it joined")                                \
    X(WHOLE, heard_ms, 0, MESSAGE_NUMBER_MAX, 0, "since its last byte")

/* --- pushes --------------------------------------------------------------------------------------------- */

#define FIELDS_OF_round(X)                                                        \
    X(WHOLE, round, 1, INT32_MAX, -1, "")                                         \
    X(WHOLE, attempt, 0, INT32_MAX, -1, "from 0")                                 \
    X(WHOLE, restarts, 0, INT32_MAX, MESSAGE_NONE, "failed attempts")             \
    X(WHOLE, node_rank, 0, INT32_MAX, -1, "of the receiver")                      \
    X(WHOLE, nnodes, 1, INT32_MAX, -1, "")                                        \
    X(WHOLE, first_rank, 0, INT32_MAX, -1, "rank of its first worker")            \
    X(WHOLE, world_size, 1, INT32_MAX, -1, "")                                    \
    X(LIST, nodes, 0, LIMIT_LISTED, 0, "objects `node`; of more than 256, 32")    \
    X(WHOLE, role_rank, 0, INT32_MAX, MESSAGE_NONE, "first_rank within the role") \
    X(WHOLE, role_size, 0, INT32_MAX, MESSAGE_NONE, "workers of the role")

#define FIELDS_OF_node(X)                       \
    X(WHOLE, node_rank, 0, INT32_MAX, -1, "")   \
    X(TEXT, host, 0, LIMIT_TEXT - 1, 0, "")     \
    X(WHOLE, nproc, 0, INT32_MAX, 0, "workers") \
    X(TEXT, addr, 0, LIMIT_TEXT - 1, 0, "")     \
    X(TEXT, own, 0, LIMIT_TEXT - 1, 0, "")      \
    X(WHOLE, store_port, 1, UINT16_MAX, 0, "")

#define FIELDS_OF_waiting(X)                                                                          \
    X(TEXT, state, 0, 16, 0, "gathering, last call, running, stopping, backing off")                  \
    X(WHOLE, joined, 0, INT32_MAX, 0, "nodes so far")                                                 \
    X(WHOLE, min, 0, INT32_MAX, 0, "nodes needed")                                                    \
    X(WHOLE, max, 0, INT32_MAX, 0, "nodes at most")                                                   \
    X(WHOLE, spare, 0, INT32_MAX, 0, "nodes for the next round")                                      \
    X(WHOLE, returning, 0, INT32_MAX, 0, "nodes of the last round")                                   \
    X(LIMIT, left_ms, 0, MESSAGE_NUMBER_MAX, -1, "until the store gives up")                          \
    X(LIMIT, last_call_ms, 0, MESSAGE_NUMBER_MAX, -1, "until the round begins with the joined nodes") \
    X(WHOLE, backoff_ms, 0, MESSAGE_NUMBER_MAX, 0, "until the next round may begin")                  \
    X(LIST, nodes, 0, 0, 0, "some of the waiting hosts")                                              \
    X(LIST, missing, 0, 0, 0, "the lowest missing node ranks of a static job")                        \
    X(WHOLE, missing_count, 0, INT32_MAX, 0, "")

#define FIELDS_OF_stop(X)                                                                       \
    X(WHOLE, round, 0, INT32_MAX, -1, "")                                                       \
    X(TEXT, why, 0, 32, 0, "done, failed, node_lost, node_left, grow, hangs, timeout, refused") \
    X(OBJECT, cause, 0, 0, 0, "or null")

#define FIELDS_OF_verdict(X)                                                                                \
    FIELDS_OF_stop(X) X(TEXT, next, 0, 16, 0, "restart or finish")                                          \
        X(WHOLE, attempt, 0, INT32_MAX, -1, "of the next round")                                            \
            X(WHOLE, backoff_ms, 0, MESSAGE_NUMBER_MAX, 0, "until the next round may begin")                \
                X(TEXT, no_restart, 0, 32, 0, "why no restart follows: used_up, no_progress, stopped, ...") \
                    X(WHOLE, step, -1, MESSAGE_NUMBER_MAX, -1, "highest of the round")                      \
                        X(WHOLE, best_step, -1, MESSAGE_NUMBER_MAX, -1, "highest of all rounds")            \
                            X(OBJECT, exit, 0, 0, 0, "") X(LIST, stacks, 0, 0, 0, "as in report.json")

#define FIELDS_OF_exit(X)                                          \
    X(CODE, first, 0, MESSAGE_CODE_MAX, 0, "of the first failure") \
    X(CODE, max, 0, MESSAGE_CODE_MAX, 0, "highest")                \
    X(CODE, rank0, 0, MESSAGE_CODE_MAX, 0, "")

#define FIELDS_OF_cause(X)                                                               \
    X(TEXT, why, 0, 32, 0, "as in stop")                                                 \
    X(WHOLE, node_rank, -1, INT32_MAX, -1, "-1 = none")                                  \
    X(TEXT, host, 0, LIMIT_TEXT - 1, 0, "")                                              \
    X(WHOLE, after_ms, 0, MESSAGE_NUMBER_MAX, 0, "since the round began")                \
    X(TEXT, words, 0, LIMIT_WORDS - 1, 0, "what happened")                               \
    X(TEXT, code, 0, FINDING_SUBJECT_MAX - 1, 0, "of a finding")                         \
    X(WHOLE, rank, 0, INT32_MAX, -1, "")                                                 \
    X(WHOLE, local_rank, -1, INT32_MAX, -1, "")                                          \
    X(WHOLE, pid, 0, INT32_MAX, 0, "")                                                   \
    FIELDS_OF_ENDING(X)                                                                  \
    X(TEXT, no_retry, 0, 64, 0, "why a restart would fail: cannot_start, usage, import") \
    X(MAYBE, victim, 0, 0, 0, "another worker was lost")                                 \
    X(TEXT, log, 0, LIMIT_WORDS - 1, 0, "path")                                          \
    X(LIST, stderr, 0, LIMIT_LAST_LINES, 0, "last lines of the log, oldest first")       \
    FAILURE_FACTS(X)

#define FIELDS_OF_dropped(X) X(TEXT, why, 0, LIMIT_WORDS, 0, "reason")

#define FIELDS_OF_who(X)                                                      \
    X(WHOLE, conn, 1, MESSAGE_NUMBER_MAX, 0, "")                              \
    X(TEXT, peer, 0, LIMIT_TEXT, 0, "client's address, as the store sees it") \
    X(TEXT, store, 0, LIMIT_TEXT, 0, "store's address")                       \
    X(MARK, owner, 0, 0, 0, "also find processes other than workers")

#define FIELDS_OF_sample(X)                                            \
    X(WHOLE, id, 1, MESSAGE_NUMBER_MAX, 0, "")                         \
    X(TEXT, ranks, 0, LIMIT_TEXT - 1, 0, "such as 0,2-5; empty = all") \
    X(FLAG, native, 0, 0, 0, "also C frames")                          \
    X(WHOLE, still_ms, 0, MESSAGE_NUMBER_MAX, MESSAGE_NONE,            \
      "time without progress; if present, also send flight records")

/* The texts have the limits of record/flight_dump.h. */
#define FIELDS_OF_flight_call(X)                                   \
    X(WHOLE, rank, 0, WIRE_MAX_RANKS, -1, "")                      \
    X(TEXT, group, 0, 63, 0, "empty = all ranks")                  \
    X(WHOLE, seq, 0, MESSAGE_NUMBER_MAX, 0, "number in the group") \
    X(TEXT, name, 0, 39, 0, "")                                    \
    X(TEXT, state, 0, 39, 0, "of the call")                        \
    X(TEXT, dtype, 0, 15, 0, "")                                   \
    X(TEXT, reduce, 0, 15, 0, "")                                  \
    X(WHOLE, n, 0, MESSAGE_NUMBER_MAX, 0, "elements")              \
    X(WHOLE, root, 0, WIRE_MAX_RANKS, 0, "")                       \
    X(WHOLE, created_ms, 0, MESSAGE_NUMBER_MAX, 0, "since 1970")   \
    X(TEXT, at, 0, 127, 0, "function, file and line")

#define FIELDS_OF_findings(X)                        \
    X(FLAG, final, 0, 0, 0, "the job fails next")    \
    X(TEXT, text, 0, WIRE_MAX_JSON, 0, "the report") \
    X(LIST, findings, 0, 0, 0, "`finding` objects; none if the hang is over")
#define FIELDS_OF_left_waiting(X) FIELDS_OF_findings(X)
#define FIELDS_OF_finding(X)                                     \
    X(TEXT, code, 0, FINDING_SUBJECT_MAX - 1, 0, "of a finding") \
    X(TEXT, grade, 0, 16, 0, "note, warning or error")           \
    X(TEXT, subject, 0, FINDING_SUBJECT_MAX - 1, 0, "")          \
    X(TEXT, sentence, 0, FINDING_TEXT_MAX - 1, 0, "")            \
    X(TEXT, advice, 0, FINDING_TEXT_MAX - 1, 0, "remedy")

#define FIELDS_OF_event(X) X(OBJECT, event, 0, 0, 0, "")

/* --- the table ------------------------------------------------------------------------------------------ */

/* X(ID, struct, name, class, meaning). A call has its name in "op", and a push has its name in "push". Other messages
 * have no name. */
#define MESSAGES(X)                                                                                        \
    X(HEARTBEAT, heartbeat, "heartbeat", AGENT_CALL, "changes of the workers; may be empty")               \
    X(HELLO, hello, "hello", CALL, "checks that a store answers")                                          \
    X(JOB, job, "job", AGENT_CALL, "declares a job without rendezvous")                                    \
    X(WORKER_STARTED, worker_started, "worker_started", AGENT_CALL, "a worker runs")                       \
    X(WORKER_EXITED, worker_exited, "worker_exited", AGENT_CALL, "a worker has ended")                     \
    X(JOIN, join, "join", AGENT_CALL, "joins, or joins again after a round")                               \
    X(RESUME, resume, "resume", AGENT_CALL, "replaces a node's connection")                                \
    X(FAILED, failed, "failed", AGENT_CALL, "a worker failed by itself; the node stops its other workers") \
    X(EXPLAIN, explain, "cause", AGENT_CALL, "more about a failed worker")                                 \
    X(DONE, done, "done", AGENT_CALL, "all workers of the node exited with 0")                             \
    X(STOPPED, stopped, "stopped", AGENT_CALL, "no process of the round is left on the node")              \
    X(LEAVE, leave, "leave", AGENT_CALL, "the node leaves for good")                                       \
    X(VOUCH, vouch, "vouch", AGENT_CALL, "a connection belongs to a worker")                               \
    X(OWNER, owner, "owner", AGENT_CALL, "a connection belongs to another process")                        \
    X(NOTICE, notice, "notice", AGENT_CALL, "a finding of the node about itself")                          \
    X(SAMPLED, sampled, "sampled", AGENT_CALL, "the stacks of the node's ranks")                           \
    X(TROUBLE, trouble, "trouble", CALL, "a finding of the rank about itself")                             \
    X(BARRIER_CANCEL, barrier_cancel, "barrier_cancel", CHANGE_CALL, "cancels an open barrier")            \
    X(JOBS, jobs, "jobs", CALL, "lists the jobs")                                                          \
    X(REJECTS, rejects, "rejects", CALL, "lists rejected connections and nodes")                           \
    X(WHY, why, "why", CALL, "diagnoses the job")                                                          \
    X(STATUS, status, "status", CALL, "describes a job, its nodes and ranks")                              \
    X(STACKS, stacks, "stacks", CALL, "returns the stacks of ranks within 4 s")                            \
    X(KEYS, keys, "keys", CALL, "lists keys")                                                              \
    X(WAITERS, waiters, "waiters", CALL, "lists waiting connections")                                      \
    X(BARRIERS, barriers, "barriers", CALL, "lists open barriers")                                         \
    X(ANSWER, answer, "every answer", ANSWER, "ends with these members")                                   \
    X(REFUSAL, refusal, "a refusal", ANSWER, "begins with these members")                                  \
    X(JOINED, joined, "join", ANSWER, "the node has joined")                                               \
    X(RESUMED, resumed, "resume", ANSWER, "missed frames follow")                                          \
    X(STATUS_LISTS, status_lists, "status", ANSWER, "nodes and ranks")                                     \
    X(STACKS_LISTS, stacks_lists, "stacks", ANSWER, "stacks of all nodes")                                 \
    X(ROUND, round, "round", PUSH, "the round begins without keys: start your workers")                    \
    X(WAITING, waiting, "waiting", PUSH, "what the round waits for")                                       \
    X(STOP, stop, "stop", PUSH, "stop your workers, then send `stopped`")                                  \
    X(VERDICT, verdict, "verdict", PUSH, "the round is over: join again, or end")                          \
    X(DROPPED, dropped, "dropped", PUSH, "the store drops the node")                                       \
    X(WHO, who, "who", PUSH, "asks which process owns a connection")                                       \
    X(SAMPLE, sample, "sample", PUSH, "asks for stacks; answer with `sampled`")                            \
    X(FINDINGS, findings, "findings", PUSH, "findings while nodes or ranks wait")                          \
    X(LEFT_WAITING, left_waiting, "left_waiting", PUSH, "a rank that others wait for has ended")           \
    X(EVENT, event, "event", PUSH, "a line for the nodes' event logs")                                     \
    X(SENDER, sender, "sender", PART, "ends every call of a node, except `join`")                          \
    X(OP, op, "call", PART, "begins every call")                                                           \
    X(PUSH, push, "push", PART, "begins every push")                                                       \
    X(IDENTIFY, identify, "IDENTIFY", PART, "sent by the request IDENTIFY")                                \
    X(NODE, node, "node", PART, "in `nodes` of `round`")                                                   \
    X(NODE_STATUS, node_status, "node_status", PART, "in `nodes` of the answer `status`")                  \
    X(CAUSE, cause, "cause", PART, "why a round ends")                                                     \
    X(EXIT, exit, "exit", PART, "exit codes; each node's --exit_code selects one")                         \
    X(FINDING, finding, "finding", PART, "in `findings`")                                                  \
    X(FLIGHT_CALL, flight_call, "flight_call", PART, "in `calls` of `sampled`")

#define X(ID, name, ...) MESSAGE_##ID,
enum message_id { MESSAGES(X) MESSAGE_COUNT };
#undef X

/* Each message has a struct, such as struct message_join. The first member of the struct, `object`, is borrowed: the
 * JSON object from which the message was decoded. */
#define MESSAGE_TYPE_WHOLE      int64_t
#define MESSAGE_TYPE_LIMIT      int64_t
#define MESSAGE_TYPE_CODE       int64_t
#define MESSAGE_TYPE_MAYBE      int64_t
#define MESSAGE_TYPE_TEXT       const char *
#define MESSAGE_TYPE_FLAG       bool
#define MESSAGE_TYPE_MARK       bool
#define MESSAGE_TYPE_LIST       cJSON *
#define MESSAGE_TYPE_OBJECT     cJSON *
#define MEMBER(kind, name, ...) MESSAGE_TYPE_##kind name;
#define X(ID, name, ...)         \
    struct message_##name {      \
        const cJSON *object;     \
        FIELDS_OF_##name(MEMBER) \
    };
MESSAGES(X)
#undef X
#undef MEMBER

/* One message of any kind. */
union message {
#define X(ID, name, ...) struct message_##name name;
    MESSAGES(X)
#undef X
};

/* The class of a call decides which clients may make the call (may_call in control.c). The classes of calls are the
 * first in this enum, because messages.c treats each class up to MESSAGE_IS_CALL as a call. */
enum message_class {
    MESSAGE_IS_AGENT_CALL,
    MESSAGE_IS_CHANGE_CALL, /* an operator's call that changes the job */
    MESSAGE_IS_CALL,
    MESSAGE_IS_ANSWER,
    MESSAGE_IS_PUSH,
    MESSAGE_IS_PART,
    MESSAGE_CLASSES
};
enum message_class message_class(enum message_id id);
/* Return the call (message_find_call) or the push (message_find_push) with this name, or MESSAGE_COUNT. */
enum message_id message_find_call(const char *op);
enum message_id message_find_push(const char *push);

/* --- encode and decode ---------------------------------------------------------------------------------- */

/* Add the members of `message` to `o`. If memory is short, members are left out. */
void message_add(enum message_id id, const void *message, cJSON *o);
/* Return a new object with the name and members of a message; the caller frees it (cJSON_Delete). */
cJSON *message_encode(enum message_id id, const void *message);
/* Decode a message. If `err` is not NULL, the function fails if a member is wrong, or if a needed member is missing.
 * For messages from the store, `err` is NULL. The function then never fails: it treats wrong members as missing, and
 * accepts texts of any length. Texts, lists and objects are borrowed from `o`. */
bool message_decode(enum message_id id, const cJSON *o, void *message, struct ddp_err *err);

/* For each message, define functions for its struct, such as message_encode_join(&(struct message_join){ ... }). A
 * wrong struct is then a compile error. */
#define X(ID, name, ...)                                                             \
    static inline cJSON *message_encode_##name(const struct message_##name *m)       \
    {                                                                                \
        return message_encode(MESSAGE_##ID, m);                                      \
    }                                                                                \
    static inline void message_add_##name(const struct message_##name *m, cJSON *o)  \
    {                                                                                \
        message_add(MESSAGE_##ID, m, o);                                             \
    }                                                                                \
    static inline void message_read_##name(const cJSON *o, struct message_##name *m) \
    {                                                                                \
        (void)message_decode(MESSAGE_##ID, o, m, NULL);                              \
    }
MESSAGES(X)
#undef X

/* --- failures ------------------------------------------------------------------------------------------- */

/* Encode an agent's report about a failed worker: MESSAGE_FAILED, or MESSAGE_EXPLAIN. The caller owns the result. */
cJSON *message_encode_failure(enum message_id id, const struct failure *f);
/* Encode the cause of a stop. The store sends this cause to all nodes. The caller owns the result. */
cJSON *message_encode_failure_cause(const struct failure *f);
/* Decode a message from message_encode_failure or message_encode_failure_cause. Long texts are cut, and lines beyond
 * LIMIT_LAST_LINES are left out. */
void message_decode_failure(const cJSON *o, struct failure *f);

/* Parse exactly one JSON object; the caller frees it (cJSON_Delete). If this fails, return NULL and write the reason to
 * `err`. */
cJSON *message_parse(struct slice text, struct ddp_err *err);

#endif

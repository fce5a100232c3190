/* exit_codes.h -- the exit codes of ddprun, one row for each code. `ddprun explain`, the manual page, the documentation
 * and the enum are made from these rows, so these four always agree. */
#ifndef RENDEZVOUS_EXIT_CODES_H
#define RENDEZVOUS_EXIT_CODES_H

#include "ddp/error.h"

#include <signal.h>

/* Each row has a code, its name, its meaning and the remedy. The fifth column explains how ddprun detects the case,
 * with typical causes. The last column is an example of a message or a command. The codes 125 to 127 mean the same as
 * in env(1), timeout(1) and shells. */
#define EXIT_CODE_LIST(X)                                                                                 \
    X(0, OK, "every worker exited with 0", "none is needed",                                              \
      "The agents of all nodes reported exit code 0 for all workers. Typical cause: the job is done.",    \
      "ddprun ./train && echo done")                                                                      \
    X(2, USAGE, "wrong command line, or a worker exited with 2",                                          \
      "find the option in the message, and its values in ddprun --help",                                  \
      "ddprun checked all options before it started a process. Typical causes: a spelling error, or "     \
      "options that cannot be used together.",                                                            \
      "--nproc_per_node=0: expected a number from 1 to 4096, 'gpu', 'cpu' or 'auto'")                     \
    X(DDP_EXIT_PEER_LOST, PEER_LOST, "a worker lost a peer (another rank), and no other worker failed",   \
      "read the end of the worker's log; if this log names the lost rank, read the log of that rank, "    \
      "else read the end of every log",                                                                   \
      "A worker exited with DDP_EXIT_PEER_LOST. ddprun then waited to see which worker had failed, but "  \
      "no other worker failed. Typical causes: a rank that left a process group early, or a broken "      \
      "network connection.",                                                                              \
      "rank 3 on n1 failed first: exit 75, 12.3 s after its start")                                       \
    X(123, STORE_LOST, "this node lost the store (host or network down), or was frozen",                  \
      "check the output of the node that hosts the store; to survive the loss of any node, run "          \
      "ddp-rendezvous on another host",                                                                   \
      "The store sent no message within the time of --node_timeout, and no new connection succeeded. "    \
      "Typical causes: a killed node 0, a cut network, or a frozen machine.",                             \
      "lost the store of the job at 10.0.0.1:29500 after 42.0 s: no message from the store for 15 s "     \
      "(--node_timeout)")                                                                                 \
    X(124, UNKILLABLE, "a process cannot be killed, or the file system of --log_dir does not answer",     \
      "check the disk, the network file system or the driver of that host",                               \
      "The process still existed after SIGKILL, and /proc/PID/stat shows state D. Typical causes: an "    \
      "NFS server or a GPU driver that does not answer.",                                                 \
      "pid 812 (rank 3, train) cannot be killed: state D in nfs_wait")                                    \
    X(125, DDPRUN,                                                                                        \
      "no worker failed: a node was lost or missing, the job hung (--on_hang), or ddprun itself failed",  \
      "read the report, which shows the node or the reason",                                              \
      "The job ended before any worker had failed. Typical causes: a node that crashed or never joined, " \
      "a port in use, or a full disk.",                                                                   \
      "only 1 of 2 nodes joined within 900 s (--timeout); missing: node rank 1")                          \
    X(126, CANNOT_RUN, "the program cannot be executed",                                                  \
      "check its permissions, its interpreter line and its architecture",                                 \
      "execve failed with EACCES, ENOEXEC or a similar error. Typical causes: a missing chmod +x, or a "  \
      "build for another machine.",                                                                       \
      "./train is not executable")                                                                        \
    X(127, NOT_FOUND, "the program or script was not found",                                              \
      "check the path of the program on every node, and PATH",                                            \
      "execve failed with ENOENT, or no directory of PATH has the program. Typical causes: a spelling "   \
      "error, or a file system that this node does not mount.",                                           \
      "./trian: no such file")                                                                            \
    X(128, SIGNAL,                                                                                        \
      "128 + n: signal n stopped the job, or killed ddprun's agent or the worker that failed first",      \
      "read the report, which shows the signal and, where possible, its sender",                          \
      "The kernel reported that a signal ended the process, or ddprun itself received the signal. "       \
      "Typical causes: Ctrl-C (130), a lack of memory (137), a bug in C or C++ code (139), or a time "    \
      "limit of the scheduler (143).",                                                                    \
      "rank 3 on n1 failed first: out of memory (SIGKILL), 12.3 s after its start")

/* Each row has a signal, typical causes and the remedy. These texts replace the general texts of row SIGNAL. */
#define EXIT_SIGNAL_LIST(X)                                                                              \
    X(SIGHUP, "a closed terminal, or an ssh connection that ended",                                      \
      "start the job with --detach, or in a session of tmux")                                            \
    X(SIGINT, "Ctrl-C, or a script that sends SIGINT", "if you did not stop the job, find the sender")   \
    X(SIGILL, "a program that was built for a newer processor",                                          \
      "build the program for this processor (-march), or install a build for older processors")          \
    X(SIGABRT, "a failed assertion, an uncaught C++ exception, a heap error, or NCCL's watchdog",        \
      "read the last lines of the worker, which usually contain the reason")                             \
    X(SIGBUS, "a full /dev/shm, or a mapped file that became shorter",                                   \
      "enlarge /dev/shm ('docker run --shm-size=8g'), and check other disks with 'df'")                  \
    X(SIGFPE, "a division of an integer by zero",                                                        \
      "run 'ulimit -c unlimited' before ddprun, and open the "                                           \
      "core file with gdb")                                                                              \
    X(SIGKILL, "a lack of memory, the command 'kill -9', or the end of a scheduler's time limit",        \
      "see the report; if memory ran out, use a smaller batch, or raise the memory limit of the cgroup " \
      "or of the scheduler")                                                                             \
    X(SIGSEGV,                                                                                           \
      "a bug in C, C++ or CUDA code, or a Python extension module built for another version "            \
      "of Python",                                                                                       \
      "run 'ulimit -c unlimited' before ddprun, and open the core file with gdb; for Python, set "       \
      "PYTHONFAULTHANDLER=1")                                                                            \
    X(SIGPIPE, "a program that stopped reading the output, such as head in 'ddprun ... | head'",         \
      "pipe the output to a program that reads all of it, or use --log_dir and --redirects")             \
    X(SIGTERM, "the scheduler's time limit or preemption, or the command 'kill'",                        \
      "raise the time limit, and continue from the last checkpoint")                                     \
    X(SIGXCPU, "the limit of processor time", "raise the limit: 'ulimit -t'")                            \
    X(SIGXFSZ, "the limit of file sizes", "raise the limit: 'ulimit -f'")

/* The texts for every exit code that has no row. agent_exit_code in agent/agent.c chooses the exit code. */
#define EXIT_CODE_OTHER_MEANING "the exit code of the worker that failed first"
#define EXIT_CODE_OTHER_REMEDY \
    "read the end of the worker's log, and look up the code in the documentation of the worker's program"
#define EXIT_CODE_OTHER_DETECTION                                                                     \
    "The kernel reported this exit code. By the clock of the store, no other worker failed earlier. " \
    "Typical causes: an uncaught exception in Python (1), or a program that defines its own codes."

enum exit_code {
#define X(code, name, ...) EXIT_CODE_##name = code,
    EXIT_CODE_LIST(X)
#undef X
};

/* The values of --exit_code: which exit code ddprun returns if workers fail. */
enum exit_policy { EXIT_POLICY_FIRST, EXIT_POLICY_MAX, EXIT_POLICY_RANK0, EXIT_POLICY_WORKERS };

#endif

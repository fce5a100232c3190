/* exit_codes.h -- the exit codes of ddprun. Each row has a code, its name, its meaning, and the remedy.
 *
 * `ddprun explain`, the manual page, the documentation and the enum are made from these rows. 125 to 127 have the
 * meanings of env(1), timeout(1) and shells. Every other value is the exit code of the worker that failed first;
 * agent_exit_code in agent/agent.c has the rule. */
#ifndef RENDEZVOUS_EXIT_CODES_H
#define RENDEZVOUS_EXIT_CODES_H

#define EXIT_CODE_LIST(X)                                                                                   \
    X(0, OK, "every worker exited with 0", "nothing")                                                       \
    X(2, USAGE, "the command line is wrong; nothing was started",                                           \
      "the message names the option; see ddprun --help")                                                    \
    X(123, STORE_LOST,                                                                                      \
      "this node cannot reach the store: the host or launcher of the store exited, the network is cut, or " \
      "this node was frozen and dropped; the workers here were stopped",                                    \
      "check the output of the node that hosts the store; a separate ddp-rendezvous survives the loss of "  \
      "any "                                                                                                \
      "node")                                                                                               \
    X(124, UNKILLABLE,                                                                                      \
      "a process hangs in the kernel and cannot be killed: the report names the process; ddprun itself "    \
      "hangs if the file system of --log_dir does not answer",                                              \
      "check the disk, the network file system or the driver of that host")                                 \
    X(125, DDPRUN,                                                                                          \
      "no worker failed: another node was lost or missing, the job hung (--on_hang), or ddprun itself "     \
      "failed (no port, no memory, no log directory)",                                                      \
      "the report names the node or the reason")                                                            \
    X(126, CANNOT_RUN, "the program was found but cannot be executed",                                      \
      "check its permissions, its interpreter line and its architecture")                                   \
    X(127, NOT_FOUND, "the program, or the script for Python, was not found",                               \
      "check the path on every node, and PATH")                                                             \
    X(128, SIGNAL,                                                                                          \
      "128 + n: signal n killed the worker that failed first, stopped the job, or killed ddprun's agent",   \
      "the report names the signal and its sender; 137 (SIGKILL) is often the out-of-memory killer of the " \
      "kernel")

enum exit_code {
#define X(code, name, ...) EXIT_CODE_##name = code,
    EXIT_CODE_LIST(X)
#undef X
};

/* The values of --exit-code: the failed worker whose exit code ddprun uses. */
enum exit_policy { EXIT_POLICY_FIRST, EXIT_POLICY_MAX, EXIT_POLICY_RANK0, EXIT_POLICY_WORKERS };

#endif

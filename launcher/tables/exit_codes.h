/* exit_codes.h -- what ddprun exits with. One row each: code, name, what it means. The manual page, the
 * README's table and the enum come from here. 125 to 127 follow env(1), timeout(1) and the shells, so scripts
 * that know those know ours. Every other value is the exit code of the worker that failed first:
 * agent_exit_code in agent/agent.c has the rule. */
#ifndef LAUNCHER_EXIT_CODES_H
#define LAUNCHER_EXIT_CODES_H

#define EXIT_CODE_LIST(X)                                                                                 \
    X(0, OK, "every worker ended with 0")                                                                 \
    X(2, USAGE, "the command line is wrong; nothing was started")                                         \
    X(123, STORE_LOST,                                                                                    \
      "this node cannot reach the store: it ended with its launcher or host, or the network is cut, or "  \
      "this node stood still and was given up; the workers here were stopped")                            \
    X(124, UNKILLABLE,                                                                                    \
      "a process cannot be killed, it hangs in the kernel: named in the report, and left behind; it may " \
      "be ddprun's own, when the file system of --log_dir does not answer")                               \
    X(125, DDPRUN,                                                                                        \
      "no worker's fault: another node was lost or never came, or ddprun itself failed (no port, no "     \
      "memory, a log directory that cannot be made ...)")                                                 \
    X(126, CANNOT_RUN, "the program was found but cannot be executed")                                    \
    X(127, NOT_FOUND, "the program, or the file that Python is to run, was not found")                    \
    X(128, SIGNAL,                                                                                        \
      "128 + n: signal n killed the worker that failed first, or stopped the job (the user's), or "       \
      "killed ddprun's own agent process")

enum exit_code {
#define X(code, name, text) EXIT_CODE_##name = code,
    EXIT_CODE_LIST(X)
#undef X
};

/* --exit-code: whose code it is when workers have failed. */
enum exit_policy { EXIT_POLICY_FIRST, EXIT_POLICY_MAX, EXIT_POLICY_RANK0, EXIT_POLICY_WORKERS };

#endif

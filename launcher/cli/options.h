/* options.h -- every option of ddprun, one row each. The parser, the PET_* defaults, --help and the manual page all use
 * these rows, so a new option is only a row here and a field in struct cli. */

/* Columns of DDPRUN_OPTIONS:
 *
 *     id
 *     name             with underscores; dashes are accepted everywhere
 *     letter           letter of the short form, or 0 if there is no short form
 *     kind             the parser, value_KIND in values.c; WORD and NAME: one of the words that values.c lists
 *     field            the field of struct cli
 *     value            name of the value in the help; NULL for a switch; "[=X]" for a switch that accepts the value X
 *     default          the default, as a user would type it; NULL without a default
 *     in environment   whether PET_<NAME> is read
 *     whose            FIRST: torchrun 1.13 and later have the option. THEIRS: only later versions of torchrun have
 *                      the option. OURS: only ddprun has the option. An abbreviation that matches several options
 *                      selects FIRST before THEIRS, and THEIRS before OURS
 *     section          the section of --help
 *     help */

#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

/* Commands of ddprun, written as its first argument. If a program has the same name as a command, the user writes
 * ./NAME to start the program. Columns: id, name, arguments, help. */
#define DDPRUN_COMMANDS(X)                                                                                  \
    X(EXPLAIN, "explain", "[--json] [CODE]",                                                                \
      "print the meaning and remedy of a finding, an exit code or a signal; without CODE, list all codes; " \
      "--json prints a JSON object")                                                                        \
    X(SHIM, "shim", "[--remove] DIR",                                                                       \
      "create the command DIR/torchrun, which starts ddprun, and print the shell line that puts DIR "       \
      "first in PATH; --remove removes the command. Other torchrun commands stay unchanged")                \
    X(LIST, "list", "[--json]",                                                                             \
      "list your detached jobs on this host; --json prints one JSON object for each job. Without jobs, "    \
      "stdout stays empty")                                                                                 \
    X(ATTACH, "attach", "JOB",                                                                              \
      "show the end of a detached job's output, then all new output until the job ends; JOB is the id "     \
      "that --detach printed, or --rdzv_id. Ctrl-C ends only this command. The exit code is the job's, "    \
      "or 130 after Ctrl-C")                                                                                \
    X(STOP, "stop", "JOB",                                                                                  \
      "stop a detached job as Ctrl-C does; JOB is the id or --rdzv_id; a second 'ddprun stop' kills the "   \
      "job")

#define OPTION_SECTIONS(X)             \
    X(JOB, "Job")                      \
    X(NODES, "Several nodes")          \
    X(PROGRAM, "Program")              \
    X(OUTPUT, "Output")                \
    X(TIME, "Signals and time limits") \
    X(FAILURE, "Failures")             \
    X(INFO, "Information")

/* clang-format off */
#define DDPRUN_OPTIONS(X)                                                                                    \
    X(NPROC_PER_NODE, "nproc_per_node", 0, NPROC, nproc, "N", NULL, true, FIRST, JOB,                               \
      "workers on this node: a number, 'gpu' (one per visible GPU), 'cpu' (one per usable CPU) or 'auto' "   \
      "(GPUs, else CPUs) (default: one per visible GPU, else 1)")                                             \
    X(STANDALONE, "standalone", 0, SWITCH, standalone, NULL, NULL, true, FIRST, JOB,                                  \
      "run a job on this node only; its store uses a free port unless --master_port is given")                        \
    X(MASTER_ADDR, "master_addr", 0, HOST, master_addr, "HOST", "127.0.0.1", true, FIRST, JOB,                      \
      "address of the store: with several nodes, the address of node 0")                       \
    X(MASTER_PORT, "master_port", 0, PORT, master_port, "PORT", "29500", true, FIRST, JOB,                          \
      "port of the store; 0 = any free port. A job of one node uses a free port if the default port is in use")  \
    X(RDZV_ID, "rdzv_id", 0, JOB, job, "ID", NULL, true, FIRST, JOB,                                                \
      "job id, for TORCHELASTIC_RUN_ID and the names of log directories (default: a random id, but 'none' "     \
      "with several nodes)")                                                                                    \
    X(DETACH, "detach", 0, SWITCH, detach, NULL, NULL, false, OURS, JOB,                                     \
      "run the job in the background, independent of this terminal, and print its id; the output goes to "      \
      "ddprun-ID.out in this directory. See also: 'ddprun list', 'ddprun attach', 'ddprun stop'")               \
    X(ROLE, "role", 0, ROLE, role, "NAME", "default", true, FIRST, JOB,                                     \
      "role of the workers: the value of ROLE_NAME and of the field role_name in line prefixes")                \
    X(HOSTS, "hosts", 'H', HOSTS, hosts, "LIST", NULL, false, OURS, NODES,                                            \
      "start workers on hosts by ssh (repeatable): 'a:8,b:8', 'n[01-16]:gpu', "                              \
      "'ann@a:2222:8' (port 2222, 8 workers)")                                                               \
    X(HOSTFILE, "hostfile", 0, HOSTFILE, hostfile, "FILE", NULL, false, OURS, NODES,                                     \
      "start workers on the hosts in FILE: one host per line, with optional slots=N (N workers), "                          \
      "user=NAME and port=N. HOST:X means X workers; but X is a port if X is at least 1024, or if the "      \
      "line has slots=N")                                                                                                   \
    X(REMOTE_SHELL, "remote_shell", 0, TEXT, remote_shell, "CMD", "ssh", true, OURS, NODES,                          \
      "program that starts ddprun on the hosts of --hosts, as ssh does. ddprun runs 'CMD HOST LINE', "       \
      "where LINE is one argument: a command line for a shell on HOST. In a Slurm allocation the default "   \
      "is srun")                                                                                             \
    X(SSH, "ssh", 0, TEXT, remote_shell, "CMD", NULL, true, OURS, NODES, NULL) /* alias of --remote_shell */ \
    X(SSH_FANOUT, "ssh_fanout", 0, COUNT, ssh_fanout, "N", NULL, true, OURS, NODES,                                  \
      "start the hosts of --hosts as a tree: each host starts up to N other hosts, with its own ssh and "       \
      "keys; 0: start all hosts from this one (default: 16 for 64 hosts or more, else 0)")                                             \
    X(SHIP, "ship", 0, SWITCH, ship, NULL, NULL, true, OURS, NODES,                                                  \
      "copy this ddprun to each host of --hosts for the duration of the job (the hosts then need no ddprun)")        \
    X(RELAY, "relay", 0, SWITCH, relay, NULL, NULL, false, OURS, NODES, NULL) /* set by --hosts */ \
    X(ONE_CONSOLE, "one_console", 0, SWITCH, one_console, NULL, NULL, false, OURS, NODES, NULL) /* set by --hosts */ \
    X(LOG_NAME, "log_name", 0, TEXT, log_name, "NAME", NULL, false, OURS, NODES, NULL) /* set by --collect_logs */ \
    X(NNODES, "nnodes", 0, NNODES, nnodes, "N", "1", true, FIRST, NODES,                                            \
      "number of nodes; MIN:MAX for an elastic job, whose nodes may join and leave; N:N means N")               \
    X(NODE_RANK, "node_rank", 0, NODE_RANK, node_rank, "N", NULL, true, FIRST, NODES,                               \
      "rank of this node, from 0 to nnodes - 1; with --hosts, a scheduler or an elastic job, leave it out")          \
    X(RDZV_BACKEND, "rdzv_backend", 0, WORD, backend, "NAME", NULL, true, FIRST, NODES,                          \
      "'static': --nnodes and --node_rank define the nodes; 'c10d': an elastic job, whose nodes may "           \
      "join and leave (default: c10d for a range of nodes, such as 2:4, else static)")                            \
    X(RDZV_ENDPOINT, "rdzv_endpoint", 0, ENDPOINT, endpoint, "HOST[:PORT]", NULL, true, FIRST, NODES,               \
      "address of the node that hosts the store, or of a ddp-rendezvous (default port: 29400 for elastic jobs, " \
      "else the value of --master_port)")                                                               \
    X(RDZV_CONF, "rdzv_conf", 0, RDZV_CONF, rdzv_conf, "K=V,...", NULL, true, FIRST, NODES,                         \
      "torchrun's rendezvous settings, times in seconds: join_timeout or timeout (for all nodes to join; "      \
      "default: 600 in an elastic job, else 900), last_call_timeout (for more nodes to join; default: "    \
      "30), keep_alive_interval and keep_alive_max_attempt (their product is --node_timeout), is_host "         \
      "(--host_store)")                                                                                         \
    X(LOCAL_ADDR, "local_addr", 0, TEXT, local_addr, "ADDR", NULL, true, THEIRS, NODES,                              \
      "address of this node for connections from other nodes (default: the address that this node uses "     \
      "to reach the store)")                                                                                 \
    X(HOST_STORE, "host_store", 0, WORD, host_store, "CHOICE", "auto", true, OURS, NODES,                    \
      "whether this node hosts the store: 'yes', 'no' or 'auto'. With 'auto', node 0 hosts the store; in "   \
      "an elastic job, the node with the address of --rdzv_endpoint hosts the store")                        \
    X(SECRET_FILE, "secret_file", 0, TEXT, secret_file, "FILE", NULL, true, OURS, NODES,                     \
      "file with the job's secret, created by --make_secret; '-' reads one line of stdin. All nodes need "  \
      "the same secret. The store rejects nodes without the secret. The store serves a worker's "            \
      "connection only after ddprun on the worker's node has confirmed that this worker opened it")          \
    X(ENCRYPT, "encrypt", 0, SWITCH, encrypt, NULL, NULL, true, OURS, NODES,                                        \
      "encrypt all connections to a store on another host (TLS 1.3 with a key from the job's secret); "      \
      "needs OpenSSL 1.1.1 or later. Tensors are not encrypted. No effect on a job of one node")             \
    X(INSECURE, "insecure", 0, SWITCH, insecure, NULL, NULL, true, OURS, NODES,                                       \
      "let every user of this host use the store (default: only root and the user who started ddprun). If " \
      "there is no --secret_file, also let all other hosts use the store")                         \
    X(TORCH_STORE, "torch_store", 0, WORD, torch_store, "STORE", "auto", true, OURS, NODES,                 \
      "store for PyTorch's workers: 'launcher' (ddprun's store) or 'rank0' (PyTorch's own store, in rank "      \
      "0). 'auto' selects rank0 only for a PyTorch 2.4 or later without libuv, because such a PyTorch "      \
      "rejects ddprun's store")                                                                              \
    X(UNEVEN, "uneven", 0, SWITCH, uneven, NULL, NULL, true, OURS, NODES,                                            \
      "accept different numbers of workers on the nodes of an elastic job")                                      \
    X(GROW, "grow", 0, WORD, grow, "WHEN", "agreed", true, OURS, NODES,                                            \
      "time at which waiting nodes join a running elastic job: 'agreed' (after every rank has called "       \
      "ddp_grow_agree or set the key ddprun/grow/RANK), 'now' (at once; the workers restart), or 'never' "   \
      "(at the next restart)")                                                                               \
    X(NODE_TIMEOUT, "node_timeout", 0, NODE_TIMEOUT, node_timeout_ms, "TIME", "3s", true, OURS, NODES,             \
      "time without a heartbeat after which a node is lost; 'fast' is 1.5s")                                   \
    X(EXIT_BARRIER_TIMEOUT, "exit_barrier_timeout", 0, DURATION, exit_barrier_ms, "TIME", "5m", true, OURS, NODES, \
      "time for which a node waits for the other nodes after its own workers have finished")                 \
    X(SCHEDULER, "scheduler", 0, TEXT, scheduler, "NAME", "auto", true, OURS, NODES,                               \
      "read defaults from the variables of this scheduler: 'auto' (the scheduler that started this "         \
      "process), 'none', slurm, openmpi, hydra, pytorchjob, kubernetes, pbs or lsf")                                   \
    X(PER_TASK, "per_task", 0, SWITCH, per_task, NULL, NULL, true, OURS, NODES,                                      \
      "run one worker in this task; for schedulers that start one ddprun for each worker")                \
    X(EXPLAIN, "explain", 0, SWITCH, explain, NULL, NULL, false, OURS, NODES,                                \
      "print each option that a scheduler can set, with its value and the source of the value (command "     \
      "line, variable, scheduler or default), and start nothing; --json prints JSON")                        \
    X(WHY, "why", 0, SWITCH, explain, NULL, NULL, false, OURS, NODES, NULL) /* old name of --explain */ \
    X(MODULE, "module", 'm', SWITCH, module, NULL, NULL, true, FIRST, PROGRAM,                                        \
      "PROGRAM is a module: run 'python3 -u -m PROGRAM'")                                             \
    X(NO_PYTHON, "no_python", 0, SWITCH, no_python, NULL, NULL, true, FIRST, PROGRAM,                                 \
      "execute PROGRAM itself even if its name ends in .py")                                               \
    X(RUN_PATH, "run_path", 0, SWITCH, run_path, NULL, NULL, true, FIRST, PROGRAM,                            \
      "PROGRAM is a Python script: run it with runpy.run_path, in one Python per worker; overrides --no_python " \
      "and --module")                                                                            \
    X(START_METHOD, "start_method", 0, NAME, start_method, "NAME", "spawn", true, FIRST, PROGRAM,   \
      "'spawn', 'fork' or 'forkserver'; has no effect, because ddprun always starts a new process, as "      \
      "'spawn' does")                                                                                        \
    X(PASS_LOCAL_RANK, "pass_local_rank", 0, NAME, rank_argument, "NAME", NULL, true, OURS, PROGRAM, \
      "pass --NAME=N (N is the local rank) to PROGRAM as its first argument, as 'python -m "                     \
      "torch.distributed.launch' does; NAME is 'local-rank', or 'local_rank' as in PyTorch before 2.0")          \
    X(USE_ENV, "use_env", 0, SWITCH, use_env, NULL, NULL, false, FIRST, PROGRAM,                              \
      "pass the local rank only in LOCAL_RANK; cancels --pass_local_rank")                                 \
    X(VIRTUAL_LOCAL_RANK, "virtual_local_rank", 0, SWITCH, virtual_local_rank, NULL, NULL, true, THEIRS, PROGRAM, \
      "show each worker only its own GPU, and set LOCAL_RANK=0")                                              \
    X(SHARE_GPU, "share_gpu", 0, SWITCH, share_gpu, NULL, NULL, true, OURS, PROGRAM,                            \
      "allow several workers on one GPU, also with NCCL: worker N uses GPU N modulo the number of GPUs "     \
      "(slow; only for tests)")                                                                              \
    X(NUMA_BINDING, "numa_binding", 0, WORD, numa_binding, "WHERE", NULL, true, THEIRS, PROGRAM,         \
      "bind each worker to CPUs near its GPU. WHERE is node (the NUMA node), socket, exclusive (a share of "  \
      "the NUMA node) or core-complex (CPUs with a common cache) (default: no binding)")            \
    X(ENV, "env", 0, ENV, env, "NAME[=VALUE]", NULL, false, OURS, PROGRAM,                                         \
      "set a variable for the workers. Without VALUE, the workers on all hosts get the value that the "      \
      "variable has on this host. May be given several times")                                               \
    X(CONTAIN, "contain", 0, WORD, contain, "LAYER", "auto", true, OURS, PROGRAM,                               \
      "how ddprun finds and kills all processes of the job at its end: 'plain' (ddprun becomes the "         \
      "parent of processes whose parent ends), 'cgroup' (also a control group; needs a writable cgroup "     \
      "v2), 'pidns' (also a PID namespace; the workers see other process ids) or 'auto' (cgroup if "         \
      "possible, else plain)")                                                                               \
    X(STDIN, "stdin", 0, INPUT, input, "RANKS", "0", true, OURS, PROGRAM,                                          \
      "workers that read ddprun's stdin: 'all' (each worker reads everything), 'none', or ranks such as "       \
      "0,2-5; the stdin of the other workers is empty")                                                                                 \
    X(DRY_RUN, "dry_run", 0, SWITCH, dry_run, NULL, NULL, true, OURS, PROGRAM,                                       \
      "print the plan (with --hosts: the remote commands) and start nothing; --json prints JSON")             \
    X(LOG_DIR, "log_dir", 0, TEXT, log_dir, "DIR", NULL, true, FIRST, OUTPUT,                                       \
      "write each worker's stdout and stderr, and the report, to files below DIR")                       \
    X(COLLECT_LOGS, "collect_logs", 0, SWITCH, collect_logs, NULL, NULL, true, OURS, OUTPUT,                        \
      "with --hosts: at the end of the job, copy the log files of all hosts to --log_dir on this host, "        \
      "in a folder for each node")                                                                                       \
    X(FLIGHT_RECORDER, "flight_recorder", 0, SWITCH, flight_recorder, NULL, NULL, true, OURS, OUTPUT,                \
      "let PyTorch record the collectives of each rank; at a timeout or a hang, PyTorch writes the "          \
      "records below --log_dir, for 'ddpctl flight'")                                                         \
    X(REDIRECTS, "redirects", 'r', STD_MAP, redirects, "MAP", NULL, true, FIRST, OUTPUT,                            \
      "streams that are written to files and not to the console: 0 none, 1 stdout, 2 stderr, 3 both; or " \
      "LOCAL_RANK:STREAMS pairs, such as 0:3,1:1") \
    X(TEE, "tee", 't', STD_MAP, tee, "MAP", NULL, true, FIRST, OUTPUT,                                              \
      "streams that are written to files and to the console; same values as for --redirects")                                            \
    X(LOG_FILE, "log_file", 0, PATTERN, log_file, "PATTERN", NULL, true, OURS, OUTPUT,                             \
      "name of each log file, instead of the layout of --log_dir: %h host, %r rank, %l local rank, %n node " \
      "rank, %t start time (UTC), %j job, %a attempt, %s stdout or stderr, %% a percent sign")                       \
    X(LOG_MERGE, "log_merge", 0, SWITCH, log_merge, NULL, NULL, true, OURS, OUTPUT,                                  \
      "let workers share a log file if the pattern of --log_file gives their files the same name; lines stay "  \
      "whole")                                                                                                  \
    X(LOG_ROTATE, "log_rotate", 0, ROTATE, log_rotate, "SIZE[,KEEP]", NULL, true, OURS, OUTPUT,                    \
      "start a new log file at this size (500K, 64M, 2G). ddprun renames full files to .1, .2 ..., and "       \
      "keeps the newest KEEP files (default: all files)")                                                    \
    X(LOG_POLICY, "log_policy", 0, WORD, log_policy, "POLICY", "block", true, OURS, OUTPUT,                      \
      "action if a disk is full, or if output arrives faster than ddprun can write: 'block' makes the "         \
      "workers wait; 'drop' discards output and counts the lost bytes")                                         \
    X(PREFIX, "prefix", 0, PREFIX, prefix, NULL, NULL, true, OURS, OUTPUT,                                           \
      "print '[rank] ' before each line, even with one worker")                                           \
    X(NO_PREFIX, "no_prefix", 0, NO_PREFIX, prefix, NULL, NULL, true, OURS, OUTPUT,                                  \
      "print no prefix (default: a prefix if several workers write)")                                   \
    X(PREFIX_TEMPLATE, "log_line_prefix_template", 0, TEXT, prefix_template, "TEMPLATE", NULL, true, THEIRS, OUTPUT, \
      "prefix of each line (default: '[${rank}] '); ddprun(1) lists the fields. With this option "  \
      "a single worker has a prefix, too")                                                                     \
    X(TIMESTAMPS, "timestamps", 0, SWITCH, timestamps, NULL, NULL, true, OURS, OUTPUT,                               \
      "print before each line the time of its arrival (UTC, microseconds)")                               \
    X(LOCAL_RANKS_FILTER, "local_ranks_filter", 0, RANKS, console_ranks, "RANKS", NULL, true, THEIRS, OUTPUT,        \
      "show only lines of these local ranks, as in 0,2-5 (default: all); files and the report contain all lines")     \
    X(STDOUT_FILTERS, "duplicate_stdout_filters", 0, FILTERS, filters[0], "WORDS", NULL, true, THEIRS, OUTPUT, \
      "copy stdout lines that contain one of these words (separated by commas) to "                             \
      "attempt_N/filtered_stdout.log in --log_dir; needs --tee")                                                             \
    X(STDERR_FILTERS, "duplicate_stderr_filters", 0, FILTERS, filters[1], "WORDS", NULL, true, THEIRS, OUTPUT, \
      "copy stderr lines that contain one of these words (separated by commas) to "                             \
      "attempt_N/filtered_stderr.log in --log_dir; needs --tee")                                                           \
    X(FOLD, "fold", 0, SWITCH, fold, NULL, NULL, true, OURS, OUTPUT,                                                 \
      "if several workers print the same line, show the line once, with the ranks of these workers as "         \
      "prefix; with --hosts, also for workers on different hosts")                         \
    X(JSON, "json", 0, SWITCH, json, NULL, NULL, true, OURS, OUTPUT,                                                 \
      "print events, including the workers' output, as JSON lines on stdout")                                \
    X(EVENTS, "events", 0, PATTERN, events, "FILE", NULL, true, OURS, OUTPUT,                                       \
      "append events of this node and the job to FILE as JSON lines, for 'ddpctl timeline'; the name may " \
      "contain %h host, %n node rank, %j job, %t start time (UTC); a new file has mode 0600")                   \
    X(EVENT_LOG_HANDLER, "event_log_handler", 0, NAME, event_log_handler, "NAME", "null", true, THEIRS, OUTPUT, \
      "'null' or 'console'; has no effect, because --events and --json write events")                        \
    X(LOGS_SPECS, "logs_specs", 0, NAME, logs_specs, "NAME", NULL, false, THEIRS, OUTPUT,              \
      "must be 'default', the layout of --log_dir; ddprun cannot load Python plug-ins")                                  \
    X(QUIET, "quiet", 'q', SWITCH, quiet, NULL, NULL, true, OURS, OUTPUT,                                            \
      "print only errors")                                                                              \
    X(VERBOSE, "verbose", 'v', SWITCH, verbose, NULL, NULL, true, OURS, OUTPUT,                                      \
      "also print starts and ends of workers, other details, and the report after a success")                                    \
    X(SIGNALS, "signals_to_handle", 0, SIGNALS, stop_signals, "LIST", "SIGTERM,SIGINT,SIGHUP", true, THEIRS, TIME,   \
      "signals that stop the job: SIGTERM, SIGINT and SIGHUP, even if LIST omits them; LIST may add "        \
      "SIGQUIT, SIGUSR1 and SIGUSR2. The manual page lists the effect of each signal")                                \
    X(GRACE, "grace", 0, DURATION, grace_ms, "TIME", "30s", true, OURS, TIME,                                      \
      "time between SIGTERM and SIGKILL, such as 30 (seconds), 1500ms or 2m")                                       \
    X(SHUTDOWN_TIMEOUT, "shutdown_timeout", 0, SECONDS, grace_ms, "SECONDS", NULL, true, THEIRS, TIME,       \
      "torchrun's name for --grace; the variable TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets the default")                          \
    X(MONITOR_INTERVAL, "monitor_interval", 0, INTERVAL, monitor_interval, "SECONDS", NULL, true, FIRST, TIME, \
      "has no effect, because ddprun detects the exit of a worker at once")                                  \
    X(TIMEOUT, "timeout", 0, TIMEOUT, timeout_ms, "TIME", NULL, true, OURS, TIME,                                  \
      "limit for each of two steps of the start: all nodes join (default: 15m, in an elastic job 10m), and all " \
      "workers connect to each other (default: 60s)")                                                           \
    X(MAX_RESTARTS, "max_restarts", 0, COUNT, max_restarts, "N", "0", true, FIRST, FAILURE,                          \
      "start all workers again after a failure, at most N times; each attempt has an empty store")      \
    X(RESTART_BACKOFF, "restart_backoff", 0, DURATION, backoff_ms, "TIME", "1s", true, OURS, FAILURE,              \
      "time before the first restart; doubled after each attempt without progress")                    \
    X(RESTART_BACKOFF_MAX, "restart_backoff_max", 0, DURATION, backoff_cap_ms, "TIME", "1m", true, OURS, FAILURE,  \
      "longest wait before a restart")                                                                               \
    X(MAX_NO_PROGRESS, "max_no_progress", 0, COUNT, max_no_progress, "N", "3", true, OURS, FAILURE,                \
      "stop restarting after N consecutive attempts without progress; 0 = no limit. Only for workers "          \
      "that report their progress with ddp_progress")                                            \
    X(EXIT_CODE, "exit_code", 0, WORD, exit_policy, "WHOSE", "first", true, OURS, FAILURE,                  \
      "exit code of ddprun if workers fail: 'first': the code of the worker that failed first; 'max': the "  \
      "highest code; 'rank0': the code of rank 0; 'workers': like 'first', but 0 if a signal stopped the "   \
      "job and every worker of this node exited with 0")                                                     \
    X(HANG_TIMEOUT, "hang_timeout", 0, HANG_TIMEOUT, hang_timeout_ms, "TIME", NULL, true, OURS, FAILURE,              \
      "compare the stacks of all ranks if the job shows no sign of progress for TIME; ddprun reports a "     \
      "hang 12 s later at the earliest. 'off' disables this check (default: 30s, or 5 times the longest "    \
      "pause so far, whichever is longer)")                                                                  \
    X(ON_HANG, "on_hang", 0, WORD, on_hang, "ACTION", "report", true, OURS, FAILURE,                         \
      "action after ddprun has reported a hang: 'report' (no further action), 'stop' (stop the job) or "     \
      "'restart' (restart the job as after a failure, see --max_restarts). For Python workers, 'stop' "      \
      "and 'restart' usually need py-spy")                                                                   \
    X(PROGRESS, "progress", 0, REGEX, progress, "REGEX", NULL, true, OURS, FAILURE,                          \
      "extended regular expression for output lines that are signs of progress (default: lines that "           \
      "differ from earlier lines only in numbers, such as 'step 7 loss 0.3')")                                  \
    X(PROFILE_RANKS, "profile_ranks", 0, SWITCH, profile_ranks, NULL, NULL, true, OURS, FAILURE,             \
      "sample the stacks of all ranks twice a second with py-spy, and report a rank that delays every "         \
      "step; 'ddpctl top' shows the rank. Costs about 3 % of a core for each worker")                           \
    X(HELP, "help", 'h', HELP_PAGE, help, "[=all]", NULL, false, FIRST, INFO,                                 \
      "print the most important options; --help=all prints all options")                                     \
    X(VERSION, "version", 'V', SWITCH, version, NULL, NULL, false, OURS, INFO,                                          \
      "print the version and the build: commit, architecture, C library; --json prints JSON")               \
    X(PRINT_PREFIX, "print_prefix", 0, SWITCH, print_prefix, NULL, NULL, false, OURS, INFO,                  \
      "print ddprun's installation directory, which contains lib/pkgconfig and include")             \
    X(MAKE_SECRET, "make_secret", 0, TEXT, make_secret, "FILE", NULL, false, OURS, INFO,                     \
      "write a new random secret for a job of several nodes to FILE, with mode 0600, and exit")              \
    X(PRINT_COMPLETION, "print_completion", 0, WORD, completion, "SHELL", NULL, false, THEIRS, INFO,        \
      "print shell completion of these options for 'bash', 'zsh', 'fish' or 'tcsh'")                           \
    X(PRINT_MAN, "print_man", 0, SWITCH, print_man, NULL, NULL, false, OURS, INFO,                                   \
      "print the manual page; 'ddprun --print_man | man -l -' shows it")
/* clang-format on */

/* --- schedulers ------------------------------------------------------------------------------------------- */

/* The schedulers that may have started ddprun. --scheduler, the manual page and the readers in plan/ use these rows.
 *
 * Columns: id, name for --scheduler, title, rule (which variables identify the scheduler), values that the scheduler
 * provides. With --scheduler=auto, ddprun uses the first row whose rule applies. One scheduler may run inside the job
 * of another scheduler, for example mpirun inside a Slurm job. In such a pair, the row of the inner scheduler (mpirun)
 * precedes the row of the outer scheduler (Slurm). */
/* clang-format off */
#define SCHEDULERS(X)                                                                                        \
    X(OPEN_MPI, "openmpi", "Open MPI",                                                                       \
      "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are set",                                               \
      "nodes, node rank; inside Slurm, PBS or LSF also the address")                                   \
    X(HYDRA, "hydra", "MPICH's Hydra",                                                                       \
      "PMI_RANK, PMI_SIZE and MPI_LOCALRANKID are set",                                                      \
      "the same as Open MPI")                                                                                         \
    X(SLURM, "slurm", "Slurm",                                                                               \
      "SLURM_JOB_ID is set",                                                                                 \
      "nodes, node rank, address (first host of the step), port, GPUs (SLURM_GPUS_ON_NODE), job id")         \
    X(PYTORCHJOB, "pytorchjob", "Kubernetes (PyTorchJob)",                                                   \
      "KUBERNETES_SERVICE_HOST, MASTER_ADDR, WORLD_SIZE and RANK are set",                                   \
      "nodes (pods), node rank, address, port, job id; reads the operator's PET_* variables")        \
    X(KUBERNETES, "kubernetes", "Kubernetes (indexed Job)",                                                  \
      "KUBERNETES_SERVICE_HOST and JOB_COMPLETION_INDEX are set",                                            \
      "node rank, job id, address of pod 0 if the Job has a headless service; pass --nnodes")                         \
    X(PBS, "pbs", "PBS",                                                                                     \
      "PBS_JOBID and PBS_NODEFILE are set",                                                                  \
      "nodes, node rank, address (first host of the file), port, job id")                                    \
    X(LSF, "lsf", "LSF",                                                                                     \
      "LSB_JOBID, and LSB_MCPU_HOSTS or LSB_HOSTS, are set",                                                 \
      "nodes, node rank, address (first host of the list), port, job id")
/* clang-format on */

#endif

/* cli_words.c -- see cli_table.h: the words that options of some kinds accept as values. Parsers and shell completions read
 * the same lists, so a new word is completed as soon as it is parsed. The index of a word is the value of its enum. */
#include "cli/cli_table.h"

#include "tables/schedulers.h"
#include "tables/signals.h"

#include <string.h>

#define SCHEDULER_NAME(id, name, ...)             name,
#define STOPPING_SIGNAL(name, act, may_stop, ...) may_stop ? "SIG" #name : NULL,

#define WORD_KINDS(X)                                                                                       \
    X(NPROC, [NPROC_GPU] = "gpu", [NPROC_CPU] = "cpu", [NPROC_AUTO] = "auto")                               \
    X(CONTAIN, [CONTAIN_AUTO] = "auto", [CONTAIN_PLAIN] = "plain", [CONTAIN_CGROUP] = "cgroup",             \
      [CONTAIN_PIDNS] = "pidns")                                                                            \
    X(INPUT, "all", "none")                                                                                 \
    X(EXIT_POLICY, [EXIT_POLICY_FIRST] = "first", [EXIT_POLICY_MAX] = "max", [EXIT_POLICY_RANK0] = "rank0", \
      [EXIT_POLICY_WORKERS] = "workers")                                                                    \
    X(SIGNALS, SIGNAL_LIST(STOPPING_SIGNAL))                                                                \
    X(POLICY, [LOG_BLOCK] = "block", [LOG_DROP] = "drop")                                                   \
    X(SHELL, [SHELL_BASH] = "bash", [SHELL_ZSH] = "zsh", [SHELL_FISH] = "fish", [SHELL_TCSH] = "tcsh")      \
    X(BACKEND, [BACKEND_STATIC] = "static", [BACKEND_C10D] = "c10d")                                        \
    X(HOST_STORE, [HOST_STORE_AUTO] = "auto", [HOST_STORE_YES] = "yes", [HOST_STORE_NO] = "no")             \
    X(TORCH_STORE, [TORCH_STORE_AUTO] = "auto", [TORCH_STORE_LAUNCHER] = "launcher",                        \
      [TORCH_STORE_RANK0] = "rank0")                                                                        \
    X(GROW, [GROW_AGREED] = "agreed", [GROW_NOW] = "now", [GROW_NEVER] = "never")                           \
    X(NODE_TIMEOUT, "fast")                                                                                 \
    X(SCHEDULER, "auto", "none", SCHEDULERS(SCHEDULER_NAME))                                                \
    X(START_METHOD, "spawn", "fork", "forkserver")                                                          \
    X(RANK_ARGUMENT, "local-rank", "local_rank")                                                            \
    X(BINDING, [NUMA_NODE] = "node", [NUMA_SOCKET] = "socket", [NUMA_EXCLUSIVE] = "exclusive",              \
      [NUMA_CORE_COMPLEX] = "core-complex")                                                                 \
    X(EVENT_HANDLER, "null", "console")                                                                     \
    X(LOGS_SPECS, "default")                                                                                \
    X(HELP_PAGE, [HELP_ALL] = "all")

#define X(kind, ...) static const char *const words_##kind[] = { __VA_ARGS__ };
WORD_KINDS(X)
#undef X

static const struct {
    const char *const *words;
    size_t n;
} lists[KINDS] = {
#define X(kind, ...) [KIND_##kind] = { words_##kind, sizeof(words_##kind) / sizeof(words_##kind[0]) },
    WORD_KINDS(X)
#undef X
};

int cli_word_in(const char *text, const char *const words[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (words[i] != NULL && strcmp(text, words[i]) == 0)
            return (int)i;
    return -1;
}

int cli_word_of(enum cli_kind kind, const char *text)
{
    return cli_word_in(text, lists[kind].words, lists[kind].n);
}

const char *const *cli_words(enum cli_kind kind, size_t *n)
{
    *n = lists[kind].n;
    return lists[kind].words;
}

/* stack_dump.c -- see node.h: reads the stacks of this node's processes. For each process, ddprun starts one py-spy (a
 * helper), which reads the memory of the process from outside within a time limit. A helper writes to a memory file,
 * because a helper could block on a pipe, and the loop never waits for a helper. */
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/contain.h"
#include "contain/descendants.h"
#include "contain/job_record.h"
#include "contain/procfs.h"
#include "contain/threads.h"
#include "node/guardian.h"
#include "node/node.h"
#include "plan/plan.h"
#include "plan/worker.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HELPERS_MAX = 8,         /* helpers of one dump that run at the same time */
    TARGETS_MAX = 512,       /* processes of a node in one dump */
    CHILDREN_MAX = 64,       /* descendants of a worker in one dump */
    DUMPS_MAX = 4,           /* dumps at the same time; further dumps are rejected */
    SLICE_MS = 2,            /* time for reading /proc in one turn of the loop */
    ERRORS_MAX = 64 << 10,   /* bytes of the stderr of a helper */
    READ_BYTES = 64 << 10,   /* bytes per read of a helper's output */
    CALLS_BYTES = 256 << 10, /* the dump uses at most this many bytes of flight_helper_run's output */
};

#define PTRACE_SCOPE "/proc/sys/kernel/yama/ptrace_scope"
/* Notes for the user, in place of the Python frames. */
#define NO_PY_SPY "no Python stacks: py-spy is not installed; pip install py-spy"
#define UNSAFE_PY_SPY                                                                                 \
    "no Python stacks: another user can change the py-spy in Python's directory, so ddprun does not " \
    "run it; add a safe py-spy to PATH"
#define NOT_STARTED \
    "no Python stacks: py-spy is installed but cannot be started; try 'py-spy --version' on this node"

/* A process whose threads are dumped: the program of a worker, or a descendant of this program. */
struct target {
    pid_t pid;
    int local_rank;  /* local rank of the worker */
    bool is_child;   /* a descendant of the worker's program */
    bool is_parent;  /* the program of a worker that has descendants */
    bool is_unasked; /* the agent did not start this process, so the process has not permitted tracing */
};

/* A running py-spy, or the helper that reads flight records. */
struct helper {
    pid_t pid; /* pid of the helper; 0 if this struct is not in use */
    /* the helper reads flight records, so it has no target process; `about` then only names the worker whose
     * environment the helper gets */
    bool reads_records;
    struct target about;     /* the process that py-spy reads */
    int out, err;            /* memory files for stdout and stderr of the helper; -1 if not open */
    struct buf threads;      /* array of struct stack_thread, read before py-spy started */
    struct proc_stat before; /* state of the target before py-spy started; see wake_target() */
    bool killed;             /* the helper was killed, because of its time limit or the end of the dump */
    uint64_t until_ms;       /* when to kill the helper */
};

/* A dump in progress. It is freed when `done` was called and waitpid has returned all helpers. */
struct stack_dump {
    struct list in_node; /* link in node_run.dumps */
    struct node *node;
    struct stack_request request; /* a copy; `ranks` is NULL after node_dump_stacks() */
    struct stacks stacks;         /* the rows that were collected so far */
    struct buf targets;           /* array of struct target */
    size_t next;                  /* index of the next target */
    struct helper helpers[HELPERS_MAX];
    int running;       /* helpers that waitpid has not returned yet */
    bool is_over;      /* `done` was called */
    uint64_t until_ms; /* deadline of the dump, which then ends even if rows are missing */
    uv_timer_t timer;
};

static void dump_advance(struct stack_dump *d);

/* --- py-spy --------------------------------------------------------------------------------------------- */

/* A virtual environment may be on a file server that does not answer. So the event loop only builds the paths where a
 * py-spy may be. A thread or the helper then checks whether a py-spy exists at these paths. */

/* Write "/venv/bin/py-spy" for "/venv/bin/python". Write "" if `program` contains no directory. */
static void name_beside(const char *program, char path[PATH_MAX])
{
    const char *slash = strrchr(program, '/');
    if (slash == NULL || snprintf(path, PATH_MAX, "%.*s/py-spy", (int)(slash - program), program) >= PATH_MAX)
        path[0] = '\0';
}

/* Write the path of the py-spy that is in the same directory as the target of `link`, such as /proc/PID/exe. If the
 * target was removed, as after --ship, write "", because another user may control its directory. */
static void name_beside_link(const char *link, char path[PATH_MAX])
{
    static const char removed[] = " (deleted)";
    const size_t len = sizeof(removed) - 1;
    char program[PATH_MAX];
    const ssize_t n = readlink(link, program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    const bool is_removed = n >= (ssize_t)len && strcmp(program + n - len, removed) == 0;
    name_beside(is_removed ? "" : program, path);
}

/* Write the path of a file "py-spy" in the directory of the workers' program. This file may not exist. */
static void name_beside_workers(const struct node *n, char path[PATH_MAX])
{
    const char *found = n->run.spawner.path;
    name_beside(found[0] != '\0' ? found : n->plan->workers[0].argv[0], path);
}

/* Return true if a process has only the uids of this user. The paths of the process can decide which py-spy ddprun
 * starts. If ddprun runs as root, a process of another user must not make this choice. */
static bool is_own(pid_t pid)
{
    struct buf text = { 0 };
    char path[64];
    unsigned real, effective, saved;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    const char *uids = procfs_read(path, &text) ? strstr((const char *)text.data, "\nUid:") : NULL;
    const bool own = uids != NULL && sscanf(uids, "\nUid: %u %u %u", &real, &effective, &saved) == 3 &&
                     real == geteuid() && effective == real && saved == real;
    buf_free(&text);
    return own;
}

/* Put the working directory of process `pid` before `command`, if `command` is a relative path with a slash. Write ""
 * if the working directory cannot be read. */
static void make_absolute(pid_t pid, char command[PATH_MAX])
{
    char link[64], program[PATH_MAX], folder[PATH_MAX];
    if (command[0] == '/' || strchr(command, '/') == NULL)
        return;
    snprintf(link, sizeof(link), "/proc/%d/cwd", (int)pid);
    const ssize_t n = readlink(link, folder, sizeof(folder) - 1);
    folder[n > 0 ? n : 0] = '\0';
    snprintf(program, sizeof(program), "%s", command);
    if (n <= 0 || snprintf(command, PATH_MAX, "%s/%s", folder, program) >= PATH_MAX)
        command[0] = '\0';
}

/* Paths where the py-spy for a process may be. ddprun tries `of_exe` last, after the directories of PATH. ddprun tries
 * all other places before PATH. */
struct places {
    /* py-spy beside the interpreter that the process's command line names, because each environment may have its own
     * py-spy */
    char of_process[PATH_MAX];
    char of_workers[PATH_MAX], of_ddprun[PATH_MAX];
    char of_exe[PATH_MAX]; /* py-spy beside the file that the process executes; tried after PATH */
};

/* Write to *p the paths at which py-spy may be installed for the process `pid`. If reading the command line of this
 * process could block, do not read the command line. Check the owner of the process after reading the paths, because
 * the process may change its program and its owner meanwhile. */
static void find_places(const struct node *n, pid_t pid, struct places *p)
{
    char command[PATH_MAX] = "", link[64];
    if (!threads_lock_memory(pid))
        procfs_line(pid, "cmdline", command, sizeof(command)); /* `command` is argv[0], which a NUL ends */
    make_absolute(pid, command);
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    name_beside(command, p->of_process);
    name_beside_link(link, p->of_exe);
    if (!is_own(pid))
        p->of_process[0] = p->of_exe[0] = '\0';
    name_beside_workers(n, p->of_workers);
    name_beside_link("/proc/self/exe", p->of_ddprun);
}

/* --- the helper ------------------------------------------------------------------------------------------- */

/* Exit codes of the helper: no py-spy was found; another user can change the only py-spy. */
enum { NO_PY_SPY_CODE = 97, UNSAFE_PY_SPY_CODE = 98 };

static bool is_program(const char *path)
{
    struct stat st;
    return path[0] != '\0' && stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Return true if `place` is a program and no other user can change it. In this case, write its real path to `path`. If
 * another user can change the program, set *is_unsafe. */
static bool find_safe(const char *place, char path[PATH_MAX], bool *is_unsafe)
{
    char why[SAFE_DIR_WHY_MAX];
    if (!is_program(place))
        return false;
    const bool is_safe = safe_program(place, path, why);
    *is_unsafe = *is_unsafe || !is_safe;
    return is_safe;
}

/* Find py-spy. Accept a py-spy beside ddprun or in PATH even if another user can change the file, because the user runs
 * programs from these directories anyway. */
static bool find_py_spy(const struct places *at, const struct env_sources *env, char path[PATH_MAX],
                        bool *is_unsafe)
{
    if (find_safe(at->of_process, path, is_unsafe) || find_safe(at->of_workers, path, is_unsafe))
        return true;
    snprintf(path, PATH_MAX, "%s", at->of_ddprun);
    return is_program(path) || env_find_program("py-spy", env, path) ||
           find_safe(at->of_exe, path, is_unsafe);
}

int py_spy_helper_run(char **argv)
{
    static char dump[] = "dump", json[] = "--json", of[] = "--pid";
    struct places at;
    char path[PATH_MAX], *const *place = argv + 4;
    const struct env_sources env = { NULL, 0, environ };
    bool is_unsafe = false;
    snprintf(at.of_process, PATH_MAX, "%s", place[0]);
    snprintf(at.of_workers, PATH_MAX, "%s", place[1]);
    snprintf(at.of_ddprun, PATH_MAX, "%s", place[2]);
    snprintf(at.of_exe, PATH_MAX, "%s", place[3]);
    if (!find_py_spy(&at, &env, path, &is_unsafe))
        return is_unsafe ? UNSAFE_PY_SPY_CODE : NO_PY_SPY_CODE;
    char *const command[] = { path, dump, json, of, argv[2], argv[3], NULL };
    sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    execv(path, command);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return EXIT_CODE_CANNOT_RUN;
}

/* --- whether there is a py-spy ---------------------------------------------------------------------------- */

/* A search for py-spy. Its thread owns the struct until the thread returns. */
struct py_spy_search {
    struct places at;         /* where to search; without a Python process, of_process and of_exe are "" */
    char *list;               /* "PATH=..."; owned */
    bool is_found, is_unsafe; /* a usable py-spy was found; an unsafe py-spy was found */
};

static void py_spy_search_free(void *user)
{
    struct py_spy_search *q = user;
    if (q != NULL)
        free(q->list);
    free(q);
}

static void py_spy_search_run(void *user)
{
    struct py_spy_search *q = user;
    char path[PATH_MAX];
    const char *const items[] = { q->list };
    char *none = NULL;
    const struct env_sources env = { items, 1, &none };
    q->is_found = find_py_spy(&q->at, &env, path, &q->is_unsafe);
}

/* Start a search for py-spy if no earlier search still runs. `python` is the pid of a Python process of the job, or 0
 * if no such process is known. The search includes the directory of this Python process's interpreter. */
static void py_spy_search_begin(struct node *n, pid_t python)
{
    struct node_sample *s = &n->run.sample;
    const struct cli *cli = n->plan->cli;
    const struct env_sources env = { cli->env.items, cli->env.n, n->plan->facts->environ_block };
    const char *list = env_sources_find(&env, "PATH");
    struct py_spy_search *q = s->search == NULL ? calloc(1, sizeof(*q)) : NULL;
    if (q == NULL)
        return;
    find_places(n, python, &q->at);
    if (asprintf(&q->list, "PATH=%s", list != NULL ? list : "") < 0)
        q->list = NULL;
    s->search = q->list != NULL ? timed_call_begin(py_spy_search_run, py_spy_search_free, q) : NULL;
    s->question = s->search != NULL ? q : NULL;
    if (s->search == NULL)
        py_spy_search_free(q);
}

/* Read the result of the search, if its thread has finished. */
static void py_spy_search_read(struct node *n)
{
    struct node_sample *s = &n->run.sample;
    if (s->search == NULL || !timed_call_has_returned(s->search))
        return;
    s->has_py_spy = s->question->is_found;
    s->no_py_spy = s->has_py_spy ? NULL : s->question->is_unsafe ? UNSAFE_PY_SPY : NO_PY_SPY;
    timed_call_end(s->search);
    py_spy_search_free(s->question);
    s->search = NULL;
    s->question = NULL;
}

/* Forget a search. A thread that still waits for a file server frees the struct py_spy_search later. */
static void py_spy_search_end(struct node *n)
{
    py_spy_search_read(n);
    if (n->run.sample.search != NULL && timed_call_end(n->run.sample.search))
        py_spy_search_free(n->run.sample.question);
    n->run.sample.search = NULL;
    n->run.sample.question = NULL;
}

/* --- the survivors of a failure --------------------------------------------------------------------------- */

/* After a failure, a dump delays the stop of the other workers. So the agent searches for py-spy at heartbeats, before
 * any failure. Without py-spy, the dump reads only /proc (a few ms for eight workers). */

/* Search a worker and its first CHILDREN_MAX descendants for a Python interpreter. Return its pid, or 0. */
static pid_t find_python(const struct node *n, int local_rank)
{
    struct buf pids = { 0 };
    const pid_t worker = n->run.pids[local_rank];
    pid_t found = worker != 0 && threads_is_python(worker, false) ? worker : 0;
    const size_t count = worker != 0 && found == 0 ? descendants_below(worker, CHILDREN_MAX, &pids) : 0;
    for (size_t i = 0; i < count && found == 0; i++)
        found = threads_is_python(descendants_at(&pids, i), false) ? descendants_at(&pids, i) : 0;
    buf_free(&pids);
    return found;
}

/* Return true if the command line of ddprun names a Python script or module. */
static bool plan_is_python(const struct plan *plan)
{
    return program_python(plan->cli, plan->facts->python) != NULL;
}

/* Delete the sample of the previous attempt. If the command line names a Python program, search for py-spy now.
 * Otherwise node_find_python first examines the processes, to find out whether the job uses Python. */
void node_begin_samples(struct node *n)
{
    cJSON_Delete(n->run.sample.stacks);
    n->run.sample.stacks = NULL;
    n->run.sample.beats = 0;
    n->run.sample.is_python = plan_is_python(n->plan);
    if (n->run.sample.is_python)
        py_spy_search_begin(n, 0);
}

/* Search for Python and py-spy at heartbeats 1, 2, 4, 8 and so on. A script may start Python late, but each search
 * takes time. */
void node_find_python(struct node *n)
{
    struct node_sample *s = &n->run.sample;
    const unsigned beat = ++s->beats;
    py_spy_search_read(n);
    if ((beat & (beat - 1)) != 0 || (s->is_python && s->has_py_spy))
        return;
    pid_t python = 0;
    for (int i = 0; i < n->plan->nproc && python == 0; i++)
        python = find_python(n, i);
    s->is_python = s->is_python || python != 0;
    if (s->is_python && !s->has_py_spy)
        py_spy_search_begin(n, python);
}

/* Add the rows of other nodes: first the ranks below the ranks of this node, then the ranks above. Ignore rows for this
 * node's own ranks, because these rows already exist and are complete. */
void node_add_survivors(struct node *n, const cJSON *rows)
{
    const struct heard_round *round = n->meet.round;
    struct stacks stacks = { .rows = n->run.sample.stacks,
                             .room = STACKS_JOB_BYTES,
                             .rows_max = STACKS_ROWS_MAX };
    if (rows == NULL || round == NULL || (stacks.rows == NULL && !stacks_init(&stacks, STACKS_JOB_BYTES)))
        return;
    const uint32_t first = (uint32_t)round->first_rank, next = first + (uint32_t)n->plan->nproc;
    stacks_merge(&stacks, rows, 0, first);
    stacks_merge(&stacks, rows, next, (uint32_t)round->world_size - next);
    n->run.sample.stacks = stacks.rows;
}

/* --- memory files --------------------------------------------------------------------------------------- */

/* Create a memory file for the output of a helper. The size of the file is fixed, so that a write fails if a helper
 * writes without end. Return -1 if no descriptor is left. */
static int open_unlinked(size_t bytes)
{
    const int fd = sys_memfd_create("ddprun-stacks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Read the file up to the first NUL, which is the first byte that was not written. Replace bytes that are not
 * UTF-8. */
static bool read_file(int fd, struct buf *text)
{
    struct buf bytes = { 0 };
    char *at;
    ssize_t n = 0;
    off_t from = 0;
    bool more = true;
    while (more && (at = buf_reserve(&bytes, READ_BYTES)) != NULL &&
           (n = pread(fd, at, READ_BYTES, from)) > 0) {
        const size_t len = strnlen(at, (size_t)n);
        bytes.len += len;
        from += n;
        more = len == (size_t)n;
    }
    const bool ok = utf8_clean(text, buf_slice(&bytes));
    buf_free(&bytes);
    return ok;
}

/* --- rows ----------------------------------------------------------------------------------------------- */

/* Return the facts that all threads of a target share. */
static struct stack_thread like(const struct stack_dump *d, const struct target *t)
{
    return (struct stack_thread){ .rank = node_rank(d->node, t->local_rank),
                                  .pid = t->pid,
                                  .is_child = t->is_child,
                                  .host = d->node->plan->facts->host };
}

/* Remove invalid bytes from `object`, the name of a file or a peer, because JSON must be UTF-8. */
static void clean_object(struct stack_thread *t)
{
    struct buf text = { 0 };
    const bool ok = utf8_clean(&text, slice_str(t->object)) && buf_append(&text, "", 1);
    text_copy(t->object, sizeof(t->object), ok ? (const char *)text.data : "");
    buf_free(&text);
}

/* Read the threads of a process from /proc. If a worker has failed, read only the main thread. The dump must then be
 * short, because the agent stops the other workers only after the dump. */
static size_t read_threads(const struct stack_dump *d, const struct target *t, struct buf *threads)
{
    const struct stack_thread of = like(d, t);
    const size_t n = threads_read(&of, d->request.is_failure ? 1 : STACKS_PROCESS_MAX, threads);
    struct stack_thread *each = (struct stack_thread *)(void *)threads->data;
    for (size_t i = 0; i < n; i++) {
        each[i].pid = contain_shown_pid(d->node->run.contain, t->pid);
        if (each[i].waits_for > 0)
            snprintf(each[i].object, sizeof(each[i].object), STACKS_CHILD,
                     (int)contain_shown_pid(d->node->run.contain, each[i].waits_for));
        clean_object(&each[i]);
    }
    return n;
}

/* Add the threads of a process from /proc, which shows system calls but no Python frames. `note` is the reason why
 * py-spy has shown no frames, or NULL if the process is not Python. If `note` is NULL and ddprun has no permission to
 * read the system calls, add the reason for the missing permission. */
static void add_by_proc(struct stack_dump *d, const struct target *t, const char *note)
{
    char text[STACK_NOTE_MAX];
    struct buf threads = { 0 };
    const size_t n = read_threads(d, t, &threads);
    const struct stack_thread *each = (const struct stack_thread *)(const void *)threads.data;
    for (size_t i = 0; i < n; i++)
        stacks_add_thread(&d->stacks, &each[i]);
    if (n > 0 && note == NULL && each[0].is_denied) {
        threads_explain_ptrace(PTRACE_SCOPE, false, t->is_unasked, text);
        note = text;
    }
    if (n > 0 && note != NULL)
        stacks_add_note(&d->stacks, &each[0], note);
    buf_free(&threads);
}

/* Explain why py-spy failed. The first line of py-spy's stderr is the reason. */
static void explain_end(const struct helper *h, int status, const char *error, char note[STACK_NOTE_MAX])
{
    const bool denied = strcasestr(error, "permission denied") != NULL ||
                        strcasestr(error, "operation not permitted") != NULL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PY_SPY_CODE)
        snprintf(note, STACK_NOTE_MAX, NO_PY_SPY);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == UNSAFE_PY_SPY_CODE)
        snprintf(note, STACK_NOTE_MAX, UNSAFE_PY_SPY);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_CANNOT_RUN)
        snprintf(note, STACK_NOTE_MAX, NOT_STARTED); /* the helper could not execute py-spy */
    else if (denied)
        threads_explain_ptrace(PTRACE_SCOPE, true, h->about.is_unasked, note);
    else if (WIFSIGNALED(status))
        snprintf(note, STACK_NOTE_MAX, "no Python stacks: py-spy was killed by signal %d", WTERMSIG(status));
    else
        snprintf(note, STACK_NOTE_MAX, "no Python stacks: py-spy failed with exit code %d%s%.*s",
                 WEXITSTATUS(status), error[0] != '\0' ? ": " : "", (int)strcspn(error, "\n"), error);
}

/* Add a row about a connection of a worker. The peer of this connection does not acknowledge data, or the path to this
 * peer loses large packets. */
static void add_unanswered(struct stack_dump *d, const cJSON *row)
{
    const struct target *targets = (const struct target *)(const void *)d->targets.data;
    const cJSON *pid = cJSON_GetObjectItem(row, "pid");
    const char *peer = cJSON_GetStringValue(cJSON_GetObjectItem(row, "peer"));
    const cJSON *lost = cJSON_GetObjectItem(row, "lost_bytes");
    const int lost_bytes = lost != NULL ? lost->valueint : 0;
    for (size_t i = 0; peer != NULL && i < d->targets.len / sizeof(*targets); i++) {
        if (targets[i].is_child || targets[i].pid != (pid_t)cJSON_GetNumberValue(pid))
            continue;
        struct stack_thread t = like(d, &targets[i]);
        t.pid = contain_shown_pid(d->node->run.contain, t.pid);
        if (lost_bytes > 0)
            snprintf(t.does, sizeof(t.does), STACKS_LOSES_LARGE, lost_bytes);
        else
            snprintf(t.does, sizeof(t.does), STACKS_UNANSWERED);
        snprintf(t.object, sizeof(t.object), "%s", peer);
        stacks_add_thread(&d->stacks, &t);
    }
}

/* Read the output of the helper. Each line has either the calls of one rank, or one connection. Ignore an incomplete
 * last line: the helper was killed while writing it. */
static void add_records(struct stack_dump *d, const struct helper *h)
{
    struct buf text = { 0 };
    if (d->request.calls == NULL && read_file(h->out, &text) && buf_append(&text, "", 1))
        d->request.calls = cJSON_CreateArray();
    char *line = (char *)text.data, *end;
    for (; d->request.calls != NULL && (end = strchr(line, '\n')) != NULL &&
           end < (char *)text.data + CALLS_BYTES;
         line = end + 1) {
        cJSON *rows = cJSON_ParseWithLength(line, (size_t)(end - line));
        if (cJSON_IsObject(rows))
            add_unanswered(d, rows);
        while (cJSON_IsArray(rows) && cJSON_GetArraySize(rows) > 0)
            json_append(d->request.calls, cJSON_DetachItemFromArray(rows, 0));
        cJSON_Delete(rows);
    }
    buf_free(&text);
}

/* Return true if the output was too long: it fills the whole file, and the file has a fixed size. */
static bool is_full(int fd)
{
    char last = '\0';
    return pread(fd, &last, 1, STACKS_INPUT_MAX - 1) == 1 && last != '\0';
}

/* Add the Python frames in the output of a helper. If the helper failed, or if its output cannot be parsed, add
 * what /proc shows, and the reason. If the helper failed and its output fills the file, the reason is that the
 * output was too long. */
static void add_output(struct stack_dump *d, const struct helper *h, int status)
{
    struct buf text = { 0 }, error = { 0 };
    struct ddp_err err = { 0 };
    char note[STACK_NOTE_MAX] = "";
    const struct stack_thread *threads = (const struct stack_thread *)(const void *)h->threads.data;
    const bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended_well && read_file(h->out, &text) &&
        stacks_add_py_spy(&d->stacks, buf_slice(&text), threads, h->threads.len / sizeof(*threads), &err) !=
            DDP_OK)
        snprintf(note, sizeof(note), "no Python stacks: %.400s", err.msg);
    if (!ended_well && is_full(h->out))
        snprintf(note, sizeof(note), "no Python stacks: py-spy printed more than %d MiB",
                 STACKS_INPUT_MAX >> 20);
    else if (!ended_well && read_file(h->err, &error) && buf_append(&error, "", 1))
        explain_end(h, status, (const char *)error.data, note);
    if (note[0] != '\0')
        add_by_proc(d, &h->about, note);
    buf_free(&text);
    buf_free(&error);
}

/* --- helpers -------------------------------------------------------------------------------------------- */

/* Close the files of a helper, for its next use. */
static void helper_free(struct helper *h)
{
    if (h->out >= 0)
        close(h->out);
    if (h->err >= 0)
        close(h->err);
    buf_free(&h->threads);
    *h = (struct helper){ .out = -1, .err = -1 };
}

/* Start the program of a helper like a worker: with SIGKILL as parent-death signal, in the control group of the
 * attempt. So the helper cannot outlive the job. The helper gets the environment of a worker, which contains the job's
 * cookie. If all ddprun processes are killed, the next start of ddprun finds and kills the helper by this cookie. If
 * the program was not started, return -1, with the errno in *error. */
static pid_t start_program(const struct stack_dump *d, const struct helper *h, const char *path,
                           char *const *argv, int *error)
{
    const struct node *n = d->node;
    struct worker_env env;
    *error = ENOMEM;
    if (plan_env(n->plan, h->about.local_rank, &env, NULL) != DDP_OK)
        return -1;
    const struct proc_spec spec = { .path = path,
                                    .argv = argv,
                                    .envp = env.block,
                                    .fds = { n->run.spawner.slots.null, h->out, h->err },
                                    .nofile = &n->run.spawner.nofile,
                                    .cgroup_fd = contain_cgroup_fd(n->run.contain),
                                    .keeps_library = true };
    const pid_t started = proc_spawn(&n->run.spawner.slots, &spec, error);
    worker_env_free(&env);
    return started;
}

/* Start a helper that becomes py-spy. With --native, py-spy stops the target while reading. With --nonblocking, the
 * target continues: a frame may be wrong, but the job is not disturbed. */
static pid_t start_py_spy(const struct stack_dump *d, const struct helper *h, int *error)
{
    static char program[] = "ddprun", option[] = PY_SPY_HELPER_OPTION, native[] = "--native",
                nonblocking[] = "--nonblocking";
    char pid[16];
    struct places at;
    find_places(d->node, h->about.pid, &at);
    char *const argv[] = { program,       option,
                           pid,           d->request.is_native ? native : nonblocking,
                           at.of_process, at.of_workers,
                           at.of_ddprun,  at.of_exe,
                           NULL };
    snprintf(pid, sizeof(pid), "%d", (int)h->about.pid);
    return start_program(d, h, "/proc/self/exe", argv, error);
}

/* Return a helper that is not in use, or NULL if HELPERS_MAX helpers run. */
static struct helper *free_helper(struct stack_dump *d)
{
    for (int i = 0; i < HELPERS_MAX; i++)
        if (d->helpers[i].pid == 0)
            return &d->helpers[i];
    return NULL;
}

/* Open the memory files of a helper and set its deadline. */
static bool helper_open(const struct stack_dump *d, struct helper *h)
{
    const uint64_t until_ms = clock_ms() + STACKS_PROCESS_MS;
    h->until_ms = until_ms < d->until_ms ? until_ms : d->until_ms;
    h->out = open_unlinked(STACKS_INPUT_MAX);
    h->err = open_unlinked(ERRORS_MAX);
    return h->out >= 0 && h->err >= 0;
}

/* Count a helper that has started, or free a helper that has not started. Return true if the helper has started. */
static bool helper_count(struct stack_dump *d, struct helper *h)
{
    if (h->pid <= 0) {
        helper_free(h);
        return false;
    }
    d->node->run.alone = false;
    d->running++;
    return true;
}

/* Read the state of a process for a helper, and open the helper's files. Return 0 or an errno. The threads are read
 * before py-spy starts, because py-spy --native changes their states. */
static int helper_prepare(const struct stack_dump *d, struct helper *h)
{
    errno = 0;
    if (procfs_stat(h->about.pid, &h->before) && helper_open(d, h) &&
        read_threads(d, &h->about, &h->threads) > 0)
        return 0;
    return errno == 0 || errno == ENOENT ? ESRCH : errno; /* an ended process has no files in /proc */
}

/* Start a helper for a process. If the helper cannot start, return false and set `note` to the reason, as a text for
 * the user. */
static bool helper_start(struct stack_dump *d, const struct target *t, char note[STACK_NOTE_MAX])
{
    struct helper *h = free_helper(d); /* not NULL: dump_advance has checked this */
    h->about = *t;
    int error = helper_prepare(d, h);
    if (error == 0)
        h->pid = start_py_spy(d, h, &error);
    if (helper_count(d, h))
        return true;
    snprintf(note, STACK_NOTE_MAX, "no Python stacks: cannot start a process for py-spy: %s",
             strerror(error));
    return false;
}

/* Return true if a helper that reads flight records was killed but has not ended, because a file server does not
 * answer. */
static bool has_stuck_reader(const struct node *n)
{
    LIST_EACH(at, &n->run.dumps)
    {
        const struct stack_dump *d = LIST_ENTRY(at, struct stack_dump, in_node);
        for (int i = 0; i < HELPERS_MAX; i++)
            if (d->helpers[i].pid != 0 && d->helpers[i].reads_records && d->helpers[i].killed)
                return true;
    }
    return false;
}

/* List the pids of the workers' programs for the helper. */
static void list_workers(const struct stack_dump *d, char *out, size_t size)
{
    const struct target *targets = (const struct target *)(const void *)d->targets.data;
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < d->targets.len / sizeof(*targets) && used + 16 < size; i++)
        if (!targets[i].is_child)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%d", used > 0 ? "," : "", (int)targets[i].pid);
}

/* Start the helper that reads flight records and connections. If it cannot start, the sample contains neither records
 * nor connections. If an earlier helper hangs in the kernel, because a file server does not answer, the new helper gets
 * no directory and reports only connections. So at most one such helper can hang. */
static void start_reader(struct stack_dump *d)
{
    static char no_directory[] = "";
    struct flight_helper words;
    struct helper *h = &d->helpers[0];
    int ignored;
    if (!flight_helper_words(d->node, d->request.still_ms, &words))
        return;
    if (has_stuck_reader(d->node))
        words.argv[2] = no_directory;
    list_workers(d, words.pids, sizeof(words.pids));
    h->reads_records = true;
    if (helper_open(d, h))
        h->pid = start_program(d, h, "/proc/self/exe", words.argv, &ignored);
    (void)helper_count(d, h);
}

/* Kill a helper and all processes that the helper has started. If the helper reads flight records, keep the lines that
 * it has written. If the helper is py-spy, add the target's threads from /proc instead of py-spy's output. The pid of
 * the helper stays reserved until waitpid. */
static void helper_kill(struct stack_dump *d, struct helper *h)
{
    char note[STACK_NOTE_MAX];
    const uint64_t limit_ms = d->request.is_failure ? STACKS_FAILURE_MS : STACKS_PROCESS_MS;
    kill(-h->pid, SIGKILL);
    h->killed = true;
    if (h->reads_records) {
        add_records(d, h);
        return;
    }
    if (clock_ms() < h->until_ms)
        snprintf(note, sizeof(note), "no Python stacks: the job stopped before py-spy answered");
    else
        snprintf(note, sizeof(note), "no Python stacks: py-spy did not answer within %d s",
                 (int)(limit_ms / 1000));
    if (!d->is_over)
        add_by_proc(d, &h->about, note);
}

/* Continue the target after ddprun has killed py-spy, because py-spy --native stops the target while reading. Do
 * nothing if the target was stopped before py-spy started, or if the pid now belongs to another process. */
static void wake_target(const struct helper *h)
{
    struct proc_stat now;
    if (h->killed && h->before.state != 'T' && procfs_stat(h->about.pid, &now) &&
        now.start_ticks == h->before.start_ticks)
        kill(h->about.pid, SIGCONT);
}

/* --- a dump --------------------------------------------------------------------------------------------- */

/* A dump turns processes into rows in these steps:
 *
 *     worker, its children --/proc--> state, system call --py-spy dump--> Python frames --> rows of record/stacks.h */

static void on_closed(uv_handle_t *timer)
{
    free(timer->data);
}

/* Free a dump. Call this when waitpid has returned all helpers of the dump, or when the node ends. */
static void dump_free(struct stack_dump *d)
{
    for (int i = 0; i < HELPERS_MAX; i++)
        helper_free(&d->helpers[i]);
    list_remove(&d->in_node);
    stacks_free(&d->stacks);
    cJSON_Delete(d->request.calls);
    buf_free(&d->targets);
    uv_close((uv_handle_t *)&d->timer, on_closed);
}

/* Kill the remaining helpers, and call `done` with the rows that exist. Afterwards the dump only waits for the ends
 * of killed helpers. */
static void dump_finish(struct stack_dump *d)
{
    if (d->is_over)
        return;
    for (int i = 0; i < HELPERS_MAX; i++)
        if (d->helpers[i].pid != 0 && !d->helpers[i].killed)
            helper_kill(d, &d->helpers[i]);
    d->is_over = true;
    uv_timer_stop(&d->timer);
    d->request.done(d->node, &d->stacks, &d->request);
}

/* Kill helpers that are late, then continue the dump. Free the dump only after the last helper has ended, because
 * node_helper_ended() must find the helper. */
static void on_timer(uv_timer_t *timer)
{
    struct stack_dump *d = timer->data;
    const uint64_t now_ms = clock_ms();
    for (int i = 0; i < HELPERS_MAX; i++) {
        struct helper *h = &d->helpers[i];
        if (h->pid != 0 && !h->killed && h->until_ms <= now_ms)
            helper_kill(d, h);
    }
    dump_advance(d);
    if (d->is_over && d->running == 0)
        dump_free(d);
}

/* Return the number of running helpers that were not killed. A killed helper may hang in the kernel, and must not
 * delay the dump. */
static int count_busy(const struct stack_dump *d)
{
    int n = 0;
    for (int i = 0; i < HELPERS_MAX; i++)
        n += d->helpers[i].pid != 0 && !d->helpers[i].killed;
    return n;
}

/* Set the timer for the next deadline of a helper or of the dump. If `at_once` is true, continue in the next turn of
 * the loop. */
static void dump_set_timer(struct stack_dump *d, bool at_once)
{
    uint64_t at_ms = d->until_ms;
    const uint64_t now_ms = clock_ms();
    for (int i = 0; i < HELPERS_MAX; i++)
        if (d->helpers[i].pid != 0 && !d->helpers[i].killed && d->helpers[i].until_ms < at_ms)
            at_ms = d->helpers[i].until_ms;
    uv_timer_start(&d->timer, on_timer, at_once || at_ms < now_ms ? 0 : at_ms - now_ms, 0);
}

/* Add a row if the target is a zombie and a child of a worker. The worker may still wait for a result of the ended
 * child. Return false for any other target. */
static bool add_ended(struct stack_dump *d, const struct target *t)
{
    struct proc_stat stat;
    struct stack_thread ended = like(d, t);
    if (!t->is_child || !procfs_stat(t->pid, &stat) || stat.state != 'Z')
        return false;
    ended.pid = contain_shown_pid(d->node->run.contain, t->pid);
    ended.is_main = true;
    snprintf(ended.does, sizeof(ended.does), STACKS_ENDED);
    stacks_add_thread(&d->stacks, &ended);
    return true;
}

/* Handle one target process. A Python process gets a helper. The threads of other processes are read from /proc here.
 * After the failure of a worker, only the program's name decides whether a process is Python, because a search for
 * libpython would take too long. */
static void process_target(struct stack_dump *d, const struct target *t)
{
    if (add_ended(d, t))
        return;
    char text[STACK_NOTE_MAX];
    const bool is_python = threads_is_python(t->pid, !d->request.is_failure);
    const char *note = d->request.is_failure ? d->node->run.sample.no_py_spy : NULL;
    if (!is_python)
        note = NULL;
    else if (note == NULL && !helper_start(d, t, text))
        note = text;
    if (!is_python || note != NULL)
        add_by_proc(d, t, note);
}

/* Handle as many targets as possible within SLICE_MS, in one turn of the loop. End the dump if its deadline has passed,
 * or if all targets are handled and no helper runs. */
static void dump_advance(struct stack_dump *d)
{
    const size_t n = d->targets.len / sizeof(struct target);
    const uint64_t slice_ms = clock_ms() + SLICE_MS;
    while (!d->is_over && d->next < n && free_helper(d) != NULL && clock_ms() <= slice_ms)
        process_target(d, (const struct target *)(const void *)d->targets.data + d->next++);
    const bool is_late = clock_ms() >= d->until_ms;
    if (d->next < n && is_late)
        d->stacks.is_cut = true;
    if ((d->next == n && count_busy(d) == 0) || is_late)
        dump_finish(d);
    else if (!d->is_over)
        dump_set_timer(d, d->next < n && free_helper(d) != NULL);
}

static void add_target(struct stack_dump *d, struct target t)
{
    t.is_unasked = t.pid != d->node->run.pids[t.local_rank];
    if (d->targets.len >= TARGETS_MAX * sizeof(t) || !buf_append(&d->targets, &t, sizeof(t)))
        d->stacks.is_cut = true;
}

/* Add the program of a worker. A worker without descendants is its own program, so nothing else is read. After the
 * deadline, look for no descendants. */
static void add_worker(struct stack_dump *d, int local_rank)
{
    const pid_t worker = d->node->run.pids[local_rank];
    struct buf pids = { 0 };
    const bool is_parent = clock_ms() < d->until_ms && descendants_below(worker, 1, &pids) > 0;
    buf_free(&pids);
    add_target(d, (struct target){ .pid = is_parent ? descendants_program(worker) : worker,
                                   .local_rank = local_rank,
                                   .is_parent = is_parent });
}

/* Add the descendants of a worker's program, such as the processes of a data loader, to the targets. */
static void add_children(struct stack_dump *d, struct target program)
{
    struct buf pids = { 0 };
    const size_t n = descendants_below(program.pid, CHILDREN_MAX, &pids);
    for (size_t i = 0; i < n; i++)
        add_target(d, (struct target){ .pid = descendants_at(&pids, i),
                                       .local_rank = program.local_rank,
                                       .is_child = true });
    buf_free(&pids);
}

/* Collect the targets: the programs of the workers, then their descendants. Scripts that only wait for a program are
 * left out. Check the deadline after each worker: on a kernel without /proc/PID/task/TID/children, each search reads
 * all processes of the host. */
static void find_targets(struct stack_dump *d)
{
    const struct node *n = d->node;
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0 &&
            (d->request.ranks == NULL || rank_set_has(d->request.ranks, node_rank(n, i))))
            add_worker(d, i);
    const size_t workers = d->targets.len / sizeof(struct target);
    for (size_t i = 0; i < workers && clock_ms() < d->until_ms; i++) {
        const struct target t = ((const struct target *)(const void *)d->targets.data)[i];
        if (t.is_parent)
            add_children(d, t);
    }
}

static int count_dumps(const struct node *n)
{
    int count = 0;
    LIST_EACH(at, &n->run.dumps)
    {
        count++;
    }
    return count;
}

bool node_dump_stacks(struct node *n, const struct stack_request *request)
{
    struct stack_dump *d = n->ended || count_dumps(n) >= DUMPS_MAX ? NULL : calloc(1, sizeof(*d));
    if (d == NULL || !stacks_init(&d->stacks, STACKS_AGENT_BYTES)) {
        free(d);
        return false;
    }
    d->node = n;
    d->request = *request;
    d->request.calls = NULL;
    d->until_ms = clock_ms() + (request->is_failure ? STACKS_FAILURE_MS : STACKS_AGENT_MS);
    for (int i = 0; i < HELPERS_MAX; i++)
        d->helpers[i] = (struct helper){ .out = -1, .err = -1 };
    uv_timer_init(&n->loop, &d->timer);
    d->timer.data = d;
    list_insert(&n->run.dumps, &d->in_node);
    py_spy_search_read(n);
    find_targets(d);
    if (request->with_calls)
        start_reader(d);
    d->request.ranks = NULL; /* `ranks` is borrowed only for this call */
    dump_advance(d);
    if (d->is_over && d->running == 0)
        dump_free(d);
    return true;
}

/* Return the helper with this pid, and set *of to its dump. Return NULL if no helper has this pid. */
static struct helper *find_helper(const struct node *n, pid_t pid, struct stack_dump **of)
{
    LIST_EACH(at, &n->run.dumps)
    {
        struct stack_dump *d = LIST_ENTRY(at, struct stack_dump, in_node);
        for (int i = 0; i < HELPERS_MAX; i++)
            if (d->helpers[i].pid == pid) {
                *of = d;
                return &d->helpers[i];
            }
    }
    return NULL;
}

/* Add the output of a helper that ended by itself. The rows for a killed helper were added when the helper was
 * killed. */
void node_helper_ended(struct node *n, pid_t pid, int status)
{
    struct stack_dump *d;
    struct helper *h = find_helper(n, pid, &d);
    if (h == NULL)
        return;
    if (!d->is_over && !h->killed && h->reads_records)
        add_records(d, h);
    else if (!d->is_over && !h->killed)
        add_output(d, h, status);
    if (d->request.is_native && !h->reads_records)
        wake_target(h);
    helper_free(h);
    d->running--;
    dump_advance(d);
    if (d->is_over && d->running == 0)
        dump_free(d);
}

void node_end_dumps(struct node *n)
{
    for (struct list *at = n->run.dumps.next, *next; at != &n->run.dumps; at = next) {
        struct stack_dump *d = LIST_ENTRY(at, struct stack_dump, in_node);
        next = at->next;
        dump_finish(d);
        if (d->running == 0)
            dump_free(d);
    }
}

void node_close_dumps(struct node *n)
{
    node_end_dumps(n);
    if (n->ended)
        py_spy_search_end(n);
    while (!list_is_empty(&n->run.dumps))
        dump_free(LIST_ENTRY(n->run.dumps.next, struct stack_dump, in_node));
}

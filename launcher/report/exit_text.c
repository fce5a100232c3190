/* exit_text.c -- see exit_text.h. The first part has the parsers of the kernel's files (core files, counters of control
 * groups, log). The second part has the texts. Both get their input as arguments, so that a test needs no such
 * files. */
#include "report/exit_text.h"

#include "agent/agent.h"
#include "base/exit_codes.h"
#include "base/text.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* --- a worker's end ----------------------------------------------------------------------------------------- */

/* Return the exit code of a failed worker. If a node or the job has failed instead of a worker, return 125. As with
 * env(1) and timeout(1), 125 means that the launcher has failed. */
int failure_code(const struct failure *c)
{
    const struct agent_worker how = { .verdict = c->error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED,
                                      .exit_code = c->exit_code,
                                      .signal = c->signal,
                                      .error = c->error };
    if (strcmp(c->why, "node_lost") == 0 || strcmp(c->why, "timeout") == 0 ||
        strcmp(c->why, "refused") == 0 || strcmp(c->why, "hangs") == 0 ||
        strcmp(c->why, FAILURE_HOST_LOST) == 0)
        return EXIT_CODE_DDPRUN;
    return ending_code(&how);
}

/* Describe how a process ended, without the reason. */
static void ending_format_exit(char out[ENDING_MAX], const struct agent_worker *worker)
{
    char name[SIGNAL_NAME_MAX];
    if (worker->signal == 0) {
        snprintf(out, ENDING_MAX, "exit %d", worker->exit_code);
        return;
    }
    signal_name(name, worker->signal);
    snprintf(out, ENDING_MAX, "killed by %.40s (signal %d)", name, worker->signal);
}

/* Describe an error of execve or fork. No ddprun program sets a locale, so strerror returns English. */
static void ending_format_error(char out[ENDING_MAX], int error)
{
    snprintf(out, ENDING_MAX, FAILURE_NOT_STARTED "%.60s", strerror(error));
}

/* Describe the end of a worker. Only a worker that was started has an exit code or a signal. */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker)
{
    switch (worker->verdict) {
    case WORKER_PENDING:
        snprintf(out, ENDING_MAX, "not started");
        break;
    case WORKER_ALIVE:
        snprintf(out, ENDING_MAX, "still running");
        break;
    case WORKER_NOT_STARTED:
        ending_format_error(out, worker->error);
        break;
    case WORKER_OK:
    case WORKER_FAILED:
    case WORKER_CONSEQUENCE:
        ending_format_exit(out, worker);
        break;
    case WORKER_VICTIM:
        snprintf(out, ENDING_MAX, "exit %d, because another rank was lost", worker->exit_code);
        break;
    }
}

/* Return the name of a verdict. The names are part of the formats of events and report.json, and must not change. */
const char *verdict_name(enum worker_verdict verdict)
{
    static const char *const names[] = {
        [WORKER_PENDING] = "pending",
        [WORKER_ALIVE] = "alive",
        [WORKER_OK] = "ok",
        [WORKER_FAILED] = "failed",
        [WORKER_NOT_STARTED] = "not_started",
        [WORKER_CONSEQUENCE] = "consequence",
        [WORKER_VICTIM] = "victim",
    };
    return names[verdict];
}

/* A core file is untrusted: each number in it is compared with the number of bytes that were read, and every loop has a
 * limit. The offsets apply to siginfo_t on 64-bit machines. */
enum { SEGMENTS_MAX = 4096, NOTES_MAX = 4096, SI_CODE_AT = 8, SI_ADDR_AT = 16, SI_FROM_KERNEL = 0x80 };

/* Append `text` to `glob`. Return false if `glob` has no room. */
static bool append_text(char glob[PATH_MAX], size_t *n, const char *text)
{
    size_t len = strlen(text);
    if (*n + len >= PATH_MAX)
        return false;
    memcpy(glob + *n, text, len + 1);
    *n += len;
    return true;
}

/* Append a character that fnmatch must match literally. */
static bool append_plain(char glob[PATH_MAX], size_t *n, char c)
{
    const char text[] = { c, '\0' }, escaped[] = { '\\', c, '\0' };
    return append_text(glob, n, strchr("*?[\\", c) != NULL ? escaped : text);
}

/* Convert the kernel's pattern, see core(5), to a pattern for fnmatch(3). Only the pid and the signal are known, so
 * replace other placeholders with '*'. */
bool coredump_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX])
{
    char pid_text[16], signal_text[16];
    size_t n = 0;
    bool has_pid = false, ok = *pattern != '|';
    snprintf(pid_text, sizeof(pid_text), "%d", pid);
    snprintf(signal_text, sizeof(signal_text), "%d", signal);
    glob[0] = '\0';
    for (; *pattern != '\0' && *pattern != '\n' && ok; pattern++) {
        if (*pattern != '%') {
            ok = append_plain(glob, &n, *pattern);
            continue;
        }
        if (*++pattern == '\0')
            break;
        has_pid = has_pid || *pattern == 'p';
        ok = append_text(glob, &n,
                         *pattern == 'p'   ? pid_text
                         : *pattern == 's' ? signal_text
                         : *pattern == '%' ? "%"
                                           : "*");
    }
    if (uses_pid && !has_pid)
        ok = ok && append_text(glob, &n, ".") && append_text(glob, &n, pid_text);
    return ok;
}

/* Read the address of a fault. Return false if the processor did not cause the signal, because siginfo_t then
 * contains other data at this place. */
static bool fault_in_siginfo(const uint8_t *siginfo, uint64_t *address)
{
    int code;
    memcpy(&code, siginfo + SI_CODE_AT, sizeof(code));
    memcpy(address, siginfo + SI_ADDR_AT, sizeof(*address));
    return code > 0 && code < SI_FROM_KERNEL;
}

/* Find the note with the siginfo_t. A note consists of a header, a name and the content, each padded to four
 * bytes. */
static bool fault_in_notes(struct slice notes, uint64_t *address)
{
    const uint8_t *p = notes.data;
    size_t left = notes.len;
    for (int i = 0; i < NOTES_MAX && left >= sizeof(Elf64_Nhdr); i++) {
        Elf64_Nhdr note;
        memcpy(&note, p, sizeof(note));
        uint64_t name = ((uint64_t)note.n_namesz + 3) & ~UINT64_C(3),
                 size = ((uint64_t)note.n_descsz + 3) & ~UINT64_C(3);
        if (name + size > left - sizeof(note))
            return false;
        if (note.n_type == NT_SIGINFO && note.n_descsz >= SI_ADDR_AT + sizeof(*address))
            return fault_in_siginfo(p + sizeof(note) + name, address);
        p += sizeof(note) + name + size;
        left -= sizeof(note) + name + size;
    }
    return false;
}

/* Find the address of the fault in a core file. Only 64-bit files in this machine's byte order are read, because this
 * machine's kernel writes such files for 64-bit workers. */
bool coredump_fault(struct slice head, uint64_t *address)
{
    const uint8_t *p = head.data;
    Elf64_Ehdr elf;
    if (head.len < sizeof(elf))
        return false;
    memcpy(&elf, p, sizeof(elf));
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_type != ET_CORE)
        return false;
    for (size_t i = 0; i < elf.e_phnum && i < SEGMENTS_MAX; i++) {
        Elf64_Phdr segment;
        if (elf.e_phoff > head.len || head.len - elf.e_phoff < (i + 1) * sizeof(segment))
            return false;
        memcpy(&segment, p + elf.e_phoff + i * sizeof(segment), sizeof(segment));
        if (segment.p_type != PT_NOTE || segment.p_offset > head.len)
            continue;
        size_t room = head.len - segment.p_offset;
        return fault_in_notes(
            slice_of(p + segment.p_offset, segment.p_filesz < room ? segment.p_filesz : room), address);
    }
    return false;
}

/* --- evidence text ---------------------------------------------------------------------------------------- */

/* Parsers of the kernel's files and log. A missing line is not an error, because the kernel may be old, or a container
 * may hide the line. */

/* Move the next line of `text` to `line`, without its newline. Return false at the end. */
static bool next_line(struct slice *text, struct slice *line)
{
    if (text->len == 0)
        return false;
    const char *p = text->data, *end = memchr(p, '\n', text->len);
    line->data = p;
    line->len = end != NULL ? (size_t)(end - p) : text->len;
    size_t used = line->len + (end != NULL);
    *text = slice_of(p + used, text->len - used);
    return true;
}

/* Parse the digits at `p`, in base 10 or 16. Return false if the text has no digits. */
static bool number_at(const char *p, size_t len, int base, unsigned long long *value)
{
    char digits[24];
    char *end;
    size_t n = len < sizeof(digits) - 1 ? len : sizeof(digits) - 1;
    memcpy(digits, p, n);
    digits[n] = '\0';
    if (n == 0 || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ')
        return false;
    *value = strtoull(digits, &end, base);
    return end != digits;
}

/* Find the line that begins with the word `key`, and parse the number after the word. The whole word must match: "oom"
 * does not match a line that begins with "oom_kill". */
bool counter_in(struct slice text, const char *key, unsigned long long *value)
{
    size_t len = strlen(key);
    struct slice line;
    while (next_line(&text, &line)) {
        const char *p = line.data;
        if (line.len > len + 1 && memcmp(p, key, len) == 0 && p[len] == ' ')
            return number_at(p + len + 1, line.len - len - 1, 10, value);
    }
    return false;
}

uint64_t limit_in(struct slice text)
{
    /* A value of this size or more means "no limit". Version 1 of control groups shows "no limit" as 2^63 - 1, rounded
     * down to a page boundary. */
    const unsigned long long none_in_v1 = UINT64_C(1) << 62;
    unsigned long long value;
    return number_at(text.data, text.len, 10, &value) && value < none_in_v1 ? value : 0;
}

const char *limit_text(char out[LIMIT_SHOWN], uint64_t limit, bool is_bytes)
{
    char size[SIZE_TEXT_MAX];
    out[0] = '\0';
    if (limit == UINT64_MAX)
        snprintf(out, LIMIT_SHOWN, " (unlimited)");
    else if (limit > 0 && is_bytes)
        snprintf(out, LIMIT_SHOWN, " (%s)", words_size(size, limit));
    else if (limit > 0)
        snprintf(out, LIMIT_SHOWN, " (%llu)", (unsigned long long)limit);
    return out;
}

const char *group_memory_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e)
{
    char limit[SIZE_TEXT_MAX], used[SIZE_TEXT_MAX];
    if (e->group_limit == 0 || e->group_limit == UINT64_MAX)
        return limit_text(out, e->group_limit, true);
    snprintf(out, 2 * LIMIT_SHOWN, " (%s, of which %s are in use)", words_size(limit, e->group_limit),
             words_size(used, e->group_used));
    return out;
}

const char *available_text(char out[LIMIT_SHOWN], const struct worker_evidence *e)
{
    char size[SIZE_TEXT_MAX];
    out[0] = '\0';
    if (e->available > 0)
        snprintf(out, LIMIT_SHOWN, " (%s are available)", words_size(size, e->available));
    return out;
}

const char *shm_text(char out[2 * LIMIT_SHOWN], const struct worker_evidence *e)
{
    char size[SIZE_TEXT_MAX], room[SIZE_TEXT_MAX];
    out[0] = '\0';
    if (e->shm_size > 0)
        snprintf(out, 2 * LIMIT_SHOWN, " (%s, of which %s are free)", words_size(size, e->shm_size),
                 words_size(room, e->shm_free));
    return out;
}

const char *commit_text(char out[COMMIT_SHOWN], const struct worker_evidence *e)
{
    char limit[SIZE_TEXT_MAX], used[SIZE_TEXT_MAX];
    out[0] = '\0';
    if (e->commit_limit > 0)
        snprintf(out, COMMIT_SHOWN,
                 "; vm.overcommit_memory=2 permits %s of memory, of which %s are "
                 "reserved",
                 words_size(limit, e->commit_limit), words_size(used, e->committed));
    return out;
}

/* --- out of memory -------------------------------------------------------------------------------------- */

/* Return by how much a counter has risen. If the counter has fallen, return 0, because the counter then belongs to a
 * new group. */
static unsigned long long rise(unsigned long long before, unsigned long long now)
{
    return now > before ? now - before : 0;
}

/* Return true if the group has reached its limit: the counter of hits has risen, and the peak is unknown or at least
 * 98 % of the limit. The counter alone is not enough, because in version 1 the counter also rises when the kernel frees
 * cache. */
static bool at_limit(const struct oom_watch *w)
{
    bool reached = w->peak == 0 || w->peak >= w->limit - w->limit / 50;
    return w->limit > 0 && rise(w->before.hits, w->now.hits) > 0 && reached;
}

/* Record that the control group `w` ran out of memory. */
static void blame(const struct oom_watch *w, struct worker_evidence *e)
{
    e->oom = OOM_CGROUP;
    snprintf(e->cgroup, sizeof(e->cgroup), "%s", w->name);
    e->cgroup_v2 = w->v2;
    e->limit = w->limit;
    e->peak = w->peak;
}

/* Return the number of OOM kills while the worker ran: the increase of a group's count. Use the innermost group whose
 * count before the worker's start is known (not `late`). The counts of outer groups are wrong: in version 2 they
 * include kills of other jobs, and in version 1 they omit kills in inner groups. If the host has groups of both
 * versions, return the larger increase. */
static unsigned long long kills_in(const struct oom_watch *watches, size_t n)
{
    unsigned long long kills = 0;
    bool seen[2] = { false, false };
    for (size_t i = 0; i < n; i++) {
        const unsigned long long more = rise(watches[i].before.kills, watches[i].now.kills);
        if (watches[i].late || seen[watches[i].v2])
            continue;
        seen[watches[i].v2] = true;
        kills = more > kills ? more : kills;
    }
    return kills;
}

/* Decide whether memory ran out, and where. If no control group can be read, use the counter of the machine, which
 * includes kills of other jobs. If several groups have reached their limits, blame the innermost group, because its
 * memory also counts in the outer groups. If no group has reached its limit, the whole machine or a group outside
 * ddprun's container ran out of memory. */
void oom_find_cause(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
                    struct worker_evidence *e)
{
    unsigned long long kills = kills_in(watches, n);
    e->oom_likely = n == 0 && !e->oom_named && system_kills > 0;
    if (kills == 0 && !e->oom_named && !e->oom_likely)
        return;
    e->kills = kills > 0 ? kills : e->oom_likely ? system_kills : 1;
    /* if the whole machine ran out of memory, blame no group, because a group counts every kill of its processes, even
     * if the group has not reached its own limit */
    for (size_t i = 0; i < n && e->oom != OOM_SYSTEM; i++)
        if (at_limit(&watches[i])) {
            blame(&watches[i], e);
            return;
        }
    if (e->oom == OOM_NONE)
        e->oom = OOM_SYSTEM;
    if (e->oom == OOM_CGROUP && e->cgroup[0] == '\0')
        snprintf(e->cgroup, sizeof(e->cgroup), "(unknown to ddprun)");
}

/* --- the kernel's log ----------------------------------------------------------------------------------- */

/* Return the text after `what` in the line, or NULL. */
static const char *behind(struct slice line, const char *what)
{
    const char *p = memmem(line.data, line.len, what, strlen(what));
    return p != NULL ? p + strlen(what) : NULL;
}

static struct slice rest_of(struct slice line, const char *from)
{
    return slice_of(from, line.len - (size_t)(from - (const char *)line.data));
}

/* Parse "Memory cgroup out of memory: Killed process 77 (train)". If the line does not contain "Memory cgroup", the
 * whole machine was out of memory. */
static void killed_line(struct slice line, int pid, struct worker_evidence *e)
{
    unsigned long long who;
    char victim[32];
    const char *group = behind(line, "oom_memcg=");
    snprintf(victim, sizeof(victim), ",pid=%d,", pid);
    if (group != NULL && behind(line, victim) != NULL)
        snprintf(e->cgroup, sizeof(e->cgroup), "%.*s", (int)(rest_of(line, group).len), group);
    e->cgroup[strcspn(e->cgroup, ",")] = '\0';
    const char *p = behind(line, "Killed process ");
    if (p == NULL || !number_at(p, rest_of(line, p).len, 10, &who) || who != (unsigned long long)pid)
        return;
    e->oom_named = true;
    e->oom = behind(line, "Memory cgroup out of memory") != NULL ? OOM_CGROUP : OOM_SYSTEM;
}

/* Parse the program or library of a fault, for example "... ip 00007f11 sp ... in libc.so.6[152a89,7f00+1000]". Older
 * kernels do not print the offset "152a89". Text with a comma may follow: " likely on CPU 3 (core 3, socket 0)". */
static void object_in(struct slice line, struct worker_evidence *e)
{
    unsigned long long ip = 0, base = 0;
    const char *name = behind(line, " in "), *at = behind(line, " ip ");
    const char *bracket = name != NULL ? memchr(name, '[', rest_of(line, name).len) : NULL;
    if (bracket == NULL || bracket == name)
        return;
    const char *close = memchr(bracket, ']', rest_of(line, bracket).len);
    size_t left = close != NULL ? (size_t)(close - bracket) : rest_of(line, bracket).len - 1;
    size_t n = (size_t)(bracket - name);
    bool offset_given = memchr(bracket, ',', left) != NULL;
    at = at != NULL ? at : behind(line, " ip:");
    if (!number_at(bracket + 1, left, 16, &base) || n >= OBJECT_SHOWN - 20)
        return;
    if (!offset_given && (at == NULL || !number_at(at, rest_of(line, at).len, 16, &ip) || ip < base))
        return;
    snprintf(e->object, sizeof(e->object), "%.*s+0x%llx", (int)n, name, offset_given ? base : ip - base);
}

/* Parse "train[77]: segfault at 10 ip ...", or "traps: train[77] general protection fault ip:...", which contains
 * no address. */
static void crash_line(struct slice line, int pid, struct worker_evidence *e)
{
    char who[32];
    unsigned long long address;
    snprintf(who, sizeof(who), "[%d]", pid);
    const char *p = behind(line, who);
    if (p == NULL)
        return;
    struct slice rest = rest_of(line, p);
    const char *at = behind(rest, " segfault at ");
    if (at != NULL && number_at(at, rest_of(rest, at).len, 16, &address)) {
        e->fault_known = true;
        e->fault = address;
    }
    object_in(rest, e);
}

void kernel_log_line(struct slice line, int pid, struct worker_evidence *e)
{
    killed_line(line, pid, e);
    crash_line(line, pid, e);
}

/* --- texts ------------------------------------------------------------------------------------------------- */

/* The sentences about the end of a worker. The first row that matches the signal and the observations is used. The
 * last row of a signal needs no observation. A probable cause has "likely" or "perhaps". */

enum { NO_SIGNAL = 0 };

/* A /dev/shm below this size is too small for training; docker's default is 64 MiB. */
static const uint64_t SMALL_SHM = UINT64_C(1) << 30;

/* Flags for the observations about a worker's end. */
enum {
    ALWAYS = 0,
    OOM_IN_CGROUP = 1 << 0,
    OOM_OF_SYSTEM = 1 << 1,
    OOM_LIKELY = 1 << 2, /* the kernel killed a process of this machine, perhaps not the worker */
    OOM_UNSEEN = 1 << 3,
    OBJECT_KNOWN = 1 << 4,
    FAULT_KNOWN = 1 << 5,
    SHM_FULL = 1 << 6,
    SHM_SMALL = 1 << 7,
    STDOUT_GONE = 1 << 8, /* the reader of ddprun's stdout is gone, so the worker is not at fault */
    STDERR_GONE = 1 << 9,
    CPU_LIMIT = 1 << 10,
    FILE_LIMIT = 1 << 11,
    CPU_NAMED = 1 << 12,
    TIMER_RAN_OUT = 1 << 13,
    PORT_TAKEN = 1 << 14,
};

/* Return the flags of all observations. /dev/shm counts as full if at most 1 % is free. But the worker's end may have
 * freed space before /dev/shm was read. So a small /dev/shm is a second hint, with a separate flag. */
static unsigned observations(const struct worker_evidence *e)
{
    const struct {
        bool seen;
        unsigned flag;
    } all[] = {
        { e->oom == OOM_CGROUP, OOM_IN_CGROUP },
        { e->oom == OOM_SYSTEM && !e->oom_likely, OOM_OF_SYSTEM },
        { e->oom_likely, OOM_LIKELY },
        { e->oom_unseen, OOM_UNSEEN },
        { e->object[0] != '\0', OBJECT_KNOWN },
        { e->fault_known, FAULT_KNOWN },
        { e->shm_size > 0 && e->shm_free <= e->shm_size / 100, SHM_FULL },
        { e->shm_size > 0 && e->shm_size < SMALL_SHM, SHM_SMALL },
        { e->stdout_gone, STDOUT_GONE },
        { e->stderr_gone, STDERR_GONE },
        { e->cpu_limit_s > 0, CPU_LIMIT },
        { e->file_limit > 0, FILE_LIMIT },
        { e->cpu[0] != '\0', CPU_NAMED },
        { e->timer[0] != '\0', TIMER_RAN_OUT },
        { e->port != 0, PORT_TAKEN },
    };
    unsigned seen = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        seen |= all[i].seen ? all[i].flag : 0;
    return seen;
}

#define SHM_REMEDY                                                                                         \
    "enlarge /dev/shm with 'docker run --shm-size=8g' (or --ipc=host), or with 'mount -o remount,size=8g " \
    "/dev/shm'; delete the files of earlier jobs there"
/* This remedy names no file and no file system, because ddprun does not know which file the worker has mapped. */
#define MAPPED_REMEDY                                                                  \
    "check whether a program shortens a file while the worker maps the file, and run " \
    "'df' to find a full disk"
/* The beginning of each remedy about memory. */
#define LESS_MEMORY "use less memory: a smaller batch, fewer loader workers, less pinned memory"

/* clang-format off */
static const struct row {
    int signal;
    unsigned seen;
    const char *headline; /* NULL means the text of ending_text() */
    const char *cause, *remedy;
} rows[] = {
    { SIGKILL, TIMER_RAN_OUT, "a timer of the rank expired, so ddprun killed the rank (SIGKILL)",
      "the worker set a timer for \"{timer}\" (torch.distributed.elastic.timer) and did not release the timer in time, so ddprun killed the worker",
      "find out what the worker waited for: read its last lines, or start again and run 'py-spy dump --pid PID' before the timer expires" },
    { SIGKILL, PORT_TAKEN, "another user took the port of this rank's store, so ddprun killed the rank (SIGKILL)",
      "port {port} was reserved for the store of rank 0 (--torch_store=rank0), but a process of another "
      "user (uid {port_uid}) took the port; ddprun killed rank 0, so that no rank connects to another "
      "user's process",
      "run 'ss -ltnp sport = :{port}' as root to find the process of the other user; the next start uses "
      "another port" },
    { SIGKILL, OOM_IN_CGROUP, "out of memory (SIGKILL)",
      "out of memory: limit {limit} of cgroup {cgroup}, peak {peak}; the kernel killed {kills} there",
      LESS_MEMORY "; or raise the limit: {limit_file} of that cgroup, --mem of the scheduler, --memory of the container" },
    { SIGKILL, OOM_OF_SYSTEM, "out of memory (SIGKILL)",
      "out of memory on the whole machine, not only in a cgroup; the kernel killed {kills}",
      LESS_MEMORY "; or run fewer jobs on this machine" },
    { SIGKILL, OOM_LIKELY, "most likely out of memory (SIGKILL)",
      "most likely out of memory: the kernel killed {kills} on this machine to free memory; ddprun cannot read control groups here, so it cannot check whether this worker was killed for this reason",
      LESS_MEMORY "; or run fewer jobs on this machine" },
    { SIGKILL, OOM_UNSEEN, "perhaps out of memory (SIGKILL)",
      "ddprun did not send this signal; perhaps the kernel killed the worker because memory ran out, but ddprun cannot read the counter of such kills here",
      "check 'dmesg' on the host for an out-of-memory kill; else look for a 'kill -9', a time limit of the scheduler, or a stopped container" },
    { SIGKILL, ALWAYS, NULL,
      "ddprun did not send this signal, and no memory limit was reached; Linux does not report the sender",
      "look for a user or a script that ran 'kill -9', a time limit of the scheduler, or a stopped container" },
    { SIGTERM, ALWAYS, NULL,
      "ddprun did not send this signal; Linux does not report the sender",
      "look for a user or a script that ran 'kill', or for a scheduler that announces a time limit or a preemption" },
    { SIGBUS, SHM_FULL, "/dev/shm is full (SIGBUS)",
      "/dev/shm is full (size {shm_size}, {shm_free} free), so the worker could not use more shared memory",
      SHM_REMEDY },
    { SIGBUS, SHM_SMALL, NULL,
      "most likely /dev/shm was full: its size is only {shm_size} ({shm_free} free after the worker's end)",
      SHM_REMEDY },
    { SIGBUS, FAULT_KNOWN, NULL,
      "the worker accessed address {fault} of a mapped file, but the file has no data there",
      MAPPED_REMEDY },
    { SIGBUS, ALWAYS, NULL,
      "the worker accessed a page of a mapped file, but the file has no data there",
      MAPPED_REMEDY },
    { SIGSEGV, FAULT_KNOWN | OBJECT_KNOWN, NULL, "the worker accessed address {fault}, which is not mapped or is protected; the instruction is in {object}", NULL },
    { SIGSEGV, FAULT_KNOWN, NULL, "the worker accessed address {fault}, which is not mapped or is protected", NULL },
    { SIGSEGV, OBJECT_KNOWN, NULL, "the worker used an invalid or misaligned address, or executed a privileged instruction; the instruction is in {object}", NULL },
    { SIGSEGV, ALWAYS, NULL, "the worker accessed an address that is not mapped or is protected (the kernel does not report the address here)", NULL },
    { SIGILL, CPU_NAMED, NULL,
      "the worker executed an instruction that this processor does not support, or a trap instruction of the compiler; the processor is {cpu}",
      "build the program for this processor (-march), or install a build for older processors" },
    { SIGILL, ALWAYS, NULL, "the worker executed an instruction that this processor does not support, or a trap instruction of the compiler",
      "build the program for this processor (-march), or install a build for older processors" },
    { SIGABRT, ALWAYS, NULL,
      "the worker ended itself (abort): a failed assertion, an uncaught C++ exception, a heap error found by malloc, or a watchdog",
      "see the last lines of the worker, which usually contain the reason" },
    { SIGFPE, OBJECT_KNOWN, NULL, "an integer was divided by zero, or overflowed in a division, in {object}", NULL },
    { SIGFPE, ALWAYS, NULL, "an integer was divided by zero, or overflowed in a division", NULL },
    { SIGSYS, ALWAYS, NULL, "the worker made a system call that a seccomp filter forbids", "allow the system call in the seccomp profile of the container" },
    { SIGPIPE, STDOUT_GONE, "the reader of stdout has exited (SIGPIPE)",
      "not a failure of the worker: the reader of ddprun's stdout has exited, as head does in `ddprun ... | head`",
      "pipe the output to a program that reads all of it, or use --log_dir and --redirects" },
    { SIGPIPE, STDERR_GONE, "the reader of stderr has exited (SIGPIPE)",
      "not a failure of the worker: the reader of ddprun's stderr has exited",
      "pipe the output to a program that reads all of it, or use --log_dir and --redirects" },
    { SIGPIPE, ALWAYS, NULL, "the worker wrote to a pipe or socket whose other end was closed", NULL },
    { SIGXCPU, CPU_LIMIT, NULL, "the worker used up its limit of {cpu_limit} s of processor time", "raise the limit: 'ulimit -t'" },
    { SIGXCPU, ALWAYS, NULL, "the worker used up its limit of processor time", "raise the limit: 'ulimit -t'" },
    { SIGXFSZ, FILE_LIMIT, NULL, "the worker wrote a file beyond the limit of {file_limit}", "raise the limit: 'ulimit -f'" },
    { SIGXFSZ, ALWAYS, NULL, "the worker wrote a file beyond the size limit", "raise the limit: 'ulimit -f'" },
    { SIGALRM, ALWAYS, NULL, "the worker's own timer (alarm) expired, and the worker has no handler for SIGALRM", NULL },
    { SIGUSR1, ALWAYS, NULL, "the worker received SIGUSR1 and has no handler for that signal", NULL },
    { SIGUSR2, ALWAYS, NULL, "the worker received SIGUSR2 and has no handler for that signal", NULL },
    { NO_SIGNAL, OOM_IN_CGROUP, NULL,
      "memory ran out during this attempt: limit {limit} of cgroup {cgroup}, peak {peak}; the kernel killed {kills} there, most likely including a child of the worker",
      LESS_MEMORY "; or raise the limit: {limit_file} of that cgroup" },
    { NO_SIGNAL, OOM_OF_SYSTEM, NULL,
      "memory ran out on the whole machine during this attempt; the kernel killed {kills}, most likely including a child of the worker", LESS_MEMORY },
};
/* clang-format on */

/* Return the first row that applies, or NULL. */
static const struct row *row_of(const struct agent_worker *w, const struct worker_evidence *e)
{
    const unsigned seen = observations(e);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].signal == w->signal && (rows[i].seen & seen) == rows[i].seen)
            return &rows[i];
    return NULL;
}

static const char *size_or_unknown(char out[SIZE_TEXT_MAX], uint64_t bytes)
{
    return bytes > 0 ? words_size(out, bytes) : "unknown";
}

/* Fill the placeholders of a sentence. Format the values of all placeholders, although a sentence contains only a
 * few. */
static bool fill_sentence(const struct worker_evidence *e, const char *sentence, struct buf *out)
{
    char limit[SIZE_TEXT_MAX], peak[SIZE_TEXT_MAX], shm_size[SIZE_TEXT_MAX], shm_free[SIZE_TEXT_MAX];
    char file[SIZE_TEXT_MAX], kills[40], cpu_s[24], fault[24], port[16], port_uid[16];
    snprintf(port, sizeof(port), "%d", e->port);
    snprintf(port_uid, sizeof(port_uid), "%u", e->port_uid);
    snprintf(kills, sizeof(kills), "%llu process%s", e->kills, e->kills == 1 ? "" : "es");
    snprintf(cpu_s, sizeof(cpu_s), "%llu", (unsigned long long)e->cpu_limit_s);
    snprintf(fault, sizeof(fault), "0x%llx", (unsigned long long)e->fault);
    const struct word words[] = {
        { "limit", size_or_unknown(limit, e->limit) },
        { "peak", size_or_unknown(peak, e->peak) },
        { "cgroup", e->cgroup },
        { "limit_file", CGROUP_LIMIT_FILE(e->cgroup_v2) },
        { "kills", kills },
        { "shm_size", words_size(shm_size, e->shm_size) },
        { "shm_free", e->shm_free > 0 ? words_size(shm_free, e->shm_free) : "nothing" },
        { "fault", fault },
        { "object", e->object },
        { "cpu", e->cpu },
        { "cpu_limit", cpu_s },
        { "timer", e->timer },
        { "port", port },
        { "port_uid", port_uid },
        { "file_limit", words_size(file, e->file_limit) },
    };
    return words_fill(out, sentence, words, sizeof(words) / sizeof(words[0]));
}

/* The evidence of a worker that was not examined: no fact is known. */
static const struct worker_evidence nothing;

bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    char how[ENDING_MAX];
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    if (row != NULL && row->headline != NULL)
        return fill_sentence(e != NULL ? e : &nothing, row->headline, out);
    ending_text(how, w);
    return buf_printf(out, "%s", how);
}

bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    return row == NULL || row->cause == NULL || fill_sentence(e != NULL ? e : &nothing, row->cause, out);
}

bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    return row == NULL || row->remedy == NULL || fill_sentence(e != NULL ? e : &nothing, row->remedy, out);
}

/* --- the core file -------------------------------------------------------------------------------------- */

/* Return a sentence about the core file, with the whole command, because few users know gdb or coredumpctl. */
static const char *coredump_sentence(const struct worker_evidence *e)
{
    switch (e->coredump_kind) {
    case CORE_FILE:
        return "{core} ({size}); 'gdb {program} {core}' shows the place of the crash";
    case CORE_PIPED:
        if (strstr(e->core, "systemd-coredump") != NULL)
            return "systemd-coredump keeps the core file; 'coredumpctl gdb {pid}' shows the place of the "
                   "crash";
        if (strstr(e->core, "apport") != NULL)
            return "the kernel passed the core file to apport; look in /var/crash and "
                   "/var/lib/apport/coredump";
        return "the kernel passed the core file to the program {core}";
    case CORE_LOST:
        return "the kernel wrote a core file, but ddprun did not find it: look in the worker's working "
               "directory, or in the directory of kernel.core_pattern ('{core}')";
    case CORE_NO_LIMIT:
        return "none: the limit for core files is 0; to get one, run 'ulimit -c unlimited' before ddprun";
    case CORE_NO_PATTERN:
        return "none: kernel.core_pattern is empty; to get a core file, run 'sysctl "
               "kernel.core_pattern=core.%e.%p' as root";
    case CORE_NOT_DUMPED:
        if (e->core[0] == '|')
            return "none: the kernel passed no core file to the program in kernel.core_pattern ('{core}'); "
                   "check that this program exists and works";
        return "none: the kernel wrote no core file (kernel.core_pattern is '{core}'); check whether "
               "the directory is read-only, the disk is full, or the worker's own 'ulimit -c' is 0";
    case CORE_UNKNOWN:
        break;
    }
    return "";
}

bool end_core(const struct agent_worker *w, const struct worker_evidence *e, const char *program,
              struct buf *out)
{
    char size[SIZE_TEXT_MAX], pid[24];
    if (e == NULL)
        return true;
    snprintf(pid, sizeof(pid), "%d", w->pid);
    const struct word words[] = { { "core", e->core },
                                  { "size", words_size(size, e->coredump_size) },
                                  { "program", program },
                                  { "pid", pid } };
    return words_fill(out, coredump_sentence(e), words, sizeof(words) / sizeof(words[0]));
}

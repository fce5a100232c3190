/* end_words.c -- see end_words.h.
 *
 * One table: the first row whose signal and condition fit has the words. A signal's own meaning comes last,
 * what the facts make of it before that. Nothing is claimed that was not seen: where a fact only makes a
 * cause likely, the sentence says so. */
#include "report/end_words.h"

#include "agent/ending.h"
#include "tables/text.h"

#include <signal.h>
#include <stdio.h>

enum { NO_SIGNAL = 0 };

/* Below this much a /dev/shm was made for something smaller than training. */
static const uint64_t SMALL_SHM = UINT64_C(1) << 30;

/* --- conditions ----------------------------------------------------------------------------------------- */

static bool always(const struct worker_evidence *e)
{
    (void)e;
    return true;
}

static bool oom_cgroup(const struct worker_evidence *e)
{
    return e->oom == OOM_CGROUP;
}

static bool oom_system(const struct worker_evidence *e)
{
    return e->oom == OOM_SYSTEM && !e->oom_likely;
}

/* Only the machine's counter rose: somebody was killed for memory, perhaps not this one. */
static bool oom_likely(const struct worker_evidence *e)
{
    return e->oom_likely;
}

static bool oom_unseen(const struct worker_evidence *e)
{
    return e->oom_unseen;
}

static bool object_known(const struct worker_evidence *e)
{
    return e->object[0] != '\0';
}

/* Pages come 4 KiB at a time, and not the last few are what a worker asks for: a hundredth is as good as nothing. */
static bool shm_full(const struct worker_evidence *e)
{
    return e->shm_size > 0 && e->shm_free <= e->shm_size / 100;
}

/* By the time that we look the dead worker's memory has been given back, so a full /dev/shm may look empty. A
 * small one is the usual cause all the same: 64 MiB is what docker gives. */
static bool shm_small(const struct worker_evidence *e)
{
    return e->shm_size > 0 && e->shm_size < SMALL_SHM;
}

static bool fault_in(const struct worker_evidence *e)
{
    return e->fault_known && e->object[0] != '\0';
}

static bool fault_known(const struct worker_evidence *e)
{
    return e->fault_known;
}

/* SIGPIPE from our own pipes comes when whoever reads ddprun has gone; that is nobody's failure. */
static bool stdout_gone(const struct worker_evidence *e)
{
    return e->stdout_gone;
}

static bool stderr_gone(const struct worker_evidence *e)
{
    return e->stderr_gone;
}

static bool cpu_limit(const struct worker_evidence *e)
{
    return e->cpu_limit_s > 0;
}

static bool file_limit(const struct worker_evidence *e)
{
    return e->file_limit > 0;
}

static bool cpu_named(const struct worker_evidence *e)
{
    return e->cpu[0] != '\0';
}

static bool timer_ran_out(const struct worker_evidence *e)
{
    return e->timer[0] != '\0';
}

static bool port_taken(const struct worker_evidence *e)
{
    return e->port != 0;
}

/* --- the table ------------------------------------------------------------------------------------------ */

#define SHM_REMEDY                                                                                          \
    "docker run --shm-size=8g (or --ipc=host), or mount -o remount,size=8g /dev/shm; ls -l /dev/shm shows " \
    "what earlier jobs left"
/* Said in each row about memory, in front of what else helps there. */
#define LESS_MEMORY "use less memory: a smaller batch, fewer loader workers, less pinned memory"

/* clang-format off */
static const struct row {
    int signal;
    bool (*fits)(const struct worker_evidence *e);
    const char *headline; /* NULL = how it ended, as everywhere */
    const char *cause, *remedy;
} rows[] = {
    { SIGKILL, timer_ran_out, "its timer ran out (SIGKILL)",
      "it set a timer for \"{timer}\" (torch.distributed.elastic.timer) and did not release it in time, so it was killed",
      "its last lines may say what it waited for; py-spy dump --pid shows that while it waits" },
    { SIGKILL, port_taken, "another user took the port of its store (SIGKILL)",
      "uid {port_uid} listens on port {port}, which was held for the store of rank 0 (--torch_store=rank0); ddprun killed rank 0 "
      "before the ranks meet there",
      "find that process: ss -ltnp sport = :{port} (as root); the next start holds another port" },
    { SIGKILL, oom_cgroup, "out of memory (SIGKILL)",
      "out of memory: limit {limit} of cgroup {cgroup}, peak {peak}; the kernel killed {kills} there",
      LESS_MEMORY "; or raise the limit: {limit_file} of that cgroup, --mem of the scheduler, --memory of the container" },
    { SIGKILL, oom_system, "out of memory (SIGKILL)",
      "out of memory: the machine had none left, not a cgroup; the kernel killed {kills}",
      LESS_MEMORY "; or run fewer jobs on this machine" },
    { SIGKILL, oom_likely, "most likely out of memory (SIGKILL)",
      "most likely out of memory: meanwhile the kernel killed {kills} on this machine for that, and control groups cannot be read here",
      LESS_MEMORY "; or run fewer jobs on this machine" },
    { SIGKILL, oom_unseen, "killed by someone else, or out of memory (SIGKILL)",
      "ddprun did not send this signal; perhaps the kernel did, out of memory: the control group's counter of such kills cannot be read here",
      "look into the kernel's log (dmesg) of the host; else for a kill -9, a time limit of the scheduler, a container that was stopped" },
    { SIGKILL, always, "killed by someone else (SIGKILL)",
      "killed by someone else: ddprun did not send this signal, and no memory limit was hit; Linux does not tell who did",
      "look for a kill -9 by hand or in a script, a time limit of the scheduler, a container that was stopped" },
    { SIGTERM, always, "told to stop by someone else (SIGTERM)",
      "someone else sent SIGTERM to this worker alone: ddprun did not; Linux does not tell a parent who did",
      "look for a kill by hand or in a script, and for the scheduler's notice before a time limit or a preemption" },
    { SIGBUS, shm_full, "/dev/shm is full (SIGBUS)",
      "/dev/shm is full: {shm_size}, of which {shm_free} is free; touching shared memory that has no room behind it is SIGBUS",
      SHM_REMEDY },
    { SIGBUS, shm_small, NULL,
      "most likely /dev/shm was full: it has {shm_size} only ({shm_free} free, now that the worker's own is freed)",
      SHM_REMEDY },
    { SIGBUS, fault_known, NULL,
      "it touched address {fault}, a page of a mapped file that has nothing behind it: the file was cut short, or its disk is full",
      "see df, and who writes the files that it maps" },
    { SIGBUS, always, NULL,
      "it touched a page of a mapped file that has nothing behind it: the file was cut short, or its disk is full",
      "see df, and who writes the files that it maps" },
    { SIGSEGV, fault_in, NULL, "it accessed memory that is not its own, at address {fault}, in {object}", NULL },
    { SIGSEGV, fault_known, NULL, "it accessed memory that is not its own, at address {fault}", NULL },
    { SIGSEGV, object_known, NULL, "it used an address that cannot exist, in {object}", NULL },
    { SIGSEGV, always, NULL, "it accessed memory that is not its own (the kernel does not tell here at which address)", NULL },
    { SIGILL, cpu_named, NULL,
      "it met an instruction that this processor does not have, or a deliberate trap; the processor is {cpu}",
      "build it for this processor (-march), or install a build for older ones" },
    { SIGILL, always, NULL, "it met an instruction that this processor does not have, or a deliberate trap",
      "build it for this processor (-march), or install a build for older ones" },
    { SIGABRT, always, NULL,
      "it gave up by itself (abort): a failed assertion, an uncaught C++ exception, damaged memory found by malloc, a watchdog",
      "its last lines usually say which" },
    { SIGFPE, object_known, NULL, "an integer was divided by zero, or overflowed in a division, in {object}", NULL },
    { SIGFPE, always, NULL, "an integer was divided by zero, or overflowed in a division", NULL },
    { SIGSYS, always, NULL, "it made a system call that a seccomp filter forbids", "see the container's seccomp profile" },
    { SIGPIPE, stdout_gone, "the reader of stdout has gone (SIGPIPE)",
      "no fault of the worker: whoever read ddprun's stdout has ended, as head does in `ddprun ... | head`",
      "let the reader read to the end, or write to files with --log_dir and --redirects" },
    { SIGPIPE, stderr_gone, "the reader of stderr has gone (SIGPIPE)",
      "no fault of the worker: whoever read ddprun's stderr has ended",
      "let the reader read to the end, or write to files with --log_dir and --redirects" },
    { SIGPIPE, always, NULL, "it wrote to a pipe or socket whose other end was closed", NULL },
    { SIGXCPU, cpu_limit, NULL, "it used up its limit of {cpu_limit} s of processor time", "raise it: ulimit -t" },
    { SIGXCPU, always, NULL, "it used up its limit of processor time", "raise it: ulimit -t" },
    { SIGXFSZ, file_limit, NULL, "it wrote a file beyond the limit of {file_limit}", "raise it: ulimit -f" },
    { SIGXFSZ, always, NULL, "it wrote a file beyond the size limit", "raise it: ulimit -f" },
    { SIGALRM, always, NULL, "a timer that it set itself (alarm) ran out, and it had no handler for that", NULL },
    { SIGUSR1, always, NULL, "someone sent it SIGUSR1, and it had no handler for that", NULL },
    { SIGUSR2, always, NULL, "someone sent it SIGUSR2, and it had no handler for that", NULL },
    { NO_SIGNAL, oom_cgroup, NULL,
      "memory ran out meanwhile: limit {limit} of cgroup {cgroup}, peak {peak}; the kernel killed {kills} there, a helper most likely",
      LESS_MEMORY "; or raise the limit: {limit_file} of that cgroup" },
    { NO_SIGNAL, oom_system, NULL,
      "memory ran out meanwhile: the machine had none left; the kernel killed {kills}, a helper most likely", LESS_MEMORY },
};
/* clang-format on */

/* NULL when there is nothing to add to how it ended. */
static const struct row *row_of(const struct agent_worker *w, const struct worker_evidence *e)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].signal == w->signal && rows[i].fits(e))
            return &rows[i];
    return NULL;
}

static const char *size_or_unknown(char out[SIZE_TEXT_MAX], uint64_t bytes)
{
    return bytes > 0 ? words_size(out, bytes) : "unknown";
}

/* All gaps are offered to all sentences; one that a sentence does not have costs a few formatted digits, and the
 * table needs no column for it. */
static bool fill(const struct worker_evidence *e, const char *sentence, struct buf *out)
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

/* Of a worker that nobody looked at (evidence.c looks at the first few only): every condition on a fact is false
 * of it. */
static const struct worker_evidence nothing;

bool end_headline(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    char how[ENDING_MAX];
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    if (row != NULL && row->headline != NULL)
        return fill(e != NULL ? e : &nothing, row->headline, out);
    ending_text(how, w);
    return buf_printf(out, "%s", how);
}

bool end_cause(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    return row == NULL || row->cause == NULL || fill(e != NULL ? e : &nothing, row->cause, out);
}

bool end_remedy(const struct agent_worker *w, const struct worker_evidence *e, struct buf *out)
{
    const struct row *row = row_of(w, e != NULL ? e : &nothing);
    return row == NULL || row->remedy == NULL || fill(e != NULL ? e : &nothing, row->remedy, out);
}

/* --- the core file -------------------------------------------------------------------------------------- */

/* A sentence for each way that a core may go, with the command that shows it: most users meet gdb or coredumpctl
 * once a year. */
static const char *core_sentence(const struct worker_evidence *e)
{
    switch (e->core_kind) {
    case CORE_FILE:
        return "{core} ({size}); gdb {program} {core} shows where it happened";
    case CORE_PIPED:
        if (strstr(e->core, "systemd-coredump") != NULL)
            return "kept by systemd-coredump; coredumpctl gdb {pid} shows where it happened";
        if (strstr(e->core, "apport") != NULL)
            return "given to apport; look in /var/crash and /var/lib/apport/coredump";
        return "given by the kernel to {core}";
    case CORE_LOST:
        return "written, in the worker's directory or where the kernel's pattern '{core}' points";
    case CORE_NO_LIMIT:
        return "none, because the limit for core files is 0; get one with ulimit -c unlimited before ddprun";
    case CORE_NO_PATTERN:
        return "none, because the kernel's pattern is empty; get one with sysctl "
               "kernel.core_pattern=core.%e.%p";
    case CORE_NOT_DUMPED:
        return "none was written (the kernel's pattern is '{core}'); its directory may be read-only, or the "
               "disk full";
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
                                  { "size", words_size(size, e->core_size) },
                                  { "program", program },
                                  { "pid", pid } };
    return words_fill(out, core_sentence(e), words, sizeof(words) / sizeof(words[0]));
}

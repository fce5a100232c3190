/* Test how the cause of a worker's end is found: in the counters of OOM kills, the kernel's log, and core files.
 * Linux does not report the sender of a SIGKILL, so the text must follow from these facts. */
#include "report/exit_text.h"

#include "agent/agent.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <signal.h>
#include <stdlib.h>

static struct worker_evidence e;

Test(evidence_text, counters_and_limits_are_found_by_name)
{
    unsigned long long value = 7;
    struct slice events = slice_str("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 9\n");
    cr_expect(counter_in(events, "oom_kill", &value));
    cr_expect_eq(value, 2);
    cr_expect(counter_in(events, "oom", &value));
    cr_expect_eq(value, 3);
    cr_expect_not(counter_in(events, "oo", &value));
    cr_expect_not(counter_in(slice_str("oom_kill"), "oom_kill", &value));
    cr_expect_not(counter_in(slice_str("oom_kill x\n"), "oom_kill", &value));
    cr_expect_eq(limit_in(slice_str("67108864\n")), 67108864);
    cr_expect_eq(limit_in(slice_str("max\n")), 0);
    cr_expect_eq(limit_in(slice_str("9223372036854771712\n")), 0);
    cr_expect_eq(limit_in(slice_str("")), 0);
}

/* --- out of memory -------------------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

static const struct oom_watch INNER = {
    .name = "/job/step", .v2 = true, .now = { .kills = 1 }, .peak = 60 * MIB
};
static const struct oom_watch OUTER = {
    .name = "/job", .v2 = true, .now = { .kills = 1, .hits = 1 }, .limit = 64 * MIB, .peak = 64 * MIB
};

Test(oom_find_cause, blames_the_group_whose_limit_was_reached_not_the_victims)
{
    const struct oom_watch watches[] = { INNER, OUTER };
    e = (struct worker_evidence){ 0 };
    oom_find_cause(watches, 2, 1, &e);
    cr_expect_eq(e.oom, OOM_CGROUP);
    cr_expect_str_eq(e.cgroup, "/job");
    cr_expect_eq(e.limit, 64 * MIB);
    cr_expect_eq(e.kills, 1);
}

Test(oom_find_cause, without_a_limit_at_its_end_the_machine_had_no_memory)
{
    const struct oom_watch watches[] = { INNER };
    e = (struct worker_evidence){ 0 };
    oom_find_cause(watches, 1, 1, &e);
    cr_expect_eq(e.oom, OOM_SYSTEM);
    cr_expect_not(e.oom_likely);
}

/* The machine's counter of OOM kills also counts other jobs. If the counters of this job's control groups stay the
 * same, the kernel has killed a process of another job. */
Test(oom_find_cause, kills_of_other_jobs_are_not_ours)
{
    struct oom_watch quiet = OUTER;
    quiet.before = quiet.now;
    e = (struct worker_evidence){ 0 };
    oom_find_cause(&quiet, 1, 3, &e);
    cr_expect_eq(e.oom, OOM_NONE);
    oom_find_cause(NULL, 0, 3, &e);
    cr_expect_eq(e.oom, OOM_SYSTEM);
    cr_expect(e.oom_likely);
}

/* In version 2 of control groups, the counters of an outer group include the kills in all its inner groups. Some inner
 * groups may belong to other jobs. */
Test(oom_find_cause, kills_in_an_outer_group_are_not_ours)
{
    struct oom_watch inner = INNER;
    inner.now.kills = 0;
    const struct oom_watch watches[] = { inner, OUTER };
    e = (struct worker_evidence){ 0 };
    oom_find_cause(watches, 2, 1, &e);
    cr_expect_eq(e.oom, OOM_NONE);
    cr_expect_eq(e.kills, 0);
}

/* A full page cache also brings a control group (v1) to its memory limit. So a peak at the limit does not prove a lack
 * of memory. Here the kernel has counted no kill. */
Test(oom_find_cause, a_full_page_cache_is_no_cause)
{
    struct oom_watch cache = OUTER;
    cache.now.kills = 0;
    e = (struct worker_evidence){ 0 };
    oom_find_cause(&cache, 1, 0, &e);
    cr_expect_eq(e.oom, OOM_NONE);
}

Test(oom_find_cause, a_group_known_only_from_the_log_counts_by_that)
{
    struct oom_watch late = OUTER;
    late.late = true;
    late.now.kills = 7;
    e = (struct worker_evidence){ 0 };
    oom_find_cause(&late, 1, 0, &e);
    cr_expect_eq(e.oom, OOM_NONE, "its kills may be old");
    e = (struct worker_evidence){ .oom_named = true, .oom = OOM_CGROUP };
    oom_find_cause(&late, 1, 1, &e);
    cr_expect_str_eq(e.cgroup, "/job");
    cr_expect_eq(e.kills, 1);
    e = (struct worker_evidence){ .oom_named = true, .oom = OOM_CGROUP };
    oom_find_cause(NULL, 0, 1, &e);
    cr_expect_eq(e.cgroup[0], '(', "not a path: %s", e.cgroup);
}

/* --- the kernel's log ----------------------------------------------------------------------------------- */

static void read_line(const char *line, int pid)
{
    e = (struct worker_evidence){ 0 };
    kernel_log_line(slice_str(line), pid, &e);
}

Test(kernel_log, names_victims_of_the_oom_killer)
{
    read_line("3,1,2,-;Memory cgroup out of memory: Killed process 77 (train) total-vm:1kB", 77);
    cr_expect(e.oom_named);
    cr_expect_eq(e.oom, OOM_CGROUP);
    read_line("3,1,2,-;Out of memory: Killed process 77 (train)", 77);
    cr_expect_eq(e.oom, OOM_SYSTEM);
    read_line("3,1,2,-;Out of memory: Killed process 777 (train)", 77);
    cr_expect_not(e.oom_named);
    read_line("6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/job,task_memcg=/job/"
              "a,task=w,pid=77,uid=0",
              77);
    cr_expect_str_eq(e.cgroup, "/job");
}

Test(kernel_log, tells_address_and_library_of_a_crash)
{
    read_line("6,1,2,-;train[77]: segfault at 7fc7 ip 00007fc779f91a89 sp 0 error 4 in "
              "libc.so.6[152a89,7fc779e65000+156000] "
              "likely on CPU 0",
              77);
    cr_expect(e.fault_known);
    cr_expect_eq(e.fault, 0x7fc7);
    cr_expect_str_eq(e.object, "libc.so.6+0x152a89");
    read_line("train[77]: segfault at 0 ip 0000000000001010 sp 0 error 4 in train[1000+2000]", 77);
    cr_expect_str_eq(e.object, "train+0x10");
    read_line("train[77]: segfault at 0 ip 000000000040113a sp 0 error 4 in train[401000+1000] "
              "likely on CPU 3 (core 3, socket 0)",
              77);
    cr_expect_str_eq(e.object, "train+0x13a");
    read_line("traps: train[77] general protection fault ip:1010 sp:0 error:0 in train[1000+2000]", 77);
    cr_expect_not(e.fault_known);
    cr_expect_str_eq(e.object, "train+0x10");
    read_line("train[78]: segfault at 0 ip 0 sp 0 error 4 in train[1000+2000]", 77);
    cr_expect_not(e.fault_known);
}

/* Any process may write lines into the log. */
Test(kernel_log, cut_or_strange_lines_do_no_harm)
{
    const char *line =
        "[77]: segfault at 10 ip 20 sp 30 error 4 in x[1,2+3] oom_memcg=/a,pid=77, Killed process 77";
    for (size_t len = 0; len <= strlen(line); len++) {
        char *part = malloc(len + 1);
        memcpy(part, line, len);
        e = (struct worker_evidence){ 0 };
        kernel_log_line(slice_of(part, len), 77, &e);
        free(part);
    }
    read_line("[77]: segfault at zz in [", 77);
    cr_expect_not(e.fault_known);
    read_line("[77]: in a_name_that_is_longer_than_there_is_room_for_in_the_text_that_is_shown[1,2+3]", 77);
    cr_expect_str_eq(e.object, "");
}

/* --- core files ----------------------------------------------------------------------------------------- */

Test(coredump_glob, makes_a_pattern_of_a_pattern)
{
    static char glob[PATH_MAX];
    cr_expect(coredump_glob("core\n", false, 77, SIGSEGV, glob));
    cr_expect_str_eq(glob, "core");
    cr_expect(coredump_glob("core", true, 77, SIGSEGV, glob));
    cr_expect_str_eq(glob, "core.77");
    cr_expect(coredump_glob("/cores/%e.%p.%s-%t%%%", true, 77, SIGSEGV, glob));
    cr_expect_str_eq(glob, "/cores/*.77.11-*%");
    cr_expect(coredump_glob("a*b[", false, 77, SIGSEGV, glob));
    cr_expect_str_eq(glob, "a\\*b\\[");
    cr_expect_not(coredump_glob("|/usr/lib/systemd/systemd-coredump %P", false, 77, SIGSEGV, glob));
}

Test(coredump_fault, is_in_the_notes)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segment;
        Elf64_Nhdr note;
        char name[8];
        int siginfo[32];
    } core = { .header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB },
                           .e_type = ET_CORE,
                           .e_phoff = sizeof(Elf64_Ehdr),
                           .e_phnum = 1 },
               .segment = { .p_type = PT_NOTE, .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) },
               .note = { .n_namesz = 5, .n_descsz = 128, .n_type = NT_SIGINFO },
               .name = "CORE",
               .siginfo = { SIGSEGV, 0, SEGV_MAPERR, 0, 0x1238 } };
    uint64_t address = 0;
    core.segment.p_filesz = sizeof(core) - core.segment.p_offset;
    cr_expect(coredump_fault(slice_of(&core, sizeof(core)), &address));
    cr_expect_eq(address, 0x1238);
    core.siginfo[2] = SI_USER;
    cr_expect_not(coredump_fault(slice_of(&core, sizeof(core)), &address), "a process sent the signal");
    for (size_t len = 0; len < sizeof(core); len++) {
        uint8_t *part = malloc(len + 1);
        memcpy(part, &core, len);
        cr_expect_not(coredump_fault(slice_of(part, len), &address), "%zu", len);
        free(part);
    }
}

/* If kernel.core_pattern names a program, the kernel itself writes no core file. So the text must not blame a read-only
 * directory. */
Test(end_core, of_a_program_names_no_directory)
{
    static const struct agent_worker w = { .verdict = WORKER_FAILED, .signal = SIGSEGV, .pid = 77 };
    struct worker_evidence piped = { .coredump_kind = CORE_NOT_DUMPED, .core = "|/usr/bin/keep %P" };
    struct buf out = { 0 };
    cr_assert(end_core(&w, &piped, "train", &out) && buf_append(&out, "", 1));
    cr_expect_not_null(strstr((const char *)out.data, "'|/usr/bin/keep %P'"), "%s", (const char *)out.data);
    cr_expect_null(strstr((const char *)out.data, "directory"), "%s", (const char *)out.data);
    buf_free(&out);
}

/* --- mapped files --------------------------------------------------------------------------------------- */

/* The mapped file of a SIGBUS is unknown. */
Test(end_cause, names_no_disk_for_a_mapped_file)
{
    static const struct agent_worker bus = { .verdict = WORKER_FAILED, .signal = SIGBUS };
    for (int known = 0; known < 2; known++) {
        struct buf out = { 0 };
        e = (struct worker_evidence){ .shm_size = UINT64_C(8) << 30,
                                      .shm_free = UINT64_C(7) << 30,
                                      .fault_known = known == 1,
                                      .fault = 0x7000 };
        cr_assert(end_cause(&bus, &e, &out) && buf_append(&out, "", 1));
        const char *text = (const char *)out.data;
        cr_expect(strstr(text, "mapped file") && strstr(text, "full") == NULL, "%s", text);
        cr_expect_eq(strstr(text, "0x7000") != NULL, known == 1, "%s", text);
        buf_free(&out);
    }
}

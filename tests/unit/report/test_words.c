/* Tests of texts for users: sentences in which {words} are replaced, sizes, times, and hints that follow from the
 * last lines of a worker. This is the golden file of the hints, so each hint is compared word by word. */
#include "base/text.h"
#include "report/cause.c"
#include "tables/text.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(words, fill_gaps_and_leave_other_braces_alone)
{
    const struct word words[] = { { "who", "rank 2" }, { "none", NULL } };
    struct buf out = { 0 };
    cr_assert(words_fill(&out, "{who} {none}{unknown} {} { {who", words, 2));
    cr_assert(buf_append(&out, "", 1));
    cr_assert_str_eq((char *)out.data, "rank 2 {unknown} {} { {who");
    buf_free(&out);
}

Test(words, sizes_are_short_and_true)
{
    char text[SIZE_TEXT_MAX];
    cr_expect_str_eq(words_size(text, 0), "0 bytes");
    cr_expect_str_eq(words_size(text, 1023), "1023 bytes");
    cr_expect_str_eq(words_size(text, 64 << 20), "64 MiB");
    cr_expect_str_eq(words_size(text, UINT64_C(3) << 29), "1.5 GiB");
    cr_expect_str_eq(words_size(text, UINT64_MAX), "16 EiB");
}

Test(words, times_have_one_unit)
{
    char text[TEXT_MS_MAX];
    cr_expect_str_eq(text_ms(0, text), "0 ms");
    cr_expect_str_eq(text_ms(999, text), "999 ms");
    cr_expect_str_eq(text_ms(2500, text), "2.5 s");
    cr_expect_str_eq(text_ms(119999, text), "119.9 s");
    cr_expect_str_eq(text_ms(150000, text), "2.5 min");
    cr_expect_str_eq(text_ms(720 * 1000, text), "12 min");
    cr_expect_str_eq(text_ms(35999999, text), "599 min");
    cr_expect_str_eq(text_ms(UINT64_C(10) * 3600 * 1000, text), "10.0 h");
    cr_expect_str_eq(text_ms(UINT64_MAX, text), "5124095576030 h");
}

Test(words, the_calendar_knows_leap_years_and_places)
{
    char text[TIME_TEXT_MAX];
    cr_expect_str_eq(words_clock(text, 0, 0, true), "1970-01-01 00:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(951782399999), 0, true), "2000-02-28 23:59:59.999");
    cr_expect_str_eq(words_clock(text, UINT64_C(951782400000), 0, true), "2000-02-29 00:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(1704067200000), -3600, true), "2023-12-31 23:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(1704067200000), 19800, false), "05:30:00.000");
}

/* --- hints ---------------------------------------------------------------------------------------------- */

static const char *hint_with(const char *text, const struct hint_facts *facts)
{
    static struct buf out;
    out.len = 0;
    cr_assert(append_hint(find_hint(slice_str(text), facts), facts, &out) && buf_append(&out, "", 1));
    return (const char *)out.data;
}

static const char *hint(const char *text)
{
    return hint_with(text, &(struct hint_facts){ 0 });
}

/* A hint shows the value of each limit in parentheses. If a value is unknown, its parentheses are left out, too. */
Test(hints, show_the_limits_that_they_mention)
{
    static const struct worker_evidence limits = { .open_files = 1024,
                                                   .processes = 512,
                                                   .pids_max = 99,
                                                   .locked = 65536,
                                                   .group_limit = 64 << 20,
                                                   .group_used = 10 << 20,
                                                   .available = 5 << 20,
                                                   .commit_limit = 4 << 20,
                                                   .committed = 3 << 20,
                                                   .address_space = UINT64_MAX };
    const struct hint_facts facts = { .evidence = &limits };
    static const char *const texts[] = {
        "Too many open files",       "can't start new thread", "Resource temporarily unavailable",
        "Call to ibv_reg_mr failed", "Cannot allocate memory", "Cannot allocate memory",
        "Cannot allocate memory",    "Cannot allocate memory"
    };
    static const char *const shown[] = {
        "open files (1024) is",
        "'ulimit -u' (512) or pids.max of the cgroup (99)",
        "'ulimit -u' (512) or pids.max of the cgroup (99)",
        "locked memory (64 KiB) is",
        "cgroup (64 MiB, of which 10 MiB are in use), the limit of the address space with 'ulimit -v' "
        "(unlimited)",
        "'ulimit -l' (64 KiB)",
        "'free -h' (5 MiB are available), ",
        "vm.overcommit_memory=2 permits 4 MiB of memory, of which 3 MiB are reserved"
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cr_expect_not_null(strstr(hint_with(texts[i], &facts), shown[i]), "%s", hint_with(texts[i], &facts));
        cr_expect_null(strpbrk(hint(texts[i]), "{}("), "%s", hint(texts[i]));
    }
}

/* Only node n1 knows the values, so the hint of another node refers to the report on n1. */
Test(hints, of_another_node_name_the_report_with_the_values)
{
    const struct hint_facts facts = { .host = "n1" };
    static const char pointer[] = "; the report on n1 has the details";
    cr_expect(strstr(hint_with("Too many open files", &facts), pointer));
    cr_expect(strstr(hint_with("No space left on device", &facts), pointer));
    cr_expect(strstr(hint_with("CUDA out of memory", &facts), pointer));
    const struct hint_facts with_users = { .host = "n1", .has_gpu_users = true };
    cr_expect_null(strstr(hint_with("CUDA out of memory", &with_users), pointer),
                   "the report has the values");
    cr_expect_null(strstr(hint_with("Stale file handle", &facts), "n1"));
    cr_expect_null(strstr(hint("Too many open files"), "ddprun on"));
}

Test(hints, show_the_room_of_the_file_that_could_not_be_written)
{
    static const char *const errors[][2] = {
        { "x '/no'\nOSError: [Errno 28] No space left on device: '/data/a b.pt'\nbye", "/data/a b.pt" },
        { "OSError: [Errno 28] No space left on device: \"/data/it's.pt\"", "/data/it's.pt" },
        { "OSError: [Errno 28] No space left on device: 'rel/x' -> 'rel/y'", "rel/x" },
        { "OSError: [Errno 28] No space left on device: 'rel'", "rel" },
        { "cp: error writing '/data/a b.pt': No space left on device", "/data/a b.pt" },
        { "cp: error writing \342\200\230rel\342\200\231: No space left on device", "rel" },
        { "tar: /data/x: Cannot write: No space left on device", "/data/x" },
        { "/usr/bin/sort: write failed: /tmp/sort1: No space left on device\r", "/tmp/sort1" },
        { "/opt/train: out/x.bin: No space left on device (28)", "out/x.bin" },
        { "h5: errno = 28, error message = 'No space left on device', name = '/data/x.h5'", "/data/x.h5" },
        { "No space left on device (path=/data/x)", "/data/x" },
        { "/opt/train: write: No space left on device", "" },
        { "write error: No space left on device: 1 / 2 GiB", "" },
        { "No space left on device: '/cut", "" },
        { "'/data/x'\nNo space left on device", "" },
    };
    static struct full_disk full;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        cr_assert(hint_full_disk(slice_str(errors[i][0]), &full), "%s", errors[i][0]);
        cr_expect_str_eq(full.path, errors[i][1], "%s", errors[i][0]);
        cr_expect_not(full.is_quota);
    }
    cr_expect_not(hint_full_disk(slice_str("File '/data/x'"), &full));
    cr_expect_not(hint_full_disk(slice_of(NULL, 0), &full));
}

/* If the line names no path, the hint shows the free space of all likely places. If a quota is full, the hint shows no
 * free space, because the disk may still have free space. */
Test(hints, show_the_room_of_each_place)
{
    static struct full_disk full = { .n_rooms = 2,
                                     .rooms = { { .path = "/data", .bytes = 4096, .inodes = 7 },
                                                { .path = "/dev/shm", .bytes = 0, .inodes = UINT64_MAX } } };
    const struct hint_facts facts = { .full = &full };
    cr_expect_not_null(strstr(hint_with("No space left on device", &facts),
                              "full (/data: 4 KiB and 7 inodes free; /dev/shm: 0 bytes free): "));
    cr_assert(hint_full_disk(slice_str("cp: error writing '/d/x': Disk quota exceeded"), &full));
    cr_expect(full.is_quota);
    full.n_rooms = 0;
    cr_expect_not_null(strstr(hint_with("Disk quota exceeded", &facts), "used up (/d/x): "));
    snprintf(full.quota, sizeof(full.quota), " is on nfs4 of srv:/d");
    cr_expect_not_null(strstr(hint_with("Disk quota exceeded", &facts), "(/d/x is on nfs4 of srv:/d): "));
    full.path[0] = '\0';
    cr_expect_not_null(strstr(hint_with("Disk quota exceeded", &facts), "directory is on nfs4 of srv:/d): "));
}

Test(hints, about_data_loaders_have_the_memory_and_the_size_of_shm)
{
    static const char *const texts[] = { "Connection refused /multiprocessing/connection.py",
                                         "DataLoader worker (pid 7) is killed by signal: Bus error.",
                                         "DataLoader worker (pid 7) is killed by signal: Killed." };
    const struct worker_evidence e = {
        .shm_size = 64 << 20, .shm_free = 3 << 20, .available = 5 << 20, .group_limit = UINT64_MAX
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const char *known = hint_with(texts[i], &(struct hint_facts){ .evidence = &e });
        cr_expect(i == 2 || strstr(known, "/dev/shm (64 MiB, of which 3 MiB are free)"), "%s", known);
        cr_expect(i == 1 || strstr(known, " (5 MiB are available)"), "%s", known);
        cr_expect(i == 1 || strstr(known, " (unlimited)"), "%s", known);
        cr_expect_null(strpbrk(hint(texts[i]), "{}"), "%s", hint(texts[i]));
    }
}

Test(hints, know_what_users_meet)
{
    cr_expect(strstr(hint("train.py: error: unrecognized arguments: --local-rank=0\n"), "LOCAL_RANK"));
    cr_expect(strstr(hint("RuntimeError: [Errno 98] Address already in use"), "ss -ltnp"));
    cr_expect(strstr(hint("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried"), "nvidia-smi"));
    cr_expect(strstr(hint("write: No space left on device"), "/dev/shm"));
    cr_expect(strstr(hint("OSError: [Errno 24] Too many open files: 'x'"), "ulimit -n"));
    cr_expect(strstr(hint("CUDA error: invalid device ordinal"), "LOCAL_RANK"));
    cr_expect(strstr(hint("ibv_reg_mr_iova2 failed with error Cannot allocate memory"), "ulimit -l"));
    cr_expect(strstr(hint("env: 'python3\\r': No such file or directory"), "Windows"));
    cr_expect(strstr(hint("ModuleNotFoundError: No module named 'numpy'"),
                     "lacks the module in the error message"));
    cr_expect_str_eq(hint("all is well"), "");
    cr_expect_str_eq(hint(""), "");
    struct buf out = { 0 };
    const struct hint_facts none = { 0 };
    cr_expect(append_hint(find_hint(slice_of(NULL, 0), &none), &none, &out));
    cr_expect_eq(out.len, 0);
}

/* The messages are from PyTorch 1.13 without CUDA, from 2.x with CUDA, and from NCCL. */
Test(hints, without_a_gpu_a_program_that_wants_nccl_is_told_of_gloo)
{
    static const char *const texts[] = {
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: nccl2 requires at least one CUDA device",
        "AssertionError: Torch not compiled with CUDA enabled",
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:1269, unhandled cuda error",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const char *without = hint_with(texts[i], &(struct hint_facts){ .no_gpu = true });
        cr_expect(strstr(without, "no GPU") && strstr(without, "init_process_group('gloo')"), "%s", texts[i]);
        cr_expect_null(strstr(hint(texts[i]), "this machine has no GPU"), "%s", texts[i]);
    }
}

Test(hints, a_failed_import_names_the_python)
{
    const struct hint_facts facts = { .python = "/opt/venv/bin/python3" };
    cr_expect(strstr(hint_with("ModuleNotFoundError: No module named 'numpy'", &facts),
                     "/opt/venv/bin/python3, which ran the program, lacks the module in the error message"));
    cr_expect(
        strstr(hint_with("ImportError: cannot import name 'x' from 'y'", &facts), "/opt/venv/bin/python3"));
}

Test(hints, no_option_is_repeated)
{
    static const char libuv[] = "use_libuv was requested but PyTorch was build without libuv support",
                      in_use[] = "[Errno 98] Address already in use", refused[] = "Connection refused";
    cr_expect(strstr(hint(libuv), "--torch_store=rank0"));
    cr_expect_str_eq(hint_with(libuv, &(struct hint_facts){ .rank0_store = true }), "");
    cr_expect(strstr(hint(in_use), "--standalone"));
    const char *alone = hint_with(in_use, &(struct hint_facts){ .standalone = true });
    cr_expect(strstr(alone, "ss -ltnp") && strstr(alone, "--standalone") == NULL, "%s", alone);
    cr_expect(strstr(hint(refused), "GLOO_SOCKET_IFNAME=eth0"));
    cr_expect_null(strstr(hint_with(refused, &(struct hint_facts){ .gloo_interface = true }),
                          "GLOO_SOCKET_IFNAME=eth0"));
}

/* The rank read a tensor from a loader that had died. PyTorch's own message about the loader comes too late, or
 * never. */
Test(hints, a_dead_data_loader_is_named_when_python_speaks_of_a_connection)
{
    static const char trace[] =
        "  File \"/usr/lib/python3.11/multiprocessing/connection.py\", line 378, in _recv\n"
        "    chunk = read(handle, remaining)\n"
        "ConnectionResetError: [Errno 104] Connection reset by peer\n",
                      lost[] = "object type name: ConnectionResetError\n"
                               "object repr     : ConnectionResetError(104, 'Connection reset by peer')\n"
                               "lost sys.stderr\n";
    cr_expect(strstr(hint(trace), "DataLoader worker"), "%s", hint(trace));
    cr_expect(strstr(hint(lost), "DataLoader worker"), "%s", hint(lost));
    cr_expect_null(strstr(hint("pair.cc: Connection reset by peer"), "DataLoader"));
}

/* The script hides the package of the same name. Python's message does not show this, because no module is missing. */
Test(hints, a_script_with_the_name_of_a_package_hides_it)
{
    cr_expect(
        strstr(hint("ModuleNotFoundError: No module named 'torch.distributed'; 'torch' is not a package"),
               "rename the file"));
    cr_expect(strstr(hint("AttributeError: partially initialized module 'torch' has no attribute 'nn' (most "
                          "likely due to a circular import)"),
                     "rename the file"));
}

Test(hints, the_last_words_count)
{
    const char *text = "Connection refused, trying again\nCUDA out of memory\ndone\n";
    cr_expect(strstr(hint(text), "GPU"));
    cr_expect(strstr(hint("terminate called without an active exception"), "destroy_process_group()"));
    cr_expect(strstr(hint("unrecognized arguments: --local-rank=1"), "--pass_local_rank"),
              "the longer piece wins");
}

Test(hints, know_who_has_lost_a_rank)
{
    static const char gloo[] = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] ";
    char text[300];
    snprintf(text, sizeof(text), "%sConnection closed by peer [127.0.0.1]:400. This is typically\n", gloo);
    cr_expect(hint_is_of_lost_rank(slice_str(text)));
    snprintf(text, sizeof(text), "%sRead error [10.0.0.1]:7: Connection reset by peer\nbye\n", gloo);
    cr_expect(hint_is_of_lost_rank(slice_str(text)));
    cr_expect(
        hint_is_of_lost_rank(slice_str("ncclRemoteError: A call failed possibly due to a network error")));
    snprintf(text, sizeof(text), "%sTimed out waiting 5000ms for recv operation to complete\n", gloo);
    cr_expect_not(hint_is_of_lost_rank(slice_str(text)), "who is late may be anybody");
    snprintf(text, sizeof(text), "%sConnection closed by peer [::1]:4\nOSError: No space left on device\n",
             gloo);
    cr_expect_not(hint_is_of_lost_rank(slice_str(text)), "it has another reason");
    cr_expect_not(hint_is_of_lost_rank(slice_str("urllib: [Errno 104] Connection reset by peer")));
    cr_expect_not(hint_is_of_lost_rank(slice_of(NULL, 0)));
}

#define BACK "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    import x\n"

static uint64_t import_error(const char *text)
{
    return hint_import_error(slice_str(text));
}

Test(hints, know_an_import_error_by_the_last_traceback)
{
    const uint64_t no_x = import_error(BACK "ModuleNotFoundError: No module named 'x'\n");
    cr_expect_neq(no_x, 0);
    cr_expect_eq(import_error("rank 3\n" BACK "ModuleNotFoundError: No module named 'x'\n"), no_x);
    cr_expect_eq(import_error(BACK "ModuleNotFoundError: No module named 'x'\nbye\n"), no_x, "words at exit");
    cr_expect_neq(import_error(BACK "ModuleNotFoundError: No module named 'y'\n"), no_x);
    cr_expect_neq(import_error(BACK "ImportError: cannot import name 'z' from 'x'"), 0);
    cr_expect_neq(import_error("  File \"t.py\", line 2\n    a b\n      ^\nSyntaxError: invalid syntax\n"),
                  0);
    cr_expect_neq(import_error("  File \"t.py\", line 2\n    a\nIndentationError: unexpected indent\n"), 0);
    cr_expect_neq(import_error("/usr/bin/python3: No module named x\n"), 0, "-m x");
}

Test(hints, know_what_is_no_import_error)
{
    cr_expect_eq(import_error(""), 0);
    cr_expect_eq(import_error(BACK "ValueError: seven\n"), 0);
    cr_expect_eq(import_error(BACK "ImportError: x\n\nDuring handling of the above exception:\n\n" BACK
                                   "ValueError: 7\n"),
                 0, "the last exception counts");
    cr_expect_eq(import_error("ImportError: x is slow without it\n"), 0, "a warning");
    cr_expect_eq(import_error("warning: No module named x\nSegmentation fault\n"), 0);
}

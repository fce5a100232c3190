/* Tests of error texts with limits and values. A limit is the usual cause of such an error, and the text of errno
 * names no limit. */
#include "base/limits.h"
#include "ddp/error.h"
#include "run.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The file system "proc" has no quota. */
Test(limits, file_system_of_a_descriptor)
{
    char text[QUOTA_SHOWN];
    const int fd = open("/proc", O_PATH | O_CLOEXEC);
    quota_text(fd, text);
    close(fd);
    cr_expect(strncmp(text, " is on proc of ", 15) == 0 && strstr(text, "where") == NULL, "%s", text);
    quota_text(-1, text);
    cr_expect_str_eq(text, "");
}

/* The file system "proc" has no free bytes, no inodes and no quota. */
Test(limits, an_error_of_a_write_has_the_values_of_the_file_system)
{
    static const struct {
        int error;
        const char *path, *text;
    } cases[] = {
        { ENOSPC, "/proc", " (0 bytes free)" },
        { ENOSPC, "/proc/no-file", " (0 bytes free)" },
        { ENOSPC, "/dev/full", "" },
        { ENOSPC, "/proc/no-folder/no-file", " (0 bytes free)" },
        { ENOSPC, "", "" },
        { EACCES, "/proc", "" },
    };
    char text[WRITE_ERROR_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = strerror(cases[i].error);
        path_error_text(cases[i].error, cases[i].path, NULL, text);
        cr_expect(strncmp(text, why, strlen(why)) == 0, "%s", text);
        cr_expect_str_eq(text + strlen(why), cases[i].text);
    }
    write_error_text(EDQUOT, "/proc", text);
    cr_expect_not_null(strstr(text, " is on proc of "), "%s", text);
    for (int relative = 0; relative < 2; relative++) {
        write_error_text(ENOSPC, relative ? "no-file" : "/", text);
        cr_expect(strstr(text, " free)") != NULL, "%s", text);
        cr_expect(strstr(text, " and ") == NULL || strstr(text, " inodes free)") != NULL, "%s", text);
    }
}

/* Return the part of an error text that follows the reason. This part has the remedies. Return "" if the text has no
 * remedy. */
static const char *remedies(int error, const char *path, const char *other)
{
    static char text[WRITE_ERROR_MAX];
    const char *at = strstr(path_error_text(error, path, other, text), "; ");
    return at != NULL ? at + 2 : "";
}

/* If an error has a general remedy, this is the only remedy, because another path does not help. For other errors, the
 * text also has the caller's remedy. */
Test(limits, an_error_of_a_file_has_a_remedy)
{
    static const int of_path[] = { ENOSPC, EDQUOT, EROFS }, general[] = { EMFILE, ENFILE, ENOMEM, EFBIG };
    const struct rlimit small = { 8192, 8192 };
    char text[WRITE_ERROR_MAX];
    cr_expect_str_eq(remedies(EIO, "/", "OTHER"), "OTHER");
    cr_expect_str_eq(remedies(EFBIG, "/", "OTHER"), "OTHER", "a limit of the file system");
    cr_expect_str_eq(remedies(EIO, "/", ""), "");
    cr_expect_str_eq(remedies(ENOSPC, "/dev/full", "OTHER"), "OTHER", "a device has no files to delete");
    for (size_t i = 0; i < sizeof(of_path) / sizeof(of_path[0]); i++) {
        const char *both = remedies(of_path[i], "/", "OTHER"), *at = strstr(both, ", or OTHER");
        cr_expect(at > both && strcmp(at, ", or OTHER") == 0, "%s", both);
        const char *own = remedies(of_path[i], "/", "");
        cr_expect(own[0] != '\0' && strchr(own, ',') == NULL, "%s", own);
    }
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (size_t i = 0; i < sizeof(general) / sizeof(general[0]); i++) {
        const char *own = remedies(general[i], "/", "OTHER");
        cr_expect(own[0] != '\0' && strstr(own, "OTHER") == NULL, "%s", own);
    }
    cr_expect_not_null(strstr(remedies(EFBIG, "/", ""), " 8192 "));
    cr_expect_not_null(strstr(write_error_text(ENOENT, "/no/x", text), "; "), "%s", text);
    cr_expect_null(strstr(write_error_text(EPIPE, "/proc/self/fd/1", text), "; "), "%s", text);
    if (geteuid() != 0 || seteuid(1234) == 0)
        cr_expect_not_null(strstr(remedies(EACCES, "/", ""), geteuid() == 1234 ? " 1234 " : " user "));
}

/* If memory is short, the text gets one remedy. A text that already has a remedy stays unchanged. */
Test(limits, an_error_of_memory_has_a_remedy)
{
    static const struct {
        ddp_status code;
        const char *what, *end, *remedy; /* parts of the text, and the remedy that is appended */
    } cases[] = {
        { DDP_ERR_NOMEM, "memory", "", MEMORY_REMEDY },
        { DDP_ERR_NOMEM, "memory", "; y", "" },
        { DDP_ERR_NOMEM, "room", "", "" },
        { DDP_ERR_IO, "memory", "", "" },
    };
    struct ddp_err err;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        const int n = snprintf(text, sizeof(text), "out of %s%s", cases[i].what, cases[i].end);
        ddp_fail(&err, cases[i].code, "%s", text);
        cr_expect(strncmp(err.msg, text, (size_t)n) == 0 && strcmp(err.msg + n, cases[i].remedy) == 0, "%s",
                  err.msg);
    }
}

Test(limits, an_error_of_fork_has_the_limits_of_processes)
{
    char text[FORK_ERROR_MAX];
    const struct rlimit few = { 321, 321 };
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &few), 0);
    fork_error_text(EAGAIN, text);
    cr_expect(strstr(text, "(ulimit -u 321; ") && strstr(text, " load "), "%s", text);
    cr_expect_str_eq(fork_error_text(EPERM, text), strerror(EPERM));
}

Test(limits, an_error_of_shared_memory_has_the_limits_of_memory)
{
    char text[MEMORY_ERROR_MAX];
    const struct rlimit small = { 8192, 8192 };
    memory_error_text(ENOMEM, text);
    cr_expect(strstr(text, "(ulimit -v ") && strstr(text, "iB available"), "%s", text);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    cr_expect_not_null(strstr(text, MEMORY_REMEDY), "%s", text);
    cr_expect_not_null(strstr(memory_error_text(EFBIG, text), " 8192 bytes"), "%s", text);
    cr_expect_str_eq(memory_error_text(EPERM, text), strerror(EPERM));
}

/* Write the path of a control group for the test process `pid` to `path`. Return true if the controller is in version 1
 * of control groups, and false for version 2. */
static bool name_group(char path[256], const char *controller, pid_t pid)
{
    char v1[64];
    snprintf(v1, sizeof(v1), "/sys/fs/cgroup/%s", controller);
    const bool is_v1 = access(v1, F_OK) == 0;
    snprintf(path, 256, "%s/ddprun-test-%d", is_v1 ? v1 : "/sys/fs/cgroup", (int)pid);
    return is_v1;
}

static bool write_in(const char *path, const char *name, const char *text)
{
    char file[320];
    snprintf(file, sizeof(file), "%s/%s", path, name);
    FILE *f = fopen(file, "we");
    const bool ok = f != NULL && fputs(text, f) >= 0;
    return f != NULL && fclose(f) == 0 && ok;
}

/* Return true if a limit of this process is already lower than the test's limit. `text` is an error text that names the
 * lowest limit of the process's groups. */
static bool has_lower_limit(const char *text, bool is_memory)
{
    double value;
    char unit = '\0';
    const char *at = strstr(text, is_memory ? "memory.max " : "pids.max ");
    if (at == NULL || sscanf(strchr(at, ' '), "%lf %c", &value, &unit) < 1)
        return false;
    return is_memory ? unit == 'b' || unit == 'K' || (unit == 'M' && value < 768) : value < 777;
}

/* Move this process into a new group with a limit. Exit with code 0 if the error text then names this limit (`words`),
 * else with code 1. Exit with code 77 if this user cannot create such a group or already has a lower limit. */
static void exit_in_group(const char *controller, const char *v1, const char *v2, const char *limit,
                          const char *words)
{
    char path[256], text[MEMORY_ERROR_MAX];
    const bool is_v1 = name_group(path, controller, getpid()), is_memory = controller[0] == 'm';
    const char *before = is_memory ? memory_error_text(ENOMEM, text) : fork_error_text(EAGAIN, text);
    if (has_lower_limit(before, is_memory) || mkdir(path, 0755) != 0 ||
        !write_in(path, is_v1 ? v1 : v2, limit) || !write_in(path, "cgroup.procs", "0"))
        _exit(77);
    _exit(strstr(is_memory ? memory_error_text(ENOMEM, text) : fork_error_text(EAGAIN, text), words) == NULL);
}

/* A control group cannot be removed while a process is in it. So a child enters the group, and this process removes the
 * group after the child has ended. */
Test(limits, those_of_the_control_group_are_read)
{
    int skipped = 0;
    for (int memory = 0; memory < 2; memory++) {
        char path[256];
        int status;
        const pid_t child = fork();
        if (child == 0 && memory)
            exit_in_group("memory", "memory.limit_in_bytes", "memory.max", "805306368",
                          "; memory.max 768 MiB; ");
        if (child == 0)
            exit_in_group("pids", "pids.max", "pids.max", "777", "; pids.max 777; ");
        cr_assert_eq(waitpid(child, &status, 0), child);
        name_group(path, memory ? "memory" : "pids", child);
        for (struct patience p = { 0 }; rmdir(path) != 0 && errno == EBUSY && patience_left(&p);)
            continue;
        skipped += WEXITSTATUS(status) == 77;
        cr_expect(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77), "%x", status);
    }
    if (skipped == 2)
        cr_skip_test(
            "skipped, because this user cannot create a control group with a limit, or has a lower limit");
}

Test(limits, an_error_of_an_open_has_the_limit_of_open_files)
{
    char text[WRITE_ERROR_MAX];
    const struct rlimit few = { 123, 123 };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    write_error_text(EMFILE, "/proc", text);
    cr_expect_not_null(strstr(text, "123 open files"), "%s", text);
}

/* A file name may contain a semicolon. The name must not replace the remedy, which ddp_fail appends. */
Test(limits, an_error_without_memory_has_one_remedy)
{
    struct ddp_err err;
    ddp_fail(&err, DDP_ERR_NOMEM, "%s: %s of %s", "a; b", "out", "memory");
    cr_expect_not_null(strstr(err.msg, MEMORY_REMEDY), "%s", err.msg);
    ddp_fail(&err, DDP_ERR_NOMEM, "%s: %s of %s; wait", "a", "out", "memory");
    cr_expect_null(strstr(err.msg, MEMORY_REMEDY), "%s", err.msg);
}

/* A path may be longer than the text of an error. */
Test(limits, a_long_error_keeps_its_object_and_its_remedy)
{
    struct ddp_err err;
    char path[4096];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    for (int wrapped = 0; wrapped <= 1; wrapped++) {
        ddp_fail(&err, DDP_ERR_IO, "%s%s: EIO; retry", wrapped ? "" : "object ", path);
        if (wrapped)
            ddp_wrap(&err, "object %.500s", path);
        cr_expect_eq(strlen(err.msg), sizeof(err.msg) - 1);
        cr_expect_eq(strncmp(err.msg, "object xx", 9), 0, "%s", err.msg);
        cr_expect_not_null(strstr(err.msg, "...xx"), "%s", err.msg);
        cr_expect_str_eq(err.msg + strlen(err.msg) - 12, ": EIO; retry");
    }
    ddp_fail(&err, DDP_ERR_NOMEM, "%s: %s of %s", path, "out", "memory");
    cr_expect_str_eq(err.msg + strlen(err.msg) - strlen(MEMORY_REMEDY), MEMORY_REMEDY);
}

Test(limits, a_long_error_is_cut_between_characters)
{
    struct ddp_err err;
    char path[4001];
    for (int i = 0; i < 2000; i++)
        memcpy(path + 2 * i, "\303\251", 3); /* an e with an accent */
    for (int i = 0; i <= 1; i++) {
        ddp_fail(&err, DDP_ERR_IO, "%s%s%s", i == 0 ? "" : "a", path, i == 0 ? "!" : "");
        const char *cut = strstr(err.msg, "...");
        cr_assert(cut != NULL && cut > err.msg, "%s", err.msg);
        cr_expect_eq((unsigned char)cut[-1], 0251, "%s", err.msg);
        cr_expect_eq((unsigned char)cut[3], 0303, "%s", err.msg);
    }
    memset(path, 0251, sizeof(path) - 1); /* not UTF-8: no byte begins a character */
    ddp_fail(&err, DDP_ERR_IO, "%s", path);
    const char *cut = strstr(err.msg, "...");
    cr_expect(cut != NULL && cut - err.msg > 200 && strlen(cut) > 200, "%zu bytes", strlen(err.msg));
}

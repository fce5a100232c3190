/* Errors with the limits and the values that explain them. */
#include "base/limits.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
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
        write_error_text(cases[i].error, cases[i].path, text);
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

Test(limits, an_error_of_an_open_has_the_limit_of_open_files)
{
    char text[WRITE_ERROR_MAX];
    const struct rlimit few = { 123, 123 };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    write_error_text(EMFILE, "/proc", text);
    cr_expect_not_null(strstr(text, "limit of 123 open files"), "%s", text);
}

/* Tests of the reason why py-spy may not read a process, for each value of kernel.yama.ptrace_scope. Each value
 * needs another remedy, and a container usually cannot change the value. */
#include "contain/threads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char note[STACK_NOTE_MAX];
static bool by_py_spy = true;

/* Return the reason why a process cannot be read with this value of ptrace_scope. `scope` is NULL if the kernel has no
 * Yama. */
static const char *explained(const char *scope, bool is_child)
{
    char path[] = "/tmp/ddprun-test-XXXXXX";
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert(scope == NULL || write(fd, scope, strlen(scope)) == (ssize_t)strlen(scope));
    close(fd);
    if (scope == NULL)
        unlink(path);
    threads_explain_ptrace(path, by_py_spy, is_child, note);
    unlink(path);
    return note;
}

static void expect(const char *scope, bool is_child, const char *cause, const char *remedy)
{
    const char *text = explained(scope, is_child);
    cr_expect(strstr(text, cause) != NULL && strstr(text, remedy) != NULL, "'%s', '%s' are not in: %s", cause,
              remedy, text);
}

Test(ptrace_scope, names_the_scope_that_forbids_reading)
{
    expect("2\n", false, "ptrace_scope is 2", "'sysctl kernel.yama.ptrace_scope=1'");
    expect("2\n", true, "ptrace_scope is 2", "'sysctl kernel.yama.ptrace_scope=1'");
    expect("1\n", true, "ptrace_scope is 1", "'sysctl kernel.yama.ptrace_scope=0'");
}

/* A running kernel cannot leave scope 3. */
Test(ptrace_scope, scope_3_needs_a_boot)
{
    expect("3\n", false, "ptrace_scope is 3", "reboot");
    expect("3\n", true, "ptrace_scope is 3", "reboot");
}

Test(ptrace_scope, names_the_capability_if_no_scope_forbids_reading)
{
    static const char *const scopes[] = { NULL, "", "0\n", "1\n" };
    for (size_t i = 0; i < sizeof(scopes) / sizeof(scopes[0]); i++) {
        expect(scopes[i], false, "CAP_SYS_PTRACE", "container");
        cr_expect_null(strstr(note, "ptrace_scope"), "%s", note);
    }
    expect("0\n", true, "CAP_SYS_PTRACE", "container");
}

/* py-spy reads only Python programs. So the note about another program must not name py-spy. */
Test(ptrace_scope, of_a_program_without_python_does_not_name_py_spy)
{
    by_py_spy = false;
    expect("2\n", false, "ptrace_scope is 2", "'sysctl kernel.yama.ptrace_scope=1'");
    cr_expect_null(strstr(note, "py-spy"), "%s", note);
    expect("0\n", true, "CAP_SYS_PTRACE", "container");
    cr_expect_null(strstr(note, "py-spy"), "%s", note);
}

/* Why a program could not be started, and what helps, in words. */
#include "report/spawn_error.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>

static struct program_look look;
static struct buf text;

static const char *say(bool (*what)(const struct start_failure *f, struct buf *out), int error,
                       const char *program)
{
    const struct start_failure f = {
        .error = error, .program = program, .path = "/usr/bin:/bin", .look = &look
    };
    text.len = 0;
    cr_assert(what(&f, &text) && buf_append(&text, "", 1));
    return (const char *)text.data;
}

static void expect(int error, const char *cause, const char *remedy)
{
    cr_expect_str_eq(say(start_cause, error, "./train"), cause);
    cr_expect_str_eq(say(start_remedy, error, "./train"), remedy);
}

static void set(struct program_look now)
{
    look = now;
    memcpy(look.path, "./train", 8);
}

static void forget(void)
{
    buf_free(&text);
}

TestSuite(start_words, .fini = forget);

Test(start_words, of_a_name_that_no_directory_has)
{
    cr_expect_str_eq(say(start_cause, ENOENT, "train"), "train: not found in PATH (/usr/bin:/bin)");
    cr_expect_str_eq(
        say(start_remedy, ENOENT, "train"),
        "a program in this directory is written ./train; a Python script without .py at its end runs "
        "as python3 -u train");
    cr_expect_str_eq(say(start_remedy, EACCES, "train"),
                     "chmod +x the one that is meant, or name it with its directory");
}

Test(start_words, of_a_path_that_is_not_there_or_no_file)
{
    set((struct program_look){ .kind = PATH_MISSING });
    expect(ENOENT, "./train: no such file",
           "check the path, and that the file system with it is mounted here");
    set((struct program_look){ .kind = PATH_MISSING, .near = "./trein" });
    expect(ENOENT, "./train: no such file", "did you mean ./trein?");
    set((struct program_look){ .kind = PATH_DIRECTORY });
    expect(EACCES, "./train is a directory, not a program",
           "a package of Python's runs as python3 -u ./train");
    set((struct program_look){ .kind = PATH_NO_X });
    expect(EACCES, "./train is not executable",
           "chmod +x ./train; a Python script runs without that as python3 -u ./train");
    set((struct program_look){ .kind = PATH_EXECUTABLE, .noexec = true });
    expect(EACCES, "./train is on a file system that is mounted noexec",
           "copy it elsewhere, or mount -o remount,exec that file system");
    set((struct program_look){ .kind = PATH_UNKNOWN, .locked = "/data/locked" });
    expect(EACCES, "./train: the directory /data/locked may not be entered",
           "chmod +x /data/locked, or run as a user who may");
}

Test(start_words, of_a_script_whose_interpreter_is_not_there)
{
    set((struct program_look){ .kind = PATH_EXECUTABLE, .interpreter = "/bin/sh", .carriage_return = true });
    expect(
        ELIBACC,
        "the first line of ./train ends in \\r\\n, so its interpreter is '/bin/sh\\r', which does not exist",
        "give it Unix line ends: sed -i 's/\\r$//' ./train");
    set((struct program_look){ .kind = PATH_EXECUTABLE, .interpreter = "/no/sh" });
    expect(ELIBACC, "./train is there, but its interpreter '/no/sh' (its first line) is not",
           "install the interpreter, or correct the first line");
    set((struct program_look){ .kind = PATH_EXECUTABLE, .interpreter = "/etc", .helper = PATH_DIRECTORY });
    expect(EACCES, "./train: its interpreter '/etc' (its first line) is a directory",
           "correct the first line");
}

Test(start_words, of_a_program_for_another_machine)
{
    set((struct program_look){ .kind = PATH_EXECUTABLE,
                               .elf = { .kind = ELF_MACHINE,
                                        .machine = EM_AARCH64,
                                        .bits = 64,
                                        .our_machine = EM_X86_64,
                                        .our_bits = 64 } });
    expect(ENOEXEC, "./train was built for aarch64, this machine is x86-64", "build it for x86-64");
    look.elf = (struct elf_look){ .kind = ELF_RUNS, .interpreter = "/lib/ld-musl-x86_64.so.1" };
    expect(ELIBACC,
           "./train is there, but the loader '/lib/ld-musl-x86_64.so.1' that it needs is not: it was built "
           "for another system",
           "build it on this system, or install the C library that it was built with");
    look.elf = (struct elf_look){ .kind = ELF_CUT };
    expect(ENOEXEC, "./train is damaged: the program ends within its own header", "build or copy it again");
    set((struct program_look){ .kind = PATH_EXECUTABLE, .empty = true });
    expect(ENOEXEC, "./train is an empty file", "build or copy it again");
    set((struct program_look){ .kind = PATH_EXECUTABLE });
    expect(ENOEXEC, "./train is nothing that this machine can execute: neither a program nor a script",
           "a script needs a first line like #!/bin/sh; one of Python's runs without as python3 -u ./train");
}

Test(start_words, of_a_system_without_room)
{
    set((struct program_look){ .kind = PATH_EXECUTABLE, .processes_max = 100 });
    expect(
        EAGAIN, "./train: the system has no room for another process (Resource temporarily unavailable)",
        "the user's limit is 100 processes and threads (ulimit -u); a cgroup may limit them too (pids.max)");
    expect(ETXTBSY, "./train is open for writing: somebody builds or copies it at this moment",
           "wait for that, or find who: fuser -v ./train");
    expect(ELOOP, "./train: Too many levels of symbolic links", "");
}

/* Tests of the code that reads the first bytes of a program to find why the program could not be started. The
 * kernel's error gives only a number, so the reason must come from the file. */
#include "report/spawn_error.c"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static struct program_file seen;
static struct worker_evidence limits;
static struct buf sentence;

static const char *say(bool (*what)(const struct start_failure *f, struct buf *out), int error,
                       const char *program)
{
    const struct start_failure f = {
        .error = error, .program = program, .path = "/usr/bin:/bin", .file = &seen, .limits = &limits
    };
    sentence.len = 0;
    cr_assert(what(&f, &sentence) && buf_append(&sentence, "", 1));
    return (const char *)sentence.data;
}

static void expect(int error, const char *cause, const char *remedy)
{
    cr_expect_str_eq(say(start_cause, error, "./train"), cause);
    cr_expect_str_eq(say(start_remedy, error, "./train"), remedy);
}

static void set(struct program_file now)
{
    seen = now;
    memcpy(seen.path, "./train", 8);
}

static void forget(void)
{
    buf_free(&sentence);
}

TestSuite(start_words, .fini = forget);

Test(start_words, of_a_name_that_no_directory_has)
{
    cr_expect_str_eq(say(start_cause, ENOENT, "train"), "train: not found in PATH (/usr/bin:/bin)");
    cr_expect_str_eq(say(start_remedy, ENOENT, "train"),
                     "to run a program in this directory, write './train'; to run a Python script without "
                     ".py in its name, write 'python3 -u train'");
    cr_expect_str_eq(say(start_remedy, EACCES, "train"),
                     "run 'chmod +x' on the file, or start ddprun with the path of an executable train");
    cr_expect_str_eq(say(start_cause, EACCES, "."), ". is a directory, not a program");
    cr_expect_str_eq(say(start_remedy, EACCES, ".."), "to run a Python package, write 'python3 -u ..'");
}

Test(start_words, of_a_path_that_is_not_there_or_no_file)
{
    set((struct program_file){ .kind = PATH_MISSING });
    expect(ENOENT, "./train: no such file",
           "check the path, and whether its file system is mounted on this host");
    set((struct program_file){ .kind = PATH_MISSING, .near = "./trein" });
    expect(ENOENT, "./train: no such file", "did you mean ./trein?");
    set((struct program_file){ .kind = PATH_DIRECTORY });
    expect(EACCES, "./train is a directory, not a program",
           "to run a Python package, write 'python3 -u ./train'");
    set((struct program_file){ .kind = PATH_NO_X });
    expect(EACCES, "./train is not executable",
           "run 'chmod +x ./train'; for a Python script, run 'python3 -u ./train' instead");
    set((struct program_file){ .kind = PATH_EXECUTABLE, .noexec = true });
    expect(
        EACCES, "./train is on a file system that is mounted noexec",
        "copy the program to another file system, or allow execution: 'mount -o remount,exec MOUNT_POINT'");
    set((struct program_file){ .kind = PATH_UNKNOWN, .locked = "/data/locked" });
    expect(EACCES, "./train: no permission to enter the directory /data/locked",
           "run 'chmod +x /data/locked', or start ddprun as a user with this permission");
}

Test(start_words, of_a_script_whose_interpreter_is_not_there)
{
    set((struct program_file){ .kind = PATH_EXECUTABLE, .interpreter = "/bin/sh", .carriage_return = true });
    expect(
        ELIBACC,
        "the first line of ./train ends in \\r\\n, so its interpreter is '/bin/sh\\r', which does not exist",
        "convert the file to Unix line ends: sed -i 's/\\r$//' ./train");
    set((struct program_file){ .kind = PATH_EXECUTABLE, .interpreter = "/no/sh" });
    expect(ELIBACC, "./train exists, but the interpreter in its first line, '/no/sh', does not exist",
           "install the interpreter, or correct the first line");
    set((struct program_file){ .kind = PATH_EXECUTABLE, .interpreter = "/etc", .helper = PATH_DIRECTORY });
    expect(EACCES, "./train: the interpreter in its first line, '/etc', is a directory",
           "correct the first line");
}

Test(start_words, of_a_program_for_another_machine)
{
    set((struct program_file){ .kind = PATH_EXECUTABLE,
                               .elf = { .kind = ELF_MACHINE,
                                        .machine = EM_AARCH64,
                                        .bits = 64,
                                        .our_machine = EM_X86_64,
                                        .our_bits = 64 } });
    expect(ENOEXEC, "./train was built for aarch64, but this machine is x86-64", "build it for x86-64");
    seen.elf = (struct elf_facts){ .kind = ELF_RUNS, .interpreter = "/lib/ld-musl-x86_64.so.1" };
    expect(ELIBACC,
           "./train exists, but its loader '/lib/ld-musl-x86_64.so.1' does not exist: ./train was built for "
           "another system",
           "build the program on this system, or install the C library with which the program was built");
    seen.elf = (struct elf_facts){ .kind = ELF_CUT };
    expect(ENOEXEC, "./train is damaged: the file ends within its header", "build or copy it again");
    set((struct program_file){ .kind = PATH_EXECUTABLE, .empty = true });
    expect(ENOEXEC, "./train is an empty file", "build or copy it again");
    set((struct program_file){ .kind = PATH_EXECUTABLE });
    expect(ENOEXEC, "./train: this machine cannot execute the file, which is neither a program nor a script",
           "for a shell script, add a first line such as #!/bin/sh; for a Python script, run 'python3 -u "
           "./train'");
}

Test(start_words, of_a_system_without_room)
{
    set((struct program_file){ .kind = PATH_EXECUTABLE });
    limits = (struct worker_evidence){
        .processes = UINT64_MAX, .pids_max = 99, .open_files = 1024, .stack = 8 << 20
    };
    expect(
        EAGAIN, "./train: the system cannot create another process (Resource temporarily unavailable)",
        "raise the limit for processes and threads: 'ulimit -u' (unlimited) or pids.max of the cgroup (99)");
    expect(
        EMFILE,
        "./train: ddprun has no file descriptors left for the output of this program (Too many open files)",
        "raise 'ulimit -n' (1024)");
    expect(E2BIG, "the arguments and the environment of ./train are too long for the system",
           "use fewer or shorter arguments and environment variables, or raise the stack limit, which also "
           "limits "
           "these: 'ulimit -s' (8 MiB)");
    expect(ETXTBSY, "./train is open for writing: another process is still building or copying the program",
           "wait until that process is done, or find the process with 'fuser -v ./train'");
    expect(ELOOP, "./train: Too many levels of symbolic links", "");
    expect(ENOMEM, "./train: no memory is left for another process (Cannot allocate memory)",
           "end other programs to free memory, raise the memory limit of the cgroup, or start fewer workers");
    limits = (struct worker_evidence){ .available = 20 << 20,
                                       .group_limit = 64 << 20,
                                       .group_used = 60 << 20,
                                       .commit_limit = 8ull << 30,
                                       .committed = 8ull << 30 };
    expect(ENOMEM, "./train: no memory is left for another process (Cannot allocate memory)",
           "end other programs to free memory (20 MiB are available), raise the memory limit of the cgroup "
           "(64 MiB, of which 60 MiB are in use), or start fewer workers; vm.overcommit_memory=2 permits 8 "
           "GiB of memory, of "
           "which 8 GiB are reserved");
}

/* --- elf ------------------------------------------------------------------------------------------------------ */

/* The header of an ELF program, which tests change or cut. */

static const char LOADER[] = "/lib64/ld-linux-x86-64.so.2";

/* A 64-bit program, whose only segment names the loader. */
struct program {
    Elf64_Ehdr header;
    Elf64_Phdr interp;
    char name[sizeof(LOADER)];
};

static struct program program(int machine)
{
    struct program p = { .header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
                                                  ELFDATA2LSB },
                                     .e_type = ET_DYN,
                                     .e_machine = (Elf64_Half)machine,
                                     .e_phoff = sizeof(Elf64_Ehdr),
                                     .e_phentsize = sizeof(Elf64_Phdr),
                                     .e_phnum = 1 },
                         .interp = { .p_type = PT_INTERP,
                                     .p_offset = offsetof(struct program, name),
                                     .p_filesz = sizeof(LOADER) } };
    memcpy(p.name, LOADER, sizeof(LOADER));
    return p;
}

static struct elf_facts look_at(const struct program *p)
{
    struct elf_facts look;
    struct program ours = program(EM_X86_64);
    elf_check(slice_of(p, sizeof(*p)), slice_of(&ours, sizeof(ours)), &look);
    return look;
}

Test(elf_check, a_program_for_this_machine_runs_and_names_its_loader)
{
    struct program p = program(EM_X86_64);
    struct elf_facts look = look_at(&p);
    cr_assert_eq(look.kind, ELF_RUNS);
    cr_assert_eq(look.bits, 64);
    cr_assert_str_eq(look.interpreter, LOADER);
}

Test(elf_check, tells_apart_what_execve_does_not)
{
    struct program p = program(EM_AARCH64);
    char name[ELF_MACHINE_NAME_MAX];
    struct elf_facts look = look_at(&p);
    cr_expect_eq(look.kind, ELF_MACHINE);
    cr_expect_str_eq(elf_machine_name(look.machine, name), "aarch64");
    cr_expect_str_eq(elf_machine_name(look.our_machine, name), "x86-64");
    cr_expect_str_eq(elf_machine_name(4711, name), "machine type 4711");
    p = program(EM_X86_64);
    p.header.e_type = ET_REL;
    cr_expect_eq(look_at(&p).kind, ELF_NO_PROGRAM);
    p.header.e_type = ET_EXEC;
    p.header.e_phnum = 0;
    cr_expect_eq(look_at(&p).kind, ELF_CUT, "nothing to load");
    p = program(EM_386);
    p.header.e_ident[EI_CLASS] = ELFCLASS32;
    cr_expect_eq(look_at(&p).kind, ELF_BITS);
    p = program(EM_X86_64);
    p.header.e_ident[EI_DATA] = ELFDATA2MSB;
    cr_expect_eq(look_at(&p).kind, ELF_BYTE_ORDER);
}

Test(elf_check, what_is_no_elf_file_is_nothing_else)
{
    struct elf_facts look;
    struct program ours = program(EM_X86_64);
    const char *texts[] = { "", "\x7f",
                            "\x7f"
                            "EL",
                            "#!/bin/sh\n", "MZ" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        elf_check(slice_str(texts[i]), slice_of(&ours, sizeof(ours)), &look);
        cr_expect_eq(look.kind, ELF_NONE, "%s", texts[i]);
        cr_expect_eq(look.our_machine, EM_X86_64);
    }
}

/* Cut the program at every byte. The part before the cut is copied to a block of the same length, so that a sanitizer
 * detects a read beyond the cut. */
Test(elf_check, a_file_cut_anywhere_is_read_no_further)
{
    struct program p = program(EM_X86_64);
    for (size_t len = 0; len < sizeof(p); len++) {
        struct elf_facts look;
        uint8_t *part = malloc(len);
        memcpy(part, &p, len);
        elf_check(slice_of(part, len), slice_of(&p, sizeof(p)), &look);
        cr_assert_eq(look.kind,
                     len <= EI_DATA             ? ELF_NONE
                     : len < sizeof(Elf64_Ehdr) ? ELF_CUT
                                                : ELF_RUNS,
                     "%zu", len);
        cr_assert(look.interpreter[0] == '\0' || len >= offsetof(struct program, name) + sizeof(LOADER));
        free(part);
    }
}

/* Give every byte of the headers every value. elf_check must not read outside the file, and must terminate the name of
 * the loader within its array. */
Test(elf_check, no_byte_of_the_header_leads_outside)
{
    struct program good = program(EM_X86_64);
    for (size_t at = 0; at < sizeof(good.header) + sizeof(good.interp); at++)
        for (int value = 0; value < 256; value++) {
            uint8_t *bad = malloc(sizeof(good));
            struct elf_facts look;
            memcpy(bad, &good, sizeof(good));
            bad[at] = (uint8_t)value;
            elf_check(slice_of(bad, sizeof(good)), slice_of(&good, sizeof(good)), &look);
            cr_assert_lt(strnlen(look.interpreter, ELF_INTERPRETER_MAX), ELF_INTERPRETER_MAX);
            elf_check(slice_of(&good, sizeof(good)), slice_of(bad, sizeof(good)), &look);
            free(bad);
        }
}

/* --- the first line of a script ------------------------------------------------------------------------- */

static void expect_script(const char *text, const char *interpreter, bool carriage_return)
{
    static struct program_file look;
    program_check_bytes(&look, slice_str(text), slice_of("", 0));
    cr_expect_str_eq(look.interpreter, interpreter, "of '%s'", text);
    cr_expect_eq(look.carriage_return, carriage_return, "of '%s'", text);
}

Test(program_file, reads_the_first_line_as_the_kernel_does)
{
    expect_script("#!/bin/sh\necho\n", "/bin/sh", false);
    expect_script("#! \t/usr/bin/env -S python3 -u\n", "/usr/bin/env", false);
    expect_script("#!/bin/sh\r\necho\r\n", "/bin/sh", true);
    expect_script("#!/bin/sh -e\r\necho\r\n", "/bin/sh", false); /* the kernel passes "-e\r" to /bin/sh */
    expect_script("#!/bin/sh", "/bin/sh", false);
    expect_script("#!", "", false);
    expect_script("#!\n", "", false);
    expect_script("echo\n", "", false);
    expect_script("", "", false);
}

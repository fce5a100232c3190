/* spawn_error.c -- see spawn_error.h.
 *
 * execve returns only an errno: ENOEXEC for a program of another machine, ENOENT for a program whose loader is
 * missing. The header of the file shows the machine and the loader:
 *
 *     byte 4   1 = 32 bits, 2 = 64 bits          byte 16  type: 2 and 3 are programs
 *     byte 5   1 = little endian, 2 = big        byte 18  machine
 *     then the table of segments; the segment of type 3 (PT_INTERP) contains the loader's path
 *
 * The file is untrusted, so every offset is compared with the size of the file. Numbers are assembled byte by
 * byte, because the file may have another byte order. */
#include "report/spawn_error.h"

#include "tables/text.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Linkers write about a dozen segments, but a damaged file may claim 65,535. */
enum { SEGMENTS_MAX = 64 };

static const struct {
    int machine;
    const char *name;
} machines[] = {
    { EM_X86_64, "x86-64" },       { EM_386, "i386" },
    { EM_AARCH64, "aarch64" },     { EM_ARM, "arm" },
    { EM_PPC64, "ppc64" },         { EM_PPC, "ppc" },
    { EM_RISCV, "riscv" },         { EM_S390, "s390" },
    { EM_MIPS, "mips" },           { EM_SPARCV9, "sparc64" },
    { EM_CUDA, "CUDA (GPU)" },     { EM_AMDGPU, "AMD GPU" },
    { EM_LOONGARCH, "loongarch" },
};

enum { ELF_MACHINE_NAME_MAX = 32 };

/* Return "x86-64", "aarch64" and so on, or "machine type 4711" in `buffer` for an unknown machine. */
static const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX])
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++)
        if (machines[i].machine == machine)
            return machines[i].name;
    snprintf(buffer, ELF_MACHINE_NAME_MAX, "machine type %d", machine);
    return buffer;
}

/* The first bytes of a file, and the encoding of numbers in this file. */
struct reader {
    const uint8_t *data;
    size_t len;
    bool big_endian;
    bool wide; /* the file is a 64-bit program */
};

/* Read an integer of `size` bytes at offset `at`. If the file is too short, return 0. No caller needs to distinguish
 * this case from a real 0, because every caller rejects 0. */
static uint64_t number(const struct reader *r, uint64_t at, unsigned size)
{
    uint64_t value = 0;
    if (at > r->len || r->len - at < size)
        return 0;
    for (unsigned i = 0; i < size; i++)
        value = value << 8 | r->data[at + (r->big_endian ? i : size - 1 - i)];
    return value;
}

/* Initialize the reader. Return false if the bytes are not an ELF file. `file` must outlive the reader. */
static bool reader_open(struct reader *r, struct slice file)
{
    *r = (struct reader){ .data = file.data, .len = file.len };
    if (file.len <= EI_DATA || memcmp(file.data, ELFMAG, SELFMAG) != 0)
        return false;
    r->wide = r->data[EI_CLASS] == ELFCLASS64;
    r->big_endian = r->data[EI_DATA] == ELFDATA2MSB;
    return true;
}

static bool header_is_whole(const struct reader *r)
{
    return r->len >= (r->wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr));
}

static int machine_of(const struct reader *r)
{
    return (int)number(r, offsetof(Elf64_Ehdr, e_machine), 2);
}

/* Copy the loader's path from a segment. Do nothing if the path does not end with a NUL, because such a path is
 * incomplete. */
static void copy_interpreter(const struct reader *r, uint64_t segment, char out[ELF_INTERPRETER_MAX])
{
    uint64_t at = number(r, segment + (r->wide ? 8 : 4), r->wide ? 8 : 4);
    uint64_t size = number(r, segment + (r->wide ? 32 : 16), r->wide ? 8 : 4);
    if (size < 2 || size > ELF_INTERPRETER_MAX || at > r->len || r->len - at < size)
        return;
    if (memchr(r->data + at, '\0', size) != r->data + at + size - 1)
        return;
    memcpy(out, r->data + at, size);
}

static void find_interpreter(const struct reader *r, char out[ELF_INTERPRETER_MAX])
{
    uint64_t table = number(r, r->wide ? 32 : 28, r->wide ? 8 : 4);
    uint64_t size = number(r, r->wide ? 54 : 42, 2), count = number(r, r->wide ? 56 : 44, 2);
    if (table > r->len)
        return;
    for (uint64_t i = 0; i < count && i < SEGMENTS_MAX; i++)
        if (number(r, table + i * size, 4) == PT_INTERP)
            copy_interpreter(r, table + i * size, out);
}

/* Return true if one machine is the 32-bit variant of the other: i386 and x86-64, or ARM and AArch64. */
static bool same_family(int a, int b)
{
    return (a == EM_386 && b == EM_X86_64) || (a == EM_X86_64 && b == EM_386) ||
           (a == EM_ARM && b == EM_AARCH64) || (a == EM_AARCH64 && b == EM_ARM);
}

/* Return the first problem of the file. Problems that make later bytes meaningless are checked first. */
static enum elf_kind first_problem(const struct reader *file, const struct reader *own)
{
    int machine = machine_of(file), our_machine = machine_of(own);
    uint64_t type = number(file, offsetof(Elf64_Ehdr, e_type), 2);
    if (!header_is_whole(file))
        return ELF_CUT;
    if (file->big_endian != own->big_endian)
        return ELF_BYTE_ORDER;
    if (machine != our_machine)
        return same_family(machine, our_machine) ? ELF_BITS : ELF_MACHINE;
    if (file->wide != own->wide)
        return ELF_BITS;
    if (type != ET_EXEC && type != ET_DYN)
        return ELF_NO_PROGRAM;
    /* a program without segments cannot be loaded */
    return number(file, file->wide ? 56 : 44, 2) > 0 ? ELF_RUNS : ELF_CUT;
}

/* Compare the first bytes of a file with the first bytes of a program that runs on this machine. The first 4 KiB
 * contain the header, the segment table and the loader's path. */
static void elf_check(struct slice file, struct slice own, struct elf_facts *elf)
{
    struct reader theirs, mine;
    *elf = (struct elf_facts){ .kind = ELF_NONE };
    bool known = reader_open(&mine, own) && header_is_whole(&mine);
    if (known) {
        elf->our_machine = machine_of(&mine);
        elf->our_bits = mine.wide ? 64 : 32;
    }
    if (!reader_open(&theirs, file))
        return;
    /* If ddprun's header is not known, compare the file with itself, so that no difference is reported. */
    elf->kind = first_problem(&theirs, known ? &mine : &theirs);
    elf->machine = machine_of(&theirs);
    elf->bits = theirs.wide ? 64 : 32;
    if (header_is_whole(&theirs))
        find_interpreter(&theirs, elf->interpreter);
}

/* --- scripts ---------------------------------------------------------------------------------------------- */

/* Parse the first line of a script: "#! /usr/bin/env -S python3\r\n" names "/usr/bin/env". The kernel ends the name
 * at a blank, but not at a \r. */
static void read_first_line(struct program_file *file, const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    size_t line = end != NULL ? (size_t)(end - text) : len;
    size_t at = 2;
    const bool ends_in_cr = line > 2 && text[line - 1] == '\r';
    line -= ends_in_cr;
    while (at < line && (text[at] == ' ' || text[at] == '\t'))
        at++;
    size_t stop = at;
    while (stop < line && text[stop] != ' ' && text[stop] != '\t' && text[stop] != '\0')
        stop++;
    file->carriage_return = ends_in_cr && stop == line; /* after a blank, the \r is a part of the argument */
    if (stop - at < INTERPRETER_MAX)
        memcpy(file->interpreter, text + at, stop - at);
}

void program_check_bytes(struct program_file *file, struct slice head, struct slice own)
{
    const char *text = head.data;
    file->empty = head.len == 0;
    memset(file->interpreter, 0, sizeof(file->interpreter));
    file->carriage_return = false;
    if (head.len > 2 && text[0] == '#' && text[1] == '!')
        read_first_line(file, text, head.len);
    elf_check(head, own, &file->elf);
}

/* --- cause and remedy ------------------------------------------------------------------------------------- */

/* An errno of execve has several possible causes:
 *
 *     ENOENT   the program, its interpreter or its loader is missing
 *     EACCES   an x bit is missing, or a directory or a mount option forbids execution
 *     ENOEXEC  the program is for another machine, or the file is no program
 *
 * The first row of the table `rows` that matches the errno and the observations (`seen`) is used. */

/* PATH may be very long, so only its beginning is printed. */
enum { PATH_SHOWN = 120, ANY_ERROR = 0 };

/* Flags for the observations about a program. */
enum {
    ALWAYS = 0,
    SEARCHED = 1 << 0,   /* a name without a slash was not found in PATH */
    SCRIPT = 1 << 1,     /* the first line names an interpreter */
    CR = 1 << 2,         /* the interpreter's name ends with \r */
    HELPER_DIR = 1 << 3, /* the interpreter is a directory */
    NEAR = 1 << 4,       /* a file in the same directory has nearly the same name */
    FILE_THERE = 1 << 5, /* after ENOENT: the file exists, so its interpreter or loader is missing */
    NAMES_LOADER = 1 << 6,
    DIRECTORY = 1 << 7,
    NO_FILE = 1 << 8,
    LOCKED = 1 << 9, /* this user has no permission to enter a directory of the path */
    LACKS_X = 1 << 10,
    NOEXEC = 1 << 11, /* the file system forbids execution, so chmod does not help */
    EMPTY = 1 << 12,
    FOREIGN = 1 << 13, /* built for another machine */
    OTHER_SIZE = 1 << 14,
    CUT = 1 << 15,
    NO_PROGRAM = 1 << 16,
};

static unsigned observations(const struct start_failure *f)
{
    const struct program_file *file = f->file;
    const enum path_kind kind = file->kind;
    const enum elf_kind elf = file->elf.kind;
    const bool script = file->interpreter[0] != '\0', there = kind == PATH_EXECUTABLE || kind == PATH_NO_X;
    const bool is_dot = strcmp(f->program, ".") == 0 || strcmp(f->program, "..") == 0;
    const struct {
        bool seen;
        unsigned flag;
    } all[] = {
        { strchr(f->program, '/') == NULL && file->path[0] == '\0' && !is_dot, SEARCHED },
        { script, SCRIPT },
        { file->carriage_return, CR },
        { script && file->helper == PATH_DIRECTORY, HELPER_DIR },
        { file->near[0] != '\0', NEAR },
        { there, FILE_THERE },
        { file->elf.interpreter[0] != '\0', NAMES_LOADER },
        { kind == PATH_DIRECTORY || is_dot, DIRECTORY },
        { kind == PATH_NO_FILE, NO_FILE },
        { file->locked[0] != '\0', LOCKED },
        { kind == PATH_NO_X, LACKS_X },
        { file->noexec, NOEXEC },
        { there && file->empty, EMPTY },
        { elf == ELF_MACHINE || elf == ELF_BYTE_ORDER, FOREIGN },
        { elf == ELF_BITS, OTHER_SIZE },
        { elf == ELF_CUT, CUT },
        { elf == ELF_NO_PROGRAM, NO_PROGRAM },
    };
    unsigned seen = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        seen |= all[i].seen ? all[i].flag : 0;
    return seen;
}

/* clang-format off */
static const struct row {
    int error;
    unsigned seen;
    const char *cause;
    const char *remedy; /* NULL if no remedy is known */
} rows[] = {
    { ENOENT, SEARCHED, "{program}: not found in PATH ({search})",
      "to run a program in this directory, write './{program}'; to run a Python script without .py in its name, write 'python3 -u {program}'" },
    { ENOENT, CR, "the first line of {program} ends in \\r\\n, so its interpreter is '{interpreter}\\r', which does not exist",
      "convert the file to Unix line ends: sed -i 's/\\r$//' {program}" },
    { ENOENT, SCRIPT, "{program} exists, but the interpreter in its first line, '{interpreter}', does not exist",
      "install the interpreter, or correct the first line" },
    { ENOENT, NAMES_LOADER, "{program} exists, but its loader '{loader}' does not exist: {program} was built for another system",
      "build the program on this system, or install the C library with which the program was built" },
    { ENOENT, FILE_THERE, "{program} exists, but its loader does not exist: {program} was built for another system",
      "build it on this system" },
    { ENOENT, NEAR, "{program}: no such file", "did you mean {near}?" },
    { ENOENT, ALWAYS, "{program}: no such file", "check the path, and whether its file system is mounted on this host" },
    { EACCES, SEARCHED, "{program}: found in PATH ({search}), but not executable",
      "run 'chmod +x' on the file, or start ddprun with the path of an executable {program}" },
    { EACCES, DIRECTORY, "{program} is a directory, not a program", "to run a Python package, write 'python3 -u {program}'" },
    { EACCES, LOCKED, "{program}: no permission to enter the directory {locked}", "run 'chmod +x {locked}', or start ddprun as a user with this permission" },
    { EACCES, NO_FILE, "{program} is a device or a pipe, not a program", NULL },
    { EACCES, LACKS_X, "{program} is not executable", "run 'chmod +x {program}'; for a Python script, run "
                                                      "'python3 -u {program}' instead" },
    { EACCES, NOEXEC, "{program} is on a file system that is mounted noexec",
      "copy the program to another file system, or allow execution: 'mount -o remount,exec MOUNT_POINT'" },
    { EACCES, HELPER_DIR, "{program}: the interpreter in its first line, '{interpreter}', is a directory",
      "correct the first line" },
    { EACCES, SCRIPT, "{program}: the interpreter in its first line, '{interpreter}', cannot be executed",
      "correct the first line, or run 'chmod +x {interpreter}'" },
    { EACCES, ALWAYS, "{program}: permission denied",
      "check whether a security module denies access: run 'dmesg', or 'journalctl -t audit'" },
    { ENOEXEC, EMPTY, "{program} is an empty file", "build or copy it again" },
    { ENOEXEC, FOREIGN, "{program} was built for {machine}, but this machine is {our_machine}", "build it for {our_machine}" },
    { ENOEXEC, OTHER_SIZE, "{program} was built for {machine} ({bits} bits), and this kernel only runs {our_machine} ({our_bits} bits)",
      "build it for {our_machine}" },
    { ENOEXEC, CUT, "{program} is damaged: the file ends within its header", "build or copy it again" },
    { ENOEXEC, NO_PROGRAM, "{program} is an object file or a core dump, not a program", "pass the path of the program instead of this file" },
    { ENOEXEC, SCRIPT, "{program}: this machine cannot execute the interpreter in its first line, '{interpreter}'",
      "install an interpreter for {our_machine}, or correct the first line" },
    { ENOEXEC, ALWAYS, "{program}: this machine cannot execute the file, which is neither a program nor a script",
      "for a shell script, add a first line such as #!/bin/sh; for a Python script, run 'python3 -u {program}'" },
    { ETXTBSY, ALWAYS, "{program} is open for writing: another process is still building or copying the "
                       "program",
      "wait until that process is done, or find the process with 'fuser -v {program}'" },
    { E2BIG, ALWAYS, "the arguments and the environment of {program} are too long for the system",
      "use fewer or shorter arguments and environment variables, or raise the stack limit, which also limits these: 'ulimit -s'{stack}" },
    { EAGAIN, ALWAYS, "{program}: the system cannot create another process ({errno})",
      "raise the limit for processes and threads: 'ulimit -u'{processes} or pids.max of the cgroup{pids}" },
    { ENOMEM, ALWAYS, "{program}: no memory is left for another process ({errno})", "end other programs to free memory{available}, raise the memory limit of the cgroup{memory}, or start fewer workers{commit}" },
    { EMFILE, ALWAYS, "{program}: ddprun has no file descriptors left for the output of this program ({errno})", "raise 'ulimit -n'{files}" },
    { ANY_ERROR, ALWAYS, "{program}: {errno}", NULL },
};
/* clang-format on */

/* Return the row of a failure. ELIBACC means that execve has returned ENOENT, although the program exists: its
 * interpreter or its loader is missing. (The exit code is then 126 instead of 127.) The rows contain only ENOENT, so
 * search for ENOENT in this case. */
static const struct row *row_of(const struct start_failure *f)
{
    int error = f->error == ELIBACC ? ENOENT : f->error;
    const unsigned seen = observations(f);
    const struct row *row = rows;
    while (row->error != ANY_ERROR && (row->error != error || (row->seen & seen) != row->seen))
        row++;
    return row;
}

/* Fill the placeholders of a sentence. Format the values of all placeholders, although a sentence contains only a
 * few. */
static bool fill_row(const struct start_failure *f, const char *sentence, struct buf *out)
{
    char machine[ELF_MACHINE_NAME_MAX], own[ELF_MACHINE_NAME_MAX], search[PATH_SHOWN + 4];
    char processes[LIMIT_SHOWN], pids[LIMIT_SHOWN], files[LIMIT_SHOWN], stack[LIMIT_SHOWN];
    char available[LIMIT_SHOWN], memory[2 * LIMIT_SHOWN], commit[COMMIT_SHOWN];
    static const struct worker_evidence nothing;
    const struct worker_evidence *limits = f->limits != NULL ? f->limits : &nothing;
    const char *path = f->path != NULL ? f->path : "which is not set";
    const struct program_file *file = f->file;
    const char *why = strerror(f->error);
    snprintf(search, sizeof(search), "%.*s%s", PATH_SHOWN, path, strlen(path) > PATH_SHOWN ? "..." : "");
    const struct word words[] = {
        { "program", f->program },
        { "search", search },
        { "near", file->near },
        { "interpreter", file->interpreter },
        { "loader", file->elf.interpreter },
        { "locked", file->locked },
        { "machine", elf_machine_name(file->elf.machine, machine) },
        { "our_machine", elf_machine_name(file->elf.our_machine, own) },
        { "bits", file->elf.bits == 64 ? "64" : "32" },
        { "our_bits", file->elf.our_bits == 64 ? "64" : "32" },
        { "processes", limit_text(processes, limits->processes, false) },
        { "pids", limit_text(pids, limits->pids_max, false) },
        { "files", limit_text(files, limits->open_files, false) },
        { "stack", limit_text(stack, limits->stack, true) },
        { "available", available_text(available, limits) },
        { "memory", group_memory_text(memory, limits) },
        { "commit", commit_text(commit, limits) },
        { "errno", why },
    };
    return words_fill(out, sentence, words, sizeof(words) / sizeof(words[0]));
}

bool start_cause(const struct start_failure *f, struct buf *out)
{
    return fill_row(f, row_of(f)->cause, out);
}

bool start_remedy(const struct start_failure *f, struct buf *out)
{
    const char *remedy = row_of(f)->remedy;
    return remedy == NULL || fill_row(f, remedy, out);
}

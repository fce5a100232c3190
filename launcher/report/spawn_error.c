/* spawn_error.c -- see spawn_error.h.
 *
 * execve says ENOEXEC to a foreign program and ENOENT to one whose loader is missing, without a word about which of
 * the two machines is meant. The header says it:
 *
 *     byte 4   1 = 32 bits, 2 = 64 bits          byte 16  type: 2 and 3 are programs
 *     byte 5   1 = little endian, 2 = big        byte 18  machine
 *     then the table of segments; the one of type 3 (PT_INTERP) names the loader
 *
 * The file comes from anywhere, so every offset in it is compared with what is really there before it is
 * used, and numbers are put together byte by byte: the file may be of the other byte order. */
#include "report/spawn_error.h"

#include "tables/text.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Segments that are looked at: linkers write about a dozen, and a file may claim 65,535. */
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

const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX])
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++)
        if (machines[i].machine == machine)
            return machines[i].name;
    snprintf(buffer, ELF_MACHINE_NAME_MAX, "machine type %d", machine);
    return buffer;
}

/* One file's bytes, and how its numbers are written. */
struct reader {
    const uint8_t *data;
    size_t len;
    bool big_endian, wide;
};

/* The number of `size` bytes at `at`; 0 when it is not there, which no caller takes for a good answer. */
static uint64_t number(const struct reader *r, uint64_t at, unsigned size)
{
    uint64_t value = 0;
    if (at > r->len || r->len - at < size)
        return 0;
    for (unsigned i = 0; i < size; i++)
        value = value << 8 | r->data[at + (r->big_endian ? i : size - 1 - i)];
    return value;
}

/* False when it is no ELF file at all. A header that is cut off leaves `wide` and the order as far as they are known. */
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

/* The segment's text, when all of it is in these bytes and ends with its NUL as it must. */
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

/* Processors that come in two word sizes under two names: the wider one may or may not run the other's programs. */
static bool same_family(int a, int b)
{
    return (a == EM_386 && b == EM_X86_64) || (a == EM_X86_64 && b == EM_386) ||
           (a == EM_ARM && b == EM_AARCH64) || (a == EM_AARCH64 && b == EM_ARM);
}

/* What is wrong first; the order is from what makes the rest unreadable to what needs the rest. */
static enum elf_kind judge(const struct reader *file, const struct reader *ours)
{
    int machine = machine_of(file), our_machine = machine_of(ours);
    uint64_t type = number(file, offsetof(Elf64_Ehdr, e_type), 2);
    if (!header_is_whole(file))
        return ELF_CUT;
    if (file->big_endian != ours->big_endian)
        return ELF_BYTE_ORDER;
    if (machine != our_machine)
        return same_family(machine, our_machine) ? ELF_BITS : ELF_MACHINE;
    if (file->wide != ours->wide)
        return ELF_BITS;
    if (type != ET_EXEC && type != ET_DYN)
        return ELF_NO_PROGRAM;
    return number(file, file->wide ? 56 : 44, 2) > 0 ? ELF_RUNS
                                                     : ELF_CUT; /* without segments nothing is loaded */
}

void elf_check(struct slice file, struct slice ours, struct elf_look *look)
{
    struct reader theirs, mine;
    *look = (struct elf_look){ .kind = ELF_NONE };
    bool known = reader_open(&mine, ours) && header_is_whole(&mine);
    if (known) {
        look->our_machine = machine_of(&mine);
        look->our_bits = mine.wide ? 64 : 32;
    }
    if (!reader_open(&theirs, file))
        return;
    look->kind =
        judge(&theirs, known ? &mine : &theirs); /* with nothing to compare only its own faults are found */
    look->machine = machine_of(&theirs);
    look->bits = theirs.wide ? 64 : 32;
    if (header_is_whole(&theirs))
        find_interpreter(&theirs, look->interpreter);
}

/* --- program look ----------------------------------------------------------------------------------------- */

/* The first line of a script, the header of a program. Only bytes in here;
 * spawn_error.c fetches them. */

/* "#! /usr/bin/env -S python3\r\n" -> "/usr/bin/env". The kernel ends the name at a blank; the \r is part
 * of it, which is why such a script is "not found". */
static void read_first_line(struct program_look *look, const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    size_t line = end != NULL ? (size_t)(end - text) : len;
    size_t at = 2;
    look->carriage_return = line > 2 && text[line - 1] == '\r';
    line -= look->carriage_return;
    while (at < line && (text[at] == ' ' || text[at] == '\t'))
        at++;
    size_t stop = at;
    while (stop < line && text[stop] != ' ' && text[stop] != '\t' && text[stop] != '\0')
        stop++;
    if (stop - at < INTERPRETER_MAX)
        memcpy(look->interpreter, text + at, stop - at);
}

void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours)
{
    const char *text = head.data;
    look->empty = head.len == 0;
    memset(look->interpreter, 0, sizeof(look->interpreter));
    look->carriage_return = false;
    if (head.len > 2 && text[0] == '#' && text[1] == '!')
        read_first_line(look, text, head.len);
    elf_check(head, ours, &look->elf);
}

/* --- start words ------------------------------------------------------------------------------------------ */

/* One table: the first row whose errno and condition fit has the words. What the kernel says in one number
 * is told apart by the condition: ENOENT is a missing program, interpreter or loader; EACCES is a missing x
 * bit, a directory, a mount option ...; ENOEXEC is a foreign machine, or no program at all. */

/* PATH may have thousands of characters; its beginning shows whether it was set as meant. */
enum { PATH_SHOWN = 120, ANY_ERROR = 0 };

/* --- conditions ----------------------------------------------------------------------------------------- */

static bool always(const struct start_failure *f)
{
    (void)f;
    return true;
}

/* It was looked for along PATH, and not found. */
static bool searched(const struct start_failure *f)
{
    return strchr(f->program, '/') == NULL && f->look->path[0] == '\0';
}

static bool is_script(const struct start_failure *f)
{
    return f->look->interpreter[0] != '\0';
}

static bool ends_in_cr(const struct start_failure *f)
{
    return f->look->carriage_return;
}

static bool has_near(const struct start_failure *f)
{
    return f->look->near[0] != '\0';
}

/* The script's interpreter exists, but is itself a foreign or broken program. */
static bool is_there(const struct start_failure *f)
{
    return f->look->kind == PATH_EXECUTABLE || f->look->kind == PATH_NO_X;
}

/* "#!/usr/bin" instead of "#!/usr/bin/python3": the x bits of the directory are set, and still it is EACCES. */
static bool helper_is_directory(const struct start_failure *f)
{
    return is_script(f) && f->look->helper == PATH_DIRECTORY;
}

/* The kernel says ENOENT for a program that is there and whose loader is not: the riddle that costs a newcomer an
 * hour. */
static bool wants_loader(const struct start_failure *f)
{
    return f->look->elf.interpreter[0] != '\0';
}

static bool is_directory(const struct start_failure *f)
{
    return f->look->kind == PATH_DIRECTORY;
}

static bool is_no_file(const struct start_failure *f)
{
    return f->look->kind == PATH_NO_FILE;
}

static bool is_locked(const struct start_failure *f)
{
    return f->look->locked[0] != '\0';
}

static bool lacks_x(const struct start_failure *f)
{
    return f->look->kind == PATH_NO_X;
}

/* A noexec mount looks like a missing x bit, and no chmod helps. */
static bool is_noexec(const struct start_failure *f)
{
    return f->look->noexec;
}

static bool is_empty(const struct start_failure *f)
{
    return is_there(f) && f->look->empty;
}

/* An image for another machine, as after a build on a laptop. Byte order is part of that: nobody has the one and
 * not the other. */
static bool is_foreign(const struct start_failure *f)
{
    return f->look->elf.kind == ELF_MACHINE || f->look->elf.kind == ELF_BYTE_ORDER;
}

static bool is_other_size(const struct start_failure *f)
{
    return f->look->elf.kind == ELF_BITS;
}

static bool is_cut(const struct start_failure *f)
{
    return f->look->elf.kind == ELF_CUT;
}

static bool is_no_program(const struct start_failure *f)
{
    return f->look->elf.kind == ELF_NO_PROGRAM;
}

static bool has_limit(const struct start_failure *f)
{
    return f->look->processes_max > 0;
}

/* --- the table ------------------------------------------------------------------------------------------ */

/* clang-format off */
static const struct row {
    int error;
    bool (*fits)(const struct start_failure *f);
    const char *cause;
    const char *remedy; /* NULL = nothing is known to help */
} rows[] = {
    { ENOENT, searched, "{program}: not found in PATH ({search})",
      "a program in this directory is written ./{program}; a Python script without .py at its end runs as python3 -u {program}" },
    { ENOENT, ends_in_cr, "the first line of {program} ends in \\r\\n, so its interpreter is '{interpreter}\\r', which does not exist",
      "give it Unix line ends: sed -i 's/\\r$//' {program}" },
    { ENOENT, is_script, "{program} is there, but its interpreter '{interpreter}' (its first line) is not",
      "install the interpreter, or correct the first line" },
    { ENOENT, wants_loader, "{program} is there, but the loader '{loader}' that it needs is not: it was built for another system",
      "build it on this system, or install the C library that it was built with" },
    { ENOENT, is_there, "{program} is there, but the loader that it needs is not: it was built for another system",
      "build it on this system" },
    { ENOENT, has_near, "{program}: no such file", "did you mean {near}?" },
    { ENOENT, always, "{program}: no such file", "check the path, and that the file system with it is mounted here" },
    { EACCES, searched, "{program}: found in PATH ({search}), but nowhere as a file that may be executed",
      "chmod +x the one that is meant, or name it with its directory" },
    { EACCES, is_directory, "{program} is a directory, not a program", "a package of Python's runs as python3 -u {program}" },
    { EACCES, is_locked, "{program}: the directory {locked} may not be entered", "chmod +x {locked}, or run as a user who may" },
    { EACCES, is_no_file, "{program} is a device or a pipe, not a program", NULL },
    { EACCES, lacks_x, "{program} is not executable", "chmod +x {program}; a Python script runs without that as python3 -u {program}" },
    { EACCES, is_noexec, "{program} is on a file system that is mounted noexec",
      "copy it elsewhere, or mount -o remount,exec that file system" },
    { EACCES, helper_is_directory, "{program}: its interpreter '{interpreter}' (its first line) is a directory",
      "correct the first line" },
    { EACCES, is_script, "{program}: its interpreter '{interpreter}' (its first line) cannot be executed",
      "correct the first line, or chmod +x {interpreter}" },
    { EACCES, always, "{program}: permission denied",
      "see whether a security module forbids it: dmesg, or journalctl -t audit" },
    { ENOEXEC, is_empty, "{program} is an empty file", "build or copy it again" },
    { ENOEXEC, is_foreign, "{program} was built for {machine}, this machine is {our_machine}", "build it for {our_machine}" },
    { ENOEXEC, is_other_size, "{program} was built for {machine} ({bits} bits), and this kernel runs {our_machine} ({our_bits} bits) only",
      "build it for {our_machine}" },
    { ENOEXEC, is_cut, "{program} is damaged: the program ends within its own header", "build or copy it again" },
    { ENOEXEC, is_no_program, "{program} is an object file or a core dump, not a program", "link it" },
    { ENOEXEC, is_script, "{program}: its interpreter '{interpreter}' (its first line) is nothing that this machine can execute",
      "install an interpreter for {our_machine}, or correct the first line" },
    { ENOEXEC, always, "{program} is nothing that this machine can execute: neither a program nor a script",
      "a script needs a first line like #!/bin/sh; one of Python's runs without as python3 -u {program}" },
    { ETXTBSY, always, "{program} is open for writing: somebody builds or copies it at this moment",
      "wait for that, or find who: fuser -v {program}" },
    { E2BIG, always, "the arguments and the environment of {program} are too long for the system",
      "shorten them; ulimit -s sets how much is allowed" },
    { EAGAIN, has_limit, "{program}: the system has no room for another process ({errno})",
      "the user's limit is {processes} processes and threads (ulimit -u); a cgroup may limit them too (pids.max)" },
    { EAGAIN, always, "{program}: the system has no room for another process ({errno})",
      "see ulimit -u, and pids.max of the cgroup" },
    { ENOMEM, always, "{program}: the system has no memory for another process ({errno})", "free memory, or start fewer workers" },
    { EMFILE, always, "{program}: ddprun has no descriptors left for its output ({errno})", "raise ulimit -n" },
    { ANY_ERROR, always, "{program}: {errno}", NULL },
};
/* clang-format on */

/* The spawner says ELIBACC for the ENOENT of a program that it has found: 126, not 127. */
static const struct row *row_of(const struct start_failure *f)
{
    int error = f->error == ELIBACC ? ENOENT : f->error;
    const struct row *row = rows;
    while (row->error != ANY_ERROR && (row->error != error || !row->fits(f)))
        row++;
    return row;
}

/* All gaps are offered to all sentences, as in exit_text.c. */
static bool fill_row(const struct start_failure *f, const char *sentence, struct buf *out)
{
    char machine[ELF_MACHINE_NAME_MAX], ours[ELF_MACHINE_NAME_MAX], search[PATH_SHOWN + 4], processes[32];
    const char *path = f->path != NULL ? f->path : "which is not set";
    const struct program_look *look = f->look;
    const char *why = strerrordesc_np(f->error);
    snprintf(search, sizeof(search), "%.*s%s", PATH_SHOWN, path, strlen(path) > PATH_SHOWN ? "..." : "");
    snprintf(processes, sizeof(processes), "%llu", look->processes_max);
    const struct word words[] = {
        { "program", f->program },
        { "search", search },
        { "near", look->near },
        { "interpreter", look->interpreter },
        { "loader", look->elf.interpreter },
        { "locked", look->locked },
        { "machine", elf_machine_name(look->elf.machine, machine) },
        { "our_machine", elf_machine_name(look->elf.our_machine, ours) },
        { "bits", look->elf.bits == 64 ? "64" : "32" },
        { "our_bits", look->elf.our_bits == 64 ? "64" : "32" },
        { "processes", processes },
        { "errno", why != NULL ? why : "unknown error" },
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

/* elf_check.c -- see elf_check.h.
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
#include "report/elf_check.h"

#include <elf.h>
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
static bool begin(struct reader *r, struct slice file)
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
    bool known = begin(&mine, ours) && header_is_whole(&mine);
    if (known) {
        look->our_machine = machine_of(&mine);
        look->our_bits = mine.wide ? 64 : 32;
    }
    if (!begin(&theirs, file))
        return;
    look->kind =
        judge(&theirs, known ? &mine : &theirs); /* with nothing to compare only its own faults are found */
    look->machine = machine_of(&theirs);
    look->bits = theirs.wide ? 64 : 32;
    if (header_is_whole(&theirs))
        find_interpreter(&theirs, look->interpreter);
}

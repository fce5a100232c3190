/* elf_check.h -- can this machine execute that file? Answered from the first bytes of both: of the file and
 * of a program that is known to run here. Nothing is opened in here. */
#ifndef LAUNCHER_ELF_CHECK_H
#define LAUNCHER_ELF_CHECK_H

#include "base/slice.h"

enum elf_kind {
    ELF_NONE,       /* not an ELF file */
    ELF_RUNS,       /* built for a machine like this one, and its header has no fault */
    ELF_CUT,        /* shorter than its own header says, or the header contradicts itself */
    ELF_BYTE_ORDER, /* for machines that turn the bytes of a number around */
    ELF_MACHINE,    /* for another processor */
    ELF_BITS,       /* for this family of processors, but with the other word size */
    ELF_NO_PROGRAM, /* an object file, a core dump */
};

enum { ELF_INTERPRETER_MAX = 256 };

struct elf_look {
    enum elf_kind kind;
    int machine, bits;                     /* of the file; 0 when its header is too short to tell */
    int our_machine, our_bits;             /* of the program that runs here */
    char interpreter[ELF_INTERPRETER_MAX]; /* the loader that it asks for; "" = none, or not in these bytes */
};

/* `file` and `ours` are the first bytes of each (4 KiB hold all that is looked at in what linkers write). */
void elf_check(struct slice file, struct slice ours, struct elf_look *look);

/* "x86-64", "aarch64"; "machine type 4711" for what has no name here. Valid until the next call with the same
 * buffer. */
enum { ELF_MACHINE_NAME_MAX = 32 };
const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX]);

#endif

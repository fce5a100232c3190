/* spawn_error.h -- why a program could not be started, as text, from its first bytes and those of a program that is
 * known to run here. Pure: evidence.h opens the files. */
#ifndef LAUNCHER_REPORT_SPAWN_ERROR_H
#define LAUNCHER_REPORT_SPAWN_ERROR_H

#include "base/buf.h"

#include <limits.h>

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

/* "x86-64", "aarch64"; "machine type 4711" for an unknown one. Valid until the next call with the same buffer. */
enum { ELF_MACHINE_NAME_MAX = 32 };
const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX]);

/* Of the program, and of the interpreter or loader that it names. */
enum path_kind {
    PATH_UNKNOWN, /* it was not looked at, or could not be */
    PATH_MISSING, /* no such file */
    PATH_DIRECTORY,
    PATH_NO_FILE,    /* a device, a pipe, a socket */
    PATH_NO_X,       /* a file without x permission */
    PATH_EXECUTABLE, /* a file that may be executed, as far as permissions go */
};

enum { INTERPRETER_MAX = 256 };

/* Observations of a program that could not be started, which separate the meanings of execve's errno. */
struct program_look {
    char path[PATH_MAX]; /* what was looked at */
    enum path_kind kind;
    bool is_python_file;   /* Python was to run it: `path` is what the user wrote */
    char near[PATH_MAX];   /* of a missing one: a file beside it whose name differs by a slip; "" = none */
    bool empty;            /* a file of 0 bytes */
    bool noexec;           /* on a file system mounted noexec */
    char locked[PATH_MAX]; /* the first directory above it that may not be entered; "" = none */
    char interpreter[INTERPRETER_MAX]; /* of a script, behind "#!" and without arguments; "" = no script */
    bool carriage_return;              /* the script's first line ends in \r\n */
    struct elf_look elf;               /* of a program */
    enum path_kind helper;             /* what lies at `interpreter` or elf.interpreter */
    unsigned long long processes_max;  /* ulimit -u here; 0 = unlimited or not known */
};

/* The part that only reads: what `head`, the first bytes of the file, say. `ours` are those of a program
 * that runs here. Sets empty, interpreter, carriage_return and elf. */
void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours);

struct start_failure {
    int error;           /* of execve, of the search, or of fork */
    const char *program; /* as the user wrote it: that is what will be corrected */
    const char *path;    /* PATH of the worker, NULL = not set */
    const struct program_look *look;
};

/* "./train: no such file". False when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* "chmod +x ./train"; nothing is appended where nothing is known to help. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif

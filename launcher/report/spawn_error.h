/* spawn_error.h -- why a program could not be started, as text, from its first bytes and those of a program that is
 * known to run here. Pure: evidence.h opens the files. */
#ifndef LAUNCHER_REPORT_SPAWN_ERROR_H
#define LAUNCHER_REPORT_SPAWN_ERROR_H

#include "base/buf.h"

#include <limits.h>

enum elf_kind {
    ELF_NONE,       /* not an ELF file */
    ELF_RUNS,       /* built for a machine like this one, without a fault in its header */
    ELF_CUT,        /* shorter than its own header says, or the header contradicts itself */
    ELF_BYTE_ORDER, /* for machines with the other byte order */
    ELF_MACHINE,    /* for another processor */
    ELF_BITS,       /* for this family of processors, but with the other word size */
    ELF_NO_PROGRAM, /* an object file, a core dump */
};

enum { ELF_INTERPRETER_MAX = 256 };

struct elf_look {
    enum elf_kind kind;
    int machine, bits;                     /* of the file; 0 when its header is too short to tell */
    int our_machine, our_bits;             /* of the program that runs here */
    char interpreter[ELF_INTERPRETER_MAX]; /* the loader that it requests; "" = none, or not in these bytes */
};

/* `file` and `ours` are the first bytes of each; 4 KiB hold everything that linkers put at the beginning. */
void elf_check(struct slice file, struct slice ours, struct elf_look *look);

/* "x86-64", "aarch64"; "machine type 4711" for an unknown one. Valid until the next call with the same buffer. */
enum { ELF_MACHINE_NAME_MAX = 32 };
const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX]);

/* The state of the program, and of the interpreter or loader that it names. */
enum path_kind {
    PATH_UNKNOWN, /* not examined, or not readable */
    PATH_MISSING, /* no such file */
    PATH_DIRECTORY,
    PATH_NO_FILE,    /* a device, a pipe, a socket */
    PATH_NO_X,       /* a file without x permission */
    PATH_EXECUTABLE, /* a file that may be executed, by its permissions */
};

enum { INTERPRETER_MAX = 256 };

/* Observations about a program that could not be started, which separate the meanings of execve's errno. */
struct program_look {
    char path[PATH_MAX]; /* state of the program */
    enum path_kind kind;
    bool is_python_file;   /* Python was asked to run it: `path` is as the user wrote it */
    char near[PATH_MAX];   /* for a missing file: a file beside it with nearly the same name; "" = none */
    bool empty;            /* a file of 0 bytes */
    bool noexec;           /* on a file system mounted noexec */
    char locked[PATH_MAX]; /* the first directory above it that may not be entered; "" = none */
    char interpreter[INTERPRETER_MAX]; /* of a script, after "#!" and without arguments; "" = not a script */
    bool carriage_return;              /* the script's first line ends in \r\n */
    struct elf_look elf;               /* of a program */
    enum path_kind helper;             /* state of `interpreter` or elf.interpreter */
    unsigned long long processes_max;  /* ulimit -u here; 0 = unlimited or not known */
};

/* Read `head`, the first bytes of the file. `ours` are those of a program that runs here. Set empty, interpreter,
 * carriage_return and elf. */
void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours);

struct start_failure {
    int error;           /* of execve, of the search, or of fork */
    const char *program; /* as the user wrote it, because the user corrects that */
    const char *path;    /* PATH of the worker, NULL = not set */
    const struct program_look *look;
};

/* Append "./train: no such file". False when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* Append "chmod +x ./train"; append nothing if no remedy is known. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif

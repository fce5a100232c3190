/* spawn_error.h -- texts about why a program could not be started, from its first bytes and the first bytes of a
 * program that runs on this machine. Pure: evidence.h opens the files. */
#ifndef LAUNCHER_REPORT_SPAWN_ERROR_H
#define LAUNCHER_REPORT_SPAWN_ERROR_H

#include "base/buf.h"

#include <limits.h>

enum elf_kind {
    ELF_NONE,       /* not an ELF file */
    ELF_RUNS,       /* built for this kind of machine, and its header has no fault */
    ELF_CUT,        /* shorter than its header specifies, or with a contradictory header */
    ELF_BYTE_ORDER, /* for machines with the other byte order */
    ELF_MACHINE,    /* for another processor */
    ELF_BITS,       /* for this family of processors, but with the other word size */
    ELF_NO_PROGRAM, /* an object file, a core dump */
};

enum { ELF_INTERPRETER_MAX = 256 };

struct elf_look {
    enum elf_kind kind;
    int machine, bits;                     /* of the file; 0 when its header is too short */
    int our_machine, our_bits;             /* of the program that runs here */
    char interpreter[ELF_INTERPRETER_MAX]; /* the loader that the file requests; "" = none found */
};

/* Compare the first bytes of the file with the first bytes of a program that runs here. Linkers put all needed data
 * into the first 4 KiB. */
void elf_check(struct slice file, struct slice ours, struct elf_look *look);

/* Return "x86-64", "aarch64", or "machine type 4711" for an unknown machine. The text is valid until the next call
 * with the same buffer. */
enum { ELF_MACHINE_NAME_MAX = 32 };
const char *elf_machine_name(int machine, char buffer[ELF_MACHINE_NAME_MAX]);

/* The state of a path: of the program, or of the interpreter or loader that the program names. */
enum path_kind {
    PATH_UNKNOWN, /* not examined, or not readable */
    PATH_MISSING, /* no such file */
    PATH_DIRECTORY,
    PATH_NO_FILE,    /* a device, a pipe, a socket */
    PATH_NO_X,       /* a file without x permission */
    PATH_EXECUTABLE, /* a file whose permissions allow execution */
};

enum { INTERPRETER_MAX = 256 };

/* Observations about a program that could not be started. An errno of execve has several meanings. These facts select
 * the right meaning. */
struct program_look {
    char path[PATH_MAX]; /* the examined path */
    enum path_kind kind;
    bool is_python_file; /* Python should run this file: `path` is as the user wrote it */
    char near
        [PATH_MAX]; /* for a missing file: a file in the same directory with nearly the same name; "" = none */
    bool empty;     /* the file has 0 bytes */
    bool noexec;    /* on a file system mounted noexec */
    char locked[PATH_MAX]; /* the first directory on the path that may not be entered; "" = none */
    char interpreter[INTERPRETER_MAX]; /* the name after "#!", without arguments; "" = not a script */
    bool carriage_return;              /* the script's first line ends in \r\n */
    struct elf_look elf;               /* facts about a binary program */
    enum path_kind helper;             /* state of `interpreter` or elf.interpreter */
    unsigned long long processes_max;  /* ulimit -u here; 0 = unlimited or not known */
};

/* Examine `head`, the first bytes of the file, and set empty, interpreter, carriage_return and elf. `ours` are the
 * first bytes of a program that runs here. */
void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours);

struct start_failure {
    int error;           /* of execve, of the search, or of fork */
    const char *program; /* as the user wrote it, because the user corrects that text */
    const char *path;    /* PATH of the worker, NULL = not set */
    const struct program_look *look;
};

/* Append why the program could not be started: "./train: no such file". Return false when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* Append "chmod +x ./train", or append nothing if no remedy is known. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif

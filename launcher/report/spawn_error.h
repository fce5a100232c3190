/* spawn_error.h -- texts about why a program could not be started. The functions are pure; those of evidence.h read
 * the files. */
#ifndef LAUNCHER_REPORT_SPAWN_ERROR_H
#define LAUNCHER_REPORT_SPAWN_ERROR_H

#include "base/buf.h"
#include "report/exit_text.h"

#include <limits.h>

enum elf_kind {
    ELF_NONE,       /* not an ELF file */
    ELF_RUNS,       /* a program for this kind of machine */
    ELF_CUT,        /* shorter than its header says, or damaged */
    ELF_BYTE_ORDER, /* for a machine with another byte order */
    ELF_MACHINE,    /* for another processor */
    ELF_BITS,       /* for the same processor, but with another word size */
    ELF_NO_PROGRAM, /* an object file or a core dump */
};

enum { ELF_INTERPRETER_MAX = 256 };

struct elf_facts {
    enum elf_kind kind;
    int machine, bits;         /* e_machine and word size of the file; 0 if the header is too short */
    int our_machine, our_bits; /* e_machine and word size of this host's programs */
    char interpreter[ELF_INTERPRETER_MAX]; /* path of the loader; "" if not found */
};

/* The kind of file at the path of a program, its interpreter or its loader. */
enum path_kind {
    PATH_UNKNOWN, /* not examined */
    PATH_MISSING,
    PATH_DIRECTORY,
    PATH_NO_FILE, /* a device, a pipe or a socket */
    PATH_NO_X,    /* a file without x permission */
    PATH_EXECUTABLE,
};

enum { INTERPRETER_MAX = 256 };

/* Facts about a program that could not be started, which explain the errno of execve. */
struct program_file {
    char path[PATH_MAX]; /* examined path; may be "" */
    enum path_kind kind;
    bool is_python_file; /* `path` is the script for Python, not the program */
    char near[PATH_MAX]; /* similar path, if `path` does not exist; may be "" */
    bool empty;
    bool noexec; /* the file system is mounted noexec */
    /* first directory that this user may not enter; may be "" */
    char locked[PATH_MAX];
    char interpreter[INTERPRETER_MAX]; /* the name after "#!" without arguments; "" if not a script */
    bool carriage_return;              /* \r belongs to the name, because "\r\n" ends the line */
    struct elf_facts elf;              /* the header of a binary program */
    enum path_kind helper;             /* of `interpreter` or elf.interpreter */
};

/* Set `empty`, `interpreter`, `carriage_return` and `elf` from the first bytes of the file. `own` are those of a
 * program that runs here. */
void program_check_bytes(struct program_file *file, struct slice head, struct slice own);

struct start_failure {
    int error;           /* errno of execve, of the search in PATH, or of fork */
    const char *program; /* as the user wrote it */
    const char *path;    /* PATH of the worker; NULL if not set */
    const struct program_file *file;
    const struct worker_evidence *limits; /* limits only; NULL if unknown */
};

/* Append why the program could not be started: "./train: no such file". Return false when memory is short. */
bool start_cause(const struct start_failure *f, struct buf *out);

/* Append the remedy, such as "chmod +x ./train", if there is a known one. */
bool start_remedy(const struct start_failure *f, struct buf *out);

#endif

/* elf_symbols.h -- does a shared library define a symbol, or need another library? As the dynamic linker would look: by the
 * library's own hash table, a few hundred bytes of half a gigabyte. Bytes come from a callback; nothing is opened here. */
#ifndef LAUNCHER_ELF_SYMBOLS_H
#define LAUNCHER_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum elf_has { ELF_CANNOT_TELL, ELF_HAS_NOT, ELF_HAS };

struct elf_source {
    bool (*read)(void *user, uint64_t at, void *to, size_t n); /* all of it, or false */
    void *user;
};

/* Does it define `symbol`, or need a library whose name begins with `library`? ELF_CANNOT_TELL: not a shared library of this
 * machine's kind, or without the tables that would say it. */
enum elf_has elf_has(const struct elf_source *source, const char *symbol, const char *library);

#endif

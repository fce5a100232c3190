/* What a shared library defines and needs, read as the dynamic linker would; and files that are none, or lie. */
#include "plan/elf_symbols.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include <zlib.h>

static unsigned char *bytes;
static size_t n_bytes;
static int reads;

static bool read_bytes(void *user, uint64_t at, void *to, size_t n)
{
    (void)user;
    reads++;
    if (at > n_bytes || n > n_bytes - at)
        return false;
    memcpy(to, bytes + at, n);
    return true;
}

static const struct elf_source source = { read_bytes, NULL };

/* The file of the library that `function` lies in. */
static void load_library_of(void *function)
{
    Dl_info where;
    cr_assert_neq(dladdr(function, &where), 0);
    FILE *file = fopen(where.dli_fname, "rb");
    cr_assert_not_null(file, "%s", where.dli_fname);
    bytes = malloc(n_bytes = 16 << 20);
    n_bytes = fread(bytes, 1, n_bytes, file);
    fclose(file);
}

static void tear_down(void)
{
    free(bytes);
}

TestSuite(elf_symbols, .fini = tear_down);

Test(elf_symbols, finds_what_a_library_defines)
{
    load_library_of((void *)zlibVersion);
    cr_expect_eq(elf_has(&source, "inflate", "none"), ELF_HAS);
    cr_expect_eq(elf_has(&source, "deflateInit_", "none"), ELF_HAS);
    cr_expect_eq(elf_has(&source, "uv_listen", "libuv.so"), ELF_HAS_NOT);
    cr_expect_eq(elf_has(&source, "inflat", "none"), ELF_HAS_NOT, "the beginning of a name is none");
    cr_expect_lt(reads, 200, "a few reads and not the whole file");
}

Test(elf_symbols, finds_what_a_library_needs)
{
    load_library_of((void *)zlibVersion);
    cr_expect_eq(elf_has(&source, "nobody_defines_this", "libc.so"), ELF_HAS);
}

Test(elf_symbols, finds_libuv_itself)
{
    load_library_of((void *)uv_listen);
    cr_expect_eq(elf_has(&source, "uv_listen", "libuv.so"), ELF_HAS);
}

Test(elf_symbols, says_nothing_of_what_it_cannot_read)
{
    bytes = calloc(1, n_bytes = 4096);
    cr_expect_eq(elf_has(&source, "f", "l"), ELF_CANNOT_TELL);
    memcpy(bytes, "#!/bin/sh\n", 10);
    cr_expect_eq(elf_has(&source, "f", "l"), ELF_CANNOT_TELL);
    n_bytes = 0;
    cr_expect_eq(elf_has(&source, "f", "l"), ELF_CANNOT_TELL);
}

/* Its dynamic section, in `bytes`. */
static Elf64_Dyn *dynamic_of_library(size_t *n)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)bytes;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(bytes + header->e_phoff);
    while (segment->p_type != PT_DYNAMIC)
        segment++;
    *n = segment->p_filesz / sizeof(Elf64_Dyn);
    return (Elf64_Dyn *)(bytes + segment->p_offset);
}

static Elf64_Dyn *entry_of(int64_t tag)
{
    size_t n;
    Elf64_Dyn *entry = dynamic_of_library(&n);
    while (entry->d_tag != tag)
        entry++;
    return entry;
}

Test(elf_symbols, cannot_tell_without_the_tables)
{
    static const int64_t tables[] = { DT_STRTAB, DT_SYMTAB, DT_GNU_HASH };
    load_library_of((void *)zlibVersion);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        Elf64_Dyn *entry = entry_of(tables[i]);
        const Elf64_Dyn was = *entry;
        entry->d_tag = DT_DEBUG;
        cr_expect_eq(elf_has(&source, "inflate", "none"), ELF_CANNOT_TELL, "table %zu is not named", i);
        *entry = was;
        entry->d_un.d_ptr = UINT64_MAX;
        cr_expect_eq(elf_has(&source, "inflate", "none"), ELF_CANNOT_TELL, "table %zu is nowhere", i);
        *entry = was;
    }
    cr_expect_eq(elf_has(&source, "inflate", "none"), ELF_HAS);
}

Test(elf_symbols, what_stands_behind_the_end_of_the_dynamic_section_does_not_count)
{
    size_t n;
    load_library_of((void *)zlibVersion);
    Elf64_Dyn *all = dynamic_of_library(&n), *needed = entry_of(DT_NEEDED);
    if (n < 2 || all[n - 2].d_tag != DT_NULL)
        cr_skip_test("skipped, because this library has no room behind the end of its dynamic section");
    all[n - 1] = *needed;
    needed->d_tag = DT_DEBUG;
    cr_expect_eq(elf_has(&source, "nobody_defines_this", "libc.so"), ELF_HAS_NOT);
}

/* Cut anywhere, or with any byte of its tables changed: an answer, and no read beyond the end. */
Test(elf_symbols, survives_every_damage)
{
    load_library_of((void *)zlibVersion);
    const size_t whole = n_bytes;
    for (n_bytes = 0; n_bytes < whole; n_bytes += 97)
        elf_has(&source, "inflate", "none");
    n_bytes = whole;
    for (size_t i = 0; i < whole; i += i < 8192 ? 1 : 61) {
        const unsigned char was = bytes[i];
        bytes[i] = (unsigned char)(was ^ 0xff);
        elf_has(&source, "inflate", "none");
        bytes[i] = was;
    }
    cr_expect_eq(elf_has(&source, "inflate", "none"), ELF_HAS);
}

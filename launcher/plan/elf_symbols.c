/* elf_symbols.c -- see elf_symbols.h.
 *
 *     ELF header -> program headers -> the dynamic section -> names of needed libraries, and the GNU hash table:
 *     hash -> bucket -> chain of hashes -> symbol -> its name
 *
 * Every number is of a file that anybody may have written. Counts have limits, every offset is only ever handed to `read`,
 * which knows where the file ends, and a chain that does not end is left after CHAIN_MAX links. */
#include "plan/elf_symbols.h"

#include <elf.h>
#include <string.h>

enum { SEGMENTS_MAX = 64, ENTRIES_MAX = 1024, CHAIN_MAX = 4096, NAME_MAX_BYTES = 64 };

struct library {
    const struct elf_source *source;
    size_t n_segments;
    Elf64_Phdr segments[SEGMENTS_MAX];
    size_t n_entries;
    Elf64_Dyn entries[ENTRIES_MAX]; /* of the dynamic section, up to its DT_NULL */
    uint64_t texts, symbols;        /* offsets of its tables */
};

static bool read_at(const struct library *lib, uint64_t at, void *to, size_t n)
{
    return lib->source->read(lib->source->user, at, to, n);
}

/* The other byte order would need every number turned around; such a library does not run here anyway. */
static bool read_header(const struct library *lib, Elf64_Ehdr *header)
{
    const unsigned char order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    return read_at(lib, 0, header, sizeof(*header)) && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == order;
}

static bool read_segments(struct library *lib)
{
    Elf64_Ehdr header;
    if (!read_header(lib, &header) || header.e_phnum > SEGMENTS_MAX ||
        header.e_phentsize != sizeof(lib->segments[0]))
        return false;
    lib->n_segments = header.e_phnum;
    return read_at(lib, header.e_phoff, lib->segments, lib->n_segments * sizeof(lib->segments[0]));
}

/* Behind DT_NULL there is room for tools, and nothing that counts. */
static void end_dynamic(struct library *lib)
{
    size_t n = 0;
    while (n < lib->n_entries && lib->entries[n].d_tag != DT_NULL)
        n++;
    lib->n_entries = n;
}

static bool read_dynamic(struct library *lib)
{
    for (size_t i = 0; i < lib->n_segments; i++) {
        const Elf64_Phdr *segment = &lib->segments[i];
        if (segment->p_type != PT_DYNAMIC || segment->p_filesz > sizeof(lib->entries))
            continue;
        lib->n_entries = segment->p_filesz / sizeof(lib->entries[0]);
        if (!read_at(lib, segment->p_offset, lib->entries, lib->n_entries * sizeof(lib->entries[0])))
            return false;
        end_dynamic(lib);
        return true;
    }
    return false;
}

/* A sum that does not wrap: beyond the end there is nothing, and no other table. */
static uint64_t behind(uint64_t offset, uint64_t by)
{
    return by <= UINT64_MAX - offset ? offset + by : UINT64_MAX;
}

/* Where in the file lies what will be at that address? UINT64_MAX, at which nothing can be read: nowhere. */
static uint64_t offset_of(const struct library *lib, uint64_t address)
{
    for (size_t i = 0; i < lib->n_segments; i++) {
        const Elf64_Phdr *s = &lib->segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz)
            return behind(s->p_offset, address - s->p_vaddr);
    }
    return UINT64_MAX;
}

/* The table that an entry of this kind points to. */
static uint64_t table(const struct library *lib, int64_t tag)
{
    for (size_t i = 0; i < lib->n_entries; i++)
        if (lib->entries[i].d_tag == tag)
            return offset_of(lib, lib->entries[i].d_un.d_ptr);
    return UINT64_MAX;
}

/* Is the text at that place `text`, or with `begins` something that begins so? */
static bool is_text(const struct library *lib, uint64_t at, const char *text, bool begins)
{
    char found[NAME_MAX_BYTES];
    const size_t n = strlen(text) + !begins;
    return n <= sizeof(found) && read_at(lib, at, found, n) && memcmp(found, text, n) == 0;
}

static bool needs(const struct library *lib, const char *library)
{
    for (size_t i = 0; i < lib->n_entries; i++)
        if (lib->entries[i].d_tag == DT_NEEDED &&
            is_text(lib, behind(lib->texts, lib->entries[i].d_un.d_val), library, true))
            return true;
    return false;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool is_symbol(const struct library *lib, uint32_t index, const char *name)
{
    Elf64_Sym symbol;
    return read_at(lib, behind(lib->symbols, (uint64_t)index * sizeof(symbol)), &symbol, sizeof(symbol)) &&
           is_text(lib, behind(lib->texts, symbol.st_name), name, false);
}

/* A bucket names the first symbol of its chain; the lowest bit of a link's hash is set in the last one. */
static enum elf_has walk_chain(const struct library *lib, uint64_t chains, uint32_t index, uint32_t first,
                               const char *name)
{
    const uint32_t hash = gnu_hash(name);
    for (int i = 0; i < CHAIN_MAX; i++, index++) {
        uint32_t link;
        if (index < first ||
            !read_at(lib, chains + (uint64_t)(index - first) * sizeof(link), &link, sizeof(link)))
            return ELF_CANNOT_TELL;
        if ((link | 1) == (hash | 1) && is_symbol(lib, index, name))
            return ELF_HAS;
        if (link & 1)
            return ELF_HAS_NOT;
    }
    return ELF_CANNOT_TELL;
}

/* The filter in front of the buckets only saves time, and is passed over. */
static enum elf_has defines(const struct library *lib, const char *name)
{
    struct {
        uint32_t n_buckets, first, n_filter, shift;
    } head;
    uint32_t index;
    const uint64_t at = table(lib, DT_GNU_HASH);
    if (at == UINT64_MAX || !read_at(lib, at, &head, sizeof(head)) || head.n_buckets == 0)
        return ELF_CANNOT_TELL;
    const uint64_t buckets = at + sizeof(head) + (uint64_t)head.n_filter * sizeof(uint64_t);
    if (!read_at(lib, buckets + (uint64_t)(gnu_hash(name) % head.n_buckets) * sizeof(index), &index,
                 sizeof(index)))
        return ELF_CANNOT_TELL;
    if (index == 0)
        return ELF_HAS_NOT;
    return walk_chain(lib, buckets + (uint64_t)head.n_buckets * sizeof(index), index, head.first, name);
}

enum elf_has elf_has(const struct elf_source *source, const char *symbol, const char *library)
{
    struct library lib = { .source = source };
    if (!read_segments(&lib) || !read_dynamic(&lib))
        return ELF_CANNOT_TELL;
    lib.texts = table(&lib, DT_STRTAB);
    lib.symbols = table(&lib, DT_SYMTAB);
    if (lib.texts == UINT64_MAX || lib.symbols == UINT64_MAX)
        return ELF_CANNOT_TELL;
    return needs(&lib, library) ? ELF_HAS : defines(&lib, symbol);
}

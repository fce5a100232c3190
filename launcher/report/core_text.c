/* core_text.c -- see evidence_text.h: how a core file is called, and what its notes say. */
#include "report/evidence_text.h"

#include <elf.h>
#include <stdio.h>

/* A core file is as much to be believed as anything a worker has written: numbers in it are compared with what has been
 * read, and loops end. The offsets are those of siginfo_t on machines of 64 bits. */
enum { SEGMENTS_MAX = 4096, NOTES_MAX = 4096, SI_CODE_AT = 8, SI_ADDR_AT = 16, SI_FROM_KERNEL = 0x80 };

/* False when there is no room. */
static bool put(char glob[PATH_MAX], size_t *n, const char *text)
{
    size_t len = strlen(text);
    if (*n + len >= PATH_MAX)
        return false;
    memcpy(glob + *n, text, len + 1);
    *n += len;
    return true;
}

/* One plain character, so that fnmatch takes it for itself. */
static bool put_plain(char glob[PATH_MAX], size_t *n, char c)
{
    const char text[] = { c, '\0' }, escaped[] = { '\\', c, '\0' };
    return put(glob, n, strchr("*?[\\", c) != NULL ? escaped : text);
}

/* See core(5). Only the pid and the signal are known here for sure. */
bool core_glob(const char *pattern, bool uses_pid, int pid, int signal, char glob[PATH_MAX])
{
    char pid_text[16], signal_text[16];
    size_t n = 0;
    bool has_pid = false, ok = *pattern != '|';
    snprintf(pid_text, sizeof(pid_text), "%d", pid);
    snprintf(signal_text, sizeof(signal_text), "%d", signal);
    glob[0] = '\0';
    for (; *pattern != '\0' && *pattern != '\n' && ok; pattern++) {
        if (*pattern != '%') {
            ok = put_plain(glob, &n, *pattern);
            continue;
        }
        if (*++pattern == '\0')
            break;
        has_pid = has_pid || *pattern == 'p';
        ok = put(glob, &n,
                 *pattern == 'p'   ? pid_text
                 : *pattern == 's' ? signal_text
                 : *pattern == '%' ? "%"
                                   : "*");
    }
    if (uses_pid && !has_pid)
        ok = ok && put(glob, &n, ".") && put(glob, &n, pid_text);
    return ok;
}

/* Only of a fault that the processor met; a signal that somebody sent has a pid in that place. */
static bool fault_in_siginfo(const uint8_t *siginfo, uint64_t *address)
{
    int code;
    memcpy(&code, siginfo + SI_CODE_AT, sizeof(code));
    memcpy(address, siginfo + SI_ADDR_AT, sizeof(*address));
    return code > 0 && code < SI_FROM_KERNEL;
}

/* Notes come one after the other: three numbers, a name, the content, each padded to four bytes. */
static bool fault_in_notes(struct slice notes, uint64_t *address)
{
    const uint8_t *p = notes.data;
    size_t left = notes.len;
    for (int i = 0; i < NOTES_MAX && left >= sizeof(Elf64_Nhdr); i++) {
        Elf64_Nhdr note;
        memcpy(&note, p, sizeof(note));
        uint64_t name = ((uint64_t)note.n_namesz + 3) & ~UINT64_C(3),
                 size = ((uint64_t)note.n_descsz + 3) & ~UINT64_C(3);
        if (name + size > left - sizeof(note))
            return false;
        if (note.n_type == NT_SIGINFO && note.n_descsz >= SI_ADDR_AT + sizeof(*address))
            return fault_in_siginfo(p + sizeof(note) + name, address);
        p += sizeof(note) + name + size;
        left -= sizeof(note) + name + size;
    }
    return false;
}

/* Written by this very kernel: its numbers are ours. Only 64 bits; others do not run workers. */
bool core_fault(struct slice head, uint64_t *address)
{
    const uint8_t *p = head.data;
    Elf64_Ehdr elf;
    if (head.len < sizeof(elf))
        return false;
    memcpy(&elf, p, sizeof(elf));
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_type != ET_CORE)
        return false;
    for (size_t i = 0; i < elf.e_phnum && i < SEGMENTS_MAX; i++) {
        Elf64_Phdr segment;
        if (elf.e_phoff > head.len || head.len - elf.e_phoff < (i + 1) * sizeof(segment))
            return false;
        memcpy(&segment, p + elf.e_phoff + i * sizeof(segment), sizeof(segment));
        if (segment.p_type != PT_NOTE || segment.p_offset > head.len)
            continue;
        size_t room = head.len - segment.p_offset;
        return fault_in_notes(
            slice_of(p + segment.p_offset, segment.p_filesz < room ? segment.p_filesz : room), address);
    }
    return false;
}

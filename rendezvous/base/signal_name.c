/* signal_name.c -- see signal_name.h. */
#include "base/signal_name.h"

#include <signal.h>
#include <stddef.h>

const char *signal_abbrev(int signal)
{
#define ROW(name) [SIG##name] = #name
    static const char *const names[] = {
        ROW(HUP),  ROW(INT),  ROW(QUIT), ROW(ILL),  ROW(TRAP), ROW(ABRT),   ROW(BUS),   ROW(FPE),
        ROW(KILL), ROW(USR1), ROW(SEGV), ROW(USR2), ROW(PIPE), ROW(ALRM),   ROW(TERM),  ROW(STKFLT),
        ROW(CHLD), ROW(CONT), ROW(STOP), ROW(TSTP), ROW(TTIN), ROW(TTOU),   ROW(URG),   ROW(XCPU),
        ROW(XFSZ), ROW(PROF), ROW(POLL), ROW(PWR),  ROW(SYS),  ROW(VTALRM), ROW(WINCH),
    };
#undef ROW
    return signal >= 0 && signal < (int)(sizeof(names) / sizeof(names[0])) ? names[signal] : NULL;
}

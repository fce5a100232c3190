/* signal_name.h -- names of signals; the C library has them since version 2.32 only. */
#ifndef BASE_SIGNAL_NAME_H
#define BASE_SIGNAL_NAME_H

/* Return "TERM" for SIGTERM, or NULL for a number without a name. */
const char *signal_abbrev(int signal);

#endif

/* escape.h -- a worker's line as a terminal may be given it.
 *
 * Text, tabs and colours pass. Everything else that a terminal would obey (moving the cursor, titles, the clipboard,
 * other screens, 8-bit controls, text that runs right to left over what stands there) and every byte that is not UTF-8
 * becomes visible as \xNN. So a worker can harm neither the terminal nor what others wrote on it. */
#ifndef LAUNCHER_ESCAPE_H
#define LAUNCHER_ESCAPE_H

#include "base/buf.h"

#define COLOUR_OFF "\033[0m"
#define ERASE_ROW  "\033[K" /* from the cursor to the end of the row */

/* Append one line, without its end. A colour that it leaves on is switched off behind it. False when memory is short;
 * part of it may be appended then. */
bool escape_put(struct buf *out, struct slice line);

/* The same without colours, for what is not a terminal: words of ours, with names in them that others have given. */
bool escape_put_plain(struct buf *out, struct slice line);

#endif

/* utf8.h -- which bytes are UTF-8. */
#ifndef LAUNCHER_UTF8_H
#define LAUNCHER_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the valid UTF-8 sequence at `p` (`len` > 0 bytes are there), 0 when there is none: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
size_t utf8_sequence(const uint8_t *p, size_t len);

/* The code point of a valid sequence of `len` bytes. */
uint32_t utf8_code(const uint8_t *p, size_t len);

#endif

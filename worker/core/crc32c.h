/* crc32c.h -- CRC-32C (Castagnoli; polynomial 0x1edc6f41, RFC 3720 appendix B.4). The function is pure.
 *
 *     crc = crc32c(0, first, n);  crc = crc32c(crc, second, m);        in any number of pieces
 *
 * CRC-32C is used because x86 has an instruction for it, but none for zlib's CRC-32. */
#ifndef WORKER_CORE_CRC32C_H
#define WORKER_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC-32C of earlier data followed by `len` bytes of `data`. `crc` is the CRC-32C of the earlier data. If
 * `data` is the first part, `crc` is 0. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif

/* flush_subnormals.h -- arithmetic that treats subnormal numbers as zero, because an operation with a subnormal number
 * can take more than a hundred cycles. Gradients become subnormal while a model converges. */
#ifndef WORKER_CORE_FLUSH_SUBNORMALS_H
#define WORKER_CORE_FLUSH_SUBNORMALS_H

#include <stdbool.h>
#include <stdint.h>

/* Each thread has its own mode: FTZ and DAZ in MXCSR on x86, FZ in FPCR on Arm. On other processors FLUSH_SUBNORMALS
 * does nothing. A new thread inherits the mode of its creator. The memory clobbers prevent the compiler from moving
 * loads and stores across the borders of the block. */

#if defined(__x86_64__)

enum { FLUSH_SUBNORMALS_BITS = 0x8040 }; /* FTZ, DAZ */

static inline uint64_t flush_subnormals_read(void)
{
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word)::"memory");
    return word;
}

static inline void flush_subnormals_write(uint64_t value)
{
    const uint32_t word = (uint32_t)value;
    __asm__ volatile("ldmxcsr %0" ::"m"(word) : "memory");
}

#elif defined(__aarch64__)

/* The bit FZ of the register FPCR sets the mode. The bit FZ16 of FPCR affects only arithmetic in f16, which
 * libddp does not use. */
enum { FLUSH_SUBNORMALS_BITS = 1 << 24 };

static inline uint64_t flush_subnormals_read(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word)::"memory");
    return word;
}

static inline void flush_subnormals_write(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(word) : "memory");
}

#else

enum { FLUSH_SUBNORMALS_BITS = 0 };

static inline uint64_t flush_subnormals_read(void)
{
    return 0;
}

static inline void flush_subnormals_write(uint64_t word)
{
    (void)word;
}

#endif

/* Set the mode of this thread to `bits`, which is FLUSH_SUBNORMALS_BITS or 0. Write the register only if the mode
 * changes, because a write is slow. */
static inline void flush_subnormals_set(uint64_t bits)
{
    const uint64_t word = flush_subnormals_read();
    const uint64_t wanted = (word & ~(uint64_t)FLUSH_SUBNORMALS_BITS) | bits;
    if (wanted != word)
        flush_subnormals_write(wanted);
}

/* Set the mode, and return the bits of the old mode. */
static inline uint64_t flush_subnormals_begin(bool flush)
{
    const uint64_t before = flush_subnormals_read() & FLUSH_SUBNORMALS_BITS;
    flush_subnormals_set(flush ? FLUSH_SUBNORMALS_BITS : 0);
    return before;
}

/* Restore only the bits of the mode. A callback may have changed other bits, such as the rounding mode or exception
 * flags. These changes remain. */
static inline void flush_subnormals_end(const uint64_t *before)
{
    flush_subnormals_set(*before);
}

/* Use the macro only once in a block, because it declares a variable.
 *
 *     FLUSH_SUBNORMALS(true);      until the end of the block: subnormal operands and results are zero
 *     FLUSH_SUBNORMALS(false);     until the end of the block: subnormals are kept, whatever the mode was */
#define FLUSH_SUBNORMALS(flush)                                                                           \
    __attribute__((cleanup(flush_subnormals_end), unused)) const uint64_t flush_subnormals_before_block = \
        flush_subnormals_begin(flush)

#endif

/* The input is a file of CIFAR-10, plain or gzip. The file must be rejected with an error text, or all its records must
 * be readable. */
#include "train/data/pictures.c"

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Read the input as two files, because a data set has several files. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct cifar c = { .n = 0 };
    struct ddp_err err = { .msg = "" };
    unsigned sum = 0;
    const char *path = memory_file(data, len);
    if (cifar_add(&c, path, &err) == DDP_OK && cifar_add(&c, path, &err) == DDP_OK) {
        if (c.n == 0 || c.n % 2 != 0)
            abort();
        for (size_t i = 0; i < c.n; i++) {
            const uint8_t *record = cifar_record(&c, i);
            if (record[0] >= CIFAR_CLASSES)
                abort();
            for (int k = 1; k < CIFAR_RECORD; k++)
                sum += record[k];
        }
        if (sum == UINT32_MAX)
            abort(); /* uses the sum, so that the compiler keeps the reads */
    } else if (err.msg[0] == '\0') {
        abort();
    }
    cifar_free(&c);
    return 0;
}

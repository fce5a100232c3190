/* vectors.h -- bytes captured from live PyTorch clients (1.13.1 speaks dialect A, 2.14.1 dialect C), and the
 * answers of PyTorch's own server. The order matters, because each row relies on the earlier rows. */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

struct vector {
    const char *name;
    const char *client, *server; /* hex */
};

#define N(n) #n "00000000000000"

static const struct vector vectors_a[] = {
    { "ADD init/ 1", "03" N(05) "696e69742f" N(01), N(01) },
    { "SET /a hi", "00" N(02) "2f61" N(02) "6869", "" },
    { "WAIT /a", "05" N(01) N(02) "2f61", "00" },
    { "GET /a", "02" N(02) "2f61", N(02) "6869" },
    { "ADD /n -3", "03" N(02) "2f6e fdffffffffffffff", "fdffffffffffffff" },
    { "COMPARE_SET /a hi yo", "01" N(02) "2f61" N(02) "6869" N(02) "796f", N(02) "796f" },
    { "GETNUMKEYS", "06", N(03) },
    { "DELETE_KEY /a", "08" N(02) "2f61", N(01) },
    { "WAIT /never", "05" N(01) N(06) "2f6e65766572", "" },
};

static const struct vector vectors_c[] = {
    { "VALIDATE and PING", "00 cef7853c 0d c6100000", "c6100000" },
    { "ADD init/ 1", "04" N(05) "696e69742f" N(01), N(01) },
    { "SET /a, WAIT /a", "01" N(02) "2f61" N(02) "6869 06" N(01) N(02) "2f61", "00" },
    { "GET /a", "03" N(02) "2f61", N(02) "6869" },
    { "ADD /n -3", "04" N(02) "2f6e fdffffffffffffff", "fdffffffffffffff" },
    { "COMPARE_SET /a hi yo", "02" N(02) "2f61" N(02) "6869" N(02) "796f", N(02) "796f" },
    { "GETNUMKEYS", "07", N(03) },
    { "DELETE_KEY /a", "08" N(02) "2f61", N(01) },
    { "CHECK /n /zz", "05" N(02) N(02) "2f6e" N(03) "2f7a7a", "01" },
    { "APPEND /p x", "09" N(02) "2f70" N(01) "78", "" },
    { "MULTI_SET /m /k", "0b" N(02) N(02) "2f6d" N(01) "31" N(02) "2f6b" N(02) "3232", "" },
    { "WAIT /m /k", "06" N(02) N(02) "2f6d" N(02) "2f6b", "00" },
    { "MULTI_GET /m /k", "0a" N(02) N(02) "2f6d" N(02) "2f6b", N(01) "31" N(02) "3232" },
    { "BARRIER /b 1", "12" N(02) "2f62" N(01), "00" },
    { "QUEUE_PUSH /q e", "0e" N(02) "2f71" N(01) "65", "" },
    { "QUEUE_LEN /q", "10" N(02) "2f71", N(01) },
    { "QUEUE_POP /q", "0f" N(02) "2f71", N(01) N(01) "65" },
    { "QUEUE_POP /q, empty", "0f" N(02) "2f71", N(00) },
    { "WAIT /never", "06" N(01) N(06) "2f6e65766572", "" },
    { "CANCEL_WAIT", "0c", "01" },
};

enum {
    VECTORS_A = sizeof(vectors_a) / sizeof(vectors_a[0]),
    VECTORS_C = sizeof(vectors_c) / sizeof(vectors_c[0])
};

#endif

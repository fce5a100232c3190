/* Some tests read pickles that Python has written, whole or cut at any byte. Other tests read pickles that an attacker
 * may write. */
#include "record/pickle.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ddp_err err;

#define BYTES(text) slice_of(text, sizeof(text) - 1)

static void expect_json(struct slice pickle, const char *json)
{
    cJSON *value = pickle_read(pickle, &err);
    char *text = cJSON_PrintUnformatted(value);
    cr_assert(value != NULL, "%s", err.msg);
    cr_expect_str_eq(text, json);
    free(text);
    cJSON_Delete(value);
}

static void expect_error(struct slice pickle, const char *words)
{
    cJSON *value = pickle_read(pickle, &err);
    cr_expect(value == NULL);
    cr_expect(value != NULL || strstr(err.msg, words) != NULL, "'%s' is not in '%s'", words, err.msg);
    cJSON_Delete(value);
}

/* pickle.dumps({"a": [1, -2, 70000, 2**40, 0.5], 3: (True, False, None), "b": (), "": ("x",), "t": (1, 2, 3,
 * "a")}, 2) */
static const char plain[] =
    "\x80\x02}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01G?"
    "\xe0\x00\x00\x00\x00\x00\x00"
    "eK\x03\x88\x89N\x87q\x03X\x01\x00\x00\x00"
    "bq\x04)X\x00\x00\x00\x00q\x05X\x01\x00\x00\x00xq\x06\x85q\x07X\x01\x00\x00\x00tq\x08("
    "K\x01K\x02K\x03h\x01tq\tu.";

Test(pickle, plain_data_becomes_json)
{
    expect_json(BYTES(plain),
                "{\"a\":[1,-2,70000,1099511627776,0.5],\"3\":[true,false,null],\"b\":[],\"\":[\"x\"],"
                "\"t\":[1,2,3,\"a\"]}");
}

/* The result of pickle.dumps(["ab", ["ab"], {"k": 1}], 4). This pickle contains a frame, short strings, memo entries
 * without numbers, and the opcodes APPEND and SETITEM. */
Test(pickle, newer_protocols)
{
    expect_json(BYTES("\x80\x04\x95\x18\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x02"
                      "ab\x94]\x94h\x01"
                      "a}\x94\x8c\x01k\x94K\x01se."),
                "[\"ab\",[\"ab\"],{\"k\":1}]");
}

Test(pickle, a_container_used_twice_is_copied)
{
    /* x = {"line": 7}; pickle.dumps([x, x], 2) */
    expect_json(BYTES("\x80\x02]q\x00(}q\x01X\x04\x00\x00\x00lineq\x02K\x07sh\x01"
                      "e."),
                "[{\"line\":7},{\"line\":7}]");
}

Test(pickle, every_cut_is_an_error)
{
    for (size_t len = 0; len + 1 < sizeof(plain) - 1; len++) {
        char *copy = malloc(len); /* a small copy, so that AddressSanitizer detects a read past its end */
        memcpy(copy, plain, len);
        cJSON *value = pickle_read(slice_of(copy, len), &err);
        cr_expect(value == NULL, "cut at %zu", len);
        cJSON_Delete(value);
        free(copy);
    }
}

Test(pickle, code_is_never_run)
{
    expect_error(BYTES("\x80\x02"
                       "cos\nsystem\nX\x02\x00\x00\x00id\x85R."),
                 "offset 3: rejected");
    expect_error(BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R."), "rejected");
}

Test(pickle, values_in_the_wrong_place)
{
    expect_error(BYTES("\x80\x02."), "one value");
    expect_error(BYTES("\x80\x02NN."), "one value");
    expect_error(BYTES("\x80\x02(."), "one value");
    expect_error(BYTES("\x80\x02Ne."), "mark is");
    expect_error(BYTES("\x80\x02(Ne."), "the mark");
    expect_error(BYTES("\x80\x02N(Ne."), "a list");
    expect_error(BYTES("\x80\x02NNa."), "a list");
    expect_error(BYTES("\x80\x02](NNu."), "a dict");
    expect_error(BYTES("\x80\x02}(Nu."), "a dict");
    expect_error(BYTES("\x80\x02}]Ns."), "key is");
    expect_error(BYTES("\x80\x02N(\x86."), "value is");
    expect_error(BYTES("\x80\x02q\x00."), "value is");
    expect_error(BYTES("\x80\x02Nq\x01."), "too high");
    expect_error(BYTES("\x80\x02h\x00."), "memo before");
    expect_error(BYTES("\x80\x02Nq\x00h\x00."), "list nor");
    expect_error(BYTES("\x80\x02X\xff\xff\xff\xff"), "truncated");
    expect_error(BYTES("\x80\x02X\x01\x00\x00\x00\x00."), "zero byte");
    expect_error(BYTES("\x80\x02\x8a\x09"), "more than 64 bits");
}

/* A short file can describe 2^60 values: 60 lists, each of which contains the previous list twice. */
Test(pickle, copies_count_against_the_limit)
{
    char bytes[1024] = "\x80\x02]q";
    size_t n = 5;
    for (char i = 0; i < 60; i++) {
        const char list[] = { ']', 'q', (char)(i + 1), '(', 'h', i, 'h', i, 'e' };
        memcpy(bytes + n, list, sizeof(list));
        n += sizeof(list);
    }
    bytes[n++] = '.';
    expect_error(slice_of(bytes, n), "many values");
}

/* This file of 10 MiB contains five million empty tuples of two bytes each. */
Test(pickle, empty_tuples_count_against_the_limit)
{
    const size_t len = 10 << 20;
    char *bytes = malloc(len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = i % 2 == 0 ? '(' : 't';
    expect_error(slice_of(bytes, len), "many values");
    free(bytes);
}

Test(pickle, deep_values_are_an_error)
{
    char bytes[256] = "\x80\x02";
    size_t n = 2;
    for (int i = 0; i < 60; i++)
        bytes[n++] = ']';
    for (int i = 0; i < 59; i++)
        bytes[n++] = 'a';
    bytes[n++] = '.';
    expect_error(slice_of(bytes, n), "too deeply");
}

Test(pickle, its_first_bytes)
{
    cr_expect(pickle_is(BYTES("\x80\x02}.")));
    cr_expect_not(pickle_is(BYTES("{\"a\":1}")));
    cr_expect_not(pickle_is(BYTES("\x80")));
    cr_expect_not(pickle_is(BYTES("")));
}

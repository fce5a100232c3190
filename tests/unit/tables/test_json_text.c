/* Any bytes become UTF-8, and valid UTF-8 stays unchanged. Workers print bytes of any kind, and a JSON parser
 * rejects a file with one wrong byte. */
#include "base/text.h"
#include "tables/text.h"

#include <criterion/criterion.h>

#define BAD "\xef\xbf\xbd"

static void expect(const char *bytes, size_t len, const char *clean)
{
    struct buf out = { 0 };
    cr_assert(utf8_clean(&out, slice_of(bytes, len)));
    cr_assert(buf_append(&out, "", 1));
    cr_assert_str_eq((char *)out.data, clean);
    buf_free(&out);
}

#define EXPECT(bytes, clean) expect(bytes, sizeof(bytes) - 1, clean)

Test(json_text, valid_text_is_left_alone)
{
    EXPECT("", "");
    EXPECT("plain", "plain");
    EXPECT("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
           "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");
}

Test(json_text, each_wrong_byte_becomes_one_mark)
{
    EXPECT("a\0b", "a" BAD "b");
    EXPECT("\xff\xfe", BAD BAD);
    EXPECT("cut \xe2\x82", "cut " BAD BAD);
    EXPECT("\xc0\xaf", BAD BAD);
    EXPECT("\xed\xa0\x80", BAD BAD BAD);
    EXPECT("\xf4\x90\x80\x80", BAD BAD BAD BAD);
    EXPECT("\xe0\x80\x80x", BAD BAD BAD "x");
    EXPECT("\xc3(", BAD "(");
}

/* Sentences with gaps, sizes and times for people, and what last words mean. */
#include "report/hints.h"
#include "text/words.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(words, fill_gaps_and_leave_other_braces_alone)
{
    const struct word words[] = { { "who", "rank 2" }, { "none", NULL } };
    struct buf out = { 0 };
    cr_assert(words_fill(&out, "{who} {none}{unknown} {} { {who", words, 2));
    cr_assert(buf_append(&out, "", 1));
    cr_assert_str_eq((char *)out.data, "rank 2 {unknown} {} { {who");
    buf_free(&out);
}

Test(words, sizes_are_short_and_true)
{
    char text[SIZE_TEXT_MAX];
    cr_expect_str_eq(words_size(text, 0), "0 bytes");
    cr_expect_str_eq(words_size(text, 1023), "1023 bytes");
    cr_expect_str_eq(words_size(text, 64 << 20), "64 MiB");
    cr_expect_str_eq(words_size(text, UINT64_C(3) << 29), "1.5 GiB");
    cr_expect_str_eq(words_size(text, UINT64_MAX), "16 EiB");
}

Test(words, times_have_one_unit)
{
    char text[TIME_TEXT_MAX];
    cr_expect_str_eq(words_time(text, 0), "0 ms");
    cr_expect_str_eq(words_time(text, 999), "999 ms");
    cr_expect_str_eq(words_time(text, 2500), "2.5 s");
    cr_expect_str_eq(words_time(text, 720 * 1000), "12 min");
    cr_expect_str_eq(words_time(text, UINT64_C(10) * 3600 * 1000), "10.0 h");
}

Test(words, the_calendar_knows_leap_years_and_places)
{
    char text[TIME_TEXT_MAX];
    cr_expect_str_eq(words_clock(text, 0, 0, true), "1970-01-01 00:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(951782399999), 0, true), "2000-02-28 23:59:59.999");
    cr_expect_str_eq(words_clock(text, UINT64_C(951782400000), 0, true), "2000-02-29 00:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(1704067200000), -3600, true), "2023-12-31 23:00:00.000");
    cr_expect_str_eq(words_clock(text, UINT64_C(1704067200000), 19800, false), "05:30:00.000");
}

/* --- hints ---------------------------------------------------------------------------------------------- */

static const char *hint(const char *text)
{
    const char *found = hint_for(slice_str(text));
    return found != NULL ? found : "";
}

Test(hints, know_what_users_meet)
{
    cr_expect(strstr(hint("train.py: error: unrecognized arguments: --local-rank=0\n"), "LOCAL_RANK"));
    cr_expect(strstr(hint("RuntimeError: [Errno 98] Address already in use"), "ss -ltnp"));
    cr_expect(strstr(hint("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried"), "nvidia-smi"));
    cr_expect(strstr(hint("write: No space left on device"), "/dev/shm"));
    cr_expect(strstr(hint("OSError: [Errno 24] Too many open files: 'x'"), "ulimit -n"));
    cr_expect(strstr(hint("CUDA error: invalid device ordinal"), "LOCAL_RANK"));
    cr_expect(strstr(hint("ibv_reg_mr_iova2 failed with error Cannot allocate memory"), "ulimit -l"));
    cr_expect(strstr(hint("env: 'python3\\r': No such file or directory"), "Windows"));
    cr_expect(strstr(hint("ModuleNotFoundError: No module named 'numpy'"), "lacks a module"));
    cr_expect_str_eq(hint("all is well"), "");
    cr_expect_str_eq(hint(""), "");
    cr_expect_null(hint_for(slice_of(NULL, 0)));
}

/* What Python says then does not name the cause: nothing is missing. */
Test(hints, a_script_with_the_name_of_a_package_hides_it)
{
    cr_expect(
        strstr(hint("ModuleNotFoundError: No module named 'torch.distributed'; 'torch' is not a package"),
               "rename it"));
    cr_expect(strstr(hint("AttributeError: partially initialized module 'torch' has no attribute 'nn' (most "
                          "likely due to a circular import)"),
                     "rename it"));
}

Test(hints, the_last_words_count)
{
    const char *text = "Connection refused, trying again\nCUDA out of memory\ndone\n";
    cr_expect(strstr(hint(text), "GPU"));
    cr_expect(strstr(hint("terminate called without an active exception"), "destroy_process_group()"));
    cr_expect(strstr(hint("unrecognized arguments: --local-rank=1"), "adds no arguments"),
              "the longer piece wins");
}

Test(hints, know_who_has_lost_a_rank)
{
    static const char gloo[] = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] ";
    char text[300];
    snprintf(text, sizeof(text), "%sConnection closed by peer [127.0.0.1]:400. This is typically\n", gloo);
    cr_expect(hint_is_of_lost_rank(slice_str(text)));
    snprintf(text, sizeof(text), "%sRead error [10.0.0.1]:7: Connection reset by peer\nbye\n", gloo);
    cr_expect(hint_is_of_lost_rank(slice_str(text)));
    cr_expect(
        hint_is_of_lost_rank(slice_str("ncclRemoteError: A call failed possibly due to a network error")));
    snprintf(text, sizeof(text), "%sTimed out waiting 5000ms for recv operation to complete\n", gloo);
    cr_expect_not(hint_is_of_lost_rank(slice_str(text)), "who is late may be anybody");
    snprintf(text, sizeof(text), "%sConnection closed by peer [::1]:4\nOSError: No space left on device\n",
             gloo);
    cr_expect_not(hint_is_of_lost_rank(slice_str(text)), "it has a reason of its own");
    cr_expect_not(hint_is_of_lost_rank(slice_str("urllib: [Errno 104] Connection reset by peer")));
    cr_expect_not(hint_is_of_lost_rank(slice_of(NULL, 0)));
}

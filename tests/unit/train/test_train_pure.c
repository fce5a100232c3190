/* Tests of the small pure modules of train: learning rates, phases of a step, lines of a trace, and trees of sums.
 * The modules get the time and the step as arguments, so the tests need neither data nor ranks. */
#include "train/profile.c"
#include "train/schedule.h"
#include "train/gradient.c"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- learning rates -------------------------------------------------------------------------------------- */

static double rate(enum schedule_kind kind, uint64_t warmup, uint64_t step)
{
    const struct schedule s = { .kind = kind, .lr = 0.8, .final_lr = 0.2, .warmup = warmup, .steps = 104 };
    return schedule_lr(&s, step);
}

Test(schedule, the_warm_up_grows_evenly_and_wastes_no_step)
{
    cr_expect_float_eq(rate(SCHEDULE_CONSTANT, 4, 0), 0.2, 1e-12);
    cr_expect_float_eq(rate(SCHEDULE_CONSTANT, 4, 2), 0.6, 1e-12);
    cr_expect_eq(rate(SCHEDULE_CONSTANT, 4, 3), 0.8);
    cr_expect_eq(rate(SCHEDULE_CONSTANT, 4, 103), 0.8);
    cr_expect_eq(rate(SCHEDULE_CONSTANT, 0, 0), 0.8);
}

Test(schedule, cosine_and_linear_fall_to_the_last_rate)
{
    cr_expect_eq(rate(SCHEDULE_COSINE, 4, 4), 0.8);
    cr_expect_float_eq(rate(SCHEDULE_COSINE, 4, 54), 0.5, 1e-12);
    cr_expect_float_eq(rate(SCHEDULE_COSINE, 4, 29), 0.2 + 0.6 * (1 + 0.70710678118654752) / 2, 1e-12);
    cr_expect_eq(rate(SCHEDULE_LINEAR, 4, 4), 0.8);
    cr_expect_float_eq(rate(SCHEDULE_LINEAR, 4, 54), 0.5, 1e-12);
    for (uint64_t step = 104; step < 2000; step += 700) {
        cr_expect_float_eq(rate(SCHEDULE_COSINE, 4, step), 0.2, 1e-12);
        cr_expect_float_eq(rate(SCHEDULE_LINEAR, 4, step), 0.2, 1e-12);
    }
}

Test(schedule, a_run_that_is_over_before_the_warm_up_never_divides_by_nothing)
{
    cr_expect_float_eq(rate(SCHEDULE_COSINE, 104, 103), 0.8, 1e-12);
    cr_expect_float_eq(rate(SCHEDULE_LINEAR, 200, 199), 0.8, 1e-12);
    cr_expect_float_eq(rate(SCHEDULE_LINEAR, 200, 200), 0.2, 1e-12);
}

/* --- phases ---------------------------------------------------------------------------------------------- */

Test(phases, what_is_inside_counts_only_there)
{
    struct phases p;
    phases_start(&p);
    phases_begin(&p, PHASE_BACKWARD, 1000);
    phases_begin(&p, PHASE_EXPOSED, 1300);
    phases_end(&p, 1500);
    phases_begin(&p, PHASE_EXPOSED, 1600);
    phases_end(&p, 1601); /* 1 us: counted in `us`, but too short for an entry in `piece` */
    phases_end(&p, 2000);
    phases_begin(&p, PHASE_OPTIMIZER, 2000);
    phases_end(&p, 2005);
    cr_expect(p.us[PHASE_BACKWARD] == 799 && p.us[PHASE_EXPOSED] == 201 && p.us[PHASE_OPTIMIZER] == 5);
    cr_assert_eq(p.count, 3);
    cr_expect(p.piece[0].phase == PHASE_EXPOSED && p.piece[0].begin_us == 1300 && p.piece[0].end_us == 1500);
    cr_expect(p.piece[1].phase == PHASE_BACKWARD && p.piece[1].end_us == 2000);
    phases_start(&p);
    cr_expect(p.count == 0 && p.us[PHASE_BACKWARD] == 0);
}

Test(phases, more_pieces_than_there_is_room_for_are_still_counted)
{
    struct phases p;
    phases_start(&p);
    for (uint64_t i = 0; i < 1000; i++) {
        phases_begin(&p, PHASE_DATA, i * 10);
        phases_end(&p, i * 10 + 3);
    }
    cr_expect(p.count == PHASES_PIECES && p.us[PHASE_DATA] == 3000);
    phases_begin(&p, PHASE_DATA, 50);
    phases_end(&p, 40);
    cr_expect_eq(p.us[PHASE_DATA], 3000, "a clock that goes back");
}

/* --- trace ----------------------------------------------------------------------------------------------- */

Test(trace, a_whole_file_is_json_and_says_who_what_when)
{
    const struct phases_piece exposed = { PHASE_EXPOSED, 17, 267 };
    char *text;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    fputs(trace_begin, file);
    trace_rank(file, 3);
    trace_piece(file, 3, &exposed, UINT64_MAX);
    fputs(trace_end, file);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    cr_assert_not_null(json, "%s", text);
    cJSON *piece = cJSON_GetArrayItem(json, 1);
    cr_expect_str_eq(cJSON_GetObjectItem(piece, "name")->valuestring, "exposed communication");
    cr_expect_str_eq(cJSON_GetObjectItem(piece, "ph")->valuestring, "X");
    cr_expect(cJSON_GetObjectItem(piece, "pid")->valueint == 3 &&
              cJSON_GetObjectItem(piece, "ts")->valueint == 17 &&
              cJSON_GetObjectItem(piece, "dur")->valueint == 250);
    cJSON_Delete(json);
    free(text);
}

/* --- trees ----------------------------------------------------------------------------------------------- */

/* Return the order of additions for `n` parts, such as "(0+(1+2))". */
static const char *sum_in_words(int n)
{
    static char buffer[8][1024];
    char both[2100];
    for (int part = 0; part < n; part++) {
        struct tree_part p = tree_part(n, part);
        cr_assert(p.buffer < tree_buffers(n) && p.merges <= p.buffer);
        snprintf(buffer[p.buffer], sizeof(buffer[0]), "%d", part);
        for (int b = p.buffer; b > p.buffer - p.merges; b--) {
            snprintf(both, sizeof(both), "(%s+%s)", buffer[b - 1], buffer[b]);
            cr_assert_lt(strlen(both), sizeof(buffer[0]));
            strcpy(buffer[b - 1], both);
        }
    }
    return buffer[0];
}

Test(tree, sums_are_those_of_a_binary_tree)
{
    cr_expect_str_eq(sum_in_words(1), "0");
    cr_expect_str_eq(sum_in_words(2), "(0+1)");
    cr_expect_str_eq(sum_in_words(3), "(0+(1+2))");
    cr_expect_str_eq(sum_in_words(4), "((0+1)+(2+3))");
    cr_expect_str_eq(sum_in_words(6), "((0+(1+2))+(3+(4+5)))");
    cr_expect_str_eq(sum_in_words(8), "(((0+1)+(2+3))+((4+5)+(6+7)))");
    cr_expect(tree_buffers(1) == 1 && tree_buffers(2) == 2 && tree_buffers(8) == 4 && tree_buffers(24) == 6);
}

/* One line in a second, and the number of the others. */
#include "base/gate.h"

#include <criterion/criterion.h>

Test(gate, one_line_in_a_second_and_a_count_of_the_rest)
{
    struct gate gate = { 0 };
    unsigned left_out = 99;
    cr_assert(gate_pass(&gate, 5000, &left_out));
    cr_assert_eq(left_out, 0);
    cr_assert_not(gate_pass(&gate, 5000, &left_out));
    cr_assert_not(gate_pass(&gate, 5999, &left_out));
    cr_assert(gate_pass(&gate, 6000, &left_out));
    cr_assert_eq(left_out, 2);
    cr_assert(gate_pass(&gate, 99999, &left_out));
    cr_assert_eq(left_out, 0);
}

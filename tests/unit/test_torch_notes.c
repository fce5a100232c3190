/* Notes of what PyTorch's ranks do: the barriers of a job, and what is kept of a client. */
#include "diagnosis/torch_keys.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct torch_meets meets;

static struct torch_meet *make(int number)
{
    char key[32];
    snprintf(key, sizeof(key), "barrier %d", number);
    return torch_meets_make(&meets, slice_str(key));
}

static struct torch_meet *find(int number)
{
    char key[32];
    snprintf(key, sizeof(key), "barrier %d", number);
    return torch_meets_find(&meets, slice_str(key));
}

Test(torch_notes, a_barrier_is_found_by_key_and_by_id)
{
    struct torch_meet *first = make(1), *second = make(2);
    cr_expect_eq(find(1), first);
    cr_expect_eq(find(2), second);
    cr_expect_eq(torch_meets_of_id(&meets, first->id), first);
    cr_expect_null(find(3));
    cr_expect_null(torch_meets_of_id(&meets, 0));
    cr_expect_null(torch_meets_of_id(&meets, second->id + 1));
}

/* An id is never that of another barrier, whoever still holds it. */
Test(torch_notes, the_oldest_barrier_gives_way)
{
    const uint32_t oldest = make(0)->id;
    for (int i = 1; i < TORCH_MEETS_MAX; i++)
        make(i);
    cr_expect_not_null(find(0));
    make(TORCH_MEETS_MAX);
    cr_expect_null(find(0));
    cr_expect_not_null(find(1));
    cr_expect_null(torch_meets_of_id(&meets, oldest));
}

Test(torch_notes, a_client_has_one_set_of_notes)
{
    struct torch_client *at = NULL, *notes = torch_client_at(&at);
    cr_assert_not_null(notes);
    cr_expect_eq(torch_client_at(&at), notes);
    torch_client_free(&at);
    cr_expect_null(at);
    torch_client_free(&at);
}

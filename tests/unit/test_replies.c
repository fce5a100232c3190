/* test_replies.c -- server/clients.h: in order, no byte lost, and full at its limits. */
#include "server/clients.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct replies replies;

/* What has been handed out: "id:bytes " each. */
static char sent[REPLIES_BYTES + REPLIES_MAX * 32];

static void note(void *user, conn_id to, struct slice bytes)
{
    char *text = user;
    const size_t len = strlen(text);
    snprintf(text + len, sizeof(sent) - len, "%d:%.*s ", (int)to, (int)bytes.len, (const char *)bytes.data);
}

static void fresh(void)
{
    replies = (struct replies){ 0 };
    sent[0] = '\0';
}

TestSuite(replies, .init = fresh);

Test(replies, go_out_in_their_order_once)
{
    cr_assert(replies_put(&replies, 7, slice_str("one")));
    cr_assert(replies_put(&replies, 9, slice_str("two")));
    cr_assert(replies_put(&replies, 7, slice_str("three")));
    replies_flush(&replies, note, sent);
    replies_flush(&replies, note, sent);
    cr_assert_str_eq(sent, "7:one 9:two 7:three ");
}

Test(replies, take_so_many_and_no_more)
{
    for (int i = 0; i < REPLIES_MAX; i++)
        cr_assert(replies_put(&replies, 1, slice_str("x")), "reply %d", i);
    cr_assert_not(replies_put(&replies, 1, slice_str("x")));
    replies_flush(&replies, note, sent);
    cr_assert_eq(strlen(sent), REPLIES_MAX * strlen("1:x "));
    cr_assert(replies_put(&replies, 1, slice_str("x")), "there is room again");
}

Test(replies, take_so_many_bytes_and_no_more)
{
    static char bytes[REPLIES_BYTES + 1];
    memset(bytes, 'b', sizeof(bytes));
    cr_assert_not(replies_put(&replies, 1, slice_of(bytes, sizeof(bytes))));
    cr_assert(replies_put(&replies, 1, slice_of(bytes, REPLIES_BYTES - 1)));
    cr_assert_not(replies_put(&replies, 2, slice_str("cd")));
    cr_assert(replies_put(&replies, 2, slice_str("c")));
    cr_assert(replies_put(&replies, 3, slice_of(NULL, 0)), "nothing needs no room");
    replies_flush(&replies, note, sent);
    cr_assert_eq(strlen(sent), strlen("1: 2: 3: ") + REPLIES_BYTES);
    cr_assert_str_eq(sent + strlen("1:") + REPLIES_BYTES - 2, "b 2:c 3: ");
}

/* Captured conversations, fed to the whole hub in every way a network can cut them. */
#include "sim_hub.h"
#include "vectors.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct sim sim;

static void set_up(void)
{
    sim_init(&sim, NULL);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(hub_vectors, .init = set_up, .fini = tear_down);

/* One after the other, each cut into pieces of `step` bytes. */
static void play(const struct vector *v, int n, size_t step)
{
    sim_connect(&sim, 1);
    for (int i = 0; i < n; i++) {
        sim_feed_cut(&sim, 1, v[i].client, step);
        sim_expect(&sim, 1, v[i].server);
    }
}

/* All in one stream, cut once, after `first` bytes; then the answers in one stream. */
static void play_joined(const struct vector *v, int n, size_t first)
{
    struct buf bytes = { 0 }, answers = { 0 };
    sim_connect(&sim, 1);
    for (int i = 0; i < n; i++) {
        hex_read(v[i].client, &bytes);
        cr_assert(buf_printf(&answers, "%s", v[i].server));
    }
    first = first < bytes.len ? first : bytes.len;
    sim_feed_bytes(&sim, 1, slice_of(bytes.data, first));
    sim_feed_bytes(&sim, 1, slice_of(bytes.data + first, bytes.len - first));
    sim_expect(&sim, 1, (char *)answers.data);
    buf_free(&bytes);
    buf_free(&answers);
}

Test(hub_vectors, dialect_a_whole)
{
    play(vectors_a, VECTORS_A, SIZE_MAX / 2);
}

Test(hub_vectors, dialect_c_whole)
{
    play(vectors_c, VECTORS_C, SIZE_MAX / 2);
}

Test(hub_vectors, dialect_a_byte_by_byte)
{
    play(vectors_a, VECTORS_A, 1);
}

Test(hub_vectors, dialect_c_byte_by_byte)
{
    play(vectors_c, VECTORS_C, 1);
}

Test(hub_vectors, dialect_a_joined_and_cut_at_every_byte)
{
    for (size_t cut = 0; cut < 250; cut++) {
        play_joined(vectors_a, VECTORS_A, cut);
        sim_free(&sim);
        sim_init(&sim, NULL);
    }
}

Test(hub_vectors, dialect_c_joined_and_cut_at_every_byte)
{
    for (size_t cut = 0; cut < 560; cut++) {
        play_joined(vectors_c, VECTORS_C, cut);
        sim_free(&sim);
        sim_init(&sim, NULL);
    }
}

Test(hub_vectors, list_keys_names_every_key_once)
{
    sim_connect(&sim, 1);
    sim_feed(&sim, 1, "00 cef7853c 01" N(02) "2f61" N(00) "0e" N(02) "2f71" N(01) "65 11");
    sim_expect(&sim, 1, N(01) N(02) "2f61");
}

/* Tests of the generated data set, which is the same on every machine, balanced, and not empty. Tests of train
 * expect known losses, so every bit of the data must be known, too. */
#include "train/data/makers.c"

#include <criterion/criterion.h>
#include <string.h>

enum { N = 200 };

static uint8_t pixels[2][N * PICTURE_PIXELS], labels[2][N];

static void fill(int which, uint64_t seed)
{
    ddp_random luck;
    ddp_random_seed(&luck, seed);
    glyph_fill(&luck, N, pixels[which], labels[which]);
}

Test(glyphs, equal_seeds_give_equal_pictures_and_others_do_not)
{
    fill(0, 5);
    fill(1, 5);
    cr_expect_eq(memcmp(pixels[0], pixels[1], sizeof(pixels[0])), 0);
    cr_expect_eq(memcmp(labels[0], labels[1], N), 0);
    fill(1, 6);
    cr_expect_neq(memcmp(pixels[0], pixels[1], sizeof(pixels[0])), 0);
}

Test(glyphs, every_class_comes_equally_often_in_mixed_order)
{
    int count[CLASSES] = { 0 }, in_order = 0;
    fill(0, 1);
    for (int i = 0; i < N; i++) {
        count[labels[0][i]]++;
        in_order += labels[0][i] == i % CLASSES;
    }
    for (int k = 0; k < CLASSES; k++)
        cr_expect_eq(count[k], N / CLASSES);
    cr_expect_lt(in_order, N / 2);
}

Test(glyphs, pictures_show_something)
{
    fill(0, 1);
    for (int i = 0; i < N; i++) {
        int dark = 0;
        for (int k = 0; k < PICTURE_PIXELS; k++)
            dark += pixels[0][i * PICTURE_PIXELS + k] > 100;
        cr_expect(dark > 20 && dark < 400, "picture %d of class %d has %d dark pixels", i, labels[0][i],
                  dark);
    }
}

/* IEEE arithmetic determines the bytes, so they are the same with another machine, compiler or optimization. */
Test(glyphs, the_bytes_are_the_known_ones)
{
    uint64_t hash = 14695981039346656037u;
    fill(0, 1);
    for (size_t i = 0; i < sizeof(pixels[0]); i++)
        hash = (hash ^ pixels[0][i]) * 1099511628211u;
    cr_expect_eq(hash, 0xc917f052d2665217u, "%016llx", (unsigned long long)hash);
}

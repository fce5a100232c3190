/* Tests of the peak rates of GPUs, by the names of the GPUs (worker/train/journal.h). The metric mfu divides by such
 * a rate, so a wrong name would give a wrong metric. */
#include "train/journal.h"

#include <criterion/criterion.h>

Test(peaks, of_the_driver_s_names)
{
    cr_expect_eq(peaks_tflops("NVIDIA H200", false), 989.4);
    cr_expect_eq(peaks_tflops("NVIDIA H200", true), 66.9);
    cr_expect_eq(peaks_tflops("NVIDIA H200 NVL", false), 835.5);
    cr_expect_eq(peaks_tflops("NVIDIA H100 80GB HBM3", false), 989.4);
    cr_expect_eq(peaks_tflops("NVIDIA H100 PCIe", false), 756);
    cr_expect_eq(peaks_tflops("NVIDIA A100-SXM4-80GB", false), 312);
    cr_expect_eq(peaks_tflops("NVIDIA A100-PCIE-40GB", true), 19.5);
    cr_expect_eq(peaks_tflops("NVIDIA GeForce RTX 4090", false), 165.2);
}

/* An unknown device has no peak, because the peak of another device would be wrong. */
Test(peaks, of_others_nothing_is_known)
{
    cr_expect_eq(peaks_tflops("NVIDIA GeForce RTX 4090 Laptop GPU", false), 0);
    cr_expect_eq(peaks_tflops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", false), 0);
    cr_expect_eq(peaks_tflops("NVIDIA L40", false), 0);
    cr_expect_eq(peaks_tflops("a fake GPU", true), 0);
    cr_expect_eq(peaks_tflops("", true), 0);
}

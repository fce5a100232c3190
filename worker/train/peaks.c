/* peaks.c -- see peaks.h. Figures are NVIDIA's, from the page that each row names; where that has a figure "with sparsity" only, half of
 * it. */
#include "train/peaks.h"

#include <stddef.h>
#include <string.h>

/* The driver's name, with what follows it where it ends with *; 16 bits; float32. */
static const struct row {
    const char *name;
    double narrow, is_float;
} rows[] = {
    /* NVIDIA A100 Tensor Core GPU, datasheet (2021): BFLOAT16 312, FP32 19.5, the same for PCIe and SXM */
    { "NVIDIA A100-*", 312, 19.5 },
    { "NVIDIA A100 80GB PCIe", 312, 19.5 },
    /* NVIDIA A10, datasheet (2021): BFLOAT16 125, FP32 31.2 */
    { "NVIDIA A10", 125, 31.2 },
    /* NVIDIA A30, datasheet (2021): BFLOAT16 165, FP32 10.3 */
    { "NVIDIA A30", 165, 10.3 },
    /* NVIDIA A40, datasheet (2021): BFLOAT16 149.7, FP32 37.4 */
    { "NVIDIA A40", 149.7, 37.4 },
    /* NVIDIA H100 Tensor Core GPU Architecture, white paper (2023), tables 2 and 3: SXM5 989.4 and 66.9, PCIe 756 and 51.2 */
    { "NVIDIA H100 80GB HBM3", 989.4, 66.9 },
    { "NVIDIA H100 PCIe", 756, 51.2 },
    /* NVIDIA H100 NVL, datasheet (2024): BFLOAT16 1,671 with sparsity, FP32 60 */
    { "NVIDIA H100 NVL", 835.5, 60 },
    /* NVIDIA H200 Tensor Core GPU, datasheet (2024): SXM 1,979 with sparsity and 67 (the chip of the H100 SXM), NVL 1,671 and 60 */
    { "NVIDIA H200", 989.4, 66.9 },
    { "NVIDIA H200 NVL", 835.5, 60 },
    /* NVIDIA L4, datasheet (2023): BFLOAT16 242 with sparsity, FP32 30.3 */
    { "NVIDIA L4", 121, 30.3 },
    /* NVIDIA L40S, datasheet (2023): BFLOAT16 362.05, FP32 91.6 */
    { "NVIDIA L40S", 362.05, 91.6 },
    /* NVIDIA Ada GPU Architecture, white paper (2022), appendix A: BF16 with FP32 accumulate 165.2, FP32 82.6 */
    { "NVIDIA GeForce RTX 4090", 165.2, 82.6 },
    /* NVIDIA Ampere GA102 GPU Architecture, white paper (2021), appendix A: BF16 with FP32 accumulate 71, FP32 35.6 */
    { "NVIDIA GeForce RTX 3090", 71, 35.6 },
    /* NVIDIA Blackwell Architecture, technical brief (2024), HGX B200: BF16 4,500 with sparsity, FP32 80 */
    { "NVIDIA B200", 2250, 80 },
};

static bool is_named(const char *row, const char *name)
{
    const size_t n = strlen(row);
    return row[n - 1] == '*' ? strncmp(row, name, n - 1) == 0 : strcmp(row, name) == 0;
}

double peaks_tflops(const char *name, bool is_float)
{
    if (strstr(name, " MIG ") != NULL)
        return 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (is_named(rows[i].name, name))
            return is_float ? rows[i].is_float : rows[i].narrow;
    }
    return 0;
}

#define FG_WGMMA_N 192
#define FG_WGMMA_TYPE "e4m3"
#include <finegemm/device/gemm.cuh>
inline constexpr auto kConfig = finegemm::GemmConfig{.tile_m = 128, .tile_n = 192, .stages = 4, .math_warpgroups = 2, .cluster = 2, .cluster_use = finegemm::ClusterUse::ShareB, .ctas_per_sm = 1, .scales = finegemm::ScaleLayout::Any, .grouping = finegemm::Grouping::None, .a = {.element = finegemm::Element::E4M3, .scaling = finegemm::Scaling::Rows}, .b = {.element = finegemm::Element::E4M3, .scaling = finegemm::Scaling::Blocks}, .output = finegemm::Output::BF16, .finish = finegemm::Finish::None};
extern "C" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm)
FineGEMM_e4m3_gemm_m128n192s4w2_shareB2(const __grid_constant__ finegemm::KernelParams<kConfig> params) {
    finegemm::device::gemm<kConfig>(params);
}

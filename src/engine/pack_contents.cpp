// What belongs into the pack. Layer engine.
#include "engine/pack_contents.h"

#include <utility>

#include "ops/ep/source.h"
#include "ops/four_bit/source.h"
#include "ops/gemm/source.h"
#include "ops/mqa/source.h"
#include "ops/prenorm/source.h"
#include "ops/quantize/source.h"
#include "ops/routing/source.h"
#include "ops/scale_layout/source.h"
#include "ops/swiglu/source.h"
#include "ops/topk/source.h"
#include "plan/plan.h"

namespace finegemm {

std::vector<jit::KernelSource> pack_contents() {
    std::vector<jit::KernelSource> sources;
    for (const GemmConfig& c : plan::kernels()) sources.push_back(jit::gemm_source(c, plan::name_of(c)));
    for (const AddPiecesConfig& c : jit::add_pieces_configs()) sources.push_back(jit::source_of(c));
    sources.push_back(jit::source_of(GroupListConfig{}));
    for (const QuantizeConfig& c : jit::quantize_configs()) sources.push_back(jit::source_of(c));
    for (const QuantizeColumnsConfig& c : jit::quantize_columns_configs()) sources.push_back(jit::source_of(c));
    for (const ReencodeConfig& c : jit::reencode_configs()) sources.push_back(jit::source_of(c));
    for (const ScaleLayoutConfig& c : jit::scale_layout_configs()) sources.push_back(jit::source_of(c));
    for (const MqaConfig& c : jit::mqa_configs()) sources.push_back(jit::source_of(c));
    sources.push_back(jit::source_of(MqaScheduleConfig{}));
    for (const PrenormConfig& c : jit::prenorm_configs()) sources.push_back(jit::source_of(c));
    for (const SwigluConfig& c : jit::swiglu_configs()) sources.push_back(jit::source_of(c));
    for (jit::KernelSource& source : jit::routing_sources()) sources.push_back(std::move(source));
    sources.push_back(jit::source_of(SlotsConfig{}));
    for (const bool pushes : {false, true}) sources.push_back(jit::source_of(PeersConfig{pushes}));
    for (jit::KernelSource& source : jit::topk_sources()) sources.push_back(std::move(source));
    for (const FourBitConfig& c : jit::four_bit_configs()) sources.push_back(jit::source_of(c));
    return sources;
}

}  // namespace finegemm

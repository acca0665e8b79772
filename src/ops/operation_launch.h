// What launches of operations differ in: what they depend on, clusters, shared memory. Layer engine.
#pragma once

#include "cuda/driver.h"
#include "plan/problem.h"

namespace finegemm {

/// Some launches depend on the device: on its driver, which encodes tensor maps, and on how many SMs it has, or what
/// else is known of it.
template <typename OperationCall>
auto launch_on(const OperationCall& call, const cuda::Driver& driver, const plan::DeviceSpec& device) {
    if constexpr (requires { launch_of(call); }) return launch_of(call);
    else if constexpr (requires { launch_of(call, driver, device); }) return launch_of(call, driver, device);
    else return launch_of(call, driver, device.sms);
}

/// CTAs of a cluster of an operation's kernel.
template <typename Config>
uint32_t cluster_of(const Config& config) {
    if constexpr (requires { config.cluster(); }) return config.cluster();
    else return 1;
}

/// Dynamic shared memory of an operation's kernel.
template <typename Config>
uint32_t smem_bytes_of(const Config& config) {
    if constexpr (requires { config.smem_bytes(); }) return config.smem_bytes();
    else return 0;
}
/// What a launch of it may ask for.
template <typename Config>
uint32_t most_smem_bytes_of(const Config& config) {
    if constexpr (requires { config.most_smem_bytes(); }) return config.most_smem_bytes();
    else return smem_bytes_of(config);
}

}  // namespace finegemm

// Processors: masks and quotas.
#include "os/cpus.h"

#include <sched.h>

#include <gtest/gtest.h>

namespace finegemm::os {
namespace {

TEST(Quota, IsRoundedUpToWholeProcessors) {
    EXPECT_EQ(cpus_of_quota("100000 100000"), 1);
    EXPECT_EQ(cpus_of_quota("150000 100000"), 2);
    EXPECT_EQ(cpus_of_quota("800000 100000"), 8);
    EXPECT_EQ(cpus_of_quota("1000 100000"), 1);
}

TEST(Quota, IsNoneWhereNothingIsSaidOrWhatIsSaidIsNoQuota) {
    for (const char* none : {"", " ", "max 100000", "-1 100000", "0 100000", "100000", "100000 0", "x y", "100000 "})
        EXPECT_EQ(cpus_of_quota(none), 0) << none;
}

TEST(UsableCpus, FollowTheAffinityMask) {
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    EXPECT_GE(usable_cpus(), 1);
    EXPECT_LE(usable_cpus(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cpus(), 1);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace finegemm::os

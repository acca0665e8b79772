// Children of fork know that they are not their parent. Layer tests.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/process.h"

namespace finegemm::os {
namespace {

TEST(Process, IsAnotherInAChildThatWasForkedLater) {
    const Process parent;
    EXPECT_TRUE(parent.is_this());
    const pid_t child = fork();
    if (child == 0) {
        const Process own;
        _exit(parent.is_this() || !own.is_this() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(parent.is_this());
}

}  // namespace
}  // namespace finegemm::os

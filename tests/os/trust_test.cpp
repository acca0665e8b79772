// Trust: whose files are believed.
#include "os/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace finegemm::os {
namespace {

namespace fs = std::filesystem;

class Trust : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/finegemm-trust-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        home = name;
        folder = home + "/cache";
        file = folder + "/kernel";
        ASSERT_TRUE(make_private_folder(folder));
        std::ofstream(file) << "code";
        ASSERT_EQ(chmod(file.c_str(), 0644), 0);
    }
    void TearDown() override { fs::remove_all(home); }

    std::string home, folder, file;
};

mode_t mode_of(const std::string& path) {
    struct stat info{};
    return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777u : 0;
}

TEST_F(Trust, IsGivenToWhatOnlyTheUserCanWrite) {
    EXPECT_EQ(folder_distrust(folder), "");
    EXPECT_EQ(file_distrust(file), "");
}

TEST_F(Trust, IsNotNeededForWhatDoesNotExist) {
    EXPECT_EQ(folder_distrust(home + "/nothing"), "");
    EXPECT_EQ(file_distrust(folder + "/nothing"), "");
}

TEST_F(Trust, IsRefusedToFilesAndFoldersThatOthersCanWrite) {
    for (const mode_t others : {mode_t{0020}, mode_t{0002}}) {
        ASSERT_EQ(chmod(file.c_str(), 0644 | others), 0);
        EXPECT_NE(file_distrust(file).find("can be written by others"), std::string::npos);
        ASSERT_EQ(chmod(file.c_str(), 0644), 0);
        ASSERT_EQ(chmod(folder.c_str(), 0755 | others), 0);
        EXPECT_NE(folder_distrust(folder).find("chmod go-w " + folder), std::string::npos) << "says the way out";
        EXPECT_NE(file_distrust(file), "") << "a good file in a folder where others could swap it";
        ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
    }
    EXPECT_EQ(file_distrust(file), "");
}

TEST_F(Trust, IsRefusedToLinks) {
    fs::create_symlink(file, folder + "/link");
    EXPECT_NE(file_distrust(folder + "/link").find("is a link"), std::string::npos);
    fs::create_directory_symlink(folder, home + "/link");
    EXPECT_NE(folder_distrust(home + "/link").find("is a link"), std::string::npos);
}

TEST_F(Trust, IsRefusedToWhatBelongsToSomebodyElse) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    ASSERT_EQ(chown(file.c_str(), 12345, 12345), 0);
    EXPECT_NE(file_distrust(file).find("belongs to user 12345"), std::string::npos);
    ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
    EXPECT_NE(folder_distrust(folder).find("FINEGEMM_TRUSTED_DIR"), std::string::npos) << "says the way out";
    EXPECT_EQ(folder_distrust(folder, folder), "");
    EXPECT_EQ(file_distrust(file, home), "") << "a trusted folder's subfolders are trusted, too";
}

TEST_F(Trust, EndsAtTheTrustedFolder) {
    ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
    EXPECT_EQ(folder_distrust(folder, folder + "/"), "");
    for (const std::string& other : {home + "/cac", home + "/other", folder + "/deeper", std::string()})
        EXPECT_NE(folder_distrust(folder, other), "") << other;
    ASSERT_TRUE(make_private_folder(home + "/trusted"));
    EXPECT_NE(folder_distrust(home + "/trusted/../cache", home + "/trusted"), "") << "dots lead out of it";
}

TEST_F(Trust, MakesFoldersForTheirOwnerAloneWhateverTheMask) {
    const mode_t before = umask(0);
    EXPECT_TRUE(make_private_folder(home + "/a/b/c"));
    umask(before);
    for (const char* made : {"/a", "/a/b", "/a/b/c"}) EXPECT_EQ(mode_of(home + made), mode_t{0700}) << made;
    EXPECT_TRUE(make_private_folder(home + "/a/b/c")) << "is there already";
    EXPECT_FALSE(make_private_folder(file + "/below")) << "below a file";
}

}  // namespace
}  // namespace finegemm::os

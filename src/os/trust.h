// Which files the library takes code and choices from: those that nobody else can have written. Layer os.
#pragma once

#include <string>

namespace finegemm::os {

/// Why what lies in this folder may be somebody else's; empty if only the user of this process or root can write there.
/// A link is not followed. `trusted`: a folder that is good whoever owns it, and its subfolders; empty: none.
/// A folder that does not exist is empty, too: whoever makes it owns it.
std::string folder_distrust(const std::string& folder, const std::string& trusted = {});

/// Likewise of a file and of the folder that it lies in. One that does not exist has nothing to be believed.
std::string file_distrust(const std::string& file, const std::string& trusted = {});

/// Makes a folder and those above it, for their owner alone. False where that cannot be done.
bool make_private_folder(const std::string& folder);

}  // namespace finegemm::os

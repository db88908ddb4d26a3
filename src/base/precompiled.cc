// Owns the header that is precompiled for all rooms (CMakeLists.txt); a target must have a source.

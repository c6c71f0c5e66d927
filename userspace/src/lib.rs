//! The library of the `jeprobe` command.

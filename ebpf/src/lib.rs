//! Empty on purpose: gives host tools a library to see. The programs are in `main.rs`.
#![cfg_attr(not(test), no_std)]

//! The abi suite.

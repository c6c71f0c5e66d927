//! The kernel suite.

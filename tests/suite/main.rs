//! The suite suite.

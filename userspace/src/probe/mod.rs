//! Everything between this process and the kernel: what is allowed, where the hooks are, what is attached, what arrives.

pub mod attach;
pub mod discover;
pub mod error;
pub mod hookfile;
mod load;
mod places;
pub mod privilege;
pub mod ring;
mod sys;
mod tracepoints;

pub use load::LoadError;

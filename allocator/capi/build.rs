//! Link settings of the shared library.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `dlclose` must not unmap the library: blocks it handed out, the thread key's destructor and the fork handlers
    // outlive the caller's interest in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Code and data on file pages of their own: the kernel counts a probe once per mapping of its file page.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-code");
}

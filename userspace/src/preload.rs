//! How a program is started under the allocator: which library file, which environment. Pure except for the search.
//!
//! The user's own `LD_PRELOAD` and `MALLOC_CONF` stay: our library goes in front of the first, and our options go into
//! [`CONF_VARIABLE`], which the library reads after `MALLOC_CONF`, so that a key given here wins. `MALLOC_CONF` itself is
//! obeyed by every jemalloc in the process: a program linked against one (redis-server in Debian) would write that
//! one's empty profile over ours.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// File name of the library.
pub const LIBRARY: &str = "libjeprobe.so";

/// The library to preload: as named on the command line, else in `$JEPROBE_LIBRARY`, else the first that exists near
/// the command or in the system's directories. The path is absolute, since the child may start elsewhere.
pub fn find_library(named: Option<&Path>) -> Result<PathBuf, Error> {
    let from_environment = env::var_os("JEPROBE_LIBRARY").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or(from_environment) {
        return path.canonicalize().map_err(|source| Error::Library { path, source });
    }
    let tried = candidates(env::current_exe().ok().as_deref());
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => path.canonicalize().map_err(|source| Error::Library { path: path.clone(), source }),
        None => Err(Error::NoLibraryFile { tried }),
    }
}

/// Places of the library relative to the command, nearest first, then those of packages.
fn candidates(command: Option<&Path>) -> Vec<PathBuf> {
    let near = command.and_then(Path::parent).into_iter().flat_map(|dir| {
        // Beside the command, an installation's lib directory, a build tree's target/capi.
        ["", "../lib", "../lib/jeprobe", "../capi"].map(|place| dir.join(place).join(LIBRARY))
    });
    let system = ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/jeprobe"];
    near.chain(system.map(|dir| Path::new(dir).join(LIBRARY))).collect()
}

/// Value of `LD_PRELOAD` with `library` in front. The dynamic linker splits at blanks and colons, so a path that holds
/// one cannot be named.
pub fn preload_value(library: &Path, before: Option<&OsStr>) -> Result<OsString, Error> {
    let text = library.as_os_str();
    if text.as_encoded_bytes().iter().any(|&b| b == b':' || b.is_ascii_whitespace()) {
        return Err(Error::LibraryPath { path: library.to_owned() });
    }
    let mut value = text.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// The variable that carries the options.
pub const CONF_VARIABLE: &str = "_RJEM_MALLOC_CONF";

/// Value of [`CONF_VARIABLE`]: the user's, then profiling with one heap file at exit below `prefix`.
pub fn conf_value(lg_sample: u32, prefix: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = before.unwrap_or_default().to_owned();
    if !value.is_empty() {
        value.push(",");
    }
    value.push(format!("prof:true,prof_active:true,lg_prof_sample:{lg_sample},prof_final:true,prof_prefix:"));
    value.push(prefix);
    value
}

#[cfg(test)]
mod tests {
    use super::{candidates, conf_value, find_library, preload_value};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn the_users_environment_stays() {
        let lib = Path::new("/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, None).expect("plain"), "/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, Some(OsStr::new(""))).expect("plain"), "/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, Some(OsStr::new("a.so b.so"))).expect("plain"), "/opt/libjeprobe.so:a.so b.so");
        preload_value(Path::new("/a b/libjeprobe.so"), None).expect_err("the linker would split it");
        assert_eq!(
            conf_value(12, Path::new("/t/p"), Some(OsStr::new("narenas:2"))),
            "narenas:2,prof:true,prof_active:true,lg_prof_sample:12,prof_final:true,prof_prefix:/t/p"
        );
        assert!(conf_value(19, Path::new("/t/p"), None).to_string_lossy().starts_with("prof:true,"));
    }

    #[test]
    fn the_search_starts_beside_the_command() {
        let places = candidates(Some(Path::new("/w/target/release/jeprobe")));
        assert_eq!(places[0], Path::new("/w/target/release/libjeprobe.so"));
        assert!(places.contains(&Path::new("/w/target/release/../capi/libjeprobe.so").to_owned()));
    }

    #[test]
    fn a_named_library_that_is_not_there_is_an_error() {
        let error = find_library(Some(Path::new("/no/such/libjeprobe.so"))).expect_err("missing");
        assert!(error.to_string().contains("/no/such/libjeprobe.so"));
    }
}

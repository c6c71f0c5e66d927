//! How a program is started under the allocator: which library file, which environment. Pure except for the search.
//!
//! The user's own `LD_PRELOAD` and `MALLOC_CONF` stay: our library goes in front of the first, and our options go into
//! [`CONF_VARIABLE`], which the library reads after `MALLOC_CONF`, so that a key given here wins. `MALLOC_CONF` itself is
//! obeyed by every jemalloc in the process: a program linked against one (redis-server in Debian) would write that
//! one's empty profile over ours.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSymbol as _, ReadCache};

use crate::error::{Error, NotPreloaded};

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

/// Fails when the file is no library of ours.
pub fn check_library(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Library { path: path.to_owned(), source };
    let cache = ReadCache::new(File::open(path).map_err(failed)?);
    let library = object::File::parse(&cache).map_err(|error| failed(io::Error::other(error)))?;
    if library.dynamic_symbols().any(|symbol| symbol.name() == Ok(ROOT)) {
        return Ok(());
    }
    Err(failed(io::Error::other("it is not jeprobe's: it has no profile table")))
}

/// The symbol by which a library of ours is known.
const ROOT: &str = "jeprobe_root";

/// Why nothing is preloaded into a command, when its file says so: looked for as `execvp` does, scripts by their interpreters.
pub fn not_preloaded(command: &OsStr) -> Option<NotPreloaded> {
    let mut path = on_search_path(command)?;
    if let Some(interpreter) = interpreter_of(&path) {
        path = interpreter;
    }
    let file = File::open(&path).ok()?;
    let meta = file.metadata().ok()?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (meta.mode() & 0o4000 != 0 && meta.uid() != user) || (meta.mode() & 0o2000 != 0 && meta.gid() != group) {
        return Some(NotPreloaded::Privileged);
    }
    let cache = ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let segments = header.program_headers(LittleEndian, &cache).ok()?;
    let has_linker = segments.iter().any(|segment| segment.p_type(LittleEndian) == PT_INTERP);
    (!has_linker).then_some(NotPreloaded::Static)
}

fn on_search_path(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(command)).find(|path| path.is_file())
}

/// The program of a script's first line.
fn interpreter_of(path: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let length = File::open(path).ok()?.read(&mut start).ok()?;
    let line = start[..length].split(|&b| b == b'\n').next()?.strip_prefix(b"#!")?;
    let word = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
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

/// Value of [`CONF_VARIABLE`]: the user's, then profiling with one heap file at exit below `prefix`; the interval is the user's
/// unless one is given.
pub fn conf_value(lg_sample: Option<u32>, prefix: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = before.unwrap_or_default().to_owned();
    if !value.is_empty() {
        value.push(",");
    }
    value.push("prof:true,prof_active:true,");
    if let Some(lg) = lg_sample {
        value.push(format!("lg_prof_sample:{lg},"));
    }
    value.push("prof_final:true,prof_prefix:");
    value.push(prefix);
    value
}

#[cfg(test)]
mod tests {
    use super::{candidates, check_library, conf_value, find_library, not_preloaded, preload_value};
    use crate::error::NotPreloaded;
    use std::ffi::OsStr;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_users_environment_stays() {
        let lib = Path::new("/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, None).expect("plain"), "/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, Some(OsStr::new(""))).expect("plain"), "/opt/libjeprobe.so");
        assert_eq!(preload_value(lib, Some(OsStr::new("a.so b.so"))).expect("plain"), "/opt/libjeprobe.so:a.so b.so");
        preload_value(Path::new("/a b/libjeprobe.so"), None).expect_err("the linker would split it");
        assert_eq!(
            conf_value(Some(12), Path::new("/t/p"), Some(OsStr::new("narenas:2"))),
            "narenas:2,prof:true,prof_active:true,lg_prof_sample:12,prof_final:true,prof_prefix:/t/p"
        );
        assert!(
            conf_value(None, Path::new("/t/p"), None) == "prof:true,prof_active:true,prof_final:true,prof_prefix:/t/p"
        );
    }

    #[test]
    fn the_search_starts_beside_the_command() {
        let places = candidates(Some(Path::new("/w/target/release/jeprobe")));
        assert_eq!(places[0], Path::new("/w/target/release/libjeprobe.so"));
        assert!(places.contains(&Path::new("/w/target/release/../capi/libjeprobe.so").to_owned()));
    }

    #[test]
    fn a_static_program_and_a_script_are_told_by_their_files() {
        assert_eq!(not_preloaded(OsStr::new("sh")), None, "an ordinary program");
        assert_eq!(not_preloaded(OsStr::new("no-such-command-at-all")), None);
        let dir = std::env::temp_dir().join(format!("jeprobe-preload-test-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temp dir");
        // The header of a program without segments.
        let mut header = vec![0; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (header[16], header[18], header[20], header[52], header[54]) = (2, 62, 1, 64, 56);
        let (program, script) = (dir.join("static"), dir.join("script"));
        fs::write(&program, &header).expect("writable");
        fs::write(&script, format!("#! {} -x\n", program.display())).expect("writable");
        for path in [&program, &script] {
            assert_eq!(not_preloaded(path.as_os_str()), Some(NotPreloaded::Static));
        }
        check_library(&program).expect_err("it has no table");
        check_library(&script).expect_err("it is none");
        fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn a_named_library_that_is_not_there_is_an_error() {
        let error = find_library(Some(Path::new("/no/such/libjeprobe.so"))).expect_err("missing");
        assert!(error.to_string().contains("/no/such/libjeprobe.so"));
    }
}

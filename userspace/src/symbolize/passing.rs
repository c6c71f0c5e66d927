//! Names that only the running process leads to: of files that were deleted or replaced since they were mapped, and of files
//! in its own mount namespace, as a container's.
//!
//! A profile holds addresses. Once the process has ended nothing leads to such a file, so the names of those addresses are put
//! into the profile when it is taken. Files that are found by their path on record are left to whoever reads the profile.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Site, Sources, resolve_where};
use crate::model::{Mapping, Named, Profile};

/// Gives names to the addresses in such files; true when there were some. `sources.root` is the process's `/`.
pub fn add_names(profile: &mut Profile, sources: &Sources) -> bool {
    let Some(root) = sources.root.as_deref() else { return false };
    let symbols = resolve_where(profile, sources, |mapping| mapping.is_some_and(|mapping| is_passing(mapping, root)));
    let mut found = false;
    for (avma, site) in symbols.iter().filter(|(_, site)| !site.functions.is_empty()) {
        profile.set_names(avma, named(site));
        found = true;
    }
    found
}

fn named(site: &Site) -> Vec<Named> {
    let functions = site.functions.iter().map(|function| {
        let (file, line) = function.location.rsplit_once(':').unwrap_or_default();
        Named {
            short: function.short.clone(),
            full: function.full.clone(),
            file: file.to_owned(),
            line: line.parse().unwrap_or(0),
        }
    });
    functions.collect()
}

/// Whether the path on record does not lead to the mapped file from here.
fn is_passing(mapping: &Mapping, root: &Path) -> bool {
    if mapping.deleted {
        return true;
    }
    let Ok(inside) = mapping.path.strip_prefix("/") else { return false };
    let file = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    // What the process itself does not find either is not known better there.
    file(&root.join(inside)).is_some_and(|theirs| file(&mapping.path) != Some(theirs))
}

#[cfg(test)]
mod tests {
    use super::{is_passing, named};
    use crate::model::Mapping;
    use crate::symbolize::{Function, Site};
    use std::path::Path;

    #[test]
    fn a_file_passes_when_its_path_leads_elsewhere() {
        let root = std::env::temp_dir().join(format!("jeprobe-passing-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::write(root.join("bin/inside"), "").expect("written");
        let mapping = |path: &str| Mapping { path: path.into(), ..Mapping::default() };
        assert!(is_passing(&mapping("/bin/inside"), &root), "only in the container");
        assert!(!is_passing(&mapping("/bin/nowhere"), &root), "nowhere");
        assert!(!is_passing(&mapping("/proc/self/exe"), Path::new("/")), "the same file");
        assert!(is_passing(&Mapping { deleted: true, ..mapping("/proc/self/exe") }, Path::new("/")));
        assert!(!is_passing(&mapping("[vdso]"), &root));
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn places_are_kept() {
        let function = |short: &str, location: &str| Function {
            short: short.to_owned(),
            full: format!("{short}()"),
            location: location.to_owned(),
            is_inlined: false,
        };
        let site = Site { functions: vec![function("inner", "a:b.c:7"), function("outer", "")], ..Site::default() };
        let names = named(&site);
        assert_eq!((names[0].short.as_str(), names[0].file.as_str(), names[0].line), ("inner", "a:b.c", 7));
        assert_eq!((names[1].full.as_str(), names[1].file.as_str(), names[1].line), ("outer()", "", 0));
    }
}

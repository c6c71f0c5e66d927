//! The allocators: this one in its modes, and others, each as a library to preload.
//!
//! Peers are built once, from the sources that their crates carry (`target/bench/peers`; remove the folder to build
//! again): the C or C++ sources are compiled as their own build files do for a shared library.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::build::folder;
use crate::cmd::Cmd;
use crate::dist;
use crate::vendor::{self, Crate};

/// mimalloc 3.3.
const MIMALLOC: Crate = Crate { name: "libmimalloc-sys", version: "0.1.49" };
/// snmalloc 0.7.
const SNMALLOC: Crate = Crate { name: "snmalloc-sys", version: "0.7.6" };

/// One library with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// This allocator: measured, never what the others are compared with.
    pub(crate) is_ours: bool,
    /// `None` = the C library's.
    pub(crate) library: Option<PathBuf>,
    /// `MALLOC_CONF`.
    pub(crate) conf: String,
    /// `jeprobe attach` runs beside it.
    pub(crate) attached: bool,
}

/// What `--peers` may name: name, whose library, options.
const KNOWN: &[(&str, Source, &str)] = &[
    ("ours", Source::Ours, ""),
    ("ours-again", Source::Ours, ""),
    ("ours-lg19", Source::Ours, "prof:true,prof_active:true,lg_prof_sample:19"),
    ("ours-lg12", Source::Ours, "prof:true,prof_active:true,lg_prof_sample:12"),
    ("ours-lg0", Source::Ours, "prof:true,prof_active:true,lg_prof_sample:0"),
    ("ours-attached", Source::Ours, ""),
    ("jemalloc", Source::Jemalloc, ""),
    ("jemalloc-prof", Source::JemallocProf, ""),
    ("jemalloc-lg19", Source::JemallocProf, "prof:true,prof_active:true,lg_prof_sample:19"),
    ("jemalloc-lg12", Source::JemallocProf, "prof:true,prof_active:true,lg_prof_sample:12"),
    ("jemalloc-lg0", Source::JemallocProf, "prof:true,prof_active:true,lg_prof_sample:0"),
    ("mimalloc", Source::Mimalloc, ""),
    ("snmalloc", Source::Snmalloc, ""),
    ("tcmalloc", Source::Tcmalloc, ""),
    ("glibc", Source::Libc, ""),
];

/// The peers of a run that names none; the second is the same library as the first, as a control.
pub(crate) const DEFAULT: &[&str] = &["ours", "ours-again", "jemalloc", "mimalloc", "snmalloc", "tcmalloc", "glibc"];

/// The control.
pub(crate) const AGAIN: &str = "ours-again";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Ours,
    Jemalloc,
    JemallocProf,
    Mimalloc,
    Snmalloc,
    Tcmalloc,
    Libc,
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.0)
}

/// The peers of these names, built if need be. `ours` is the library under test.
pub(crate) fn find(names: &[String], ours: &Path) -> Result<Vec<Peer>> {
    names.iter().map(|name| find_one(name, ours)).collect()
}

fn find_one(name: &str, ours: &Path) -> Result<Peer> {
    let Some((_, source, conf)) = KNOWN.iter().find(|known| known.0 == name) else {
        bail!("no peer `{name}`; there are: {}", self::names().collect::<Vec<_>>().join(" "));
    };
    let library = match source {
        Source::Ours => Some(ours.to_owned()),
        Source::Jemalloc => Some(jemalloc("jemalloc", &[])?),
        Source::JemallocProf => Some(jemalloc("jemalloc-prof", &["--enable-prof"])?),
        Source::Mimalloc => Some(mimalloc()?),
        Source::Snmalloc => Some(snmalloc()?),
        Source::Tcmalloc => Some(tcmalloc()?),
        Source::Libc => None,
    };
    let attached = name == "ours-attached";
    if attached {
        dist::run()?;
    }
    Ok(Peer { name: name.to_owned(), is_ours: *source == Source::Ours, library, conf: (*conf).to_owned(), attached })
}

/// A library that the command line names as `NAME=PATH`.
pub(crate) fn given(text: &str, is_ours: bool) -> Result<Peer> {
    let Some((name, path)) = text.split_once('=') else { bail!("`{text}` is not NAME=PATH") };
    let library = fs::canonicalize(path).with_context(|| format!("library of peer {name}: {path}"))?;
    Ok(Peer { name: name.to_owned(), is_ours, library: Some(library), conf: String::new(), attached: false })
}

fn peers_folder() -> PathBuf {
    folder().join("peers")
}

/// The folder of a crate's sources.
fn crate_sources(of: Crate) -> Result<PathBuf> {
    vendor::sources(&peers_folder().join("sources"), &[vendor::JEMALLOC, MIMALLOC, SNMALLOC], of.name)
}

/// The library of this file name, made by `build` unless it is there.
fn built(file: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let library = peers_folder().join(file);
    if !library.is_file() {
        fs::create_dir_all(peers_folder()).with_context(|| format!("cannot create {}", peers_folder().display()))?;
        eprintln!("building {file}");
        // A build that is cut off leaves no library behind.
        let unfinished = peers_folder().join(format!("{file}.unfinished"));
        build(&unfinished).with_context(|| format!("cannot build {file}"))?;
        fs::rename(&unfinished, &library).with_context(|| format!("cannot rename {}", unfinished.display()))?;
    }
    Ok(library)
}

fn jemalloc(name: &str, options: &[&str]) -> Result<PathBuf> {
    built(&format!("lib{name}.so"), |library| {
        let sources = crate_sources(vendor::JEMALLOC)?;
        let tree = peers_folder().join(name);
        let _ = fs::remove_dir_all(&tree);
        Cmd::new("cp").args(["-r"]).arg(sources.join("jemalloc")).arg(&tree).output()?;
        // The crate carries the generated script beside the sources.
        Cmd::new("cp").arg(sources.join("configure/configure")).arg(&tree).output()?;
        Cmd::new("sh")
            .dir(&tree)
            .args(["./configure", "--quiet", "--disable-static", "--with-version=5.3.1-0-g0"])
            .args(options)
            .output()?;
        Cmd::new("make").dir(&tree).args(["--silent", "-j2", "build_lib_shared"]).output_of_any()?;
        Cmd::new("cp").arg(tree.join("lib/libjemalloc.so.2")).arg(library).output().map(drop)
    })
}

fn mimalloc() -> Result<PathBuf> {
    built("libmimalloc.so", |library| {
        let sources = crate_sources(MIMALLOC)?.join("c_src/mimalloc/v3");
        Cmd::new("gcc")
            .args(["-O3", "-DNDEBUG", "-DMI_BUILD_RELEASE", "-DMI_MALLOC_OVERRIDE"])
            .args(["-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-fPIC", "-shared", "-fvisibility=hidden"])
            .args(["-ftls-model=initial-exec", "-fno-builtin-malloc", "-w"])
            .arg("-I")
            .arg(sources.join("include"))
            .arg(sources.join("src/static.c"))
            .arg("-o")
            .arg(library)
            .arg("-pthread")
            .output()
            .map(drop)
    })
}

fn snmalloc() -> Result<PathBuf> {
    built("libsnmalloc.so", |library| {
        let sources = crate_sources(SNMALLOC)?.join("upstream/src");
        Cmd::new("g++")
            .args(["-std=c++20", "-O3", "-DNDEBUG", "-mcx16", "-fPIC", "-shared", "-fomit-frame-pointer"])
            .args(["-ftls-model=initial-exec", "-fvisibility=hidden", "-w"])
            .args(["-DSNMALLOC_USE_WAIT_ON_ADDRESS=1", "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT"])
            .arg("-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))")
            .arg("-I")
            .arg(&sources)
            .arg(sources.join("snmalloc/override/malloc.cc"))
            .arg(sources.join("snmalloc/override/new.cc"))
            .arg("-o")
            .arg(library)
            .arg("-pthread")
            .output()
            .map(drop)
    })
}

fn tcmalloc() -> Result<PathBuf> {
    const NAME: &str = "libtcmalloc_minimal.so.4";
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|folder| Path::new(folder).join(NAME))
        .find(|file| file.is_file());
    library
        .with_context(|| format!("no {NAME}: install libtcmalloc-minimal4 (cargo xtask deps), or leave `tcmalloc` out"))
}

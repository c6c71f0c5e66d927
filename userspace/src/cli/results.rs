//! Where results go: the form that a file's name stands for, names that are refused, options that a form has no use for.
//!
//! All of it is decided before anything is read or attached to, so that nothing is done in vain and no file is lost.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::report_args::{Color, Format, GranularityArgs, Layout, PrintArgs, RowArgs, SortKey, ValueArgs};
use super::term::Term;
use crate::error::Error;
use crate::outfile;

/// End of names of gzipped files.
const PACKED: &str = ".gz";

/// Extensions of text, which any table may have.
const TEXT: &[&str] = &["txt", "text", "out", "log"];

/// Extensions of forms, for messages.
const REPORTS: &str =
    ".txt, .json, .csv, .folded, .speedscope.json, .callgrind, .pb.gz, .pprof, .otlp, .dot, .svg, .pdf or .html";

/// The form that was asked for, or that the file's name stands for.
pub(super) fn format(print: &PrintArgs) -> Result<Format, Error> {
    if let Some(format) = print.format {
        return Ok(format);
    }
    let Some(path) = print.output.as_deref() else { return Ok(Format::default()) };
    match named_format(path) {
        Some(format) => Ok(format),
        None if extension(path).is_none_or(|extension| TEXT.contains(&extension.as_str())) => Ok(Format::default()),
        None => Err(Error::Extension { path: path.to_owned(), what: "a report", forms: REPORTS, by_option: true }),
    }
}

/// The form that the name of a file stands for, gzipped or not.
pub(super) fn named_format(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(PACKED).unwrap_or(name);
    let ends = |ending: &str| name.ends_with(ending);
    Some(match () {
        () if ends(".speedscope.json") => Format::Speedscope,
        () if ends(".json") => Format::Json,
        () if ends(".csv") => Format::Csv,
        () if ends(".folded") => Format::Folded,
        () if ends(".pprof") || ends(".pb") => Format::Pprof,
        () if ends(".otlp") => Format::Otlp,
        () if ends(".dot") => Format::Dot,
        () if ends(".svg") => Format::Svg,
        () if ends(".pdf") => Format::Pdf,
        () if ends(".html") || ends(".htm") => Format::Html,
        () if ends(".callgrind") || name.starts_with("callgrind.out") => Format::Callgrind,
        () => return None,
    })
}

/// The form of a picture, by its name one of `forms`; SVG where the name says nothing.
pub(super) fn picture(
    path: Option<&Path>,
    what: &'static str,
    forms: &[Format],
    words: &'static str,
) -> Result<Format, Error> {
    let Some(path) = path else { return Ok(Format::Svg) };
    match named_format(path) {
        Some(format) if forms.contains(&format) => Ok(format),
        None if extension(path).is_none() => Ok(Format::Svg),
        _ => Err(Error::Extension { path: path.to_owned(), what, forms: words, by_option: false }),
    }
}

/// Fails when a heap file's name stands for another form.
pub(super) fn heap_name(path: &Path) -> Result<(), Error> {
    match named_format(path) {
        None => Ok(()),
        Some(_) => Err(Error::HeapName { path: path.to_owned() }),
    }
}

fn extension(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(PACKED).unwrap_or(&name);
    Path::new(name).extension().map(|extension| extension.to_string_lossy().into_owned())
}

/// Writes a file, gzipped where its name says so; pprof's form is gzipped under any name.
pub(super) fn write_file(
    path: &Path,
    format: Option<Format>,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let is_packed = format != Some(Format::Pprof) && path.to_string_lossy().ends_with(PACKED);
    outfile::write(path, |out| {
        if !is_packed {
            return body(out);
        }
        let mut packed = GzEncoder::new(out, Compression::default());
        body(&mut packed)?;
        packed.finish().map(drop)
    })
}

/// `-` is standard output.
pub(super) fn file(output: Option<&PathBuf>) -> Option<&Path> {
    output.map(PathBuf::as_path).filter(|path| *path != Path::new("-"))
}

/// A result's name for messages.
pub(super) fn name(output: &PathBuf) -> String {
    file(Some(output)).map_or_else(|| "standard output".to_owned(), |path| path.display().to_string())
}

/// Fails when the result would replace one of the files that are read.
pub(super) fn keep<'p>(output: Option<&Path>, inputs: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Error> {
    let Some(output) = output else { return Ok(()) };
    if inputs.into_iter().any(|input| is_same(output, input)) {
        return Err(Error::Overwrites { path: output.to_owned() });
    }
    Ok(())
}

/// Whether two names are those of one file, which need not be there. What is written in place, as devices are, may be
/// named twice.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let place = |path: &Path| {
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                (
                    fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned()),
                    path.file_name().map(ToOwned::to_owned),
                )
            };
            place(one) == place(other)
        }
        _ => false,
    }
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Form(Format),
    Peek,
    Tags,
}

impl Shown {
    fn name(self) -> &'static str {
        match self {
            Shown::Form(format) => format.name(),
            Shown::Peek => "--peek",
            Shown::Tags => "--tags",
        }
    }
}

/// Says which of the options given do nothing here. `is_flame`: the svg is a flame graph.
pub(super) fn explain_unused(
    shown: Shown,
    is_flame: bool,
    (value, rows, print): (ValueArgs, &RowArgs, &PrintArgs),
    term: &mut Term,
) {
    use Format::{Callgrind, Csv, Dot, Html, Json, Otlp, Pdf, Pprof, Svg, Text, Tree};
    let GranularityArgs { functions: _, lines, files, addresses } = rows.granularity;
    let granularity = [("--lines", lines), ("--files", files), ("--addresses", addresses)];
    let granularity = granularity.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
    let is_value = value.inuse_space || value.inuse_objects || value.alloc_space || value.alloc_objects;
    let form = match shown {
        Shown::Form(Svg) if is_flame => None,
        Shown::Form(form) => Some(form),
        Shown::Peek | Shown::Tags => None,
    };
    let is_one = |forms: &[Format]| form.is_some_and(|form| forms.contains(&form));
    let is_listing = matches!(shown, Shown::Peek | Shown::Tags);
    let unused = [
        (
            rows.top.map(|_| "--top"),
            is_one(&[Text, Tree, Csv, Json, Dot, Svg, Pdf, Html]) || is_listing,
            "text, tree, csv, json, html, --peek, --tags and call graphs",
        ),
        (rows.sort.map(|_| "--sort"), is_one(&[Text, Csv, Json, Html]), "text, csv, json and html"),
        (rows.cum.then_some("--cum"), is_one(&[Text, Csv, Json, Html]), "text, csv, json and html"),
        (
            granularity,
            shown != Shown::Tags && !is_one(&[Callgrind, Pprof, Otlp]),
            "every form but callgrind, pprof, otlp and --tags",
        ),
        (
            rows.show_bytes.then_some("--show_bytes"),
            is_listing || is_one(&[Text, Tree, Dot]),
            "text, tree, dot, --peek and --tags",
        ),
        (
            print.all_edges.then_some("--all-edges"),
            is_one(&[Dot, Svg, Pdf, Html]),
            "call graphs: dot, svg, pdf and html",
        ),
        ((print.color == Color::Always).then_some("--color"), is_one(&[Text, Tree]), "text and tree"),
        (
            is_value.then_some("the choice of a value"),
            !is_one(&[Callgrind, Otlp]),
            "every form but callgrind and otlp, which hold all values",
        ),
    ];
    for (option, acts, forms) in unused {
        let here = if is_flame { "a flame graph" } else { shown.name() };
        explain_idle(option.filter(|_| !acts), here, forms, term);
    }
    if rows.cum && rows.sort.is_some_and(|key| key != SortKey::Cum) {
        term.warn("--sort has no effect beside --cum");
    }
}

/// Says that an option does nothing here, when it was given.
pub(super) fn explain_idle(option: Option<&str>, here: &str, forms: &str, term: &mut Term) {
    if let Some(option) = option {
        term.warn(format_args!("{option} has no effect on {here}; it has on {forms}"));
    }
}

/// Whether a picture of a difference is a flame graph.
pub(super) fn is_flame(format: Format, print: &PrintArgs, has_base: bool) -> bool {
    format == Format::Svg && has_base && print.layout == Layout::Own
}

#[cfg(test)]
mod tests {
    use super::{is_same, named_format, picture};
    use crate::cli::report_args::Format;
    use std::path::Path;

    #[test]
    fn names_of_one_file() {
        let directory = std::env::temp_dir().join(format!("jeprobe-results-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("temp dir");
        let (there, link, not) = (directory.join("a"), directory.join("b"), directory.join("c"));
        std::fs::write(&there, b"x").expect("writable");
        std::os::unix::fs::symlink(&there, &link).expect("link");
        assert!(is_same(&there, &link) && is_same(&not, &directory.join("./c")));
        assert!(!is_same(&there, &not) && !is_same(&not, &directory.join("d")));
        assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")), "a device takes both");
        std::fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn pictures_by_name() {
        let of = |name: &str| picture(Some(Path::new(name)), "it", &[Format::Svg, Format::Pdf], "either").ok();
        assert_eq!([of("a.svg"), of("a.pdf"), of("a")], [Some(Format::Svg), Some(Format::Pdf), Some(Format::Svg)]);
        assert_eq!([of("a.html"), of("a.png")], [None, None]);
        assert_eq!(named_format(Path::new("a.pb")), Some(Format::Pprof));
        assert_eq!([of("a.svg.gz"), of("a.gz"), of("a.png.gz")], [Some(Format::Svg), Some(Format::Svg), None]);
        for (name, format) in [("a.pb.gz", Some(Format::Pprof)), ("a.json.gz", Some(Format::Json)), ("a.heap.gz", None)]
        {
            assert_eq!(named_format(Path::new(name)), format, "{name}");
        }
    }
}

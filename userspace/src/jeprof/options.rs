//! The options, their defaults, and which of them exclude each other.
//!
//! Settings are flags, not enums, where the original keeps flags: interactive commands switch single ones, and the
//! first that is set in a fixed order wins.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};

use super::getopt::{self, Given, Takes, Value};
use super::stop::{Result, Stop};
use super::streams::say;

/// Whose behaviour is shown where versions of jemalloc differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    #[default]
    V530,
    V531,
}

/// The variable that chooses between them.
pub const COMPAT: &str = "JEPROF_COMPAT";

/// All settings of a run.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one flag per option of the command line")]
pub struct Options {
    pub help: bool,
    pub version: bool,
    pub test: bool,
    pub debug: bool,
    pub debug_syms_by_id: bool,

    pub text: bool,
    pub callgrind: bool,
    pub list: String,
    pub disasm: String,
    pub symbols: bool,
    pub gv: bool,
    pub evince: bool,
    pub web: bool,
    pub dot: bool,
    pub ps: bool,
    pub pdf: bool,
    pub svg: bool,
    pub gif: bool,
    pub raw: bool,
    pub collapsed: bool,
    pub interactive: bool,

    pub addresses: bool,
    pub lines: bool,
    pub functions: bool,
    pub files: bool,
    pub cum: bool,

    pub inuse_space: bool,
    pub inuse_objects: bool,
    pub alloc_space: bool,
    pub alloc_objects: bool,
    pub show_bytes: bool,
    pub drop_negative: bool,
    pub total_delay: bool,
    pub contentions: bool,
    pub mean_delay: bool,
    pub heapcheck: bool,

    pub base: OsString,
    pub seconds: i64,
    pub add_lib: OsString,
    pub lib_prefix: String,
    pub nodecount: i64,
    pub nodefraction: f64,
    pub edgefraction: f64,
    pub maxdegree: i64,
    pub focus: String,
    pub ignore: String,
    pub retain: String,
    pub exclude: String,
    pub thread: Option<String>,
    pub scale: i64,
    pub tools: String,
    pub test_stride: i64,

    pub compat: Compat,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            help: false,
            version: false,
            test: false,
            debug: false,
            debug_syms_by_id: false,
            text: false,
            callgrind: false,
            list: String::new(),
            disasm: String::new(),
            symbols: false,
            gv: false,
            evince: false,
            web: false,
            dot: false,
            ps: false,
            pdf: false,
            svg: false,
            gif: false,
            raw: false,
            collapsed: false,
            interactive: false,
            addresses: false,
            lines: false,
            functions: false,
            files: false,
            cum: false,
            inuse_space: false,
            inuse_objects: false,
            alloc_space: false,
            alloc_objects: false,
            show_bytes: false,
            drop_negative: false,
            total_delay: false,
            contentions: false,
            mean_delay: false,
            heapcheck: false,
            base: OsString::new(),
            seconds: 30,
            add_lib: OsString::new(),
            lib_prefix: String::new(),
            nodecount: 80,
            nodefraction: 0.005,
            edgefraction: 0.001,
            maxdegree: 8,
            focus: String::new(),
            ignore: String::new(),
            retain: String::new(),
            exclude: String::new(),
            thread: None,
            scale: 0,
            tools: String::new(),
            test_stride: 0,
            compat: Compat::V530,
        }
    }
}

const SPECIFICATION: [(&str, Takes); 52] = [
    ("help", Takes::Switch),
    ("version", Takes::Switch),
    ("cum", Takes::Switch),
    ("base", Takes::Text),
    ("seconds", Takes::Integer),
    ("add_lib", Takes::Text),
    ("lib_prefix", Takes::Text),
    ("functions", Takes::Switch),
    ("lines", Takes::Switch),
    ("addresses", Takes::Switch),
    ("files", Takes::Switch),
    ("text", Takes::Switch),
    ("callgrind", Takes::Switch),
    ("list", Takes::Text),
    ("disasm", Takes::Text),
    ("symbols", Takes::Switch),
    ("gv", Takes::Switch),
    ("evince", Takes::Switch),
    ("web", Takes::Switch),
    ("dot", Takes::Switch),
    ("ps", Takes::Switch),
    ("pdf", Takes::Switch),
    ("svg", Takes::Switch),
    ("gif", Takes::Switch),
    ("raw", Takes::Switch),
    ("collapsed", Takes::Switch),
    ("interactive", Takes::Switch),
    ("nodecount", Takes::Integer),
    ("nodefraction", Takes::Real),
    ("edgefraction", Takes::Real),
    ("maxdegree", Takes::Integer),
    ("focus", Takes::Text),
    ("thread", Takes::Text),
    ("ignore", Takes::Text),
    ("scale", Takes::Integer),
    ("heapcheck", Takes::Nothing),
    ("retain", Takes::Text),
    ("exclude", Takes::Text),
    ("inuse_space", Takes::Switch),
    ("inuse_objects", Takes::Switch),
    ("alloc_space", Takes::Switch),
    ("alloc_objects", Takes::Switch),
    ("show_bytes", Takes::Switch),
    ("drop_negative", Takes::Switch),
    ("total_delay", Takes::Switch),
    ("contentions", Takes::Switch),
    ("mean_delay", Takes::Switch),
    ("tools", Takes::Text),
    ("test", Takes::Switch),
    ("debug", Takes::Switch),
    ("debug-syms-by-id", Takes::Switch),
    ("test_stride", Takes::Integer),
];

/// Whether Perl takes a text for true.
pub fn truth(text: &str) -> bool {
    !text.is_empty() && text != "0"
}

impl Options {
    /// Reads the command line; the words that are no options are the second part of the result.
    pub fn parse(arguments: Vec<OsString>) -> Result<(Options, Vec<OsString>)> {
        let parsed = getopt::parse(&SPECIFICATION, arguments, env::var_os("POSIXLY_CORRECT").is_some());
        for line in &parsed.errors {
            say(format_args!("{line}\n"));
        }
        if !parsed.errors.is_empty() {
            return Err(Stop::usage("Invalid option(s)"));
        }
        let mut options = Options { compat: compat(env::var_os(COMPAT).as_deref())?, ..Options::default() };
        for given in parsed.given {
            options.set(given)?;
        }
        Ok((options, parsed.words))
    }

    fn set(&mut self, Given { name, value }: Given) -> Result<()> {
        match value {
            Value::Flag(on) => *self.flag(name) = on,
            Value::Integer(number) => *self.integer(name) = number,
            Value::Real(number) if name == "nodefraction" => self.nodefraction = number,
            Value::Real(number) => self.edgefraction = number,
            Value::Text(text) if name == "base" => self.base = text,
            Value::Text(text) if name == "add_lib" => self.add_lib = text,
            Value::Text(text) => {
                let text = text
                    .into_string()
                    .map_err(|text| Stop::usage(format!("--{name}: not UTF-8: {}", text.display())))?;
                match name {
                    "lib_prefix" => self.lib_prefix = text,
                    "list" => self.list = text,
                    "disasm" => self.disasm = text,
                    "focus" => self.focus = text,
                    "ignore" => self.ignore = text,
                    "retain" => self.retain = text,
                    "exclude" => self.exclude = text,
                    "thread" => self.thread = Some(text),
                    _ => self.tools = text,
                }
            }
        }
        Ok(())
    }

    fn integer(&mut self, name: &str) -> &mut i64 {
        match name {
            "seconds" => &mut self.seconds,
            "nodecount" => &mut self.nodecount,
            "maxdegree" => &mut self.maxdegree,
            "scale" => &mut self.scale,
            _ => &mut self.test_stride,
        }
    }

    fn flag(&mut self, name: &str) -> &mut bool {
        match name {
            "help" => &mut self.help,
            "version" => &mut self.version,
            "cum" => &mut self.cum,
            "functions" => &mut self.functions,
            "lines" => &mut self.lines,
            "addresses" => &mut self.addresses,
            "files" => &mut self.files,
            "text" => &mut self.text,
            "callgrind" => &mut self.callgrind,
            "symbols" => &mut self.symbols,
            "gv" => &mut self.gv,
            "evince" => &mut self.evince,
            "web" => &mut self.web,
            "dot" => &mut self.dot,
            "ps" => &mut self.ps,
            "pdf" => &mut self.pdf,
            "svg" => &mut self.svg,
            "gif" => &mut self.gif,
            "raw" => &mut self.raw,
            "collapsed" => &mut self.collapsed,
            "interactive" => &mut self.interactive,
            "heapcheck" => &mut self.heapcheck,
            "inuse_space" => &mut self.inuse_space,
            "inuse_objects" => &mut self.inuse_objects,
            "alloc_space" => &mut self.alloc_space,
            "alloc_objects" => &mut self.alloc_objects,
            "show_bytes" => &mut self.show_bytes,
            "drop_negative" => &mut self.drop_negative,
            "total_delay" => &mut self.total_delay,
            "contentions" => &mut self.contentions,
            "mean_delay" => &mut self.mean_delay,
            "test" => &mut self.test,
            "debug" => &mut self.debug,
            _ => &mut self.debug_syms_by_id,
        }
    }

    /// Checks what excludes each other and fills in the mode and granularity that follow from the rest.
    pub fn settle(&mut self) -> Result<()> {
        if truth(&self.disasm) || truth(&self.list) || self.symbols {
            (self.functions, self.lines, self.addresses, self.files) = (false, false, true, false);
        }
        let count = |flags: &[bool]| flags.iter().filter(|&&flag| flag).count();
        if count(&[self.inuse_space, self.inuse_objects, self.alloc_space, self.alloc_objects]) > 1 {
            return Err(Stop::usage("Specify at most on of --inuse/--alloc options"));
        }
        match count(&[self.functions, self.lines, self.addresses, self.files]) {
            0 => self.functions = true,
            1 => {}
            _ => return Err(Stop::usage("Only specify one output granularity option")),
        }
        let modes = [
            self.text,
            self.callgrind,
            !self.list.is_empty(),
            !self.disasm.is_empty(),
            self.symbols,
            self.gv,
            self.evince,
            self.web,
            self.dot,
            self.ps,
            self.pdf,
            self.svg,
            self.gif,
            self.raw,
            self.collapsed,
            self.interactive,
        ];
        match count(&modes) {
            0 if io::stdout().is_terminal() => self.interactive = true,
            0 => self.text = true,
            1 => {}
            _ => return Err(Stop::usage("Only specify one output mode")),
        }
        Ok(())
    }

    /// Which of the four numbers of a heap record is shown: current objects, current bytes, all objects, all bytes.
    pub fn heap_column(&self) -> usize {
        if self.inuse_space {
            1
        } else if self.inuse_objects {
            0
        } else if self.alloc_space {
            3
        } else if self.alloc_objects {
            2
        } else {
            1
        }
    }
}

fn compat(wanted: Option<&OsStr>) -> Result<Compat> {
    match wanted.map(|text| text.to_string_lossy()).as_deref() {
        None | Some("" | "5.3.0") => Ok(Compat::V530),
        Some("5.3.1") => Ok(Compat::V531),
        Some(other) => Err(Stop::error(format!("{COMPAT}={other}: only 5.3.0 and 5.3.1 are known\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(words: &[&str]) -> Result<Options> {
        let (mut options, _) = Options::parse(words.iter().map(OsString::from).collect())?;
        options.settle().map(|()| options)
    }

    #[test]
    fn every_option_lands_in_its_own_field() {
        let flags: Vec<&str> =
            SPECIFICATION.iter().filter(|(_, t)| *t == Takes::Switch).map(|(name, _)| *name).collect();
        for name in flags {
            let mut options = Options::default();
            *options.flag(name) = true;
            let set = format!("{options:?}").matches(": true").count();
            assert_eq!(set, 1, "{name}");
            assert!(format!("{options:?}").contains(&format!("{}: true", name.replace('-', "_"))), "{name}");
        }
    }

    #[test]
    fn modes_and_columns_exclude_each_other() {
        assert_eq!(settled(&["--text", "--dot"]).err(), Some(Stop::usage("Only specify one output mode")));
        assert!(settled(&["--list=x", "--lines"]).is_ok_and(|options| options.addresses && !options.lines));
        assert_eq!(settled(&["--alloc_space"]).map(|options| options.heap_column()), Ok(3));
        assert!(settled(&["--alloc_space", "--inuse_space"]).is_err());
        assert!(settled(&["--lines", "--files"]).is_err());
    }
}

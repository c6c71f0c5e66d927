//! Answers compared with those of the installed binutils, over every address of small programs built for it.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::debugfile::Places;
use super::{DisasmLine, Image, Reading, SourceFrame};

/// A program with an inlined function, for every test that has an image made.
pub(crate) const C: &str = r"
#include <stdlib.h>
static inline int square(int x) { return x * x; }
static __attribute__((noinline)) int work(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) if (i & 1) sum += square(i); else sum -= i;
    return sum;
}
int main(int argc, char **argv) { void *p = malloc(work(argc)); free(p); return argv[0] == p; }
";

/// A folder that goes with its programs.
struct Workshop(PathBuf);

impl Workshop {
    fn new(name: &str) -> Workshop {
        let folder = std::env::temp_dir().join(format!("jeprobe-image-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Workshop(folder)
    }

    fn build(&self, compiler: &str, source: (&str, &str), flags: &[&str], name: &str) -> PathBuf {
        let source_path = self.0.join(source.0);
        std::fs::write(&source_path, source.1).expect("a source file");
        let program = self.0.join(name);
        let mut command = Command::new(compiler);
        run(command.args(flags).arg(&source_path).arg("-o").arg(&program));
        program
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("compilers and binutils are installed by `cargo xtask deps`");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn binutils_frames(program: &Path, addresses: &[u64]) -> String {
    let mut child = Command::new("addr2line")
        .args(["-a", "-f", "-C", "-i", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("addr2line is installed");
    let asked = addresses.iter().fold(String::new(), |mut text, address| {
        let _infallible = writeln!(text, "{address:x}");
        text
    });
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().expect("addr2line ends");
    writer.join().expect("no panic").expect("addr2line reads everything");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn print(address: u64, frames: &[SourceFrame]) -> String {
    let mut text = format!("0x{address:016x}\n");
    if frames.is_empty() {
        text.push_str("??\n??:0\n");
    }
    for frame in frames {
        let line = match (frame.line, frame.discriminator) {
            (None, _) => "?".to_owned(),
            (Some(line), 0) => line.to_string(),
            (Some(line), discriminator) => format!("{line} (discriminator {discriminator})"),
        };
        let unknown = || "??".to_owned();
        let (function, file) = (frame.function.clone(), frame.file.clone());
        let _infallible =
            writeln!(text, "{}\n{}:{line}", function.unwrap_or_else(unknown), file.unwrap_or_else(unknown));
    }
    text
}

/// Compares names and lines at every address of `.text`.
fn compare_frames(program: &Path) {
    let image = Image::open(program).expect("an ELF file");
    let text = image.text().expect("a text section");
    let addresses: Vec<u64> = (text.address..text.address + text.size).collect();
    let theirs = binutils_frames(program, &addresses);
    let ours = addresses.iter().map(|address| print(*address, &image.frames(*address)));
    for (ours, theirs) in ours.zip(theirs.split("0x").skip(1)) {
        assert_eq!(ours, format!("0x{theirs}"), "{}", program.display());
    }
}

/// Compares names and lines that do not follow addr2line's habits, of a program in C: they are the same there.
fn compare_calls(program: &Path) {
    let image = Image::open_with(program, Places::default(), Reading::AsStandard).expect("an ELF file");
    let text = image.text().expect("a text section");
    let addresses: Vec<u64> = (text.address..text.address + text.size).collect();
    let theirs = binutils_frames(program, &addresses);
    let mut named = 0;
    for ((address, calls), theirs) in addresses.iter().zip(image.calls(&addresses)).zip(theirs.split("0x").skip(1)) {
        if calls.is_empty() {
            // What lies behind a function is no part of it; addr2line gives the nearest name all the same.
            assert!(!theirs.contains("c.c:"), "{}: {theirs}", program.display());
            continue;
        }
        named += 1;
        let ours = calls.iter().fold(format!("{address:016x}\n"), |mut text, call| {
            let line = if call.line == 0 { "?".to_owned() } else { call.line.to_string() };
            let _infallible = writeln!(text, "{}\n{}:{line}", call.name, call.file.as_deref().unwrap_or("??"));
            text
        });
        let plain: Vec<&str> =
            theirs.lines().map(|line| line.split(" (discriminator").next().unwrap_or(line)).collect();
        assert_eq!(ours.lines().collect::<Vec<_>>(), plain, "{}", program.display());
    }
    assert_eq!(
        named > 50,
        !image.symbols().is_empty() && image.elf.section(".symtab").is_some(),
        "{named} have a name"
    );
}

/// Compares the list of defined symbols.
fn compare_symbols(program: &Path, flags: &[&str], dynamic: bool) {
    let theirs = run(Command::new("nm").args(["-n", "--demangle"]).args(flags).arg(program).env("LC_ALL", "C"));
    let theirs: Vec<&str> = theirs.lines().filter(|line| !line.starts_with(' ')).collect();
    let image = Image::open(program).expect("an ELF file");
    let list = if dynamic { image.dynamic_symbols() } else { image.symbols() };
    let ours: Vec<String> = list
        .iter()
        .map(|symbol| format!("{:016x} {} {}", symbol.address, char::from(symbol.kind), symbol.name))
        .collect();
    assert_eq!(ours, theirs, "{}", program.display());
    for symbol in list.iter().filter(|symbol| symbol.kind == b'T') {
        let nearest = image.lookup(symbol.address).expect("a symbol");
        assert_eq!((nearest.start, nearest.kind), (symbol.address, b'T'));
    }
}

/// Compares the whole disassembly.
fn compare_code(program: &Path) {
    let theirs = run(Command::new("objdump").args(["-C", "-d", "-l", "--no-show-raw-insn"]).arg(program));
    let is_heading =
        |line: &&str| line.starts_with("Disassembly of") || line.contains("file format") || line.is_empty();
    let theirs: Vec<&str> =
        theirs.lines().filter(|line| !is_heading(line)).map(|line| line.trim_start_matches(' ')).collect();
    let lines = Image::open(program).expect("an ELF file").disassemble(0, u64::MAX).expect("code of x86-64");
    let ours: Vec<String> = lines.into_iter().map(print_code).collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{}", program.display());
    }
    assert_eq!(ours.len(), theirs.len(), "{}", program.display());
}

fn print_code(line: DisasmLine) -> String {
    match line {
        DisasmLine::Symbol { address, name } => format!("{address:016x} <{name}>:"),
        DisasmLine::Function(name) => format!("{name}:"),
        DisasmLine::Location { file, line, discriminator: 0 } => format!("{file}:{line}"),
        DisasmLine::Location { file, line, discriminator } => format!("{file}:{line} (discriminator {discriminator})"),
        DisasmLine::Instruction { address, text } => format!("{address:x}:\t{text}"),
        DisasmLine::Skipped => "\t...".to_owned(),
    }
}

#[test]
fn c_programs_have_the_names_and_lines_of_binutils() {
    let workshop = Workshop::new("c");
    let flags: &[&[&str]] = &[
        &["-O2", "-g", "-gdwarf-4"],
        &["-O2", "-g", "-gdwarf-5", "-no-pie"],
        &["-O0", "-g", "-gz"],
        &["-O2"],
        &["-O2", "-s"],
    ];
    for (number, flags) in flags.iter().enumerate() {
        let program = workshop.build("cc", ("c.c", C), flags, &format!("c{number}"));
        compare_frames(&program);
        compare_calls(&program);
        compare_code(&program);
        if !flags.contains(&"-s") {
            compare_symbols(&program, &[], false);
        }
        compare_symbols(&program, &["-D"], true);
    }
}

#[test]
fn separate_debug_files_are_found_by_link() {
    let workshop = Workshop::new("split");
    let program =
        workshop.build("c++", ("app.cpp", "int main(int c, char **) { return c * 3; }"), &["-O1", "-g"], "app");
    let debug = workshop.0.join("app.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    run(Command::new("objcopy").arg("--strip-all").arg(&program));
    run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&program));
    compare_frames(&program);
    let image = Image::open(&program).expect("an ELF file");
    let text = image.text().expect("a text section");
    let named = (text.address..text.address + text.size).filter(|address| {
        image.frames(*address).first().is_some_and(|frame| frame.function.as_deref() == Some("main"))
    });
    assert!(named.count() > 2, "main has no name");
    std::fs::write(&debug, b"another file").expect("the debug file is replaced");
    assert!(Image::open(&program).expect("an ELF file").frames(text.address).is_empty());
}

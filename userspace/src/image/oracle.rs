//! Answers compared with those of the installed binutils, over every address of small programs built for it.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::debugfile::Places;
use super::demangle::demangle;
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
pub(crate) struct Workshop(PathBuf);

impl Workshop {
    pub(crate) fn new(name: &str) -> Workshop {
        let folder = std::env::temp_dir().join(format!("jeprobe-image-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Workshop(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn build(&self, compiler: &str, source: (&str, &str), flags: &[&str], name: &str) -> PathBuf {
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

pub(crate) fn run(command: &mut Command) -> String {
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
        let (function, file) = (frame.function.as_ref().map(|name| name.full.text()), frame.file.as_deref());
        let _infallible = writeln!(text, "{}\n{}:{line}", function.unwrap_or("??".into()), file.unwrap_or("??"));
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
        image
            .frames(*address)
            .first()
            .and_then(|frame| frame.function.as_ref())
            .is_some_and(|name| name.full.text() == "main")
    });
    assert!(named.count() > 2, "main has no name");
    std::fs::write(&debug, b"another file").expect("the debug file is replaced");
    assert!(Image::open(&program).expect("an ELF file").frames(text.address).is_empty());
}

/// Names of C++ as `c++filt` prints them without its own abbreviations, in the order of `names`.
fn binutils_names(names: &[&str]) -> Vec<String> {
    let mut child = Command::new("c++filt")
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("c++filt is installed");
    let asked = names.join("\n") + "\n";
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().expect("c++filt ends");
    writer.join().expect("no panic").expect("c++filt reads everything");
    String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect()
}

fn compare_names(names: &[&str]) {
    let theirs = binutils_names(names);
    assert_eq!(theirs.len(), names.len());
    for (name, theirs) in names.iter().zip(theirs) {
        assert_eq!(demangle(name), theirs, "{name}");
    }
}

#[test]
fn names_of_libraries_are_those_of_binutils() {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/llvm-14/lib"];
    let is_wanted = |name: &str| name.starts_with("libstdc++.so.6") || name.starts_with("libLLVM-1");
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut compared = 0;
    for file in files.filter(|file| is_wanted(&file.file_name().to_string_lossy())) {
        let Ok(listed) = Command::new("nm").args(["-D", "--without-symbol-versions"]).arg(file.path()).output() else {
            continue;
        };
        let listed = String::from_utf8_lossy(&listed.stdout);
        let names = listed.lines().filter_map(|line| line.split(' ').next_back()).filter(|name| name.starts_with("_Z"));
        // Every name of a small library, one in seven of a large one.
        let names: Vec<&str> = names.collect();
        let step = if names.len() > 20_000 { 7 } else { 1 };
        let names: Vec<&str> = names.into_iter().step_by(step).collect();
        compare_names(&names);
        compared += names.len();
    }
    assert!(compared > 3000, "{compared} names were compared: no libstdc++.so.6 here");
}

/// Forms that libraries hold few of, and names that are none.
#[rustfmt::skip]
const RARE_NAMES: &[&str] = &[
    "_ZN1AcvT_I1BEEv",
    "_ZN1AcvPKT_IcEEv",
    "_Z3addIiiEDTplfp_fp0_ET_T0_",
    "_Z1fIJilEEvDpT_",
    "_Z1fIJEEvDpT_",
    "_Z1fIJ1A1BEEvDpRKT_",
    "_Z3sumIJiiiEEDTfrplfp_EDpT_",
    "_Z3sumIJiiiEEDTflplfp_EDpT_",
    "_Z3sumIJiiiEEDTfLplLi1Efp_EDpT_",
    "_Z4sizeIJiiiEEvRAsZT__i",
    "_ZZ3foovENKUlvE_clEv",
    "_ZZ3foovENKUlT_E_clIiEEDaS_",
    "_ZN3fooUt_C2Ev",
    "_ZZ4mainE1s_0",
    "_ZZ1fvEs_1",
    "_ZZ1giEd_NKUlvE_clEv",
    "_Z1fPFivE",
    "_Z1fPFPFivEcE",
    "_Z1fRA10_A20_i",
    "_Z1fRA10_KPKc",
    "_Z1fM1AFivE",
    "_Z1fM1AKFivE",
    "_Z1fM1AKDoFivRE",
    "_Z1fM1Ai",
    "_Z1fDv4_f",
    "_Z1fDv_T__f",
    "_Z1fCd",
    "_Z1fU8__vectori",
    "_Z1fu6__bf16",
    "_Z1fDF16_",
    "_Z1fDnDsDiDu",
    "_ZNKO1A1fEv",
    "_ZNVKR1A1fEv",
    "_ZNSt6vectorIiSaIiEE9push_backEOi",
    "_ZNSsC2Ev",
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1ERKS4_",
    "_ZSt4cout",
    "_ZSteqIcEbRKSbIT_St11char_traitsIS0_ESaIS0_EES8_",
    "_ZThn16_N1A1fEv",
    "_ZTv0_n24_N1A1fEv",
    "_ZTch0_h16_N1A1fEv",
    "_ZTC1A0_1B",
    "_ZTHN1A1xE",
    "_ZTWN1A1xE",
    "_ZGVZ1fvE1x",
    "_ZGRN1A1xE0_",
    "_ZGTtN1A1fEv",
    "_ZTAXtl1ALi1ELi2EEE",
    "_ZN1A1fB5cxx11Ev",
    "_ZN1AC1B3tagEv",
    "_ZN1BCI11AEi",
    "_ZNK1AssERKS_",
    "_ZdlPvmSt11align_val_t",
    "_Znwm",
    "_Znam",
    "_ZN1AawEv",
    "_Zli5_kilox",
    "_Z1fILb1EEvv",
    "_Z1fILc65EEvv",
    "_Z1fILin3ELj3ELl3ELm3ELx3ELy3EEvv",
    "_Z1fILd4000000000000000EEvv",
    "_Z1fIXadL_Z1gvEEEvv",
    "_Z1fIXadL_ZN1A1gEvEEEvv",
    "_Z1fIXcvT_Li1EEEvv",
    "_Z1fIiEDTcv1A_Li1ELi2EEES_",
    "_Z1fIiEDTnw_T_piEES0_",
    "_Z1fIiEDTnw_T_EES0_",
    "_Z1fIiEDTcl1gfp_EET_",
    "_Z1fIiEDTdtfp_1gET_",
    "_Z1fIiEDTptfp_onplET_",
    "_Z1fIiEDTquL_b1EfpT_Li2EET_",
    "_Z1fIiEDTgtfp_Li1EET_",
    "_Z1fIiEDTixfp_Li1EET_",
    "_Z1fIiEDTppfp_EET_",
    "_Z1fIiEDTpp_fp_EET_",
    "_Z1fIiEDTscT_fp_EES0_",
    "_Z1fIiEDTstT_ES0_",
    "_Z1fIiEDTszfp_ES0_",
    "_Z1fIiEDTnxfp_ES0_",
    "_Z1fIiEDTtwfp_ES0_",
    "_Z1fIiEDTtrES0_",
    "_Z1fIiEDTsr1AIT_E1xES1_",
    "_Z1fIiEDTgsonES_",
    "_Z1fIiEDTil1xEET_",
    "_Z1fIiEDTtlT_di1aLi1Edx Li1ELi2EEES0_",
    "_ZN1fDC1a1bEE",
    "_Z3fooi.constprop.0",
    "_Z3fooi.isra.0.cold",
    "_Z3fooi.part.12",
    "_Z3fooi.llvm.1234",
    "_Z3foo.lto_priv.0",
    "_GLOBAL__I_foo",
    "_GLOBAL__D__Z3foov",
    "_GLOBAL__sub_I_foo",
    "_ZN12_GLOBAL__N_11fEv",
    "_Z1fIiEvT_S0_S1_",
    "_Z",
    "_Z1",
    "_ZN",
    "_ZNE",
    "_Z1fI",
    "_Z99f",
    "_ZS_",
    "_Z1fS_",
    "_Z1fT_",
    "_Z1fIT_EvS0_",
    "_ZN3foo3barEX",
    "_Z1fIiEvRT_OS0_",
    "_Z1fIRiEvOT_",
    "_Z1fIOiEvRT_",
    "_Z1fIOiEvOT_",
    "_Z1fIA3_iEvRKT_",
];

#[test]
fn rare_names_are_those_of_binutils() {
    compare_names(RARE_NAMES);
    let with = |length| format!("_Z1fI{}EvT_", "i".repeat(length));
    let (fits, too_long) = (with(1000), with(1100));
    compare_names(&[&fits, &too_long]);
}

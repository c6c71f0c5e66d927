//! Debug information that lies elsewhere or is stored in another way: the same answers as from a program that holds it, whose
//! answers are compared with binutils' in `oracle`.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::debugfile::Places;
use super::oracle::{C, Workshop, run};
use super::{Call, Image, Reading};

/// Functions at every address of `.text`.
fn answers(program: &Path) -> Vec<(u64, Vec<Call>)> {
    let image = Image::open_with(program, Places::default(), Reading::AsStandard).expect("an ELF file");
    let text = image.text().expect("a text section");
    let addresses: Vec<u64> = (text.address..text.address + text.size).collect();
    let calls = image.calls(&addresses);
    addresses.into_iter().zip(calls).collect()
}

fn inlined(answers: &[(u64, Vec<Call>)]) -> usize {
    answers.iter().filter(|(_, calls)| calls.iter().any(|call| call.is_inlined && &*call.name == "square")).count()
}

#[test]
fn split_units_and_packages() {
    for (compiler, version) in
        [("cc", "-gdwarf-5"), ("cc", "-gdwarf-4"), ("clang", "-gdwarf-5"), ("clang", "-gdwarf-4")]
    {
        let workshop = Workshop::new(&format!("split-{compiler}{version}"));
        // clang leaves nothing of the product at its place.
        let source = C.replace("{ return x * x; }", "{ __asm__ volatile(\"nop\" : \"+r\"(x)); return x * x; }");
        let whole = workshop.build(compiler, ("c.c", &source), &["-O1", "-g", version], "whole");
        let whole = answers(&whole);
        assert!(inlined(&whole) > 0, "{compiler} {version}: square is inlined");
        let object = workshop.build(compiler, ("c.c", &source), &["-O1", "-g", version, "-gsplit-dwarf", "-c"], "c.o");
        let program = workshop.folder().join("split");
        run(Command::new(compiler).args(["-g", version]).arg(&object).arg("-o").arg(&program));
        let unit = workshop.folder().join("c.dwo");
        assert!(unit.exists(), "{compiler} {version} writes a .dwo file");
        assert!(answers(&program) == whole, "{compiler} {version}: .dwo");
        // A file of another compilation is not used.
        let kept = fs::read(&unit).expect("the unit");
        workshop.build(
            compiler,
            ("c.c", &source.replace("work", "labour")),
            &["-O1", "-g", version, "-gsplit-dwarf", "-c"],
            "c.o",
        );
        assert_eq!(inlined(&answers(&program)), 0, "{compiler} {version}: another .dwo");
        fs::write(&unit, kept).expect("written");
        let package = workshop.folder().join("split.dwp");
        run(Command::new("llvm-dwp").arg(&unit).arg("-o").arg(&package));
        fs::remove_file(&unit).expect("removed");
        assert!(answers(&program) == whole, "{compiler} {version}: .dwp");
        fs::remove_file(&package).expect("removed");
        let without = answers(&program);
        assert!(
            inlined(&without) == 0 && without.iter().any(|(_, calls)| calls.iter().any(|call| &*call.name == "work"))
        );
    }
}

/// As Fedora builds its programs: a compressed symbol table of the functions that are not exported.
#[test]
fn compressed_symbol_tables() {
    let workshop = Workshop::new("mini");
    let program = workshop.build("cc", ("c.c", C), &["-O2"], "program");
    let whole = answers(&program);
    let at = |name: &str| workshop.folder().join(name);
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(at("mini")));
    fs::write(at("keep"), "work\nmain\n").expect("written");
    let keep = format!("--keep-symbols={}", at("keep").display());
    run(Command::new("objcopy").args(["-S", "--remove-section=.comment", &keep]).arg(at("mini")));
    run(Command::new("xz").arg(at("mini")));
    let add = format!("--add-section=.gnu_debugdata={}", at("mini.xz").display());
    run(Command::new("objcopy").arg(&add).arg(&program));
    run(Command::new("strip").arg(&program));
    let named = |answers: &[(u64, Vec<Call>)], name: &str| -> Vec<u64> {
        answers.iter().filter(|(_, calls)| calls.iter().any(|call| &*call.name == name)).map(|(at, _)| *at).collect()
    };
    let found = answers(&program);
    for name in ["work", "main"] {
        assert!(named(&whole, name).len() > 10, "{name}");
        assert_eq!(named(&found, name), named(&whole, name), "{name}");
    }
    run(Command::new("objcopy").arg("--remove-section=.gnu_debugdata").arg(&program));
    assert_eq!(named(&answers(&program), "work"), [0; 0]);
}

#[test]
fn sections_may_be_compressed() {
    let workshop = Workshop::new("compressed");
    let whole = workshop.build("cc", ("c.c", C), &["-O2", "-g"], "program");
    let expected = answers(&whole);
    for form in ["zlib", "zlib-gnu", "zstd"] {
        let packed = workshop.folder().join(form);
        let compress = format!("--compress-debug-sections={form}");
        let made = Command::new("objcopy").arg(&compress).arg(&whole).arg(&packed).output().expect("objcopy runs");
        // Not every objcopy is built with zstd.
        assert!(made.status.success() || form == "zstd", "{form}");
        if made.status.success() {
            assert!(answers(&packed) == expected, "{form}");
        }
    }
}

/// Two programs whose common debug information was moved to a file of its own.
#[test]
fn debug_information_that_programs_share() {
    let workshop = Workshop::new("dwz");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let flags = &["-O2", "-g", version];
        let programs = ["one", "two"].map(|name| workshop.build("c++", ("a.cc", SHARED), flags, name));
        let expected = answers(&programs[0]);
        let common = workshop.folder().join(format!("common{version}"));
        run(Command::new("dwz").arg("-m").arg(&common).args(&programs));
        assert!(common.exists(), "{version}: dwz finds something to share");
        assert!(answers(&programs[0]) == expected, "{version}");
        fs::remove_file(&common).expect("removed");
    }
}

const SHARED: &str = r"
#include <map>
#include <string>
struct Table { std::map<std::string, int> rows; void add(const std::string &name) { rows[name] += 1; } };
int main(int c, char **v) { Table table; for (int i = 0; i < c; i++) table.add(v[i]); return table.rows.size(); }
";

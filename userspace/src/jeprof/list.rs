//! `--list` and `weblist`: source of functions with values per line.
//!
//! Which lines belong to a function is guessed from its instructions: from the first line of its file to the largest, and
//! on from there while the text is indented as far as the first line. Values of instructions outside move to the next
//! inside. Five lines before and after are shown, too.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Write;

use super::code::{ByAddress, Code, Function, Instruction, Sources, Style, shown_file, use_outer_lines};
use super::listing::Listing;
use super::pattern::Pattern;
use super::stop::Result;
use super::streams::say;
use super::symbols::Routine;
use super::weblist;
use crate::symbolize::name::shorten;

/// Lists all matching functions; how many were. `as_page`: for a browser.
pub fn write(out: &mut impl Write, code: &mut Code<'_>, expression: &str, as_page: bool) -> Result<usize> {
    let pattern = Pattern::new(expression, "--list")?;
    let mut listed = 0;
    code.functions(&pattern, |code, function| {
        let Function { routine, image, mut instructions, bias } = function;
        use_outer_lines(&image, &mut instructions, bias, code.style.width);
        let Some(listing) = listing(&routine, &instructions, &code.values, bias, code.sources) else { return Ok(()) };
        listed += 1;
        if as_page { weblist::function(out, &listing, code.style) } else { text(out, &listing, code.style) }
    })?;
    Ok(listed)
}

fn listing<'a>(
    routine: &'a Routine,
    instructions: &'a [Instruction],
    values: &ByAddress,
    bias: u64,
    sources: &mut Sources,
) -> Option<Listing<'a>> {
    let line = |instruction: &Instruction| instruction.line.map_or(-1, i64::from);
    let Some(file) = instructions.iter().find(|instruction| line(instruction) >= 0).map(|first| first.file.clone())
    else {
        say(format_args!("no filename found in {}\n", routine.name));
        return None;
    };
    let own = || instructions.iter().filter(|instruction| instruction.file == file);
    let own_last = own().map(line).max().unwrap_or(0).max(0);
    let first = own().next().map_or(1, line);
    let lines = sources.lines(&file)?;
    let last = extended(&lines, first, own_last);
    let mut listing = Listing {
        routine,
        file,
        first,
        last,
        own_last,
        lines,
        instructions,
        counts: instructions.iter().map(|instruction| values.of(instruction)).collect(),
        by_line: BTreeMap::new(),
        total: (0.0, 0.0),
        bias,
    };
    let mut waiting = (0.0, 0.0);
    for (instruction, count) in instructions.iter().zip(&listing.counts) {
        waiting = (waiting.0 + count.0, waiting.1 + count.1);
        listing.total = (listing.total.0 + count.0, listing.total.1 + count.1);
        let number = line(instruction);
        if instruction.file == listing.file && (first..=last).contains(&number) {
            add(&mut listing.by_line, number, waiting);
            waiting = (0.0, 0.0);
        }
    }
    add(&mut listing.by_line, last, waiting);
    Some(listing)
}

fn add(by_line: &mut BTreeMap<i64, (f64, f64)>, line: i64, value: (f64, f64)) {
    let sum = by_line.entry(line).or_default();
    *sum = (sum.0 + value.0, sum.1 + value.1);
}

/// The last line, moved on while lines are indented at least as far as the first; not at all when that is not indented.
fn extended(lines: &[String], first: i64, last: i64) -> i64 {
    let mut last = last;
    let mut of_first = None;
    for (number, text) in (1..).zip(lines) {
        let text = text.replace('\r', "");
        let Some(indentation) = text.find(|c: char| !c.is_ascii_whitespace()) else { continue };
        if number >= first && of_first.is_none() {
            of_first = Some(indentation);
            if indentation == 0 {
                break;
            }
        }
        if number >= last {
            if of_first.is_none_or(|of_first| indentation >= of_first) {
                last = number + 1;
            } else {
                break;
            }
        }
    }
    last
}

fn text(out: &mut impl Write, listing: &Listing<'_>, Style { unit, .. }: Style) -> Result<()> {
    writeln!(
        out,
        "ROUTINE ====================== {} in {}",
        shorten(&listing.routine.name),
        shown_file(&listing.file)
    )?;
    writeln!(
        out,
        "{:>6} {:>6} Total {} (flat / cumulative)",
        unit.text(listing.total.0),
        unit.text(listing.total.1),
        unit.name()
    )?;
    for (number, text) in listing.shown() {
        if number == listing.first {
            out.write_all(b"---\n")?;
        }
        let (flat, cumulative) = listing.by_line.get(&number).copied().unwrap_or_default();
        writeln!(out, "{:>6} {:>6} {number:>4}: {text}", unit.text_or(flat, "."), unit.text_or(cumulative, "."))?;
        if number == listing.last {
            out.write_all(b"---\n")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::extended;

    #[test]
    fn the_end_moves_over_indented_lines_only_when_the_first_is() {
        let lines = |text: &str| text.split_inclusive('\n').map(ToOwned::to_owned).collect::<Vec<_>>();
        let flat = lines("int f() {\n  g();\n  h();\n}\n");
        assert_eq!(extended(&flat, 1, 3), 3);
        let nested = lines("struct S {\n  int f() {\n    g();\n\n    h();\n  }\n};\n");
        assert_eq!(extended(&nested, 2, 3), 7);
        assert_eq!(extended(&nested, 3, 3), 6);
    }
}

//! `weblist`: listings as a page; a click on a line shows its instructions.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::code::{Style, shown_address, shown_file, shown_instruction};
use super::listing::Listing;
use super::stop::Result;
use super::values::Unit;
use crate::symbolize::name::shorten;

const HEAD: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<title>jeprof listing</title>
<style>
body { font-family: sans-serif; color: #222; background: #fff; }
h1 { font-size: 1.2em; margin: 1em 0 0.2em; }
pre { font-size: 0.9em; }
.n { color: #999; }
.hot { color: #00c; }
.hot, .cold { cursor: pointer; }
.hot:hover, .cold:hover { background: #eee; }
.asm { color: #060; display: none; }
.asm.open { display: block; }
.same { color: #bbb; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; }
  .hot { color: #8af; }
  .hot:hover, .cold:hover { background: #333; }
  .asm { color: #7c7; }
  .same { color: #666; }
}
</style>
<script>
addEventListener('click', event => {
  const line = event.target.closest('.hot, .cold');
  const code = line && line.nextElementSibling;
  if (code && code.classList.contains('asm')) code.classList.toggle('open');
});
</script>
</head>
<body>
";

/// Opens the page.
pub fn head(out: &mut impl Write, program: &str, total: f64, unit: Unit) -> Result<()> {
    out.write_all(HEAD.as_bytes())?;
    writeln!(out, "<div>{}<br>Total: {} {}</div>", escape(program), unit.text(total), unit.name())?;
    Ok(())
}

/// Closes it.
pub fn foot(out: &mut impl Write) -> Result<()> {
    out.write_all(b"</body>\n</html>\n")?;
    Ok(())
}

/// One function.
pub fn function(out: &mut impl Write, listing: &Listing<'_>, style: Style) -> Result<()> {
    let unit = style.unit;
    writeln!(out, "<h1>{}</h1>{}", escape(&shorten(&listing.routine.name)), escape(shown_file(&listing.file)))?;
    writeln!(
        out,
        "<pre>\nTotal:{:>6} {:>6} (flat / cumulative {})",
        unit.text(listing.total.0),
        unit.text(listing.total.1),
        unit.name()
    )?;
    let code = instructions(listing, style);
    for (number, text) in listing.shown() {
        let (flat, cumulative) = listing.by_line.get(&number).copied().unwrap_or_default();
        let asm = code.get(&number).map_or(String::new(), |code| format!("<span class=\"asm\">{code}</span>"));
        let class = match (flat + cumulative > 0.0, asm.is_empty()) {
            (true, _) => "hot",
            (false, false) => "cold",
            (false, true) => "n",
        };
        writeln!(
            out,
            "<span class=\"n\">{number:>5}</span> <span class=\"{class}\">{:>6} {:>6} {}</span>{asm}",
            unit.text_or(flat, ""),
            unit.text_or(cumulative, ""),
            escape(&text)
        )?;
    }
    out.write_all(b"</pre>\n")?;
    Ok(())
}

/// Instructions by the line they are shown under.
fn instructions(listing: &Listing<'_>, Style { unit, width }: Style) -> BTreeMap<i64, String> {
    let mut by_line: BTreeMap<i64, String> = BTreeMap::new();
    let mut waiting = String::new();
    let mut before = None;
    let mut put = |line: i64, text: &mut String, previous: &mut Option<i64>| {
        let place = by_line.entry(line).or_default();
        // A gap in the code of a line shows.
        if !place.is_empty() && *previous != Some(line) {
            place.push('\n');
        }
        place.push_str(text);
        text.clear();
        *previous = Some(line);
    };
    let mut last_touched = None;
    for (instruction, count) in listing.instructions.iter().zip(&listing.counts) {
        let text = format!(
            "      {:>6} {:>6} \t\t{:>8}: {} ",
            unit.text_or(count.0, ""),
            unit.text_or(count.1, ""),
            shown_address(instruction.address, listing.bias, width),
            shown_instruction(&instruction.text)
        );
        let place = (instruction.inner_file.clone(), instruction.inner_line);
        let class = if before.as_ref() == Some(&place) { "same" } else { "place" };
        let line = place.1.map_or("?".to_owned(), |line| line.to_string());
        waiting.push_str(&escape(&format!("{text:<80}")));
        let _ = writeln!(waiting, "<span class=\"{class}\">{}:{line}</span>", escape(shown_file(&place.0)));
        before = Some(place);
        let number = instruction.line.map_or(-1, i64::from);
        if instruction.file == listing.file && (listing.first..=listing.last).contains(&number) {
            put(number, &mut waiting, &mut last_touched);
        }
    }
    if !waiting.is_empty() {
        put(listing.last, &mut waiting, &mut last_touched);
    }
    by_line
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

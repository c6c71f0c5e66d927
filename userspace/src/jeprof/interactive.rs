//! The interactive mode: one command per line, with editing and history on a terminal.
//!
//! A command is known by its beginning: `top5`, `quitting`. Behind it, words that start with `-` are settings or
//! expressions of stacks to ignore, the others are the expression to focus on or to list. `> FILE` at the end takes what
//! the command prints. A command that fails says so, and the next is read.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::filter;
use super::options::Options;
use super::show::{self, Shown, Tools};
use super::stacks::Stacks;
use super::stop::{Result, Stop, reason};
use super::streams::{Output, say};
use super::usage;
use super::values::{Unit, percent};

const PROMPT: &str = "(jeprof) ";

/// Reads and runs commands until the end. `stacks` are filtered, `total` is that before.
pub fn run(
    out: &mut Output,
    total: f64,
    stacks: &Stacks,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    say(format_args!("Welcome to jeprof!  For help, type 'help'.\n"));
    let mut session = Session { total, stacks, shown, options, tools };
    if io::stdin().is_terminal() { session.terminal(out) } else { session.lines(out) }
}

struct Session<'a> {
    total: f64,
    stacks: &'a Stacks,
    shown: &'a Shown,
    options: &'a Options,
    tools: &'a mut Tools,
}

/// What words behind a command say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// Focus, or what to list.
    expression: String,
    ignore: String,
    lines: bool,
    cum: bool,
}

impl Arguments {
    fn parse(words: &str) -> Arguments {
        let mut arguments = Arguments::default();
        let append = |text: &mut String, word: &str| {
            if !text.is_empty() {
                text.push('|');
            }
            text.push_str(word);
        };
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            match word {
                "-lines" | "--lines" => arguments.lines = true,
                "-cum" | "--cum" => arguments.cum = true,
                _ => match word.strip_prefix('-') {
                    Some(ignored) => append(&mut arguments.ignore, ignored),
                    None => append(&mut arguments.expression, word),
                },
            }
        }
        if !arguments.ignore.is_empty() {
            say(format_args!("Ignoring samples in call stacks that match '{}'\n", arguments.ignore));
        }
        arguments
    }
}

impl Session<'_> {
    fn terminal(&mut self, out: &mut Output) -> Result<()> {
        let failed = |error: &ReadlineError| Stop::error(format!("cannot read commands: {error}\n"));
        let mut editor = DefaultEditor::new().map_err(|error| failed(&error))?;
        let history = history_file();
        if let Some(path) = &history {
            // No history yet is no failure.
            let _ = editor.load_history(path);
        }
        loop {
            let line = match editor.readline(PROMPT) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(failed(&error)),
            };
            if !line.trim().is_empty() {
                let _ = editor.add_history_entry(&line);
            }
            if !self.line(out, &line)? {
                break;
            }
        }
        if let Some(path) = &history
            && let Err(error) = editor.save_history(path)
        {
            say(format_args!("history not saved to {}: {error}\n", path.display()));
        }
        Ok(())
    }

    fn lines(&mut self, out: &mut Output) -> Result<()> {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            say(format_args!("{PROMPT}"));
            line.clear();
            let length = input
                .read_until(b'\n', &mut line)
                .map_err(|error| Stop::error(format!("stdin: {}\n", reason(&error))))?;
            if length == 0 {
                return Ok(());
            }
            line.retain(|&byte| byte != b'\r');
            let text = String::from_utf8_lossy(&line).into_owned();
            if !self.line(out, text.trim_end_matches('\n'))? {
                return Ok(());
            }
        }
    }

    /// Runs one line; false to end.
    fn line(&mut self, out: &mut Output, line: &str) -> Result<bool> {
        let (command, target) = redirection(line);
        // It writes a file by itself, and shows one that it is given no name for.
        if let Some((name, _)) = target.filter(|_| command.trim() == "callgrind") {
            return self.line(out, &format!("callgrind {name}"));
        }
        let open = |(name, appends)| Output::file(Path::new(name), appends).map_err(|error| (name, error));
        let mut file = match target.map(open) {
            None => None,
            Some(Ok(file)) => Some(file),
            Some(Err((name, error))) => {
                say(format_args!("{name}: {}\n", reason(&error)));
                return Ok(true);
            }
        };
        let result = self.command(file.as_mut().unwrap_or(out), command);
        if let Some(file) = &mut file {
            file.flush()?;
        }
        out.flush()?;
        match result {
            Err(Stop::Error(text) | Stop::NoProfile(text) | Stop::Die(text)) => {
                say(format_args!("{text}"));
                Ok(true)
            }
            other => other,
        }
    }

    fn command(&mut self, out: &mut Output, line: &str) -> Result<bool> {
        let line = line.trim_start();
        if line.starts_with("quit") {
            return Ok(false);
        }
        if line.starts_with("help") {
            say(format_args!("{}", usage::INTERACTIVE));
        } else if let Some(rest) = line.strip_prefix("text").or_else(|| line.strip_prefix("top")) {
            self.top(out, rest)?;
        } else if let Some(rest) = line.strip_prefix("callgrind") {
            let name = rest.trim_start().split(' ').next().unwrap_or_default();
            show::callgrind_file(self.stacks, name, self.shown)?;
        } else if let Some(words) = words_of(line, "list") {
            let (arguments, options) = self.settings(words, |options, text| options.list = text);
            let stacks = self.process(out, "", &arguments.ignore)?;
            show::listing(out, &stacks, &arguments.expression, self.shown, &options, self.tools)?;
        } else if let Some(words) = words_of(line, "weblist") {
            let (arguments, options) = self.settings(words, |options, text| options.list = text);
            // The file is the page, and nothing else.
            let mut words = Output::stdout();
            let stacks = self.process(&mut words, "", &arguments.ignore)?;
            words.flush()?;
            show::page(out, (self.total, &stacks), &arguments.expression, self.shown, &options, self.tools)?;
        } else if let Some(words) = words_of(line, "disasm") {
            let (arguments, options) = self.settings(words, |options, text| options.disasm = text);
            let stacks = self.process(out, "", &arguments.ignore)?;
            show::disassembly(out, &stacks, &arguments.expression, self.shown, &options, self.tools)?;
        } else if let Some((viewer, words)) = viewer_of(line) {
            let (arguments, mut options) = self.settings(words, |_, _| {});
            (options.gv, options.web, options.evince) = (viewer == "gv", viewer == "web", viewer == "evince");
            let stacks = self.process(out, &arguments.expression, &arguments.ignore)?;
            out.flush()?;
            show::graph(out, (self.total, &stacks), self.shown, &options, self.tools, false)?;
        } else if !line.trim_end().is_empty() {
            say(format_args!("Unknown command: try 'help'.\n"));
        }
        Ok(true)
    }

    fn top(&mut self, out: &mut Output, rest: &str) -> Result<()> {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let limit = if digits == 0 { 10 } else { rest[..digits].parse().unwrap_or(usize::MAX) };
        let (arguments, options) = self.settings(rest[digits..].trim(), |_, _| {});
        let stacks = self.process(out, "", &arguments.ignore)?;
        show::table(out, &stacks, Some(limit), self.shown, &options, self.tools)
    }

    /// Settings of one command.
    fn settings(&self, words: &str, choose: impl FnOnce(&mut Options, String)) -> (Arguments, Options) {
        let arguments = Arguments::parse(words);
        let mut options = self.options.clone();
        (options.list, options.disasm) = (String::new(), String::new());
        options.cum = arguments.cum;
        options.lines |= arguments.lines;
        // Any text that is true: listing needs bare addresses.
        choose(&mut options, "1".to_owned());
        (arguments, options)
    }

    /// Prints the total and what is left of it.
    fn process(&mut self, out: &mut Output, focus: &str, ignore: &str) -> Result<Stacks> {
        let unit = Unit::of(self.shown.kind, self.options);
        let total = self.total;
        writeln!(out, "Total: {} {}", unit.text(total), unit.name())?;
        let mut stacks = self.stacks.clone();
        let named = self.shown.named();
        let mut left = |stacks: &Stacks, what: &str, expression: &str| {
            let sum = stacks.total();
            let share = percent(sum, total);
            let of = format!("{} {} of {}", unit.text(sum), unit.name(), unit.text(total));
            writeln!(out, "After {what} '{expression}': {of} ({share})")
        };
        if !focus.is_empty() {
            stacks = filter::focus(&stacks, named, focus)?;
            left(&stacks, "focusing on", focus)?;
        }
        if !ignore.is_empty() {
            stacks = filter::ignore(&stacks, named, ignore)?;
            left(&stacks, "ignoring", ignore)?;
        }
        Ok(stacks)
    }
}

/// What stands behind a command that needs it.
fn words_of<'a>(line: &'a str, command: &str) -> Option<&'a str> {
    line.strip_prefix(command).map(str::trim).filter(|words| !words.is_empty())
}

fn viewer_of(line: &str) -> Option<(&'static str, &str)> {
    ["gv", "web", "evince"].into_iter().find_map(|name| Some((name, line.strip_prefix(name)?.trim())))
}

/// Splits `COMMAND > FILE` and `COMMAND >> FILE`; true for what is put behind what the file has.
fn redirection(line: &str) -> (&str, Option<(&str, bool)>) {
    let Some((command, file)) = line.rsplit_once(" >") else { return (line, None) };
    let (command, appends) = command.strip_suffix(" >").map_or((command, false), |command| (command, true));
    let (file, appends) = file.strip_prefix('>').map_or((file, appends), |file| (file, true));
    let file = file.trim();
    if file.is_empty() || file.contains(' ') { (line, None) } else { (command, Some((file, appends))) }
}

fn history_file() -> Option<PathBuf> {
    Some(PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(".jeprof_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_settings_and_expressions() {
        let arguments = Arguments::parse("leaf  --cum -a main -lines -b");
        assert_eq!(
            arguments,
            Arguments { expression: "leaf|main".into(), ignore: "a|b".into(), lines: true, cum: true }
        );
    }

    #[test]
    fn output_goes_to_a_file_only_when_one_is_named() {
        assert_eq!(redirection("top5 > a.txt"), ("top5", Some(("a.txt", false))));
        assert_eq!(redirection("top5 >a.txt"), ("top5", Some(("a.txt", false))));
        assert_eq!(redirection("top5 >> a.txt"), ("top5", Some(("a.txt", true))));
        assert_eq!(redirection("top5 >>a.txt"), ("top5", Some(("a.txt", true))));
        assert_eq!(redirection("list operator >"), ("list operator >", None));
        assert_eq!(redirection("top"), ("top", None));
    }
}

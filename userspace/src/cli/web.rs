//! `jeprobe web`: profiles, or a running process, as a page in the browser.
//!
//! Serves until Ctrl-C. The address is the only line on stdout; it holds a token without which nothing is answered.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::load::{file_name, name_across_builds, name_all, read, same_kind, sources, split};
use super::outcome::Outcome;
use super::report_args::WebArgs;
use super::term::Term;
use crate::error::Error;
use crate::model::{Kind, Profile};
use crate::proc::exe;
use crate::symbolize::{Sources, Symbols};
use crate::web::app::App;
use crate::web::dataset::Dataset;
use crate::web::live::Live;
use crate::web::server::Server;

/// Runs the command.
pub fn run(args: &WebArgs, term: &mut Term) -> Result<Outcome> {
    let (app, live) = match args.pid {
        Some(pid) => watched(pid, term)?,
        None => (profiles(args, term)?, None),
    };
    let app = Arc::new(app);
    let failed = |source| Error::System { what: "start the server", source };
    // One thread for answers stays for good: where no more can be started, requests wait for it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::MAX)
        .build()
        .map_err(failed)?;
    // The runtime does not survive that its first one cannot start.
    let _can_start = thread::Builder::new().spawn(|| ()).map_err(failed)?.join();
    runtime.block_on(async {
        let _first = tokio::task::spawn_blocking(|| ()).await;
        let server = Server::bind(args.port).await.map_err(|source| Error::Port { port: args.port, source })?;
        let url = server.url();
        term.result(|out| writeln!(out, "{url}"))?;
        term.say("open this address in a browser; Ctrl-C ends the server");
        if !args.no_open {
            open(&url, term);
        }
        // The reader ends when its other end goes away, and puts the switch of the process back.
        let (alive, stop) = mpsc::channel::<()>();
        let reader = live.map(|live| {
            let app = app.clone();
            let mut term = term.clone();
            let started = thread::Builder::new().spawn(move || live.watch(&app, &stop, |line| term.warn(line)));
            started.map_err(|source| Error::System { what: "start a thread that reads the process", source })
        });
        let reader = reader.transpose()?;
        let end = ended().map_err(|source| Error::System { what: "receive signals", source })?;
        server.serve(app, end).await;
        drop(alive);
        if let Some(reader) = reader
            && reader.join().is_err()
        {
            bail!("the reader of the process failed");
        }
        Ok(Outcome::Complete)
    })
}

/// Ready at Ctrl-C, SIGTERM or when the terminal goes away.
fn ended() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// A process, with its first reading.
fn watched(pid: u32, term: &mut Term) -> Result<(App, Option<Live>)> {
    let mut live = Live::open(pid)?;
    let app = App::new(format!("{} (pid {})", live.name(), live.pid()), vec![exe::root_of(live.pid())]);
    app.watch(Ok(live.pid()));
    live.read(&app)?;
    let sampling = if live.was_on() { "sampling was on already" } else { "sampling switched on until the end" };
    term.say(format_args!("process {} ({}): reading its profile table, {sampling}", live.pid(), live.name()));
    Ok((app, Some(live)))
}

/// Every file a profile of the series.
fn profiles(args: &WebArgs, term: &mut Term) -> Result<App> {
    let (program, files) = split(&args.inputs)?;
    let sources = sources(&args.sources, program)?;
    let names: Vec<String> = files.iter().map(|path| file_name(path)).collect();
    let title = match names.as_slice() {
        [one] => one.clone(),
        [first, .., last] => format!("{first} … {last}"),
        [] => String::new(),
    };
    let roots: Vec<PathBuf> = args.sources.sysroot.iter().cloned().collect();
    let mut app = App::new(title, roots);
    // Any two may be compared on the page.
    let name = if args.base.is_some() || files.len() > 1 { name_across_builds } else { name_all };
    let (mut id, mut kind) = (0, None);
    if let Some(base) = &args.base {
        app.push(dataset((id, base), name, &sources, &mut kind, term)?);
        app.set_base(id);
        id += 1;
    }
    for file in files {
        app.push(dataset((id, file), name, &sources, &mut kind, term)?);
        id += 1;
    }
    Ok(app)
}

fn dataset(
    (id, path): (u64, &Path),
    name: fn(&Profile, &Sources) -> Symbols,
    sources: &Sources,
    kind: &mut Option<Kind>,
    term: &mut Term,
) -> Result<Dataset> {
    term.detail(format_args!("reading {}", path.display()));
    let profile = read(path)?;
    same_kind(kind.get_or_insert_with(|| profile.kind().clone()), profile.kind(), path)?;
    let symbols = name(&profile, sources);
    Ok(Dataset::new(id, file_name(path), id as f64, &profile, &symbols))
}

/// Opens the browser, when there is a screen to open it on.
fn open(url: &str, term: &mut Term) {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if !has_screen {
        return;
    }
    let quiet =
        Command::new("xdg-open").arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match quiet {
        // It ends at once; its status is collected so that no zombie stays.
        Ok(mut child) => drop(thread::Builder::new().spawn(move || child.wait())),
        Err(error) => term.detail(format_args!("cannot run xdg-open: {error}")),
    }
}

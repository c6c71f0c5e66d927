//! Answers of the server: what is asked of which profile, and what comes back. No network here.
//!
//! | path behind the token | answer |
//! |---|---|
//! | nothing, `app.css`, `js/*.js` | the page, embedded in this program |
//! | `list.json` | the profiles of the series, whether a process is watched |
//! | `profile.json?at=ID&base=ID` | call tree and facts |
//! | `graph.json?at&base&value&focus&ignore&boxes` | call graph |
//! | `timeline.svg?value` | growth over the series |
//! | `source.json?at&value&function=NAME` | source with numbers |
//! | `code.json?at&value&function=NAME` | instructions with numbers |
//!
//! `at=latest` is the newest. Only these paths exist: no name of a file is ever taken from a request, except a function's, which
//! must be one of the profile. Every answer is bounded by the profile's size.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use serde_json::{Value as Json, json};

use super::dataset::Dataset;
use super::drawn::{self, CallGraph, Choice};
use super::query::Query;
use super::{code, source, tree};
use crate::output::Value;

/// Profiles of a watched process that are kept; then every second of the older ones goes.
const SERIES_MOST: usize = 240;
const BOXES: usize = 80;

/// Files of the page.
const ASSETS: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("app.css", "text/css; charset=utf-8", include_str!("page/app.css")),
    ("js/main.js", SCRIPT, include_str!("page/main.js")),
    ("js/state.js", SCRIPT, include_str!("page/state.js")),
    ("js/format.js", SCRIPT, include_str!("page/format.js")),
    ("js/data.js", SCRIPT, include_str!("page/data.js")),
    ("js/summary.js", SCRIPT, include_str!("page/summary.js")),
    ("js/flame.js", SCRIPT, include_str!("page/flame.js")),
    ("js/table.js", SCRIPT, include_str!("page/table.js")),
    ("js/graph.js", SCRIPT, include_str!("page/graph.js")),
    ("js/source.js", SCRIPT, include_str!("page/source.js")),
    ("js/keys.js", SCRIPT, include_str!("page/keys.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// An answer without the headers that all have.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

/// What is being served.
#[derive(Debug, Default)]
pub struct App {
    title: String,
    series: RwLock<Vec<Arc<Dataset>>>,
    /// Id of the profile that is subtracted at first.
    base: Option<u64>,
    /// A process is being watched; why no longer, once it is not.
    watched: RwLock<Option<Result<u32, String>>>,
    /// Where files of the process are found.
    roots: Vec<PathBuf>,
}

impl Answer {
    pub(super) fn error(status: u16, text: &str) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n").into_bytes() }
    }

    fn json(value: &Json) -> Answer {
        Answer { status: 200, kind: "application/json", body: value.to_string().into_bytes() }
    }

    fn svg(text: String) -> Answer {
        Answer { status: 200, kind: "image/svg+xml", body: text.into_bytes() }
    }
}

impl App {
    pub fn new(title: String, roots: Vec<PathBuf>) -> App {
        App { title, roots, ..App::default() }
    }

    pub fn set_base(&mut self, id: u64) {
        self.base = Some(id);
    }

    pub fn watch(&self, state: Result<u32, String>) {
        *self.watched.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(state);
    }

    /// Appends a profile. Of a watched process only the first and the newest keep their stacks.
    pub fn push(&self, data: Dataset) {
        let mut series = self.series.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_watched = self.watched.read().is_ok_and(|watched| watched.is_some());
        if is_watched && series.len() > 1 {
            let last = series.len() - 1;
            series[last] = Arc::new(series[last].slim());
        }
        if is_watched && series.len() >= SERIES_MOST {
            let mut at = 0;
            series.retain(|_| {
                at += 1;
                at == 1 || at % 2 == 0
            });
        }
        series.push(Arc::new(data));
    }

    fn series(&self) -> Vec<Arc<Dataset>> {
        self.series.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Answers a path behind the token.
    pub(super) fn answer(&self, path: &str, query: &str) -> Answer {
        if let Some((_, kind, body)) = ASSETS.iter().find(|(name, ..)| *name == path) {
            return Answer { status: 200, kind, body: body.as_bytes().to_vec() };
        }
        let query = Query::parse(query);
        let result = match path {
            "list.json" => Ok(self.list()),
            "profile.json" => self.profile(&query),
            "graph.json" => self.graph(&query),
            "timeline.svg" => Ok(Answer::svg(drawn::timeline(&self.series(), value(&query)).svg_element())),
            "source.json" => self.source(&query, source::source),
            "code.json" => self.source(&query, code::code),
            _ => Err(Answer::error(404, "there is no such page")),
        };
        result.unwrap_or_else(|error| error)
    }

    fn list(&self) -> Answer {
        let profiles: Vec<Json> = self
            .series()
            .iter()
            .map(|data| {
                json!({
                    "id": data.id,
                    "name": data.name,
                    "totals": data.about.totals,
                    "isSlim": data.is_slim,
                })
            })
            .collect();
        let (watched, ended) = match self.watched.read().unwrap_or_else(std::sync::PoisonError::into_inner).as_ref() {
            None => (None, None),
            Some(Ok(pid)) => (Some(*pid), None),
            Some(Err(why)) => (None, Some(why.clone())),
        };
        Answer::json(&json!({
            "title": self.title, "profiles": profiles, "base": self.base, "watched": watched, "ended": ended,
        }))
    }

    /// The profile that a request names.
    fn named(&self, query: &Query, name: &str) -> Result<Option<Arc<Dataset>>, Answer> {
        let Some(id) = query.text(name) else { return Ok(None) };
        let series = self.series();
        let found = match id {
            "latest" => series.last(),
            _ => series.iter().find(|data| Ok(data.id) == id.parse()),
        };
        match found {
            Some(data) if data.is_slim => Err(Answer::error(410, "only the totals of this reading are kept")),
            Some(data) => Ok(Some(data.clone())),
            None => Err(Answer::error(404, "there is no such profile")),
        }
    }

    fn at(&self, query: &Query) -> Result<Arc<Dataset>, Answer> {
        self.named(query, "at")?.ok_or_else(|| Answer::error(400, "the request names no profile"))
    }

    fn profile(&self, query: &Query) -> Result<Answer, Answer> {
        let (data, base) = (self.at(query)?, self.named(query, "base")?);
        Ok(Answer::json(&tree::tree(&data, base.as_deref())))
    }

    fn graph(&self, query: &Query) -> Result<Answer, Answer> {
        let (data, base) = (self.at(query)?, self.named(query, "base")?);
        let bad = |error: String| Answer::error(400, &error);
        let choice = Choice {
            value: value(query),
            focus: query.regex("focus").map_err(bad)?,
            ignore: query.regex("ignore").map_err(bad)?,
            boxes: query.number("boxes").unwrap_or(BOXES),
        };
        let CallGraph { scene, names, calls } = drawn::graph(&data, base.as_deref(), &choice);
        let (width, height) = scene.size();
        let svg = scene.svg_element();
        let json = json!({ "svg": svg, "width": width, "height": height, "names": names, "calls": calls });
        Ok(Answer::json(&json))
    }

    fn source(&self, query: &Query, make: MakeSource) -> Result<Answer, Answer> {
        let (data, base) = (self.at(query)?, self.named(query, "base")?);
        let name = query.text("function").ok_or_else(|| Answer::error(400, "the request names no function"))?;
        if !std::iter::once(&data).chain(&base).any(|data| source::function(data, name).is_some()) {
            return Err(Answer::error(404, "no stack of this profile has this function"));
        }
        Ok(Answer::json(&make(&data, base.as_deref(), name, value(query), &self.roots)))
    }
}

/// Source or instructions of a function, with its base.
type MakeSource = fn(&Dataset, Option<&Dataset>, &str, Value, &[PathBuf]) -> Json;

fn value(query: &Query) -> Value {
    match query.number("value") {
        Some(1) => Value::InuseObjects,
        Some(2) => Value::AllocSpace,
        Some(3) => Value::AllocObjects,
        _ => Value::InuseSpace,
    }
}

//! A headless Chromium, driven through chromedriver (the W3C `WebDriver` protocol).
//!
//! Each browser has a driver, a profile directory and a window of its own, and ends with its value. Waiting is asking a
//! question in the page until it is answered with true, within a time limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::target::find;
use crate::{Run, Target, TempDir, http};

const PATIENCE: Duration = Duration::from_mins(2);
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// See the module's text.
pub struct Browser {
    driver: Target,
    port: u16,
    session: String,
    profile: TempDir,
}

/// Why no browser can be started here.
pub fn missing() -> Option<&'static str> {
    if find("chromium").is_none() {
        return Some("needs chromium");
    }
    find("chromedriver").is_none().then_some("needs chromedriver (chromium-driver)")
}

impl Browser {
    /// Starts one with a window of the given size.
    pub fn start(width: u32, height: u32) -> Browser {
        let profile = TempDir::new("chromium");
        let mut driver = Run::new(find("chromedriver").expect("checked by the caller"))
            .args(["--port=0"])
            .env("HOME", profile.path())
            .limit(PATIENCE)
            .spawn();
        let line = driver.wait_for_text("started successfully on port");
        let digits: String = line.rsplit(' ').next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
        let mut browser = Browser {
            driver,
            port: digits.parse().unwrap_or_else(|_| panic!("no port in {line:?}")),
            session: String::new(),
            profile,
        };
        let flags = [
            "--headless".to_owned(),
            "--no-sandbox".into(),
            "--disable-gpu".into(),
            "--disable-quic".into(),
            "--disable-dev-shm-usage".into(),
            "--no-first-run".into(),
            "--disable-background-networking".into(),
            "--disable-component-update".into(),
            "--disable-sync".into(),
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", browser.profile.join("data").display()),
        ];
        let options = json!({ "binary": find("chromium").expect("checked by the caller"), "args": flags });
        let capabilities = json!({
            "alwaysMatch": { "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } }
        });
        let made = browser.call("POST", "", Some(&json!({ "capabilities": capabilities })));
        made["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser
    }

    pub fn open(&self, url: &str) {
        self.call("POST", "/url", Some(&json!({ "url": url })));
    }

    /// Runs a function body in the page and gives what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    /// An expression, as text.
    pub fn text(&self, expression: &str) -> String {
        match self.run(&format!("return {expression}")) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Waits until an expression is true.
    pub fn wait(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")) != Value::Bool(true) {
            if Instant::now() > deadline {
                let page = self.text("document.body.innerText");
                panic!("never true: {expression}\n{page}\n{}", self.log());
            }
            // The page draws meanwhile.
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Clicks the first element of a CSS selector, as a mouse does: it must be there and not covered.
    pub fn click(&self, selector: &str) {
        let element = self.call("POST", "/element", Some(&json!({ "using": "css selector", "value": selector })));
        let id = element[ELEMENT].as_str().unwrap_or_else(|| panic!("no element {selector}: {element}"));
        self.call("POST", &format!("/element/{id}/click"), Some(&json!({})));
    }

    /// Presses keys one after another: characters, or the protocol's codes for others.
    pub fn press(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        self.call(
            "POST",
            "/actions",
            Some(&json!({ "actions": [{ "type": "key", "id": "keys", "actions": presses }] })),
        );
    }

    pub fn back(&self) {
        self.call("POST", "/back", Some(&json!({})));
    }

    /// Keeps a picture of the window in the directory that `JEPROBE_SCREENSHOTS` names; without it, only checks that
    /// there is one.
    pub fn screenshot(&self, name: &str) {
        let picture = self.call("GET", "/screenshot", None);
        let text = picture.as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        assert!(bytes.starts_with(b"\x89PNG"), "no PNG");
        if let Some(directory) = env::var_os("JEPROBE_SCREENSHOTS") {
            let directory = PathBuf::from(directory);
            fs::create_dir_all(&directory).expect("a directory for pictures");
            fs::write(directory.join(format!("{name}.png")), bytes).expect("a picture is written");
        }
    }

    /// Errors that the page or the browser logged.
    pub fn log(&self) -> String {
        let entries = self.call("POST", "/se/log", Some(&json!({ "type": "browser" })));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned() + "\n").collect()
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map_or_else(String::new, Value::to_string);
        let session = if self.session.is_empty() { String::new() } else { format!("/{}", self.session) };
        let request = format!(
            "{method} /session{session}{path} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: application/json\r\nContent-Length: \
             {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let answer =
            http::send(self.port, request.as_bytes()).unwrap_or_else(|| panic!("no answer to {method} {path}"));
        let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        assert_eq!(answer.status, 200, "{method} {path} {body}: {}", answer.body);
        json["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is the driver's child: the driver ends it. When a test fails already, the group is killed below.
        if !thread::panicking() {
            self.call("DELETE", "", None);
        }
        if !self.driver.seen().is_empty() {
            self.driver.signal(libc::SIGTERM);
        }
    }
}

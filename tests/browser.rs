//! The report in a real browser: headless Chromium over its debugging pipe. Nothing is fetched, nothing is
//! logged, every plot has marks with an extent, nothing is wider than the window, in both colour schemes
//! and at two widths. Screenshots go to the tests' temporary folder.
//!
//! Where no Chromium is found the test says so; with ISOBIT_REQUIRE_BROWSER set that is a failure.

mod common;

use common::folders::{LOSES, OPPOSITE, write, write_common};
use common::{fresh, isobit, stderr};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A browser and its one page.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// Messages that came while an answer was awaited.
    events: Vec<Value>,
}

fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("ISOBIT_CHROMIUM").map(PathBuf::from);
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).flat_map(|d| names.map(|n| d.join(n)));
    named.or_else(|| found.find(|p| p.is_file()))
}

impl Browser {
    /// Starts one with an empty profile.
    fn start(program: &Path, profile: &Path) -> Browser {
        // The debugging pipe is file descriptors 3 and 4.
        let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync \
            --hide-scrollbars --remote-debugging-pipe";
        let script = format!(
            "exec \"$0\" {flags} --user-data-dir=\"$1\" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .arg(program)
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (
            child.stdin.take().expect("a pipe"),
            child.stdout.take().expect("a pipe"),
        );
        let mut b = Browser {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            next: 0,
            events: vec![],
        };
        let target = b.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = b.call("Target.attachToTarget", attach);
        b.session = session["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            b.call(&format!("{domain}.enable"), json!({}));
        }
        b
    }

    fn receive(&mut self) -> Value {
        let mut bytes = vec![];
        self.from
            .read_until(0, &mut bytes)
            .expect("the browser answers");
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.receive();
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn wait_for(&mut self, event: &str) {
        while !self.events.iter().any(|e| e["method"] == event) {
            let message = self.receive();
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{result}");
        result["result"]["value"].clone()
    }

    fn open(&mut self, page: &Path, width: u32, scheme: &str) {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media);
        self.events.clear();
        let url = format!("file://{}", page.display());
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for("Page.loadEventFired");
    }

    fn screenshot(&mut self, to: &Path) {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.call("Page.captureScreenshot", params);
        let bytes = unbase64(shot["data"].as_str().expect("a picture"));
        assert!(
            bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000,
            "{}",
            to.display()
        );
        std::fs::write(to, bytes).expect("written");
    }

    /// What the page logged, and whatever it asked the network for besides itself.
    fn complaints(&self) -> Vec<String> {
        let bad = |e: &&Value| match e["method"].as_str() {
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Network.requestWillBeSent") => {
                let url = e["params"]["request"]["url"].as_str().unwrap_or("");
                !url.starts_with("data:") && !url.ends_with("report.html")
            }
            _ => false,
        };
        self.events
            .iter()
            .filter(bad)
            .map(Value::to_string)
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

fn unbase64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = vec![];
    for part in text.trim_end_matches('=').as_bytes().chunks(4) {
        let word =
            part.iter().fold(0u32, |w, c| w << 6 | value(*c) as u32) << (6 * (4 - part.len()));
        out.extend(&word.to_be_bytes()[1..part.len()]);
    }
    out
}

/// Of every plot: its id, the marks that show values and have an extent, and how many values it claims.
const PLOTS: &str = "[...document.querySelectorAll('figure')].map(f => {
    const shown = [...f.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 0);
    const marks = shown.flatMap(s => [...s.querySelectorAll('.d')]).filter(m => {
        const b = m.getBoundingClientRect(); return b.width + b.height > 0; });
    const texts = shown.flatMap(s => { const box = s.getBoundingClientRect();
        return [...s.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
            return b.left < box.left - 2 || b.right > box.right + 2; }).map(t => t.textContent); });
    return {id: f.id, visible: shown.length, marks: marks.length, values: +f.dataset.values,
        outside: texts, named: shown.every(s => s.getAttribute('aria-label').length > 20),
        rows: f.querySelectorAll('tbody tr').length};
})";

#[test]
fn the_report_is_whole_in_a_browser() {
    let Some(program) = chromium() else {
        assert!(
            std::env::var_os("ISOBIT_REQUIRE_BROWSER").is_none(),
            "ISOBIT_REQUIRE_BROWSER is set and no Chromium is in PATH"
        );
        println!("skipped: no Chromium in PATH (apt install chromium, or set ISOBIT_CHROMIUM)");
        return;
    };
    let dir = fresh("browser");
    let run = dir.join("run");
    std::fs::create_dir(&run).expect("a folder");
    write(&run, "", LOSES);
    write(&run, "_lowlr", OPPOSITE);
    write_common(&run);
    let o = isobit(&dir, &["report", "run"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = run.join("report.html");
    let mut b = Browser::start(&program, &dir.join("profile"));
    for (width, scheme) in [
        (1280, "light"),
        (1280, "dark"),
        (390, "light"),
        (390, "dark"),
    ] {
        b.open(&page, width, scheme);
        let label = format!("{width} {scheme}");
        assert_eq!(b.complaints(), Vec::<String>::new(), "{label}");
        assert_eq!(b.value("innerWidth"), json!(width), "{label}");
        let wide = b.value("document.documentElement.scrollWidth");
        assert_eq!(
            wide,
            json!(width),
            "{label}: the page is wider than the window"
        );
        let plots = b.value(PLOTS);
        let plots = plots.as_array().expect("plots");
        assert_eq!(
            plots.len(),
            34,
            "{label}: seventeen plots of one tag, sixteen of the other, products"
        );
        for p in plots {
            let n = |k: &str| p[k].as_u64().unwrap_or(0);
            assert_eq!(n("visible"), 1, "{label}: {p}");
            assert!(
                n("marks") > 0 && n("values") > 0 && n("rows") > 0,
                "{label}: {p}"
            );
            assert!(
                p["named"] == json!(true) && p["outside"] == json!([]),
                "{label}: {p}"
            );
        }
        let ground = b.value("getComputedStyle(document.body).backgroundColor");
        let dark = ground == json!("rgb(16, 21, 27)");
        assert_eq!(dark, scheme == "dark", "{label}: {ground}");
        b.screenshot(&dir.join(format!("report-{width}-{scheme}.png")));
        structure(&mut b, &label);
    }
    println!("screenshots in {}", dir.display());
}

/// What a screen reader and a keyboard find.
fn structure(b: &mut Browser, label: &str) {
    for landmark in ["header", "main", "nav[aria-label]", "footer", "h1"] {
        let n = b.value(&format!("document.querySelectorAll('{landmark}').length"));
        assert_eq!(n, json!(1), "{label}: {landmark}");
    }
    let levels = b.value("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])");
    let levels: Vec<u64> = levels
        .as_array()
        .expect("levels")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    assert!(
        levels.windows(2).all(|w| w[1] <= w[0] + 1),
        "{label}: {levels:?}"
    );
    let ids = b.value("[...document.querySelectorAll('[id]')].map(e => e.id)");
    let ids: Vec<&str> = ids
        .as_array()
        .expect("ids")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{label}: an id is there twice");
    let broken = b.value("[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).length");
    assert_eq!(broken, json!(0), "{label}: links that lead nowhere");
    let unnamed = b.value("[...document.querySelectorAll('[tabindex]')].filter(e => !e.getAttribute('aria-label')).length");
    assert_eq!(
        unnamed,
        json!(0),
        "{label}: reached by the keyboard without a name"
    );
    assert_eq!(
        b.value("document.querySelectorAll('script').length"),
        json!(0),
        "{label}"
    );
}

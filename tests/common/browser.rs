//! A real browser, for tests of pages.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::records::decode_base64;
use super::wait_for;

/// A headless Chromium, driven by the WebDriver protocol.
pub struct Browser {
    driver: Child,
    session: String,
}

/// Starts the driver on a free port. Returns `None` if the driver ends before it listens, because another program
/// has taken the port.
fn start_driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .args(["--port=0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
    let port_in = |line: std::io::Result<String>| {
        let line = line.expect("text");
        line.split("successfully on port ").nth(1).map(|port| port.trim_end_matches('.').to_string())
    };
    let port = lines.into_iter().find_map(port_in);
    if port.is_none() {
        driver.wait().expect("ended");
    }
    Some((driver, port?))
}

impl Browser {
    pub fn start(dir: &Path) -> Self {
        let (driver, port) = (0..3).find_map(|_| start_driver()).expect("a port");
        let chromium = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
            .into_iter()
            .chain(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .chain(["--disable-dev-shm-usage"])
            .map(str::to_string)
            .chain([format!("--user-data-dir={}", dir.join("profile").display())])
            .collect::<Vec<_>>();
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": chromium },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let mut browser = Self { driver, session: format!("http://127.0.0.1:{port}/session") };
        let id = request(&browser.session, &capabilities)["sessionId"].as_str().expect("a session").to_string();
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    pub fn post(&self, command: &str, body: &Value) -> Value {
        request(&format!("{}/{command}", self.session), body)
    }

    pub fn evaluate(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub fn strings(&self, script: &str) -> Vec<String> {
        serde_json::from_value(self.evaluate(script)).expect("strings")
    }

    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Asserts that the page is light, but dark if the reader prefers that, and no wider than a phone. If
    /// `SAVE_SCREENSHOT` names a file, saves a screenshot there.
    pub fn assert_dark_and_narrow(&self) {
        let background = "return getComputedStyle(document.body).backgroundColor";
        assert_eq!(self.evaluate(background), "rgb(255, 255, 255)");
        let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": dark }));
        wait_for("a dark page", || self.evaluate(background) == "rgb(22, 24, 28)");
        let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
        self.devtools("Emulation.setDeviceMetricsOverride", &phone);
        wait_for("a page as wide as a phone", || {
            self.evaluate("return [innerWidth, document.documentElement.scrollWidth]") == json!([360, 360])
        });
        if let Some(path) = std::env::var_os("SAVE_SCREENSHOT") {
            let screenshot = self.devtools("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
            let picture = decode_base64(screenshot["data"].as_str().expect("a picture"));
            std::fs::write(path, picture).expect("written");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Deleting the session ends the browser. Killing the driver alone might not.
        let _ = minreq::delete(&self.session).with_timeout(5).send();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn request(url: &str, body: &Value) -> Value {
    let request = minreq::post(url).with_timeout(180).with_json(body).expect("JSON");
    let response = request.send().expect("chromedriver answers");
    let answer: Value = response.json().expect("JSON");
    assert_eq!(response.status_code, 200, "{answer}");
    answer["value"].clone()
}

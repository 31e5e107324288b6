//! A headless Chromium, driven over the WebDriver protocol, for looking at the web UI as people see it.
//!
//! It reaches nothing but loopback: every other name and address is unresolvable to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};

use super::base64;
use super::directory::TestDirectory;
use super::http::{call_tcp, get_tcp};
use super::ports::free_port;
use crate::process::Process;
use crate::runner::target_directory;
use crate::toolchain::debian;
use crate::versions;
use crate::wait::wait_until;

/// Chromium without a user interface: it needs less of the processor than the whole of it with `--headless`.
const HEADLESS_SHELL: &str = "/usr/lib/chromium/chromium-headless-shell";
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How the browser's user has it.
#[derive(Debug, Clone, Copy)]
pub struct BrowserOptions {
    pub javascript: bool,
    /// Prefers dark pages.
    pub dark: bool,
    /// Width and height of the window in pixels.
    pub window: (u32, u32),
}

impl Default for BrowserOptions {
    fn default() -> Self {
        Self {
            javascript: true,
            dark: false,
            window: (1280, 900),
        }
    }
}

/// A running browser with one window. Dropping it kills the driver and with it the browser.
pub struct Browser {
    driver: Process,
    port: u16,
    /// `/session/ID`.
    session: String,
    _profile: TestDirectory,
}

impl Browser {
    /// Starts driver and browser; installs both from Debian when they are missing. Certificates are not checked, since the
    /// daemon's own authority is unknown to the browser.
    pub async fn start(options: BrowserOptions) -> Result<Self> {
        tokio::task::spawn_blocking(|| debian::ensure(versions::BROWSER_PACKAGES)).await??;
        let profile = TestDirectory::new()?;
        let port = free_port()?;
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={port}"))
            .env("TMPDIR", profile.path())
            // Else it is beside the program.
            .env("CHROME_LOG_FILE", profile.path().join("chromium.log"))
            .env("HOME", profile.path());
        let driver = Process::spawn(
            "chromedriver",
            command,
            &profile.path().join("chromedriver.log"),
        )?;
        wait_until("chromedriver is ready", READY_WITHIN, || async {
            let reply = get_tcp(port, "/status")
                .await
                .map_err(|error| format!("{error:#}"))?;
            if reply.body.contains("\"ready\":true") {
                Ok(())
            } else {
                Err(reply.body)
            }
        })
        .await?;
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
            _profile: profile,
        };
        let made = browser
            .call(
                Method::POST,
                "/session",
                Some(capabilities(options, &browser.profile())),
            )
            .await;
        let made = made.with_context(|| browser.driver.log_tail())?;
        let id = made["sessionId"]
            .as_str()
            .context("a session without an id")?;
        browser.session = format!("/session/{id}");
        if !options.javascript {
            let off = json!({ "value": true });
            browser
                .devtools("Emulation.setScriptExecutionDisabled", off)
                .await?;
        }
        if options.dark {
            browser.colours("dark").await?;
        }
        Ok(browser)
    }

    /// Prefers `light` or `dark` pages from now on, the open one too, and no motion: colours are there at once.
    pub async fn colours(&self, scheme: &str) -> Result<()> {
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", media)
            .await
            .map(drop)
    }

    /// Lives in this time zone from now on.
    pub async fn zone(&self, zone: &str) -> Result<()> {
        self.devtools(
            "Emulation.setTimezoneOverride",
            json!({ "timezoneId": zone }),
        )
        .await
        .map(drop)
    }

    /// Runs a script in every page that is opened from now on, before those of the page.
    pub async fn in_every_page(&self, script: &str) -> Result<()> {
        let source = json!({ "source": script });
        self.devtools("Page.addScriptToEvaluateOnNewDocument", source)
            .await
            .map(drop)
    }

    /// Presses one key where the focus is, such as `ArrowRight`.
    pub async fn press(&self, key: &str) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": key_code(key) });
            self.devtools("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Opens an address and waits until it has loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.post("/url", json!({ "url": url })).await.map(drop)
    }

    /// The address of the page that is open.
    pub async fn url(&self) -> Result<String> {
        text(self.get("/url").await?)
    }

    pub async fn title(&self) -> Result<String> {
        text(self.get("/title").await?)
    }

    /// The page's HTML as it is by now.
    pub async fn source(&self) -> Result<String> {
        text(self.get("/source").await?)
    }

    /// The visible text of the first element that matches a CSS selector.
    pub async fn text(&self, css: &str) -> Result<String> {
        let element = self.find(css).await?;
        text(self.get(&format!("/element/{element}/text")).await?)
    }

    /// How many elements match.
    pub async fn count(&self, css: &str) -> Result<usize> {
        let found = self.post("/elements", selector(css)).await?;
        Ok(found.as_array().context("a list of elements")?.len())
    }

    /// An attribute of the first element that matches; `None` when it has none of that name.
    pub async fn attribute(&self, css: &str, name: &str) -> Result<Option<String>> {
        let element = self.find(css).await?;
        Ok(self
            .get(&format!("/element/{element}/attribute/{name}"))
            .await?
            .as_str()
            .map(str::to_string))
    }

    /// A style of the first element that matches, as computed.
    pub async fn style(&self, css: &str, property: &str) -> Result<String> {
        let element = self.find(css).await?;
        text(
            self.get(&format!("/element/{element}/css/{property}"))
                .await?,
        )
    }

    /// Clicks, and waits for the page this leads to.
    pub async fn click(&self, css: &str) -> Result<()> {
        let element = self.find(css).await?;
        self.post(&format!("/element/{element}/click"), json!({}))
            .await
            .map(drop)
    }

    /// Clicks what leads to another page, and waits until the element clicked is gone with its page: a form's answer
    /// may begin later than the driver waits for by itself.
    pub async fn follow(&self, css: &str) -> Result<()> {
        let element = self.find(css).await?;
        self.post(&format!("/element/{element}/click"), json!({}))
            .await?;
        wait_until("the next page", READY_WITHIN, || async {
            match self.get(&format!("/element/{element}/name")).await {
                Ok(_) => Err(format!("{css} is still there")),
                Err(_) => Ok(()),
            }
        })
        .await
    }

    /// Replaces the content of a field.
    pub async fn fill(&self, css: &str, value: &str) -> Result<()> {
        let element = self.find(css).await?;
        self.post(&format!("/element/{element}/clear"), json!({}))
            .await?;
        self.post(
            &format!("/element/{element}/value"),
            json!({ "text": value }),
        )
        .await
        .map(drop)
    }

    /// All cookies of the page with their flags.
    pub async fn cookies(&self) -> Result<Value> {
        self.get("/cookie").await
    }

    /// Runs a script in the page and answers what it returns; a promise is waited for. Works on pages that allow no
    /// inline scripts, but not where scripts are switched off.
    pub async fn script(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", json!({ "script": script, "args": [] }))
            .await
    }

    /// Lays pages out for a window of this width, down to that of a phone, which no real window has.
    pub async fn narrow(&self, width: u32) -> Result<()> {
        let metrics =
            json!({ "width": width, "height": 780, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await
            .map(drop)
    }

    /// What the browser complained about since the last call: script errors, refused resources, broken policies.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let entries = self.post("/se/log", json!({ "type": "browser" })).await?;
        let messages = entries.as_array().context("a list of log entries")?.iter();
        Ok(messages
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_string())
            .collect())
    }

    /// Keeps a picture of the whole page as `target/screenshots/NAME.png`.
    pub async fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let shot = self
            .devtools(
                "Page.captureScreenshot",
                json!({ "captureBeyondViewport": true }),
            )
            .await?;
        let bytes = base64::decode(shot["data"].as_str().unwrap_or_default())
            .context("a picture in base64")?;
        let directory = target_directory().join("screenshots");
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{name}.png"));
        std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    async fn find(&self, css: &str) -> Result<String> {
        let found = self.post("/element", selector(css)).await?;
        let ids = found.as_object().context("an element")?;
        text(ids.values().next().cloned().unwrap_or_default())
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        self.post(
            "/goog/cdp/execute",
            json!({ "cmd": command, "params": parameters }),
        )
        .await
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, &format!("{}{path}", self.session), None)
            .await
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.call(Method::POST, &format!("{}{path}", self.session), Some(body))
            .await
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let reply = call_tcp(self.port, method, path, body.as_ref()).await?;
        let mut answer: Value =
            serde_json::from_str(&reply.body).with_context(|| reply.body.clone())?;
        if reply.status != 200 {
            let given = body.map(|body| body.to_string()).unwrap_or_default();
            bail!(
                "browser: {path} {given}: {}: {}",
                answer["value"]["error"],
                answer["value"]["message"]
            );
        }
        Ok(answer["value"].take())
    }

    fn profile(&self) -> String {
        self._profile.path().join("profile").display().to_string()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is in the driver's process group, and is no child of ours that we could wait for.
        if let Ok(group) = i32::try_from(self.driver.pid()) {
            let _gone = nix::sys::signal::killpg(
                nix::unistd::Pid::from_raw(group),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
    }
}

fn capabilities(options: BrowserOptions, profile: &str) -> Value {
    let (width, height) = options.window;
    let arguments = [
        // The suites run as root, where Chromium's own sandbox refuses to.
        "--no-sandbox".to_string(),
        "--disable-dev-shm-usage".to_string(),
        "--disable-gpu".to_string(),
        "--disable-background-networking".to_string(),
        "--disable-component-update".to_string(),
        "--disable-sync".to_string(),
        "--no-first-run".to_string(),
        "--no-pings".to_string(),
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost".to_string(),
        format!("--user-data-dir={profile}"),
        format!("--window-size={width},{height}"),
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome-headless-shell",
        "acceptInsecureCerts": true,
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": {
            "binary": HEADLESS_SHELL,
            "args": arguments,
        },
    } } })
}

/// What browsers call a key by number.
fn key_code(key: &str) -> u8 {
    match key {
        "Tab" => 9,
        "Enter" => 13,
        "PageUp" => 33,
        "PageDown" => 34,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        _ => 0,
    }
}

fn selector(css: &str) -> Value {
    json!({ "using": "css selector", "value": css })
}

fn text(value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            bail!("browser: expected text, got {value}")
        }
    }
}

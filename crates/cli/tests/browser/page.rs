//! What a person does with a page: goes to it, reads it, fills in fields, presses what is there.
//! Everything waits until it is possible, and fails with what the page showed instead.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{Gateway, KEY};
use crate::webdriver::{Browser, Element, Logged};

/// How long anything may take before it counts as never. No test asserts on speed.
const PATIENCE: Duration = Duration::from_mins(1);
/// A page cannot be awaited from outside: it is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const FIND: &str = include_str!("find.js");
const TEXT: &str = "return document.body ? document.body.innerText : '';";
/// What is shown of a page in a failure.
const MAX_SHOWN: usize = 4_000;

/// Keys by what the protocol calls them.
pub(crate) const TAB: char = '\u{e004}';
pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const SPACE: char = ' ';

/// A browser that looks at one gateway.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) browser: Browser,
    pub(crate) address: SocketAddr,
}

/// A control, by how people tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Field,
    Button,
    Link,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Field => "field",
            Self::Button => "button",
            Self::Link => "link",
        }
    }
}

impl Visit {
    /// Comes to the gateway without having signed in.
    pub(crate) async fn new(gateway: &Gateway) -> Self {
        let browser = Browser::start().await.unwrap_or_else(|error| panic!("{error:#}"));
        Self { browser, address: gateway.address }
    }

    /// Comes to the gateway and signs in as its admin.
    pub(crate) async fn signed_in(gateway: &Gateway) -> Self {
        let visit = Self::new(gateway).await;
        visit.open("/sign-in").await;
        visit.sign_in(KEY).await;
        visit.until_at(|path| path != "/sign-in").await;
        visit
    }

    pub(crate) async fn sign_in(&self, key: &str) {
        self.fill("API key", key).await;
        self.press(Kind::Button, "Sign in").await;
    }

    /// Goes to a page by its path.
    pub(crate) async fn open(&self, path: &str) {
        let url = format!("http://{}{path}", self.address);
        self.browser.go(&url).await.unwrap_or_else(|error| panic!("{path}: {error:#}"));
    }

    /// The path of the page that is shown, with its query.
    pub(crate) async fn path(&self) -> String {
        let url = self.browser.url().await.expect("a page is open");
        let origin = format!("http://{}", self.address);
        url.strip_prefix(&origin).unwrap_or(&url).to_owned()
    }

    pub(crate) async fn until_at(&self, wanted: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let path = self.path().await;
            if wanted(&path) {
                return path;
            }
            self.give_up_after(started, "another page").await;
        }
    }

    /// What can be read on the page.
    pub(crate) async fn text(&self) -> String {
        let text = self.browser.run(TEXT, &[]).await.unwrap_or_default();
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until this can be read on the page.
    pub(crate) async fn sees(&self, wanted: &str) {
        self.until(
            &format!("“{wanted}” to be read"),
            "return document.body.innerText.includes(arguments[0]);",
            &[json!(wanted)],
        )
        .await;
    }

    /// Waits until a script, run again and again, returns something: neither false, null, 0 nor "".
    /// The page may change under it.
    pub(crate) async fn until(&self, what: &str, script: &str, arguments: &[Value]) -> Value {
        let started = Instant::now();
        loop {
            let found = self.browser.run(script, arguments).await.unwrap_or(Value::Null);
            let nothing = [json!(false), json!(0), json!(""), json!([]), Value::Null];
            if !nothing.contains(&found) {
                return found;
            }
            self.give_up_after(started, what).await;
        }
    }

    /// Waits for a control, and returns it.
    pub(crate) async fn find(&self, kind: Kind, name: &str) -> Element {
        let started = Instant::now();
        loop {
            let arguments = [json!(kind.name()), json!(name)];
            if let Ok(Some(found)) = self.browser.find(FIND, &arguments).await {
                return found;
            }
            self.give_up_after(started, &format!("the {} “{name}”", kind.name())).await;
        }
    }

    pub(crate) async fn has(&self, kind: Kind, name: &str) -> bool {
        let found = self.browser.find(FIND, &[json!(kind.name()), json!(name)]).await;
        found.expect("a page that can be searched").is_some()
    }

    /// Clicks on a control. One that is put in place anew meanwhile is looked for again.
    pub(crate) async fn press(&self, kind: Kind, name: &str) {
        let started = Instant::now();
        loop {
            let element = self.find(kind, name).await;
            match self.browser.click(&element).await {
                Ok(()) => return,
                Err(error) => {
                    let what = format!("the {} “{name}” to be pressed ({error:#})", kind.name());
                    self.give_up_after(started, &what).await;
                }
            }
        }
    }

    /// Types into a field in place of what is there.
    pub(crate) async fn fill(&self, label: &str, typed: &str) {
        let started = Instant::now();
        loop {
            let field = self.find(Kind::Field, label).await;
            let cleared = self.browser.clear(&field).await;
            let filled = match cleared {
                Ok(()) => self.browser.type_into(&field, typed).await,
                Err(error) => Err(error),
            };
            match filled {
                Ok(()) => return,
                Err(error) => {
                    let what = format!("“{label}” to be filled in ({error:#})");
                    self.give_up_after(started, &what).await;
                }
            }
        }
    }

    /// Chooses from a list by how an option begins.
    pub(crate) async fn choose(&self, label: &str, option: &str) {
        let started = Instant::now();
        loop {
            let list = self.find(Kind::Field, label).await;
            let script = "return Array.from(arguments[0].options || []).find((option) => \
                          option.textContent.trim().startsWith(arguments[1])) || null;";
            let given = [list.as_argument(), json!(option)];
            if let Ok(Some(found)) = self.browser.find(script, &given).await
                && self.browser.click(&found).await.is_ok()
            {
                return;
            }
            self.give_up_after(started, &format!("“{option}” to be chosen in “{label}”")).await;
        }
    }

    /// Waits until what describes a field says what is wrong with it.
    pub(crate) async fn until_message_at(&self, label: &str) -> String {
        let script = "const ids = (arguments[0].getAttribute('aria-describedby') || '').split(' '); \
                      const said = ids.map((id) => document.getElementById(id)); \
                      return said.filter((one) => one && one.matches('.field-error')) \
                      .map((one) => one.innerText.trim()).join(' ');";
        let started = Instant::now();
        loop {
            let field = self.find(Kind::Field, label).await.as_argument();
            let said = self.browser.run(script, &[field]).await.unwrap_or_default();
            match said.as_str() {
                None | Some("") => {
                    self.give_up_after(started, &format!("a message at “{label}”")).await;
                }
                Some(said) => return said.to_owned(),
            }
        }
    }

    /// Marks the page, so that [`Visit::is_the_same_page`] can tell whether it was loaded again.
    pub(crate) async fn mark(&self) {
        self.browser.run("window.notLoadedAgain = true;", &[]).await.expect("a page");
    }

    pub(crate) async fn is_the_same_page(&self) -> bool {
        let same = self.browser.run("return window.notLoadedAgain === true;", &[]).await;
        same.expect("a page") == json!(true)
    }

    /// What the console holds against the pages since this was last asked: errors and warnings, such
    /// as what the content security policy has stopped.
    pub(crate) async fn complaints(&self) -> Vec<Logged> {
        let mut log = self.browser.log().await.expect("a log");
        log.retain(|line| line.level == "SEVERE" || line.level == "WARNING");
        log
    }

    /// Waits until the console says this.
    pub(crate) async fn until_complaint(&self, says: &str) {
        let started = Instant::now();
        while !self.complaints().await.iter().any(|line| line.message.contains(says)) {
            self.give_up_after(started, &format!("“{says}” in the console")).await;
        }
    }

    async fn give_up_after(&self, started: Instant, what: &str) {
        if started.elapsed() > PATIENCE {
            let shown: String = self.text().await.chars().take(MAX_SHOWN).collect();
            let complaints: Vec<String> =
                self.complaints().await.iter().map(ToString::to_string).collect();
            panic!(
                "waited for {what} in vain at {}\nconsole: {complaints:#?}\n{shown}",
                self.path().await
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

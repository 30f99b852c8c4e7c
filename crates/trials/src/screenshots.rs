//! `cargo xtask screenshots`: the pages that the README shows, photographed in both colour schemes from
//! a gateway that has something to show.

mod stage;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use xtask::{cargo, chromium};

use crate::programs;
use crate::webdriver::{Browser, Scheme, Screen};
use stage::{KEY, Stage};

const FOLDER: &str = "docs/images";
const SCREEN: Screen = Screen { width: 1280, height: 800, scale: 1.5 };
/// A README that takes long to load is not read.
const MAX_BYTES: usize = 300_000;
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One with everything that can be said of a policy.
const POLICY: &str =
    "/policies?preset=standard&schedule=list&list=30s+2m+10m+1h+6h&jitter=0.2&max_attempts=6";

/// One page, and what is to be seen at the bottom of the picture.
#[derive(Debug, Clone, Copy)]
struct Shot<'a> {
    name: &'a str,
    path: &'a str,
    down_to: Option<&'a str>,
}

pub(crate) fn take() -> Result<()> {
    chromium::require()?;
    let binary = programs::gateway()?;
    let folder = cargo::root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let data = tempfile::tempdir()?;
        let stage = Stage::set(&binary, &data.path().join("gateway")).await?;
        let taken = photograph(&stage, &folder).await;
        taken.with_context(|| stage.gateway.last_words())?;
        stage.gateway.stop().await
    })
}

async fn photograph(stage: &Stage, folder: &Path) -> Result<()> {
    let browser = Browser::start().await?;
    browser.resize(SCREEN).await?;
    sign_in(&browser, &stage.gateway.url()).await?;
    let delivery = format!("/deliveries/{}", stage.delivery);
    let pages = [
        Shot { name: "overview", path: "/", down_to: None },
        Shot { name: "delivery", path: &delivery, down_to: None },
        Shot { name: "dead-letters", path: "/dead-letters", down_to: None },
        Shot { name: "policy-editor", path: POLICY, down_to: Some("#picture figcaption") },
    ];
    for scheme in Scheme::BOTH {
        browser.prefer(scheme).await?;
        for Shot { name, path, down_to } in pages {
            browser.go(&format!("{}{path}", stage.gateway.url())).await?;
            until(&browser, "a page with a heading", "return !!document.querySelector('main h1');")
                .await?;
            if let Some(last) = down_to {
                let script = "document.querySelector(arguments[0]).scrollIntoView(false);";
                browser.run(script, &[json!(last)]).await?;
            }
            let image = STANDARD.decode(browser.screenshot().await?)?;
            let file = folder.join(format!("{name}-{}.png", scheme.name()));
            ensure!(
                image.len() <= MAX_BYTES,
                "{} would have {} bytes, more than {MAX_BYTES}",
                file.display(),
                image.len()
            );
            fs::write(&file, &image).with_context(|| file.display().to_string())?;
            println!("{} ({} KB)", file.display(), image.len() / 1_000);
        }
    }
    Ok(())
}

async fn sign_in(browser: &Browser, origin: &str) -> Result<()> {
    browser.go(&format!("{origin}/sign-in")).await?;
    let field = "return document.querySelector('input[name=key]');";
    let field = browser.find(field, &[]).await?.context("no field for a key")?;
    browser.type_into(&field, KEY).await?;
    browser.run("arguments[0].form.requestSubmit();", &[field.as_argument()]).await?;
    until(browser, "somebody signed in", "return location.pathname !== '/sign-in';").await
}

async fn until(browser: &Browser, what: &str, script: &str) -> Result<()> {
    let started = Instant::now();
    while !browser.run(script, &[]).await.is_ok_and(|found| found == json!(true)) {
        ensure!(started.elapsed() < SHOWN_WITHIN, "waited for {what} in vain");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

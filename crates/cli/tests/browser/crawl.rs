//! Every page that a link leads to: nothing in the console, nothing stopped by the policy, usable by
//! everybody, in light and in dark.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::gateway::KEY;
use crate::page::Visit;
use crate::scene::Scene;
use crate::webdriver::{Scheme, Screen};

/// More kinds of pages than this, and links lead round in circles.
const MAX_KINDS: usize = 100;
/// Pages that every gateway with something of everything has to lead to.
const KNOWN: &[&str] = &[
    "/",
    "/events",
    "/events/*",
    "/deliveries",
    "/deliveries/*",
    "/dead-letters",
    "/endpoints",
    "/endpoints/*",
    "/endpoints/*/edit",
    "/endpoints/new",
    "/policies",
    "/sources",
    "/hubs",
    "/keys",
    "/audit",
    "/settings",
];
/// Where links lead within the gateway: not what is only downloaded, nor what is not a page of it.
const LINKS: &str = r"
    return Array.from(document.querySelectorAll('a[href]'))
        .filter((link) => link.origin === location.origin && !link.hasAttribute('download'))
        .map((link) => link.pathname + link.search)
        .filter((path) => !/^\/(v1|in|docs|assets|openapi|metrics)|\/payload/.test(path));";
const AXE_AT: &str = "axe-core/node_modules/axe-core/axe.min.js";
/// Everything but what is said of pages as advice.
const JUDGE: &str = r"
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(
        ({ violations }) => done(violations
            .filter(({ impact }) => impact === 'serious' || impact === 'critical')
            .flatMap(({ id, help, nodes }) => nodes.map(({ html, failureSummary }) =>
                `${id}: ${help}: ${html.slice(0, 200)}: ${failureSummary}`))),
        (error) => done([String(error)]));";
/// A page that says that there is none.
const NOT_THERE: &str = "/deliveries/dlv_0000000000001";
const PHONE: Screen = Screen { width: 360, height: 740, scale: 1.0 };

#[tokio::test]
async fn no_page_has_anything_to_complain_of() {
    let (scene, unlinked) = Scene::full().await;
    let visit = Visit::signed_in(&scene.gateway).await;
    let mut complaints = Vec::new();
    let found = crawl(&visit, unlinked, async |path| {
        let said = visit.complaints().await;
        complaints.extend(said.iter().map(|line| format!("{path}: {line}")));
        let headings =
            visit.browser.run("return document.querySelectorAll('h1').length;", &[]).await;
        if headings.expect("a page") != json!(1) {
            complaints.push(format!("{path}: not one h1"));
        }
    })
    .await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    for known in KNOWN {
        assert!(found.contains_key(*known), "no link leads to {known}, but to {found:?}");
    }
}

#[tokio::test]
async fn every_page_can_be_used_by_everybody_in_light_and_in_dark() {
    let axe = axe();
    let (scene, unlinked) = Scene::full().await;
    let visit = Visit::new(&scene.gateway).await;
    let mut violations = Vec::new();
    let mut judge = async |visit: &Visit, path: &str| {
        visit.browser.run(&axe, &[]).await.expect("axe-core loads");
        for scheme in Scheme::BOTH {
            visit.browser.prefer(scheme).await.expect("colours");
            let found = visit.browser.run_until_called(JUDGE, &[]).await.expect("axe-core runs");
            let found = found.as_array().cloned().unwrap_or_default();
            violations.extend(found.iter().map(|one| format!("{path}, {}: {one}", scheme.name())));
        }
    };
    visit.open("/sign-in").await;
    judge(&visit, "/sign-in").await;
    visit.sign_in(KEY).await;
    visit.until_at(|path| path != "/sign-in").await;
    visit.open(NOT_THERE).await;
    judge(&visit, NOT_THERE).await;
    crawl(&visit, unlinked, async |path| judge(&visit, path).await).await;
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[tokio::test]
async fn every_page_fits_a_phone() {
    let (scene, unlinked) = Scene::full().await;
    let visit = Visit::signed_in(&scene.gateway).await;
    visit.browser.resize(PHONE).await.expect("a phone");
    let mut too_wide = Vec::new();
    crawl(&visit, unlinked, async |path| {
        let width = "return document.documentElement.scrollWidth;";
        let width = visit.browser.run(width, &[]).await.expect("a page");
        if width.as_u64() > Some(PHONE.width.into()) {
            too_wide.push(format!("{path} is {width} wide"));
        }
    })
    .await;
    assert!(too_wide.is_empty(), "{}", too_wide.join("\n"));
}

#[tokio::test]
async fn the_judge_of_pages_does_find_fault() {
    let scene = Scene::empty().await;
    let visit = Visit::new(&scene.gateway).await;
    visit.open("/sign-in").await;
    visit
        .browser
        .run("document.querySelectorAll('label').forEach((label) => label.remove());", &[])
        .await
        .expect("a page");
    visit.browser.run(&axe(), &[]).await.expect("axe-core loads");
    let found = visit.browser.run_until_called(JUDGE, &[]).await.expect("axe-core runs");
    assert!(found.as_array().is_some_and(|found| !found.is_empty()), "{found}");
}

/// Goes to one page of each kind that links lead to, and to those `unlinked`. Returns the kinds, with
/// the page looked at.
async fn crawl(
    visit: &Visit,
    unlinked: Vec<String>,
    mut look: impl AsyncFnMut(&str),
) -> HashMap<String, String> {
    let mut kinds = HashMap::from([("/".to_owned(), "/".to_owned())]);
    let mut ahead = VecDeque::from(["/".to_owned()]);
    ahead.extend(unlinked);
    while let Some(path) = ahead.pop_front() {
        visit.open(&path).await;
        visit.until("a whole page", "return document.readyState === 'complete';", &[]).await;
        look(&path).await;
        let links = visit.browser.run(LINKS, &[]).await.expect("a page");
        for link in links.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Entry::Vacant(unknown) = kinds.entry(kind_of(link)) {
                unknown.insert(link.to_owned());
                ahead.push_back(link.to_owned());
            }
        }
        assert!(kinds.len() <= MAX_KINDS, "links without end: {kinds:?}");
    }
    kinds
}

/// The path with a star for each id, and the names of what is asked for.
fn kind_of(link: &str) -> String {
    let (path, query) = link.split_once('?').unwrap_or((link, ""));
    let parts = path.split('/').map(|part| if part.contains('_') { "*" } else { part });
    let kind = parts.collect::<Vec<_>>().join("/");
    let mut names: Vec<&str> = query
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { kind } else { format!("{kind}?{}", names.join("&")) }
}

/// As `cargo xtask test` has got it.
fn axe() -> String {
    let file = std::env::var_os("POSTRIDER_AXE").map_or_else(
        || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name(AXE_AT),
        PathBuf::from,
    );
    let text = fs::read_to_string(&file);
    text.unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo xtask test` gets axe-core with npm, or say in POSTRIDER_AXE where \
             its axe.min.js is",
            file.display()
        )
    })
}

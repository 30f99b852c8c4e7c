//! That the guide holds together: every chapter is there, every link leads somewhere.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::book::Piece;
use super::render::{Rendered, Target, render};
use super::{BOOK, files, guide, page::Site};

/// Pages of the gateway that the guide may link to.
const GATEWAY: [&str; 4] = ["/", "/docs", "/openapi.json", "/metrics"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rendered() -> Vec<(&'static str, Rendered)> {
    let chapters = BOOK.chapters.iter();
    chapters.map(|chapter| (chapter.name, render(&BOOK, chapter, Site::Served))).collect()
}

/// Every file below a folder, by its path from there.
fn below(folder: &Path, from: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{from}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            below(&entry.path(), &format!("{name}/"), found);
        } else {
            found.push(name);
        }
    }
}

#[test]
fn every_file_of_the_guide_is_in_the_binary_and_in_a_chapter() {
    let mut found = Vec::new();
    below(&root().join("docs/guide"), "guide/", &mut found);
    let known: HashSet<&str> = files::FILES.iter().map(|(path, _)| *path).collect();
    for path in &found {
        assert!(known.contains(path.as_str()), "docs/{path} is not in guide/files.rs");
    }
    let texts = files::FILES.iter().map(|(_, text)| *text).collect::<String>();
    for (path, _) in files::FILES.iter().filter(|(path, _)| *path != "guide/SUMMARY.md") {
        let is_chapter =
            BOOK.chapters.iter().any(|chapter| *path == format!("guide/{}.md", chapter.name));
        let name = path.strip_prefix("guide/").map_or(format!("../{path}"), str::to_owned);
        let is_included = texts.contains(&format!("{{{{#include {name}"));
        assert!(is_chapter || is_included, "docs/{path} is in no chapter");
    }
}

#[test]
fn what_is_listed_and_what_is_included_is_there() {
    let listed = files::text("guide/SUMMARY.md").expect("the contents");
    let entries = listed.lines().filter(|line| line.trim_start().starts_with("- ")).count();
    assert_eq!(BOOK.chapters.len(), entries, "SUMMARY.md lists what is not there");
    for chapter in &BOOK.chapters {
        for Piece { path, text } in &chapter.pieces {
            assert!(!text.contains("{{#include"), "{path} includes what is not there");
        }
    }
}

#[test]
fn no_link_is_dead() {
    let rendered = rendered();
    let anchors_of = |name: &str| {
        let (_, page) = rendered.iter().find(|(known, _)| *known == name).expect("a chapter");
        &page.anchors
    };
    let mut dead = Vec::new();
    for (name, page) in &rendered {
        for (written, target) in &page.links {
            let leads = match target {
                Target::Elsewhere => url::Url::parse(written).is_ok(),
                Target::Here(anchor) => page.anchors.contains(anchor),
                Target::Chapter { name, anchor } => {
                    anchor.as_ref().is_none_or(|anchor| anchors_of(name).contains(anchor))
                }
                Target::Gateway(path) => GATEWAY.contains(&path.as_str()),
                Target::File(path) => root().join(path).exists(),
            };
            if !leads {
                dead.push(format!("{name}: {written} ({target:?})"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn each_chapter_has_one_title_and_runs_nothing() {
    for (name, page) in rendered() {
        assert_eq!(page.html.matches("<h1").count(), 1, "{name}");
        for forbidden in ["<script", "style=\"", "javascript:", "<img"] {
            assert!(!page.html.contains(forbidden), "{forbidden} in {name}");
        }
    }
}

#[test]
fn the_files_link_to_one_another_by_relative_paths() {
    let site: Vec<(String, String)> = guide().collect();
    let names: HashSet<&str> = site.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains("index.html") && names.contains("guide.css"));
    for (name, html) in site.iter().filter(|(name, _)| name != "guide.css") {
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let elsewhere = link.starts_with("http") || link.starts_with("data:");
            assert!(elsewhere || file.is_empty() || names.contains(file), "{link} in {name}");
        }
    }
}

#[test]
fn what_looks_like_an_element_is_text() {
    let chapter = super::book::Chapter {
        name: "x",
        title: "X",
        begins: None,
        pieces: vec![Piece {
            path: "guide/x.md".to_owned(),
            text: "<!-- made -->\n# X\n\nA <script>alert(1)</script> b.\n\n<b>c</b>\n\n## A b\n\n## A b\n"
                .to_owned(),
        }],
    };
    let page = render(&BOOK, &chapter, Site::Served);
    assert!(page.html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{}", page.html);
    assert!(page.html.contains("&lt;b&gt;c"), "{}", page.html);
    assert!(!page.html.contains("made"), "{}", page.html);
    assert_eq!(page.anchors, ["x", "a-b", "a-b-1"]);
}

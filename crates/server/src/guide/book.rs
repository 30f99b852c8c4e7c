//! What the guide consists of: the contents that SUMMARY.md lists, in mdBook's form, and the pieces of
//! each chapter, which may include other files of docs/.

use super::files;

/// Where chapters are, within docs/.
const FOLDER: &str = "guide";
const SUMMARY: &str = "guide/SUMMARY.md";
const INCLUDE: (&str, &str) = ("{{#include ", "}}");
const FENCE: &str = "```";

#[derive(Debug)]
pub(super) struct Book {
    pub(super) chapters: Vec<Chapter>,
}

#[derive(Debug)]
pub(super) struct Chapter {
    /// The name of its file, without the ending: what stands in its URL.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The part of the guide that begins with it.
    pub(super) begins: Option<&'static str>,
    pub(super) pieces: Vec<Piece>,
}

/// Text of one file: links in it are relative to that.
#[derive(Debug)]
pub(super) struct Piece {
    /// Within docs/.
    pub(super) path: String,
    pub(super) text: String,
}

impl Book {
    /// Reads what is in the binary. A file that is listed or included and is not there is left out;
    /// a test sees to it that there is none.
    pub(super) fn read() -> Self {
        let summary = files::text(SUMMARY).unwrap_or_default();
        let mut chapters = Vec::new();
        let mut part = None;
        for line in summary.lines() {
            if let Some(title) = line.strip_prefix("# ") {
                part = Some(title).filter(|title| *title != "Summary");
            } else if let Some((title, file)) = entry(line) {
                let path = format!("{FOLDER}/{file}");
                let Some(text) = files::text(&path) else { continue };
                let name = file.trim_end_matches(".md");
                chapters.push(Chapter {
                    name,
                    title,
                    begins: part.take(),
                    pieces: cut(&path, text),
                });
            }
        }
        Self { chapters }
    }

    /// The chapter in which a file of docs/ is found: its own, or the one that includes it.
    pub(super) fn chapter_of(&self, path: &str) -> Option<&Chapter> {
        let own = |chapter: &&Chapter| path == format!("{FOLDER}/{}.md", chapter.name);
        let includes = |chapter: &&Chapter| chapter.pieces.iter().any(|piece| piece.path == path);
        self.chapters.iter().find(own).or_else(|| self.chapters.iter().find(includes))
    }
}

/// `- [Title](file.md)`
fn entry(line: &str) -> Option<(&str, &str)> {
    let written = line.trim_start().strip_prefix("- [")?.strip_suffix(')')?;
    written.split_once("](")
}

/// A chapter with what it includes. Within a code block that is text like the rest of it; elsewhere it
/// is a piece of its own.
fn cut(path: &str, text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut own = Piece { path: path.to_owned(), text: String::new() };
    let mut in_code = false;
    for line in text.lines() {
        if line.starts_with(FENCE) {
            in_code = !in_code;
        }
        match included(line) {
            Some(piece) if in_code => own.text.push_str(&piece.text),
            Some(piece) => {
                let empty = Piece { path: path.to_owned(), text: String::new() };
                pieces.push(std::mem::replace(&mut own, empty));
                pieces.push(piece);
            }
            None => {
                own.text.push_str(line);
                own.text.push('\n');
            }
        }
    }
    pieces.push(own);
    pieces.retain(|piece| !piece.text.trim().is_empty());
    pieces
}

/// What a line like `{{#include ../scaling.md}}` stands for; `:3:` after the path leaves out what is
/// before its third line.
fn included(line: &str) -> Option<Piece> {
    let named = line.strip_prefix(INCLUDE.0)?.strip_suffix(INCLUDE.1)?;
    let mut parts = named.split(':');
    let path = resolve(FOLDER, parts.next()?);
    let from: usize = parts.next().and_then(|from| from.parse().ok()).unwrap_or(1);
    let lines = files::text(&path)?.lines().skip(from.saturating_sub(1));
    let text = lines.flat_map(|line| [line, "\n"]).collect();
    Some(Piece { path, text })
}

/// Where a relative path leads from a folder, both within docs/. What leaves docs/ begins with `..`.
pub(super) fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

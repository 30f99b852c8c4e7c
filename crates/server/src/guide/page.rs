//! The frame of a page: the contents beside it, what is on it, and the ways on and back.

use std::fmt::Write as _;

use super::book::{Book, Chapter};
use super::render::{Rendered, render};
use super::{PLACE, STYLE_NAME};

/// Where a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    /// In a gateway.
    Served,
    /// As files in a folder.
    Files,
}

impl Site {
    pub(super) fn chapter(self, name: &str) -> String {
        match self {
            Self::Served => format!("{PLACE}/{name}"),
            Self::Files => format!("{name}.html"),
        }
    }

    fn style(self) -> String {
        match self {
            Self::Served => format!("{PLACE}/{STYLE_NAME}"),
            Self::Files => STYLE_NAME.to_owned(),
        }
    }
}

pub(super) fn write(book: &Book, chapter: &Chapter, site: Site) -> String {
    let Rendered { html, headings, .. } = render(book, chapter, site);
    let mut here = String::new();
    if headings.len() > 1 {
        here.push_str("<details class=\"here\"><summary>On this page</summary><ul>\n");
        for heading in headings {
            let _ = writeln!(
                here,
                "<li><a href=\"#{}\">{}</a></li>",
                heading.anchor,
                escape(&heading.text)
            );
        }
        here.push_str("</ul></details>\n");
    }
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>{title} · Postrider</title>
<link rel=\"icon\" href=\"data:,\">
<link rel=\"stylesheet\" href=\"{style}\">
</head>
<body>
<a class=\"skip\" href=\"#chapter\">Skip to the chapter</a>
<header><p>{brand}</p></header>
<div class=\"columns\">
<nav aria-label=\"Chapters\">
{contents}</nav>
<main id=\"chapter\" tabindex=\"-1\">
{here}{html}{ways}</main>
</div>
</body>
</html>
",
        title = escape(chapter.title),
        style = site.style(),
        brand = brand(site),
        contents = contents(book, chapter, site),
        ways = ways(book, chapter, site),
    )
}

fn brand(site: Site) -> &'static str {
    match site {
        Site::Served => {
            "<a href=\"/\">Postrider</a> · <strong>Guide</strong> · <a href=\"/docs\">The API</a>"
        }
        Site::Files => "Postrider · <strong>Guide</strong>",
    }
}

fn contents(book: &Book, current: &Chapter, site: Site) -> String {
    let mut list = String::new();
    let mut is_open = false;
    for chapter in &book.chapters {
        if chapter.begins.is_some() || !is_open {
            if is_open {
                list.push_str("</ul>\n");
            }
            if let Some(part) = chapter.begins {
                let _ = writeln!(list, "<p>{}</p>", escape(part));
            }
            list.push_str("<ul>\n");
            is_open = true;
        }
        let mark = if chapter.name == current.name { " aria-current=\"page\"" } else { "" };
        let (to, title) = (site.chapter(chapter.name), escape(chapter.title));
        let _ = writeln!(list, "<li><a href=\"{to}\"{mark}>{title}</a></li>");
    }
    if is_open {
        list.push_str("</ul>\n");
    }
    list
}

fn ways(book: &Book, current: &Chapter, site: Site) -> String {
    let at = book.chapters.iter().position(|chapter| chapter.name == current.name);
    let before = at.and_then(|at| at.checked_sub(1)).and_then(|at| book.chapters.get(at));
    let after = at.and_then(|at| book.chapters.get(at + 1));
    let mut ways = String::from("<nav class=\"ways\" aria-label=\"Before and after\">\n");
    for (chapter, rel, word) in [(before, "prev", "Before"), (after, "next", "Next")] {
        if let Some(chapter) = chapter {
            let (to, title) = (site.chapter(chapter.name), escape(chapter.title));
            let _ = writeln!(ways, "<a rel=\"{rel}\" href=\"{to}\">{word}: {title}</a>");
        }
    }
    ways.push_str("</nav>\n");
    ways
}

/// Text as it may stand in an element or in a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

//! Markdown into HTML: headings with anchors, code as it is, links that lead somewhere both in the
//! gateway and among files.

use std::collections::HashMap;

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};

use super::book::{Book, Chapter, resolve};
use super::diagram;
use super::page::{Site, escape};

/// Where a link of the guide leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Another site.
    Elsewhere,
    /// A place on the same page.
    Here(String),
    /// A chapter, and perhaps a place in it.
    Chapter { name: &'static str, anchor: Option<String> },
    /// A page of the gateway itself.
    Gateway(String),
    /// A file of the repository, by its path from the root.
    File(String),
}

/// A heading below the title of a chapter, for the list of what is on the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heading {
    pub(super) anchor: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) html: String,
    /// Of the second level.
    pub(super) headings: Vec<Heading>,
    pub(super) anchors: Vec<String>,
    /// Every link, as written and as understood.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests look for dead ones"))]
    pub(super) links: Vec<(String, Target)>,
}

pub(super) fn render(book: &Book, chapter: &Chapter, site: Site) -> Rendered {
    let rendered = Rendered {
        html: String::new(),
        headings: Vec::new(),
        anchors: Vec::new(),
        links: Vec::new(),
    };
    let mut writer = Writer { book, site, rendered, taken: HashMap::new() };
    for piece in &chapter.pieces {
        let folder = piece.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let events = Parser::new_ext(&piece.text, Options::ENABLE_TABLES).collect();
        writer.write(folder, events);
    }
    writer.rendered
}

struct Writer<'a> {
    book: &'a Book,
    site: Site,
    rendered: Rendered,
    /// How often an anchor has been asked for.
    taken: HashMap<String, usize>,
}

impl Writer<'_> {
    fn write(&mut self, folder: &str, events: Vec<Event<'_>>) {
        let mut out = Vec::with_capacity(events.len());
        let mut events = events.into_iter().peekable();
        // What closes a link that is none in this site.
        let mut closings = Vec::new();
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let within: Vec<Event<'_>> = std::iter::from_fn(|| {
                        events.next_if(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
                    })
                    .collect();
                    out.push(self.heading(level, within));
                }
                Event::End(TagEnd::Heading(level)) => out.push(raw(format!("</{level}>\n"))),
                Event::Start(Tag::CodeBlock(kind)) => {
                    let code: String = std::iter::from_fn(|| {
                        events.next_if(|event| !matches!(event, Event::End(TagEnd::CodeBlock)))
                    })
                    .filter_map(|event| match event {
                        Event::Text(text) => Some(text.into_string()),
                        _ => None,
                    })
                    .collect();
                    out.push(raw(code_block(&kind, &code)));
                }
                Event::End(TagEnd::CodeBlock) => {}
                Event::Start(Tag::Link { dest_url, .. }) => {
                    let (open, close) = self.link(folder, &dest_url);
                    out.push(raw(open));
                    closings.push(close);
                }
                Event::End(TagEnd::Link) => {
                    out.push(raw(closings.pop().unwrap_or_default().to_owned()));
                }
                Event::Start(Tag::Table(columns)) => {
                    out.push(raw("<div class=\"table\" tabindex=\"0\">".to_owned()));
                    out.push(Event::Start(Tag::Table(columns)));
                }
                Event::End(TagEnd::Table) => {
                    out.push(Event::End(TagEnd::Table));
                    out.push(raw("</div>\n".to_owned()));
                }
                Event::Html(text) if is_comment(&text) => {}
                // What looks like an element in the text is text.
                Event::Html(text) | Event::InlineHtml(text) => out.push(Event::Text(text)),
                other => out.push(other),
            }
        }
        html::push_html(&mut self.rendered.html, out.into_iter());
    }

    /// A heading up to its end, which is another event.
    fn heading<'e>(&mut self, level: HeadingLevel, within: Vec<Event<'e>>) -> Event<'e> {
        let mut text = String::new();
        for event in &within {
            if let Event::Text(piece) | Event::Code(piece) = event {
                text.push_str(piece);
            }
        }
        let anchor = self.anchor(&text);
        let mut shown = String::new();
        html::push_html(&mut shown, within.into_iter());
        let mark =
            format!("<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to here\">#</a>");
        let opened = match level {
            HeadingLevel::H1 => format!("<{level} id=\"{anchor}\">{shown}"),
            _ => format!("<{level} id=\"{anchor}\">{shown} {mark}"),
        };
        if level == HeadingLevel::H2 {
            self.rendered.headings.push(Heading { anchor, text });
        }
        raw(opened)
    }

    /// Words in lower case with hyphens between them, as forges make them; a second one of the same
    /// words gets a number.
    fn anchor(&mut self, text: &str) -> String {
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let words: String =
            kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let times = self.taken.entry(words.clone()).or_default();
        let anchor = if *times == 0 { words } else { format!("{words}-{times}") };
        *times += 1;
        self.rendered.anchors.push(anchor.clone());
        anchor
    }

    /// What opens and closes a link.
    fn link(&mut self, folder: &str, written: &str) -> (String, &'static str) {
        let target = target(self.book, folder, written);
        self.rendered.links.push((written.to_owned(), target.clone()));
        let link = |to: &str| (format!("<a href=\"{}\">", escape(to)), "</a>");
        let named = |what: String| {
            (format!("<span class=\"file\" title=\"{}\">", escape(&what)), "</span>")
        };
        match (target, self.site) {
            (Target::Elsewhere, _) => link(written),
            (Target::Here(anchor), _) => link(&format!("#{anchor}")),
            (Target::Chapter { name, anchor }, site) => {
                let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                link(&format!("{}{anchor}", site.chapter(name)))
            }
            (Target::Gateway(path), Site::Served) => link(&path),
            (Target::Gateway(path), Site::Files) => named(format!("{path} of a running gateway")),
            (Target::File(path), _) => named(format!("{path} in the repository")),
        }
    }
}

/// What a link that is written in a file of a folder of docs/ means.
pub(super) fn target(book: &Book, folder: &str, written: &str) -> Target {
    if written.starts_with("https://") || written.starts_with("http://") {
        return Target::Elsewhere;
    }
    if let Some(anchor) = written.strip_prefix('#') {
        return Target::Here(anchor.to_owned());
    }
    if written.starts_with('/') {
        return Target::Gateway(written.to_owned());
    }
    let (path, anchor) = match written.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (written, None),
    };
    let path = resolve(folder, path);
    match book.chapter_of(&path) {
        Some(chapter) => Target::Chapter { name: chapter.name, anchor },
        None => Target::File(resolve("docs", &path)),
    }
}

fn code_block(kind: &CodeBlockKind<'_>, code: &str) -> String {
    let language = match kind {
        CodeBlockKind::Fenced(about) => about.split_whitespace().next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    if language == diagram::LANGUAGE {
        return diagram::write(code);
    }
    format!(
        "<pre tabindex=\"0\"><code class=\"language-{}\">{}</code></pre>\n",
        escape(language),
        escape(code)
    )
}

fn is_comment(html: &str) -> bool {
    html.trim_start().starts_with("<!--") && html.trim_end().ends_with("-->")
}

fn raw(html: String) -> Event<'static> {
    Event::Html(CowStr::from(html))
}

//! `/docs/guide`: the guide of docs/guide, within the binary. Chapters are rendered once, when the first
//! page is asked for; a page is text and a style sheet, and runs no script.

mod book;
mod diagram;
mod files;
mod page;
mod render;

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use crate::problem::Problem;
use book::Book;
use page::Site;

/// Where the guide is served.
pub(crate) const PLACE: &str = "/docs/guide";

const STYLE: &str = include_str!("guide/guide.css");
const STYLE_NAME: &str = "guide.css";

/// Nothing but the page and its style.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

static BOOK: LazyLock<Book> = LazyLock::new(Book::read);
static PAGES: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let chapters = BOOK.chapters.iter();
    chapters.map(|chapter| (chapter.name, page::write(&BOOK, chapter, Site::Served))).collect()
});

/// The routes of the guide.
pub(crate) fn pages() -> Router {
    Router::new()
        .route(PLACE, get(async || first()))
        .route("/docs/guide/", get(async || first()))
        .route("/docs/guide/guide.css", get(async || file("text/css; charset=utf-8", STYLE)))
        .route("/docs/guide/{name}", get(chapter))
}

/// The guide as files: each by its name in one folder, with what is in it.
pub fn guide() -> impl Iterator<Item = (String, String)> {
    let chapters = BOOK.chapters.iter().map(|chapter| {
        (format!("{}.html", chapter.name), page::write(&BOOK, chapter, Site::Files))
    });
    let first = BOOK
        .chapters
        .first()
        .map(|chapter| ("index.html".to_owned(), page::write(&BOOK, chapter, Site::Files)));
    chapters.chain(first).chain([(STYLE_NAME.to_owned(), STYLE.to_owned())])
}

fn first() -> Response {
    match BOOK.chapters.first() {
        Some(chapter) => Redirect::temporary(&Site::Served.chapter(chapter.name)).into_response(),
        None => Problem::no_route().into_response(),
    }
}

async fn chapter(Path(name): Path<String>) -> Response {
    match PAGES.iter().find(|(known, _)| *known == name) {
        Some((_, page)) => file("text/html; charset=utf-8", page),
        None => Problem::no_route().into_response(),
    }
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // The next version of the gateway has another guide.
        (CACHE_CONTROL, "no-cache"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)));
    (headers, text).into_response()
}

#[cfg(test)]
mod tests;

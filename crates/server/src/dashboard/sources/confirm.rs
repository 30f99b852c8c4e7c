//! Pages that ask once more before something is done that cannot be undone, and that show what is never
//! shown again.

use askama::Template;

use crate::dashboard::chrome::Chrome;

#[derive(Template)]
#[template(path = "confirm.html")]
pub(in crate::dashboard) struct Confirm {
    pub(in crate::dashboard) chrome: Chrome,
    /// A question.
    pub(in crate::dashboard) title: String,
    /// What it comes to.
    pub(in crate::dashboard) warning: String,
    /// Where yes is sent.
    pub(in crate::dashboard) action: String,
    pub(in crate::dashboard) button: String,
    /// Where no leads.
    pub(in crate::dashboard) back: String,
}

/// A page with something that is never shown again.
#[derive(Template)]
#[template(path = "shown_once.html")]
pub(in crate::dashboard) struct ShownOnce {
    pub(in crate::dashboard) chrome: Chrome,
    pub(in crate::dashboard) title: String,
    pub(in crate::dashboard) what: String,
    pub(in crate::dashboard) secret: String,
    /// How to use it.
    pub(in crate::dashboard) command: Option<String>,
    pub(in crate::dashboard) then: String,
    pub(in crate::dashboard) back: String,
}

//! What is typed, and what it does to the picture.

use std::ops::ControlFlow;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::snapshot::Sort;

/// Keys that have been pressed and not looked at.
const TYPED_AHEAD: usize = 64;

/// How far a page key goes.
const PAGE: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Do(Action),
    Resized,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// The help, or everything.
    Close,
    Pause,
    Sort,
    Help,
    Up(usize),
    Down(usize),
    Top,
}

/// How the picture is to be shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ui {
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) sort: Sort,
    /// How many endpoints are above the first one shown. The view holds it within what there is.
    pub(super) scroll: usize,
}

impl Ui {
    pub(super) fn take(&mut self, action: Action) -> ControlFlow<()> {
        match action {
            Action::Close if self.help => self.help = false,
            Action::Close | Action::Quit => return ControlFlow::Break(()),
            Action::Pause => self.paused = !self.paused,
            Action::Sort => (self.sort, self.scroll) = (self.sort.next(), 0),
            Action::Help => self.help = !self.help,
            Action::Up(rows) => self.scroll = self.scroll.saturating_sub(rows),
            Action::Down(rows) => self.scroll = self.scroll.saturating_add(rows),
            Action::Top => self.scroll = 0,
        }
        ControlFlow::Continue(())
    }
}

/// Reads the terminal on a thread of its own, because a read cannot be called off: it ends with the
/// process, or with the terminal.
pub(super) fn listen() -> mpsc::Receiver<Input> {
    let (press, typed) = mpsc::channel(TYPED_AHEAD);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(key) => action(key).map(Input::Do),
                Event::Resize(..) => Some(Input::Resized),
                _ => None,
            };
            if input.is_some_and(|input| press.blocking_send(input).is_err()) {
                return;
            }
        }
    });
    typed
}

fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Action::Quit);
    }
    match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Action::Close),
        KeyCode::Char('p' | 'P' | ' ') => Some(Action::Pause),
        KeyCode::Char('s' | 'S') => Some(Action::Sort),
        KeyCode::Char('?' | 'h' | 'H') => Some(Action::Help),
        KeyCode::Up | KeyCode::Char('k') => Some(Action::Up(1)),
        KeyCode::Down | KeyCode::Char('j') => Some(Action::Down(1)),
        KeyCode::PageUp => Some(Action::Up(PAGE)),
        KeyCode::PageDown => Some(Action::Down(PAGE)),
        KeyCode::Home => Some(Action::Top),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let plain = KeyModifiers::NONE;
        for (code, modifiers, expected) in [
            (KeyCode::Char('q'), plain, Some(Action::Close)),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Action::Quit)),
            (KeyCode::Char('s'), KeyModifiers::CONTROL, None),
            (KeyCode::Char('p'), plain, Some(Action::Pause)),
            (KeyCode::Char('s'), plain, Some(Action::Sort)),
            (KeyCode::Char('?'), plain, Some(Action::Help)),
            (KeyCode::Up, plain, Some(Action::Up(1))),
            (KeyCode::PageDown, plain, Some(Action::Down(PAGE))),
            (KeyCode::Char('x'), plain, None),
        ] {
            assert_eq!(action(KeyEvent::new(code, modifiers)), expected, "{code:?}");
        }
    }

    #[test]
    fn the_picture_follows_the_keys() {
        let mut ui = Ui::default();
        let mut press = |action| ui.take(action).is_break().then_some(()).ok_or(ui);
        assert!(press(Action::Pause).is_err_and(|ui| ui.paused));
        assert!(press(Action::Up(1)).is_err_and(|ui| ui.scroll == 0));
        assert!(press(Action::Down(3)).is_err_and(|ui| ui.scroll == 3));
        assert!(press(Action::Sort).is_err_and(|ui| (ui.sort, ui.scroll) == (Sort::Waiting, 0)));
        assert!(press(Action::Help).is_err_and(|ui| ui.help));
        assert!(press(Action::Close).is_err_and(|ui| !ui.help), "it closes the help first");
        assert!(press(Action::Close).is_ok());
        assert!(press(Action::Quit).is_ok());
    }
}

//! The terminal while it is ours, and as it was found when it is not any more: at the end, after a
//! signal, and before a panic says why.

use std::io::{self, Stdout, Write};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

pub(super) struct Stage {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Stage {
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // What is written to the other screen is gone with it.
            leave(&mut io::stdout());
            before(panic);
        }));
        enable_raw_mode()?;
        let entered = execute!(io::stdout(), EnterAlternateScreen, Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                leave(&mut io::stdout());
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture).map(drop)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        leave(&mut io::stdout());
    }
}

/// Twice does no harm.
fn leave(out: &mut impl Write) {
    // A terminal that is gone needs nothing.
    let _gone = disable_raw_mode();
    let _gone = execute!(out, LeaveAlternateScreen, Show);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_shows_the_other_screen_and_the_cursor_again() {
        let mut out = Vec::new();
        leave(&mut out);
        leave(&mut out);
        assert_eq!(out, b"\x1b[?1049l\x1b[?25h\x1b[?1049l\x1b[?25h");
    }
}

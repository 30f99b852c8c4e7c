//! `postrider.toml`: any text is read, or refused by faults that each name a line of it and say
//! something that a terminal can show. The bytes are the file.

use postrider_cli::fuzzing::{Complaint, configuration as read};

/// The most faults that are told of one file, and the line that says how many more there are.
const MAX_FAULTS: usize = 101;

pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split('\n').count();
    match read(text) {
        Ok(items) => {
            for line in items {
                assert!((1..=lines).contains(&line), "something is declared at line {line}");
            }
        }
        Err(complaints) => {
            assert!((1..=MAX_FAULTS).contains(&complaints.len()), "{} faults", complaints.len());
            for Complaint { line, key, message } in complaints {
                assert!((1..=lines).contains(&line), "line {line}: {key}: {message}");
                assert!(!message.is_empty(), "line {line}: {key} is refused without a reason");
                let inert = |text: &str| !text.chars().any(char::is_control);
                assert!(inert(&key) && inert(&message), "line {line}: {key:?}: {message:?}");
            }
        }
    }
}

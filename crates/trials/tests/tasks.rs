//! The trials as `cargo xtask` starts them. That this is a test of the package has another use: with it,
//! `cargo test` builds the program, and so whoever needs both builds it once.

use std::process::Command;

use xtask::tasks;

#[test]
fn each_task_says_what_it_is_called_and_what_it_does() {
    for (task, says) in [
        ("bench", tasks::BENCH),
        ("torture", tasks::TORTURE),
        ("soak", tasks::SOAK),
        ("screenshots", tasks::SCREENSHOTS),
    ] {
        let mut help = Command::new(env!("CARGO_BIN_EXE_postrider-trials"));
        let told = help.args([task, "--help"]).output().expect("it is built");
        let told = String::from_utf8_lossy(&told.stdout);
        // Where lines are broken depends on the terminal.
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.starts_with(says), "{told}");
        assert!(told.contains(&format!("Usage: cargo xtask {task}")), "{told}");
    }
}

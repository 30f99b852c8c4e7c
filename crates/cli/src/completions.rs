//! `postrider completions`: a script for a shell, which then completes commands and flags.

use std::io::{self, Write as _};

use clap::ValueEnum;
use clap_complete::Shell as Script;

use crate::{Failure, reference};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider completions bash > ~/.local/share/bash-completion/completions/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish")]
pub(crate) struct Args {
    /// The shell that is to complete
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    /// The GNU shell
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => Script::Bash,
        Shell::Zsh => Script::Zsh,
        Shell::Fish => Script::Fish,
    };
    // In memory first: the generator does not expect that nobody may be left to read.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut reference::command(), reference::NAME, &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

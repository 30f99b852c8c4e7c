//! `postrider man`: the manual pages, made from what the commands say of themselves.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Command;
use clap_mangen::Man;

use crate::{Failure, reference};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider man | man -l -
  postrider man endpoints create | man -l -
  postrider man --to ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The command whose page is printed; the first page if it is left out
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands into this directory, which is made if it is not there
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    to: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = reference::built();
    if let Some(directory) = &args.to {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let count = write_all(&root, directory)?;
        println!("Wrote {count} pages into {}", directory.display());
    } else {
        let page = page(find(&root, &args.command)?)?;
        io::stdout().lock().write_all(&page)?;
    }
    Ok(())
}

fn find<'a>(root: &'a Command, words: &[String]) -> Result<&'a Command, Failure> {
    words.iter().try_fold(root, |command, word| {
        let known = reference::subcommands(command).find(|known| known.get_name() == word);
        known.ok_or_else(|| {
            let parent = reference::full_name(command);
            Failure::usage(anyhow!("`{parent}` has no command `{word}`; see `{parent} --help`"))
        })
    })
}

fn write_all(command: &Command, directory: &Path) -> Result<usize, Failure> {
    let file = directory.join(format!("{}.1", page_name(command)));
    fs::write(&file, page(command)?).with_context(|| format!("cannot write {}", file.display()))?;
    reference::subcommands(command)
        .try_fold(1, |count, command| Ok(count + write_all(command, directory)?))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let name = page_name(command);
    // The reader of a page looks for it by a name without spaces.
    let named = command
        .clone()
        .name(name.clone())
        .bin_name(reference::full_name(command))
        .version(env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    Man::new(named)
        .title(name)
        .source(concat!("postrider ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)?;
    Ok(page)
}

/// `postrider-endpoints-list`.
fn page_name(command: &Command) -> String {
    reference::full_name(command).replace(' ', "-")
}

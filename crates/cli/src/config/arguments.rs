//! Flags, then the environment, then a file: what stands in the file is what a flag is if neither of
//! the others says anything.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::flags::{FileSetting, flags};
use super::{Loaded, find, reload};
use crate::Failure;

/// What clap calls the flag that names the file.
pub(crate) const CONFIG: &str = "config";

/// The command that has every setting.
const SERVE: &str = "serve";
/// It has no setting as a flag, but shows the presets.
const POLICY: &str = "policy";
/// What other commands share with it: which store is meant and its key, and what may be sent to.
const SHARED: [&str; 9] = [
    "data",
    "store",
    "secret_key_file",
    "allow_destination",
    "allow_port",
    "deny_port",
    "dns_server",
    "egress_proxy",
    "max_in_flight",
];

/// Reads the command line, and the file where the command has to do with one. Ends the process where
/// the command line is wrong, or asks for help.
pub(crate) fn read(command: impl Fn() -> Command) -> Result<(ArgMatches, Option<Loaded>), Failure> {
    let given = command().get_matches();
    let way = way(&given);
    if !concerns(&command(), &way) {
        return Ok((given, None));
    }
    let named = given.get_one::<PathBuf>(CONFIG).map(PathBuf::as_path);
    let Some(path) = find(named) else { return Ok((given, None)) };
    let loaded = reload(&path)?;
    let given = fill(command(), &way, &loaded.settings).get_matches();
    Ok((given, Some(loaded)))
}

/// What was given to the command itself, however deep it is.
pub(crate) fn innermost(given: &ArgMatches) -> &ArgMatches {
    let mut inner = given;
    while let Some((_, deeper)) = inner.subcommand() {
        inner = deeper;
    }
    inner
}

/// The names of the command and of those within it.
fn way(given: &ArgMatches) -> Vec<String> {
    let first = given.subcommand();
    let names = std::iter::successors(first, |(_, inner)| inner.subcommand());
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Whether a file can say something to a command.
fn concerns(command: &Command, way: &[String]) -> bool {
    if let [first, ..] = way
        && (first == SERVE || first == POLICY)
    {
        return true;
    }
    let mut inner = command;
    for name in way {
        let Some(found) = inner.find_subcommand(name) else { return false };
        inner = found;
    }
    SHARED.iter().any(|key| shares(inner, key))
}

/// Whether a flag of a command means what it means to `serve`.
fn shares(command: &Command, key: &str) -> bool {
    let flags = flags();
    let known = flags.iter().find(|flag| flag.key() == key);
    let own = command.get_arguments().find(|arg| arg.get_id() == key);
    match (known, own) {
        (Some(known), Some(own)) => known.arg.get_env() == own.get_env(),
        (_, _) => false,
    }
}

/// Puts what a file sets where a command has its defaults.
fn fill(command: Command, way: &[String], settings: &[FileSetting]) -> Command {
    match way {
        [] => {
            let shared = settings.iter().filter(|setting| {
                SHARED.contains(&setting.key.as_str()) && shares(&command, &setting.key)
            });
            let shared: Vec<_> = shared.cloned().collect();
            fill_here(command, &shared)
        }
        [name, ..] if name == SERVE => {
            command.mut_subcommand(name, |serve| fill_here(serve, settings))
        }
        [name, rest @ ..] => command.mut_subcommand(name, |inner| fill(inner, rest, settings)),
    }
}

/// Every setting has to be a flag of the command.
pub(super) fn fill_here(command: Command, settings: &[FileSetting]) -> Command {
    settings.iter().fold(command, |command, setting| {
        command.mut_arg(&setting.key, |arg| {
            arg.default_values(setting.values.clone()).hide_default_value(true)
        })
    })
}

impl Loaded {
    /// What it says of a flag, unless the command line or the environment said otherwise.
    pub(crate) fn in_force(&self, key: &str, given: &ArgMatches) -> Option<&FileSetting> {
        let said = self.settings.iter().find(|setting| setting.key == key)?;
        match given.value_source(key) {
            Some(ValueSource::CommandLine | ValueSource::EnvVariable) => None,
            Some(_) | None => Some(said),
        }
    }

    /// Says on which line a flag was set that a failure complains about, which it begins with.
    pub(crate) fn explain(&self, failure: Failure, given: &ArgMatches) -> Failure {
        let said = format!("{:#}", failure.error);
        let found = mentioned(&said).find_map(|flag| {
            let key = flag.replace('-', "_");
            let otherwise = matches!(
                given.try_get_raw(&key).map(|_| given.value_source(&key)),
                Ok(Some(ValueSource::CommandLine | ValueSource::EnvVariable))
            );
            // What somebody said to the process itself is what the complaint is about.
            if otherwise { Some(None) } else { self.in_force_known(&key, given).map(Some) }
        });
        match found.flatten() {
            Some(FileSetting { key, line, .. }) if failure.usage && said.starts_with("--") => {
                let path = self.path.display();
                Failure::usage(anyhow!("{path}:{line}: {key}: {said}"))
            }
            Some(_) | None => failure,
        }
    }

    /// Clap panics at the name of a flag that a command does not have.
    fn in_force_known(&self, key: &str, given: &ArgMatches) -> Option<&FileSetting> {
        given.try_get_raw(key).ok().and_then(|_| self.in_force(key, given))
    }
}

/// The flags in a sentence, without their dashes.
fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    text.split("--").skip(1).map(|rest| {
        let end = rest.find(|char: char| !char.is_ascii_lowercase() && char != '-');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    fn setting(line: &str) -> Vec<FileSetting> {
        let parsed = super::super::parse(line, |_| None, |_| Err(std::io::Error::other("none")));
        parsed.unwrap_or_else(|faults| panic!("{faults:?}")).settings
    }

    fn loaded(text: &str) -> Loaded {
        Loaded {
            path: "postrider.toml".into(),
            settings: setting(text),
            inbox: crate::settings::Inbox::default(),
            declared: super::super::Declared::default(),
        }
    }

    fn given(text: &str, arguments: &[&str]) -> ArgMatches {
        let arguments = [&["postrider"][..], arguments].concat();
        let way = way(&Cli::command().try_get_matches_from(&arguments).expect("valid"));
        let filled = fill(Cli::command(), &way, &setting(text));
        filled.try_get_matches_from(&arguments).expect("valid")
    }

    fn raw(given: &ArgMatches, key: &str) -> Vec<String> {
        let values = innermost(given).get_raw(key).into_iter().flatten();
        values.map(|value| value.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
        let file = "timeout = \"3s\"\nallow_port = [81, 82]\ndata = \"there\"\n";
        for (arguments, key, expected) in [
            (&["serve"][..], "timeout", &["3s"][..]),
            (&["serve", "--timeout", "4s"], "timeout", &["4s"]),
            (&["serve"], "drain", &["20s"]),
            (&["serve"], "allow_port", &["81", "82"]),
            (&["serve", "--allow-port", "83"], "allow_port", &["83"]),
            (&["serve"], "deny_port", &[]),
            (&["migrate"], "data", &["there"]),
            (&["migrate", "--data", "here"], "data", &["here"]),
            (&["rekey"], "data", &["there"]),
            (&["backup", "--to", "copy"], "data", &["there"]),
            (&["doctor"], "data", &["there"]),
            (&["doctor"], "allow_port", &["81", "82"]),
            (&["doctor", "--allow-port", "83"], "allow_port", &["83"]),
            (&["doctor"], "max_in_flight", &["1024"]),
        ] {
            assert_eq!(raw(&given(file, arguments), key), expected, "{arguments:?} {key}");
        }
    }

    /// Every command that can be run, by its whole name.
    fn commands(command: &Command, before: &str, found: &mut Vec<(String, Command)>) {
        for inner in command.get_subcommands() {
            let name = format!("{before}{}", inner.get_name());
            if inner.has_subcommands() {
                commands(inner, &format!("{name} "), found);
            } else {
                found.push((name, inner.clone()));
            }
        }
    }

    #[test]
    fn each_command_is_told_by_the_file_what_it_shares_with_the_gateway() {
        let mut found = Vec::new();
        commands(&Cli::command(), "", &mut found);
        for (name, command) in found {
            let expected = match name.as_str() {
                "serve" | "doctor" => &SHARED[..],
                "backup" | "migrate" | "rekey" => &["data", "store", "secret_key_file"],
                "copy" => &["secret_key_file"],
                _ => &[],
            };
            let shared: Vec<&str> =
                SHARED.into_iter().filter(|key| shares(&command, key)).collect();
            assert_eq!(shared, expected, "{name}");
        }
    }

    #[test]
    fn a_file_concerns_what_has_a_store_and_nothing_else() {
        for (arguments, concerned) in [
            (&["serve"][..], true),
            (&["migrate", "--check"], true),
            (&["rekey"], true),
            (&["doctor"], true),
            (&["backup", "--to", "copy"], true),
            (&["policy", "list"], true),
            (&["endpoints", "list"], false),
            (&["demo"], false),
            (&["config", "reference"], false),
        ] {
            let arguments = [&["postrider"][..], arguments].concat();
            let given = Cli::command().try_get_matches_from(&arguments).expect("valid");
            assert_eq!(concerns(&Cli::command(), &way(&given)), concerned, "{arguments:?}");
        }
    }

    #[test]
    fn a_complaint_about_a_flag_is_told_with_the_line_that_set_it() {
        let text = "drain = \"1s\"\nlanes = 64\nmax_in_flight = 0\n";
        let file = loaded(text);
        let explain = |arguments: &[&str], said: &str| {
            let given = given(text, arguments);
            let given = given.subcommand().expect("serve").1;
            let failure = Failure::usage(anyhow!(said.to_owned()));
            format!("{:#}", file.explain(failure, given).error)
        };
        let few = "--max-in-flight must be at least 1";
        let said = explain(&["serve"], few);
        assert_eq!(said, format!("postrider.toml:3: max_in_flight: {few}"));
        assert_eq!(explain(&["serve", "--max-in-flight", "0"], few), few);
        let beside = "--lanes is about PostgreSQL: name a server with --store";
        assert!(explain(&["serve"], beside).starts_with("postrider.toml:2: lanes: "));
        assert_eq!(explain(&["serve", "--lanes", "2"], beside), beside);
        for said in [
            "--nothing is known",
            "no flag at all",
            "--timeout is short",
            "--",
            "allow it with --drain",
        ] {
            assert_eq!(explain(&["serve"], said), said);
        }
    }
}

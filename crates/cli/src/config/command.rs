//! `postrider config`: checks a file, shows what is in force, prints the reference.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{ArgMatches, Command, FromArgMatches as _, Subcommand};
use postrider_server::{EffectiveSettings, Setting, SettingOrigin};
use serde_json::{Value, json};

use super::declared::{Item, Kind};
use super::{FILE, Loaded, Refused, arguments, find, reference, reload};
use crate::output::{OutputArgs, Table, inert};
use crate::serve::{self, effective};
use crate::settings::{Inbox, Knob};
use crate::{EXIT_USAGE, Failure, declared};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file holds every setting of `postrider serve` and what should be there: policies, hubs, sources, \
endpoints, tenants. It is postrider.toml of the working directory, or what --config or POSTRIDER_CONFIG \
names. A flag goes before a variable, a variable before the file.

Exit codes: 0 nothing is wrong; 1 failure; 2 the file cannot be used, or wrong usage.

Examples:
  postrider config check
  postrider config show --json
  postrider config reference > postrider.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Say whether a gateway could use a file, and everything that is wrong with it
    #[command(after_help = "\
Nothing is changed, no store is opened, nothing listens. What the file declares is tried on a gateway in \
memory that has no past; what it refers to with env: and file: has to be there.

Exit codes: 0 nothing is wrong; 1 failure; 2 something is: each fault is a line of the error output, with \
the file, the line and the key.

Examples:
  postrider config check
  postrider config check /etc/postrider/postrider.toml")]
    Check {
        /// The file [default: --config, or postrider.toml]
        path: Option<PathBuf>,
    },
    /// Show every setting in force, where it comes from, and what the file declares
    #[command(after_help = "\
It is what `postrider serve` would start with here: the same directory, variables and file. Secrets are \
not shown; where the file refers to one, the reference is.

Examples:
  postrider config show
  postrider config show --config /etc/postrider/postrider.toml --json")]
    Show {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print a file with every setting at its default, and what each is for
    #[command(after_help = "\
Example:
  postrider config reference > postrider.toml")]
    Reference {
        /// As a page of documentation
        #[arg(long)]
        markdown: bool,
    },
}

/// `named` is the file that --config or its variable names.
pub(crate) fn run(args: &Args, named: Option<&Path>) -> Result<ExitCode, Failure> {
    match &args.command {
        Sub::Check { path } => check(path.as_deref().or(named)),
        Sub::Show { output } => show(named, *output).map(|()| ExitCode::SUCCESS),
        Sub::Reference { markdown } => {
            let text = if *markdown { reference::markdown() } else { reference::toml() };
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(named: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(path) = find(named) else {
        return Err(Failure::usage(anyhow!("there is no {FILE} here: say which file is meant")));
    };
    let loaded = match reload(&path) {
        Ok(loaded) => loaded,
        Err(refused) => return Ok(tell(&refused)),
    };
    let started = Started::new(Some(&loaded));
    let explain = |failure| loaded.explain(failure, &started.given);
    effective::in_force(&started.given, &started.args, Some(&loaded)).map_err(explain)?;
    let options = serve::engine_options(&started.args, &loaded.inbox).map_err(explain)?;
    if !loaded.declared.items.is_empty() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let faults = runtime.block_on(declared::rehearse(&loaded.declared, options))?;
        if !faults.is_empty() {
            return Ok(tell(&Refused { path, faults }));
        }
    }
    println!("{}: {}: nothing wrong", path.display(), summary(&loaded));
    Ok(ExitCode::SUCCESS)
}

/// One fault a line, as editors and build servers read it.
fn tell(refused: &Refused) -> ExitCode {
    eprintln!("{refused}");
    EXIT_USAGE.into()
}

/// How much there is in a file.
fn summary(loaded: &Loaded) -> String {
    let settings = loaded.settings.len() + loaded.inbox.given.len();
    let settings = match settings {
        1 => "1 setting".to_owned(),
        many => format!("{many} settings"),
    };
    let counted = loaded.declared.counted();
    std::iter::once(settings).chain(counted).collect::<Vec<_>>().join(", ")
}

/// What `postrider serve` would be started with, if it were given no flag.
struct Started {
    given: ArgMatches,
    args: serve::Args,
}

impl Started {
    /// Ends the process if a variable is wrong.
    fn new(loaded: Option<&Loaded>) -> Self {
        let command = <serve::Args as clap::Args>::augment_args(Command::new("postrider serve"));
        let settings = loaded.map_or(&[][..], |loaded| &loaded.settings);
        let filled = arguments::fill_here(command, settings);
        let given =
            filled.try_get_matches_from(["postrider serve"]).unwrap_or_else(|error| error.exit());
        let args = serve::Args::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
        Self { given, args }
    }
}

fn show(named: Option<&Path>, output: OutputArgs) -> Result<(), Failure> {
    let loaded = match find(named) {
        Some(path) => Some(reload(&path)?),
        None => None,
    };
    let started = Started::new(loaded.as_ref());
    let explain = |failure| match &loaded {
        Some(loaded) => loaded.explain(failure, &started.given),
        None => failure,
    };
    let usual = Inbox::default();
    let inbox = loaded.as_ref().map_or(&usual, |loaded| &loaded.inbox);
    serve::engine_options(&started.args, inbox).map_err(explain)?;
    let settings = effective::in_force(&started.given, &started.args, loaded.as_ref());
    let settings = settings.map_err(explain)?;
    let answer = answer(&settings, loaded.as_ref());
    output.show(&answer, |out| write_all(out, &settings, loaded.as_ref()))?;
    Ok(())
}

fn answer(settings: &EffectiveSettings, loaded: Option<&Loaded>) -> Value {
    let all = settings.groups.iter().flat_map(|group| &group.settings);
    let settings: Vec<Value> = all
        .map(|setting| {
            let mut shown = json!({ "key": key(setting), "value": setting.value });
            shown["origin"] = match &setting.origin {
                SettingOrigin::Default => json!("default"),
                SettingOrigin::CommandLine => json!("command line"),
                SettingOrigin::Variable(name) => json!({ "variable": name }),
                SettingOrigin::File { path, line } => json!({ "file": path, "line": line }),
                SettingOrigin::Found => json!("found"),
            };
            shown
        })
        .collect();
    let declared = loaded.into_iter().flat_map(|loaded| &loaded.declared.items).map(|item| {
        let Item { kind, tenant, name, body: _, shown, lines } = item;
        json!({
            "kind": word(*kind), "tenant": tenant, "name": name, "line": lines.item, "fields": shown,
        })
    });
    json!({
        "file": loaded.map(|loaded| loaded.path.display().to_string()),
        "settings": settings,
        "prune": loaded.is_some_and(|loaded| loaded.declared.prune),
        "declared": declared.collect::<Vec<_>>(),
    })
}

fn write_all(
    out: &mut dyn Write,
    settings: &EffectiveSettings,
    loaded: Option<&Loaded>,
) -> io::Result<()> {
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for setting in settings.groups.iter().flat_map(|group| &group.settings) {
        let origin = match &setting.origin {
            SettingOrigin::Default => "default".to_owned(),
            SettingOrigin::CommandLine => "command line".to_owned(),
            SettingOrigin::Variable(name) => name.clone(),
            SettingOrigin::File { path, line } => format!("{path}:{line}"),
            SettingOrigin::Found => "found here".to_owned(),
        };
        table.row([key(setting), setting.value.clone(), origin]);
    }
    table.write(out)?;
    let Some(Loaded { path, declared, .. }) = loaded else {
        return writeln!(out, "\nNo file: there is no {FILE} here, and none was named.");
    };
    let shown = inert(&path.display().to_string());
    if declared.items.is_empty() {
        return writeln!(out, "\n{shown} declares nothing.");
    }
    let fate = if declared.prune { "deleted" } else { "left alone" };
    writeln!(out, "\n{shown} declares; what it does not any more is {fate}:\n")?;
    let mut table = Table::new(&["KIND", "TENANT", "NAME", "WHAT", "LINE"]);
    for item in &declared.items {
        table.row([
            word(item.kind).to_owned(),
            item.tenant.clone().unwrap_or_else(|| "default".to_owned()),
            item.name.clone(),
            gist(item),
            item.lines.item.to_string(),
        ]);
    }
    table.write(out)
}

/// The one thing about an item that tells it from others.
fn gist(item: &Item) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    match item.kind {
        Kind::Tenant | Kind::Hub => String::new(),
        Kind::Source => {
            let scheme = item.shown.get("verify").and_then(|verify| verify.get("scheme"));
            scheme.map(text).unwrap_or_default()
        }
        Kind::Endpoint => {
            let places = ["url", "hub", "command", "pull"];
            let found = places.iter().find_map(|place| Some((place, item.shown.get(*place)?)));
            match found {
                Some((&"url", url)) => text(url),
                Some((&"pull", _)) => "pull".to_owned(),
                Some((place, value)) => format!("{place} {}", text(value)),
                None => String::new(),
            }
        }
    }
}

/// As the file would have it.
fn key(setting: &Setting) -> String {
    let knob = Knob::ALL.into_iter().find(|knob| knob.variable() == setting.name);
    match knob {
        Some(knob) => format!("inbox.{}", knob.key()),
        None => setting.name.trim_start_matches('-').replace('-', "_"),
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenant => "tenant",
        Kind::Hub => "hub",
        Kind::Source => "source",
        Kind::Endpoint => "endpoint",
    }
}

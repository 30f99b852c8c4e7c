//! The settings in force, as the dashboard shows them to admins: every flag with its value and where
//! that comes from. What a flag marks as secret is never in it.

use std::net::SocketAddr;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use postrider_core::span;
use postrider_engine::NodeOptions;
use postrider_server::{EffectiveSettings, Setting, SettingOrigin, SettingsGroup};
use postrider_store::postgres;

use super::Args;
use crate::Failure;
use crate::config::Loaded;
use crate::settings::{Inbox, Knob};
use crate::stores::Place;

/// Which flags belong together, by what clap calls them, in the order in which they are shown.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Reaching it",
        &[
            "listen",
            "watch",
            "public_url",
            "requests_per_key",
            "requests_per_address",
            "max_event_bytes",
            "admin_key",
        ],
    ),
    (
        "Store and history",
        &[
            "data",
            "store",
            "secret_key_file",
            "housekeeping",
            "keep_delivered",
            "keep_failed",
            "keep_dead",
        ],
    ),
    ("Sending", &["max_in_flight", "timeout", "disable_after", "drain"]),
    (
        "Destinations",
        &[
            "allow_destination",
            "allow_port",
            "deny_port",
            "dns_server",
            "allow_command",
            "crl_file",
            "egress_proxy",
        ],
    ),
    ("Nodes", &["node_name", "lease", "lanes", "writers", "readers"]),
    ("Log and traces", &["log_format", "log", "otlp_endpoint", "otlp_header", "trace_sample"]),
];
pub(crate) const PRESET: &str = "The inbox preset";
/// Where flags are shown that no group names.
const REST: &str = "Others";

const UNSET: &str = "not set";
const HIDDEN: &str = "set, and not shown";

/// What is known once everything is in its place.
pub(super) struct Known<'a> {
    pub(super) address: SocketAddr,
    pub(super) place: &'a Place,
    pub(super) node: &'a NodeOptions,
    pub(super) pool: postgres::Options,
}

/// What would be in force in a gateway that is started like this, as far as that is known before.
pub(crate) fn in_force(
    given: &ArgMatches,
    args: &Args,
    loaded: Option<&Loaded>,
) -> Result<EffectiveSettings, Failure> {
    let place = args.store.place()?;
    args.node.check(&place)?;
    let node = args.node.options();
    let known = Known { address: args.listen, place: &place, node: &node, pool: args.node.pool() };
    Ok(settings(given, args, &known, loaded))
}

pub(super) fn settings(
    given: &ArgMatches,
    args: &Args,
    known: &Known<'_>,
    loaded: Option<&Loaded>,
) -> EffectiveSettings {
    let command = <Args as clap::Args>::augment_args(Command::new("serve"));
    let shown = |arg: &Arg| setting(arg, given, found(arg.get_id().as_str(), args, known), loaded);
    let grouped = |id: &str| GROUPS.iter().any(|(_, ids)| ids.contains(&id));
    let mut groups = Vec::new();
    for (name, ids) in GROUPS {
        let args =
            ids.iter().filter_map(|id| command.get_arguments().find(|arg| arg.get_id() == id));
        groups.push(SettingsGroup { name: name.to_owned(), settings: args.map(shown).collect() });
    }
    groups.push(SettingsGroup {
        name: PRESET.to_owned(),
        settings: preset(|name| std::env::var(name).ok(), loaded.map(|loaded| &loaded.inbox)),
    });
    let rest: Vec<_> =
        command.get_arguments().filter(|arg| !grouped(arg.get_id().as_str())).map(shown).collect();
    if !rest.is_empty() {
        groups.push(SettingsGroup { name: REST.to_owned(), settings: rest });
    }
    EffectiveSettings { groups }
}

/// What a setting has come to, where that is not what was given: worked out, or without a password.
fn found(id: &str, args: &Args, known: &Known<'_>) -> Option<String> {
    match id {
        "listen" => Some(known.address.to_string()),
        "store" => Some(known.place.to_string()),
        "egress_proxy" => args.outbound.egress_proxy.as_ref().map(ToString::to_string),
        "node_name" => Some(known.node.name.clone()),
        "lease" | "lanes" | "writers" | "readers" => Some(match known.place {
            Place::File(_) => "nothing: the store is a file".to_owned(),
            Place::Server(_) => match id {
                "lease" => span::format(known.node.lease),
                "lanes" => known.node.lanes.to_string(),
                "writers" => known.pool.writers.to_string(),
                _ => known.pool.journal_readers.to_string(),
            },
        }),
        "secret_key_file" => std::env::var_os("POSTRIDER_SECRET_KEY")
            .map(|_| "none: the key itself is in POSTRIDER_SECRET_KEY".to_owned()),
        _ => None,
    }
}

fn setting(
    arg: &Arg,
    given: &ArgMatches,
    found: Option<String>,
    loaded: Option<&Loaded>,
) -> Setting {
    let id = arg.get_id().as_str();
    let source = given.value_source(id);
    let said = loaded.and_then(|loaded| Some((loaded, loaded.in_force(id, given)?)));
    let origin = match (source, arg.get_env(), said) {
        (Some(ValueSource::CommandLine), _, _) => SettingOrigin::CommandLine,
        (Some(ValueSource::EnvVariable), Some(name), _) => {
            SettingOrigin::Variable(name.to_string_lossy().into_owned())
        }
        (_, _, Some((loaded, said))) => {
            SettingOrigin::File { path: loaded.path.display().to_string(), line: said.line }
        }
        (None, _, None) if found.is_some() => SettingOrigin::Found,
        (_, _, None) => SettingOrigin::Default,
    };
    let raw = given.get_raw(id).map(|values| {
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        values.join(", ")
    });
    let reference = said.and_then(|(_, said)| said.reference.clone());
    let value = match (reference, found, raw) {
        (Some(reference), _, _) => reference,
        (None, Some(found), _) => found,
        (None, None, None) => UNSET.to_owned(),
        (None, None, Some(_)) if arg.is_hide_env_values_set() => HIDDEN.to_owned(),
        (None, None, Some(raw)) => raw,
    };
    let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let name = arg.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}"));
    Setting { name, about, value, origin }
}

/// What the preset `inbox` was changed to. It has been found good.
fn preset(variable: impl Fn(&str) -> Option<String>, file: Option<&Inbox>) -> Vec<Setting> {
    let settings = Knob::ALL.into_iter().map(|knob| {
        let said = file.and_then(|file| Some((file, file.get(knob)?)));
        let (value, origin) = match (variable(knob.variable()), said) {
            (Some(value), _) => (value, SettingOrigin::Variable(knob.variable().to_owned())),
            (None, Some((file, said))) => {
                let path = file.path.display().to_string();
                (said.text.clone(), SettingOrigin::File { path, line: said.line })
            }
            (None, None) => (knob.usual(), SettingOrigin::Default),
        };
        let (name, about) = (knob.variable().to_owned(), knob.about().to_owned());
        Setting { name, about, value, origin }
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        serve: Args,
    }

    fn settings_of(arguments: &[&str]) -> Vec<Setting> {
        let given = Sample::command().get_matches_from([&["sample"][..], arguments].concat());
        let Sample { serve } = Sample::from_arg_matches(&given).expect("valid");
        let place = serve.store.place().unwrap_or_else(|failure| panic!("{failure:?}"));
        let address = "127.0.0.1:4321".parse().expect("an address");
        let node = NodeOptions { name: "office".into(), ..NodeOptions::default() };
        let known =
            Known { address, place: &place, node: &node, pool: postgres::Options::default() };
        settings(&given, &serve, &known, None)
            .groups
            .into_iter()
            .flat_map(|group| group.settings)
            .collect()
    }

    fn find<'a>(settings: &'a [Setting], name: &str) -> &'a Setting {
        settings.iter().find(|setting| setting.name == name).expect(name)
    }

    #[test]
    fn every_flag_is_in_a_group_and_says_where_its_value_comes_from() {
        let settings = settings_of(&["--timeout", "3s", "--allow-port", "81,82"]);
        for (name, value, origin) in [
            ("--timeout", "3s", SettingOrigin::CommandLine),
            ("--allow-port", "81, 82", SettingOrigin::CommandLine),
            ("--drain", "20s", SettingOrigin::Default),
            ("--listen", "127.0.0.1:4321", SettingOrigin::Default),
            ("--public-url", UNSET, SettingOrigin::Default),
            ("--node-name", "office", SettingOrigin::Found),
            ("--lanes", "nothing: the store is a file", SettingOrigin::Found),
            ("MAX_ATTEMPTS", "5", SettingOrigin::Default),
        ] {
            let found = find(&settings, name);
            assert_eq!((found.value.as_str(), &found.origin), (value, &origin), "{name}");
        }
        let command = <Args as clap::Args>::augment_args(Command::new("serve"));
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            let groups = GROUPS.iter().filter(|(_, ids)| ids.contains(&id)).count();
            assert_eq!(groups, 1, "{id}");
            assert!(!find(&settings, &format!("--{}", id.replace('_', "-"))).about.is_empty());
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let settings = settings_of(&[
            "--admin-key",
            "pr_hunter2hunter2hunter2hunter2hunter2",
            "--egress-proxy",
            "http://me:hunter2@proxy.example:3128",
            "--store",
            "postgres://me:hunter2@db.example/hooks",
        ]);
        assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
        assert_eq!(find(&settings, "--admin-key").value, HIDDEN);
        assert_eq!(find(&settings, "--egress-proxy").value, "proxy.example:3128");
        assert_eq!(find(&settings, "--store").value, "postgres://me@db.example/hooks");
        assert_eq!(find(&settings, "--lanes").value, "64");
        assert_eq!(find(&settings, "--readers").value, "2");
    }
}

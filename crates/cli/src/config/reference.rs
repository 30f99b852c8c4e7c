//! The reference of what can stand in a file, made from the flags and from the API themselves.

use std::fmt::Write as _;

use super::declared::Kind;
use super::flags::{Flag, Takes, example, flags};
use super::schema::Schema;
use crate::serve::effective::{GROUPS, PRESET};
use crate::settings::Knob;

/// The longest line of a comment.
const WIDTH: usize = 100;

/// What can be declared, as it would be.
pub(super) const DECLARED: &str = r#"# Delete what the file declared once and does not any more; otherwise it is left and named.
prune = false

# Named policies, for endpoints to name. A field is what the API calls it; "none" is no limit.
[policies.patient]
preset = "router"
max_attempts = "none"
max_age = "3d"

# An agent behind NAT. Without a token one is made, and printed once.
[hubs.home]
token = "file:/run/secrets/hub-token"

# An inbound URL.
[sources.github]
verify = { scheme = "github", secret = "env:GITHUB_SECRET" }

# Where events go. One of url, hub, pull or command.
[endpoints.billing]
url = "https://billing.example.com/hooks"
event_types = ["order.*"]
policy = "patient"
secret = "env:BILLING_SECRET"
headers = { Authorization = "env:BILLING_AUTHORIZATION" }

[endpoints.lamp]
hub = "home"
sources = ["github"]
policy = { preset = "edge", max_age = "1d" }

# The same within a tenant, which is made if it is not there.
[tenants.acme.endpoints.crm]
url = "https://crm.example.com/hooks"
"#;

const PRECEDENCE: &str = "A flag goes before its variable, a variable before the file, the file before \
     the default.";
const SECRETS: &str = "Secrets do not stand in the file: `env:NAME` is what the variable NAME holds, \
     `file:PATH` what a file holds, without the newline at its end. A relative PATH counts from the \
     folder of this file.";

/// A file with every setting at its default, all commented out.
pub(super) fn toml() -> String {
    let mut page = String::new();
    comment(
        &mut page,
        "Postrider reads this file as postrider.toml in its working directory, or where --config or POSTRIDER_CONFIG says. Check it with `postrider config check`.",
    );
    comment(&mut page, PRECEDENCE);
    comment(&mut page, SECRETS);
    let flags = flags();
    for (name, ids) in GROUPS {
        let _ = write!(page, "\n## {name}\n");
        for flag in ids.iter().filter_map(|id| flags.iter().find(|flag| flag.key() == *id)) {
            page.push('\n');
            comment(&mut page, &about(flag));
            let _ = writeln!(page, "#{} = {}", flag.key(), value(flag));
        }
    }
    let _ = write!(page, "\n## {PRESET}\n\n#[inbox]\n");
    for knob in Knob::ALL {
        comment(&mut page, knob.about());
        let _ = writeln!(page, "#{} = {}", knob.key(), knob_value(knob));
    }
    page.push_str("\n## What should be there\n\n");
    for line in DECLARED.lines() {
        let _ = match line {
            "" => writeln!(page),
            line if line.starts_with('#') => writeln!(page, "{line}"),
            line => writeln!(page, "#{line}"),
        };
    }
    page
}

/// The same as a page.
pub(super) fn markdown() -> String {
    let mut page = String::from(
        "<!-- Written by `cargo xtask docs` from the flags and the API; change those. -->\n\n\
         # Configuration\n\n\
         Everything that `postrider serve` can be told is a flag, a variable, and a key of a file. The \
         file is `postrider.toml` in the working directory, or what `--config PATH` or \
         `POSTRIDER_CONFIG` names; it has at most 1 MiB. ",
    );
    let _ = write!(
        page,
        "{PRECEDENCE} Commands that open the store (`migrate`, `rekey`, `backup`, `doctor`) take `data`, \
         `store` and `secret_key_file` from it as well.\n\n{SECRETS}\n\n\
         - `postrider config check` tells everything that is wrong, with file, line and key: \
         `postrider.toml:12: endpoints.billing.url: …`. A gateway does not start with such a file, and \
         one that runs keeps what it has.\n\
         - `postrider config show` tells every setting in force, and where it comes from.\n\
         - `postrider config reference` prints this page as a file to begin with.\n\n\
         ## Settings\n"
    );
    let flags = flags();
    for (name, ids) in GROUPS {
        let _ = write!(
            page,
            "\n### {name}\n\n| key | default | flag, variable | what it is |\n| --- | --- | --- | --- |\n"
        );
        for flag in ids.iter().filter_map(|id| flags.iter().find(|flag| flag.key() == *id)) {
            row(&mut page, flag);
        }
    }
    let _ = write!(
        page,
        "\n### {PRESET}\n\nIn `[inbox]`: what the preset `inbox` is.\n\n\
         | key | default | variable | what it is |\n| --- | --- | --- | --- |\n"
    );
    for knob in Knob::ALL {
        let (key, variable, about) = (knob.key(), knob.variable(), knob.about());
        let _ = writeln!(page, "| `{key}` | `{}` | `{variable}` | {about} |", knob_value(knob));
    }
    let _ = write!(
        page,
        "\n## What should be there\n\n\
         What a file declares is made, or changed until it is so, when a gateway starts and when it is \
         told to read the file again. The name of a table is the name of the thing, and by its name it \
         is known. What else there is in a gateway is left alone.\n\n```toml\n{DECLARED}```\n\n\
         Secrets have to be references: `secret`, `tls.client_key`, `verify.secret`, `verify.secrets`, \
         `token`. These may be: `url`, `headers`, `tls.client_cert`, `tls.ca`.\n"
    );
    for (title, schema) in [
        ("`[endpoints.NAME]`", Schema::of(Kind::Endpoint)),
        ("`[sources.NAME]`", Schema::of(Kind::Source)),
        ("`[hubs.NAME]`", Schema::of(Kind::Hub)),
        ("`[policies.NAME]`", Schema::policy()),
    ] {
        let _ = write!(page, "\n### {title}\n\n| key | what it is |\n| --- | --- |\n");
        for (name, about) in schema.fields().into_iter().filter(|(name, _)| *name != "name") {
            let _ = writeln!(page, "| `{name}` | {} |", cell(special(name).unwrap_or(about)));
        }
    }
    page
}

/// What differs from the API in a file.
fn special(field: &str) -> Option<&'static str> {
    match field {
        "hub" => {
            Some("The name of a hub that forwards deliveries to where it is, in place of `url`.")
        }
        "sources" => Some("Names of sources: only events that came in by one of these."),
        "policy" => Some(
            "When to try again and when to give up: the name of a policy in the file or of a preset, or a table.",
        ),
        "max_attempts" => {
            Some("How often to try; `\"none\"` is no limit, if there is a `max_age`.")
        }
        "max_age" => Some("How long to try, from the event's arrival; `\"none\"` is no limit."),
        _ => None,
    }
}

fn row(page: &mut String, flag: &Flag) {
    let variable = flag.arg.get_env().map(|name| name.to_string_lossy()).unwrap_or_default();
    let default = match default(flag) {
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    let long = flag.arg.get_long().unwrap_or_default();
    let key = flag.key();
    let about = cell(&about(flag));
    let _ = writeln!(page, "| `{key}` | {default} | `--{long}`<br>`{variable}` | {about} |");
}

/// On one line, without what would end a cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn about(flag: &Flag) -> String {
    let help = flag.arg.get_long_help().or_else(|| flag.arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    if flag.secret { format!("{help}. In the file by reference, where it is secret") } else { help }
}

/// As it would be written, where there is one.
fn default(flag: &Flag) -> Option<String> {
    let defaults = flag.arg.get_default_values();
    let written = |text: &str| match flag.takes {
        Takes::Text => format!("\"{text}\""),
        Takes::Number | Takes::Truth => text.to_owned(),
    };
    let mut defaults = defaults.iter().map(|text| written(&text.to_string_lossy()));
    match (flag.repeatable, flag.takes) {
        (true, _) => Some(format!("[{}]", defaults.collect::<Vec<_>>().join(", "))),
        (false, Takes::Truth) => Some(defaults.next().unwrap_or_else(|| "false".to_owned())),
        (false, Takes::Text | Takes::Number) => defaults.next(),
    }
}

fn value(flag: &Flag) -> String {
    match default(flag) {
        Some(empty) if empty == "[]" => example(flag),
        Some(default) => default,
        None => example(flag),
    }
}

fn knob_value(knob: Knob) -> String {
    match knob {
        Knob::BaseDelay | Knob::MaxDelay => format!("\"{}\"", knob.usual()),
        Knob::MaxAttempts => knob.usual(),
    }
}

/// Writes a text as a comment, in lines.
fn comment(page: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() >= WIDTH && line.len() > 1 {
            let _ = writeln!(page, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(page, "{line}");
}

//! What a file says, and what is wrong with it, on which line.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::declared::{Item, Kind};
use super::*;

const SECRET: &str = "hunter2hunter2hunter2";

/// The same for every test: nothing of the machine is looked at.
fn variable(name: &str) -> Option<String> {
    match name {
        "SECRET" | "GITHUB_SECRET" | "BILLING_SECRET" | "BILLING_AUTHORIZATION" => {
            Some(SECRET.to_owned())
        }
        "KEY" => Some(format!("pr_{SECRET}{SECRET}")),
        "DB" => Some(format!("postgres://me:{SECRET}@db.example/hooks")),
        "URL" => Some("https://hooks.example.com/secret-path".to_owned()),
        _ => None,
    }
}

fn file(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("secret" | "/run/secrets/hub-token") => Ok(format!("{SECRET}\n")),
        Some(_) | None => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

fn read(text: &str) -> Contents {
    parse(text, variable, file).unwrap_or_else(|faults| panic!("{faults:?} in {text}"))
}

fn refused(text: &str) -> Vec<Fault> {
    parse(text, variable, file).expect_err(text)
}

fn item<'a>(contents: &'a Contents, kind: Kind, name: &str) -> &'a Item {
    let mut items = contents.declared.items.iter();
    items.find(|item| item.kind == kind && item.name == name).expect(name)
}

#[test]
fn settings_are_what_their_flags_would_be() {
    let contents = read(
        r#"
        listen = "0.0.0.0:7070"
        allow_destination = ["10.0.0.0/8", "*.internal"]
        allow_port = [81, 0x52]
        max_in_flight = 2_000
        timeout = "3s"
        log_format = "json"
        store = "env:DB"
        deny_port = []
        "#,
    );
    let set: Vec<(&str, usize, Vec<&str>)> = contents
        .settings
        .iter()
        .map(|setting| {
            let values = setting.values.iter().map(String::as_str).collect();
            (setting.key.as_str(), setting.line, values)
        })
        .collect();
    let database = variable("DB").expect("it is set");
    let expected: [(&str, usize, Vec<&str>); 8] = [
        ("listen", 2, vec!["0.0.0.0:7070"]),
        ("allow_destination", 3, vec!["10.0.0.0/8", "*.internal"]),
        ("allow_port", 4, vec!["81", "82"]),
        ("max_in_flight", 5, vec!["2000"]),
        ("timeout", 6, vec!["3s"]),
        ("log_format", 7, vec!["json"]),
        ("store", 8, vec![database.as_str()]),
        ("deny_port", 9, vec![]),
    ];
    assert_eq!(set, expected);
    assert_eq!(contents.settings[6].reference.as_deref(), Some("env:DB"));
}

#[test]
fn the_example_of_the_reference_is_read_in_the_order_in_which_it_can_be_made() {
    let contents = read(reference::DECLARED);
    let order: Vec<(Kind, Option<&str>, &str)> = contents
        .declared
        .items
        .iter()
        .map(|item| (item.kind, item.tenant.as_deref(), item.name.as_str()))
        .collect();
    assert_eq!(
        order,
        [
            (Kind::Tenant, None, "acme"),
            (Kind::Hub, None, "home"),
            (Kind::Source, None, "github"),
            (Kind::Endpoint, None, "billing"),
            (Kind::Endpoint, None, "lamp"),
            (Kind::Endpoint, Some("acme"), "crm"),
        ]
    );
    assert!(!contents.declared.prune);
    let billing = item(&contents, Kind::Endpoint, "billing");
    assert_eq!(
        Value::Object(billing.body.clone()),
        json!({
            "name": "billing",
            "url": "https://billing.example.com/hooks",
            "event_types": ["order.*"],
            "policy": { "preset": "router", "max_attempts": null, "max_age": "3d" },
            "secret": SECRET,
            "headers": { "Authorization": SECRET },
        })
    );
    assert_eq!(billing.shown["policy"], "patient");
    assert_eq!(billing.shown["secret"], "env:BILLING_SECRET");
    let hub = item(&contents, Kind::Hub, "home");
    assert_eq!(hub.body["token"], SECRET, "the newline at the end of a file is none of the secret");
    let lamp = item(&contents, Kind::Endpoint, "lamp");
    assert_eq!((&lamp.body["hub"], &lamp.body["sources"]), (&json!("home"), &json!(["github"])));
    assert_eq!(contents.declared.counted().join(", "), "3 endpoints, 1 source, 1 hub, 1 tenant");
}

#[test]
fn fields_have_the_lines_that_they_stand_on() {
    let text = "\
[policies.patient]
max_attempts = 3
[endpoints.billing]
url = \"env:URL\"
policy = \"patient\"
event_types = [
  \"a\",
  \"b\",
]
headers.X-One = \"1\"
";
    let contents = read(text);
    let billing = item(&contents, Kind::Endpoint, "billing");
    for (field, line) in [
        ("url", 4),
        ("policy", 5),
        ("policy.max_attempts", 2),
        ("policy.schedule.list[0]", 5),
        ("event_types[1]", 8),
        ("headers.X-One", 10),
        ("hub", 3),
    ] {
        assert_eq!(billing.lines.of(field), line, "{field}");
    }
    assert_eq!(billing.body["url"], "https://hooks.example.com/secret-path");
    assert_eq!(billing.shown["url"], "env:URL");
    assert_eq!(billing.shown["headers"]["X-One"], "…");
}

#[test]
fn a_policy_of_a_tenant_goes_before_one_of_the_same_name() {
    let contents = read(
        r#"
        [policies.mine]
        max_attempts = 3
        [policies.other]
        max_attempts = 4
        [endpoints.a]
        url = "https://a.example.com"
        policy = "mine"
        [tenants.acme.policies.mine]
        max_attempts = 5
        [tenants.acme.endpoints.b]
        url = "https://b.example.com"
        policy = "mine"
        [tenants.acme.endpoints.c]
        url = "https://c.example.com"
        policy = "other"
        "#,
    );
    for (name, attempts) in [("a", 3), ("b", 5), ("c", 4)] {
        let endpoint = item(&contents, Kind::Endpoint, name);
        assert_eq!(endpoint.body["policy"]["max_attempts"], attempts, "{name}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_its_key() {
    let cases = [
        // TOML itself.
        ("listen = ", 1, "", ""),
        ("a = 1\n\nlisten = \"x", 3, "", ""),
        ("[endpoints.a]\n[endpoints.a]", 2, "", "duplicate"),
        ("drain = \"1s\"\ndrain = \"2s\"", 2, "", "duplicate"),
        // Settings.
        ("lisen = \"x\"", 1, "lisen", "did you mean listen?"),
        ("\nallow-destination = []", 2, "allow-destination", "did you mean allow_destination?"),
        ("colour = 1", 1, "colour", "config reference"),
        ("config = \"x\"", 1, "config", "not known"),
        ("listen = 7070", 1, "listen", "must be a text in quotes, not a number"),
        ("listen = \"somewhere\"", 1, "listen", "invalid socket address"),
        ("timeout = 15", 1, "timeout", "must be a text in quotes"),
        ("timeout = \"soon\"", 1, "timeout", "soon"),
        ("max_in_flight = \"12\"", 1, "max_in_flight", "a number without quotes"),
        ("max_in_flight = 1.5", 1, "max_in_flight", "invalid digit"),
        ("max_in_flight = -1", 1, "max_in_flight", "invalid digit"),
        ("lanes = 5000", 1, "lanes", "5000 is not in 1..=4096"),
        ("lanes = 99999999999999999999", 1, "lanes", "larger than"),
        ("log_format = \"xml\"", 1, "log_format", "must be one of text, json"),
        ("public_url = \"\"", 1, "public_url", "expected a URL"),
        ("drain = 1979-05-27", 1, "drain", "not a date"),
        ("allow_destination = \"10.0.0.0/8\"", 1, "allow_destination", "must be a list"),
        ("allow_port = [\n  81,\n  70000,\n]", 3, "allow_port[1]", "70000 is not in"),
        ("allow_destination = [\"10.0.0.0/8,::1\"]", 1, "allow_destination[0]", "one value"),
        ("listen = { a = 1 }", 1, "listen", "not a table"),
        ("admin_key = \"env:NONE\"", 1, "admin_key", "NONE is not set"),
        ("store = \"file:nowhere\"", 1, "store", "cannot read the file nowhere"),
        ("egress_proxy = \"env:SECRET\"", 1, "egress_proxy", "cannot be used here"),
        // The preset.
        ("inbox = 5", 1, "inbox", "must be a table"),
        ("[inbox]\nbase_delay = \"soon\"", 2, "inbox.base_delay", "soon"),
        ("[inbox]\nmax_attempts = true", 2, "inbox.max_attempts", "a text or a number"),
        ("[inbox]\nmax_attempt = 3", 2, "inbox.max_attempt", "did you mean max_attempts?"),
        ("\n[inbox]\nmax_attempts = 0", 2, "inbox", "max_attempts"),
        // What is declared.
        ("prune = \"yes\"", 1, "prune", "must be true or false"),
        ("endpoints = 5", 1, "endpoints", "must be a table"),
        ("[[endpoints]]\nname = \"a\"", 1, "endpoints", "must be a table"),
        ("[endpoints]\nurl = \"https://a\"", 2, "endpoints.url", "must be a table"),
        ("[endpoint.a]", 1, "endpoint", "did you mean endpoints?"),
        ("[endpoints.a]\nuri = \"https://a\"", 2, "endpoints.a.uri", "did you mean url?"),
        ("[endpoints.a]\nname = \"b\"", 2, "endpoints.a.name", "called what its table"),
        ("[endpoints.a]\nevent_types = [\"x\", 1]", 2, "endpoints.a.event_types[1]", "a text"),
        ("[endpoints.\"\"]\npull = true", 1, "endpoints.\"\"", "a name has"),
        ("[endpoints.\"a\\u0007\"]\npull = true", 1, "endpoints.\"a\\u{7}\"", "a name has"),
        ("[endpoints.a]\nmetadata.at = 1979-05-27", 2, "endpoints.a.metadata.at", "is a date"),
        ("[endpoints.a]\nmetadata.n = nan", 2, "endpoints.a.metadata.n", "counted"),
        (
            "[endpoints.a]\npolicy = \"patent\"\n[policies.patient]\nmax_attempts = 1",
            2,
            "endpoints.a.policy",
            "did you mean patient?",
        ),
        ("[endpoints.a]\npolicy = \"what\"", 2, "endpoints.a.policy", "standard, inbox"),
        (
            "[endpoints.a]\npolicy.max_attempt = 3",
            2,
            "endpoints.a.policy.max_attempt",
            "max_attempts",
        ),
        ("[policies.edge]\nmax_age = \"1d\"", 1, "policies.edge", "name of a preset"),
        ("[policies.p]\npreset = \"rooter\"", 2, "policies.p.preset", "rooter"),
        ("[policies.p]\nmax_age = \"soon\"", 2, "policies.p.max_age", "soon"),
        ("[policies.p]\nmax_age = 5", 2, "policies.p.max_age", "must be a text"),
        ("[policies.p]\n\nmax_attempts = 0", 3, "policies.p.max_attempts", ""),
        ("[policies]\np = 3", 2, "policies.p", "must be a table"),
        ("[tenants.default.endpoints.a]\npull = true", 1, "tenants.default", "no [tenants.…]"),
        ("[tenants.acme]\nendpoint = {}", 2, "tenants.acme.endpoint", "did you mean endpoints?"),
        ("[tenants.acme.endpoints.a]\nurl = 3", 2, "tenants.acme.endpoints.a.url", "a text"),
        ("tenants.acme = 3", 1, "tenants.acme", "must be a table"),
        ("[hubs.h]\ncolour = 3", 2, "hubs.h.colour", "not known"),
        // Secrets.
        ("[hubs.h]\ntoken = \"env:NONE\"", 2, "hubs.h.token", "NONE is not set"),
        (
            "[sources.s]\nverify = { scheme = \"github\", secret = \"file:x\" }",
            2,
            "sources.s.verify.secret",
            "cannot read the file x",
        ),
        ("[policies.p]\npreset = \"a\\u001b[2J\"", 2, "policies.p.preset", "`a\\u{1b}[2J`"),
        (
            "[endpoints.a]\nheaders = { X = \"Bearer env:SECRET\" }",
            2,
            "endpoints.a.headers.X",
            "the whole value",
        ),
    ];
    for (text, line, key, word) in cases {
        let faults = refused(text);
        let [fault] = faults.as_slice() else { panic!("{text}: {faults:?}") };
        assert_eq!((fault.line, fault.key.as_str()), (line, key), "{text}: {fault:?}");
        assert!(fault.message.contains(word), "{text}: {fault:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_in_the_order_of_the_file() {
    let faults = refused(
        "listen = 1\n[endpoints.a]\nurl = 2\nsecret = \"x\"\n[hubs.h]\ntoken = 5\n[colours]\n",
    );
    let places: Vec<(usize, &str)> =
        faults.iter().map(|fault| (fault.line, fault.key.as_str())).collect();
    assert_eq!(places[0], (1, "listen"), "{faults:?}");
    let lines: Vec<usize> = places.iter().map(|(line, _)| *line).collect();
    assert!(lines.is_sorted(), "{faults:?}");
    for place in
        [(3, "endpoints.a.url"), (4, "endpoints.a.secret"), (6, "hubs.h.token"), (7, "colours")]
    {
        assert!(places.contains(&place), "{place:?} in {faults:?}");
    }
}

#[test]
fn a_secret_in_the_file_is_refused_and_not_repeated() {
    for (text, key) in [
        (format!("admin_key = \"pr_{SECRET}\""), "admin_key"),
        (format!("store = \"postgres://me:{SECRET}@db/hooks\""), "store"),
        (format!("egress_proxy = \"http://me:{SECRET}@proxy:3128\""), "egress_proxy"),
        (format!("[endpoints.a]\npull = true\nsecret = \"{SECRET}\""), "endpoints.a.secret"),
        (format!("[endpoints.a]\npull = true\nsecret = [\"{SECRET}\"]"), "endpoints.a.secret"),
        (
            format!("[endpoints.a]\npull = true\ntls.client_key = \"{SECRET}\""),
            "endpoints.a.tls.client_key",
        ),
        (
            format!("[sources.a]\nverify = {{ scheme = \"github\", secret = \"{SECRET}\" }}"),
            "sources.a.verify.secret",
        ),
        (
            format!("[sources.a]\nverify = {{ scheme = \"github\", secrets = [\"{SECRET}\"] }}"),
            "sources.a.verify.secrets[0]",
        ),
        (format!("[sources.a]\nverify = \"{SECRET}\""), "sources.a.verify"),
        (format!("[hubs.a]\ntoken = \"{SECRET}\""), "hubs.a.token"),
        (format!("admin_key = \"{SECRET}"), ""),
        (format!("admin_key = {SECRET}"), ""),
        (format!("[hubs.a]\ntoken = \"{SECRET}\" \"{SECRET}\""), ""),
    ] {
        let faults = refused(&text);
        assert!(faults.iter().any(|fault| fault.key == key), "{text}: {faults:?}");
        assert!(!format!("{faults:?}").contains(SECRET), "{faults:?}");
        let refused = Refused { path: "postrider.toml".into(), faults };
        assert!(!refused.to_string().contains(SECRET), "{refused}");
    }
}

#[test]
fn what_was_read_shows_no_secret() {
    let contents =
        read(&format!("admin_key = \"env:KEY\"\nstore = \"env:DB\"\n{}", reference::DECLARED));
    assert!(contents.settings[0].values[0].contains(SECRET), "it is there");
    let shown = format!("{contents:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    for item in &contents.declared.items {
        let shown = Value::Object(item.shown.clone()).to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_fault_is_told_with_the_file() {
    let fault = |line, key: &str| Fault { line, key: key.into(), message: "is wrong".into() };
    for (fault, told_as) in [
        (fault(12, "endpoints.billing.url"), "p.toml:12: endpoints.billing.url: is wrong"),
        (fault(3, ""), "p.toml:3: is wrong"),
        (fault(0, ""), "p.toml: is wrong"),
    ] {
        assert_eq!(told(Path::new("p.toml"), &fault), told_as);
    }
}

#[test]
fn a_file_is_read_with_what_is_beside_it_and_up_to_a_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("postrider.toml");
    std::fs::write(folder.path().join("token"), "hub_secret\n").expect("written");
    std::fs::write(&path, "[hubs.h]\ntoken = \"file:token\"\n").expect("written");
    let loaded = reload(&path).expect("it is sound");
    assert_eq!(loaded.declared.items[0].body["token"], "hub_secret");
    assert!(!format!("{loaded:?}").contains("hub_secret"));

    for (bytes, line, word) in [
        (b"drain = \"1s\"\n\xff".to_vec(), 2, "UTF-8"),
        (vec![b'#'; MAX_FILE_BYTES + 1], 0, "larger than"),
    ] {
        std::fs::write(&path, bytes).expect("written");
        let refused = reload(&path).expect_err("refused");
        assert_eq!(refused.faults.len(), 1, "{refused}");
        assert_eq!(refused.faults[0].line, line, "{refused}");
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let nowhere = reload(&folder.path().join("nowhere.toml")).expect_err("refused");
    assert!(nowhere.to_string().contains("nowhere.toml: cannot be read"), "{nowhere}");
}

#[test]
fn the_reference_is_a_file_of_which_every_line_can_be_used() {
    let reference = reference::toml();
    assert_eq!(read(&reference).settings, [], "everything is commented out");
    let settings = reference.split("## What should be there").next().expect("a beginning");
    let flags = flags::flags();
    let mut seen = Vec::new();
    for line in settings.lines().filter_map(|line| line.strip_prefix('#')) {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let Some(flag) = flags.iter().find(|flag| flag.key() == key) else { continue };
        seen.push(key.to_owned());
        if !flag.arg.get_default_values().is_empty() {
            read(&format!("{key} = {value}"));
        }
    }
    assert_eq!(seen.len(), flags.len(), "every flag is in it once");
    let page = reference::markdown();
    for flag in &flags {
        assert!(page.contains(&format!("| `{}` |", flag.key())), "{}", flag.key());
    }
}

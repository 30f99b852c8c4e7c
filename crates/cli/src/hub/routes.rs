//! The file that says which endpoint goes where.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use postrider_client::hub::Routes;

/// More than any file of routes needs.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub(super) fn read(file: &Path) -> anyhow::Result<Routes> {
    let shown = file.display();
    let text = load(file).with_context(|| format!("--routes: {shown}"))?;
    let form = match file.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("json") => Form::Json,
        Some(_) | None => Form::Toml,
    };
    parse(&text, form).with_context(|| format!("--routes: {shown}"))
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Toml,
    Json,
}

fn load(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    ensure!(read as u64 <= MAX_FILE_BYTES, "it is larger than {MAX_FILE_BYTES} bytes");
    Ok(text)
}

fn parse(text: &str, form: Form) -> anyhow::Result<Routes> {
    let wanted = "expected a URL for each endpoint, such as orders = \"http://localhost:3000\"";
    let table: BTreeMap<String, String> = match form {
        Form::Toml => toml::from_str(text).context(wanted)?,
        Form::Json => serde_json::from_str(text).context(wanted)?,
    };
    let mut routes = Routes::default();
    for (endpoint, url) in &table {
        routes.send(endpoint, url)?;
    }
    if routes.is_empty() {
        return Err(anyhow!("there is no route in it"));
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_routes_is_toml_or_json() {
        let toml = r#"
            # Orders go to the shop.
            orders = "http://localhost:3000/orders"
            "Mail & more" = "http://localhost:4000"
            ep_06dqrbzg00000 = "https://shop.internal/"
        "#;
        let json = r#"{
            "orders": "http://localhost:3000/orders",
            "Mail & more": "http://localhost:4000",
            "ep_06dqrbzg00000": "https://shop.internal/"
        }"#;
        let one = parse(toml, Form::Toml).expect("TOML");
        let other = parse(json, Form::Json).expect("JSON");
        let shown = |routes: &Routes, name: &str| format!("{routes:?}").contains(name);
        for name in ["orders", "Mail & more", "ep_06dqrbzg00000"] {
            assert!(shown(&one, name) && shown(&other, name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, form, word) in [
            ("", Form::Toml, "no route"),
            ("{}", Form::Json, "no route"),
            ("orders = 3000", Form::Toml, "expected a URL for each endpoint"),
            ("[orders]\nurl = \"http://localhost\"", Form::Toml, "expected a URL"),
            ("orders: http://localhost", Form::Toml, "expected a URL"),
            ("[]", Form::Json, "expected a URL"),
            ("orders = \"localhost:3000\"", Form::Toml, "the URL for \"orders\" must begin"),
            (r#"{"orders":"http://me:hunter2@localhost"}"#, Form::Json, "no user name"),
        ] {
            let said = format!("{:#}", parse(text, form).expect_err(text));
            assert!(said.contains(word), "{text}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_file_is_read_by_its_ending_and_named_in_what_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        read(&write("routes.JSON", r#"{"a":"http://localhost"}"#)).expect("JSON");
        read(&write("routes", "a = \"http://localhost\"")).expect("TOML");
        let error = read(&write("bad.toml", "a = ")).expect_err("no TOML");
        assert!(format!("{error:#}").contains("bad.toml"), "{error:#}");
        let large = "#".repeat(usize::try_from(MAX_FILE_BYTES).expect("small") + 1);
        let error = read(&write("large.toml", &large)).expect_err("too large");
        assert!(format!("{error:#}").contains("larger than"), "{error:#}");
    }
}

//! A request as a command line for `curl` that a person can paste into a shell, whatever is in it.
//!
//! Within single quotes a shell changes nothing, so only the quote itself is escaped. What a terminal
//! would act upon while it is pasted (control characters, which can end the paste, and characters that
//! turn or hide text) is never in the command: such a body comes from a file.

use std::fmt::Write as _;

use crate::dashboard::words;

/// The longest body that stands in the command itself.
pub(crate) const MAX_INLINE_BYTES: usize = 8 << 10;

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(String, String)>,
    /// None where it is too long to be looked at here.
    pub(crate) body: Option<&'a [u8]>,
    /// The name of the file that has the body.
    pub(crate) file: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) text: String,
    /// The body has to be downloaded first.
    pub(crate) needs_file: bool,
    /// How many headers could not be written.
    pub(crate) left_out: usize,
}

/// None where the URL cannot be written.
pub(crate) fn command(request: &Request<'_>) -> Option<Command> {
    // As it is sent: no spaces, no other alphabets.
    let url = url::Url::parse(request.url).ok().map(String::from).filter(|url| is_plain(url))?;
    // Brackets and braces in a URL mean themselves.
    let mut text = format!("curl --globoff --request POST --url {}", quote(&url));
    let mut left_out = 0;
    for (name, value) in &request.headers {
        if !is_plain(name) || !is_line(value) {
            left_out += 1;
            continue;
        }
        // With a colon and nothing after it, curl would leave the header out.
        let header = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
        // Writing to a String cannot fail.
        let _ = write!(text, " \\\n  --header {}", quote(&header));
    }
    let inline = request
        .body
        .filter(|body| body.len() <= MAX_INLINE_BYTES)
        .and_then(|body| std::str::from_utf8(body).ok())
        .filter(|body| body.split('\n').all(is_line));
    let data = match inline {
        // Unlike the others this one does not take `@` for the name of a file.
        Some(body) => format!("--data-raw {}", quote(body)),
        None => format!("--data-binary {}", quote(&format!("@{}", request.file))),
    };
    let _ = write!(text, " \\\n  {data}");
    Some(Command { text, needs_file: inline.is_none(), left_out })
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Text of one line in which every character is only what it looks like.
fn is_line(text: &str) -> bool {
    !text.contains(['\n', '\t']) && words::inert_to(text, text.len()).as_str() == text
}

/// The same without spaces.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    fn request<'a>(headers: &[(&str, &str)], body: &'a [u8]) -> Request<'a> {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let (url, file) = ("https://example.com/a b?{c}", "evt_1.bin");
        Request { url, headers: headers.collect(), body: Some(body), file }
    }

    /// What a shell makes of a command: its words.
    fn words(command: &str) -> Vec<String> {
        let script = format!("curl() {{ printf '%s\\0' \"$@\"; }}\n{command}");
        let output = Process::new("sh").arg("-c").arg(script).output().expect("a shell");
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
        let words = String::from_utf8(output.stdout).expect("text");
        words.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn a_shell_gives_curl_exactly_the_request() {
        for body in [
            "",
            r#"{"a": "it's"}"#,
            "'; rm -rf / #",
            "'\\''",
            "$(id) `id` ${HOME} !! \\ \\\n \" * ~ & | < >",
            "two\nlines\n",
            "@/etc/passwd",
            "-K /etc/passwd",
            "<script>alert(1)</script>",
            "grüße 你好",
        ] {
            let headers =
                [("x-a", "it's $HOME"), ("x-empty", ""), ("content-type", "a/b; c=\"d\"")];
            let command = command(&request(&headers, body.as_bytes())).expect("a command");
            assert!(!command.needs_file && command.left_out == 0, "{command:?}");
            let expected = [
                "--globoff",
                "--request",
                "POST",
                "--url",
                "https://example.com/a%20b?{c}",
                "--header",
                "x-a: it's $HOME",
                "--header",
                "x-empty;",
                "--header",
                "content-type: a/b; c=\"d\"",
                "--data-raw",
                body,
            ];
            assert_eq!(words(&command.text), expected);
        }
    }

    #[test]
    fn what_a_terminal_would_act_upon_comes_from_a_file() {
        let long = vec![b'a'; MAX_INLINE_BYTES + 1];
        for body in [
            &b"\x1b[201~id\n"[..],
            b"\x1b]0;title\x07",
            b"a\rb",
            b"a\tb",
            b"a\0b",
            b"\xff\xfe",
            "\u{202e}txt.exe".as_bytes(),
            "\u{200b}".as_bytes(),
            "\u{9b}31m".as_bytes(),
            &long,
        ] {
            let command = command(&request(&[], body)).expect("a command");
            assert!(command.needs_file, "{body:?}");
            assert!(command.text.ends_with("--data-binary '@evt_1.bin'"), "{}", command.text);
        }
        let unread = Request { body: None, ..request(&[], b"") };
        assert!(command(&unread).is_some_and(|command| command.needs_file));
    }

    #[test]
    fn headers_that_cannot_be_pasted_are_left_out_and_counted() {
        let headers = [("x-a", "a\tb"), ("x b", "1"), ("x-c", "\u{202e}"), ("x-d", "1")];
        let command = command(&request(&headers, b"")).expect("a command");
        assert_eq!(command.left_out, 3);
        assert!(command.text.contains("'x-d: 1'") && !command.text.contains("x-a"));
    }

    #[test]
    fn without_a_url_there_is_no_command() {
        for url in ["", "not a url", "\u{202e}"] {
            assert_eq!(command(&Request { url, ..request(&[], b"") }), None);
        }
    }
}

//! Reading what `strace -f -y` wrote: one line for each call, or two where others came between its
//! beginning and its end.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// A line that tells of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) thread: u32,
    pub(super) told: Told,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    Whole(Call, Outcome),
    Begun(Call),
    Ended(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    /// A string that was passed, byte by byte.
    Bytes(Vec<u8>),
    /// A descriptor with the path of what it is open on.
    Open(PathBuf),
    /// A structure: the strings in it, one after the other.
    Nested(Vec<u8>),
    /// Anything else, as it is written.
    Word(String),
}

/// What a call returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// None where it did not return.
    pub(super) value: Option<i64>,
    /// The path of a descriptor that was returned.
    pub(super) path: Option<PathBuf>,
}

impl Call {
    pub(super) fn bytes(&self, index: usize) -> Result<&[u8]> {
        match self.arguments.get(index) {
            Some(Argument::Bytes(bytes)) => Ok(bytes),
            Some(Argument::Open(_) | Argument::Nested(_) | Argument::Word(_)) | None => {
                bail!("no string at {index} in {}", self.name)
            }
        }
    }

    /// What the descriptor at `index` is open on. None if it is something without a path.
    pub(super) fn open(&self, index: usize) -> Option<&Path> {
        match self.arguments.get(index)? {
            Argument::Open(path) => Some(path),
            Argument::Bytes(_) | Argument::Nested(_) | Argument::Word(_) => None,
        }
    }

    pub(super) fn word(&self, index: usize) -> Result<&str> {
        match self.arguments.get(index) {
            Some(Argument::Word(word)) => Ok(word),
            Some(Argument::Open(_) | Argument::Nested(_) | Argument::Bytes(_)) | None => {
                bail!("no plain argument at {index} in {}", self.name)
            }
        }
    }

    pub(super) fn number(&self, index: usize) -> Result<u64> {
        let word = self.word(index)?;
        word.parse().with_context(|| format!("{word} is no number in {}", self.name))
    }

    /// A path argument; a relative one belongs to the descriptor before it.
    pub(super) fn path(&self, index: usize) -> Result<PathBuf> {
        let path = Path::new(std::str::from_utf8(self.bytes(index)?)?);
        let folder = index.checked_sub(1).and_then(|before| self.open(before));
        Ok(folder.map_or_else(|| path.to_owned(), |folder| folder.join(path)))
    }

    /// Every byte that is passed, in order: what a call sends.
    pub(super) fn sent(&self) -> Vec<u8> {
        let mut sent = Vec::new();
        for argument in &self.arguments {
            match argument {
                Argument::Bytes(bytes) | Argument::Nested(bytes) => sent.extend(bytes),
                Argument::Open(_) | Argument::Word(_) => {}
            }
        }
        sent
    }
}

/// None for a line that tells of no call: a signal, or the end of a thread.
pub(super) fn read(line: &[u8]) -> Result<Option<Line>> {
    let mut scan = Scan { text: line, at: 0 };
    let thread = scan.digits().context("no thread at the beginning of a line")?;
    let thread = u32::try_from(thread)?;
    scan.blanks();
    if scan.rest().starts_with(b"+++ ") || scan.rest().starts_with(b"--- ") {
        return Ok(None);
    }
    let told = if scan.skip(b"<... ") {
        scan.until(b" resumed>")?;
        // What follows of the arguments was not known before; nothing here needs it.
        scan.arguments()?;
        Told::Ended(scan.outcome()?)
    } else {
        let name = String::from_utf8(scan.until(b"(")?.to_vec())?;
        let (arguments, finished) = scan.arguments()?;
        let call = Call { name, arguments };
        if finished { Told::Whole(call, scan.outcome()?) } else { Told::Begun(call) }
    };
    Ok(Some(Line { thread, told }))
}

const UNFINISHED: &[u8] = b"<unfinished ...>";

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8> {
        let byte = self.peek().context("a line that breaks off")?;
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, prefix: &[u8]) -> bool {
        let there = self.rest().starts_with(prefix);
        if there {
            self.at += prefix.len();
        }
        there
    }

    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn digits(&mut self) -> Option<u64> {
        let rest = self.rest();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }

    /// What is before `mark`, which is skipped.
    fn until(&mut self, mark: &[u8]) -> Result<&'a [u8]> {
        let rest = self.rest();
        let found = rest.windows(mark.len()).position(|window| window == mark);
        let before = found.with_context(|| format!("no {:?}", String::from_utf8_lossy(mark)))?;
        self.at += before + mark.len();
        Ok(&rest[..before])
    }

    /// Up to the closing parenthesis; false if the call was not finished there.
    fn arguments(&mut self) -> Result<(Vec<Argument>, bool)> {
        let mut arguments = Vec::new();
        loop {
            while matches!(self.peek(), Some(b' ' | b',')) {
                self.at += 1;
            }
            if self.skip(UNFINISHED) {
                return Ok((arguments, false));
            }
            match self.peek().context("a line that breaks off among arguments")? {
                b')' => {
                    self.at += 1;
                    return Ok((arguments, true));
                }
                b'"' => arguments.push(Argument::Bytes(self.string()?)),
                b'[' | b'{' => arguments.push(Argument::Nested(self.nested()?)),
                _ => arguments.push(self.word()?),
            }
        }
    }

    /// A string in quotes. One that was cut short would make a file that never was.
    fn string(&mut self) -> Result<Vec<u8>> {
        self.next()?;
        let bytes = self.escaped(b'"')?;
        ensure!(!self.rest().starts_with(b"..."), "a string that strace cut short");
        Ok(bytes)
    }

    /// What C would make of it, up to `end`.
    fn escaped(&mut self, end: u8) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                byte if byte == end => return Ok(bytes),
                b'\\' => {
                    let byte = match self.next()? {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'v' => 0x0b,
                        b'f' => 0x0c,
                        first @ b'0'..=b'7' => self.octal(first)?,
                        plain @ (b'\\' | b'"') => plain,
                        other => bail!("an escape that is not known: \\{}", char::from(other)),
                    };
                    bytes.push(byte);
                }
                byte => bytes.push(byte),
            }
        }
    }

    fn octal(&mut self, first: u8) -> Result<u8> {
        let mut value = u32::from(first - b'0');
        for _ in 0..2 {
            let Some(digit @ b'0'..=b'7') = self.peek() else { break };
            self.at += 1;
            value = value * 8 + u32::from(digit - b'0');
        }
        Ok(u8::try_from(value)?)
    }

    /// The strings within brackets and braces.
    fn nested(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut depth = 0_usize;
        loop {
            match self.peek().context("a structure that breaks off")? {
                b'"' => {
                    let string = self.string()?;
                    bytes.extend(string);
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(bytes);
            }
        }
    }

    /// A descriptor, a number, flags.
    fn word(&mut self) -> Result<Argument> {
        let start = self.at;
        let mut path = None;
        while let Some(byte) = self.peek() {
            match byte {
                b'<' => {
                    self.at += 1;
                    path = Some(self.path()?);
                }
                b',' | b')' | b' ' => break,
                _ => self.at += 1,
            }
        }
        Ok(match path {
            Some(path) => Argument::Open(path),
            None => Argument::Word(String::from_utf8(self.text[start..self.at].to_vec())?),
        })
    }

    /// Up to its `>`; one in a name is written as an escape. A name that is gone says so behind it.
    fn path(&mut self) -> Result<PathBuf> {
        let path = PathBuf::from(String::from_utf8(self.escaped(b'>')?)?);
        self.skip(b"(deleted)");
        Ok(path)
    }

    fn outcome(&mut self) -> Result<Outcome> {
        self.blanks();
        ensure!(self.skip(b"= "), "a call without a result");
        if self.skip(b"?") {
            return Ok(Outcome { value: None, path: None });
        }
        let negative = self.skip(b"-");
        let value = i64::try_from(self.digits().context("a result that is no number")?)?;
        let path = if self.skip(b"<") { Some(self.path()?) } else { None };
        Ok(Outcome { value: Some(if negative { -value } else { value }), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        read(text.as_bytes()).expect("it can be read").expect("it tells of a call")
    }

    fn whole(text: &str) -> (Call, Outcome) {
        match line(text).told {
            Told::Whole(call, outcome) => (call, outcome),
            other @ (Told::Begun(_) | Told::Ended(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_write_is_read_byte_by_byte() {
        let (call, outcome) = whole(
            r#"20696 pwrite64(4</d/x.db-wal>, "7\177\6\202\0-\342\30\"\\\n\t\0011", 15, 32) = 15"#,
        );
        assert_eq!(call.name, "pwrite64");
        assert_eq!(call.open(0), Some(Path::new("/d/x.db-wal")));
        let bytes =
            [b'7', 0o177, 6, 0o202, 0, b'-', 0o342, 0o30, b'"', b'\\', b'\n', b'\t', 1, b'1'];
        assert_eq!(call.bytes(1).expect("bytes"), bytes);
        assert_eq!((call.number(2).ok(), call.number(3).ok()), (Some(15), Some(32)));
        assert_eq!(outcome, Outcome { value: Some(15), path: None });
    }

    #[test]
    fn an_opened_file_is_known_by_the_path_it_got() {
        let (call, outcome) = whole(
            r#"7 openat(AT_FDCWD</tmp>, "d/z<a", O_WRONLY|O_CREAT|O_APPEND, 0666) = 3</tmp/d/z\74a>"#,
        );
        assert_eq!(call.path(1).expect("a path"), Path::new("/tmp/d/z<a"));
        assert_eq!(call.word(2).expect("flags"), "O_WRONLY|O_CREAT|O_APPEND");
        assert_eq!(outcome, Outcome { value: Some(3), path: Some("/tmp/d/z<a".into()) });
        let (_, outcome) =
            whole(r#"7 openat(AT_FDCWD</tmp>, "x", O_RDONLY) = -1 ENOENT (No such file)"#);
        assert_eq!(outcome, Outcome { value: Some(-1), path: None });
    }

    #[test]
    fn a_call_in_two_lines_is_read_from_both() {
        let Told::Begun(call) = line("12345 fdatasync(4</d/x.db-wal> <unfinished ...>").told else {
            panic!("it has not ended");
        };
        assert_eq!(call.open(0), Some(Path::new("/d/x.db-wal")));
        let ended = line("12345 <... fdatasync resumed>)    = 0");
        assert_eq!(ended.thread, 12_345);
        assert_eq!(ended.told, Told::Ended(Outcome { value: Some(0), path: None }));
        let opened = line("1 <... openat resumed>) = 9</d/x(deleted)y>");
        let path = Some("/d/x(deleted)y".into());
        assert_eq!(opened.told, Told::Ended(Outcome { value: Some(9), path }));
    }

    #[test]
    fn what_goes_to_a_socket_is_put_together() {
        for text in [
            r#"1 sendto(9<socket:[77]>, "HTTP/1.1 202\r\n{}", 16, MSG_NOSIGNAL, NULL, 0) = 16"#,
            r#"1 writev(9<socket:[77]>, [{iov_base="HTTP/1.1 202\r\n", iov_len=14}, {iov_base="{}", iov_len=2}], 2) = 16"#,
            r#"1 sendmsg(9<socket:[77]>, {msg_name=NULL, msg_iov=[{iov_base="HTTP/1.1 202\r\n{}", iov_len=16}], msg_iovlen=1}, MSG_NOSIGNAL) = 16"#,
        ] {
            let (call, _) = whole(text);
            assert_eq!(call.open(0), Some(Path::new("socket:[77]")));
            assert_eq!(call.sent(), b"HTTP/1.1 202\r\n{}", "{text}");
        }
    }

    #[test]
    fn what_tells_of_no_call_is_passed_over() {
        for text in ["1 +++ exited with 0 +++", "1 --- SIGCHLD {si_signo=SIGCHLD} ---"] {
            assert_eq!(read(text.as_bytes()).expect("it can be read"), None);
        }
    }

    #[test]
    fn a_string_that_was_cut_short_is_refused() {
        let text = r#"1 pwrite64(4</d/x>, "abc"..., 15, 32) = 15"#;
        let error = read(text.as_bytes()).expect_err("it is not whole").to_string();
        assert!(error.contains("cut short"), "{error}");
    }
}

//! A command that sends a webhook to a source as its provider would: with curl, and with openssl where
//! it has to be signed. The secret itself is not in it; whoever has it puts it there.

use postrider_core::verification::{Algorithm, Encoding, Place, Recipe, Scheme, StampFormat};
use url::form_urlencoded;

/// What stands in a command for the secret.
pub(super) const NO_SECRET: &str = "SECRET='put the secret of this source here'";

const SECONDS: &str = "TIME=$(date +%s)";
/// The value of a header that a signature covers, and that has to be sent for it to hold.
const SAMPLE_VALUE: &str = "sample";

/// A script for a shell.
pub(super) fn command(scheme: &Scheme, url: &str) -> String {
    match scheme {
        Scheme::None => Script::new(r#"{"type":"order.created"}"#).finish(url),
        Scheme::Standard { .. } => standard(url),
        Scheme::Stripe { .. } => Script::timed(r#"{"id":"evt_%","type":"invoice.paid"}"#)
            .sign(r#""$TIME.$BODY""#, Algorithm::Sha256, Encoding::Hex)
            .header(r#""Stripe-Signature: t=$TIME,v1=$SIGNATURE""#)
            .finish(url),
        Scheme::Github => Script::timed(r#"{"zen":"Keep it logically awesome."}"#)
            .sign(r#""$BODY""#, Algorithm::Sha256, Encoding::Hex)
            .header("'X-GitHub-Event: ping'")
            .header(r#""X-GitHub-Delivery: sample-$TIME""#)
            .header(r#""X-Hub-Signature-256: sha256=$SIGNATURE""#)
            .finish(url),
        Scheme::Slack { .. } => {
            Script::timed(r#"{"event_id":"Ev%","event":{"type":"app_mention"}}"#)
                .sign(r#""v0:$TIME:$BODY""#, Algorithm::Sha256, Encoding::Hex)
                .header(r#""X-Slack-Request-Timestamp: $TIME""#)
                .header(r#""X-Slack-Signature: v0=$SIGNATURE""#)
                .finish(url)
        }
        Scheme::Shopify => Script::timed(r#"{"id":1}"#)
            .sign(r#""$BODY""#, Algorithm::Sha256, Encoding::Base64)
            .header("'X-Shopify-Topic: orders/create'")
            .header(r#""X-Shopify-Webhook-Id: sample-$TIME""#)
            .header(r#""X-Shopify-Hmac-SHA256: $SIGNATURE""#)
            .finish(url),
        Scheme::Twilio => twilio(url),
        Scheme::Linear { .. } => {
            Script::timed(r#"{"action":"create","type":"Issue","webhookTimestamp":%000}"#)
                .sign(r#""$BODY""#, Algorithm::Sha256, Encoding::Hex)
                .header("'Linear-Event: Issue'")
                .header(r#""Linear-Delivery: sample-$TIME""#)
                .header(r#""Linear-Signature: $SIGNATURE""#)
                .finish(url)
        }
        Scheme::Paddle { .. } => {
            Script::timed(r#"{"event_id":"evt_%","event_type":"transaction.paid"}"#)
                .sign(r#""$TIME:$BODY""#, Algorithm::Sha256, Encoding::Hex)
                .header(r#""Paddle-Signature: ts=$TIME;h1=$SIGNATURE""#)
                .finish(url)
        }
        Scheme::Telegram => Script::timed(r#"{"update_id":%,"message":{"text":"hello"}}"#)
            .secret()
            .header(r#""X-Telegram-Bot-Api-Secret-Token: $SECRET""#)
            .finish(url),
        Scheme::Hmac(recipe) => hmac(recipe, url),
        Scheme::Token(place) => token(place, url),
    }
}

/// The key is what stands after `whsec_`, decoded, and no text.
fn standard(url: &str) -> String {
    let mut script = Script::timed(r#"{"type":"order.created"}"#).secret();
    script.say(r#"ID="msg_$TIME""#);
    script.say(
        "KEY=$(printf '%s' \"${SECRET#whsec_}\" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \\n')",
    );
    script.say(
        "SIGNATURE=$(printf '%s' \"$ID.$TIME.$BODY\" |\n  openssl dgst -sha256 -mac HMAC -macopt \"hexkey:$KEY\" -binary | openssl base64 -A)",
    );
    script
        .header(r#""webhook-id: $ID""#)
        .header(r#""webhook-timestamp: $TIME""#)
        .header(r#""webhook-signature: v1,$SIGNATURE""#)
        .finish(url)
}

/// The URL is signed, and the fields of the form in the order of their names.
fn twilio(url: &str) -> String {
    let mut script = Script { lines: Vec::new(), headers: Vec::new() }.secret();
    let message = quote(&format!("{url}BodyhelloFrom+15550100"));
    script = script.sign(&message, Algorithm::Sha1, Encoding::Base64);
    script.say(&format!(
        "curl -H \"X-Twilio-Signature: $SIGNATURE\" \\\n  --data-urlencode 'Body=hello' --data-urlencode 'From=+15550100' \\\n  {}",
        quote(url)
    ));
    script.lines.join("\n")
}

fn hmac(recipe: &Recipe, url: &str) -> String {
    let mut script = Script::new(r#"{"type":"order.created"}"#);
    if let Some(stamp) = &recipe.timestamp {
        script.say(match stamp.format {
            StampFormat::Unix => SECONDS,
            StampFormat::UnixMs => "TIME=$(date +%s)000",
            StampFormat::Rfc3339 => "TIME=$(date -u +%Y-%m-%dT%H:%M:%SZ)",
        });
    }
    let (message, covered) = fill(&recipe.signed.to_string(), url);
    script = script.sign(&message, recipe.algorithm, recipe.encoding);
    for name in covered {
        script = script.header(&quote(&format!("{name}: {SAMPLE_VALUE}")));
    }
    if let Some(stamp) = &recipe.timestamp {
        script = script.header(&with_variable(&format!("{}: ", stamp.header), "TIME"));
    }
    let before = format!("{}: {}", recipe.header, recipe.prefix);
    script.header(&with_variable(&before, "SIGNATURE")).finish(url)
}

/// What is signed, as an argument for a shell, and the headers that are part of it.
fn fill(template: &str, url: &str) -> (String, Vec<String>) {
    let (mut message, mut covered) = (String::new(), Vec::new());
    let mut rest = template;
    // A template has been checked: every brace has its other half.
    while let Some((literal, (place, after))) =
        rest.split_once('{').and_then(|(literal, rest)| Some((literal, rest.split_once('}')?)))
    {
        if !literal.is_empty() {
            message.push_str(&quote(literal));
        }
        match place {
            "body" => message.push_str("\"$BODY\""),
            "timestamp" => message.push_str("\"$TIME\""),
            "method" => message.push_str("POST"),
            "url" => message.push_str(&quote(url)),
            other => {
                message.push_str(SAMPLE_VALUE);
                covered.extend(other.strip_prefix("header:").map(str::to_owned));
            }
        }
        rest = after;
    }
    if !rest.is_empty() {
        message.push_str(&quote(rest));
    }
    (message, covered)
}

fn token(place: &Place, url: &str) -> String {
    let script = Script::new(r#"{"type":"order.created"}"#).secret();
    match place {
        Place::Header { name, prefix } => {
            let before = format!("{name}: {prefix}");
            script.header(&with_variable(&before, "SECRET")).finish(url)
        }
        Place::Bearer => script.header(r#""Authorization: Bearer $SECRET""#).finish(url),
        Place::Basic => {
            let mut script = script;
            script.headers.push("-u \"$SECRET\"".to_owned());
            script.finish(url)
        }
        Place::Query { name } => {
            let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
            let mut script = script;
            script.headers.push("-H 'Content-Type: application/json'".to_owned());
            script.post(&with_variable(&format!("{url}?{name}="), "SECRET"))
        }
    }
}

/// The lines of a script, and what its request has beside the body.
struct Script {
    lines: Vec<String>,
    headers: Vec<String>,
}

impl Script {
    fn new(body: &str) -> Self {
        Self { lines: vec![format!("BODY={}", quote(body))], headers: Vec::new() }
    }

    /// A body with the time in it, where there is a `%`: what is sent a second time is an event of
    /// its own.
    fn timed(body: &str) -> Self {
        let body = quote(body).replace('%', "'$TIME'");
        Self { lines: vec![SECONDS.to_owned(), format!("BODY={body}")], headers: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    fn secret(mut self) -> Self {
        self.lines.insert(0, NO_SECRET.to_owned());
        self
    }

    /// `message` is an argument for a shell.
    fn sign(mut self, message: &str, algorithm: Algorithm, encoding: Encoding) -> Self {
        if self.lines.first().is_none_or(|first| first != NO_SECRET) {
            self = self.secret();
        }
        let hash = match algorithm {
            Algorithm::Sha1 => "sha1",
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        };
        let written = match encoding {
            Encoding::Hex => "-r | cut -d' ' -f1",
            Encoding::Base64 => "-binary | openssl base64 -A",
            Encoding::Base64url => "-binary | openssl base64 -A | tr '+/' '-_'",
        };
        self.say(&format!(
            "SIGNATURE=$(printf '%s' {message} |\n  openssl dgst -{hash} -hmac \"$SECRET\" {written})"
        ));
        self
    }

    /// `header` is an argument for a shell.
    fn header(mut self, header: &str) -> Self {
        self.headers.push(format!("-H {header}"));
        self
    }

    fn finish(mut self, url: &str) -> String {
        self.headers.insert(0, "-H 'Content-Type: application/json'".to_owned());
        self.post(&quote(url))
    }

    /// `url` is an argument for a shell.
    fn post(mut self, url: &str) -> String {
        let headers = self.headers.join(" \\\n  ");
        self.say(&format!("curl {headers} \\\n  -d \"$BODY\" {url}"));
        self.lines.join("\n")
    }
}

/// One argument for a shell, whatever is in it.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// One argument that ends with what a variable holds.
fn with_variable(text: &str, variable: &str) -> String {
    format!("{}\"${variable}\"", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_source_gets_out_of_its_quotes() {
        assert_eq!(quote("it's"), r"'it'\''s'");
        let json =
            r#"{"scheme":"hmac","header":"X-Sig","prefix":"'$(id)","signed":"'`id`'{body}"}"#;
        let scheme: Scheme = serde_json::from_str(json).expect("a scheme");
        let command = command(&scheme, "http://h'$(id)/in/t");
        for dangerous in ["$(id)", "`id`"] {
            for (at, _) in command.match_indices(dangerous) {
                let quotes = command[..at].replace(r"\'", "").matches('\'').count();
                assert_eq!(quotes % 2, 1, "{dangerous} is outside of quotes: {command}");
            }
        }
    }

    #[test]
    fn what_a_signature_covers_is_sent_along() {
        let (message, covered) = fill("v1:{timestamp}:{header:x-id}.{body}", "http://h/in/t");
        assert_eq!(message, r#"'v1:'"$TIME"':'sample'.'"$BODY""#);
        assert_eq!(covered, ["x-id"]);
    }
}

//! `postrider health`: asks a gateway whether it is ready, for whatever restarts it otherwise. It needs
//! no key and no other program, so it works in an image that has nothing but the binary.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use url::Url;

use crate::{EXIT_FAILURE, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider health
  postrider health --gateway http://127.0.0.1:8080 --timeout 2s

Exit codes: 0 it is ready, 1 it is not, or nobody answers, 2 wrong usage.")]
pub(crate) struct Args {
    /// Where the gateway listens, over plain HTTP
    #[arg(
        long,
        env = "POSTRIDER_GATEWAY",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    gateway: Url,

    /// How long it may take to answer
    #[arg(long, default_value = "5s", value_parser = postrider_core::span::parse, value_name = "DURATION")]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let place = match (args.gateway.scheme(), args.gateway.host_str()) {
        ("http", Some(host)) => {
            (host.trim_matches(['[', ']']).to_owned(), args.gateway.port().unwrap_or(80))
        }
        _ => {
            return Err(Failure::usage(anyhow!(
                "--gateway: expected a URL such as http://127.0.0.1:7070"
            )));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(args.timeout, ask(place)).await });
    let status = match asked {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return Err(error.context("the gateway does not answer").into()),
        Err(_) => {
            let limit = postrider_core::span::format(args.timeout);
            return Err(anyhow!("the gateway does not answer within {limit}").into());
        }
    };
    if status.is_success() {
        println!("ready");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("not ready: {status}");
        Ok(ExitCode::from(EXIT_FAILURE))
    }
}

async fn ask((host, port): (String, u16)) -> anyhow::Result<http::StatusCode> {
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/readyz")
        .header("host", format!("{host}:{port}"))
        .header("connection", "close")
        .body(Empty::new())
        .context("no request")?;
    let response = sender.send_request(request).await?;
    connection.abort();
    Ok(response.status())
}

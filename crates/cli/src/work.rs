//! `postrider work`: runs a program for each delivery of a pull endpoint.

mod program;

use std::ffi::OsString;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::ValueEnum;
use postrider_client::Gateway;
use postrider_client::worker::{Ending, Happening, Job, Verdict, Worker, WorkerOptions};
use postrider_core::outcome::Sighting;
use postrider_core::pattern::Pattern;
use postrider_core::policy::{Rule, Rules, Schedule};
use postrider_core::{EndpointId, Outcome, Policy, span};
use tokio::sync::watch;

use crate::Failure;
use crate::connect::Connect;
use crate::resource::{ENDPOINT, refused};
use crate::signals::Signals;
use program::{End, Program, Ran};

/// How often a gateway that is not there is asked for the endpoint's name.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program gets the event's body on its standard input, to the byte, and in its environment:
  POSTRIDER_EVENT_ID, POSTRIDER_EVENT_TYPE, POSTRIDER_CONTENT_TYPE,
  POSTRIDER_RECEIVED_AT, POSTRIDER_METADATA (JSON),
  POSTRIDER_IDEMPOTENCY_KEY, POSTRIDER_ORDERING_KEY, TRACEPARENT, TRACESTATE (where it has them),
  POSTRIDER_DELIVERY_ID, POSTRIDER_ENDPOINT_ID, POSTRIDER_ATTEMPT (from 1)

Beside these it has the environment of this command, without anything of that prefix: the key is \
not passed on.

Its exit code says what came of the delivery, as in sysexits.h:
  0                        done
  69, 71, 74, 75           failed, trying again may help (EX_UNAVAILABLE, EX_OSERR,
                           EX_IOERR, EX_TEMPFAIL)
  the others of 64 to 78   failed for good (EX_USAGE, EX_DATAERR, EX_NOINPUT and so on)
  any other, or a signal   failed; --on-failure says whether for good

The end of what it wrote to its standard error, up to 2,000 characters, is kept as the error. When \
to try again is up to the endpoint's policy.

A program that runs for longer than --timeout is killed, with all that it has started; trying again \
may help. One whose lease is lost, because the gateway was out of reach for too long, is killed \
too: another worker may be at its delivery. What a program leaves running ends with it.

SIGTERM or Ctrl-C stops this command: it takes no more and waits for what is running, up to \
--drain. A second signal, or the end of that time, kills what is left and gives it back, which \
costs no attempt. Exit codes: 0 after a stop, 1 failure, 2 wrong usage or configuration, which \
includes a key or an endpoint that the gateway does not know.

Examples:
  postrider work --endpoint orders -- ./handle-order --fast
  postrider work --endpoint orders --event-types 'order.*' -- python3 job.py")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// The pull endpoint to take deliveries of: its id, or its name
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: String,

    /// Only events of these types, such as `order.created` or `order.*`; repeatable
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', value_parser = Pattern::parse)]
    event_types: Vec<Pattern>,

    /// Programs that run at the same time (at most 1000)
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,

    /// How soon another worker gets the delivery when this one is killed or cut off; it is extended
    /// while the program runs (1s to 12h)
    #[arg(long, default_value = "30s", value_parser = span::parse, value_name = "DURATION")]
    lease: Duration,

    /// How long a program may run
    #[arg(long, default_value = "10m", value_parser = span::parse, value_name = "DURATION")]
    timeout: Duration,

    /// How long a stop waits for what is running
    #[arg(long, default_value = "20s", value_parser = span::parse, value_name = "DURATION")]
    drain: Duration,

    /// What an exit code without a meaning of its own says
    #[arg(long, default_value = "retryable", value_name = "CLASS")]
    on_failure: OnFailure,

    /// Keep the last line that the program writes to its standard output, up to 200 characters, as
    /// the delivery's result
    #[arg(long)]
    result_from_stdout: bool,

    /// Pass on what the program prints
    #[arg(long, short)]
    verbose: bool,

    /// The program and its arguments; no shell is between
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnFailure {
    /// Trying again may help
    Retryable,
    /// Trying again cannot help
    Final,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.timeout.is_zero() {
        return Err(Failure::usage(anyhow!("--timeout must be more than 0s")));
    }
    let gateway = args.connect.gateway()?;
    let program = Program::new(&args.program, args.timeout, args.verbose)?;
    let meaning = meaning(args.on_failure)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Dropping the runtime drops what still runs, and every program with it.
    runtime.block_on(work(args, gateway, program, meaning))
}

async fn work(
    args: &Args,
    gateway: Gateway,
    program: Program,
    meaning: Policy,
) -> Result<(), Failure> {
    let mut signals = signals()?;
    let mut more_signals = signals.clone();
    let endpoint = tokio::select! {
        found = find(&gateway, &args.endpoint) => found?,
        () = reaches(&mut signals, 1) => return Ok(()),
    };
    let options = WorkerOptions {
        event_types: args.event_types.clone(),
        concurrency: args.concurrency.into(),
        lease: args.lease,
        drain: args.drain,
        ..WorkerOptions::new(endpoint)
    };
    let worker = Worker::new(gateway.clone(), options).map_err(refused)?.watched(tell);
    let (url, at_once) = (gateway.url(), args.concurrency);
    say(&format!("working on {endpoint} of {url}, {at_once} at a time"));

    let job = Arc::new((program, meaning, args.result_from_stdout));
    let handler = move |work| {
        let job = Arc::clone(&job);
        async move {
            let (program, meaning, with_result) = &*job;
            verdict(program.run(&work).await, meaning, *with_result)
        }
    };
    let (stop, hurry) = (reaches(&mut signals, 1), reaches(&mut more_signals, 2));
    let summary = worker.run_until(handler, stop, hurry).await.map_err(refused)?;
    let (done, failed) = (summary.done, summary.failed);
    let (given_back, lapsed) = (summary.given_back, summary.lapsed);
    say(&format!(
        "stopped: {done} done, {failed} failed, {given_back} given back, {lapsed} lapsed"
    ));
    Ok(())
}

/// What exit codes mean is the same here as where a gateway runs the program itself. Of the policy
/// only that counts: when to try again is up to the endpoint's.
fn meaning(on_failure: OnFailure) -> Result<Policy, Failure> {
    let rule = match on_failure {
        OnFailure::Retryable => Rule::Retryable,
        OnFailure::Final => Rule::Final,
    };
    let schedule = Schedule::List { delays: vec![Duration::from_secs(1)], jitter: 0.0 };
    let rules = Rules::all(Rule::Retryable).network(rule);
    Ok(Policy::new(schedule, Some(1), None, rules)?)
}

fn verdict(ran: Ran, meaning: &Policy, with_result: bool) -> Verdict {
    let sighting = match ran.end {
        End::Exited(code) => Sighting::Exit(code),
        // Like a code that means nothing: a program that dies of a signal may do so every time.
        End::Signalled(_) => Sighting::Network,
        // Nothing is known against the delivery.
        End::Late(_) | End::Unstarted(_) => Sighting::Timeout,
    };
    match meaning.classify(sighting, None) {
        Outcome::Delivered => Verdict::Done { result: ran.last_line.filter(|_| with_result) },
        Outcome::Failed { class, retry_after, disable: _ } => {
            Verdict::Failed { class, error: ran.complaint(), retry_after }
        }
    }
}

/// A line for whoever watches, if anybody does: a worker goes on without.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn tell(happening: &Happening<'_>) {
    match happening {
        Happening::Trouble { error, retry_in } => {
            say(&format!("no work for now: {error}; asking again in {}", span::format(*retry_in)));
        }
        Happening::Recovered => say("the gateway answers again"),
        Happening::Stopping { in_hand: 0 } => say("stopping"),
        Happening::Stopping { in_hand } => {
            say(&format!("stopping: waiting for {in_hand} to finish; a second signal kills them"));
        }
        Happening::Ended { job, ending, took } => {
            let Job { delivery, kind, attempt, .. } = job;
            let took = span::format(*took);
            let ending = match ending {
                Ending::Told(Verdict::Done { result: None }) => "done".to_owned(),
                Ending::Told(Verdict::Done { result: Some(result) }) => format!("done: {result}"),
                Ending::Told(Verdict::Failed { class, error, .. }) => {
                    format!("{}: {error}", class.as_str())
                }
                Ending::Lapsed => "its lease has lapsed".to_owned(),
                Ending::GivenBack => "given back".to_owned(),
                Ending::Refused(error) => format!("what came of it was refused: {error}"),
            };
            say(&format!("{delivery} {kind} attempt {attempt}, {took}: {ending}"));
        }
    }
}

/// The endpoint that is meant, by its id or its name. Waits for a gateway that is not there yet.
async fn find(gateway: &Gateway, wanted: &str) -> Result<EndpointId, Failure> {
    if let Ok(id) = wanted.parse() {
        return Ok(id);
    }
    loop {
        match ENDPOINT.seek(gateway, wanted).await {
            Ok(found) => {
                let unreadable = || anyhow!("{} lists an endpoint without id", gateway.url());
                return found?.parse().map_err(|_| unreadable().into());
            }
            Err(error) if error.is_temporary() => {
                let wait = error.retry_after().unwrap_or_default().max(LOOK_AGAIN);
                say(&format!("waiting: {error}; asking again in {}", span::format(wait)));
                tokio::time::sleep(wait).await;
            }
            Err(error) => return Err(refused(error)),
        }
    }
}

/// How many signals to stop have come.
fn signals() -> std::io::Result<watch::Receiver<u32>> {
    let mut signals = Signals::catch()?;
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            signals.next().await;
            count.send_modify(|count: &mut u32| *count = count.saturating_add(1));
        }
    });
    Ok(counted)
}

async fn reaches(signals: &mut watch::Receiver<u32>, count: u32) {
    if signals.wait_for(|counted| *counted >= count).await.is_err() {
        // Nobody counts any more: the runtime is going down.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Class;

    use super::*;

    #[test]
    fn exit_codes_mean_what_the_help_says() {
        use OnFailure::{Final, Retryable};
        let ran = |end| Ran { end, complaints: String::new(), last_line: Some("label".into()) };
        let class_of = |end, on_failure| {
            let meaning = meaning(on_failure).unwrap_or_else(|failure| panic!("{failure:?}"));
            match verdict(ran(end), &meaning, false) {
                Verdict::Done { result: None } => None,
                Verdict::Failed { class, retry_after: None, .. } => Some(class),
                other => panic!("{other:?}"),
            }
        };
        for on_failure in [Retryable, Final] {
            assert_eq!(class_of(End::Exited(0), on_failure), None);
            for code in [69, 71, 74, 75] {
                assert_eq!(class_of(End::Exited(code), on_failure), Some(Class::Retryable));
            }
            for code in [64, 65, 66, 67, 68, 70, 72, 73, 76, 77, 78] {
                assert_eq!(class_of(End::Exited(code), on_failure), Some(Class::Final), "{code}");
            }
            let unstarted = End::Unstarted("no memory".into());
            assert_eq!(class_of(unstarted, on_failure), Some(Class::Retryable));
            assert_eq!(
                class_of(End::Late(Duration::from_secs(1)), on_failure),
                Some(Class::Retryable)
            );
        }
        for code in [1, 2, 63, 79, 127, 255] {
            assert_eq!(class_of(End::Exited(code), Retryable), Some(Class::Retryable), "{code}");
            assert_eq!(class_of(End::Exited(code), Final), Some(Class::Final), "{code}");
        }
        assert_eq!(class_of(End::Signalled(9), Retryable), Some(Class::Retryable));
        assert_eq!(class_of(End::Signalled(9), Final), Some(Class::Final));
    }

    #[test]
    fn a_result_is_kept_where_it_is_asked_for() {
        let meaning = meaning(OnFailure::Retryable).unwrap_or_else(|failure| panic!("{failure:?}"));
        for (with_result, last_line, expected) in [
            (true, Some("Passed"), Some("Passed")),
            (true, None, None),
            (false, Some("Passed"), None),
        ] {
            let last_line = last_line.map(str::to_owned);
            let ran = Ran { end: End::Exited(0), complaints: String::new(), last_line };
            let expected = Verdict::Done { result: expected.map(str::to_owned) };
            assert_eq!(verdict(ran, &meaning, with_result), expected);
        }
    }
}

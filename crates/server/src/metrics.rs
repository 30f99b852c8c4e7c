//! `/metrics`: how the gateway does, as Prometheus reads it. It needs no key, because it names nothing
//! from outside: see [`catalogue`].

mod catalogue;
mod process;
mod requests;
mod text;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use postrider_core::Class;
use postrider_core::delivery::State as DeliveryState;
use postrider_engine::Engine;
use postrider_engine::metrics::{ENDS, OUTCOMES, Standing, Try, Way};

use crate::App;
use catalogue as about;
use process::Process;
use text::Page;

pub(crate) use requests::{Requests, Route};

/// What stands in `docs/metrics.md`.
pub fn metrics_reference() -> String {
    catalogue::reference()
}

pub(crate) async fn show(State(app): State<Arc<App>>) -> Response {
    let standing = app.engine.standing().await;
    // It reads files, if only such as the system makes up.
    let process = tokio::task::spawn_blocking(process::read).await.ok().flatten();
    let mut page = Page::default();
    write_standing(&mut page, &standing);
    write_counted(&mut page, &app.engine);
    write_store(&mut page, &app.engine);
    write_requests(&mut page, &app.requests);
    if let Some(process) = process {
        write_process(&mut page, process);
    }
    ([(CONTENT_TYPE, text::CONTENT_TYPE)], page.into_text()).into_response()
}

fn write_standing(page: &mut Page, standing: &Standing) {
    let Standing {
        ready,
        in_flight,
        window,
        backlog,
        oldest_waiting,
        hub_lag,
        endpoints,
        breakers,
        hubs_connected,
        lanes,
        lanes_owned,
        nodes,
        operator_events_lost,
    } = standing;
    page.family(&about::READY).is(u8::from(*ready));
    page.family(&about::BUILD_INFO).of(&[env!("CARGO_PKG_VERSION")], 1);
    page.family(&about::IN_FLIGHT).is(in_flight);
    page.family(&about::IN_MEMORY).is(window);
    let mut deliveries = page.family(&about::DELIVERIES);
    for state in DeliveryState::ALL {
        let known = backlog.iter().find(|(known, _)| *known == state);
        deliveries.of(&[state.as_str()], known.map_or(0, |(_, count)| *count));
    }
    page.family(&about::OLDEST_WAITING).is(oldest_waiting.as_secs_f64());
    let mut by_state = page.family(&about::ENDPOINTS);
    for (state, count) in endpoints {
        by_state.of(&[state.as_str()], count);
    }
    let mut by_state = page.family(&about::BREAKERS);
    for (state, count) in breakers {
        by_state.of(&[state.as_str()], count);
    }
    page.family(&about::HUBS_CONNECTED).is(hubs_connected);
    page.family(&about::HUB_LAG).is(hub_lag.as_secs_f64());
    page.family(&about::LANES).is(lanes);
    page.family(&about::LANES_OWNED).is(lanes_owned);
    page.family(&about::NODES).is(nodes);
    page.family(&about::OPERATOR_EVENTS_LOST).is(operator_events_lost);
}

fn write_counted(page: &mut Page, engine: &Engine) {
    let metrics = engine.metrics();
    let mut received = page.family(&about::EVENTS_RECEIVED);
    for way in Way::ALL {
        received.of(&[way.as_str()], metrics.received(way));
    }
    for (family, counter) in [
        (&about::EVENTS_DUPLICATE, &metrics.duplicates),
        (&about::EVENTS_CONFLICTING, &metrics.conflicts),
        (&about::SIGNATURES_REJECTED, &metrics.signatures_rejected),
        (&about::DELIVERIES_CREATED, &metrics.deliveries_created),
        (&about::RETRIES_SCHEDULED, &metrics.retries_scheduled),
        (&about::DEFERRALS, &metrics.deferrals),
    ] {
        page.family(family).is(counter.get());
    }
    let mut ended = page.family(&about::DELIVERIES_ENDED);
    for state in ENDS {
        ended.of(&[state.as_str()], metrics.ended(state));
    }
    let mut attempts = page.family(&about::ATTEMPTS);
    for which in Try::ALL {
        for outcome in OUTCOMES {
            let word = outcome.map_or("delivered", Class::as_str);
            attempts.of(&[which.as_str(), word], metrics.attempts(which, outcome));
        }
    }
    page.family(&about::ATTEMPT_DURATION).distribution(&[], &metrics.attempt_spans.read());
    page.family(&about::DELIVERY_LATENCY).distribution(&[], &metrics.latencies.read());
}

fn write_store(page: &mut Page, engine: &Engine) {
    let vitals = engine.store().vitals();
    let kinds = [("append", &vitals.append), ("settle", &vitals.settle)];
    let mut rows = page.family(&about::COMMIT_ROWS);
    for (operation, commits) in kinds {
        rows.distribution(&[operation], &commits.sizes.read());
    }
    let mut durations = page.family(&about::COMMIT_DURATION);
    for (operation, commits) in kinds {
        durations.distribution(&[operation], &commits.spans.read());
    }
    let failures = &vitals.failures;
    let mut errors = page.family(&about::STORE_ERRORS);
    for (reason, counter) in [
        ("unavailable", &failures.unavailable),
        ("overloaded", &failures.overloaded),
        ("damaged", &failures.damaged),
    ] {
        errors.of(&[reason], counter.get());
    }
}

fn write_requests(page: &mut Page, requests: &Requests) {
    let mut counts = page.family(&about::HTTP_REQUESTS);
    for (route, status, count) in requests.counts() {
        counts.of(&[route.as_str(), status], count);
    }
    let mut durations = page.family(&about::HTTP_DURATION);
    for (route, spans) in requests.spans() {
        durations.distribution(&[route.as_str()], &spans.read());
    }
}

fn write_process(page: &mut Page, process: Process) {
    let Process { cpu_seconds, open_fds, max_fds, virtual_bytes, resident_bytes, started_at } =
        process;
    page.family(&about::PROCESS_CPU).is(cpu_seconds);
    page.family(&about::PROCESS_OPEN_FDS).is(open_fds);
    page.family(&about::PROCESS_MAX_FDS).is(max_fds);
    page.family(&about::PROCESS_VIRTUAL).is(virtual_bytes);
    page.family(&about::PROCESS_RESIDENT).is(resident_bytes);
    page.family(&about::PROCESS_START).is(started_at);
}

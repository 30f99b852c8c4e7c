//! Making changes that `step` decided, each if its fence still holds, and moving lines on.
//!
//! A delivery that ends leaves `unfinished` for `finished`; a reset brings it back. Every statement
//! makes many changes of one kind and names all that it believes of each row: where any of it is not
//! so, that one is not made.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, Timestamp};
use tokio_postgres::{Row, Statement};

use super::code::{self, Place};
use super::fault::Fault;
use super::pipeline::Pipeline;
use super::response;
use super::rows::{self, Body};
use super::session::{Param, Session};
use super::text::Text;
use crate::error::Error;
use crate::record::{Attempt, LeaseIs, Settle, Settled};

/// The changes, column by column, as `s`. That they are few is what the server makes of the limit,
/// which is none: it then looks each row up by its id, however small the table was when it planned.
const CHANGES: &str = "(SELECT * FROM unnest($1::int8[], $2::int4[], $3::int2[], $4::int8[], \
     $5::bool[], $6::int2[], $7::int2[], $8::int2[], $9::int4[], $10::int4[], $11::int8[], \
     $12::int8[], $13::int8[], $14::int2[], $15::int2[], $16::text[], $17::int4[], $18::bool[], \
     $19::int8[], $20::int4[], $21::int4[], $22::int2[], $23::text[], $24::bytea[], $25::bool[]) \
     WITH ORDINALITY s (id, fence, was, endpoint_id, in_line, lease, state, place, attempts, \
     deferrals, born, at, now, reason, class, result, number, counted, started_at, duration_ms, \
     status, failed_as, error, response, in_row, turn) LIMIT cardinality($1)) s";

/// What has to be so of a row `r` for a change `s` to be made. That it is one of them at all is said
/// for a plan that was made when there was nothing in the table: it may begin with the table.
const BELIEVED: &str = "r.id = s.id AND r.id = ANY ($1) AND r.fence = s.fence AND r.state = s.was \
     AND r.endpoint_id = s.endpoint_id AND (r.line IS NOT NULL) = s.in_line";

/// The same of its lease: 1 ends later, 2 has ended.
const LEASE: &str = "(s.lease = 0 OR r.place = 4 AND (s.lease = 1) = (r.at > s.now))";

/// What of a try is kept beside the delivery, in the order of [`TRIED`].
const TRY: &str = "s.number, s.counted, s.started_at, s.duration_ms, s.status, \
     s.failed_as, s.error, s.response, s.in_row";

/// The tries of the changes in `c` that have a row of their own.
const TRIED: &str = "tried AS (INSERT INTO attempts (delivery_id, number, counted, started_at, \
     duration_ms, status, class, error, response) \
     SELECT id, number, counted, started_at, duration_ms, status, failed_as, error, response \
         FROM c WHERE number IS NOT NULL AND NOT in_row)";

/// The changes in `c` are counted in the slot of the connection.
const COUNTED: &str = "counted AS (INSERT INTO delivery_counts \
     (endpoint_id, tenant_id, n, state, slot) \
     SELECT endpoint_id, min(tenant_id), sum(n), state, $26::int2 \
         FROM (SELECT endpoint_id, tenant_id, was AS state, -1 AS n FROM c \
             UNION ALL SELECT endpoint_id, tenant_id, state, 1 FROM c) n \
         GROUP BY endpoint_id, state HAVING sum(n) <> 0 \
     ON CONFLICT (endpoint_id, state, slot) DO UPDATE SET n = delivery_counts.n + excluded.n)";

/// When a delivery was last tried. A lease that came to nothing was no attempt: the last one is
/// again the one before.
const LAST_ATTEMPT: &str = "CASE WHEN s.number IS NOT NULL THEN s.started_at \
     WHEN s.was = 6 THEN (SELECT a.started_at FROM attempts a WHERE a.delivery_id = r.id \
         ORDER BY a.number DESC LIMIT 1) \
     ELSE r.last_attempt_at END";

/// Only a reset forgets what the last attempt failed of …
const CLASS: &str = "CASE WHEN s.number IS NOT NULL THEN s.class WHEN s.state = 0 THEN NULL \
     ELSE coalesce(s.class, r.class) END";
/// … and what it came to.
const RESULT: &str = "coalesce(s.result, CASE WHEN s.number IS NOT NULL OR s.state <> 0 \
     THEN r.result END)";

/// To an end.
fn end(in_line: bool) -> String {
    let ended = format!(
        "c AS (DELETE FROM unfinished r USING {CHANGES} WHERE {BELIEVED} AND {LEASE} \
             RETURNING s.turn, s.was, s.state, r.id, r.tenant_id, r.event_id, r.endpoint_id, \
                 s.born, s.at, {LAST_ATTEMPT} AS last_attempt_at, s.attempts, s.deferrals, \
                 coalesce(s.number, r.tries) AS tries, r.fence + 1 AS fence, {CLASS} AS class, \
                 s.reason, r.replay, r.line, coalesce(s.error, r.last_error) AS last_error, \
                 {RESULT} AS result, r.place, s.now, {TRY}), \
         ended AS (INSERT INTO finished (id, tenant_id, event_id, endpoint_id, born, at, \
             last_attempt_at, attempts, deferrals, tries, fence, status, duration_ms, state, \
             class, reason, replay, line, last_error, result, response) \
             SELECT id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, attempts, \
                 deferrals, tries, fence, CASE WHEN in_row THEN status END, \
                 CASE WHEN in_row THEN duration_ms END, state, class, reason, replay, line, \
                 last_error, result, CASE WHEN in_row THEN response END FROM c), \
         {TRIED}, {COUNTED}"
    );
    if !in_line {
        return format!("WITH {ended} SELECT turn FROM c");
    }
    // Where a head went, the oldest that stood behind it is the next: one row more for each, with
    // the delivery and its event. One that stood in the middle holds nobody up by leaving.
    let hot = rows::HOT.split(", ").map(|column| format!("u.{column}")).collect::<Vec<_>>();
    let nothing = vec!["NULL"; rows::HOT.split(", ").count() + rows::EVENT.split(", ").count() + 1];
    format!(
        "WITH {ended}, \
         behind AS (SELECT c.turn, c.now, n.id FROM c CROSS JOIN LATERAL (\
             SELECT u.id FROM unfinished u WHERE u.endpoint_id = c.endpoint_id \
                 AND u.line = c.line AND u.place = 3 AND u.id <> ALL ($1) \
                 ORDER BY u.event_id, u.id LIMIT 1) n \
             WHERE c.place <> 3), \
         next AS (UPDATE unfinished u SET place = CASE WHEN u.at <= b.now THEN 1 ELSE 2 END \
             FROM behind b WHERE u.id = b.id RETURNING b.turn, {hot}) \
         SELECT u.*, {event}, e.body FROM next u CROSS JOIN {of_delivery} \
         UNION ALL SELECT turn, {nothing} FROM c",
        hot = hot.join(", "),
        event = rows::EVENT,
        of_delivery = rows::EVENT_OF_DELIVERY,
        nothing = nothing.join(", "),
    )
}

static END: LazyLock<String> = LazyLock::new(|| end(false));
static END_IN_LINE: LazyLock<String> = LazyLock::new(|| end(true));

/// From one wait to another, or to a worker: only what may be tried can be leased, nothing that
/// stands behind another of its line.
static STAY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH c AS (UPDATE unfinished r SET state = s.state, \
             place = CASE WHEN s.state = 6 THEN 4 WHEN r.place = 3 THEN 3 ELSE s.place END, \
             attempts = s.attempts, deferrals = s.deferrals, fence = r.fence + 1, born = s.born, \
             at = s.at, tries = coalesce(s.number, r.tries), \
             last_attempt_at = CASE WHEN s.state = 6 THEN s.now ELSE {LAST_ATTEMPT} END, \
             class = CASE WHEN s.state = 6 THEN r.class ELSE {CLASS} END, \
             last_error = coalesce(s.error, r.last_error), result = {RESULT} \
             FROM {CHANGES} WHERE {BELIEVED} AND {LEASE} AND (s.state <> 6 OR r.place IN (1, 2)) \
             RETURNING s.turn, s.was, s.state, r.id, r.tenant_id, r.endpoint_id, {TRY}), \
         {TRIED}, {COUNTED} SELECT turn FROM c"
    )
});

/// A longer lease. The fence stays: the worker's token names it.
const EXTEND: &str = "UPDATE unfinished r SET at = s.at \
     FROM (SELECT * FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::bool[], $5::int2[], \
         $6::int8[], $7::int8[]) WITH ORDINALITY \
         s (id, fence, endpoint_id, in_line, lease, at, now, turn) LIMIT cardinality($1)) s \
     WHERE r.id = s.id AND r.id = ANY ($1) AND r.fence = s.fence \
         AND r.endpoint_id = s.endpoint_id AND (r.line IS NOT NULL) = s.in_line AND r.place = 4 \
         AND (s.lease = 0 OR (s.lease = 1) = (r.at > s.now)) \
     RETURNING s.turn";

/// From its end back to its wait, behind whoever is in its line by now; never to a worker.
static BACK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH c AS (DELETE FROM finished r USING {CHANGES} WHERE {BELIEVED} AND s.lease = 0 AND s.state <> 6 \
             RETURNING s.turn, s.was, s.state, r.id, r.tenant_id, r.event_id, r.endpoint_id, \
                 s.born, s.at, {LAST_ATTEMPT} AS last_attempt_at, s.attempts, s.deferrals, \
                 coalesce(s.number, r.tries) AS tries, r.fence + 1 AS fence, {CLASS} AS class, \
                 r.replay, r.line, coalesce(s.error, r.last_error) AS last_error, \
                 {RESULT} AS result, s.place, {TRY}), \
         back AS (INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, \
             last_attempt_at, attempts, deferrals, tries, fence, state, place, class, replay, \
             line, last_error, result) \
             SELECT id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, attempts, \
                 deferrals, tries, fence, state, CASE WHEN EXISTS (SELECT 1 FROM unfinished u \
                     WHERE u.endpoint_id = c.endpoint_id AND u.line = c.line) \
                     THEN 3 ELSE place END, \
                 class, replay, line, last_error, result FROM c), \
         {TRIED}, {COUNTED} SELECT turn FROM c"
    )
});

/// The statements that settling needs, prepared.
pub(crate) struct Statements {
    end: Statement,
    end_in_line: Statement,
    stay: Statement,
    extend: Statement,
    back: Statement,
}

impl Statements {
    pub(crate) async fn prepare(session: &Session) -> Result<Self, Fault> {
        Ok(Self {
            end: session.prepare(&END).await?,
            end_in_line: session.prepare(&END_IN_LINE).await?,
            stay: session.prepare(&STAY).await?,
            extend: session.prepare(EXTEND).await?,
            back: session.prepare(&BACK).await?,
        })
    }

    fn of(&self, kind: Kind) -> &Statement {
        match kind {
            Kind::End => &self.end,
            Kind::EndInLine => &self.end_in_line,
            Kind::Stay => &self.stay,
            Kind::Extend => &self.extend,
            Kind::Back => &self.back,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    EndInLine,
    Stay,
    Extend,
    Back,
}

impl Kind {
    fn of(settle: &Settle) -> Self {
        let (from, to) = (settle.from, settle.next.state);
        match (from.is_terminal(), to.is_terminal()) {
            (false, true) if settle.in_line => Self::EndInLine,
            (false, true) => Self::End,
            (false, false) if [from, to] == [State::InFlight; 2] => Self::Extend,
            (false, false) => Self::Stay,
            (true, false) => Self::Back,
            (true, true) => panic!("{} cannot go from one end to another", settle.id),
        }
    }
}

/// Changes that one statement makes, by their places in the batch.
struct Group {
    kind: Kind,
    members: Vec<usize>,
}

/// A batch of changes, cut into groups that have the effect of making them one after the other.
pub(crate) struct Load<'a> {
    settles: Vec<&'a Settle>,
    groups: Vec<Group>,
}

impl<'a> Load<'a> {
    pub(crate) fn new(settles: Vec<&'a Settle>) -> Self {
        let groups = groups(&settles);
        Self { settles, groups }
    }

    pub(crate) fn statements(&self) -> usize {
        self.groups.len()
    }

    /// The endpoints whose lines may move.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = EndpointId> {
        self.settles
            .iter()
            .filter(|settle| settle.in_line)
            .filter(|settle| match Kind::of(settle) {
                Kind::EndInLine | Kind::Back => true,
                Kind::End | Kind::Stay | Kind::Extend => false,
            })
            .map(|settle| settle.endpoint)
    }

    /// Sends the statements that make the changes.
    pub(crate) fn send<'p>(
        &self,
        pipeline: &mut Pipeline<'p>,
        session: &'p Session,
        statements: &Statements,
        slot: i16,
    ) where
        'a: 'p,
    {
        for group in &self.groups {
            let client = session.client();
            let statement = statements.of(group.kind).clone();
            let extends = group.kind == Kind::Extend;
            let columns = Columns::of(group.members.iter().map(|member| self.settles[*member]));
            pipeline.send(async move {
                let mut params = if extends { columns.extension() } else { columns.params() };
                if !extends {
                    params.push(&slot);
                }
                client.query(&statement, &params).await
            });
        }
    }

    /// What became of each change, from the answers of the statements.
    pub(crate) fn read(&self, answers: &[Vec<Row>]) -> Result<Vec<Settled>, Error> {
        let mut settled = vec![Settled::Stale; self.settles.len()];
        for (group, answer) in self.groups.iter().zip(answers) {
            for row in answer {
                let turn: i64 = rows::get(row, 0)?;
                let member =
                    usize::try_from(turn - 1).ok().and_then(|turn| group.members.get(turn));
                let member = member.ok_or_else(|| Error::Damaged("an answer to nothing".into()))?;
                let promoted = match group.kind {
                    Kind::EndInLine if rows::get::<Option<i64>>(row, 1)?.is_some() => {
                        let event = rows::event_at(row, 1 + rows::AFTER_HOT, Body::Follows)?;
                        Some(rows::hot_at(row, 1)?.with(Arc::new(event)))
                    }
                    Kind::EndInLine | Kind::End | Kind::Stay | Kind::Extend | Kind::Back => None,
                };
                // The row of a promotion and that of the change itself come in any order.
                if promoted.is_some() || matches!(settled[*member], Settled::Stale) {
                    settled[*member] = Settled::Applied { promoted };
                }
            }
        }
        Ok(settled)
    }
}

/// Changes of different deliveries are made at once, in one statement for each kind, up to the first
/// that depends on one before it: of the same delivery, or in a line and of one that perhaps stands
/// in its middle. What was tried, or is leased, is the head of its line, and no line has two.
fn groups(settles: &[&Settle]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // Where the groups begin that may still be added to, and who is in them.
    let mut open = 0;
    let mut seen: HashSet<DeliveryId> = HashSet::new();
    for (index, settle) in settles.iter().enumerate() {
        let kind = Kind::of(settle);
        let alone = settle.in_line
            && match kind {
                Kind::End | Kind::EndInLine | Kind::Stay => {
                    settle.attempt.is_none() && settle.next.state != State::InFlight
                }
                Kind::Extend => false,
                Kind::Back => true,
            };
        if alone || seen.contains(&settle.id) {
            open = groups.len();
            seen.clear();
        }
        seen.insert(settle.id);
        match groups[open..].iter_mut().find(|group| group.kind == kind) {
            Some(group) => group.members.push(index),
            None => groups.push(Group { kind, members: vec![index] }),
        }
        if alone {
            open = groups.len();
            seen.clear();
        }
    }
    groups
}

/// Changes, column by column.
#[derive(Default)]
struct Columns<'a> {
    id: Vec<i64>,
    fence: Vec<i32>,
    was: Vec<i16>,
    endpoint: Vec<i64>,
    in_line: Vec<bool>,
    lease: Vec<i16>,
    state: Vec<i16>,
    place: Vec<i16>,
    attempts: Vec<i32>,
    deferrals: Vec<i32>,
    born: Vec<i64>,
    at: Vec<i64>,
    now: Vec<i64>,
    reason: Vec<Option<i16>>,
    class: Vec<Option<i16>>,
    result: Vec<Option<Text<'a>>>,
    number: Vec<Option<i32>>,
    counted: Vec<Option<bool>>,
    started_at: Vec<Option<i64>>,
    duration_ms: Vec<Option<i32>>,
    status: Vec<Option<i32>>,
    failed_as: Vec<Option<i16>>,
    error: Vec<Option<Text<'a>>>,
    response: Vec<Option<Vec<u8>>>,
    in_row: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn of(settles: impl Iterator<Item = &'a Settle>) -> Self {
        let mut columns = Self::default();
        settles.for_each(|settle| columns.push(settle));
        columns
    }

    fn push(&mut self, settle: &'a Settle) {
        let next = &settle.next;
        let due = next.due.unwrap_or(settle.at);
        let place = if due <= settle.at { Place::Ready } else { Place::Timed };
        let at = if next.state.is_terminal() { settle.at } else { due };
        let attempt = settle.attempt.as_ref();
        self.id.push(settle.id.as_i64());
        self.fence.push(settle.fence.cast_signed());
        self.was.push(rows::as_small(code::state(settle.from)));
        self.endpoint.push(settle.endpoint.as_i64());
        self.in_line.push(settle.in_line);
        self.lease.push(match settle.lease {
            None => 0,
            Some(LeaseIs::Live) => 1,
            Some(LeaseIs::Lapsed) => 2,
        });
        self.state.push(rows::as_small(code::state(next.state)));
        self.place.push(rows::as_small(place.code()));
        self.attempts.push(next.attempts.cast_signed());
        self.deferrals.push(next.deferrals.cast_signed());
        self.born.push(next.born.as_millis());
        self.at.push(at.as_millis());
        self.now.push(settle.at.as_millis());
        self.reason.push(next.reason.map(|reason| rows::as_small(code::reason(reason))));
        self.class.push(next.class.map(|class| rows::as_small(code::class(class))));
        self.result.push(settle.result.as_deref().map(Text));
        self.number.push(attempt.map(|attempt| attempt.number.cast_signed()));
        self.counted.push(attempt.map(|attempt| attempt.counted));
        self.started_at.push(attempt.map(|attempt| attempt.started_at).map(Timestamp::as_millis));
        self.duration_ms.push(attempt.map(millis));
        self.status.push(attempt.and_then(|attempt| attempt.status).map(i32::from));
        let failed_as = attempt.and_then(|attempt| attempt.class);
        self.failed_as.push(failed_as.map(|class| rows::as_small(code::class(class))));
        self.error.push(attempt.and_then(|attempt| attempt.error.as_deref()).map(Text));
        let response = attempt.and_then(|attempt| attempt.response.as_ref());
        self.response.push(response.map(response::encode));
        self.in_row.push(attempt.is_some_and(|attempt| fits_row(settle, attempt)));
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.id,
            &self.fence,
            &self.was,
            &self.endpoint,
            &self.in_line,
            &self.lease,
            &self.state,
            &self.place,
            &self.attempts,
            &self.deferrals,
            &self.born,
            &self.at,
            &self.now,
            &self.reason,
            &self.class,
            &self.result,
            &self.number,
            &self.counted,
            &self.started_at,
            &self.duration_ms,
            &self.status,
            &self.failed_as,
            &self.error,
            &self.response,
            &self.in_row,
        ]
    }

    /// What [`EXTEND`] takes.
    fn extension(&self) -> Vec<Param<'_>> {
        vec![&self.id, &self.fence, &self.endpoint, &self.in_line, &self.lease, &self.at, &self.now]
    }
}

/// A success at the first try, the fate of nearly all deliveries, needs no row of its own: the
/// delivery's says all there is to say of it.
fn fits_row(settle: &Settle, attempt: &Attempt) -> bool {
    settle.next.state == State::Delivered
        && attempt.number == 1
        && attempt.counted
        && attempt.class.is_none()
        && attempt.error.is_none()
}

fn millis(attempt: &Attempt) -> i32 {
    i32::try_from(attempt.duration.as_millis()).unwrap_or(i32::MAX)
}

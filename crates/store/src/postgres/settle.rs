//! Making changes that `step` decided, each if its fence still holds, and moving lines on.
//!
//! A delivery that ends leaves `unfinished` for `finished`; a reset brings it back. Every statement
//! makes many changes of one kind and names all that it believes of each row: where any of it is not
//! so, that one is not made.
//!
//! A takeover that is committed while a statement runs is as good as one that came after it: whoever
//! takes over goes by the fences that it finds.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, Timestamp};
use tokio_postgres::{Row, Statement};

use super::fault::Fault;
use super::pipeline::Pipeline;
use super::rows::{self, Body};
use super::session::{Param, Session};
use super::text::Text;
use crate::error::Error;
use crate::fleet::Tenure;
use crate::record::{Attempt, LeaseIs, Settle, Settled};
use crate::stored::code::{self, Place};
use crate::stored::hot::HOT;
use crate::stored::response;

/// The changes, column by column, as `s`. That they are few is what the server makes of the limit,
/// which is none: it then looks each row up by its id, however small the table was when it planned.
const CHANGES: &str = "(SELECT * FROM unnest($1::int8[], $2::int4[], $3::int2[], $4::int8[], \
     $5::bool[], $6::int2[], $7::int2[], $8::int2[], $9::int4[], $10::int4[], $11::int8[], \
     $12::int8[], $13::int8[], $14::int2[], $15::int2[], $16::text[], $17::int4[], $18::bool[], \
     $19::int8[], $20::int4[], $21::int4[], $22::int2[], $23::text[], $24::bytea[], $25::bool[], \
     $26::int8[], $27::int4[]) \
     WITH ORDINALITY s (id, fence, was, endpoint_id, in_line, lease, state, place, attempts, \
     deferrals, born, at, now, reason, class, result, number, counted, started_at, duration_ms, \
     status, failed_as, error, response, in_row, hold, tenure, ordinal) LIMIT cardinality($1)) s";

/// The changes to what is unfinished, each with where its row is. It is looked up by its key and then
/// changed on the spot: a plan that was made when there was next to nothing in the table might begin
/// with the table, and go through the whole batch for each of its rows.
static ON_THE_SPOT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "(SELECT s.*, w.spot FROM {CHANGES} CROSS JOIN LATERAL \
         (SELECT w.ctid AS spot FROM unfinished w WHERE w.id = s.id OFFSET 0) w) s"
    )
});

/// What has to be so of a row `r` on the spot for a change `s` to be made.
const BELIEVED_THERE: &str = "r.ctid = s.spot AND r.fence = s.fence AND r.state = s.was \
     AND r.endpoint_id = s.endpoint_id AND (r.line IS NOT NULL) = s.in_line";

/// The same, where rows are found by their keys. That it is one of them at all is said for a plan
/// that begins with the table.
const BELIEVED: &str = "r.id = s.id AND r.id = ANY ($1) AND r.fence = s.fence AND r.state = s.was \
     AND r.endpoint_id = s.endpoint_id AND (r.line IS NOT NULL) = s.in_line";

/// The same of its lease: 1 ends later, 2 has ended.
const LEASE: &str = "(s.lease = 0 OR r.place = 4 AND (s.lease = 1) = (r.at > s.now))";

/// That the tenure of a change, if it names one, is still what it was. The few different ones are
/// looked up once for a statement, and each change says which of them is its own: of 128 changes that
/// made 1 % of the server's time where a look-up for each made 7 %.
fn held(keys: &str, epochs: &str) -> String {
    format!(
        "(s.tenure IS NULL OR (ARRAY(SELECT t.key IS NOT NULL \
         FROM unnest({keys}::int8[], {epochs}::int8[]) WITH ORDINALITY h (key, epoch, ordinal) \
         LEFT JOIN tenures t ON t.key = h.key AND t.epoch = h.epoch \
         ORDER BY h.ordinal))[s.tenure])"
    )
}

/// The same, where the changes are those of [`CHANGES`].
static HELD: LazyLock<String> = LazyLock::new(|| held("$28", "$29"));

/// What of a try is kept beside the delivery, in the order of [`TRIED`].
const TRY: &str = "s.number, s.counted, s.started_at, s.duration_ms, s.status, \
     s.failed_as, s.error, s.response, s.in_row";

/// The tries of the changes in `c` that have a row of their own.
const TRIED: &str = "tried AS (INSERT INTO attempts (delivery_id, number, counted, started_at, \
     duration_ms, status, class, error, response) \
     SELECT id, number, counted, started_at, duration_ms, status, failed_as, error, response \
         FROM c WHERE number IS NOT NULL AND NOT in_row)";

/// Endpoints that the changes in `c` hold, unless they are held for longer already. Nearly no change
/// holds anything, so only statements for those that do have this part: it costs a statement of one
/// change an eighth more.
const HOLDING: &str = "holding AS (UPDATE endpoints e SET hold_until = h.until \
     FROM (SELECT endpoint_id, max(hold) AS until FROM c WHERE hold IS NOT NULL \
         GROUP BY endpoint_id ORDER BY endpoint_id) h \
     WHERE e.id = h.endpoint_id AND (e.hold_until IS NULL OR e.hold_until < h.until))";

/// The changes in `c` are counted in the slot of the connection.
const COUNTED: &str = "counted AS (INSERT INTO delivery_counts \
     (endpoint_id, tenant_id, n, state, slot) \
     SELECT endpoint_id, min(tenant_id), sum(n), state, $30::int2 \
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

/// Which of the changes to an end a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Those that nobody stands behind, and that hold no endpoint.
    Plain,
    InLine,
    /// Those that hold their endpoint, in a line or not.
    Holding,
}

/// To an end.
fn end(ending: Ending) -> String {
    let ended = format!(
        "c AS (DELETE FROM unfinished r USING {there} WHERE {BELIEVED_THERE} AND {LEASE} AND {held} \
             RETURNING s.ordinal, s.hold, s.was, s.state, r.id, r.tenant_id, r.event_id, r.endpoint_id, \
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
         {TRIED}, {COUNTED}",
        there = *ON_THE_SPOT,
        held = *HELD,
    );
    let also = match ending {
        Ending::Plain => return format!("WITH {ended} SELECT ordinal FROM c"),
        Ending::InLine => String::new(),
        Ending::Holding => format!("{HOLDING}, "),
    };
    // Where a head went, the first that stood behind it, and did not go as well, is the next: one
    // row more for each, with the delivery and its event. One that stood in the middle holds nobody
    // up by leaving.
    let hot = HOT.split(", ").map(|column| format!("u.{column}")).collect::<Vec<_>>();
    let nothing = vec!["NULL"; HOT.split(", ").count() + rows::EVENT.split(", ").count() + 1];
    format!(
        "WITH {ended}, {also}\
         behind AS (SELECT c.ordinal, c.now, n.id FROM c CROSS JOIN LATERAL (\
             SELECT u.id FROM unfinished u WHERE u.endpoint_id = c.endpoint_id \
                 AND u.line = c.line AND u.place = 3 AND u.id <> ALL (ARRAY(SELECT id FROM c)) \
                 ORDER BY u.turn, u.id LIMIT 1) n \
             WHERE c.place <> 3), \
         next AS (UPDATE unfinished u SET place = CASE WHEN u.at <= b.now THEN 1 ELSE 2 END \
             FROM behind b WHERE u.id = b.id RETURNING b.ordinal, {hot}) \
         SELECT u.*, {event}, e.body FROM next u CROSS JOIN {of_delivery} \
         UNION ALL SELECT ordinal, {nothing} FROM c",
        hot = hot.join(", "),
        event = rows::EVENT,
        of_delivery = rows::EVENT_OF_DELIVERY,
        nothing = nothing.join(", "),
    )
}

static END: LazyLock<String> = LazyLock::new(|| end(Ending::Plain));
static END_IN_LINE: LazyLock<String> = LazyLock::new(|| end(Ending::InLine));
static END_HOLDING: LazyLock<String> = LazyLock::new(|| end(Ending::Holding));

/// From one wait to another, or to a worker: only what may be tried can be leased, nothing that
/// stands behind another of its line.
fn stay(also: &str) -> String {
    format!(
        "WITH c AS (UPDATE unfinished r SET state = s.state, \
             place = CASE WHEN s.state = 6 THEN 4 WHEN r.place = 3 THEN 3 ELSE s.place END, \
             attempts = s.attempts, deferrals = s.deferrals, fence = r.fence + 1, born = s.born, \
             at = s.at, tries = coalesce(s.number, r.tries), \
             last_attempt_at = CASE WHEN s.state = 6 THEN s.now ELSE {LAST_ATTEMPT} END, \
             class = CASE WHEN s.state = 6 THEN r.class ELSE {CLASS} END, \
             last_error = coalesce(s.error, r.last_error), result = {RESULT} \
             FROM {there} WHERE {BELIEVED_THERE} AND {LEASE} AND {held} \
                 AND (s.state <> 6 OR r.place IN (1, 2)) \
             RETURNING s.ordinal, s.hold, s.was, s.state, r.id, r.tenant_id, r.endpoint_id, \
                 {TRY}), \
         {TRIED}, {COUNTED}{also} SELECT ordinal FROM c",
        there = *ON_THE_SPOT,
        held = *HELD,
    )
}

static STAY: LazyLock<String> = LazyLock::new(|| stay(""));
static STAY_HOLDING: LazyLock<String> = LazyLock::new(|| stay(&format!(", {HOLDING}")));

/// A longer lease. The fence stays: the worker's token names it.
static EXTEND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE unfinished r SET at = s.at \
         FROM (SELECT * FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::bool[], $5::int2[], \
             $6::int8[], $7::int8[], $8::int4[]) WITH ORDINALITY \
             s (id, fence, endpoint_id, in_line, lease, at, now, tenure, ordinal) \
             LIMIT cardinality($1)) s \
         WHERE r.id = s.id AND r.id = ANY ($1) AND r.fence = s.fence \
             AND r.endpoint_id = s.endpoint_id AND (r.line IS NOT NULL) = s.in_line \
             AND r.place = 4 AND (s.lease = 0 OR (s.lease = 1) = (r.at > s.now)) AND {held} \
         RETURNING s.ordinal",
        held = held("$9", "$10"),
    )
});

/// From its end back to its wait, behind the head of its line if there is one; never to a worker. In
/// the line it goes by its event, as a replay does.
static BACK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH c AS (DELETE FROM finished r USING {CHANGES} WHERE {BELIEVED} AND s.lease = 0 \
                 AND s.state <> 6 AND {held} \
             RETURNING s.ordinal, s.hold, s.was, s.state, r.id, r.tenant_id, r.event_id, r.endpoint_id, \
                 s.born, s.at, {LAST_ATTEMPT} AS last_attempt_at, s.attempts, s.deferrals, \
                 coalesce(s.number, r.tries) AS tries, r.fence + 1 AS fence, {CLASS} AS class, \
                 r.replay, r.line, coalesce(s.error, r.last_error) AS last_error, \
                 {RESULT} AS result, s.place, {TRY}), \
         back AS (INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, \
             last_attempt_at, attempts, deferrals, tries, fence, state, place, class, replay, \
             line, last_error, result, turn) \
             SELECT id, tenant_id, event_id, endpoint_id, born, at, last_attempt_at, attempts, \
                 deferrals, tries, fence, state, CASE WHEN EXISTS (SELECT 1 FROM unfinished u \
                     WHERE u.endpoint_id = c.endpoint_id AND u.line = c.line) \
                     THEN 3 ELSE place END, \
                 class, replay, line, last_error, result, \
                 CASE WHEN line IS NOT NULL THEN event_id END FROM c), \
         {TRIED}, {COUNTED}, {HOLDING} SELECT ordinal FROM c",
        held = *HELD,
    )
});

/// The statements that settling needs, prepared.
pub(crate) struct Statements {
    end: Statement,
    end_in_line: Statement,
    end_holding: Statement,
    stay: Statement,
    stay_holding: Statement,
    extend: Statement,
    back: Statement,
}

impl Statements {
    pub(crate) async fn prepare(session: &Session) -> Result<Self, Fault> {
        Ok(Self {
            end: session.prepare(&END).await?,
            end_in_line: session.prepare(&END_IN_LINE).await?,
            end_holding: session.prepare(&END_HOLDING).await?,
            stay: session.prepare(&STAY).await?,
            stay_holding: session.prepare(&STAY_HOLDING).await?,
            extend: session.prepare(&EXTEND).await?,
            back: session.prepare(&BACK).await?,
        })
    }

    fn of(&self, kind: Kind) -> &Statement {
        match kind {
            Kind::End => &self.end,
            Kind::EndInLine => &self.end_in_line,
            Kind::EndHolding => &self.end_holding,
            Kind::Stay => &self.stay,
            Kind::StayHolding => &self.stay_holding,
            Kind::Extend => &self.extend,
            Kind::Back => &self.back,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    EndInLine,
    EndHolding,
    Stay,
    StayHolding,
    Extend,
    Back,
}

impl Kind {
    fn of(settle: &Settle) -> Self {
        let (from, to) = (settle.from, settle.next.state);
        let holds = settle.next.hold_endpoint_until.is_some();
        match (from.is_terminal(), to.is_terminal()) {
            (false, true) if holds => Self::EndHolding,
            (false, true) if settle.in_line => Self::EndInLine,
            (false, true) => Self::End,
            (false, false) if [from, to] == [State::InFlight; 2] => Self::Extend,
            (false, false) if holds => Self::StayHolding,
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
                Kind::EndInLine | Kind::EndHolding | Kind::Back => true,
                Kind::End | Kind::Stay | Kind::StayHolding | Kind::Extend => false,
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
                let ordinal: i64 = rows::get(row, 0)?;
                let member =
                    usize::try_from(ordinal - 1).ok().and_then(|index| group.members.get(index));
                let member = member.ok_or_else(|| Error::Damaged("an answer to nothing".into()))?;
                let promoted = match group.kind {
                    Kind::EndInLine | Kind::EndHolding
                        if rows::get::<Option<i64>>(row, 1)?.is_some() =>
                    {
                        let event = rows::event_at(row, 1 + rows::AFTER_HOT, Body::Follows)?;
                        Some(rows::hot_at(row, 1)?.with(Arc::new(event)))
                    }
                    Kind::EndInLine
                    | Kind::EndHolding
                    | Kind::End
                    | Kind::Stay
                    | Kind::StayHolding
                    | Kind::Extend
                    | Kind::Back => None,
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
                Kind::End | Kind::EndInLine | Kind::EndHolding | Kind::Stay | Kind::StayHolding => {
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
    hold: Vec<Option<i64>>,
    tenure: Vec<Option<i32>>,
    tenures: Tenures,
}

/// The different tenures of some changes, column by column.
#[derive(Default)]
struct Tenures {
    key: Vec<i64>,
    epoch: Vec<i64>,
    known: HashMap<Tenure, i32>,
}

impl Tenures {
    /// Which one it is, from 1 on.
    fn ordinal(&mut self, tenure: Tenure) -> i32 {
        *self.known.entry(tenure).or_insert_with(|| {
            self.key.push(tenure.charge.key());
            self.epoch.push(tenure.epoch);
            i32::try_from(self.key.len()).expect("a statement has few changes")
        })
    }
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
        self.hold.push(next.hold_endpoint_until.map(Timestamp::as_millis));
        self.tenure.push(settle.tenure.map(|tenure| self.tenures.ordinal(tenure)));
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
            &self.hold,
            &self.tenure,
            &self.tenures.key,
            &self.tenures.epoch,
        ]
    }

    /// What [`EXTEND`] takes.
    fn extension(&self) -> Vec<Param<'_>> {
        vec![
            &self.id,
            &self.fence,
            &self.endpoint,
            &self.in_line,
            &self.lease,
            &self.at,
            &self.now,
            &self.tenure,
            &self.tenures.key,
            &self.tenures.epoch,
        ]
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

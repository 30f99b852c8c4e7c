//! The questions asked all the time are answered from their indexes, in order, without sorting.

use rusqlite::Connection;

use super::config::Options;
use super::{ahead, file, fleet, history, leases, lists, measures, pages, rows, typed};
use crate::ledger::Direction;
use crate::stored::hot::HOT;

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
    let unset = vec![rusqlite::types::Null; statement.parameter_count()];
    let steps = statement
        .query_map(rusqlite::params_from_iter(unset), |row| row.get::<_, String>(3))
        .expect(sql);
    steps.map(|step| step.expect("a step")).collect::<Vec<_>>().join("; ")
}

#[test]
fn hot_questions_search_their_index_and_do_not_sort() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let opened = file::open(&directory.path().join("plans.db"), &Options::default()).expect("open");
    let hot = |from: &str| format!("SELECT {HOT} {from}");
    let record = |from: &str| format!("SELECT {} {from}", rows::RECORD);
    let cases = [
        (hot(pages::READY), "USING INDEX deliveries_ready (endpoint_id=?)"),
        (pages::DUE.to_owned(), "USING COVERING INDEX deliveries_timed (endpoint_id=? AND at<?)"),
        (
            pages::AFTER_NOW.to_owned(),
            "USING COVERING INDEX deliveries_timed (endpoint_id=? AND at>?)",
        ),
        (fleet::OLDEST_READY.to_owned(), "USING INDEX deliveries_ready (endpoint_id=?)"),
        (pages::NEXT_DUE.to_owned(), "USING COVERING INDEX deliveries_timed (endpoint_id=?)"),
        (
            typed::select(typed::READY_ON),
            "USING INDEX deliveries_ready (endpoint_id=? AND event_id>?)",
        ),
        (
            typed::select(typed::DUE_ON),
            "USING INDEX deliveries_timed (endpoint_id=? AND at>? AND at<?)",
        ),
        (typed::select(typed::DUE_ON), "SEARCH events USING INTEGER PRIMARY KEY (rowid=?)"),
        (leases::select(leases::LEASED), "USING INTEGER PRIMARY KEY (rowid=?)"),
        (leases::select(leases::BY_END), "USING INDEX deliveries_leased"),
        (
            hot(pages::UNFINISHED_READY),
            "USING INDEX deliveries_ready (endpoint_id=? AND event_id>?)",
        ),
        (
            hot(pages::UNFINISHED_REPLAY),
            "USING INDEX deliveries_replay_ready (endpoint_id=? AND rowid>? AND rowid<?)",
        ),
        (
            hot(pages::UNFINISHED_LATER),
            "USING INDEX deliveries_later (endpoint_id=? AND rowid>? AND rowid<?)",
        ),
        (
            record(history::HEAD),
            "USING INDEX deliveries_line (endpoint_id=? AND line=? AND place=?)",
        ),
        (
            ahead::AHEAD.to_owned(),
            "USING COVERING INDEX deliveries_line (endpoint_id=? AND line=? AND place=?",
        ),
        (record(lists::OF_EVENT), "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (record(lists::REPLAYS_OF_EVENT), "USING INDEX deliveries_replay (event_id=?)"),
        (
            lists::dead_letters_sql(Direction::OldestFirst),
            "USING INDEX deliveries_dead (tenant_id=? AND event_id>?)",
        ),
        (
            lists::dead_letters_sql(Direction::NewestFirst),
            "USING INDEX deliveries_dead (tenant_id=? AND event_id<?)",
        ),
        (
            measures::select(measures::OF_ONE),
            "USING PRIMARY KEY (tenant_id=? AND grain=? AND endpoint_id=? AND start>?)",
        ),
        (
            measures::select(measures::OF_EACH),
            "USING PRIMARY KEY (tenant_id=? AND grain=? AND endpoint_id>?)",
        ),
        (measures::FORGET.to_owned(), "USING COVERING INDEX measures_start (grain=? AND start<?)"),
    ];
    for (sql, expected) in cases {
        let plan = plan(&opened.writer, &sql);
        assert!(plan.contains(expected), "{sql}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
}

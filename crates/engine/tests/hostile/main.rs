//! Receivers that misbehave, each a server on a real socket, each visited a hundred times by the
//! whole engine: the result is the one the table states, no slot and no memory is lost, and a
//! healthy endpoint beside it is served as ever.

#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the client")]
#[path = "../../src/http_client/tests/peer.rs"]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/mod.rs"]
mod rig;

mod gateway;
mod memory;
mod panics;
mod script;
mod story;

mod bodies;
mod certificate;
mod credentials;
mod floods;
mod hangups;
mod heads;
mod http2;
mod pace;
mod redirects;
mod silence;
mod tls;

use std::collections::BTreeSet;

use gateway::Gateway;

/// The behaviours and what each requires of us.
const TABLE: &str = include_str!("../data/hostile_responses.tsv");

/// Rows that other suites show, and why not this one.
const ELSEWHERE: &[(&str, &str)] = &[
    ("R39", "a name that changes its address: the destination guard's tests, with a name server"),
    ("R41", "broken and endless DNS answers: the resolver's tests, with a name server"),
    ("R43", "our own ingest URL as an endpoint: needs the server, so its tests show it"),
];

/// Each row becomes a test that visits its server and then looks for harm.
macro_rules! rows {
    ($($id:literal $behaviour:ident => $case:path;)*) => {
        const SHOWN: &[&str] = &[$($id),*];

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let _company = memory::company($id).await;
                let gateway = Gateway::start().await;
                $case(&gateway).await;
                gateway.assert_unharmed().await;
            }
        )*
    };
}

rows! {
    "R1" a_peer_that_never_reads_costs_the_deadline => silence::never_reads;
    "R5" the_status_decides_when_the_body_drips_for_ever => silence::drips;
    "R6" an_endless_body_is_left_after_its_bound => bodies::endless;
    "R7" a_promised_body_that_stalls_costs_the_deadline_and_no_memory => silence::promises_much;
    "R8" bytes_after_an_answer_are_never_the_next_answer => bodies::longer_than_announced;
    "R9" two_ways_to_measure_a_body_are_an_error => heads::length_and_chunks;
    "R10" two_lengths_are_an_error => heads::two_lengths;
    "R11" a_chunk_of_any_size_overflows_nothing => bodies::huge_chunk;
    "R13" encoded_bodies_are_kept_as_they_came => bodies::encoded;
    "R14" heads_end_at_their_bound => heads::too_large;
    "R15" header_values_are_refused_or_become_inert_text => heads::unprintable;
    "R16" a_reason_of_a_mebibyte_is_an_error => heads::long_reason;
    "R17" interim_answers_do_not_outlast_the_deadline => silence::continues;
    "R18" switching_protocols_is_a_failure => heads::switches;
    "R19" early_hints_are_passed_over => heads::hints;
    "R21" redirects_are_failures_and_not_followed => redirects::elsewhere;
    "R22" a_redirect_to_itself_is_one_request => redirects::to_itself;
    "R23" refreshing_is_for_browsers => redirects::refresh;
    "R25" a_receiver_that_asks_for_time_gets_it => pace::asks_for_time;
    "R26" hints_that_mean_nothing_are_ignored => pace::asks_nonsense;
    "R27" hints_without_measure_are_ignored_or_clamped => pace::asks_without_measure;
    "R31" only_2xx_is_success => heads::odd_statuses;
    "R32" what_is_not_http_is_a_failure => heads::not_http;
    "R33" a_reset_is_retried_with_the_same_id => hangups::resets;
    "R34" the_status_decides_when_the_body_is_cut => bodies::cut;
    "R35" no_attempt_is_sent_twice => hangups::closes_between;
    "R36" peers_that_cannot_prove_themselves_get_nothing => tls::unacceptable;
    "R38" ordinary_control_frames_are_no_flood => floods::ordinary;
    "R38" floods_before_an_answer_end_the_connection => floods::before_an_answer;
    "R38" floods_after_an_answer_end_the_connection => floods::after_an_answer;
    "R38" a_head_without_end_ends_the_connection => floods::unfinished_head;
    "R38" a_window_that_grows_by_nothing_ends_the_connection => floods::no_window;
    "R38" requests_that_are_reset_are_not_sent_for_ever => floods::resets;
    "R38" connections_that_say_goodbye_are_not_dialled_for_ever => floods::goodbyes;
    "R44" cookies_are_not_kept => credentials::cookies;
    "R45" challenges_are_failures_and_not_answered => credentials::challenges;
    "R46" hostile_text_is_kept_whole_and_shown_inert => bodies::hostile_text;
}

#[test]
fn every_row_of_the_table_is_shown_here_or_elsewhere() {
    let stated: BTreeSet<&str> =
        TABLE.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    let shown: BTreeSet<&str> = SHOWN.iter().copied().collect();
    let elsewhere: BTreeSet<&str> = ELSEWHERE.iter().map(|(id, _)| *id).collect();
    assert!(shown.is_disjoint(&elsewhere), "{shown:?}, {elsewhere:?}");
    assert_eq!(stated, &shown | &elsewhere);
}

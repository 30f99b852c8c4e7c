//! One suite for every backend: what a store must do, said against the traits.
//!
//! A backend supplies a [`Place`] and calls [`conformance!`](crate::conformance!) in its tests,
//! which makes a test of every case.

use std::sync::Arc;

use async_trait::async_trait;

use crate::Store;

mod fleet;
mod scene;

pub mod appending;
pub mod auditing;
pub mod configuration;
pub mod counting;
pub mod dead_letters;
pub mod declarations;
pub mod durability;
pub mod event_types;
pub mod fences;
pub mod fleet_lanes;
pub mod fleet_look;
pub mod fleet_members;
pub mod fleet_words;
pub mod groups;
pub mod history;
pub mod hubs;
pub mod idempotency;
pub mod lease_tokens;
pub mod leasing;
pub mod lines;
pub mod measures;
pub mod paging;
pub mod retention;
pub mod sessions;
pub mod sources;
pub mod standing;
pub mod tenures;

/// Somewhere a store can be kept that nodes can share. Each case gets a new, empty one.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens what is kept here. The store opened before has been closed.
    async fn open(&self) -> Arc<dyn Store>;
}

/// Makes a test of every case; `$place` is an expression for a new, empty [`Place`].
#[macro_export]
macro_rules! conformance {
    ($place:expr) => {
        $crate::conformance! { @each $place;
            appending {
                what_is_stored_comes_back_exactly,
                the_trace_of_an_event_goes_wherever_it_goes,
                each_endpoint_gets_exactly_one_delivery,
                an_event_without_endpoints_is_kept,
                an_id_is_not_stored_twice,
                appends_at_the_same_time_are_all_kept,
                more_deliveries_of_an_old_event,
                no_deliveries_of_an_event_that_is_gone,
                the_highest_id_covers_every_kind,
            }
            idempotency {
                the_same_event_again_is_a_duplicate,
                a_duplicate_leaves_the_first_events_trace,
                json_written_otherwise_is_the_same,
                other_content_is_a_conflict,
                duplicates_within_one_batch_are_seen,
                of_many_at_once_exactly_one_is_new,
                keys_belong_to_their_tenant,
            }
            fences {
                a_stale_settle_changes_nothing,
                a_settle_that_believes_something_else_changes_nothing,
                a_settle_of_nothing_is_stale,
                the_stale_ones_of_a_batch_leave_the_others,
                of_many_with_one_fence_exactly_one_applies,
            }
            lines {
                the_next_of_a_line_becomes_ready_when_its_head_ends,
                keys_have_lines_of_their_own,
                a_retry_keeps_its_line_waiting,
                leaving_the_middle_of_a_line_promotes_nobody,
                a_reset_goes_back_behind_the_head,
                a_reset_into_an_empty_line_is_ready,
                a_head_with_a_time_holds_its_line,
                a_parked_one_with_a_time_becomes_timed,
                a_parked_one_says_what_it_waits_for,
                a_parked_one_knows_its_place,
                replays_stand_in_line_too,
            }
            leasing {
                a_leased_delivery_is_found_by_nobody_else,
                what_is_leased_is_known_by_its_id,
                an_ended_lease_is_tried_again,
                ended_leases_come_in_the_order_they_ended,
                a_leased_head_holds_its_line,
                each_line_leases_its_own_head,
                a_lease_that_comes_to_nothing_was_no_attempt,
                a_leased_delivery_can_be_cancelled,
                leased_ones_are_counted_listed_and_kept,
                leases_survive_closing,
                a_result_is_kept_until_a_reset,
            }
            lease_tokens {
                an_answer_in_time_settles_it,
                a_token_of_an_earlier_lease_changes_nothing,
                an_extended_lease_keeps_its_fence,
                a_lease_lives_until_its_end_and_not_longer,
                a_lease_that_was_extended_meanwhile_has_not_lapsed,
                only_what_may_be_tried_can_be_leased,
                a_settle_that_believes_something_else_of_a_lease_changes_nothing,
            }
            paging {
                ready_ones_come_oldest_event_first,
                held_ones_are_passed_over,
                pages_of_several_endpoints_are_as_if_each_was_asked_for_alone,
                bodies_are_bounded_but_never_to_nothing,
                timed_ones_come_when_they_are_due,
                the_next_due_time_is_known,
                deliveries_of_one_event_share_it,
                only_what_may_be_tried_is_waiting,
                the_unfinished_are_walked_completely,
                the_unfinished_by_age,
            }
            event_types {
                a_page_can_be_of_chosen_types,
                a_page_of_chosen_types_keeps_to_its_bounds,
                a_rare_type_is_found_among_many_others,
            }
            history {
                a_success_at_the_first_try_is_an_attempt,
                attempts_are_numbered_over_all_lives,
                a_success_clears_the_class_and_keeps_the_last_error,
                an_end_without_an_attempt_keeps_what_the_last_one_said,
                events_are_listed_newest_first,
                events_are_found_by_what_they_are,
                deliveries_are_found_by_the_type_of_their_event,
                deliveries_are_found_by_what_they_are,
                a_list_of_deliveries_goes_both_ways,
                another_tenants_rows_are_not_seen,
            }
            dead_letters {
                they_come_in_the_order_of_events,
                each_filter_selects,
                a_cursor_stays_valid_while_rows_come_and_go,
                they_are_counted,
                purging_removes_only_what_matches,
            }
            groups {
                dead_letters_are_grouped_by_where_and_why,
                groups_are_of_what_the_filter_selects,
                another_tenants_dead_letters_are_in_no_group,
                only_the_newest_are_grouped,
            }
            retention {
                each_kind_goes_at_its_age,
                an_event_goes_after_its_last_delivery,
                a_replay_keeps_its_event,
                small_steps_reach_everything,
                a_freed_key_can_be_used_again,
            }
            counting {
                counts_are_exact_whatever_happens,
                commits_are_counted_with_what_is_in_them,
            }
            configuration {
                endpoints_come_back_as_they_were,
                an_endpoint_is_forgotten_when_nothing_waits,
                since_when_an_endpoint_fails_is_kept_apart_from_its_configuration,
                keys_come_back_and_are_unique,
                the_default_tenant_exists,
                jobs_come_back_as_they_were,
            }
            sources {
                sources_come_back_as_they_were,
                what_a_source_received_comes_back_exactly,
                a_webhook_sent_twice_is_kept_once,
                sources_and_producers_have_keys_of_their_own,
                events_are_found_by_their_source,
            }
            hubs {
                hubs_come_back_and_are_unique,
            }
            declarations {
                declarations_come_back_as_they_were,
                a_thing_has_one_name,
                a_turn_waits_for_the_one_before,
            }
            sessions {
                sessions_come_back_as_they_were,
                a_use_only_moves_forward,
                a_session_that_has_ended_stays_so,
                old_and_idle_sessions_end,
            }
            measures {
                what_is_added_adds_up,
                what_many_add_at_once_is_all_there,
                measures_are_found_by_whose_they_are,
                what_is_old_is_forgotten_step_by_step,
            }
            auditing {
                a_change_is_audited_newest_first,
                a_change_that_is_refused_leaves_no_row,
                only_settles_that_apply_are_audited,
                a_store_has_one_name_for_ever,
                the_last_use_of_a_key_only_moves_forward,
            }
            fleet_members {
                a_node_is_known_by_what_it_said_of_itself,
                numbers_differ_and_rest_after_use,
                of_many_that_join_at_once_each_has_its_own_number,
                one_that_left_is_no_member,
                one_that_nobody_knows_is_no_member,
                a_dead_node_is_remembered_with_what_it_has,
                whoever_comes_back_to_its_place_waits_for_nobody,
                a_hub_is_with_whoever_seized_it_last,
                members_survive_closing,
            }
            fleet_lanes {
                shares_stay_even_while_nodes_come_and_go,
                what_is_released_goes_to_those_who_lack_it,
                only_what_one_has_can_be_released,
                a_dead_nodes_lanes_are_taken_after_its_lease_and_not_before,
                a_node_that_was_away_has_what_nobody_took,
                a_stopping_node_takes_nothing_and_has_no_share,
                of_many_beats_at_once_no_lane_goes_to_two,
                there_are_as_many_lanes_as_the_first_node_said,
            }
            fleet_look {
                what_may_be_tried_is_found,
                what_nobody_may_try_is_not_found,
                many_endpoints_are_looked_at,
                a_beat_sees_the_revision_that_a_look_sees,
            }
            fleet_words {
                words_reach_those_they_are_for,
                words_are_heard_in_the_order_they_were_told,
                a_word_is_heard_as_it_was_told_unless_it_is_too_long,
                a_gap_says_that_something_was_lost,
                who_stops_listening_is_in_nobodys_way,
            }
            tenures {
                a_settle_under_a_tenure_that_holds_is_applied,
                a_settle_under_a_tenure_that_has_passed_changes_nothing,
                the_passed_ones_of_a_batch_leave_the_others,
                a_passed_settle_does_not_keep_its_line_waiting,
                a_line_moves_under_a_tenure_that_holds,
                only_what_applies_under_its_tenure_is_audited,
                a_job_is_put_only_under_a_tenure_that_holds,
            }
            standing {
                a_hold_is_kept_with_the_settle_that_made_it,
                a_hold_outlives_changes_and_closing,
                a_stale_settle_holds_nothing,
                a_head_that_ends_with_a_hold_lets_its_line_move_on,
                breakers_are_noted_until_they_close,
                the_revision_grows_with_each_change_of_configuration,
            }
            durability {
                everything_survives_closing,
                lazy_writes_are_on_disk_after_closing,
                a_closed_store_says_so,
            }
        }
    };
    (@each $place:expr; $($theme:ident { $($case:ident),* $(,)? })*) => {
        $(mod $theme {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let place = $place;
                    $crate::conformance::$theme::$case(&place).await;
                }
            )*
        })*
    };
}

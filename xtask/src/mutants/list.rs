//! What is broken, and which checker is to complain: at least one for each, in the order of the
//! invariants. A text that no longer occurs exactly once has to be looked for again.

#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// As the simulation names it.
    pub(super) checker: &'static str,
    /// What the broken product does.
    pub(super) breaks: &'static str,
    pub(super) edits: &'static [Edit],
}

#[derive(Debug)]
pub(super) struct Edit {
    /// From the root of the repository.
    pub(super) file: &'static str,
    /// Occurs there exactly once.
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

const APPEND: &str = "crates/store/src/sqlite/append.rs";
const BEATS: &str = "crates/engine/src/fleet/beats.rs";
const DELIVERY: &str = "crates/core/src/delivery.rs";
const ENDPOINTS: &str = "crates/engine/src/endpoints.rs";
const HISTORY: &str = "crates/store/src/sqlite/history.rs";
const INTAKE: &str = "crates/engine/src/intake.rs";
const LETTER: &str = "crates/engine/src/carriers/letter.rs";
const LISTS: &str = "crates/store/src/sqlite/lists.rs";
const PAGES: &str = "crates/store/src/sqlite/pages.rs";
const ROUTE: &str = "crates/engine/src/route.rs";
const SCHEDULER: &str = "crates/engine/src/scheduler.rs";
const SETTLE: &str = "crates/store/src/sqlite/settle.rs";
const SETTLER: &str = "crates/engine/src/settler.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "early-yes",
        checker: "durable",
        breaks: "says yes to a producer although the store said no",
        edits: &[Edit {
            file: INTAKE,
            from: "                request.answer(shared, Err(error.clone().into()));\n",
            to: "                let parked = Vec::new;\n\
                 \x20               let told = request.events.iter();\n\
                 \x20               let told = told.map(|new| receipt(new, &Appended::New { parked: parked() }));\n\
                 \x20               let told = told.collect();\n\
                 \x20               request.answer(shared, Ok(told));\n",
        }],
    },
    Mutant {
        name: "half-an-event",
        checker: "whole",
        breaks: "stores some events without their first delivery",
        edits: &[Edit {
            file: APPEND,
            from: "for (index, delivery) in new.deliveries.iter().enumerate() {",
            to: "let skipped = usize::from(new.event.id.as_i64() % 7 == 0);\n\
                 \x20   for (index, delivery) in new.deliveries.iter().enumerate().skip(skipped) {",
        }],
    },
    Mutant {
        name: "two-patterns-two-times",
        checker: "one_each",
        breaks: "makes a delivery for each pattern of an endpoint that matches",
        edits: &[Edit {
            file: ROUTE,
            from: "            found.dedup_by_key(|route| route.id());\n",
            to: "",
        }],
    },
    Mutant {
        name: "no-key",
        checker: "one_each",
        breaks: "forgets idempotency keys",
        edits: &[Edit {
            file: APPEND,
            from: "        null_or(event.idempotency_key.as_deref()),\n",
            to: "        null_or(None::<&str>),\n",
        }],
    },
    Mutant {
        name: "stuck-line",
        checker: "stranded",
        breaks: "does not let the next of a line go when its head has ended",
        edits: &[Edit {
            file: SETTLE,
            from: "            promote(batch.conn, settle.endpoint, &line, settle.at)?\n",
            to: "            None\n",
        }],
    },
    Mutant {
        name: "lost-page",
        checker: "stranded",
        breaks: "forgets what waits in the store when a page of it could not be read",
        edits: &[Edit {
            file: SCHEDULER,
            from: "        queue.page = None;\n        queue.spilled = true;\n",
            to: "        queue.page = None;\n",
        }],
    },
    Mutant {
        name: "unheard-line",
        checker: "stranded",
        breaks: "does not look for the next of a line that a commit moved on without being heard",
        edits: &[Edit {
            file: SETTLER,
            from: "                    if verdict.waiting.in_line {\n",
            to: "                    if verdict.waiting.in_line && now < Timestamp::MIN {\n",
        }],
    },
    Mutant {
        name: "too-soon",
        checker: "due",
        breaks: "tries again up to a minute before its time",
        edits: &[
            Edit {
                file: PAGES,
                from: "WHERE endpoint_id = ?1 AND place = 2 AND at <= ?2 ORDER BY at LIMIT ?3",
                to: "WHERE endpoint_id = ?1 AND place = 2 AND at <= ?2 + 60000 ORDER BY at LIMIT ?3",
            },
            Edit {
                file: DELIVERY,
                from: "} else if delivery.due > now {",
                to: "} else if delivery.due > Timestamp::MAX {",
            },
        ],
    },
    Mutant {
        name: "no-hurry",
        checker: "prompt",
        breaks: "leaves what was just accepted until something else happens",
        edits: &[Edit {
            file: INTAKE,
            from: "    shared.pump();\n    shared.cancel_orphans(orphans);\n",
            to: "    shared.cancel_orphans(orphans);\n",
        }],
    },
    Mutant {
        name: "no-epoch",
        checker: "stale_writes",
        breaks: "lets a node settle what is in another's lane by now",
        edits: &[Edit {
            file: SETTLE,
            from: "settled.push(if held { settle_one(batch, settle)? } else { Settled::Stale });",
            to: "settled.push(settle_one(batch, settle)?);",
        }],
    },
    Mutant {
        name: "no-fence",
        checker: "stale_writes",
        breaks: "lets a node that has lost its lane overwrite what was settled since",
        edits: &[
            Edit {
                file: SETTLE,
                from: "settled.push(if held { settle_one(batch, settle)? } else { Settled::Stale });",
                to: "settled.push(settle_one(batch, settle)?);",
            },
            Edit {
                file: SETTLE,
                from: "     last_error = coalesce(?19, last_error) \\\n     WHERE id = ?1 AND fence = ?2",
                to: "     last_error = coalesce(?19, last_error) \\\n     WHERE id = ?1 AND fence >= ?2",
            },
        ],
    },
    Mutant {
        name: "in-flight-again",
        checker: "duplicates",
        breaks: "reads what is in flight from the store and sends it again",
        edits: &[
            Edit {
                file: SCHEDULER,
                from: "held.chain(queue.in_flight.keys().copied()).chain(queue.reserved.iter().copied());",
                to: "held.chain(queue.reserved.iter().copied());",
            },
            Edit {
                file: SCHEDULER,
                from: "        self.in_flight.contains_key(&delivery)\n            || self.reserved.contains(&delivery)\n",
                to: "        self.reserved.contains(&delivery)\n",
            },
        ],
    },
    Mutant {
        name: "hasty-handover",
        checker: "duplicates",
        breaks: "hands lanes over with deliveries of them in flight, and busy ones first",
        edits: &[
            Edit {
                file: BEATS,
                from: "leaving.into_iter().filter(|charge| scheduler.in_flight_of(*charge) == 0).collect()",
                to: "leaving.into_iter().filter(|charge| scheduler.in_flight_of(*charge) < 99).collect()",
            },
            Edit {
                file: BEATS,
                from: "(scheduler.in_flight_of(*charge), std::cmp::Reverse(*charge))",
                to: "std::cmp::Reverse((scheduler.in_flight_of(*charge), *charge))",
            },
        ],
    },
    Mutant {
        name: "another-id",
        checker: "same_letter",
        breaks: "gives every attempt an id of its own",
        edits: &[Edit {
            file: LETTER,
            from: "(WEBHOOK_ID, id),",
            to: "(WEBHOOK_ID, format!(\"{id}-{}\", parcel.number)),",
        }],
    },
    Mutant {
        name: "unsigned",
        checker: "same_letter",
        breaks: "does not sign what is tried again",
        edits: &[Edit {
            file: LETTER,
            from: "            headers.insert(name, value);\n        }\n        headers.insert(WEBHOOK_TIMESTAMP",
            to: "            if parcel.number == 1 {\n                headers.insert(name, value);\n            }\n        }\n        headers.insert(WEBHOOK_TIMESTAMP",
        }],
    },
    Mutant {
        name: "forgotten-success",
        checker: "after_success",
        breaks: "confirms some successes and does not write them down",
        edits: &[Edit {
            file: SETTLE,
            from: "    if !leases::stand_as_believed(batch.conn, settle)? {\n",
            to: "    if settle.next.state == State::Delivered && settle.id.as_i64() % 5 == 0 {\n\
                 \x20       return Ok(Settled::Applied { promoted: None });\n    }\n\
                 \x20   if !leases::stand_as_believed(batch.conn, settle)? {\n",
        }],
    },
    Mutant {
        name: "one-too-many",
        checker: "attempt_numbers",
        breaks: "makes one attempt more than the policy allows",
        edits: &[Edit {
            file: DELIVERY,
            from: "policy.max_attempts().is_some_and(|max| attempts >= max)",
            to: "policy.max_attempts().is_some_and(|max| attempts > max)",
        }],
    },
    Mutant {
        name: "no-line",
        checker: "order",
        breaks: "lets all of a line go at once",
        edits: &[Edit {
            file: APPEND,
            from: "        row.place = Place::Parked;\n",
            to: "        let _ = Place::Parked;\n",
        }],
    },
    Mutant {
        name: "one-holds-all",
        checker: "isolated",
        breaks: "looks at no other endpoint while one has to wait",
        edits: &[Edit {
            file: SCHEDULER,
            from: "                ) => {\n                    self.set_alarm(id, until);\n                }\n",
            to: "                ) => {\n                    self.set_alarm(id, until);\n                    return None;\n                }\n",
        }],
    },
    Mutant {
        name: "newest-first",
        checker: "by_age",
        breaks: "sends the newest event of an endpoint first",
        edits: &[Edit {
            file: SCHEDULER,
            from: "let (_, waiting) = self.window.pop_first()?;",
            to: "let (_, waiting) = self.window.pop_last()?;",
        }],
    },
    Mutant {
        name: "retries-last",
        checker: "by_age",
        breaks: "sends what is new before what is tried again",
        edits: &[Edit {
            file: SCHEDULER,
            from: "let (_, waiting) = self.window.pop_first()?;",
            to: "let new = self.window.iter().find(|(_, one)| one.tries == 0);\n\
                 \x20       let next = new.or_else(|| self.window.first_key_value());\n\
                 \x20       let key = next.map(|(key, _)| *key)?;\n\
                 \x20       let waiting = self.window.remove(&key)?;",
        }],
    },
    Mutant {
        name: "retries-first",
        checker: "by_age",
        breaks: "sends what is tried again before what is new",
        edits: &[Edit {
            file: SCHEDULER,
            from: "let (_, waiting) = self.window.pop_first()?;",
            to: "let again = self.window.iter().find(|(_, one)| one.tries > 0);\n\
                 \x20       let next = again.or_else(|| self.window.first_key_value());\n\
                 \x20       let key = next.map(|(key, _)| *key)?;\n\
                 \x20       let waiting = self.window.remove(&key)?;",
        }],
    },
    Mutant {
        name: "before-its-event",
        checker: "jumps",
        breaks: "confirms a success and does not write it down when the clock was set back since",
        edits: &[Edit {
            file: SETTLE,
            from: "    if !leases::stand_as_believed(batch.conn, settle)? {\n",
            to: "    if settle.next.state == State::Delivered && settle.at < settle.next.born {\n\
                 \x20       return Ok(Settled::Applied { promoted: None });\n    }\n\
                 \x20   if !leases::stand_as_believed(batch.conn, settle)? {\n",
        }],
    },
    Mutant {
        name: "open-rows",
        checker: "tenants",
        breaks: "shows deliveries to whoever knows their id",
        edits: &[Edit {
            file: HISTORY,
            from: "Ok(rows::load_record(conn, id)?.filter(|record| record.tenant == tenant))",
            to: "let _ = tenant;\n    Ok(rows::load_record(conn, id)?)",
        }],
    },
    Mutant {
        name: "one-for-all",
        checker: "tenants",
        breaks: "sends the events of every tenant to the endpoints of the first",
        edits: &[Edit {
            file: ROUTE,
            from: "let Some(index) = self.by_tenant.get(&tenant) else { return Vec::new() };",
            to: "let _ = tenant;\n\
                 \x20       let Some(index) = self.by_tenant.get(&TenantId::DEFAULT) else { return Vec::new() };",
        }],
    },
    Mutant {
        name: "no-window",
        checker: "memory",
        breaks: "keeps everything that waits in memory",
        edits: &[Edit {
            file: SCHEDULER,
            from: "self.window.is_empty() || (self.window.len() < WINDOW && self.window_bytes < WINDOW_BYTES)",
            to: "true",
        }],
    },
    Mutant {
        name: "no-slots",
        checker: "memory",
        breaks: "has as many in flight to an endpoint as there are",
        edits: &[Edit {
            file: SCHEDULER,
            from: "if in_flight >= self.route.max_in_flight as usize || self.in_flight_bytes >= IN_FLIGHT_BYTES",
            to: "if self.in_flight_bytes >= IN_FLIGHT_BYTES",
        }],
    },
    Mutant {
        name: "pause-discards",
        checker: "kept",
        breaks: "cancels what waits for an endpoint that is paused",
        edits: &[Edit {
            file: ENDPOINTS,
            from: "        let changed = set_state(shared, &current, state, audit).await;\n",
            to: "        let changed = set_state(shared, &current, state, audit).await;\n\
                 \x20       if state == EndpointState::Paused {\n\
                 \x20           drop(cancel_pass(shared, id).await);\n\
                 \x20       }\n",
        }],
    },
    Mutant {
        name: "cancelled-is-delivered",
        checker: "kept",
        breaks: "says of what was cancelled that it was delivered",
        edits: &[Edit {
            file: DELIVERY,
            from: "Transition::Moves(delivery.becomes(State::Cancelled))",
            to: "Transition::Moves(delivery.becomes(State::Delivered))",
        }],
    },
    Mutant {
        name: "unlisted-dead",
        checker: "kept",
        breaks: "leaves what is dead out of the list of dead letters",
        edits: &[Edit {
            file: LISTS,
            from: "WHERE tenant_id = ?1 AND state IN (3, 4) AND (event_id, id) {beyond} (?2, ?3)",
            to: "WHERE tenant_id = ?1 AND state IN (3, 4) AND state <> 4 AND (event_id, id) {beyond} (?2, ?3)",
        }],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use xtask::cargo;

    use super::*;

    #[test]
    fn every_checker_has_a_mutant_and_every_mutant_a_checker() {
        let folder = cargo::root().join("crates/sim/src/checkers");
        let files = fs::read_dir(folder).expect("the checkers");
        let names = files.map(|file| file.expect("a file").file_name().into_string());
        let mut checkers: BTreeSet<String> = names
            .map(|name| name.expect("a plain name"))
            .filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned()))
            .collect();
        // These two help the others.
        checkers.retain(|name| name != "made" && name != "near");
        let expected: BTreeSet<String> =
            MUTANTS.iter().map(|mutant| mutant.checker.to_owned()).collect();
        assert_eq!(checkers, expected);
    }

    #[test]
    fn no_two_have_the_same_name() {
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), MUTANTS.len());
    }
}

//! Histories that are known to be wrong are rejected, where they go wrong; such that are right are accepted.

mod shared;

use locus_history::{History, Limit, Limits, Operation, Verdict, Violation, check};
use shared::{delete, endless, get, minimal, put, unknown, verdict, verdict_of_cache};

/// Rejected because of one operation; what the minimiser leaves is rejected, too.
#[track_caller]
fn rejected(operations: Vec<Operation>, misfit: usize) -> Violation {
    let the = operations[misfit].clone();
    let minimal = minimal(&operations).expect("in violation");
    assert!(matches!(verdict(minimal.clone()), Verdict::Violation(_)), "{minimal:?}");
    match verdict(operations) {
        Verdict::Violation(violation) if violation.misfit == the => *violation,
        other => panic!("{other}\nexpected this not to fit:\n{the}"),
    }
}

#[track_caller]
fn accepted(operations: Vec<Operation>) {
    let verdict = verdict(operations.clone());
    assert_eq!(verdict, Verdict::Linearizable, "{verdict}");
    assert_eq!(minimal(&operations), None);
}

#[test]
fn a_stale_read_after_an_acknowledged_put_is_rejected() {
    let violation = rejected(
        vec![
            put(1, "a", (0, 10)),
            put(1, "b", (20, 30)),
            get(2, Some("a"), (31, 40)),
            get(2, Some("b"), (50, 60)),
        ],
        2,
    );
    assert_eq!(violation.held, [Some(b"b".to_vec())]);
}

#[test]
fn a_lost_update_an_acknowledged_put_that_is_never_seen_is_rejected() {
    rejected(
        vec![
            put(1, "a", (0, 10)),
            get(2, Some("a"), (12, 18)),
            put(1, "b", (20, 30)),
            get(2, Some("a"), (40, 50)),
            get(3, Some("a"), (60, 70)),
        ],
        3,
    );
}

#[test]
fn a_lost_update_of_one_of_two_puts_at_once_is_rejected_when_both_values_are_gone() {
    rejected(
        vec![
            put(1, "old", (0, 10)),
            put(1, "a", (20, 40)),
            put(2, "b", (25, 45)),
            get(3, Some("old"), (50, 60)),
        ],
        3,
    );
}

#[test]
fn a_miss_of_a_key_present_throughout_is_rejected() {
    // Also while it is replaced.
    let violation = rejected(
        vec![
            put(1, "a", (0, 10)),
            put(1, "b", (20, 50)),
            get(2, None, (25, 35)),
            get(2, Some("b"), (40, 45)),
        ],
        2,
    );
    assert_eq!(violation.concurrent, [put(1, "b", (20, 50))]);
    assert_eq!(violation.order, [put(1, "a", (0, 10))]);
}

#[test]
fn a_read_of_a_value_never_put_is_rejected() {
    rejected(vec![put(1, "a", (0, 10)), get(2, Some("z"), (5, 30))], 1);
    // Nor may a value be read before its put is invoked.
    rejected(vec![get(2, Some("a"), (0, 10)), put(1, "a", (11, 20))], 0);
    rejected(vec![get(2, Some("a"), (0, 10)), endless(put(1, "a", (11, 20)))], 0);
}

#[test]
fn a_value_back_after_an_acknowledged_delete_is_rejected() {
    rejected(
        vec![
            put(1, "a", (0, 10)),
            delete(1, true, (20, 30)),
            get(2, None, (40, 50)),
            get(2, Some("a"), (60, 70)),
        ],
        3,
    );
}

#[test]
fn reads_that_go_back_in_time_between_two_clients_are_rejected() {
    rejected(
        vec![
            put(1, "a", (0, 10)),
            put(1, "b", (20, 100)),
            get(2, Some("b"), (30, 40)),
            get(3, Some("a"), (50, 60)),
        ],
        3,
    );
}

#[test]
fn two_clients_that_see_two_puts_in_different_orders_are_rejected() {
    rejected(
        vec![
            put(1, "a", (0, 100)),
            put(2, "b", (0, 100)),
            get(3, Some("a"), (10, 20)),
            get(3, Some("b"), (30, 40)),
            get(4, Some("b"), (11, 21)),
            get(4, Some("a"), (31, 41)),
        ],
        5,
    );
}

#[test]
fn a_delete_that_says_it_found_an_absent_key_is_rejected() {
    rejected(vec![delete(1, true, (0, 10))], 0);
    // One put is not enough for two.
    rejected(vec![put(1, "a", (0, 10)), delete(2, true, (20, 50)), delete(3, true, (25, 55))], 2);
    rejected(vec![endless(put(1, "a", (0, 10))), delete(2, true, (20, 50)), delete(3, true, (25, 55))], 2);
}

#[test]
fn a_delete_that_says_it_did_not_find_a_present_key_is_rejected() {
    rejected(vec![put(1, "a", (0, 10)), put(1, "b", (20, 40)), delete(2, false, (15, 45))], 2);
}

#[test]
fn a_retried_put_that_is_executed_twice_around_anothers_put_is_rejected() {
    // Within the time of the retried put.
    rejected(
        vec![
            put(1, "a", (0, 100)),
            get(2, Some("a"), (10, 20)),
            put(3, "b", (30, 40)),
            get(2, Some("b"), (50, 60)),
            get(2, Some("a"), (70, 80)),
        ],
        4,
    );
    // After it was acknowledged.
    rejected(vec![put(1, "a", (0, 10)), put(3, "b", (30, 40)), get(2, Some("a"), (70, 80))], 2);
    // Although its outcome is unknown: it may take effect late, but once.
    rejected(
        vec![
            unknown(put(1, "a", (0, 10))),
            get(2, Some("a"), (20, 30)),
            put(3, "b", (40, 50)),
            get(2, Some("b"), (60, 70)),
            get(2, Some("a"), (80, 90)),
        ],
        4,
    );
}

#[test]
fn an_old_value_after_a_successors_put_was_acknowledged_is_rejected() {
    rejected(
        vec![
            put(1, "a", (0, 10)),
            unknown(delete(1, false, (20, 25))),
            get(2, None, (30, 40)),
            put(1, "b", (50, 60)),
            get(2, Some("a"), (55, 70)),
        ],
        4,
    );
}

#[test]
fn keys_are_judged_each_by_itself_and_the_first_in_time_is_reported() {
    let on = |key: &str, mut operation: Operation| {
        operation.key = key.into();
        operation
    };
    let right =
        vec![on("l", put(1, "a", (0, 10))), get(1, None, (20, 30)), on("l", get(1, Some("a"), (40, 50)))];
    accepted(right);
    let wrong = vec![on("a", get(1, Some("x"), (60, 70))), on("z", get(2, Some("x"), (20, 30)))];
    match verdict(wrong) {
        Verdict::Violation(violation) => assert_eq!(violation.key, b"z"),
        other => panic!("{other}"),
    }
}

#[test]
fn an_empty_history_is_accepted() {
    accepted(vec![]);
    accepted(vec![get(1, None, (0, 0)), delete(1, false, (1, 1))]);
}

#[test]
fn overlapping_operations_may_take_effect_in_any_order() {
    let puts = [put(1, "a", (0, 50)), put(2, "b", (0, 50)), put(3, "c", (10, 60))];
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"], ["c", "a", "b"]] {
        let gets = (12..).step_by(10).zip(order).map(|(at, value)| get(4, Some(value), (at, at + 5)));
        accepted(puts.iter().cloned().chain(gets).collect());
    }
    // The last may be any, whatever returned last; and nothing need have been seen.
    for last in ["a", "b", "c"] {
        accepted(puts.iter().cloned().chain([get(4, Some(last), (70, 80))]).collect());
    }
}

#[test]
fn a_get_may_find_what_was_there_at_any_moment_of_its_time() {
    for found in [None, Some("a"), Some("b")] {
        accepted(vec![
            put(1, "a", (10, 20)),
            delete(1, true, (30, 40)),
            put(1, "b", (50, 60)),
            get(2, found, (5, 70)),
        ]);
    }
}

#[test]
fn what_touches_overlaps() {
    accepted(vec![put(1, "a", (0, 10)), get(2, None, (10, 20))]);
}

#[test]
fn what_a_delete_found_may_be_the_put_that_returns_first() {
    // Although its value is read later, when it was put again, and that of the other is not.
    accepted(vec![
        put(1, "read", (0, 10)),
        put(2, "unread", (0, 100)),
        delete(3, true, (0, 8)),
        get(3, None, (12, 15)),
        delete(3, true, (20, 30)),
        put(1, "read", (40, 50)),
        get(3, Some("read"), (110, 120)),
    ]);
}

#[test]
fn a_put_with_an_unknown_outcome_may_take_effect_or_not() {
    let put_unknown = unknown(put(1, "b", (20, 30)));
    for found in ["a", "b"] {
        accepted(vec![put(1, "a", (0, 10)), put_unknown.clone(), get(2, Some(found), (40, 50))]);
    }
    // Late, after it returned; also after another put.
    accepted(vec![
        put_unknown.clone(),
        put(3, "a", (40, 50)),
        get(2, Some("a"), (60, 70)),
        get(2, Some("b"), (80, 90)),
    ]);
    // It may be what a delete found.
    accepted(vec![put_unknown.clone(), delete(2, true, (40, 50)), get(2, None, (60, 70))]);
    accepted(vec![put_unknown, delete(2, false, (40, 50)), get(2, Some("b"), (60, 70))]);
}

#[test]
fn a_delete_with_an_unknown_outcome_may_take_effect_or_not() {
    for found in [None, Some("a")] {
        for reported in [false, true] {
            accepted(vec![
                put(1, "a", (0, 10)),
                unknown(delete(1, reported, (20, 30))),
                get(2, found, (40, 50)),
            ]);
        }
    }
}

#[test]
fn a_put_that_never_returned_may_be_seen_late() {
    accepted(vec![
        put(1, "a", (0, 10)),
        endless(put(2, "b", (5, 5))),
        get(3, Some("a"), (1000, 1010)),
        get(3, Some("b"), (2000, 2010)),
    ]);
    let mut without_return = put(2, "b", (5, 5));
    without_return.returned_ns = None;
    accepted(vec![without_return, get(3, None, (1000, 1010)), get(3, Some("b"), (2000, 2010))]);
}

#[test]
fn a_get_that_never_returned_says_nothing() {
    accepted(vec![
        put(1, "a", (0, 10)),
        endless(get(2, Some("z"), (20, 30))),
        unknown(get(2, None, (40, 50))),
    ]);
}

#[test]
fn values_may_repeat() {
    accepted(vec![
        put(1, "a", (0, 10)),
        put(1, "b", (20, 30)),
        put(2, "a", (20, 90)),
        get(3, Some("b"), (40, 50)),
        get(3, Some("a"), (60, 70)),
    ]);
}

/// What is right for a cache, and wrong for it, too.
#[test]
fn a_cache_may_forget_and_nothing_comes_back() {
    let put_and_lost = [put(1, "a", (0, 10)), get(2, None, (20, 30))];
    let of_cache = |more: &[Operation]| verdict_of_cache([&put_and_lost[..], more].concat());
    let good = |verdict: Verdict| assert_eq!(verdict, Verdict::Linearizable, "{verdict}");
    let bad = |verdict: Verdict| assert!(matches!(verdict, Verdict::Violation(_)), "{verdict}");
    bad(verdict(put_and_lost.to_vec()));
    good(of_cache(&[]));
    good(of_cache(&[delete(1, false, (40, 50)), put(1, "b", (60, 70)), get(2, Some("b"), (80, 90))]));
    // What was found to be gone stays so, for gets and for deletes.
    bad(of_cache(&[get(3, Some("a"), (40, 50))]));
    bad(of_cache(&[delete(3, true, (40, 50))]));
    good(of_cache(&[get(3, Some("a"), (15, 50))]));
    // An older value never takes the place of a newer one.
    bad(of_cache(&[put(1, "b", (40, 50)), get(2, Some("a"), (60, 70))]));
    bad(of_cache(&[get(2, Some("never put"), (60, 70))]));
}

#[test]
fn a_limit_that_is_reached_is_told_from_both_verdicts() {
    let crowd = |count: u32| -> Vec<Operation> {
        let puts = (0..count).map(|client| put(client, &client.to_string(), (0, 1000)));
        let gets = (0..count).map(|client| get(client, Some(&client.to_string()), (0, 1000)));
        puts.chain(gets).collect()
    };
    let undecided = |operations, limits: Limits| match check(&History::new(operations).unwrap(), &limits) {
        Verdict::Undecided(undecided) => undecided,
        other => panic!("{other}"),
    };
    let few = undecided(crowd(12), Limits { states_max: 100 });
    assert_eq!(few.limit, Limit::States(100));
    assert!(few.to_string().contains("Limits::states_max"), "{few}");
    let many = undecided(crowd(600), Limits::default());
    assert_eq!(many.limit, Limit::Overlap(locus_history::OVERLAP_MAX));
    assert!(many.to_string().contains("under way"), "{many}");
    // A violation of another key is reported all the same.
    let mut both = crowd(12);
    let mut wrong = get(99, Some("never"), (2000, 2010));
    wrong.key = b"z".to_vec();
    both.push(wrong);
    let verdict = check(&History::new(both).unwrap(), &Limits { states_max: 100 });
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict}");
}

#[test]
fn crowds_are_searched_with_wide_sets() {
    for clients in [30, 60, 200, 500] {
        let mut operations: Vec<_> =
            (0..clients).map(|client| put(client, &(client % 7).to_string(), (0, 1000))).collect();
        operations.extend((0..clients).map(|client| get(client, Some("3"), (0, 2000))));
        accepted(operations.clone());
        operations.push(get(clients, Some("3"), (1500, 1600)));
        operations.push(get(clients, Some("2"), (1700, 1800)));
        rejected(operations.clone(), operations.len() - 1);
    }
}

#[test]
fn a_violation_prints_what_contradicts_what() {
    let violation = rejected(
        vec![
            put(1, "a", (0, 10)),
            put(1, "b", (20, 30)),
            endless(put(3, "c", (25, 25))),
            get(2, Some("a"), (40, 50)),
        ],
        3,
    );
    let expected = "\
key \"k\" is not linearizable; what does not fit:
        40 .. 50       ns  client 2   get found \"a\"
before it, and what overlaps with it, the key holds \"b\"
what overlaps with it:
        25 .. never    ns  client 3   put \"c\" (outcome unknown)
an order of those before it that fits:
         0 .. 10       ns  client 1   put \"a\"
        20 .. 30       ns  client 1   put \"b\"
";
    assert_eq!(violation.to_string(), expected);
}

#[test]
fn the_minimiser_leaves_what_contradicts_and_where_values_come_from() {
    let mut operations = Vec::new();
    for number in 0..200 {
        let at = 1000 * number;
        let value = number.to_string();
        operations.push(put(1, &value, (at, at + 100)));
        operations.push(get(2, Some(&value), (at + 200, at + 300)));
        operations.push(get(3, Some(&value), (at + 250, at + 350)));
    }
    let stale = get(3, Some("150"), (160_360, 160_370));
    let (fresh, origin) = (put(1, "151", (151_000, 151_100)), put(1, "150", (150_000, 150_100)));
    operations.push(stale.clone());
    let minimal = minimal(&operations).unwrap();
    assert_eq!(minimal.len(), 3, "{minimal:#?}");
    assert_eq!((minimal.first(), minimal.last()), (Some(&origin), Some(&stale)));
    // Any later put or get proves that the value was replaced.
    assert!(minimal[1].invoked_ns >= fresh.invoked_ns);
}

#[test]
fn the_minimiser_does_not_blame_what_was_under_way() {
    let wrong = [
        put(1, "a", (0, 10)),
        put(1, "b", (20, 300)),
        get(2, Some("b"), (30, 40)),
        get(3, Some("a"), (50, 60)),
    ];
    // Its value is put after the contradiction.
    let right = [get(4, Some("z"), (45, 200)), put(5, "z", (150, 160))];
    let minimal = minimal(&[&wrong[..], &right].concat()).unwrap();
    assert_eq!(minimal, wrong);
    let expected = "\
\x20        0 .. 10       ns  client 1   put \"a\"
        20 .. 300      ns  client 1   put \"b\"
        30 .. 40       ns  client 2   get found \"b\"
        50 .. 60       ns  client 3   get found \"a\"
";
    assert_eq!(History::new(minimal).unwrap().to_string(), expected);
}

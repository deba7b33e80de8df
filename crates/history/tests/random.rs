//! Random histories: right by the way they are made, made wrong, and such that every order is tried for.

mod shared;

use locus_history::{Action, History, Limits, Operation, Outcome, Verdict, check, minimise, ndjson};
use proptest::prelude::*;
use shared::{Shape, linearizable, minimal, verdict, verdict_of_cache};

/// Whether some order of the operations fits, by trying all: those that did not return in time may be left out.
fn some_order_fits(left: &[&Operation], holds: Option<&[u8]>, forgets: bool) -> bool {
    if left.iter().all(|operation| !operation.is_certain()) {
        return true;
    }
    (0..left.len()).any(|index| {
        let next = left[index];
        let too_late = |other: &&Operation| other.is_certain() && other.returned_ns < Some(next.invoked_ns);
        if left.iter().any(too_late) {
            return false;
        }
        let finds_nothing = matches!(next.action, Action::Get(None) | Action::Delete { found: false });
        let then = match &next.action {
            _ if forgets && finds_nothing && next.is_certain() => None,
            Action::Put(value) => Some(&value[..]),
            Action::Delete { found } if next.is_certain() && *found != holds.is_some() => return false,
            Action::Delete { .. } => None,
            Action::Get(found) if next.is_certain() && found.as_deref() != holds => return false,
            Action::Get(_) => holds,
        };
        let rest: Vec<_> = left.iter().enumerate().filter(|&(at, _)| at != index).map(|(_, &o)| o).collect();
        some_order_fits(&rest, then, forgets)
    })
}

/// Operations without any rule, on few values and moments so that they have to do with each other.
fn any_operation() -> impl Strategy<Value = Operation> {
    let value = || (0..3u8).prop_map(|value| vec![value]);
    let action = prop_oneof![
        3 => value().prop_map(Action::Put),
        2 => value().prop_map(|value| Action::Get(Some(value))),
        1 => Just(Action::Get(None)),
        2 => any::<bool>().prop_map(|found| Action::Delete { found }),
    ];
    (action, 0..20u64, 0..12u64, 0..8u8).prop_map(|(action, invoked_ns, length_ns, ending)| Operation {
        client: 0,
        key: b"k".to_vec(),
        action,
        invoked_ns,
        returned_ns: (ending != 0).then_some(invoked_ns + length_ns),
        outcome: if ending < 2 { Outcome::Unknown } else { Outcome::Ok },
    })
}

fn any_shape(operations: std::ops::Range<usize>) -> impl Strategy<Value = Shape> {
    let mix = prop_oneof![
        Just((50, 0)),
        Just((50, 20)),
        Just((20, 5)),
        Just((5, 0)),
        Just((80, 10)),
        Just((30, 30))
    ];
    (operations, 1..12u32, 0..5u64, mix, prop_oneof![Just(0), Just(3), Just(15)], 1..1200u64).prop_map(
        |(operations, clients, values, (puts_percent, deletes_percent), unknown_percent, longest_ns)| Shape {
            operations,
            clients,
            values,
            puts_percent,
            deletes_percent,
            unknown_percent,
            longest_ns,
        },
    )
}

/// The index of some get that is certain.
fn some_get(operations: &[Operation], which: usize) -> Option<usize> {
    let is_get =
        |o: &&usize| operations[**o].is_certain() && matches!(operations[**o].action, Action::Get(_));
    let indices: Vec<usize> = (0..operations.len()).collect();
    let gets: Vec<&usize> = indices.iter().filter(is_get).collect();
    (!gets.is_empty()).then(|| *gets[which % gets.len()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30_000, ..ProptestConfig::default() })]

    #[test]
    fn small_histories_are_judged_as_by_trying_all_orders(
        mut operations in proptest::collection::vec(any_operation(), 1..=7),
    ) {
        // So that no two are the same.
        (0..).zip(&mut operations).for_each(|(client, operation)| operation.client = client);
        let references: Vec<&Operation> = operations.iter().collect();
        let fits = some_order_fits(&references, None, false);
        match verdict(operations.clone()) {
            Verdict::Linearizable => prop_assert!(fits),
            Verdict::Violation(violation) => {
                prop_assert!(!fits);
                // The misfit is where it shows: without what returned then or later, an order fits.
                let end_ns = violation.misfit.returned_ns;
                let before: Vec<Operation> = operations
                    .iter()
                    .filter(|o| Some(o.invoked_ns) <= end_ns && **o != violation.misfit)
                    .map(|o| Operation {
                        returned_ns: o.returned_ns.filter(|_| o.returned_ns < end_ns),
                        ..o.clone()
                    })
                    .collect();
                prop_assert!(some_order_fits(&before.iter().collect::<Vec<_>>(), None, false));
                let minimal = minimal(&operations).unwrap();
                prop_assert!(!some_order_fits(&minimal.iter().collect::<Vec<_>>(), None, false));
            }
            other => prop_assert!(false, "{other}"),
        }
        let fits = some_order_fits(&references, None, true);
        let history = History::new(operations.clone()).unwrap().of_cache();
        match verdict_of_cache(operations.clone()) {
            Verdict::Linearizable => prop_assert!(fits),
            Verdict::Violation(_) => {
                prop_assert!(!fits);
                let minimal = minimise(&history, b"k", &Limits::default()).unwrap();
                prop_assert!(minimal.is_of_cache());
                let minimal: Vec<&Operation> = minimal.operations().iter().collect();
                prop_assert!(!some_order_fits(&minimal, None, true));
            }
            other => prop_assert!(false, "{other}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn histories_of_a_random_order_of_effects_are_accepted(shape in any_shape(1..400), seed: u64) {
        let verdict = verdict(linearizable(shape, seed));
        prop_assert_eq!(&verdict, &Verdict::Linearizable, "{}", verdict);
    }

    #[test]
    fn a_get_that_finds_a_value_never_put_is_rejected(
        shape in any_shape(5..200), seed: u64, which: usize,
    ) {
        let mut operations = linearizable(shape, seed);
        if let Some(get) = some_get(&operations, which) {
            operations[get].action = Action::Get(Some(b"never put".to_vec()));
            let Verdict::Violation(violation) = verdict(operations.clone()) else {
                return Err(TestCaseError::fail("accepted"));
            };
            prop_assert_eq!(&violation.misfit, &operations[get]);
            prop_assert_eq!(minimal(&operations).unwrap(), vec![operations[get].clone()]);
        }
    }

    #[test]
    fn a_get_that_finds_a_value_replaced_before_is_rejected(
        shape in any_shape(5..200), seed: u64, which: usize,
    ) {
        let mut operations = linearizable(Shape { values: 0, ..shape }, seed);
        if let Some(get) = some_get(&operations, which) {
            // A put that ended before another began that ended before the get did.
            let puts: Vec<&Operation> = operations
                .iter()
                .filter(|o| matches!(o.action, Action::Put(_)) && o.is_certain())
                .collect();
            let before = |a: &Operation, b: &Operation| a.returned_ns < Some(b.invoked_ns);
            let replaced = puts
                .iter()
                .find(|a| puts.iter().any(|b| before(a, b) && before(b, &operations[get])))
                .map(|put| put.action.clone());
            if let Some(Action::Put(value)) = replaced {
                operations[get].action = Action::Get(Some(value));
                let rejected = matches!(verdict(operations.clone()), Verdict::Violation(_));
                prop_assert!(rejected, "accepted");
                let minimal = minimal(&operations).unwrap();
                prop_assert!(minimal.len() <= 6, "{:#?}", minimal);
                let rejected = matches!(verdict(minimal), Verdict::Violation(_));
                prop_assert!(rejected, "the minimal one is accepted");
            }
        }
    }

    #[test]
    fn a_history_is_judged_alike_after_it_was_written_and_read(shape in any_shape(1..60), seed: u64, which: usize) {
        let mut operations = linearizable(shape, seed);
        if let Some(get) = some_get(&operations, which) {
            operations[get].action = Action::Get(None);
        }
        let history = History::new(operations).unwrap();
        let mut text = Vec::new();
        ndjson::write(&history, &mut text).unwrap();
        let again = ndjson::read(&text[..]).unwrap();
        prop_assert_eq!(check(&history, &Limits::default()), check(&again, &Limits::default()));
    }
}

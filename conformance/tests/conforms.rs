use std::{collections::BTreeSet, time::Duration};

use roce_conformance::{Runner, Simulated, Verdict, chapters, known, reported};

#[test]
fn our_adapter_conforms_in_virtual_time() {
    let mut subject = Simulated::default();
    let mut runner = Runner::new(&mut subject);
    let mut text = String::new();
    for chapter in chapters() {
        for case in &chapter.cases {
            let outcome = runner.run(case);
            if outcome.verdict != Verdict::Conforms {
                text += &format!("{}: {}: {:?}\n", case.name, outcome.verdict, outcome.finding);
            }
        }
    }
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn our_pauses_are_those_of_the_table() {
    let mut subject = Simulated::default();
    let mut runner = Runner::new(&mut subject);
    let cases = chapters().into_iter().flat_map(|chapter| chapter.cases);
    let mut pauses = Vec::new();
    for case in cases.filter(|case| case.name.starts_with("rnr/")) {
        pauses.extend(runner.run(&case).pauses);
    }
    assert_eq!(pauses.len(), 32);
    assert!(pauses.iter().all(|pause| pause.measured == pause.least), "{pauses:?}");
    let ends = [pauses[0], pauses[1], pauses[31]].map(|pause| pause.least.as_micros());
    assert_eq!(ends, [655_360, 10, 491_520]);
}

#[test]
fn our_recoveries_are_noted() {
    let mut subject = Simulated::default();
    let mut runner = Runner::new(&mut subject);
    let mut of = |name: &str| {
        let cases = chapters().into_iter().flat_map(|chapter| chapter.cases);
        let case = cases.into_iter().find(|case| case.name == name).unwrap();
        runner.run(&case).bursts.into_iter().flat_map(|it| it.recoveries).collect::<Vec<_>>()
    };
    for lost in [0, 7, 14] {
        let it = of(&format!("recovery/after-a-nak-{lost}"))[0];
        assert_eq!((it.lost, it.naks, it.again), (lost, 1, 15 - lost));
        assert!(it.pause < Duration::from_micros(100), "{it:?}");
    }
    assert_eq!(of("recovery/twice").iter().map(|it| it.lost).collect::<Vec<_>>(), [5, 9]);
    let it = of("recovery/last-packet")[0];
    assert_eq!((it.lost, it.naks, it.again), (3, 0, 0));
    assert!((Duration::from_micros(1)..Duration::from_millis(17)).contains(&it.pause), "{it:?}");
}

#[test]
fn names_are_one_of_a_kind() {
    let mut names = BTreeSet::new();
    for chapter in chapters() {
        for case in chapter.cases {
            assert!(names.insert(case.name.clone()), "{}", case.name);
        }
    }
    assert!(names.len() >= 300, "{} cases", names.len());
}

#[test]
fn reports_are_of_these_cases() {
    let names: Vec<_> =
        chapters().into_iter().flat_map(|chapter| chapter.cases).map(|case| case.name).collect();
    for it in reported() {
        assert!(it.source.starts_with("https://"), "{it:?}");
        for begin in &it.cases {
            assert!(names.iter().any(|name| name.starts_with(begin)), "{begin}");
        }
        assert!(it.is_about(it.cases[0]) && !it.is_about("none"));
    }
}

#[test]
fn records_are_of_these_cases() {
    let names: BTreeSet<_> =
        chapters().into_iter().flat_map(|chapter| chapter.cases).map(|case| case.name).collect();
    for device in known() {
        assert!(device.others().next().is_some(), "{}: the record is empty", device.device);
        for name in device.others() {
            assert!(names.contains(name), "{}: {name}", device.device);
            assert_ne!(device.verdict(name).0, Verdict::Conforms, "{name} needs no line");
        }
    }
}

//! Our own adapter conforms, in virtual time; the cases are what docs/conformance.md says.

use std::{collections::BTreeSet, env, fmt::Write, fs, path::Path, time::Duration};

use roce_conformance::{Reported, Runner, Simulated, Verdict, chapters, known, reported};

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

/// What is measured in virtual time is the table of the RNR timers itself.
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

/// We go back, once told; what is lost at the end a probe brings, earlier than the timer.
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

/// What the records of other devices say, as tables.
fn others() -> String {
    let known = known();
    let names: Vec<_> =
        chapters().into_iter().flat_map(|chapter| chapter.cases).map(|case| case.name).collect();
    let mut text = "\n## Other devices\n\n".to_owned();
    text += "| device | conforms | not supported | inconclusive | deviates | harmful |\n|---|---|---|---|---|---|\n";
    for device in &known {
        let count = |verdict| {
            names.iter().filter(|name| device.verdict(name).0 == verdict).count().to_string()
        };
        let counts = Verdict::ALL.map(count).join(" | ");
        let _ = writeln!(text, "| {} | {counts} |", device.device);
    }
    let devices: Vec<_> = known.iter().map(|device| device.device).collect();
    let _ = write!(text, "\n| case | {} | found |\n|---|", devices.join(" | "));
    text += &"---|".repeat(devices.len() + 1);
    text += "\n";
    for name in &names {
        let verdicts: Vec<_> = known.iter().map(|device| device.verdict(name)).collect();
        if verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Conforms) {
            continue;
        }
        let shown: Vec<_> = verdicts.iter().map(|(verdict, _)| verdict.name()).collect();
        let mut found: Vec<_> = verdicts.iter().map(|(_, found)| *found).collect();
        found.retain(|found| !found.is_empty());
        found.dedup();
        let found = found.join("; ").replace('|', "\\|");
        let _ = writeln!(text, "| `{name}` | {} | {found} |", shown.join(" | "));
    }
    text
}

/// What was published of adapters, as a table.
fn published() -> String {
    let mut text = "\n## Reported of adapters\n\nWhat others have published. This project has not measured it.\n\n".to_owned();
    text += "| cases | adapters | what | source |\n|---|---|---|---|\n";
    for it in reported() {
        let cases: Vec<_> = it.cases.iter().map(|name| format!("`{name}…`")).collect();
        let Reported { devices, text: what, source, .. } = it;
        let _ = writeln!(text, "| {} | {devices} | {what} | {source} |", cases.join(" "));
    }
    text
}

/// What was published is about cases that exist.
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

/// The records name cases that exist.
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

/// `UPDATE=1 cargo test -p roce-conformance` writes the list.
#[test]
fn the_page_lists_the_cases() {
    const MARK: &str = "<!-- The rest is written by a test: conformance/tests/conforms.rs -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    // a package has no pages
    let Ok(page) = fs::read_to_string(&path) else { return };
    let (head, _) = page.split_once(MARK).unwrap();
    let mut list = format!("{head}{MARK}");
    list += &others();
    list += &published();
    for chapter in chapters() {
        let count = chapter.cases.len();
        let file = format!("../conformance/cases/{}.case", chapter.name);
        let _ = write!(list, "\n## {}\n\n[{count} cases]({file})\n\n", chapter.title);
        list += "| cases | rule | otherwise | what that costs |\n|---|---|---|---|\n";
        let mut rest = &chapter.cases[..];
        while let [first, ..] = rest {
            let same = rest.iter().take_while(|it| it.rule == first.rule && it.cost == first.cost);
            let (group, behind) = rest.split_at(same.count());
            let names: Vec<_> = group.iter().map(|it| format!("`{}`", it.name)).collect();
            let names = match &names[..] {
                [first, _, .., last] => format!("{first} … {last}"),
                few => few.join(" "),
            };
            let (rule, cost, severity) = (&first.rule, &first.cost, first.severity);
            let _ = writeln!(list, "| {names} | {rule} | {severity} | {cost} |");
            rest = behind;
        }
    }
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &list).unwrap();
    }
    assert!(page == list || env::var_os("UPDATE").is_some(), "run it with UPDATE=1");
}

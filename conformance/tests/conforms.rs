//! Our own adapter conforms, in virtual time; the cases are what docs/conformance.md says.

use std::{collections::BTreeSet, env, fmt::Write, fs, path::Path};

use roce_conformance::{Runner, Simulated, Verdict, chapters};

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
fn names_are_one_of_a_kind() {
    let mut names = BTreeSet::new();
    for chapter in chapters() {
        for case in chapter.cases {
            assert!(names.insert(case.name.clone()), "{}", case.name);
        }
    }
    assert!(names.len() >= 300, "{} cases", names.len());
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

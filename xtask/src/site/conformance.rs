//! Part of docs/conformance.md that only the site has: cases, and other devices' verdicts.

use std::fmt::Write;

use roce_conformance::{Reported, Verdict, chapters, known, reported};

pub(crate) fn tables() -> String {
    let mut text = others();
    text += &published();
    for chapter in chapters() {
        let count = chapter.cases.len();
        let file = format!("../conformance/cases/{}.case", chapter.name);
        let _ = write!(text, "\n## {}\n\n[{count} cases]({file})\n\n", chapter.title);
        text += "| cases | rule | otherwise | cost |\n|---|---|---|---|\n";
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
            let _ = writeln!(text, "| {names} | {rule} | {severity} | {cost} |");
            rest = behind;
        }
    }
    text
}

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

fn published() -> String {
    let mut text = "\n## Reported of adapters\n\nOthers have published these; this project has not measured them.\n\n".to_owned();
    text += "| cases | adapters | report | source |\n|---|---|---|---|\n";
    for it in reported() {
        let cases: Vec<_> = it.cases.iter().map(|name| format!("`{name}…`")).collect();
        let Reported { devices, text: what, source, .. } = it;
        let _ = writeln!(text, "| {} | {devices} | {what} | {source} |", cases.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chapter_and_record_is_on_the_page() {
        let text = tables();
        for chapter in chapters() {
            assert!(text.contains(&format!("\n## {}\n", chapter.title)), "{}", chapter.title);
            assert!(text.contains(&format!("`{}`", chapter.cases[0].name)), "{}", chapter.title);
        }
        assert!(known().iter().all(|it| text.contains(it.device)));
        assert!(reported().iter().all(|it| text.contains(it.source)));
        // as many cells as the head
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        let mut head = 0;
        for line in text.lines() {
            head = if !line.starts_with('|') {
                0
            } else if head == 0 {
                cells(line)
            } else {
                head
            };
            assert!(!line.starts_with('|') || cells(line) == head, "{line}");
        }
    }
}

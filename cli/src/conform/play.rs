use std::{
    fs::{self, File},
    io::{self, BufWriter},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressStyle};
use roce_capture::CaptureWriter;
use roce_conformance::{Case, Chapter, Outcome, Runner, Simulated, Subject, TraceEvent, Verdict};

use super::report::{Played, Results};
use crate::{failure::Failure, ladder::Ladder, output::outln};

pub(super) fn all<S: Subject>(
    subject: &mut S,
    device: &str,
    chapters: &[Chapter],
    repeat: u32,
    captures: Option<&Path>,
) -> Result<Results, Failure> {
    if let Some(directory) = captures {
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    }
    let count = chapters.iter().map(|chapter| chapter.cases.len() as u64).sum();
    // Hidden unless standard error is a terminal.
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?;
    let bar = ProgressBar::new(count).with_style(style);
    let mut runner = Runner::new(subject);
    let mut results = Results { device: device.to_owned(), chapters: Vec::new() };
    for chapter in chapters {
        let mut played = Vec::new();
        for case in &chapter.cases {
            bar.set_message(case.name.clone());
            let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let outcome = often(&mut runner, case, repeat);
            if let Some(directory) = captures {
                let name = format!("{}.pcapng", case.name.replace('/', "-"));
                let path = directory.join(name);
                capture(&path, start, &outcome)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
            played.push(Played { case: case.clone(), outcome });
            bar.inc(1);
        }
        results.chapters.push((chapter.title.clone(), played));
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Repeats a case until verdicts differ; keeps all pauses and bursts.
fn often<S: Subject>(runner: &mut Runner<'_, S>, case: &Case, times: u32) -> Outcome {
    let mut outcome = runner.run(case);
    for _ in 1..times {
        let mut again = runner.run(case);
        let pauses = [outcome.pauses.as_slice(), again.pauses.as_slice()].concat();
        let bursts = [outcome.bursts.as_slice(), again.bursts.as_slice()].concat();
        if again.verdict != outcome.verdict {
            let verdicts = format!("{} once, {} again", outcome.verdict, again.verdict);
            let worse = if again.verdict > outcome.verdict { again } else { outcome };
            let (line, text) = worse.finding.clone().unwrap_or_default();
            let finding = Some((line, format!("{verdicts}: {text}")));
            return Outcome { verdict: Verdict::Inconclusive, finding, pauses, bursts, ..worse };
        }
        (again.pauses, again.bursts) = (pauses, bursts);
        outcome = again;
    }
    outcome
}

fn capture(path: &Path, start: Duration, outcome: &Outcome) -> io::Result<()> {
    let mut writer = CaptureWriter::new(BufWriter::new(File::create(path)?))?;
    for seen in &outcome.packets {
        if let TraceEvent::Packet { net, bytes } = &seen.what {
            writer.write(start + seen.at, net, bytes, None)?;
        }
    }
    Ok(())
}

pub(super) fn dry_run(chapters: &[Chapter]) {
    let ladder = Ladder::on(&io::stdout());
    let mut subject = Simulated::default();
    let mut runner = Runner::new(&mut subject);
    for case in chapters.iter().flat_map(|chapter| &chapter.cases) {
        outln!("{}", case.name);
        let mut outcome = runner.run(case);
        outcome.packets.retain(|seen| !seen.from_device);
        let played = Played { case: case.clone(), outcome };
        outln!("{}", played.ladder(ladder).join("\n"));
        outln!("");
    }
}

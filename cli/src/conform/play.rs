use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use roce_capture::CaptureWriter;
use roce_conformance::{Case, Chapter, Outcome, Runner, Simulated, Subject, TraceEvent, Verdict};

use super::report::{Played, Results};
use crate::{failure::Failure, ladder::Ladder, output::outln};

pub(super) struct Options<'a> {
    pub(super) repeat: u32,
    pub(super) captures: Option<&'a Path>,
}

pub(super) fn all<S: Subject>(
    subject: &mut S,
    device: &str,
    chapters: &[Chapter],
    options: &Options<'_>,
) -> Result<Results, Failure> {
    if let Some(directory) = options.captures {
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    }
    let count = chapters.iter().map(|chapter| chapter.cases.len() as u64).sum();
    let bar = progress_bar(count);
    let mut runner = Runner::new(subject);
    let mut results = Results { device: device.to_owned(), chapters: Vec::new() };
    for chapter in chapters {
        let mut played = Vec::new();
        for case in &chapter.cases {
            bar.set_message(case.name.clone());
            let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let outcome = often(&mut runner, case, options.repeat);
            if let Some(directory) = options.captures {
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

fn progress_bar(count: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    let bar = ProgressBar::with_draw_target(Some(count), target);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
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

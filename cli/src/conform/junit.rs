use std::fmt::Write;

use roce_conformance::Verdict;

use super::report::{Played, Results};
use crate::markup::escaped;

pub(super) fn document(results: &Results) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (title, played) in &results.chapters {
        let is_failure =
            |it: &&Played| matches!(it.outcome.verdict, Verdict::Deviates | Verdict::Harmful);
        let failures = played.iter().filter(is_failure).count();
        let (name, tests) = (escaped(title), played.len());
        let _ =
            writeln!(text, "<testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">");
        played.iter().for_each(|it| case(&mut text, it));
        text += "</testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn case(text: &mut String, played: &Played) {
    let Played { case, outcome } = played;
    let (name, seconds) = (escaped(&case.name), outcome.time.as_secs_f64());
    let _ = write!(text, "<testcase name=\"{name}\" time=\"{seconds:.3}\"");
    let message = escaped(&played.finding().unwrap_or_default());
    let _ = match outcome.verdict {
        Verdict::Conforms => writeln!(text, "/>"),
        Verdict::NotSupported | Verdict::Inconclusive => {
            writeln!(text, "><skipped message=\"{}: {message}\"/></testcase>", outcome.verdict)
        }
        verdict => writeln!(
            text,
            "><failure type=\"{verdict}\" message=\"{message}\">{}</failure></testcase>",
            escaped(&case.rule)
        ),
    };
}

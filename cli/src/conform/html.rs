//! Page without scripts or external resources.

use std::fmt::Write;

use super::{
    plot,
    report::{Played, Results},
};
use crate::{ladder::Ladder, markup::escaped};

const HEAD: &str = include_str!("head.html");

pub(super) fn page(results: &Results) -> String {
    let title = format!("Conformance of {}", results.device);
    let mut page = HEAD.replace("{title}", &escaped(&title));
    let (title, summary) = (escaped(&title), escaped(&results.summary()));
    let _ = writeln!(page, "<main>\n<h1>{title}</h1>\n<p>{summary}</p>");
    for (title, played) in &results.chapters {
        let _ = writeln!(page, "<section>\n<h2>{}</h2>", escaped(title));
        page += &plot::pauses(played);
        played.iter().for_each(|it| case(&mut page, it));
        page += "</section>\n";
    }
    page + "</main>\n</body>\n</html>\n"
}

fn case(page: &mut String, played: &Played) {
    let Played { case, outcome } = played;
    let verdict = outcome.verdict;
    let _ = writeln!(
        page,
        "<details class=\"{}\"><summary><b>{verdict}</b> <code>{}</code> {}</summary>",
        verdict.name().replace(' ', "-"),
        escaped(&case.name),
        escaped(&case.rule)
    );
    if let Some(finding) = played.finding() {
        let _ = writeln!(page, "<p class=\"finding\">{}</p>", escaped(&finding));
    }
    let _ = writeln!(page, "<p>Cost of a deviation: {}</p>", escaped(&case.cost));
    page.push_str(&plot::bursts(&outcome.bursts));
    let ladder = played.ladder(Ladder::plain());
    let _ = writeln!(page, "<pre>{}</pre>", escaped(&ladder.join("\n")));
    let _ = writeln!(page, "<pre>{}</pre>\n</details>", escaped(case.text.trim_end()));
}

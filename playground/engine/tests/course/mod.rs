//! Every answer in `docs/course` is a play's or a capture's, and every link leads into a play.

use std::{collections::BTreeSet, env, fs};

use fragment::Link;
use roce_playground::play;
use serde_json::Value;

mod captures;
mod engine;
mod fragment;
mod lesson;

#[test]
fn each_lesson_has_three_questions_and_the_engine_gives_their_answers() {
    let lessons: Vec<_> = lesson::pages().into_iter().filter(lesson::Page::is_lesson).collect();
    assert_eq!(lessons.len(), 10);
    let mut wrong = Vec::new();
    for lesson in &lessons {
        let questions = lesson.questions();
        assert_eq!(questions.len(), 3, "{}", lesson.name);
        for question in questions {
            let found = engine::answer(&question.engine);
            if found != question.answer {
                let (title, answer) = (question.title, question.answer);
                wrong.push(format!(
                    "{}: {title}\n  the lesson: {answer}\n  the engine: {found}",
                    lesson.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn another_play_has_another_answer() {
    let ask = |play: &str| {
        let question = [("play", play), ("end", "a"), ("kind", "sent"), ("count", "RDMA WRITE")];
        engine::answer(&question.map(|(name, value)| (name.into(), value.into())).into())
    };
    assert_eq!(ask("s=loss"), "8");
    assert_eq!(ask("s=loss&f=2:pass"), "5");
}

#[test]
fn links_lead_to_places_of_plays() {
    for page in lesson::pages() {
        let links = page.links();
        assert!(!links.is_empty() || !page.is_lesson(), "{} has no link", page.name);
        for fragment in links {
            let name = format!("{}: {fragment}", page.name);
            let link = Link::of(fragment);
            let played =
                play(&link.spec.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let played: Value = serde_json::from_str(&played).unwrap();
            let steps = played["steps"].as_u64().unwrap() as usize;
            let at = link.at.unwrap_or_else(|| panic!("{name}: no place"));
            assert!(at <= steps, "{name}: the play has {steps} lines");
            let packets = played["packets"].as_array().unwrap().len() as u64;
            let fates = link.spec["fates"].as_object().into_iter().flatten();
            for (number, _) in fates {
                assert!(number.parse::<u64>().unwrap() < packets, "{name}: {packets} packets");
            }
        }
    }
}

/// `ROCE_BLESS=1` writes the files.
#[test]
fn captures_are_what_a_tap_sees() {
    let folder = lesson::folder().join("captures");
    for tapped in captures::ALL {
        let (name, file) = (tapped.name, tapped.file());
        if env::var_os("ROCE_BLESS").is_some() {
            fs::write(folder.join(name), &file).unwrap();
        }
        assert!(fs::read(folder.join(name)).unwrap() == file, "{name}; see ROCE_BLESS above");
    }
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let files: BTreeSet<_> = files.map(|it| it.into_string().unwrap()).collect();
    assert_eq!(files, captures::ALL.iter().map(|it| it.name.to_owned()).collect());
}

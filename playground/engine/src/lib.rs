//! The engine of the playground: scenarios of [`roce_world`], for a page that is not written in
//! Rust.
//!
//! Every function takes the text of a play (`spec.rs`) and a place in it, and plays from the start
//! to that place. A step back replays one step less; the same text always gives the same bytes.
//! Results are JSON, which the page's `engine.ts` describes; errors are one line.

mod dissect;
mod explain;
mod pcap;
mod rows;
mod spec;
mod state;

use wasm_bindgen::prelude::wasm_bindgen;

use roce_world::{FREE, SCENARIOS, Scenario, Script};
use serde::Serialize;
use spec::{SCRIPT, Spec};

#[derive(Serialize)]
struct Title {
    name: &'static str,
    title: &'static str,
    /// Clauses of the network that are its own.
    network: &'static str,
}

/// All scenarios: their names, titles and networks.
#[wasm_bindgen]
#[must_use]
pub fn scenarios() -> String {
    let titles = SCENARIOS.iter().chain([&FREE]).map(|it| {
        let &Scenario { name, title, network, .. } = it;
        Title { name, title, network }
    });
    let title = "a scenario in a few lines of your own";
    let script = Title { name: SCRIPT, title, network: "" };
    json(&titles.chain([script]).collect::<Vec<_>>())
}

/// A script to begin with.
#[wasm_bindgen]
#[must_use]
pub fn example() -> String {
    Script::EXAMPLE.to_owned()
}

/// A text, read as a script.
#[derive(Serialize, Default)]
struct Reading<'a> {
    mistake: Option<Mistake>,
    /// Clauses of the network, if it has some.
    network: Option<&'a str>,
}

/// The first mistake in a script.
#[derive(Serialize)]
struct Mistake {
    /// Counted from 1.
    line: usize,
    /// The error, and what may stand there.
    text: String,
}

/// Reads a script without playing it.
#[wasm_bindgen]
#[must_use]
pub fn read_script(script: &str) -> String {
    match script.parse::<Script>() {
        Ok(script) => json(&Reading { network: script.network(), ..Reading::default() }),
        Err(error) => {
            let mistake = Mistake { line: error.line, text: error.to_string() };
            json(&Reading { mistake: Some(mistake), ..Reading::default() })
        }
    }
}

/// A whole play: its lines and its packets.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn play(spec: &str) -> Result<String, String> {
    Ok(json(&rows::play(&Spec::parse(spec)?)?))
}

/// The state of all ends after so many lines.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn state(spec: &str, lines: usize) -> Result<String, String> {
    Ok(json(&state::after(&Spec::parse(spec)?, lines)?))
}

/// A packet by its number, taken apart.
///
/// # Errors
/// When the text describes no play, or the play has no such packet.
#[wasm_bindgen]
pub fn packet(spec: &str, number: u32) -> Result<String, String> {
    Ok(json(&dissect::packet(&Spec::parse(spec)?, u64::from(number))?))
}

/// The packets of the first so many lines as a pcapng file.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn capture(spec: &str, lines: usize) -> Result<Vec<u8>, String> {
    pcap::capture(&Spec::parse(spec)?, lines)
}

/// A pcap or pcapng file, explained.
///
/// # Errors
/// When it is none of these.
#[wasm_bindgen]
pub fn explain(file: &[u8]) -> Result<String, String> {
    Ok(json(&explain::file(file)?))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, numbers and lists")
}

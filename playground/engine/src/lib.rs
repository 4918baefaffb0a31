//! Engine of the playground: scenarios of [`roce_world`] for a web page.
//!
//! Each function plays a text (`spec.rs`) from the start to a place. A step back replays one step
//! less; equal texts give equal bytes. Results are JSON, see the page's `engine.ts`; errors are one
//! line.

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
    network: &'static str,
}

/// Returns all scenarios: names, titles, networks.
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

/// Returns the example script.
#[wasm_bindgen]
#[must_use]
pub fn example() -> String {
    Script::EXAMPLE.to_owned()
}

#[derive(Serialize, Default)]
struct Reading<'a> {
    mistake: Option<Mistake>,
    network: Option<&'a str>,
}

#[derive(Serialize)]
struct Mistake {
    /// From 1.
    line: usize,
    /// Error and expected input.
    text: String,
}

/// Parses a script without playing it.
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

/// Plays to the end; returns lines and packets.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn play(spec: &str) -> Result<String, String> {
    Ok(json(&rows::play(&Spec::parse(spec)?)?))
}

/// Returns the state of all ends after `lines`.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn state(spec: &str, lines: usize) -> Result<String, String> {
    Ok(json(&state::after(&Spec::parse(spec)?, lines)?))
}

/// Dissects a packet by its number.
///
/// # Errors
/// When the text describes no play, or the play has no such packet.
#[wasm_bindgen]
pub fn packet(spec: &str, number: u32) -> Result<String, String> {
    Ok(json(&dissect::packet(&Spec::parse(spec)?, u64::from(number))?))
}

/// Returns the packets of the first `lines` as a pcapng file.
///
/// # Errors
/// When the text describes no play.
#[wasm_bindgen]
pub fn capture(spec: &str, lines: usize) -> Result<Vec<u8>, String> {
    pcap::capture(&Spec::parse(spec)?, lines)
}

/// Explains a pcap or pcapng file.
///
/// # Errors
/// When it is neither.
#[wasm_bindgen]
pub fn explain(file: &[u8]) -> Result<String, String> {
    Ok(json(&explain::file(file)?))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, numbers and lists")
}

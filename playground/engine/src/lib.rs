//! Engine of the playground: scenarios of [`roce_world`] for a web page.
//!
//! Each function plays a text (`spec.rs`) from the start to a place. A step back replays one step
//! less; equal texts give equal bytes. Results are JSON, see the page's `engine.ts`; errors are one
//! line.

mod dissect;
mod explain;
mod rows;
mod spec;
mod state;

use wasm_bindgen::prelude::wasm_bindgen;

use roce_capture::CaptureWriter;
use roce_world::{FREE, SCENARIOS, Scenario, Script, SentDatagram};
use serde_json::{Value, json};
use spec::{SCRIPT, Spec};
use state::Until;

/// Returns all scenarios: names, titles, networks.
#[wasm_bindgen]
#[must_use]
pub fn scenarios() -> String {
    let titles = SCENARIOS.iter().chain([&FREE]).map(|it| {
        let Scenario { name, title, network, .. } = it;
        json!({"name": name, "title": title, "network": network})
    });
    let title = "a scenario in a few lines of your own";
    let script = json!({"name": SCRIPT, "title": title, "network": ""});
    titles.chain([script]).collect::<Value>().to_string()
}

/// Returns the example script.
#[wasm_bindgen]
#[must_use]
pub fn example() -> String {
    Script::EXAMPLE.to_owned()
}

/// Parses a script without playing it.
#[wasm_bindgen]
#[must_use]
pub fn read_script(script: &str) -> String {
    let reading = match script.parse::<Script>() {
        Ok(script) => json!({"mistake": null, "network": script.network}),
        Err(error) => {
            let mistake = json!({"line": error.line, "text": error.to_string()});
            json!({"mistake": mistake, "network": null})
        }
    };
    reading.to_string()
}

/// Plays to the end; returns lines and packets.
#[wasm_bindgen]
pub fn play(spec: &str) -> Result<String, String> {
    Ok(rows::play(&Spec::parse(spec)?)?.to_string())
}

/// Returns the state of all ends after `lines`.
#[wasm_bindgen]
pub fn state(spec: &str, lines: usize) -> Result<String, String> {
    Ok(state::after(&Spec::parse(spec)?, lines)?.to_string())
}

/// Dissects a packet by its number.
#[wasm_bindgen]
pub fn packet(spec: &str, number: u32) -> Result<String, String> {
    Ok(dissect::packet(&Spec::parse(spec)?, u64::from(number))?.to_string())
}

/// Returns the packets of the first `lines` as a pcapng file, as of `roce demo --pcap`.
#[wasm_bindgen]
pub fn capture(spec: &str, lines: usize) -> Result<Vec<u8>, String> {
    let mut writer = CaptureWriter::new(Vec::new()).map_err(|error| error.to_string())?;
    let mut until = Until::new(lines, |datagram: &SentDatagram<'_>| {
        let comment = datagram.verdict.lost.then(|| "lost on the way".into());
        writer.write(datagram.at, datagram.net, datagram.bytes, comment)?;
        Ok(())
    });
    // The viewer knows the end, or the lines show it.
    Spec::parse(spec)?.play(&mut until).map(drop)?;
    Ok(writer.into_inner())
}

/// Explains a pcap or pcapng file.
#[wasm_bindgen]
pub fn explain(file: &[u8]) -> Result<String, String> {
    Ok(explain::file(file)?.to_string())
}

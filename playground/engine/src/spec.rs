use std::{collections::BTreeMap, time::Duration};

use roce_transport::mem::RKey;
use roce_world::{
    End, FREE, Failure, Fate, MOST_RECORDS, Post, PostKind, SCENARIOS, Scenario, Script,
    ScriptError, Settings, Viewer, World, play, play_script,
};
use serde::Deserialize;

pub(crate) const SCRIPT: &str = "script";
/// More hang the page.
const MOST_CHANGES: usize = 500;
/// Per request.
const MOST_BYTES: u32 = 1 << 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    scenario: String,
    #[serde(default = "one")]
    seed: u64,
    network: Option<Conditions>,
    #[serde(default)]
    fates: BTreeMap<u64, FateSpec>,
    #[serde(default)]
    posts: Vec<PostSpec>,
    /// `None`: the example.
    script: Option<String>,
}

const fn one() -> u64 {
    1
}

/// Times in µs, shares in percent.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Conditions {
    #[serde(default = "five")]
    delay: f64,
    jitter: f64,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    corrupt: f64,
    mark: f64,
    /// Mbit/s; 0: no limit.
    rate: f64,
    /// KB; 0: no limit.
    queue: f64,
    /// Queue length in KB where marking starts; at twice that all are marked; 0: none.
    ecn: f64,
}

const fn five() -> f64 {
    5.0
}

impl Conditions {
    fn clauses(&self) -> String {
        let mut clauses = vec![format!("delay {}us", self.delay)];
        if self.jitter > 0.0 {
            clauses.push(format!("jitter {}us", self.jitter));
        }
        for (verb, percent) in [
            ("drop", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("mark", self.mark),
        ] {
            if percent > 0.0 {
                clauses.push(format!("{verb} {percent}%"));
            }
        }
        if self.rate > 0.0 {
            clauses.push(format!("rate {}mbit", self.rate));
            if self.queue > 0.0 {
                clauses.push(format!("queue {}kb", self.queue));
            }
            if self.ecn > 0.0 {
                clauses.push(format!("ecn {}kb..{}kb 20%", self.ecn, self.ecn * 2.0));
            }
        }
        clauses.join(", ")
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FateSpec {
    Pass,
    Lose,
    /// µs.
    Hold(f64),
    Double,
    /// Byte of the UDP payload.
    Damage(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostSpec {
    after: usize,
    #[serde(with = "EndSpec")]
    end: End,
    #[serde(default)]
    qp: usize,
    op: Operation,
    #[serde(default)]
    length: u32,
}

#[derive(Deserialize)]
#[serde(remote = "End", rename_all = "lowercase")]
enum EndSpec {
    A,
    B,
    C,
    D,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Receive,
    Send,
    Write,
    WrongKey,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Spec {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if spec.fates.len() + spec.posts.len() > MOST_CHANGES {
            return Err(format!("more than {MOST_CHANGES} changes"));
        }
        Ok(spec)
    }

    /// Plays to the end, or until the viewer stops; returns the result, too.
    pub(crate) fn play<'a>(
        &self,
        viewer: &'a mut dyn Viewer,
    ) -> Result<(World<'a>, Result<(), Failure>), String> {
        let played = if self.scenario == SCRIPT {
            let script = self.script.as_deref().unwrap_or(Script::EXAMPLE);
            let script: Script = script.parse().map_err(|error: ScriptError| error.to_string())?;
            play_script(&script, &self.settings(), viewer)
        } else {
            play(self.scenario()?, &self.settings(), viewer)
        };
        played.map_err(|error| error.to_string())
    }

    fn scenario(&self) -> Result<&'static Scenario, String> {
        let mut all = SCENARIOS.iter().chain([&FREE]);
        all.find(|scenario| scenario.name == self.scenario)
            .ok_or_else(|| format!("unknown scenario {:?}", self.scenario))
    }

    fn settings(&self) -> Settings {
        let fates = self.fates.iter().map(|(number, fate)| (*number, fate.fate()));
        let mut posts: Vec<_> = self.posts.iter().map(PostSpec::post).collect();
        posts.sort_by_key(|post| post.after);
        Settings {
            seed: self.seed,
            network: self.network.as_ref().map(Conditions::clauses),
            fates: fates.collect(),
            posts,
            most_records: MOST_RECORDS,
        }
    }
}

impl FateSpec {
    fn fate(self) -> Fate {
        match self {
            Self::Pass => Fate::Pass,
            Self::Lose => Fate::Lose,
            Self::Hold(micros) => {
                let seconds = micros.clamp(0.0, 1e7) / 1e6;
                Fate::Hold(Duration::try_from_secs_f64(seconds).unwrap_or_default())
            }
            Self::Double => Fate::Double,
            Self::Damage(byte) => Fate::Damage(byte),
        }
    }
}

impl PostSpec {
    fn post(&self) -> Post {
        let kind = match self.op {
            Operation::Receive => PostKind::Receive,
            Operation::Send => PostKind::Send,
            Operation::Write => PostKind::Write,
            Operation::WrongKey => PostKind::WriteWithKey(RKey(0xBAD)),
            Operation::Read => PostKind::Read,
            Operation::FetchAdd => PostKind::FetchAdd(1),
            Operation::CompareSwap => PostKind::CompareSwap(0, 1),
        };
        let length = self.length.min(MOST_BYTES);
        Post { after: self.after, end: self.end, queue_pair: self.qp, kind, length }
    }
}

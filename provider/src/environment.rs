//! Environment variables ([`VARIABLES`]) of the C library and `roce run`.
//!
//! Rust programs read the variables with [`devices`](devices()) and
//! [`OpenOptions::from_environment`]. [`Device::open`](crate::Device::open) itself reads only
//! `ROCE_REAPER`. Privileged programs ignore all variables: [`value`].

use std::{collections::BTreeSet, path::PathBuf, sync::Once};

use roce_transport::congestion::CongestionConfig;
use thiserror::Error;
use tracing::warn;

#[cfg(feature = "log")]
use crate::cancel::Uncancelled;
pub use crate::variables::*;
use crate::{
    bind::BindError,
    checks::{CheckSyntaxError, Checks},
    device::{self, Device, OpenError, OpenOptions},
    diagnosis,
    fabric::{FaultPlan, FaultSyntaxError},
    faults::{FaultRules, live},
    notice,
    profile::{Profile, ProfileError},
};

/// Error in a variable. The C library prints the error and offers no device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// Unknown device.
    #[error("{DEVICES}: {0}")]
    Device(#[source] OpenError),
    /// Invalid rules.
    #[error("{FAULT}: {0}")]
    Fault(#[from] FaultSyntaxError),
    /// Unknown check.
    #[error("{CHECK}: {0}")]
    Check(#[from] CheckSyntaxError),
    /// Unknown or invalid profile.
    #[error("{AS}: {0}")]
    Profile(#[from] ProfileError),
    /// Invalid seed.
    #[error("{FAULT_SEED}: {0:?} is not a number from 0 to 2^64 - 1; write for example 42 or 0x2a")]
    Seed(String),
    /// Unknown log level.
    #[error("{LOG}: {0:?} is not a level; write error, warn, info, debug or trace")]
    Log(String),
    /// Invalid number.
    #[error("{0}: {1:?} is not a number from 0 to 2^63 - 1; write for example 16")]
    Number(&'static str, String),
    /// Value that is not UTF-8.
    #[error("{0} is not UTF-8 text; set it to text, or unset it")]
    NotText(&'static str),
}

/// Devices of `ROCE_DEVICES` in order, or all [`devices`](crate::devices), under the names of
/// `ROCE_AS`.
///
/// Launchers pass the variable to all hosts: missing devices are skipped with one line, if any
/// device exists.
///
/// # Errors
/// [`EnvironmentError::Device`] if none exists or one is invalid; [`EnvironmentError::Profile`].
pub fn devices() -> Result<Vec<Device>, EnvironmentError> {
    static SAID: Once = Once::new();
    let (devices, lacking) = devices_here(profile()?.as_ref())?;
    if !lacking.is_empty() {
        SAID.call_once(|| {
            let names = lacking.join(", ");
            warn!(target: notice::TARGET, "{DEVICES}: ignored, because this host does not have \
                 them: {names}");
        });
    }
    Ok(devices)
}

/// Devices with this profile, and the skipped names.
///
/// # Errors
/// As for [`devices`].
pub fn devices_here(
    profile: Option<&Profile>,
) -> Result<(Vec<Device>, Vec<String>), EnvironmentError> {
    those_here(&text(DEVICES)?, profile)
}

fn those_here(
    specs: &str,
    profile: Option<&Profile>,
) -> Result<(Vec<Device>, Vec<String>), EnvironmentError> {
    let is_lacking = |error: &EnvironmentError| {
        let EnvironmentError::Device(error) = error else { return false };
        matches!(error, OpenError::NoSuchDevice(_) | OpenError::Bind(BindError::NotLocal(_)))
    };
    match devices_as(specs, profile) {
        Err(error) if is_lacking(&error) => {
            let exists =
                |name: &String| devices_as(name, profile).err().is_none_or(|e| !is_lacking(&e));
            let (here, lacking): (Vec<_>, Vec<_>) = split(specs).into_iter().partition(exists);
            if here.is_empty() {
                return Err(error);
            }
            Ok((devices_as(&here.join(","), profile)?, lacking))
        }
        found => Ok((found?, Vec::new())),
    }
}

/// Profile of `ROCE_AS`.
///
/// # Errors
/// [`EnvironmentError::Profile`].
pub fn profile() -> Result<Option<Profile>, EnvironmentError> {
    let name = text(AS)?;
    Ok(if name.is_empty() { None } else { Some(Profile::named(&name)?) })
}

/// Devices that a text names, under the profile's names if any.
///
/// With a profile, original names are accepted too, and renamed in order. An empty text selects all
/// devices.
///
/// # Errors
/// [`EnvironmentError::Device`].
pub fn devices_as(specs: &str, profile: Option<&Profile>) -> Result<Vec<Device>, EnvironmentError> {
    let shown = |devices, fill| match profile {
        Some(profile) => profile.shown(devices, fill),
        None => devices,
    };
    let names = split(specs);
    let all = shown(device::devices(), true);
    if names.is_empty() {
        return Ok(all);
    }
    let by_name = |name: &String| all.iter().find(|device| device.name() == name).cloned();
    if let Some(found) = names.iter().map(by_name).collect::<Option<Vec<_>>>() {
        return Ok(each_once(found));
    }
    let named: Result<Vec<_>, _> = names.iter().map(|name| Device::named(name)).collect();
    Ok(shown(each_once(named.map_err(EnvironmentError::Device)?), false))
}

/// Splits at commas and spaces, except within a raw device.
fn split(specs: &str) -> Vec<String> {
    let words =
        specs.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    words.fold(Vec::new(), |mut devices: Vec<String>, word| {
        match devices.last_mut() {
            Some(before) if device::continues(before, word) => *before += &format!(",{word}"),
            _ => devices.push(word.to_owned()),
        }
        devices
    })
}

fn each_once(mut devices: Vec<Device>) -> Vec<Device> {
    let mut names = BTreeSet::new();
    devices.retain(|device| names.insert(device.name().to_owned()));
    devices
}

/// Checks of `ROCE_CHECK`, if any.
///
/// # Errors
/// [`EnvironmentError::Check`].
pub fn checks() -> Result<Option<Checks>, EnvironmentError> {
    match text(CHECK)?.as_str() {
        "" | "0" => Ok(None),
        words => Ok(Some(words.parse()?)),
    }
}

impl OpenOptions {
    /// Default options with the environment's changes; see the [module](self).
    ///
    /// # Errors
    /// [`EnvironmentError`].
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        let FaultRules { packets, .. } = text(FAULT)?.parse()?;
        // switchable faults reach links another way
        let faults = if live::is_on() { FaultPlan::default() } else { packets };
        let seed = text(FAULT_SEED)?;
        let fault_seed = parse_seed(seed.trim()).ok_or(EnvironmentError::Seed(seed))?;
        let number = |variable| {
            let text = text(variable)?;
            match text.trim() {
                "" => Ok(None),
                number => {
                    number.parse().map(Some).map_err(|_| EnvironmentError::Number(variable, text))
                }
            }
        };
        Ok(Self {
            pcap: value(PCAP).map(PathBuf::from),
            sockets_only: is_on(SOCKETS_ONLY),
            explain: diagnosis::format(),
            faults,
            fault_seed,
            receive_buffer: number(RECEIVE_BUFFER)?,
            source_ports: number(SOURCE_PORTS)?,
            segments: number(SEGMENTS)?,
            write_only_packets: number(WRITE_ONLY_PACKETS)?,
            shards: number(SHARDS)?,
            congestion: congestion_without(is_off),
            late: checks()?.map(|checks| checks.late()).unwrap_or_default(),
            profile: profile()?,
            ..Self::default()
        })
    }
}

fn congestion_without(off: impl Fn(&str) -> bool) -> CongestionConfig {
    let default = CongestionConfig::default();
    CongestionConfig {
        ecn: default.ecn && !off(ECN),
        dcqcn: default.dcqcn.filter(|_| !off(DCQCN)),
        ..default
    }
}

/// Logs to stderr at the level of `ROCE_LOG`, by default only the system's refusals.
///
/// `debug` shows devices, queue pairs, retries and refused packets. For programs only: libraries
/// must not set the `tracing` subscriber. An existing subscriber stays.
///
/// Threads log under a device's lock: a blocked terminal or pipe stops the device.
///
/// # Errors
/// [`EnvironmentError::Log`].
#[cfg(feature = "log")]
pub fn init_log() -> Result<(), EnvironmentError> {
    let level = text(LOG)?;
    if level.is_empty() {
        let _ = tracing::subscriber::set_global_default(notice::Lines);
        return Ok(());
    }
    let level: tracing::Level = level.trim().parse().map_err(|_| EnvironmentError::Log(level))?;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| LogWriter(Uncancelled::begin(), std::io::stderr()))
        .with_target(false)
        .with_ansi(false)
        // panics without a reader
        .log_internal_errors(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Stderr, without cancellation during a line.
#[cfg(feature = "log")]
struct LogWriter(#[allow(dead_code, reason = "only held")] Uncancelled, std::io::Stderr);

#[cfg(feature = "log")]
impl std::io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.1.write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.1.flush()
    }
}

fn text(variable: &'static str) -> Result<String, EnvironmentError> {
    let value = value(variable).unwrap_or_default();
    value.into_string().map_err(|_| EnvironmentError::NotText(variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(specs: &str) -> Vec<String> {
        devices_as(specs, None).unwrap().iter().map(|device| device.name().to_owned()).collect()
    }

    #[test]
    fn devices_are_named_in_any_way_and_each_once() {
        let all: Vec<_> = device::devices().iter().map(|device| device.name().to_owned()).collect();
        assert_eq!(names(""), all);
        assert_eq!(names(" , \t"), all);
        assert_eq!(names("roce_lo"), ["roce_lo"]);
        assert_eq!(
            names("udp:127.0.0.9 lo,roce_lo, udp:[127.0.0.9]"),
            ["udp:127.0.0.9", "roce_lo"]
        );
        assert_eq!(names(&all.join(",")), all);
    }

    #[test]
    fn what_only_another_host_has_is_left_out_unless_it_is_all() {
        let here = |specs: &str, profile: Option<&Profile>| {
            those_here(specs, profile).map(|(devices, lacking)| {
                (devices.iter().map(|one| one.name().to_owned()).collect::<Vec<_>>(), lacking)
            })
        };
        let [own, other] = ["roce_lo", "mlx5_0"].map(|name| vec![name.to_owned()]);
        assert_eq!(here("roce_lo", None).unwrap(), (own.clone(), vec![]));
        assert_eq!(
            here("eth77 roce_lo,udp:192.0.2.1", None).unwrap(),
            (own, vec!["eth77".to_owned(), "udp:192.0.2.1".to_owned()])
        );
        let profile = Profile::named("connectx-7").unwrap();
        let lacking = vec!["mlx5_77".to_owned()];
        assert_eq!(here("mlx5_0,mlx5_77", Some(&profile)).unwrap(), (other, lacking));
        let error = here("eth77,eth78", None).unwrap_err().to_string();
        assert!(error.starts_with("ROCE_DEVICES: device eth77 does not exist;"), "{error}");
        let error = here("roce_lo,eth77,udp:10.0.0", None).unwrap_err().to_string();
        assert!(error.starts_with("ROCE_DEVICES: 10.0.0 is not an IP address"), "{error}");
    }

    #[test]
    fn the_commas_of_a_raw_device_are_its_own() {
        assert_eq!(
            split("roce_lo,raw:v0,ip=10.0.0.9/24,vlan=7 udp:10.0.0.1, raw:v1,raw:v2, mac=1"),
            ["roce_lo", "raw:v0,ip=10.0.0.9/24,vlan=7", "udp:10.0.0.1", "raw:v1", "raw:v2,mac=1"]
        );
        assert_eq!(split("eth0,a=b"), ["eth0", "a=b"]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (specs, wanted) in [
            (
                "roce_lo,eth77",
                "ROCE_DEVICES: device eth77 does not exist; `roce devinfo` lists the devices",
            ),
            ("udp:10.0.0", "ROCE_DEVICES: 10.0.0 is not an IP address"),
            ("udp:192.0.2.1", "ROCE_DEVICES: 192.0.2.1 is not an address of this host"),
            ("raw:eth77", "ROCE_DEVICES: the interface eth77 does not exist; `ip link` lists"),
            ("raw:lo", "ROCE_DEVICES: the interface lo is not an Ethernet interface"),
            ("raw:v0,vlan=0", "ROCE_DEVICES: raw:v0,vlan=0: \"vlan=0\" is wrong: write a VLAN ID"),
        ] {
            let error = devices_as(specs, None).unwrap_err().to_string();
            assert!(error.starts_with(wanted) && error.lines().count() == 1, "{error}");
        }
        let fault = EnvironmentError::from("drop".parse::<FaultPlan>().unwrap_err()).to_string();
        assert!(fault.starts_with("ROCE_FAULT: in the fault \"drop\": no condition"), "{fault}");
        assert!(
            EnvironmentError::Seed("a\nb".into())
                .to_string()
                .starts_with("ROCE_FAULT_SEED: \"a\\nb\" is not a number")
        );
    }

    #[test]
    fn parts_of_congestion_control_can_be_turned_off() {
        let default = CongestionConfig::default();
        assert_eq!(congestion_without(|_| false), default);
        let no_ecn = congestion_without(|variable| variable == ECN);
        assert_eq!(no_ecn, CongestionConfig { ecn: false, ..default });
        let no_dcqcn = congestion_without(|variable| variable == DCQCN);
        assert_eq!(no_dcqcn, CongestionConfig { dcqcn: None, ..default });
    }

    #[test]
    fn seeds() {
        assert_eq!(
            ["", "7", "0xff", "18446744073709551615"].map(parse_seed),
            [Some(0), Some(7), Some(255), Some(u64::MAX)]
        );
        assert_eq!(["-1", "x", "0x", "1.5", "18446744073709551616"].map(parse_seed), [None; 5]);
    }
}

//! Profiles of real adapters.

mod parse;
mod schema;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use roce_transport::{
    adapter::{Limits, RoceV1, SendQueueMemory},
    qp::AckTimer,
};
use thiserror::Error;

use crate::{
    port::{GidLayout, PortAttr},
    sync::Mutex,
    verbs::{AtomicCap, DeviceAttr, DeviceCaps},
};
use schema::Value;

/// Adapter that a device presents: names, attributes and limits of a TOML file with sources.
///
/// Limits are enforced, [lowered](Self::limits) to this software's.
///
/// ```
/// use roce_provider::{
///     Device, OpenOptions, Profile, QpInitAttr,
///     transport::qp::{QpCaps, QpType},
/// };
///
/// let profile = Profile::named("connectx-5")?;
/// let options = OpenOptions { profile: Some(profile), ..OpenOptions::default() };
/// let context = Device::named("roce_lo")?.open(options)?;
/// let attr = context.query_device();
/// assert_eq!((attr.vendor_part_id, attr.limits.max_sge), (4119, 30));
///
/// // what that adapter refuses is refused
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// let caps = QpCaps { max_send_sge: 40, ..QpCaps::default() };
/// assert!(pd.create_qp(&QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &cq) }).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile(Arc<Parsed>);

#[derive(PartialEq, Eq, Debug)]
struct Parsed {
    name: String,
    title: String,
    values: BTreeMap<(&'static str, &'static str), Value>,
    sources: BTreeSet<String>,
}

/// Invalid profile: one line with key and valid values.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct ProfileError(String);

const BUILT_IN: [(&str, &str); 7] = [
    ("connectx-5", include_str!("connectx-5.toml")),
    ("connectx-6dx", include_str!("connectx-6dx.toml")),
    ("connectx-7", include_str!("connectx-7.toml")),
    ("bluefield-2", include_str!("bluefield-2.toml")),
    ("e810", include_str!("e810.toml")),
    ("erdma", include_str!("erdma.toml")),
    ("rxe", include_str!("rxe.toml")),
];

/// Limits of this software; for queue pairs, memory windows and SRQs, the adapter's.
const MOST: Limits = Limits {
    max_pd: 1 << 24,
    max_mr: 1 << 24,
    max_mw: 1 << 20,
    max_cq: 1 << 24,
    max_cqe: 1 << 22,
    max_qp: 1 << 23,
    max_srq: 1 << 23,
    max_xrcd: 1 << 24,
    max_mcast_grp: 1 << 24,
    max_mcast_qp_attach: 256,
    max_ah: 0x7FFF_FFFF,
    max_qp_wr: 1 << 15,
    max_sge: 32,
    max_recv_sge: 32,
    max_srq_wr: 1 << 15,
    max_srq_sge: 32,
    max_inline_data: 1024,
    max_dm_size: 256 << 10,
    max_read_sge: 32,
    atomics: true,
    max_mr_size: u64::MAX,
    early_posts: true,
    send_queue: None,
    ack_timer: AckTimer::USUAL,
};

impl Profile {
    /// Loads a profile by name, or by path (with a slash, or ending in `.toml`).
    ///
    /// # Errors
    /// [`ProfileError`] if missing or invalid.
    pub fn named(spec: &str) -> Result<Self, ProfileError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == spec) {
            return text.parse();
        }
        let about = |what: &dyn std::fmt::Display| ProfileError(format!("{spec}: {what}"));
        if !spec.contains('/') && Path::new(spec).extension().is_none_or(|end| end != "toml") {
            let names: Vec<_> = Self::built_in().collect();
            return Err(match spec {
                "siw" => about(&"siw is iWARP, which roce does not support"),
                _ => ProfileError(format!(
                    "unknown profile {spec:?}; expected {}, or the path of a file, with a slash",
                    names.join(", ")
                )),
            });
        }
        let text = fs::read_to_string(spec).map_err(|error| about(&error))?;
        text.parse().map_err(|error| about(&error))
    }

    /// Names of the built-in profiles.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Adapter's name in words.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// Addresses of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.sources.iter().map(String::as_str)
    }

    /// Number of a key, such as `limits.max_sge`, not lowered.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        if let Value::Number(number) = self.value(key)? { Some(*number) } else { None }
    }

    /// Text of a key, such as `device.board_id`. Static, because device attributes are copied.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'static str> {
        if let Value::Text(text) = self.value(key)? { Some(intern(text)) } else { None }
    }

    fn flag(&self, key: &str) -> bool {
        self.value(key) == Some(&Value::Flag(true))
    }

    fn value<'a>(&'a self, key: &'a str) -> Option<&'a Value> {
        self.0.values.get(&key.split_once('.')?)
    }

    /// The profile's limits, lowered to this software's; `otherwise` for missing keys. Missing
    /// features have limit 0.
    #[must_use]
    pub fn limits(&self, otherwise: Limits) -> Limits {
        fn lowered<T: TryFrom<u64> + Ord + Copy>(number: Option<u64>, otherwise: T, most: T) -> T {
            number.map_or(otherwise, |number| T::try_from(number).unwrap_or(most).min(most))
        }
        let number = |key: &str| self.number(&format!("limits.{key}"));
        let max_sge = lowered(number("max_sge"), otherwise.max_sge, MOST.max_sge);
        let xrc = self.caps().is_none_or(|caps| caps.contains(DeviceCaps::XRC));
        macro_rules! limits {
            ($($field:ident)+; $($others:tt)+) => {
                Limits {
                    $($field: lowered(number(stringify!($field)), otherwise.$field, MOST.$field),)+
                    $($others)+
                }
            };
        }
        limits! {
            max_pd max_mr max_mw max_cq max_cqe max_qp max_srq max_mcast_grp max_mcast_qp_attach
            max_ah max_qp_wr max_srq_wr max_srq_sge max_inline_data max_dm_size;
            max_xrcd: if xrc { otherwise.max_xrcd } else { 0 },
            max_sge: lowered(number("max_send_sge"), max_sge, MOST.max_sge),
            max_recv_sge: lowered(number("max_recv_sge"), max_sge, MOST.max_recv_sge),
            max_read_sge: lowered(number("max_sge_rd"), otherwise.max_read_sge, MOST.max_read_sge),
            atomics: otherwise.atomics && self.text("device.atomic_cap") != Some("none"),
            max_mr_size: number("max_mr_size").unwrap_or(otherwise.max_mr_size),
            early_posts: self.flag("posting.early"),
            send_queue: self.send_queue(),
            ack_timer: self.ack_timer(),
        }
    }

    pub(crate) fn ack_timer(&self) -> AckTimer {
        let number = |key| self.number(key).and_then(|number| u32::try_from(number).ok());
        let usual = AckTimer::default();
        AckTimer {
            least: number("ack_timer.least").map_or(usual.least, |code| code as u8),
            percent: number("ack_timer.percent").unwrap_or(usual.percent),
            backs_off: !self.flag("ack_timer.constant"),
        }
    }

    fn send_queue(&self) -> Option<SendQueueMemory> {
        let number = |key: &str| u32::try_from(self.number(&format!("send_queue.{key}"))?).ok();
        Some(SendQueueMemory {
            queue: number("bytes")?,
            element: number("element")?,
            unit: number("unit")?,
            connected: number("connected")?,
            datagrams: number("datagrams")?,
            extended: number("extended")?,
        })
    }

    fn caps(&self) -> Option<DeviceCaps> {
        self.number("device.device_cap_flags").map(DeviceCaps::from_bits_truncate)
    }

    /// `attr` has the limits already.
    pub(crate) fn apply(&self, attr: &mut DeviceAttr) {
        fn set<T: TryFrom<u64> + Ord + Copy>(to: &mut T, number: Option<u64>) {
            if let Some(number) = number.and_then(|number| T::try_from(number).ok()) {
                *to = number;
            }
        }
        fn lower<T: TryFrom<u64> + Ord + Copy>(to: &mut T, number: Option<u64>) {
            if let Some(number) = number.and_then(|number| T::try_from(number).ok()) {
                *to = number.min(*to);
            }
        }
        fn mask(to: &mut u32, number: Option<u64>) {
            *to &= number.map_or(u32::MAX, |bits| bits as u32);
        }
        macro_rules! apply {
            ($($change:ident $section:literal $to:expr => $($field:ident)+;)+) => {
                $($($change(
                    &mut $to.$field,
                    self.number(concat!($section, stringify!($field))),
                );)+)+
            };
        }
        apply! {
            set "device." attr => vendor_id vendor_part_id hw_ver num_comp_vectors;
            set "limits." attr => page_size_cap max_res_rd_atom max_pkeys local_ca_ack_delay;
            lower "limits." attr => max_mr_size max_sge_rd max_qp_rd_atom max_qp_init_rd_atom
                max_cq_count max_cq_period;
            mask "odp." attr.odp => general rc uc ud xrc;
        }
        attr.fw_ver = self.text("device.fw_ver").unwrap_or(attr.fw_ver);
        attr.device_cap_flags = self.caps().unwrap_or(attr.device_cap_flags);
        attr.atomic_cap = match self.text("device.atomic_cap") {
            Some("none") => AtomicCap::None,
            Some("hca") => AtomicCap::Hca,
            _ => attr.atomic_cap,
        };
    }

    pub(crate) fn port(&self, port: PortAttr) -> PortAttr {
        let number = |key: &str| self.number(&format!("port.{key}"));
        let speed = number("speed").and_then(|mbps| u32::try_from(mbps).ok());
        PortAttr {
            max_message: number("max_msg_sz").map_or(port.max_message, |bytes| {
                u32::try_from(bytes).unwrap_or(u32::MAX).min(port.max_message)
            }),
            gid_table_len: self.gid_layout().len,
            roce_v1: port.roce_v1 || self.gid_layout().v1 != RoceV1::Absent,
            cap_flags: number("port_cap_flags").map(|flags| flags as u32).or(port.cap_flags),
            max_vl_num: number("max_vl_num").map_or(port.max_vl_num, |code| code as u8),
            speed: speed.or(port.speed),
            ..port
        }
    }

    pub(crate) fn gid_layout(&self) -> GidLayout {
        let default = GidLayout::default();
        let len = self.number("port.gid_tbl_len").and_then(|len| u16::try_from(len).ok());
        GidLayout {
            len: len.map_or(default.len, |len| len.min(default.len)),
            v1: if self.flag("port.roce_v1") { RoceV1::Shown } else { RoceV1::Absent },
        }
    }
}

/// Interns the text forever.
fn intern(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.get(text) {
        return known;
    }
    let text: &'static str = Box::leak(text.into());
    texts.insert(text);
    text
}

#[cfg(test)]
mod tests;

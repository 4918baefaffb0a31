//! RDMA files of /sys/class and /dev as from the kernel. The library updates the counters; the rest
//! is static.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use roce::{
    Counters, Device, Gid, LinkCounters, PKey, PortCounter, Profile,
    link::{Link as _, Locality, SocketOptions, UdpLink},
    port_counters,
};

pub(super) const CLASS: &str = "/sys/class";

pub(super) const CLASSES: [&str; 2] = ["infiniband", "infiniband_verbs"];

/// Milliseconds: the library publishes counters once a second.
const LIFESPAN: &str = "1000";

pub(super) fn classes(at: &Path, devices: &[Device], profile: Option<&Profile>) -> io::Result<()> {
    let verbs = Tree(at.join("infiniband_verbs"));
    verbs.file("abi_version", "6")?;
    for (index, device) in devices.iter().enumerate() {
        let name = device.name();
        describe(&Tree(at.join("infiniband").join(name)), device, profile)?;
        let uverbs = verbs.below(&format!("uverbs{index}"));
        uverbs.file("ibdev", name)?;
        uverbs.file("abi_version", "1")?;
        uverbs.link("device", &format!("../../infiniband/{name}/device"))?;
    }
    Ok(())
}

/// Tells programs that GPU memory can be registered.
pub(super) const PEERMEM: &str = "nvidia_peermem";

/// Writes the module for `host` (/sys/module): with a version if the GPU's driver is loaded and
/// `is_on`, else without. `false`: nothing to show.
pub(super) fn modules(at: &Path, host: &Path, is_on: bool) -> io::Result<bool> {
    let module = Tree(at.join(PEERMEM));
    if is_on && host.join("nvidia").is_dir() {
        module.file("version", env!("CARGO_PKG_VERSION"))?;
        return Ok(true);
    }
    let is_there = host.join(PEERMEM).is_dir();
    if is_there {
        fs::create_dir_all(&module.0)?;
    }
    Ok(is_there)
}

/// Made with its first entry.
struct Tree(PathBuf);

impl Tree {
    fn below(&self, name: &str) -> Self {
        Self(self.0.join(name))
    }

    fn file(&self, name: &str, content: &str) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        fs::write(self.0.join(name), format!("{content}\n"))
    }

    fn link(&self, name: &str, target: &str) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        symlink(target, self.0.join(name))
    }

    /// Files `0` to `count - 1`, hard links to one file.
    fn table(&self, count: u16, content: &str) -> io::Result<()> {
        self.file("0", content)?;
        (1..count)
            .try_for_each(|index| fs::hard_link(self.0.join("0"), self.0.join(index.to_string())))
    }
}

fn describe(tree: &Tree, device: &Device, profile: Option<&Profile>) -> io::Result<()> {
    let attr = device.attributes_as(profile);
    let text = |key: &str| profile.and_then(|profile| profile.text(key));
    let pci_vendor = profile.and_then(|profile| profile.number("device.pci_vendor"));
    let guid = attr.sys_image_guid.to_string();
    tree.file("node_type", "1: CA")?;
    tree.file("node_desc", device.name())?;
    tree.file("node_guid", &guid)?;
    tree.file("sys_image_guid", &guid)?;
    tree.file("fw_ver", attr.fw_ver)?;
    tree.file("hw_rev", &format!("{:#x}", attr.hw_ver))?;
    tree.file("hca_type", text("device.hca_type").unwrap_or("roce"))?;
    if let Some(board) = text("device.board_id") {
        tree.file("board_id", board)?;
    }

    let hardware = tree.below("device");
    hardware.file("vendor", &format!("{:#x}", pci_vendor.unwrap_or(attr.vendor_id.into())))?;
    hardware.file("device", &format!("{:#x}", attr.vendor_part_id))?;
    hardware.file("numa_node", "-1")?;
    if let Ok(cpus) = fs::read_to_string("/sys/devices/system/cpu/online") {
        hardware.file("local_cpulist", cpus.trim())?;
    }
    if let Some(interface) = device.interface() {
        hardware.below("net").link(interface, &format!("/sys/class/net/{interface}"))?;
    }
    port(&tree.below("ports").below("1"), device, profile)
}

fn port(tree: &Tree, device: &Device, profile: Option<&Profile>) -> io::Result<()> {
    let port = device.port_as(profile);
    let v1 = port.roce_v1;
    tree.file("state", if port.active { "4: ACTIVE" } else { "1: DOWN" })?;
    tree.file("phys_state", if port.active { "5: LinkUp" } else { "3: Disabled" })?;
    tree.file("link_layer", "Ethernet")?;
    let mbps = port.speed.unwrap_or(2_500);
    let lanes = if matches!(mbps, 40_000 | 100_000..) { 4 } else { 1 };
    tree.file("rate", &format!("{} Gb/sec ({lanes}X)", f64::from(mbps) / 1e3))?;
    for (name, value) in
        [("lid", "0x0"), ("lid_mask_count", "0"), ("sm_lid", "0x0"), ("sm_sl", "0")]
    {
        tree.file(name, value)?;
    }
    tree.file("cap_mask", &format!("{:#010x}", port.cap_flags.unwrap_or(0x0401_0000)))?;
    tree.below("pkeys").table(port.pkey_table_len, &format!("{:#06x}", PKey::DEFAULT.0))?;

    let (none, no_link) = (Counters::default(), LinkCounters::default());
    for PortCounter { directory, name, value, .. } in port_counters(profile, &none, &no_link) {
        let directory = tree.below(directory);
        directory.file(name, &value.to_string())?;
        if directory.0.ends_with("hw_counters") {
            directory.file("lifespan", LIFESPAN)?;
        }
    }

    // A GID may get an address later; its type and interface are known now.
    let (gids, attrs) = (tree.below("gids"), tree.below("gid_attrs"));
    gids.table(port.gid_table_len, &words(Gid::default()))?;
    attrs.below("types").table(port.gid_table_len, "RoCE v2")?;
    if let Some(interface) = device.interface() {
        attrs.below("ndevs").table(port.gid_table_len, interface)?;
    }
    if v1 {
        let types = attrs.below("types");
        for index in (0..port.gid_table_len).step_by(2).map(|index| index.to_string()) {
            // a hard link to all others
            fs::remove_file(types.0.join(&index))?;
            types.file(&index, "IB/RoCE v1")?;
        }
    }
    for (index, gid) in own_gids(device, profile).into_iter().enumerate() {
        // a hard link to all unused ones
        let _ = fs::remove_file(gids.0.join(index.to_string()));
        gids.file(&index.to_string(), &words(gid))?;
    }
    Ok(())
}

/// The loopback device takes the first free address, which another program may take first.
fn own_gids(device: &Device, profile: Option<&Profile>) -> Vec<Gid> {
    let gids = device.gids_as(profile);
    if device.takes_loopback_address()
        && let Ok(link) = UdpLink::bind_loopback(None, Locality::Network, SocketOptions::default())
    {
        return link.addresses().into_iter().map(Gid::from).cycle().take(gids.len()).collect();
    }
    gids
}

fn words(gid: Gid) -> String {
    let words = gid.0.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1]));
    words.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_shown_only_where_memory_of_gpus_works() {
        for (driver, peermem, is_on, shown, has_version) in [
            (true, false, true, true, true),
            (true, true, true, true, true),
            (true, true, false, true, false),
            (true, false, false, false, false),
            (false, false, true, false, false),
            (false, true, true, true, false),
        ] {
            let (host, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            for (name, there) in [("nvidia", driver), (PEERMEM, peermem)] {
                if there {
                    fs::create_dir(host.path().join(name)).unwrap();
                }
            }
            let result = modules(at.path(), host.path(), is_on).unwrap();
            let version = at.path().join(PEERMEM).join("version");
            assert_eq!(
                (result, version.exists()),
                (shown, has_version),
                "{driver} {peermem} {is_on}"
            );
        }
    }
}

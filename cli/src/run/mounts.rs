//! A mount namespace in which /sys/class and /dev show roce's devices.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::Path,
};

use roce::{
    Device, Profile,
    environment::{GPU, is_off},
};
use rustix::{
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
        unmount,
    },
    process::{getegid, geteuid},
    thread::{UnshareFlags, unshare_unsafe},
};

use super::sysfs;

pub(super) fn enter(devices: &[Device], profile: Option<&Profile>) -> Result<(), String> {
    let refused = |step: &str, error: &dyn std::fmt::Display| {
        format!(
            "--sysfs needs a mount namespace, which the system refuses ({step}: {error}); allow \
             user namespaces (sysctl user.max_user_namespaces, \
             kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), run \
             as root, or do without --sysfs"
        )
    };
    separate().map_err(|(step, error)| refused(step, &error))?;
    // Later mounts are invisible outside.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| refused("mount", &error))?;
    show(devices, profile).map_err(|error| refused("mount", &error))
}

/// Unprivileged, with a user namespace that keeps the user's number.
fn separate() -> Result<(), (&'static str, io::Error)> {
    if unshare(UnshareFlags::NEWNS).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(|error| ("unshare", error.into()))?;
    let write =
        |file: &'static str, text: String| fs::write(file, text).map_err(|error| (file, error));
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    // required for mapping a group without privilege
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only descriptors that threads no longer share could do harm; their table stays
    // shared.
    unsafe { unshare_unsafe(flags) }
}

fn show(devices: &[Device], profile: Option<&Profile>) -> io::Result<()> {
    let stage = roce::runtime_directory()?.join("sysfs");
    match DirBuilder::new().mode(0o700).create(&stage) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    mount(
        "roce",
        &stage,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=755,size=64m"),
    )?;
    let (classes, dev) = (stage.join("class"), stage.join("dev"));
    sysfs::classes(&classes, devices, profile)?;
    cover(Path::new(sysfs::CLASS), &classes, &sysfs::CLASSES)?;

    let nodes = dev.join("infiniband");
    fs::create_dir_all(&nodes)?;
    for index in 0..devices.len() {
        // any character device that opens
        bind_file(Path::new("/dev/null"), &nodes.join(format!("uverbs{index}")))?;
    }
    cover(Path::new("/dev"), &dev, &["infiniband"])?;
    let (host, modules) = (Path::new("/sys/module"), stage.join("module"));
    if sysfs::modules(&modules, host, !is_off(GPU))? {
        cover(host, &modules, &[sysfs::PEERMEM])?;
    }
    // The mounts stay.
    unmount(&stage, UnmountFlags::DETACH)?;
    Ok(())
}

/// Shows `names` of `new` in the directory `host`, in place of entries of the same name.
fn cover(host: &Path, new: &Path, names: &[&str]) -> io::Result<()> {
    if names.iter().all(|name| host.join(name).is_dir()) {
        return names
            .iter()
            .try_for_each(|name| Ok(mount_bind_recursive(new.join(name), host.join(name))?));
    }
    // The kernel makes no directory there: bind old and new entries.
    for entry in fs::read_dir(host)? {
        let entry = entry?;
        let name = entry.file_name();
        if names.iter().any(|new| name == *new) {
            continue;
        }
        let (from, to) = (entry.path(), new.join(&name));
        let kind = entry.file_type()?;
        let result = if kind.is_symlink() {
            fs::read_link(&from).and_then(|target| symlink(target, &to))
        } else if kind.is_dir() {
            fs::create_dir(&to).and_then(|()| Ok(mount_bind_recursive(&from, &to)?))
        } else {
            bind_file(&from, &to)
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // removed meanwhile
            other => other?,
        }
    }
    Ok(mount_bind_recursive(new, host)?)
}

fn bind_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::write(to, "")?;
    Ok(mount_bind_recursive(from, to)?)
}

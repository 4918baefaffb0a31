//! Bill of materials and licences, from cargo.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    Failure,
    build::{self, VERSION},
};

pub(crate) struct Component {
    name: String,
    version: String,
    licence: String,
    directory: PathBuf,
    /// `None`: this repository's.
    sum: Option<String>,
}

pub(crate) fn components(target: &str) -> Result<Vec<Component>, Failure> {
    let mut command = Command::new(build::cargo());
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&build::run(&mut command)?)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_id = |all: &Value| -> BTreeMap<_, _> {
        list(all).into_iter().map(|it| (text(&it["id"]), it)).collect()
    };
    let (packages, nodes) = (by_id(&metadata["packages"]), by_id(&metadata["resolve"]["nodes"]));
    // procedural macros are not in the output
    let is_macro = |package: &Value| {
        list(&package["targets"]).iter().any(|target| target["kind"][0] == "proc-macro")
    };
    let is_root = |package: &Value| ["roce-cli", "roce-abi"].contains(&&*text(&package["name"]));
    let mut open: Vec<_> =
        packages.iter().filter(|(_, package)| is_root(package)).map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if is_macro(&packages[&id]) || !seen.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id]["deps"]) {
            // no dev and build dependencies
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    let sums = sums()?;
    let mut components: Vec<_> = seen
        .iter()
        .map(|id| {
            let package = &packages[id];
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            Component {
                sum: sums.get(&(name.clone(), version.clone())).cloned(),
                licence: text(&package["license"]),
                directory: manifest.parent().unwrap_or(&manifest).to_owned(),
                name,
                version,
            }
        })
        .collect();
    components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(components)
}

/// By name and version, from Cargo.lock.
fn sums() -> Result<BTreeMap<(String, String), String>, Failure> {
    let lock: toml::Table = fs::read_to_string("Cargo.lock")?.parse()?;
    let packages = lock["package"].as_array().ok_or("Cargo.lock lists no packages")?;
    let sum = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(sum).collect())
}

/// CycloneDX 1.5, without a time, for reproducible packages.
pub(crate) fn bill(components: &[Component], target: &str) -> Result<Vec<u8>, Failure> {
    let list: Vec<_> = components
        .iter()
        .map(|component| {
            let Component { name, version, licence, sum, .. } = component;
            // the old spelling of OR
            let licence = licence.replace('/', " OR ");
            let purl = format!("pkg:cargo/{name}@{version}");
            let mut entry = json!({
                "type": "library", "bom-ref": &purl, "name": name, "version": version, "purl": &purl,
                "licenses": [{ "expression": licence }],
            });
            if let Some(sum) = sum {
                entry["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            entry
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "roce", "version": VERSION,
            "properties": [{ "name": "cdx:rustc:sbom:target:triple", "value": target }],
        } },
        "components": list,
    });
    Ok(serde_json::to_vec_pretty(&bill)?)
}

/// Third-party licences, each text once, with its components.
pub(crate) fn licences(components: &[Component]) -> Result<String, Failure> {
    let mut list = "The packages of roce contain these components:\n\n".to_owned();
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in components.iter().filter(|component| component.sum.is_some()) {
        let Component { name, version, licence, directory, .. } = component;
        let texts = texts(directory)?;
        if licence.is_empty() && texts.is_empty() {
            return Err(format!("{name} {version} has no licence").into());
        }
        let remark = if texts.is_empty() { ", of which it brings no text" } else { "" };
        list += &format!("{name} {version}: {licence}{remark}\n");
        for path in texts {
            let text = String::from_utf8_lossy(&fs::read(path)?).trim().to_owned();
            holders.entry(text).or_default().push(name.clone());
        }
    }
    for (text, mut names) in holders {
        names.dedup();
        list += &format!("\n{}\n{}:\n\n{text}\n", "=".repeat(72), names.join(", "));
    }
    Ok(list)
}

fn texts(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_text = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_text && path.is_file() {
            texts.push(path);
        }
    }
    texts.sort();
    Ok(texts)
}

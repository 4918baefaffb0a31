use std::{
    fs,
    path::{Path, PathBuf},
};

/// A backquoted name with `::` after a test program's name is a test here.
const PAGES: [&str; 2] = ["docs/security.md", "docs/compliance.md"];

fn tests() -> Vec<(Vec<String>, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for directory in [
        "tests",
        "transport",
        "fabric",
        "capture",
        "ethernet",
        "rsocket",
        "provider",
        "abi",
        "preload",
        "src",
        "cli",
        "fuzz/src",
        "fuzz/tests",
    ] {
        collect(&root.join(directory), &mut files);
    }
    let mut tests = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap().with_extension("");
        let path: Vec<_> =
            path.iter().map(|component| component.to_string_lossy().into_owned()).collect();
        let text = fs::read_to_string(&file).unwrap();
        // each attribute has its own line
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('));
            match name {
                Some((name, _)) if is_test => tests.push((path.clone(), name.to_owned())),
                _ => {}
            }
            is_test = line == "#[test]" || is_test && name.is_none() && !line.is_empty();
        }
    }
    tests
}

/// Without build output.
pub(crate) fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            if !entry.ends_with("target") {
                collect(&entry, files);
            }
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
}

/// True if a test such as `pair::trust::another_source_address` exists: the path has all parts but
/// the last.
fn exists(tests: &[(Vec<String>, String)], name: &str) -> bool {
    let mut parts: Vec<_> = name.split("::").collect();
    let Some(function) = parts.pop() else { return false };
    tests.iter().any(|(path, test)| {
        test == function && parts.iter().all(|part| path.iter().any(|component| component == part))
    })
}

/// Backquoted, lower case, first a test program or file with tests.
fn named<'a>(page: &'a str, tests: &[(Vec<String>, String)]) -> Vec<&'a str> {
    let quoted = page.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.contains("::")
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
    };
    let is_program = |text: &&str| {
        let program = text.split("::").next().unwrap_or_default();
        tests.iter().any(|(path, _)| path.iter().any(|component| component == program))
    };
    quoted.filter(is_name).filter(is_program).collect()
}

#[test]
fn every_test_that_is_named_exists() {
    let tests = tests();
    assert!(tests.len() > 300, "{}", tests.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let names = named(&text, &tests);
        assert!(!names.is_empty(), "{page} names no tests");
        let missing: Vec<_> = names.iter().filter(|name| !exists(&tests, name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:#?}");
        count += names.len();
    }
    assert!(count > 50, "{count}");
}

#[test]
fn a_name_that_does_not_exist_is_noticed() {
    let tests = tests();
    let page = "`pair::trust::another_source_address`, `pair::trust::nobody_wrote_this`, `swarm::another_source_address`, `Vec::new`, `half`";
    let names = named(page, &tests);
    assert_eq!(
        names,
        [
            "pair::trust::another_source_address",
            "pair::trust::nobody_wrote_this",
            "swarm::another_source_address"
        ]
    );
    let found: Vec<_> = names.iter().map(|name| exists(&tests, name)).collect();
    assert_eq!(found, [true, false, false]);
}

/// Readers from C look for errno values.
#[test]
fn every_verb_names_the_errno_of_its_errors() {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("provider/src/verbs"), &mut files);
    let mut sections = 0;
    let mut silent = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for section in text.split("/// # Errors\n").skip(1) {
            let section: Vec<_> =
                section.lines().map(str::trim).take_while(|line| line.starts_with("///")).collect();
            let section = section.join(" ");
            let is_number = |word: &str| {
                word.len() > 3
                    && word.starts_with('E')
                    && word.chars().all(|c| c.is_ascii_uppercase())
            };
            sections += 1;
            if !section.split('`').skip(1).step_by(2).any(is_number)
                && !section.to_lowercase().contains("as above")
                && !section.contains("As for [")
            {
                silent.push(format!("{}: {section}", file.display()));
            }
        }
    }
    assert!(sections > 50, "{sections}");
    assert!(silent.is_empty(), "no errno: {silent:#?}");
}

/// `tests/timing.txt` has at most five tests, each with a reason, and all tests ignored for timing.
#[test]
fn few_tests_depend_on_a_quiet_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = tests();
    let list = fs::read_to_string(root.join("tests/timing.txt")).unwrap();
    let listed: Vec<_> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(listed.len() <= 5, "{listed:#?}");
    for line in &listed {
        let mut words = line.splitn(3, ' ').skip(1);
        assert!(exists(&tests, words.next().unwrap()), "{line}");
        assert!(words.next().is_some_and(|reason| reason.trim().len() > 20), "{line}");
    }
    let mut files = Vec::new();
    for part in ["tests", "transport", "provider", "abi", "preload", "cli"] {
        collect(&root.join(part), &mut files);
    }
    let reason = ["#[ignore = \"its bounds are those of ", "a quiet machine\"]"].concat();
    let ignored = files.iter().map(|file| fs::read_to_string(file).unwrap());
    assert_eq!(ignored.map(|text| text.matches(&reason).count()).sum::<usize>(), listed.len());
}

/// Cargo would never run a file that `main.rs` does not name.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for package in [
        ".",
        "cli",
        "transport",
        "fuzz",
        "models",
        "conformance",
        "playground/engine",
        "abi",
        "preload",
    ] {
        let folder = root.join(package).join("tests");
        let main = fs::read_to_string(folder.join("main.rs")).unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_file = path.extension().is_some_and(|extension| extension == "rs");
            let is_named = name == "main" || main.contains(&format!("mod {name};"));
            assert!(!is_file || is_named, "{}", path.display());
        }
    }
}

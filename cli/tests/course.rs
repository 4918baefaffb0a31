use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Other tests cover commands that need another terminal, a program, or the page.
const NOT_PLAYED: &[&str] = &["playground", "pingpong", "rping", "run"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn commands() -> Vec<(String, String)> {
    let mut commands = Vec::new();
    for file in fs::read_dir(root().join("docs/course")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("```sh\n").skip(1) {
            for line in block.split("```").next().unwrap().lines() {
                let command = line.split(" # ").next().unwrap().trim();
                commands.push((name.clone(), command.to_owned()));
            }
        }
    }
    commands
}

#[test]
fn each_command_runs() {
    let mut used = BTreeSet::new();
    for (page, command) in commands() {
        let mut words = command.split_whitespace();
        if words.next() != Some("roce") {
            assert!(command.starts_with("cargo "), "{page}: {command}");
            continue;
        }
        let words: Vec<_> = words.collect();
        used.insert(words[0].to_owned());
        let mut tool = Command::new(env!("CARGO_BIN_EXE_roce"));
        if NOT_PLAYED.contains(&words[0]) {
            tool.args([words[0], "--help"]);
        } else {
            tool.args(&words);
        }
        let output = tool.current_dir(root()).stdin(Stdio::null()).output().unwrap();
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{page}: {command}: {output:?}"
        );
    }
    for subcommand in ["demo", "explain", "devinfo", "pingpong"] {
        assert!(used.contains(subcommand), "{subcommand}: {used:?}");
    }
}

#[test]
fn reports_say_what_the_last_lesson_says_of_them() {
    let explain = |name: &str| {
        let file = format!("docs/course/captures/{name}.pcapng");
        let mut tool = Command::new(env!("CARGO_BIN_EXE_roce"));
        let output = tool.args(["explain", &file]).current_dir(root()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let first = explain("first");
    assert!(first.contains("2 damaged") && first.contains("24 retransmitted"), "{first}");
    let second = explain("second");
    assert!(second.contains("duplicate ACK up to 101"), "{second}");
    // Only one WRITE has a timely response.
    assert_eq!(second.matches("acknowledges 1 packet after 65.9ms").count(), 1, "{second}");
    assert!(second.contains("but the response takes 75.2ms"), "{second}");
    let third = explain("third");
    assert!(third.contains("sent 56 packets") && third.contains("55 marked"), "{third}");
}

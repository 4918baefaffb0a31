use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::running::Running;

struct Served {
    _running: Running,
    address: String,
}

impl Served {
    fn new(page: &Path) -> Self {
        crate::watchdog::start(String::new);
        let mut roce = Command::new(env!("CARGO_BIN_EXE_roce"));
        roce.args(["playground", "--port", "0", "--page", page.to_str().unwrap()]);
        let (_running, line) = Running::start(roce.stdin(Stdio::null()));
        let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/');
        Self { address: address.to_owned(), _running }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }
}

#[test]
fn the_files_of_a_page() {
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("page");
    fs::create_dir_all(page.join("assets")).unwrap();
    fs::write(page.join("index.html"), "<title>here</title>").unwrap();
    fs::write(page.join("assets/engine.wasm"), b"\0asm").unwrap();
    fs::write(scratch.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(scratch.path().join("secret"), page.join("link")).unwrap();
    let served = Served::new(&page);
    // Browsers open connections without using them.
    let _idle = [served.connect(), served.connect()];
    let index = served.ask("GET /");
    assert!(index.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{index}");
    assert!(index.contains("default-src 'self'") && index.ends_with("<title>here</title>"));
    assert!(served.ask("GET /assets/engine.wasm?x=1").contains("application/wasm"));
    let head = served.ask("HEAD /");
    assert!(head.contains("Content-Length: 19") && head.ends_with("\r\n\r\n"), "{head}");
    for path in ["/nothing", "/../secret", "/assets/../../secret", "/link", "secret", ""] {
        let response = served.ask(&format!("GET {path}"));
        assert!(response.starts_with("HTTP/1.1 404") && !response.contains("secret"), "{response}");
    }
    assert!(served.ask("POST /").starts_with("HTTP/1.1 405"));
    assert!(served.ask("").starts_with("HTTP/1.1 405"));
}

#[test]
fn what_is_no_page_is_said_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    for page in [scratch.path(), Path::new("/nonexistent")] {
        let output = Command::new(env!("CARGO_BIN_EXE_roce"))
            .args(["playground", "--port", "0", "--page", page.to_str().unwrap()])
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.lines().count() == 1, "{error}");
        assert!(error.contains("cannot read the page in"), "{error}");
    }
}

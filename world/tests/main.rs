//! Effects and errors of scripts.

use roce_world::{
    Direction, Event, Failure, Fate, Line, MOST_RECORDS, Script, SentDatagram, Settings, Viewer,
    play_script,
};

#[derive(Default)]
struct Seen {
    texts: Vec<String>,
    packets: Vec<Vec<u8>>,
}

impl Viewer for Seen {
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.texts.push(format!("say {text}"));
        Ok(())
    }

    fn figures(&mut self, _text: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        let at = line.at.as_micros();
        let name = |Direction { from, to }| format!("{from}-{}", to.map_or('*', |to| to.letter()));
        self.texts.push(match line.event {
            Event::Sent(way, what, why) => format!("{at} {} sends {what}: {why}", name(way)),
            Event::Arrived(way, what, why) => format!("{at} {} gets {what}: {why}", name(way)),
            Event::Seen(way, what, why) => format!("{at} {} {what}: {why}", name(way)),
            Event::Lost(way, what) => format!("{at} {} lost {what}", name(way)),
            Event::Note(end, text) => format!("{at} {end} {text}"),
        });
        Ok(())
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        self.packets.push(datagram.bytes.to_vec());
        Ok(())
    }
}

/// Drawn lines, and each end's final memory.
fn played_with(script: &str, settings: &Settings) -> (Seen, Vec<Vec<u8>>) {
    let mut seen = Seen::default();
    let script: Script = script.parse().unwrap();
    let (world, result) = play_script(&script, settings, &mut seen).unwrap();
    result.unwrap();
    let memory = world.nodes.iter().map(|node| node.buffers[0].bytes()).collect();
    drop(world);
    (seen, memory)
}

fn played(script: &str) -> (Seen, Vec<Vec<u8>>) {
    played_with(script, &Settings::default())
}

fn count(seen: &Seen, text: &str) -> usize {
    seen.texts.iter().filter(|it| it.contains(text)).count()
}

#[test]
fn the_example_is_what_it_says() {
    let (seen, memory) = played(Script::EXAMPLE);
    assert_eq!(count(&seen, "say "), 3);
    assert_eq!(count(&seen, "A-B lost "), 1);
    assert_eq!(count(&seen, "completed in error"), 0, "{:#?}", seen.texts);
    assert_eq!(count(&seen, " completed: "), 5, "{:#?}", seen.texts);
    assert_eq!(u64::from_ne_bytes(memory[0][..8].try_into().unwrap()), 37 + 5);
    assert_eq!(played(Script::EXAMPLE).0.packets, seen.packets);
}

#[test]
fn requests_go_where_they_say() {
    let (seen, memory) = played(
        "connect rc mtu 256\n\
         A post write 1 bytes 600 at 1000 immediate 7 solicited\n\
         B receive 9 bytes 0\n\
         wait\n\
         A post read 2 bytes 32 at 3000 fence",
    );
    assert_eq!(count(&seen, "RDMA WRITE"), 1 + 3 + 3, "{:#?}", seen.texts);
    let letter = |first: u8, at: usize| first + (at % 26) as u8;
    for (at, (&of_a, &of_b)) in memory[0].iter().zip(&memory[1]).enumerate() {
        let written = (1000..1600).contains(&at);
        assert_eq!(of_b, letter(if written { b'a' } else { b'A' }, at), "{at}");
        let read = (3000..3032).contains(&at);
        assert_eq!(of_a, letter(if read { b'A' } else { b'a' }, at), "{at}");
    }
    let (seen, memory) = played(
        "connect rc\nB set 16 to 5\nA post compare-swap 1 compare 5 swap 6 at 16\n\
         A post compare-swap 2 compare 5 swap 7 at 16 unsignaled",
    );
    assert_eq!(u64::from_ne_bytes(memory[1][16..24].try_into().unwrap()), 6);
    assert_eq!(count(&seen, " completed"), 1, "the second is not signaled");
}

#[test]
fn each_service_and_several_queue_pairs() {
    for (service, acknowledged) in [("rc", true), ("uc", false), ("ud", false)] {
        let (seen, _) = played(&format!(
            "connect {service}\nconnect {service}\n\
             B receive 1 bytes 128 qp 2\nA post send 2 bytes 100 qp 2"
        ));
        assert_eq!(count(&seen, "B2: request 1 completed"), 1, "{:#?}", seen.texts);
        assert_eq!(count(&seen, "ACK psn") > 0, acknowledged, "{service}");
        assert_eq!(count(&seen, "Bad"), 0);
    }
}

#[test]
fn three_and_four_ends() {
    let (seen, memory) = played(
        "connect rc A D mtu 256\nconnect rc c d\nconnect ud B C\n\
         A post write 1 bytes 300\nC post write 2 bytes 16 at 1000\n\
         B post send 3 bytes 8\nC receive 4 bytes 64 qp 2\nwait\n\
         D post read 5 bytes 10 at 2000 qp 2\nlose packet 0",
    );
    let signs = |first: u8, count: usize, at: usize| first + (at % count) as u8;
    assert_eq!(memory.len(), 4);
    for (at, &of_d) in memory[3].iter().enumerate() {
        let expected = match at {
            0..300 => signs(b'a', 26, at),
            1000..1016 | 2000..2010 => signs(b'0', 10, at),
            _ => signs(b'!', 15, at),
        };
        assert_eq!(of_d, expected, "{at}");
    }
    for words in [
        "A-D lost RDMA WRITE First",
        "D-A sends NAK",
        "C-D gets RDMA WRITE Only",
        "B-C gets SEND Only",
        "C C2: request 4 completed",
        "D-C sends RDMA READ Request",
        "C-D gets RDMA READ response",
        "D D2: request 5 completed",
    ] {
        assert_eq!(count(&seen, words), 1, "{words}: {:#?}", seen.texts);
    }
    assert_eq!(played("connect rc A C").1.len(), 3);
    assert_eq!(played("connect rc\nB post write 1\nC set 0 to 1").1.len(), 3);
}

#[test]
fn refusals_are_drawn_and_the_script_goes_on() {
    let (seen, _) = played(
        "connect rc depth 1\nA post write 1\nA post write 2\nwait\nA post write 3 wrong-key\nwait\n\
         A post write 4\nsay after",
    );
    for words in [
        "post_send 2: RDMA WRITE of 64 B, SIGNALED failed: the queue is full",
        "request 3 completed in error: remote access error",
        "request 4 completed in error: work request flushed",
    ] {
        assert_eq!(count(&seen, words), 1, "{words}: {:#?}", seen.texts);
    }
    assert_eq!(seen.texts.last().unwrap(), "say after");
}

#[test]
fn the_network_and_the_fates_of_packets() {
    let (seen, _) = played("network delay 20us\nconnect rc\nA post write 1");
    assert_eq!(count(&seen, "20 A-B gets"), 1, "{:#?}", seen.texts);
    let (seen, _) = played("network drop write nth 1\nconnect rc\nA post write 1");
    assert_eq!(
        (count(&seen, "A-B lost "), count(&seen, "5 A-B gets")),
        (1, 1),
        "{:#?}",
        seen.texts
    );
    let write = "connect rc\nA post write 1 bytes 3000\n";
    for (fate, words) in [
        ("lose packet 1", "A-B lost "),
        ("hold packet 1 for 50us", "55 A-B gets RDMA WRITE Middle"),
        ("double packet 0", "duplicate"),
        ("damage packet 0 byte 20", "invariant CRC is wrong"),
    ] {
        let (seen, _) = played(&format!("{write}{fate}"));
        assert!(count(&seen, words) > 0, "{fate}: {:#?}", seen.texts);
        // settings take precedence
        let settings =
            Settings { fates: [(0, Fate::Pass), (1, Fate::Pass)].into(), ..Settings::default() };
        let (seen, _) = played_with(&format!("{write}{fate}"), &settings);
        assert_eq!(count(&seen, words), 0, "{fate}: {:#?}", seen.texts);
    }
    let (seen, _) = played(&format!("network drop 100%\n{write}pass packet 0"));
    assert_eq!(count(&seen, "5 A-B gets RDMA WRITE First"), 1, "{:#?}", seen.texts);
    assert_eq!(count(&seen, "A-B gets"), 1);
    assert!(count(&seen, "A-B lost") > 2);
}

#[test]
fn time_passes_only_where_a_script_waits() {
    let (seen, _) = played("connect rc\nA post write 1\nwait 100us\nA post write 2\nwait 1s");
    assert_eq!(count(&seen, "0 A post_send 1"), 1);
    assert_eq!(count(&seen, "100 A post_send 2"), 1, "{:#?}", seen.texts);
}

#[test]
fn what_goes_on_for_ever_is_ended() {
    let script: Script = "connect rc\nA post send 1\nwait\nsay never".parse().unwrap();
    let settings = Settings { most_records: MOST_RECORDS, ..Settings::default() };
    let mut seen = Seen::default();
    let (_, result) = play_script(&script, &settings, &mut seen).unwrap();
    assert!(result.unwrap_err().to_string().contains("may go on for ever"));
    assert_eq!(count(&seen, "never"), 0);
}

#[test]
fn mistakes_are_said() {
    for (text, line, words) in [
        (
            "conect rc",
            1,
            "unknown statement: \"conect\"; expected A …, B …, C …, D …, connect, network",
        ),
        ("\n# a comment\n  E post write 1", 3, "unknown statement: \"E\"; expected A …, B …"),
        ("connect", 1, "connect needs more; expected rc, uc, ud"),
        ("connect xrc", 1, "unknown service: \"xrc\"; expected rc, uc, ud"),
        ("connect rc mtu 1500", 1, "an MTU is 256, 512, 1024, 2048 or 4096, and not 1500"),
        ("connect rc retries 8", 1, "retries 8 is out of range; expected 0 to 7"),
        ("connect rc depth 0", 1, "depth 0 is out of range; expected 1 to 256"),
        (
            "connect rc colour 1",
            1,
            "unknown word of connect: \"colour\"; expected mtu N, timeout N",
        ),
        ("A post write 1", 1, "A has no queue pair yet; connect first: connect rc"),
        ("connect rc\nC post write 1", 2, "C has no queue pair yet; connect first: connect rc A C"),
        ("connect rc B C\na post write 1", 2, "A has no queue pair yet"),
        ("connect rc C", 1, "C needs more; expected A, B, D"),
        ("connect rc C C", 1, "unknown adapter that C connects to: \"C\"; expected A, B, D"),
        ("connect rc C mtu 256", 1, "unknown adapter that C connects to: \"mtu\""),
        (
            "connect rc A C\nconnect rc\nC post write 1 qp 2",
            3,
            "qp 2 is out of range; expected 1 to 1",
        ),
        ("connect rc\nA", 2, "A needs more; expected post, receive, set"),
        (
            "connect rc\nA get 1",
            2,
            "unknown statement of an end: \"get\"; expected post, receive, set",
        ),
        ("connect rc\nA post", 2, "post needs more; expected send, write, read, fetch-add"),
        ("connect rc\nA post wriet 1", 2, "unknown operation: \"wriet\"; expected send, write"),
        ("connect rc\nA post write", 2, "write needs more; expected an id"),
        (
            "connect rc\nA post write x",
            2,
            "\"x\" is not an id; write for example 16 or 0x10 after write",
        ),
        ("connect rc\nA post write 1 bytes", 2, "bytes needs more; expected a number"),
        (
            "connect rc\nA post write 1 bytes 70000",
            2,
            "bytes 70000 is out of range; expected 0 to 65536",
        ),
        ("connect rc\nA post write 1 at 9000", 2, "at 9000 is out of range; expected 0 to 8192"),
        ("connect rc\nA post write 1 qp 2", 2, "qp 2 is out of range; expected 1 to 1"),
        ("connect rc\nA post write 1 bytes 1 bytes 2", 2, "write has bytes twice"),
        (
            "connect rc\nA post read 1 immediate 7",
            2,
            "unknown word of read: \"immediate\"; expected bytes N",
        ),
        ("connect rc\nA post send 1 wrong-key", 2, "unknown word of send"),
        ("connect rc\nA post fetch-add 1", 2, "fetch-add needs more; expected add N"),
        ("connect rc\nA post compare-swap 1 swap 2", 2, "expected compare N"),
        ("connect rc\nA set 8190 to 1", 2, "the offset 8190 is out of range; expected 0 to 8184"),
        ("connect rc\nA set 8 1", 2, "expected to N"),
        ("wait long", 1, "\"long\" is not a time; write for example \"50us\""),
        ("wait 2000s", 1, "the time 2000s is too long; at most 1000s"),
        ("wait 1s 1s", 1, "unknown word of wait: \"1s\""),
        ("lose 3", 1, "unknown word here: \"3\"; expected packet N"),
        ("lose packet -1", 1, "\"-1\" is not its number, counted from 0"),
        ("hold packet 1", 1, "hold needs more; expected for TIME"),
        ("damage packet 1 at 3", 1, "expected byte N"),
        ("lose packet 1\ndouble packet 1", 2, "packet 1 has a fate already"),
        ("network", 1, "network needs more; expected delay 20us"),
        ("network drop 200%", 1, "must be a percentage from 0% to 100%"),
        ("network delay 1us\nnetwork drop 1%", 2, "there are two lines of the network"),
        ("say", 1, "say needs more; expected a text"),
        (&"wait\n".repeat(301), 301, "a script ends after 300 lines"),
        (&"connect rc\n".repeat(9), 9, "a script connects 8 times at most"),
    ] {
        let error = text.parse::<Script>().unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        let said = error.to_string();
        assert!(
            said.starts_with(&format!("line {line}: ")) && said.contains(words),
            "{text}: {said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
}

/// While it is typed: every prefix is parsed, and an error is at its end.
#[test]
fn a_script_is_read_while_it_is_written() {
    let text = format!("network delay 9us, drop 2%\n{}hold packet 3 for 2ms", Script::EXAMPLE);
    for (end, _) in text.char_indices() {
        let beginning = &text[..end];
        if let Err(error) = beginning.parse::<Script>() {
            assert_eq!(error.line, beginning.lines().count(), "{beginning}");
        }
    }
}

/// The guide's scripts parse and show what the guide says.
#[test]
fn those_of_the_guide_are_played() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/demo.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<_> =
        page.split("```script\n").skip(1).map(|it| it.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 3);
    for block in blocks {
        let (seen, _) = played(block);
        assert!(seen.packets.len() > 3 && count(&seen, " completed") > 0, "{block}");
    }
}

//! Target: a capture file.

use roce_provider::explain::Explained;

/// As a capture, and as frames in a valid file. Panics if the explanation is inconsistent.
pub fn explain(data: &[u8]) {
    check(data);
    let Some((&[link, chunk], rest)) = data.split_first_chunk() else { return };
    let link = [1_u32, 101, 113, 276, 0, 197, 247][usize::from(link) % 7];
    let mut file = Vec::new();
    for word in [0xA1B2_3C4D_u32, 0x0004_0002, 0, 0, 0xFFFF, link] {
        file.extend(word.to_le_bytes());
    }
    for (n, frame) in rest.chunks(usize::from(chunk).max(28)).enumerate() {
        for word in [0, n as u32 * 1000, frame.len() as u32, frame.len() as u32 + n as u32 % 3] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    check(&file);
}

fn check(file: &[u8]) {
    let Ok(explained) = Explained::of_file(file) else { return };
    for packet in &explained.packets {
        assert!(!packet.why.to_string().is_empty());
        assert!(packet.connection.is_none_or(|index| index < explained.connections.len()));
    }
    for finding in &explained.findings {
        assert!(!finding.kind.to_string().contains('\n'));
        assert!(explained.packets.iter().any(|packet| packet.frame == finding.frame));
    }
    let sent: u64 = explained
        .connections
        .iter()
        .flat_map(|connection| &connection.summaries)
        .map(|summary| summary.packets)
        .sum();
    let placed = explained.packets.iter().filter(|packet| packet.connection.is_some());
    assert_eq!(sent, placed.count() as u64);
}

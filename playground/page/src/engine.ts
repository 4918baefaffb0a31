// The engine, a WebAssembly module, and the shapes of what it returns.

import init, * as wasm from "engine";
import { type End, type Play, toJson } from "./play";

export type Tone = "plain" | "bad" | "warned" | "faint" | "strong";

export interface Row {
  step: number;
  kind: "sent" | "arrived" | "lost" | "note" | "say" | "figures";
  at: number | null;
  /// Where it stands: of a packet that leaves or is lost, the end that sends it.
  end: End | null;
  text: string;
  why: string;
  tone: Tone;
  packet: number | null;
}

export interface SentPacket {
  number: number;
  from: End;
  /// null: a group.
  to: End | null;
  bytes: number;
  lost: boolean;
  doubled: boolean;
  damaged: boolean;
  marked: boolean;
  delay: number;
}

export interface Rate {
  at: number;
  end: End;
  qpn: number;
  rate: number | null;
}

export interface Played {
  /// Number of its ends.
  ends: number;
  rows: Row[];
  steps: number;
  packets: SentPacket[];
  rates: Rate[];
  ended: string | null;
}

export interface Request {
  wr_id: number;
  op: string;
  length: number;
  psns: [number, number] | null;
}

export interface QueuePair {
  qpn: string;
  name: string | null;
  service: string;
  state: string;
  next: string[];
  peer: string;
  expected_psn: number;
  next_psn: number;
  unacked_psn: number;
  in_flight: number;
  window: number;
  rate: number | null;
  room: number;
  requests: Request[];
}

export interface Memory {
  address: number;
  lkey: number;
  rkey: number;
  hex: string;
}

export interface Node {
  end: End;
  address: string;
  queue_pairs: QueuePair[];
  memory: Memory[];
  counters: { name: string; explanation: string; value: number }[];
}

export interface State {
  at: number;
  in_flight: number;
  port: { passed: number; marked: number; dropped: number; longest: number };
  nodes: Node[];
}

export interface Field {
  name: string;
  bit: number;
  bits: number;
  value: string;
  meaning: string;
}

export interface Dissected {
  number: number;
  from: End;
  to: End | null;
  lost: boolean;
  damaged: number | null;
  hex: string;
  layers: { name: string; start: number; length: number; fields: Field[] }[];
  coverage: string;
  icrc: { received: string; computed: string; right: boolean };
}

export interface CaptureFile {
  connections: {
    service: string;
    mtu: number | null;
    ends: [string, string];
    figures: [[number, number, number], [number, number, number]];
    rows: { frame: number; at: number; end: End; text: string; why: string; tone: Tone }[];
  }[];
  findings: { frame: number; connection: number | null; text: string }[];
  packets: number;
  other_frames: number;
  complete: boolean;
}

export interface Mistake {
  /// Counted from 1.
  line: number;
  text: string;
}

/// A place behind every line.
export const END = 0xffff_ffff;

export const load = () => init().then(() => undefined);

export const scenarios = (): { name: string; title: string; network: string }[] => JSON.parse(wasm.scenarios());
/// A script to begin with.
export const example = (): string => wasm.example();
/// The first mistake in a script, and the network that it has.
export const readScript = (text: string): { mistake: Mistake | null; network: string | null } =>
  JSON.parse(wasm.read_script(text));
export const played = (play: Play): Played => JSON.parse(wasm.play(toJson(play)));
export const state = (play: Play, lines: number): State => JSON.parse(wasm.state(toJson(play), lines));
export const packet = (play: Play, number: number): Dissected =>
  JSON.parse(wasm.packet(toJson(play), number));
export const capture = (play: Play, lines: number): Uint8Array => wasm.capture(toJson(play), lines);
export const explain = (file: Uint8Array): CaptureFile => JSON.parse(wasm.explain(file));

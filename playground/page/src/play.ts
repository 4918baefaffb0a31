// A play as its player describes it, and as the link has it.

export const ENDS = ["a", "b", "c", "d"] as const;
export type End = (typeof ENDS)[number];

export type Fate = "pass" | "lose" | "double" | { hold: number } | { damage: number };

export const OPERATIONS = ["send", "receive", "write", "read", "fetch-add", "compare-swap", "wrong-key"] as const;
export type Operation = (typeof OPERATIONS)[number];

export interface Post {
  after: number;
  end: End;
  qp: number;
  op: Operation;
  length: number;
}

// times in µs, shares in percent, rate in Mbit/s, sizes in KB; 0: none, or no limit
export const CONDITIONS = {
  delay: 5,
  jitter: 0,
  loss: 0,
  duplicate: 0,
  reorder: 0,
  corrupt: 0,
  mark: 0,
  rate: 0,
  queue: 0,
  ecn: 0,
};
export type Condition = keyof typeof CONDITIONS;
export type Conditions = Record<Condition, number>;

export interface Play {
  scenario: string;
  seed: number;
  network: Conditions;
  fates: Record<string, Fate>;
  posts: Post[];
  /// Text of the scenario `script`; null: the example.
  script: string | null;
}

/// Name of the scenario that is a script.
export const SCRIPT = "script";

export const newPlay = (scenario: string): Play => ({
  scenario,
  seed: 1,
  network: { ...CONDITIONS },
  fates: {},
  posts: [],
  script: null,
});

export const toJson = (play: Play): string => JSON.stringify(play);

const fateText = (fate: Fate): string =>
  typeof fate === "string" ? fate : "hold" in fate ? `hold:${fate.hold}` : `damage:${fate.damage}`;

function fateOf(word: string | undefined, number: string | undefined): Fate | undefined {
  const value = Number(number);
  switch (word) {
    case "pass":
    case "lose":
    case "double":
      return word;
    case "hold":
      return value >= 0 ? { hold: value } : undefined;
    case "damage":
      return Number.isInteger(value) && value >= 0 ? { damage: value } : undefined;
  }
  return undefined;
}

export function toFragment(play: Play, at: number): string {
  const words = [`s=${play.scenario}`];
  if (play.seed !== 1) words.push(`seed=${play.seed}`);
  const network = (Object.keys(CONDITIONS) as Condition[]).filter((it) => play.network[it] !== CONDITIONS[it]);
  if (network.length) words.push(`net=${network.map((it) => `${it}:${play.network[it]}`).join(",")}`);
  const fates = Object.entries(play.fates);
  if (fates.length) words.push(`f=${fates.map(([number, fate]) => `${number}:${fateText(fate)}`).join(",")}`);
  const posts = play.posts.map((it) => `${it.after}:${it.end}:${it.qp}:${it.op}:${it.length}`);
  if (posts.length) words.push(`p=${posts.join(",")}`);
  if (play.script !== null) words.push(`script=${encodeURIComponent(play.script)}`);
  words.push(`at=${at}`);
  return `#${words.join("&")}`;
}

/// Reads a link's fragment. What cannot be read is left out.
export function fromFragment(fragment: string, known: (scenario: string) => boolean): { play: Play; at: number } {
  const words = new URLSearchParams(fragment.replace(/^#/, ""));
  const scenario = words.get("s") ?? "";
  const play = newPlay(known(scenario) ? scenario : "loss");
  const whole = (text: string | null | undefined) => {
    const value = Number(text ?? "x");
    return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
  };
  play.seed = whole(words.get("seed")) ?? 1;
  const list = (name: string) => (words.get(name) ?? "").split(",").filter((it) => it);
  for (const item of list("net")) {
    const [name, text] = item.split(":");
    const value = Number(text);
    if (name && name in CONDITIONS && value >= 0 && Number.isFinite(value)) play.network[name as Condition] = value;
  }
  for (const item of list("f")) {
    const [number, word, value] = item.split(":");
    const fate = fateOf(word, value);
    if (fate !== undefined && whole(number) !== undefined) play.fates[String(whole(number))] = fate;
  }
  for (const item of list("p")) {
    const [after, end, qp, op, length] = item.split(":");
    const isKnown = OPERATIONS.includes(op as Operation) && ENDS.includes(end as End);
    const [at, index, bytes] = [whole(after), whole(qp), whole(length)];
    if (isKnown && at !== undefined && index !== undefined && bytes !== undefined) {
      play.posts.push({ after: at, end: end as End, qp: index, op: op as Operation, length: bytes });
    }
  }
  if (play.scenario === SCRIPT) play.script = words.get("script");
  return { play, at: whole(words.get("at")) ?? 0 };
}

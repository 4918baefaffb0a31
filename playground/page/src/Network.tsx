import type { State } from "./engine";
import { type Condition, CONDITIONS, type Conditions, type Play } from "./play";

const SLIDERS: [Condition, string, string, number, number][] = [
  ["delay", "Delay", "µs", 200, 1],
  ["jitter", "Jitter", "µs", 100, 1],
  ["loss", "Loss", "%", 50, 1],
  ["reorder", "Reordering", "%", 50, 1],
  ["duplicate", "Duplication", "%", 50, 1],
  ["corrupt", "Damage", "%", 50, 1],
  ["mark", "Marking (ECN)", "%", 100, 1],
  ["rate", "Bandwidth", "Mbit/s", 10000, 100],
  ["queue", "Queue", "KB", 1024, 8],
  ["ecn", "Marks from a queue of", "KB", 512, 4],
];

interface Props {
  play: Play;
  port: State["port"] | null;
  /// What the scenario adds to it.
  own: string;
  /// What a script says of it, in place of the sliders.
  scripted: string | null;
  change: (network: Conditions, seed: number) => void;
}

/// The network, and the seed of its chance.
export function Network({ play, port, own, scripted, change }: Props) {
  const set = (name: Condition, value: number) => change({ ...play.network, [name]: value }, play.seed);
  return (
    <section class="panel network" aria-labelledby="network">
      <h2 id="network">Network</h2>
      <p class="hint">
        {scripted === null ? "A change plays anew from the start: the network has been so all along." : `The script says what it is: ${scripted}. Here is the seed of its chance.`}
      </p>
      {own && (
        <p class="hint">
          The scenario adds: <code>{own}</code>.{own.includes("rate ") && " A bandwidth of yours comes in its place, with its queue and its marks."}
        </p>
      )}
      <div class="sliders">
        {SLIDERS.map(([name, text, unit, most, by]) => {
          const value = play.network[name];
          const none = value === 0 && (name === "rate" || name === "queue" || name === "ecn");
          const idle = scripted !== null || ((name === "queue" || name === "ecn") && play.network.rate === 0);
          return (
            <label key={name} class={value !== CONDITIONS[name] ? "set" : ""}>
              <span>{text}</span>
              <input
                type="range"
                name={name}
                min={0}
                max={most}
                step={by}
                value={value}
                disabled={idle}
                aria-valuetext={none ? "no limit" : `${value} ${unit}`}
                onChange={(event) => set(name, Number(event.currentTarget.value))}
              />
              <output>{none ? (name === "ecn" ? "never" : "no limit") : `${value} ${unit}`}</output>
            </label>
          );
        })}
        <label>
          <span>Seed</span>
          <input
            type="number"
            name="seed"
            min={0}
            max={1e9}
            value={play.seed}
            onChange={(event) => change(play.network, Math.max(0, Math.trunc(Number(event.currentTarget.value)) || 0))}
          />
          <output />
        </label>
      </div>
      <button type="button" onClick={() => change({ ...CONDITIONS }, 1)}>
        As the scenario has it
      </button>
      {port && port.passed > 0 && (
        <p class="port">
          The ports have forwarded {port.passed} packets, marked {port.marked}, dropped {port.dropped}; the longest queue held {port.longest} B.
        </p>
      )}
    </section>
  );
}

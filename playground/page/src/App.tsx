import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Bar } from "./Bar";
import { CaptureView } from "./CaptureView";
import { EndView } from "./EndView";
import * as engine from "./engine";
import { Fates } from "./Fates";
import { time } from "./format";
import { Ladder } from "./Ladder";
import { Network } from "./Network";
import { PacketView } from "./PacketView";
import { type Fate, fromFragment, newPlay, type Play, type Post, SCRIPT, toFragment } from "./play";
import { Rates } from "./Rates";
import { Requests } from "./Requests";
import { Script } from "./Script";

const SCENARIOS = engine.scenarios();
const isKnown = (name: string) => SCENARIOS.some((it) => it.name === name);

/// What a play gives, or why it gives nothing.
function tryPlay(play: Play): { played: engine.Played; error: string | null } {
  try {
    return { played: engine.played(play), error: null };
  } catch (error) {
    return { played: { ends: 2, rows: [], steps: 0, packets: [], rates: [], ended: null }, error: String(error) };
  }
}

export function App() {
  const first = useMemo(() => fromFragment(location.hash, isKnown), []);
  const [play, setPlay] = useState(first.play);
  const [at, setAt] = useState(first.at);
  const [running, setRunning] = useState(false);
  const [speed, setSpeed] = useState(2);
  const [selected, setSelected] = useState<number | null>(null);
  const [file, setFile] = useState<{ name: string; content: engine.CaptureFile } | null>(null);
  const [said, setSaid] = useState("");
  const history = useRef<{ play: Play; at: number }[]>([]);

  const { played, error } = useMemo(() => tryPlay(play), [play]);
  const step = Math.min(at, played.steps);
  // behind the last line, a play goes on to its end
  const place = step >= played.steps ? engine.END : step;
  const now = useMemo(() => (error ? null : engine.state(play, place)), [play, place, error]);
  const before = useMemo(
    () => (error || step === 0 ? null : engine.state(play, step - 1)),
    [play, step, error],
  );

  // the link is the play
  const written = useRef(location.hash);
  useEffect(() => {
    written.current = toFragment(play, step);
    window.history.replaceState(null, "", written.current);
  }, [play, step]);
  useEffect(() => {
    const read = () => {
      if (location.hash === written.current) return;
      const link = fromFragment(location.hash, isKnown);
      history.current = [];
      setPlay(link.play);
      setAt(link.at);
      setSelected(null);
    };
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);

  useEffect(() => {
    if (!running) return;
    if (step >= played.steps) {
      setRunning(false);
      return;
    }
    const timer = setTimeout(() => setAt(step + 1), 1000 / speed);
    return () => clearTimeout(timer);
  }, [running, step, played, speed]);

  const go = useCallback(
    (to: number) => {
      setRunning(false);
      setAt(Math.max(0, Math.min(to, played.steps)));
    },
    [played],
  );
  // several may come before the page is drawn again
  const move = useCallback(
    (by: number) => {
      setRunning(false);
      setAt((at) => Math.max(0, Math.min(Math.min(at, played.steps) + by, played.steps)));
    },
    [played],
  );
  const toggle = useCallback(() => {
    if (!running && step >= played.steps) setAt(0);
    setRunning(!running);
  }, [running, step, played]);

  const change = (next: Play, to: (played: engine.Played) => number) => {
    history.current.push({ play, at: step });
    setRunning(false);
    setPlay(next);
    const result = tryPlay(next);
    setAt(result.error ? step : to(result.played));
  };

  const choose = (scenario: string) => {
    history.current = [];
    setRunning(false);
    setPlay(newPlay(scenario));
    setAt(0);
    setSelected(null);
    setSaid("");
  };

  const fate = useCallback(
    (number: number, fate: Fate | null) => {
      const fates = { ...play.fates };
      if (fate === null) delete fates[number];
      else fates[number] = fate;
      // to the place where it leaves: from there on all is new
      change({ ...play, fates }, (next) => next.rows.find((row) => row.packet === number)?.step ?? step);
      const name = played.rows.find((row) => row.packet === number)?.text ?? `packet ${number}`;
      setSaid(`${name}: ${fateSaid(fate)}. Played to where it is sent; play on to see what follows.`);
    },
    [play, played, step],
  );

  const post = (wanted: Omit<Post, "after">) => {
    const index = play.posts.filter((it) => it.after <= step).length;
    const posts = [...play.posts.slice(0, index), { ...wanted, after: step }];
    const id = ` ${1000 + index}:`;
    change({ ...play, posts }, (next) => next.rows.find((row) => row.text.includes(id))?.step ?? next.steps);
    setSaid(`Posted at ${wanted.end.toUpperCase()}.`);
  };

  const playScript = (script: string) => {
    // packets have other numbers, and lines stand elsewhere
    const isAnew = Object.keys(play.fates).length > 0 || play.posts.length > 0;
    change({ ...play, script, fates: {}, posts: [] }, () => 0);
    setSaid(`The script is at its start.${isAnew ? " Changes of packets and requests of before are taken back; Undo restores them." : ""}`);
  };

  const undo = useCallback(() => {
    const last = history.current.pop();
    if (!last) return;
    setRunning(false);
    setPlay(last.play);
    setAt(last.at);
    setSaid("Undone.");
  }, []);

  const save = () => {
    const bytes = engine.capture(play, place);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes as BlobPart], { type: "application/octet-stream" }));
    link.download = `${play.scenario}.pcapng`;
    link.click();
    URL.revokeObjectURL(link.href);
    setSaid(`The packets so far are in ${link.download}.`);
  };

  const open = async (chosen: File) => {
    try {
      setFile({ name: chosen.name, content: engine.explain(new Uint8Array(await chosen.arrayBuffer())) });
    } catch (error) {
      setSaid(`${chosen.name}: ${error}`);
    }
  };

  const share = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setSaid("The link is copied.");
    } catch {
      setSaid("The address of this page is the link.");
    }
  };

  // before the next key comes
  useLayoutEffect(() => {
    const key = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (target.closest("input, select, textarea, dialog")) return;
      if (event.key === " " && target.closest("button, summary, a, [role=tab]")) return;
      const acts: Record<string, () => void> = {
        ArrowRight: () => move(1),
        ArrowLeft: () => move(-1),
        Home: () => go(0),
        End: () => go(played.steps),
        " ": toggle,
        u: undo,
      };
      if (selected !== null) {
        const fates: Record<string, Fate | null> = { l: "lose", h: { hold: 100 }, d: "double", x: { damage: 20 }, p: "pass", r: null };
        const chosen = fates[event.key];
        if (chosen !== undefined) acts[event.key] = () => fate(selected, chosen);
      }
      const act = acts[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [step, played, toggle, undo, go, move, selected, fate]);

  const { title, network: own } = SCENARIOS.find((it) => it.name === play.scenario)!;
  const script = play.scenario === SCRIPT ? (play.script ?? engine.example()) : null;
  const scripted = useMemo(() => (script === null ? null : engine.readScript(script).network), [script]);
  const sentPacket = selected === null ? undefined : played.packets[selected];
  return (
    <>
      <header>
        <h1>
          roce <span>playground</span>
        </h1>
        <label class="scenario">
          <span class="visually-hidden">Scenario</span>
          <select value={play.scenario} onChange={(event) => choose(event.currentTarget.value)}>
            {SCENARIOS.map((it) => (
              <option key={it.name} value={it.name}>
                {it.name}: {it.title}
              </option>
            ))}
          </select>
        </label>
        <div class="actions">
          <button type="button" onClick={undo} disabled={history.current.length === 0}>
            Undo
          </button>
          <button type="button" onClick={share}>
            Copy link
          </button>
          <button type="button" onClick={save}>
            Export pcapng
          </button>
          <label class="button">
            Import pcapng
            <input
              type="file"
              class="visually-hidden"
              accept=".pcap,.pcapng,.cap"
              onChange={(event) => {
                const chosen = event.currentTarget.files?.[0];
                if (chosen) void open(chosen);
                event.currentTarget.value = "";
              }}
            />
          </label>
        </div>
      </header>
      {file && <CaptureView name={file.name} content={file.content} close={() => setFile(null)} />}
      {script !== null && <Script text={script} play={playScript} />}
      <Bar
        step={step}
        steps={played.steps}
        running={running}
        speed={speed}
        now={now ? time(now.at) : ""}
        go={go}
        move={move}
        toggle={toggle}
        setSpeed={setSpeed}
      />
      <p class="said" role="status">
        {said}
      </p>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      <main>
        <section class="ladder-side" aria-label="Packets">
          <h2>{title}</h2>
          <Fates selected={selected} packet={sentPacket} fates={play.fates} fate={fate} />
          <Ladder
            ends={played.ends}
            rows={played.rows}
            packets={played.packets}
            fates={play.fates}
            step={step}
            selected={selected}
            select={setSelected}
            go={go}
          />
          {played.ended && step >= played.steps && <p class="error">{played.ended}</p>}
        </section>
        <div class="panels">
          {selected !== null && sentPacket && <PacketView play={play} number={selected} close={() => setSelected(null)} />}
          {now && (
            <div class="ends">
              {now.nodes.map((node, index) => (
                <EndView key={node.end} node={node} before={before?.nodes[index] ?? null} />
              ))}
            </div>
          )}
          <Rates rates={played.rates} nodes={now?.nodes ?? []} until={now?.at ?? 0} />
          {now && <Requests nodes={now.nodes} post={post} />}
          <Network
            play={play}
            port={now?.port ?? null}
            own={own}
            scripted={scripted}
            change={(network, seed) => change({ ...play, network, seed }, () => 0)}
          />
        </div>
      </main>
      <footer>
        <p>
          Space plays and pauses, ← and → step, Home and End go to the start and the end. With a packet selected: L loses
          it, H holds it, D doubles it, X damages it, P lets it pass, R takes that back. U undoes. What is shown is what the
          adapters recorded: the transport of roce, compiled to WebAssembly, in virtual time.
        </p>
      </footer>
    </>
  );
}

function fateSaid(fate: Fate | null): string {
  if (fate === null) return "left to the network";
  if (fate === "pass") return "passes";
  if (fate === "lose") return "lost";
  if (fate === "double") return "doubled";
  return "hold" in fate ? `held for ${fate.hold} µs` : `byte ${fate.damage} damaged`;
}

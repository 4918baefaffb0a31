import { useEffect, useRef, useState } from "preact/hooks";
import { type Mistake, readScript } from "./engine";

/// Forms of statements, and what they do.
const WORDS: [string, string][] = [
  ["connect rc", "a queue pair of A and one of B, connected: rc, uc or ud; mtu N, timeout N, retries N, rnr-timer N, depth N"],
  ["connect rc A C", "of other adapters: there are A, B, C and D"],
  ["A post write 1 bytes 2500", "A posts a request with id 1: send, write, read, fetch-add (add N), compare-swap (compare N swap N)"],
  ["B receive 2 bytes 4096", "B posts a receive request with id 2"],
  ["… at N, qp N", "bytes from the start of both ends' memories; which queue pair of the adapter, counted from 1"],
  ["… immediate N, fence, solicited, unsignaled, wrong-key", "of a posted request"],
  ["A set 0 to 42", "eight bytes of A's memory are this number"],
  ["wait 50us", "time passes; wait alone: until nothing is left to do"],
  ["lose packet 1", "packets are counted from 0; also double, pass, hold packet 1 for 50us, damage packet 1 byte 20"],
  ["network delay 20us, drop 2%", "the network, from the start; also rate 1gbit, queue 64kb, ecn 10kb..40kb 20%"],
  ["say TEXT", "a text in the ladder; # begins a comment"],
];

interface Props {
  /// The script that is played.
  text: string;
  play: (text: string) => void;
}

/// A scenario in a few lines: an editor, and the first mistake in what it has.
export function Script({ text, play }: Props) {
  const [draft, setDraft] = useState(text);
  const area = useRef<HTMLTextAreaElement>(null);
  const numbers = useRef<HTMLPreElement>(null);
  useEffect(() => setDraft(text), [text]);

  const { mistake } = readScript(draft);
  const lines = draft.split("\n");
  const run = () => {
    if (!mistake) return void play(draft);
    area.current?.focus();
    select(area.current, lines, mistake);
  };
  return (
    <section class="panel script" aria-labelledby="script">
      <h2 id="script">Script</h2>
      <div class="editor">
        <pre aria-hidden="true" ref={numbers}>
          {lines.map((_, index) => (
            <div key={index} class={mistake?.line === index + 1 ? "wrong" : undefined}>
              {index + 1}
            </div>
          ))}
        </pre>
        <textarea
          ref={area}
          aria-label="Script, a statement a line"
          aria-describedby="script-said"
          aria-invalid={mistake !== null}
          rows={Math.max(6, Math.min(lines.length + 1, 12))}
          wrap="off"
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          value={draft}
          onInput={(event) => setDraft(event.currentTarget.value)}
          onScroll={(event) => {
            if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            run();
          }}
        />
      </div>
      <div class="beside">
        <p id="script-said" class={mistake ? "error" : "hint"} role="status">
          {mistake ? mistake.text : draft === text ? "What is played is this script." : "Changed, and not yet played."}
        </p>
        <div class="buttons">
          <button type="button" class="primary" onClick={run}>
            Play this script
          </button>
          <button type="button" disabled={draft === text} onClick={() => setDraft(text)}>
            Back to what is played
          </button>
        </div>
        <p class="hint">Ctrl+Enter plays it, too. It is part of the link.</p>
        <details>
          <summary>Words</summary>
          <dl>
            {WORDS.map(([form, meaning]) => (
              <div key={form}>
                <dt>
                  <code>{form}</code>
                </dt>
                <dd>{meaning}</dd>
              </div>
            ))}
          </dl>
        </details>
      </div>
    </section>
  );
}

/// Selects the line with a mistake.
function select(area: HTMLTextAreaElement | null, lines: string[], mistake: Mistake) {
  const start = lines.slice(0, mistake.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  area?.setSelectionRange(start, start + (lines[mistake.line - 1]?.length ?? 0));
}

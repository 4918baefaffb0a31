import { useState } from "preact/hooks";
import type { Node } from "./engine";
import { type End, type Operation, type Post } from "./play";

const TEXTS: [Operation, string][] = [
  ["send", "SEND"],
  ["receive", "Receive request"],
  ["write", "RDMA WRITE"],
  ["read", "RDMA READ"],
  ["fetch-add", "Fetch and add of 1"],
  ["compare-swap", "Compare 0, swap 1"],
  ["wrong-key", "WRITE, wrong R_Key"],
];

/// Requests of the player's own.
export function Requests({ nodes, post }: { nodes: Node[]; post: (post: Omit<Post, "after">) => void }) {
  const [wanted, setWanted] = useState<End>("a");
  const [qp, setQp] = useState(0);
  const [length, setLength] = useState(2000);
  const node = nodes.find((it) => it.end === wanted) ?? nodes[0]!;
  const pairs = node.queue_pairs;
  const chosen = Math.min(qp, Math.max(0, pairs.length - 1));
  return (
    <section class="panel requests" aria-labelledby="requests">
      <h2 id="requests">Post a request</h2>
      <p class="hint">
        At the place where the play stands now. Data goes from the start of one end's memory to the start of its peer's; what
        is refused says why.
      </p>
      <div class="row-of">
        <label>
          At
          <select value={node.end} onChange={(event) => setWanted(event.currentTarget.value as End)}>
            {nodes.map((it) => (
              <option key={it.end} value={it.end}>
                {it.end.toUpperCase()}
              </option>
            ))}
          </select>
        </label>
        <label>
          Queue pair
          <select value={String(chosen)} onChange={(event) => setQp(Number(event.currentTarget.value))}>
            {pairs.map((it, index) => (
              <option key={it.qpn} value={String(index)}>
                {it.name ?? it.qpn} ({it.service})
              </option>
            ))}
          </select>
        </label>
        <label>
          Bytes
          <input type="number" min={0} max={65536} value={length} onChange={(event) => setLength(Math.max(0, Math.trunc(Number(event.currentTarget.value)) || 0))} />
        </label>
      </div>
      <div class="buttons">
        {TEXTS.map(([op, text]) => (
          <button key={op} type="button" data-op={op} disabled={pairs.length === 0} onClick={() => post({ end: node.end, qp: chosen, op, length })}>
            {text}
          </button>
        ))}
      </div>
    </section>
  );
}

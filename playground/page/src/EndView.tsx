import type { Node, QueuePair } from "./engine";
import { MemoryView } from "./MemoryView";
import { States } from "./States";

/// One end: its queue pairs, its memory, what it has counted.
export function EndView({ node, before }: { node: Node; before: Node | null }) {
  const end = node.end.toUpperCase();
  return (
    <section class="panel end" aria-labelledby={`end-${node.end}`} data-end={node.end}>
      <h2 id={`end-${node.end}`}>
        {end} <small>{node.address}</small>
      </h2>
      {node.queue_pairs.length === 0 && <p class="empty">No queue pair yet.</p>}
      {node.queue_pairs.map((qp) => (
        <QueuePairView key={qp.qpn} qp={qp} end={end} />
      ))}
      {node.memory.map((memory, index) => (
        <MemoryView
          key={index}
          memory={memory}
          before={before?.memory[index]?.hex ?? memory.hex}
          label={`${end}'s memory${node.memory.length > 1 ? ` ${index + 1}` : ""}`}
        />
      ))}
      {node.counters.length > 0 && (
        <details>
          <summary>Counters</summary>
          <dl class="counters">
            {node.counters.map((it) => (
              <div key={it.name}>
                <dt title={it.explanation}>{it.name}</dt>
                <dd>{it.value}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
    </section>
  );
}

function QueuePairView({ qp, end }: { qp: QueuePair; end: string }) {
  const name = qp.name ?? `Queue pair ${qp.qpn}`;
  const reliable = qp.service === "RC" || qp.service.startsWith("XRC");
  const full = qp.window > 0 ? Math.min(1, qp.in_flight / qp.window) : 0;
  return (
    <div class="qp">
      <h3>
        {name} <small>{qp.service}</small> <b class={`state ${qp.state}`}>{qp.state}</b>
      </h3>
      <States state={qp.state} next={qp.next} label={`${end}, ${name}`} />
      <dl class="psns">
        <div>
          <dt>next PSN to send</dt>
          <dd>{qp.next_psn}</dd>
        </div>
        {reliable && (
          <>
            <div>
              <dt>oldest without answer</dt>
              <dd>{qp.unacked_psn === qp.next_psn ? "none" : qp.unacked_psn}</dd>
            </div>
            <div>
              <dt>next PSN expected</dt>
              <dd>{qp.expected_psn}</dd>
            </div>
          </>
        )}
      </dl>
      {reliable && (
        <div class="window">
          <span>window</span>
          <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
            <rect class="limit" width="100" height="6" />
            <rect class="used" width={100 * full} height="6" />
          </svg>
          <span>
            {qp.in_flight} of {qp.window} B{qp.rate === null ? "" : `, ${qp.rate.toFixed(0)} Mbit/s`}
          </span>
        </div>
      )}
      {qp.requests.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Send queue of ${end}, ${name}`}>
          <table>
            <caption>
              Send queue: {qp.requests.length} of {qp.room}
            </caption>
            <thead>
              <tr>
                <th scope="col">id</th>
                <th scope="col">operation</th>
                <th scope="col">bytes</th>
                <th scope="col">PSNs</th>
              </tr>
            </thead>
            <tbody>
              {qp.requests.slice(0, 12).map((it) => (
                <tr key={it.wr_id}>
                  <td>{it.wr_id}</td>
                  <td>{it.op}</td>
                  <td>{it.length}</td>
                  <td>{it.psns ? (it.psns[0] === it.psns[1] ? it.psns[0] : `${it.psns[0]}–${it.psns[1]}`) : "waits"}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {qp.requests.length > 12 && <p class="empty">and {qp.requests.length - 12} more</p>}
        </div>
      )}
    </div>
  );
}

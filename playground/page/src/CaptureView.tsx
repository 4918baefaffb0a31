import type { CaptureFile } from "./engine";
import { time } from "./format";

const MOST = 2000;

/// A capture from elsewhere: its connections, and what is wrong in it.
export function CaptureView({ name, content, close }: { name: string; content: CaptureFile; close: () => void }) {
  return (
    <section class="panel capture" aria-labelledby="capture">
      <h2 id="capture">
        {name} <small>{content.packets} packets</small>
        <button type="button" class="close" onClick={close} aria-label="Close the capture">
          ✕
        </button>
      </h2>
      {!content.complete && <p class="error">The file ends within a frame.</p>}
      {content.packets === 0 && <p>No RoCE packets in {content.other_frames} frames.</p>}
      {content.findings.length === 0 ? (
        <p>Nothing is wrong in it.</p>
      ) : (
        <ul class="findings">
          {content.findings.slice(0, 50).map((it, index) => (
            <li key={index}>
              Frame {it.frame}: {it.text}
            </li>
          ))}
        </ul>
      )}
      {content.connections.map((it, index) => (
        <details key={index} open={index === 0}>
          <summary>
            {it.service}, {it.ends[0]} ↔ {it.ends[1]}
            {it.mtu !== null && `, path MTU ${it.mtu}`}: {it.figures[0][0] + it.figures[1][0]} packets, {it.figures[0][2] + it.figures[1][2]} retransmitted
          </summary>
          <div class="scroll" tabIndex={0} role="region" aria-label={`Packets of ${it.ends[0]}`}>
            <ol class="seen">
              {it.rows.slice(0, MOST).map((row) => (
                <li key={row.frame} class={`${row.tone} from-${row.end}`}>
                  <span class="time">{time(row.at)}</span>
                  <span class="what">
                    {row.end === "a" ? "→" : "←"} {row.text}
                  </span>
                  <span class="why">{row.why}</span>
                </li>
              ))}
            </ol>
          </div>
          {it.rows.length > MOST && <p>and {it.rows.length - MOST} more</p>}
        </details>
      ))}
    </section>
  );
}

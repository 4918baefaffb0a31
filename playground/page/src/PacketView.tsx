import { useMemo, useState } from "preact/hooks";
import { type Field, packet as dissect } from "./engine";
import { bytesOf, printable } from "./format";
import type { Play } from "./play";

const SEEN: Record<string, string> = { c: "covered by the ICRC", m: "counted as ones by the ICRC: routers may change it", i: "the ICRC" };

/// A packet, taken apart to its bits.
export function PacketView({ play, number, close }: { play: Play; number: number; close: () => void }) {
  const it = useMemo(() => {
    try {
      return dissect(play, number);
    } catch {
      return null;
    }
  }, [play, number]);
  const [pointed, setPointed] = useState<Field | null>(null);
  if (!it) return null;
  const bytes = bytesOf(it.hex);
  const isPointed = (at: number) => pointed !== null && at >= Math.floor(pointed.bit / 8) && at < Math.ceil((pointed.bit + pointed.bits) / 8);
  return (
    <section class="panel packet" aria-labelledby="packet">
      <h2 id="packet">
        Packet {it.number} <small>from {it.from.toUpperCase()} to {it.to?.toUpperCase() ?? "a group"}, {bytes.length} bytes with its IP header</small>
        <button type="button" class="close" onClick={close} aria-label="Close the packet">
          ✕
        </button>
      </h2>
      <p class={it.icrc.right ? "icrc" : "icrc error"}>
        ICRC {it.icrc.received}: {it.icrc.right ? "right" : `wrong, these bytes would have ${it.icrc.computed}`}
        {it.damaged !== null && `; byte ${it.damaged} was damaged on the way`}
        {it.lost && "; the packet is lost"}
      </p>
      <div class="scroll layers" tabIndex={0} role="region" aria-label="Fields">
        {it.layers.map((layer) => (
          <details key={layer.start} open={layer.name !== "IPv4" && layer.name !== "UDP"}>
            <summary>
              {layer.name} <small>{layer.length} B</small>
            </summary>
            {layer.fields.length > 0 && (
              <table>
                <thead class="visually-hidden">
                  <tr>
                    <th scope="col">field</th>
                    <th scope="col">bits</th>
                    <th scope="col">value</th>
                    <th scope="col">meaning</th>
                  </tr>
                </thead>
                <tbody>
                  {layer.fields.map((field) => (
                    <tr key={field.bit} onMouseEnter={() => setPointed(field)} onMouseLeave={() => setPointed(null)}>
                      <th scope="row">{field.name}</th>
                      <td class="bits">{field.bits}</td>
                      <td class="value">{field.value}</td>
                      <td>{field.meaning}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
          </details>
        ))}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Bytes, and what the ICRC covers">
        <pre class="bytes">
          {Array.from({ length: Math.ceil(Math.min(bytes.length, 256) / 16) }, (_, row) => (
            <div key={row}>
              <i>{(row * 16).toString(16).padStart(4, "0")}</i>{" "}
              {bytes.slice(row * 16, row * 16 + 16).map((byte, index) => {
                const at = row * 16 + index;
                const seen = it.coverage[at] ?? "c";
                const classes = [`icrc-${seen}`];
                if (at === it.damaged) classes.push("changed");
                if (isPointed(at)) classes.push("pointed");
                return (
                  <span key={at} class={classes.join(" ")} title={`byte ${at}: ${SEEN[seen]}`}>
                    {byte.toString(16).padStart(2, "0")}{" "}
                  </span>
                );
              })}
              <b>{bytes.slice(row * 16, row * 16 + 16).map(printable).join("")}</b>
            </div>
          ))}
        </pre>
      </div>
      <p class="legend">
        <span class="icrc-c">covered by the ICRC</span> <span class="icrc-m">counted as ones</span> <span class="icrc-i">the ICRC itself</span>
        {bytes.length > 256 && ` · the first 256 of ${bytes.length} bytes`}
      </p>
    </section>
  );
}

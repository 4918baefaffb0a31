import { useEffect, useState } from "preact/hooks";
import type { Memory } from "./engine";
import { bytesOf, printable } from "./format";

const ROW = 16;
const ROWS = 8;

/// Bytes of a memory region; those that the last event has changed stand out.
export function MemoryView({ memory, before, label }: { memory: Memory; before: string; label: string }) {
  const [first, setFirst] = useState(0);
  const changed = changedBytes(memory.hex, before);
  useEffect(() => {
    const at = changed[0];
    if (at !== undefined) setFirst(Math.floor(at / ROW));
  }, [memory.hex, before]);
  const length = memory.hex.length / 2;
  const rows = Math.ceil(length / ROW);
  const start = Math.max(0, Math.min(first, rows - ROWS));
  const marked = new Set(changed);
  const lines = Array.from({ length: Math.min(ROWS, rows) }, (_, index) => (start + index) * ROW);
  return (
    <div class="memory" data-memory={memory.hex.length}>
      <h3>
        {label} <small>{length} B, R_Key 0x{memory.rkey.toString(16).padStart(8, "0")}</small>
      </h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={`${label}, bytes`}>
        <pre>
          {lines.map((line) => {
            const bytes = bytesOf(memory.hex.slice(2 * line, 2 * (line + ROW)));
            return (
              <div key={line}>
                <i>{(memory.address + line).toString(16).padStart(5, "0")}</i>{" "}
                {bytes.map((byte, index) => (
                  <span key={index} class={marked.has(line + index) ? "changed" : undefined}>
                    {byte.toString(16).padStart(2, "0")}{" "}
                  </span>
                ))}
                <b>{bytes.map(printable).join("")}</b>
              </div>
            );
          })}
        </pre>
      </div>
      {rows > ROWS && (
        <div class="pager">
          <button type="button" onClick={() => setFirst(Math.max(0, start - ROWS))} disabled={start === 0} aria-label={`${label}: earlier bytes`}>
            ▴
          </button>
          <button type="button" onClick={() => setFirst(start + ROWS)} disabled={start + ROWS >= rows} aria-label={`${label}: later bytes`}>
            ▾
          </button>
          <span>{changed.length > 0 ? `${changed.length} bytes changed` : ""}</span>
        </div>
      )}
    </div>
  );
}

function changedBytes(now: string, before: string): number[] {
  const changed = [];
  if (now === before) return [];
  for (let at = 0; at < now.length; at += 2) {
    if (now.slice(at, at + 2) !== before.slice(at, at + 2)) changed.push(at / 2);
  }
  return changed;
}

import { useState } from "preact/hooks";
import type { SentPacket } from "./engine";
import type { Fate } from "./play";

interface Props {
  selected: number | null;
  packet: SentPacket | undefined;
  fates: Record<string, Fate>;
  fate: (number: number, fate: Fate | null) => void;
}

/// What may become of a packet: buttons for the selected one, and places to drop one on.
export function Fates({ selected, packet, fates, fate }: Props) {
  const [hold, setHold] = useState(100);
  const [byte, setByte] = useState(20);
  const [over, setOver] = useState<string | null>(null);
  const choices: [string, string, Fate | null][] = [
    ["lose", "✗ Lose", "lose"],
    ["hold", "◷ Hold", { hold }],
    ["double", "2× Double", "double"],
    ["damage", "⚡ Damage", { damage: byte }],
    ["pass", "✓ Let pass", "pass"],
    ["reset", "↺ As it was", null],
  ];
  const number = (event: DragEvent) => Number(event.dataTransfer?.getData("text/plain") || NaN);
  const own = selected === null ? undefined : fates[selected];
  return (
    <div class="fates" role="toolbar" aria-label="What becomes of the selected packet">
      <span class="hint">
        {packet ? `Packet ${packet.number} of ${packet.from.toUpperCase()}:` : "Choose a packet, or drag it here:"}
      </span>
      {choices.map(([name, text, chosen]) => (
        <button
          key={name}
          type="button"
          class={over === name ? "over" : ""}
          data-fate={name}
          aria-disabled={selected === null}
          aria-pressed={chosen === null ? undefined : own !== undefined && kind(own) === name}
          onClick={() => selected !== null && fate(selected, chosen)}
          onDragOver={(event) => {
            event.preventDefault();
            setOver(name);
          }}
          onDragLeave={() => setOver(null)}
          onDrop={(event) => {
            event.preventDefault();
            setOver(null);
            const dropped = number(event);
            if (Number.isInteger(dropped)) fate(dropped, chosen);
          }}
        >
          {text}
        </button>
      ))}
      <label>
        µs to hold
        <input type="number" min={0} max={1e6} value={hold} onChange={(event) => setHold(Number(event.currentTarget.value) || 0)} />
      </label>
      <label>
        byte to damage
        <input type="number" min={0} max={4200} value={byte} onChange={(event) => setByte(Math.trunc(Number(event.currentTarget.value)) || 0)} />
      </label>
    </div>
  );
}

const kind = (fate: Fate): string => (typeof fate === "string" ? fate : "hold" in fate ? "hold" : "damage");

const PLACES: Record<string, [number, number]> = {
  RESET: [34, 24],
  INIT: [104, 24],
  RTR: [174, 24],
  RTS: [244, 24],
  SQD: [244, 74],
  SQE: [174, 74],
  ERR: [69, 74],
};

// besides those to RESET and ERR, which lead there from everywhere
const EDGES: [string, string][] = [
  ["RESET", "INIT"],
  ["INIT", "RTR"],
  ["RTR", "RTS"],
  ["RTS", "SQD"],
  ["SQE", "RTS"],
];

/// The states of a queue pair, with the one that it is in.
export function States({ state, next, label }: { state: string; next: string[]; label: string }) {
  return (
    <svg class="states" viewBox="0 0 280 98" role="img" aria-label={`${label} is in ${state}; a call can take it to ${next.join(", ")}`}>
      <defs>
        <marker id="edge" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto-start-reverse">
          <path d="M0 0 L8 4 L0 8 z" />
        </marker>
      </defs>
      {EDGES.map(([from, to]) => {
        const [[x1, y1], [x2, y2]] = [PLACES[from]!, PLACES[to]!];
        const flat = y1 === y2;
        const [dx, dy] = flat ? [27, 0] : [x1 === x2 ? 0 : 20, 12];
        const both = from === "RTS" && to === "SQD";
        return (
          <line
            key={`${from}-${to}`}
            class={state === from && next.includes(to) ? "open" : ""}
            x1={x1 + Math.sign(x2 - x1) * dx}
            y1={y1 + Math.sign(y2 - y1) * dy}
            x2={x2 - Math.sign(x2 - x1) * dx}
            y2={y2 - Math.sign(y2 - y1) * dy}
            marker-end="url(#edge)"
            marker-start={both ? "url(#edge)" : undefined}
          />
        );
      })}
      {Object.entries(PLACES).map(([name, [x, y]]) => (
        <g key={name} class={`${name === state ? "lit" : next.includes(name) ? "next" : ""} ${name === "ERR" || name === "SQE" ? "fault" : ""}`}>
          <rect x={x - 26} y={y - 12} width={52} height={24} rx={12} />
          <text x={x} y={y + 4}>
            {name}
          </text>
        </g>
      ))}
    </svg>
  );
}

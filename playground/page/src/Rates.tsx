import type { Node, Rate } from "./engine";
import { time } from "./format";

const [WIDTH, HEIGHT] = [420, 130];

/// The rates to which notifications have limited queue pairs, over time.
export function Rates({ rates, nodes, until }: { rates: Rate[]; nodes: Node[]; until: number }) {
  const start = 1_000_000; // the adapters' clock when a play begins
  const limited = rates.filter((it) => it.rate !== null);
  if (limited.length === 0) return null;
  const end = Math.max(...rates.map((it) => it.at - start));
  const most = Math.max(...limited.map((it) => it.rate!));
  const flows = [...new Set(rates.map((it) => `${it.end}:${it.qpn}`))];
  const x = (at: number) => 44 + ((WIDTH - 54) * (at - start)) / Math.max(1, end);
  const y = (rate: number | null) => HEIGHT - 18 - ((HEIGHT - 30) * (rate ?? most)) / most;
  return (
    <section class="panel rates" aria-labelledby="rates">
      <h2 id="rates">
        Rates <small>DCQCN, Mbit/s</small>
      </h2>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Rates of ${flows.length} queue pairs, from ${Math.min(...limited.map((it) => it.rate!)).toFixed(0)} to ${most.toFixed(0)} Mbit/s, up to ${time(end)}`}>
        <line class="axis" x1={44} x2={WIDTH - 10} y1={HEIGHT - 18} y2={HEIGHT - 18} />
        <line class="axis" x1={44} x2={44} y1={8} y2={HEIGHT - 18} />
        <text x={40} y={y(most) + 4} text-anchor="end">{most.toFixed(0)}</text>
        <text x={40} y={HEIGHT - 16} text-anchor="end">0</text>
        <text x={WIDTH - 10} y={HEIGHT - 4} text-anchor="end">{time(end)}</text>
        {flows.map((flow, index) => {
          const own = rates.filter((it) => `${it.end}:${it.qpn}` === flow);
          let path = "";
          own.forEach((it, at) => {
            path += at === 0 ? `M${x(it.at)} ${y(it.rate)}` : `H${x(it.at)} V${y(it.rate)}`;
          });
          return <path key={flow} class={`flow flow-${index % 4}`} d={path} />;
        })}
        <line class="now" x1={x(until + start)} x2={x(until + start)} y1={8} y2={HEIGHT - 18} />
      </svg>
      <p class="flows">
        {flows.map((flow, index) => (
          <span key={flow}>
            <svg viewBox="0 0 20 8" aria-hidden="true">
              <path class={`flow flow-${index % 4}`} d="M0 4 H20" />
            </svg>
            {nameOf(flow, nodes)}
          </span>
        ))}
      </p>
    </section>
  );
}

/// The name of a queue pair, or its end and number.
function nameOf(flow: string, nodes: Node[]): string {
  const [end, qpn] = flow.split(":");
  const pair = nodes.find((it) => it.end === end)?.queue_pairs.find((it) => Number(it.qpn) === Number(qpn));
  return pair?.name ?? `${end?.toUpperCase()}, ${pair?.qpn ?? qpn}`;
}

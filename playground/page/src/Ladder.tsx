import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Row, SentPacket } from "./engine";
import { time } from "./format";
import { type End, ENDS, type Fate } from "./play";

interface Props {
  /// Number of them.
  ends: number;
  rows: Row[];
  packets: SentPacket[];
  fates: Record<string, Fate>;
  step: number;
  selected: number | null;
  select: (number: number | null) => void;
  go: (step: number) => void;
}

interface Arrow {
  key: string;
  from: End;
  to: End;
  y1: number;
  y2: number;
  kind: "whole" | "lost" | "flying";
  tone: string;
  packet: number;
}

/// The ends, and every packet between them: texts in rows, arrows behind them.
export function Ladder({ ends, rows, packets, fates, step, selected, select, go }: Props) {
  const list = useRef<HTMLOListElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [arrows, setArrows] = useState<Arrow[]>([]);
  const shown = useMemo(() => rows.filter((row) => (row.kind === "say" || row.kind === "figures" ? row.step <= step + 1 : row.step <= step)), [rows, step]);

  useLayoutEffect(() => {
    const element = list.current!;
    const measure = () => {
      const middles = new Map<number, number>();
      const { top } = element.getBoundingClientRect();
      for (const item of element.querySelectorAll<HTMLElement>("li[data-row]")) {
        const what = item.querySelector<HTMLElement>(".line")!;
        middles.set(Number(item.dataset.row), what.getBoundingClientRect().top - top + Math.min(what.offsetHeight, 26) / 2);
      }
      setArrows(arrowsOf(shown, packets, ends, middles, element.offsetHeight));
      setSize({ width: element.offsetWidth, height: element.offsetHeight });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [shown, packets, ends]);

  useEffect(() => {
    const scroller = list.current?.closest<HTMLElement>(".ladder");
    const current = list.current?.querySelector<HTMLElement>("li.current");
    if (!scroller || !current) return;
    const [top, bottom] = [current.offsetTop, current.offsetTop + current.offsetHeight];
    if (top < scroller.scrollTop + 30 || bottom > scroller.scrollTop + scroller.clientHeight - 30) {
      scroller.scrollTop = top - scroller.clientHeight / 2;
    }
  }, [step, shown]);

  const left = 64;
  const right = size.width - 10;
  const lane = (end: End) => left + ((right - left) * ENDS.indexOf(end)) / (ends - 1);
  const letters = ENDS.slice(0, ends);
  return (
    <div class={`ladder ends-${ends}`} tabIndex={0} role="region" aria-label="Ladder">
      <div class="heads" aria-hidden="true">
        {letters.map((end) => (
          <span key={end}>{end.toUpperCase()}</span>
        ))}
      </div>
      <div class="lanes">
        <svg class="arrows" width={size.width} height={size.height} aria-hidden="true">
          <defs>
            <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path d="M0 0 L8 4 L0 8 z" />
            </marker>
          </defs>
          {letters.map((end) => (
            <line key={end} class="end" x1={lane(end)} x2={lane(end)} y1={0} y2={size.height} />
          ))}
          {arrows.map((arrow) => {
            const [from, to] = [lane(arrow.from), lane(arrow.to)];
            const share = arrow.kind === "whole" ? 1 : arrow.kind === "lost" ? 0.55 : 0.7;
            const [x, y] = [from + (to - from) * share, arrow.y1 + (arrow.y2 - arrow.y1) * share];
            const own = arrow.packet === selected ? " selected" : "";
            return (
              <g key={arrow.key} class={`arrow ${arrow.kind} ${arrow.tone}${own}`}>
                <line x1={from} y1={arrow.y1} x2={x} y2={y} marker-end={arrow.kind === "lost" ? undefined : "url(#head)"} />
                {arrow.kind === "lost" && (
                  <path class="cross" d={`M${x - 6} ${y - 6} l12 12 m0 -12 l-12 12`} />
                )}
              </g>
            );
          })}
        </svg>
        <ol ref={list}>
        {shown.map((row, index) => {
          if (row.kind === "say" || row.kind === "figures") {
            return (
              <li key={index} class={row.kind}>
                {row.kind === "say" ? <p>{row.text}</p> : <pre tabIndex={0}>{row.text.replace(/^\n/, "")}</pre>}
              </li>
            );
          }
          const classes = ["row", row.kind, `at-${row.end}`, row.tone];
          if (row.step === step) classes.push("current");
          const packet = row.packet === null ? undefined : packets[row.packet];
          return (
            <li key={index} class={classes.join(" ")} data-row={index} aria-current={row.step === step ? "step" : undefined}>
              <button type="button" class="time" onClick={() => go(row.step)} aria-label={`Go to event ${row.step}, at ${time(row.at ?? 0)}`}>
                {time(row.at ?? 0)}
              </button>
              <div class="line">
                {packet ? (
                  <button
                    type="button"
                    class="what"
                    draggable
                    data-packet={packet.number}
                    aria-pressed={selected === packet.number}
                    onClick={() => select(selected === packet.number ? null : packet.number)}
                    onDragStart={(event) => event.dataTransfer?.setData("text/plain", String(packet.number))}
                  >
                    <span class="visually-hidden">{row.end?.toUpperCase()}, {WORDS[row.kind]}{ends > 2 && row.kind !== "arrived" && ` to ${packet.to?.toUpperCase() ?? "a group"}`}: </span>
                    {row.kind === "lost" ? `✗ ${row.text} is lost` : row.text}
                    {row.kind === "sent" && marks(packet, fates[packet.number])}
                  </button>
                ) : (
                  <span class="what">{row.text}</span>
                )}
                {row.why && <span class="why">{row.why}</span>}
              </div>
            </li>
          );
        })}
        </ol>
      </div>
    </div>
  );
}

/// What a line is, for those who do not see the arrow; of a lost packet, the end that sent it.
const WORDS: Partial<Record<Row["kind"], string>> = { sent: "sends", arrived: "receives", lost: "sent" };

function marks(packet: SentPacket, fate: Fate | undefined) {
  const words = [];
  if (packet.doubled) words.push("doubled");
  if (packet.damaged) words.push("damaged");
  if (packet.marked) words.push("marked (ECN)");
  if (fate !== undefined && typeof fate === "object" && "hold" in fate) words.push(`held ${fate.hold} µs`);
  return words.map((word) => (
    <span key={word} class="mark">
      {word}
    </span>
  ));
}

function arrowsOf(rows: Row[], packets: SentPacket[], ends: number, middles: Map<number, number>, height: number): Arrow[] {
  const arrows: Arrow[] = [];
  const sent = new Map<number, number>();
  const ended = new Set<number>();
  rows.forEach((row, index) => {
    if (row.packet === null || row.end === null) return;
    if (row.kind === "sent") sent.set(row.packet, index);
    const start = sent.get(row.packet);
    if (start === undefined || row.kind === "sent") return;
    const [y1, y2] = [middles.get(start), middles.get(index)];
    if (y1 === undefined || y2 === undefined) return;
    ended.add(row.packet);
    const from = rows[start]!.end!;
    const kind = row.kind === "lost" ? "lost" : "whole";
    const to = kind === "whole" ? row.end : target(packets[row.packet], from, ends);
    arrows.push({ key: `${start}-${index}`, from, to, y1, y2: kind === "lost" ? y2 + 8 : y2, kind, tone: rows[start]!.tone, packet: row.packet });
  });
  for (const [packet, start] of sent) {
    const y1 = middles.get(start);
    if (ended.has(packet) || y1 === undefined) continue;
    const y2 = Math.min(height - 4, y1 + 60);
    const from = rows[start]!.end!;
    const to = target(packets[packet], from, ends);
    arrows.push({ key: `${start}-`, from, to, y1, y2, kind: "flying", tone: rows[start]!.tone, packet });
  }
  return arrows;
}

/// Where a packet is going; one to a group, to the end beside its own.
function target(packet: SentPacket | undefined, from: End, ends: number): End {
  const own = ENDS.indexOf(from);
  return packet?.to ?? ENDS[own + 1 < ends ? own + 1 : own - 1]!;
}

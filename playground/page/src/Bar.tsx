interface Props {
  step: number;
  steps: number;
  running: boolean;
  speed: number;
  now: string;
  go: (to: number) => void;
  move: (by: number) => void;
  toggle: () => void;
  setSpeed: (speed: number) => void;
}

/// Play, pause, step, back, and where it stands.
export function Bar({ step, steps, running, speed, now, go, move, toggle, setSpeed }: Props) {
  return (
    <div class="bar" role="toolbar" aria-label="Play">
      <button type="button" onClick={() => go(0)} disabled={step === 0} aria-label="To the start">
        |◂
      </button>
      <button type="button" onClick={() => move(-1)} disabled={step === 0} aria-label="Back one event">
        ◂ Back
      </button>
      <button type="button" class="primary" onClick={toggle} aria-label={running ? "Pause" : "Play"}>
        {running ? "❚❚ Pause" : "▶ Play"}
      </button>
      <button type="button" onClick={() => move(1)} disabled={step >= steps} aria-label="Step one event">
        Step ▸
      </button>
      <button type="button" onClick={() => go(steps)} disabled={step >= steps} aria-label="To the end">
        ▸|
      </button>
      <input
        class="position"
        type="range"
        min={0}
        max={steps}
        value={step}
        aria-label="Event"
        aria-valuetext={`event ${step} of ${steps}, ${now}`}
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <output class="clock">
        {step}/{steps} · {now}
      </output>
      <label class="speed">
        <span>Speed</span>
        <select value={String(speed)} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
          {[1, 2, 5, 20].map((it) => (
            <option key={it} value={String(it)}>
              {it}/s
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

// Times and bytes as people read them.

export function time(nanos: number): string {
  if (nanos < 1e6) return `${(nanos / 1e3).toFixed(1)} µs`;
  if (nanos < 1e9) return `${(nanos / 1e6).toFixed(2)} ms`;
  return `${(nanos / 1e9).toFixed(3)} s`;
}

export function bytesOf(hex: string): number[] {
  const bytes = [];
  for (let at = 0; at < hex.length; at += 2) bytes.push(parseInt(hex.slice(at, at + 2), 16));
  return bytes;
}

export const printable = (byte: number): string => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·");

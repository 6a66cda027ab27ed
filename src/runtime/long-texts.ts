import { pause } from './event-loop.ts';

/** Lines, and characters of a text, that are handled in one step. */
const [linesOfStep, charactersOfStep] = [1000, 16 * 1024];

/** The lines of a text, with pauses for other work; none if it is empty. */
export async function splitInTurns(text: string): Promise<string[]> {
  const lines: string[] = [];
  for (let start = 0; start < text.length;) {
    const newline = text.indexOf('\n', start + charactersOfStep);
    const end = newline === -1 ? text.length : newline;
    for (const line of text.slice(start, end).split('\n')) lines.push(line);
    start = end + 1;
    await pause();
  }
  return lines;
}

/** The text of these lines, with pauses for other work. */
export async function joinInTurns(lines: readonly string[]): Promise<string> {
  const pieces: string[] = [];
  for (let start = 0; start < lines.length; start += linesOfStep) {
    pieces.push(lines.slice(start, start + linesOfStep).join('\n'));
    await pause();
  }
  return pieces.join('\n');
}

/** As `Buffer.concat`, in memory of its own, with pauses for other work: to fill new memory takes long. */
export async function concatInTurns(pieces: readonly Buffer[]): Promise<Buffer> {
  const bytes = Buffer.allocUnsafeSlow(pieces.reduce((sum, { length }) => sum + length, 0));
  let length = 0;
  for (const piece of pieces) {
    await pause();
    length += piece.copy(bytes, length);
  }
  return bytes;
}

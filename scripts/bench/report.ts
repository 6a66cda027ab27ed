import { cpus } from 'node:os';

export interface Sample {
  subject: string;
  values: number[];
}

/** One measurement of several subjects, ours first, taken in turn. */
export interface Row {
  title: string;
  unit: string;
  samples: Sample[];
}

const rows: Row[] = [];

/** Measures each subject once a round, in turn, so that what the machine does meanwhile hits all alike. */
export async function compare(
  title: string,
  unit: string,
  rounds: number,
  subjects: Record<string, () => Promise<number>>,
): Promise<void> {
  const samples = Object.keys(subjects).map((subject): Sample => ({ subject, values: [] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const sample of samples) sample.values.push(await subjects[sample.subject]!());
  }
  note({ title, unit, samples });
}

/** Takes in what was measured elsewhere. */
export function note(row: Row): void {
  rows.push(row);
  process.stdout.write(`${line(row)}\n`);
}

/** Everything measured so far, with the machine and the date. */
export function results(): Record<string, unknown> {
  const [cpu] = cpus();
  return { date: new Date().toISOString(), cores: cpus().length, cpu: cpu?.model, node: process.version, rows };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}

/** `title | ours [min–max] | peer [min–max] ratio …` in Markdown. */
function line({ title, unit, samples }: Row): string {
  const [ours] = samples;
  const cells = samples.map(({ subject, values }, index) => {
    const range = `${short(Math.min(...values))}–${short(Math.max(...values))}`;
    const ratio = index === 0 ? '' : ` → ${(median(ours!.values) / median(values)).toFixed(2)}×`;
    return `${subject} ${short(median(values))} [${range}]${ratio}`;
  });
  return `| ${title} | ${unit} | ${cells.join(' | ')} |`;
}

function short(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

import { cpus } from 'node:os';

export interface Sample {
  subject: string;
  values: number[];
}

/** The labels of a row. */
interface Heading {
  title: string;
  unit: string;
  /** The target. */
  bar?: string | undefined;
}

/** One measurement of several subjects in turn; this server is the first. */
export interface Row extends Heading {
  samples: Sample[];
}

const rows: Row[] = [];

/** Measures each subject once per round, in turn, so that other load on the machine affects all of them. */
export async function compare(
  heading: Heading,
  rounds: number,
  subjects: Record<string, () => Promise<number>>,
): Promise<Row> {
  const samples = Object.keys(subjects).map((subject): Sample => ({ subject, values: [] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const sample of samples) sample.values.push(await subjects[sample.subject]!());
  }
  return note({ ...heading, samples });
}

/** Adds a measurement, for the results only. */
export function record(row: Row): void {
  rows.push(row);
}

/** Adds a measurement, and prints it. */
export function note(row: Row): Row {
  record(row);
  process.stdout.write(`${line(row)}\n`);
  return row;
}

/** All measurements so far, with the machine and the date. */
export function results(setting: string): Record<string, unknown> {
  const [cpu] = cpus();
  const machine = { cores: cpus().length, cpu: cpu?.model, node: process.version };
  return { date: new Date().toISOString(), setting, ...machine, rows };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}

/** `title | unit | bar | ours [min–max] | peer [min–max] ratio …` in Markdown. */
function line({ title, unit, bar, samples }: Row): string {
  const [ours] = samples;
  const cells = samples.map(({ subject, values }, index) => {
    const range = `${short(Math.min(...values))}–${short(Math.max(...values))}`;
    const ratio = index === 0 ? '' : ` → ${(median(ours!.values) / median(values)).toFixed(2)}×`;
    return `${subject} ${short(median(values))} [${range}]${ratio}`;
  });
  return `| ${[title, unit, ...(bar === undefined ? [] : [`bar ${bar}`]), ...cells].join(' | ')} |`;
}

function short(value: number): string {
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

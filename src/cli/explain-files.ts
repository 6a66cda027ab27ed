import { stat } from 'node:fs/promises';
import type { Decision } from '../policy/decide.ts';
import type { ReferenceInPolicy } from '../policy/seed.ts';
import { openInput } from '../prefetch/inputs.ts';
import type { PrefetchItem } from '../prefetch/item.ts';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import { inputs, type Installation } from '../server/installation.ts';
import { itemsOfFiles, meaningIn } from './file-items.ts';
import { row } from './printed.ts';
import type { Terminal } from './with-installation.ts';

/** What is said of an item of a file. */
interface Said {
  /** `none`: it does not come from an upstream of this server. `-`: not clear. */
  verdict: Decision['verdict'] | 'none' | '-';
  reason: string;
  /** Milliseconds since 1970 UTC. */
  until?: number | undefined;
  rule?: string | undefined;
}

interface Asked {
  account: number;
  values: ReadonlyMap<string, string>;
  /** The time for which ages are decided; undefined for now. */
  at: number | undefined;
}

/** Items that are explained at the same time. */
const together = 8;

/** Whether a word of a command means a file or a folder to read, and not a name. */
export async function isFileToRead(word: string): Promise<boolean> {
  if (word === '-' || /^\.{0,2}\/|^\.{1,2}$|\/$/.test(word)) return true;
  const isFile = (await stat(word).catch(() => undefined))?.isFile() === true;
  if (!isFile) return false;
  return (
    inputs.solutionOf(word) !== undefined || inputs.kindOf(await openInput(word, new Map(), undefined)) !== undefined
  );
}

/** Prints what the policy decides of each item in files. Throws `Denied` if one is held or denied, or is not clear. */
export async function explainFiles(
  { core, protocols }: Pick<Installation, 'core' | 'protocols'>,
  files: readonly string[],
  { account, values, at }: Asked,
  terminal: Terminal,
): Promise<void> {
  const all = await itemsOfFiles(files, values, terminal);
  const counts = { allow: 0, hold: 0, deny: 0, none: 0, '-': 0 };
  for (let start = 0; start < all.length; start += together) {
    const said = await Promise.all(all.slice(start, start + together).map((item) => explained(item)));
    for (const { text, place, verdict, until, rule, reason } of said) {
      counts[verdict] += 1;
      const end = until === undefined ? '-' : new Date(until).toISOString();
      terminal.stdout.write(row(verdict, text, end, rule ?? '-', place, reason));
    }
  }
  const { hold, deny, '-': unclear } = counts;
  if (hold + deny + unclear === 0) return;
  throw new DomainError(
    'Denied',
    `Of ${all.length}, ${hold} are held, ${deny} are denied and ${unclear} are not clear.`,
  );

  async function explained(item: PrefetchItem): Promise<Said & { text: string; place: string }> {
    const { text, place, ...meant } = await meaningIn(protocols, account, item);
    if (!meant.found) return { text, place, verdict: meant.verdict, reason: meant.reason };
    const said = await saidOf(meant.found).catch(unclearUnlessBroken);
    return { ...said, text, place };
  }

  async function saidOf({ name, reference }: ReferenceInPolicy): Promise<Said> {
    const { enforced, waitsOnceSeen } = await core.gate.explain(name, reference, at);
    const { verdict, rule, reason = '', until } = enforced;
    if (verdict !== 'deny' && waitsOnceSeen)
      return { verdict: 'hold', rule: 'age', reason: 'it is held from the first request on' };
    return { verdict, rule, until, reason };
  }
}

function unclearUnlessBroken(error: unknown): Said {
  if (isDomainError(error)) return { verdict: '-', reason: error.message };
  throw error;
}

import type { ReferenceInPolicy } from '../policy/seed.ts';
import { prefetchItemsIn } from '../prefetch/folders.ts';
import { isUnclear, locationText, type PrefetchItem } from '../prefetch/item.ts';
import { isDomainError } from '../runtime/errors.ts';
import { inputs, type Installation } from '../server/installation.ts';
import { shown } from './printed.ts';
import type { Terminal } from './with-installation.ts';

/** What an item of a file means to clients. */
type MeaningOfItem = { text: string; place: string } & (
  | { found: ReferenceInPolicy }
  /** `none`: it does not come from an upstream of this server. `-`: not clear. */
  | { found?: undefined; verdict: 'none' | '-'; reason: string }
);

/** The items of files and folders, each once, with the first place that has it. Throws for a file that cannot be read. */
export async function itemsOfFiles(
  files: readonly string[],
  values: ReadonlyMap<string, string>,
  terminal: Terminal,
): Promise<PrefetchItem[]> {
  const items = new Map<string, PrefetchItem>();
  for (const file of files) {
    const onFound = (each: string) => terminal.stderr.write(`reading ${shown(each)}\n`);
    for (const item of await prefetchItemsIn(file, { inputs, values, stdin: terminal.stdin, onFound })) {
      const { location: _location, ...rest } = item;
      const key = JSON.stringify(rest);
      if (!items.has(key)) items.set(key, item);
    }
  }
  return [...items.values()];
}

/** What clients of an account ask an upstream for because of an item. A range of versions asks the upstream which it has. */
export async function meaningIn(
  protocols: Installation['protocols'],
  account: number,
  item: PrefetchItem,
): Promise<MeaningOfItem> {
  const place = locationText(item.location);
  if (isUnclear(item)) return { text: item.what, place, verdict: '-', reason: item.reason };
  for (const protocol of protocols) {
    const meaning = await protocol.meaningOf?.(account, item);
    if (!meaning) continue;
    const { text, names, reference } = meaning;
    try {
      return { text, place, ...(await foundUnder(protocol, account, names, reference)) };
    } catch (error) {
      if (isDomainError(error)) return { text, place, verdict: '-', reason: error.message };
      throw error;
    }
  }
  throw new Error(`no protocol knows the item ${item.kind}`);
}

async function foundUnder(
  protocol: Installation['protocols'][number],
  account: number,
  names: readonly string[],
  referenceOf: () => Promise<string | undefined>,
): Promise<{ found: ReferenceInPolicy } | { verdict: 'none' | '-'; reason: string }> {
  for (const askedName of names) {
    const story = await protocol.explain(account, askedName);
    if (story.isHosted) return { verdict: 'none', reason: 'it is hosted here' };
    if (story.reservedBy !== undefined)
      return { verdict: 'none', reason: `reserved by ${story.reservedBy}: no upstream is asked` };
    if (!story.upstreams.some(({ rule }) => rule === 'asked')) continue;
    const text = await referenceOf();
    if (text === undefined) return { verdict: '-', reason: 'no version of it is known' };
    const found = await story.referenceTo?.(text);
    if (!found) return { verdict: '-', reason: 'no upstream serves it' };
    return { found: { story, askedName, name: found.name, reference: found.reference } };
  }
  return { verdict: 'none', reason: 'no upstream here serves it' };
}

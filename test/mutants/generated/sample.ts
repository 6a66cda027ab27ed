import { createHash } from 'node:crypto';

/** `count` of the items, drawn by `seed` and their names: an item that stays keeps its chance when others come or go. */
export function draw<T>(items: readonly T[], count: number, seed: string, nameOf: (item: T) => string): T[] {
  const used = new Map<string, number>();
  const ranked = items.map((item) => {
    const name = nameOf(item);
    const times = used.get(name) ?? 0;
    used.set(name, times + 1);
    return { item, rank: createHash('sha256').update(`${seed}\0${name}\0${times}`).digest('hex') };
  });
  ranked.sort((one, other) => (one.rank < other.rank ? -1 : 1));
  return ranked.slice(0, count).map(({ item }) => item);
}

/** The interval (Wilson) that contains the share of the whole with a probability of 95 %, from a sample. */
export function intervalOf(found: number, total: number): [low: number, high: number] {
  if (total === 0) return [0, 1];
  const z = 1.959964;
  const share = found / total;
  const middle = share + z ** 2 / (2 * total);
  const distance = z * Math.sqrt((share * (1 - share)) / total + z ** 2 / (4 * total ** 2));
  const whole = 1 + z ** 2 / total;
  return [Math.max(0, (middle - distance) / whole), Math.min(1, (middle + distance) / whole)];
}

/** The folder of src that a score is reported for; `src` for files outside of folders. */
export function folderOf(file: string): string {
  return file.split('/').slice(0, -1).slice(0, 2).join('/');
}

import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import test from 'ava';
import { Zip } from '../../../src/storage/files/zip.ts';
import { writeZip, type RawEntry } from '../../support/builders/zip.ts';
import { until } from '../../support/until.ts';

/** Lets all go on that waits for nothing but other turns of the event loop. */
async function turnsLater(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await nextTurn();
}

/** What begins at `position`: 0x04034b50 is an entry with its header, 0x02014b50 an entry of the directory. */
function signature(bytes: Buffer, position: number): number {
  return bytes.readUInt32LE(position);
}

/** Eight entries that are inflated in threads, whose bytes are read when the test says so. The first one may be `changed`. */
async function openHeld(changed: Partial<RawEntry> = {}) {
  const size = 300_000;
  const bytes = writeZip(
    Array.from({ length: 8 }, (_, index) => ({
      name: `${index}`,
      data: randomBytes(size),
      method: index % 2 === 0 ? 0 : 8,
      ...(index === 0 && changed),
    })),
  );
  const reads = { headers: 0, held: [] as (() => void)[], targets: [] as Buffer[] };
  const read = async (target: Buffer, position: number) => {
    if (target.length >= size) {
      reads.targets.push(target);
      await new Promise<void>((resolve) => reads.held.push(resolve));
    } else if (signature(bytes, position) === 0x04034b50) reads.headers += 1;
    return bytes.copy(target, 0, position);
  };
  return { zip: await Zip.open(() => Promise.resolve({ size: bytes.length, read, close: () => undefined })), reads };
}

test.serial('four entries are inflated at a time, and their memory is freed', async (t) => {
  const { zip, reads } = await openHeld();
  const { held, targets } = reads;
  let isOver = false;
  const verified = zip.verify().then(() => (isOver = true));
  for (let done = 0; done < 8; done += 1) {
    const begun = Math.min(8, done + 4);
    await until(() => held.length === begun, 20_000);
    await turnsLater();
    t.deepEqual([held.length, reads.headers, isOver], [begun, begun, false]);
    held[done]!();
  }
  await verified;
  t.deepEqual(
    targets.map(({ length }) => length),
    targets.map(() => 0),
  );
});

test.serial('after an entry that is not sound no other one is read', async (t) => {
  const { zip, reads } = await openHeld({ crc: 1 });
  const { held } = reads;
  const refused = t.throwsAsync(zip.verify(), { name: 'PackageInvalid', message: /'0' does not match its checksum/ });
  await until(() => held.length === 4, 20_000);
  held[0]!();
  await turnsLater();
  for (const go of held) go();
  await refused;
  t.deepEqual([held.length, reads.headers], [4, 4]);
});

test.serial('other work runs after each five milliseconds of small entries', async (t) => {
  const bytes = writeZip(
    Array.from({ length: 20 }, (_, index) => ({ name: `${index}`, data: randomBytes(20_000), method: 0 })),
  );
  const now = performance.now.bind(performance);
  t.teardown(() => Reflect.deleteProperty(performance, 'now'));
  for (const [milliseconds, pauses] of [
    [2.25, 0],
    [2.5, 1],
    [5, 2],
  ] as const) {
    let time = Math.round(now());
    const content = {
      size: bytes.length,
      // The bytes of the entries are read at twice.
      read: (target: Buffer, position: number) => {
        if (signature(bytes, position) !== 0x02014b50) time += milliseconds;
        return Promise.resolve(bytes.copy(target, 0, position));
      },
      close: () => undefined,
    };
    const zip = await Zip.open(() => Promise.resolve(content));
    let turns = 0;
    let next: NodeJS.Immediate;
    const count = () => {
      turns += 1;
      next = setImmediate(count);
    };
    await nextTurn();
    next = setImmediate(count);
    performance.now = () => time;
    await zip.verify();
    clearImmediate(next);
    Reflect.deleteProperty(performance, 'now');
    t.is(turns, pauses, `${milliseconds}`);
  }
});

import test, { type ExecutionContext } from 'ava';
import { entryId } from '../../src/mirror/store/entries.ts';
import type { Decision } from '../../src/policy/decide.ts';
import { HeldReferences, type HeldPlace } from '../../src/policy/held.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// How what policies refuse is read in pages, with entries of which the test says what is decided.

type Verdicts = Record<string, Decision['verdict']>;

/** Entries of package lists, the newest last, each with what is decided of its versions; an error is one of deciding. */
async function setUp(t: ExecutionContext, names: Record<string, Verdicts | Error | undefined>) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const rows = Object.keys(names).map((name, at) => {
    const key = { upstream: 'u', kind: 'list', name, reference: '' };
    return { ...mirrorEntry(digestOf(name)), ...key, id: entryId(key), stored_at: at };
  });
  for (let start = 0; start < rows.length; start += 500)
    await database.transaction((tx) => tx.insertNew('mirror_entries', rows.slice(start, start + 500)));
  const wasBackground: boolean[] = [];
  const source = (kind: string, hasVersions: boolean) => ({
    kind,
    entryKind: 'list',
    contentKind: 'content',
    hasVersions,
    upstreams: (account: number) => Promise.resolve(account === 1 ? [{ id: 'u', name: 'up.test' }] : []),
    shownName: (_upstream: unknown, name: string) => `Shown.${name}`,
    find: (_account: number, _upstream: unknown, { name }: { name: string }) => {
      wasBackground.push(BackgroundTask.current !== undefined);
      const references = () => Promise.resolve(Object.keys(names[name] ?? {}));
      return Promise.resolve(names[name] && { name, asking: name, references });
    },
  });
  const gate = {
    decideAll: async (name: string, references: () => Promise<readonly string[]>) => {
      const verdicts = names[name]!;
      if (verdicts instanceof Error) throw verdicts;
      const all = await references();
      return new Map(all.map((each) => [each, { verdict: verdicts[each], evidence: [] }]));
    },
  };
  const open = (...sources: object[]) =>
    new HeldReferences(
      { database, gate } as unknown as ConstructorParameters<typeof HeldReferences>[0],
      sources.map((stored) => ({ stored })) as unknown as ConstructorParameters<typeof HeldReferences>[1],
    );
  return { held: open(source('package', true)), images: open(source('container', false)), wasBackground };
}

const all = { isWanted: () => true };

test('a page ends in the middle of a name, and the next one goes on there', async (t) => {
  const { held, images, wasBackground } = await setUp(t, {
    Old: { '1.0': 'deny' },
    Open: { '1.0': 'allow' },
    Unknown: undefined,
    Mixed: { '1.0': 'hold', '2.0': 'allow', '3.0': 'deny', '4.0': 'hold' },
  });
  const walk = async (limit: number, query: object = all) => {
    const found: string[] = [];
    for (let after: HeldPlace | undefined; ;) {
      const { items, next } = await held.list(1, { ...all, ...query, limit, after });
      t.true(items.length <= limit);
      found.push(...items.map((each) => `${each.name} ${each.reference} ${each.isBelowVisible}`));
      if (!next) return found;
      after = next;
    }
  };
  const expected = ['Shown.Mixed 4.0 false', 'Shown.Mixed 3.0 false', 'Shown.Mixed 1.0 true', 'Shown.Old 1.0 false'];
  for (const limit of [1, 2, 3, 4, 9]) t.deepEqual(await walk(limit), expected, String(limit));
  const names: string[] = [];
  const isWanted = (kind: string, name: string) => {
    names.push(`${kind} ${name}`);
    return name === 'shown.old';
  };
  t.deepEqual(await walk(9, { isWanted }), expected.slice(3));
  t.deepEqual(
    names,
    ['mixed', 'unknown', 'open', 'old'].map((each) => `package shown.${each}`),
  );
  t.deepEqual(await walk(9, { kind: 'package' }), expected);
  t.deepEqual(await walk(9, { kind: 'container' }), []);
  t.deepEqual((await held.list(2, { ...all, limit: 9 })).items, [], 'no upstream serves this account');
  const [image] = (await images.list(1, { ...all, limit: 1 })).items;
  t.like(image, { kind: 'container', upstream: 'up.test', isBelowVisible: null });
  t.true(wasBackground.every(Boolean), 'what is read does not count as used');
});

test('what an upstream cannot tell is left out, and a defect is not', async (t) => {
  const failure = new UpstreamError('UpstreamUnavailable', 'It is down.');
  const { held } = await setUp(t, { Down: failure, Fine: { '1.0': 'hold' } });
  t.deepEqual(
    (await held.list(1, { ...all, limit: 9 })).items.map(({ name }) => name),
    ['Shown.Fine'],
  );
  const broken = await setUp(t, { Broken: new Error('a defect') });
  await t.throwsAsync(broken.held.list(1, { ...all, limit: 9 }), { message: 'a defect' });
});

const many = (count: number, verdicts: Verdicts | undefined) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${String(at).padStart(4, '0')}`, verdicts]));

test('a page reads 1000 names at most, and decides about 200', async (t) => {
  const pages = async (names: ReturnType<typeof many>) => {
    const { held } = await setUp(t, { First: { '1.0': 'hold' }, ...names });
    const found: number[] = [];
    for (let after: HeldPlace | undefined; ;) {
      const { items, next } = await held.list(1, { ...all, limit: 9, after });
      found.push(items.length);
      if (!next) return found;
      t.deepEqual([next.entry, next.reference], ['', '']);
      after = next;
    }
  };
  t.deepEqual(await pages(many(999, undefined)), [1, 0]);
  t.deepEqual(await pages(many(1000, undefined)), [0, 1]);
  t.deepEqual(await pages(many(199, { '1.0': 'allow' })), [1, 0]);
  t.deepEqual(await pages(many(200, { '1.0': 'allow' })), [0, 1]);
  t.deepEqual(await pages(many(201, {})), [1], 'nothing was decided about them');
});

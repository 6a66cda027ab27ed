import { readdir } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { backUp, type BackupTarget } from '../../src/backup/backup.ts';
import {
  blobName,
  decodeManifest,
  encodeManifest,
  manifestName,
  missingName,
  rowsName,
} from '../../src/backup/format.ts';
import type { BackupManifest } from '../../src/backup/format.ts';
import { restore } from '../../src/backup/restore.ts';
import type { Database } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { readAll } from '../../src/storage/files/content.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { makeFolder } from '../../src/storage/files/permissions.ts';
import { checkPair } from '../../src/storage/upkeep/identity.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { emptyDatabase, openUntilEnd } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { MemoryDriver } from '../support/memory-driver.ts';
import { openStoreOn, references } from '../support/store.ts';
import { fromMemory } from './support.ts';

// Backups of a database and a storage in memory, into memory, and restores of them.

type Members = { name: string; bytes: Buffer }[];

/** A target that keeps the members of a backup. */
class MemoryTarget implements BackupTarget {
  readonly members: Members = [];
  /** Its methods that were called. */
  readonly calls: string[] = [];
  earlier: BackupManifest | undefined;
  /** Blobs that an earlier backup has, and those of them that are damaged there. */
  had = new Set<Digest>();
  damaged = new Set<Digest>();
  onCall: (name: string) => void = () => undefined;
  #state = '';

  #note(name: string): void {
    this.calls.push(name);
    this.onCall(name);
  }

  async begin(state: string) {
    this.#note('begin');
    this.#state = state;
    return this.earlier;
  }

  async putRows(table: string, file: Parameters<BackupTarget['putRows']>[1]) {
    this.#note('putRows');
    // This closes it, too.
    this.members.push({ name: rowsName(this.#state, table), bytes: await readAll(file, file.size) });
  }

  async has({ digest }: { digest: Digest }) {
    this.#note('has');
    return this.had.has(digest);
  }

  async isSound({ digest }: { digest: Digest }) {
    this.#note('isSound');
    return !this.damaged.has(digest);
  }

  async putBlob({ digest }: { digest: Digest }, pieces: AsyncIterable<Uint8Array>, isSound: () => boolean) {
    const all: Uint8Array[] = [];
    for await (const each of pieces) all.push(each);
    const bytes = Buffer.concat(all);
    this.#note(`${isSound() ? 'put' : 'left out'} ${digest} ${bytes.length} ${bytes.lastIndexOf('x') + 1}`);
    if (isSound()) this.members.push({ name: blobName(digest), bytes });
  }

  async putMissing(bytes: Buffer) {
    this.#note('putMissing');
    this.members.push({ name: missingName(this.#state), bytes });
  }

  async finish(manifest: BackupManifest) {
    this.#note('finish');
    this.members.push({ name: manifestName, bytes: encodeManifest(manifest) });
  }

  async [Symbol.asyncDispose]() {
    this.#note('dispose');
  }
}

/** An installation without a server. */
async function installed(t: ExecutionContext) {
  const { database, driver, blobs, paths } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  await checkPair(database, driver);
  const open = { opened: 0, closed: 0 };
  const stageHosted: typeof blobs.stageHosted = async (size) => {
    const file = await blobs.stageHosted(size);
    const openFile = file.open.bind(file);
    file.open = async () => {
      const content = await openFile();
      open.opened += 1;
      return { ...content, read: content.read.bind(content), close: () => ((open.closed += 1), content.close()) };
    };
    return file;
  };
  const parts = { database, driver, references, blobs: { stageHosted }, now: () => Date.UTC(2027, 0, 1) };
  return {
    database,
    driver,
    open,
    commit: async (bytes: string) => {
      const arrival = await blobs.stageBytes(Buffer.from(bytes));
      await blobs.commit([arrival], () => Promise.resolve());
      return arrival.digest;
    },
    backUp: (target: BackupTarget, more: Partial<Parameters<typeof backUp>[2]> = {}) =>
      backUp(parts, target, { mirrored: true, rate: 2 ** 40, ...more }),
    left: async () => [
      (await readdir(paths.staging)).length,
      (await database.select('SELECT id FROM storage_holds')).length,
    ],
  };
}

const damage = (name: 'EIO' | 'EBADF') => Object.assign(new Error(name), { code: name });

test('a backup has each blob whose bytes are right, and names the others', async (t) => {
  const { database, driver, commit, backUp: back, left, open } = await installed(t);
  const large = 'x'.repeat(600_000);
  const sound = [await commit(large), await commit('x'), await commit('')];
  const [flipped, gone, short] = [await commit('flipped x'), await commit('gone'), await commit('short')];
  driver.damage(flipped, Buffer.from('Flipped x'));
  await driver.delete(gone);
  driver.damage(short, Buffer.from('s'));
  const failures = new Map<Digest, Error>();
  for (const [text, error] of [
    ['1', damage('EIO')],
    ['2', new DomainError('BlobUnknown', 'gone')],
    ['3', new DomainError('ContentDamaged', 'replaced')],
  ] as const)
    failures.set(await commit(large + text), error);
  const passed: unknown[] = [];
  let closed = 0;
  const openBlob = driver.open.bind(driver);
  driver.open = async (digest: Digest, size: number, isCheck?: boolean) => {
    passed.push(isCheck);
    const content = await openBlob(digest, size);
    const failure = failures.get(digest);
    return {
      ...content,
      // The disk cannot read what comes after the first piece.
      read: (target, position) =>
        failure && position > 0 ? Promise.reject(failure) : content.read.bind(content)(target, position),
      close: () => {
        closed += 1;
        content.close();
      },
    };
  };
  const target = new MemoryTarget();
  const { rows, ...done } = await back(target);
  const missing = [flipped, gone, short, ...failures.keys()].toSorted();
  const bytes = 600_000 + 1 + 9 + 4 + 5 + 3 * 600_001;
  const copiedBytes = 600_001;
  t.deepEqual(done, { blobs: 9, bytes, copied: 3, copiedBytes, checked: 0, damaged: [], missing });
  const puts = target.calls.filter((each) => /^(?:put|left out) /.test(each));
  t.deepEqual(
    puts.toSorted(),
    [
      `put ${sound[0]} 600000 600000`,
      `put ${sound[1]} 1 1`,
      `put ${sound[2]} 0 0`,
      `left out ${flipped} 9 9`,
      // Zeros come in place of what cannot be read.
      ...[...failures.keys()].map((digest) => `left out ${digest} 600001 262144`),
    ].toSorted(),
  );
  t.deepEqual([...new Set(passed)], [true], 'no local copies are read or made');
  t.is(closed, puts.length);
  t.is(open.opened, open.closed);
  t.deepEqual(await left(), [0, 0]);
  const text = missing.map((digest) => `${digest}\n`).join('');
  t.is(target.members.at(-2)!.bytes.toString(), text);
  const manifest = decodeManifest(target.members.at(-1)!.bytes);
  t.like(manifest, {
    created_at: '2027-01-01T00:00:00.000Z',
    mirrored: true,
    blobs: { count: 9, bytes },
    missing: { count: 6, bytes: text.length, digest: digestOf(text) },
    checked_to: '',
  });
  t.is(manifest.installation, await driver.readIdentity());
  t.is(
    rows,
    manifest.tables.reduce((total, table) => total + table.rows, 0),
  );
  t.is(manifest.tables.find(({ name }) => name === 'blobs')!.rows, 9);
  t.true(manifest.migrations.length > 0);
  for (const [digest] of failures) failures.set(digest, damage('EBADF'));
  await t.throwsAsync(back(new MemoryTarget()), { message: 'EBADF' });
  driver.faults.before = (operation) => {
    if (operation === 'open') throw new Error('no answer');
  };
  await t.throwsAsync(back(new MemoryTarget()), { message: 'no answer' });
  t.deepEqual(await left(), [0, 0]);
  t.is((await database.select('SELECT digest FROM blobs')).length, 9);
});

test('a share of an earlier backup is compared, and what is damaged there is copied again', async (t) => {
  const { database, commit, backUp: back } = await installed(t);
  const digests = await Promise.all(['a', 'b', 'c', 'd'].map((text) => commit(text)));
  const [first, second, third, fourth] = digests.toSorted() as [Digest, Digest, Digest, Digest];
  const earlierOf = async () => {
    const target = new MemoryTarget();
    await back(target);
    return decodeManifest(target.members.at(-1)!.bytes);
  };
  const earlier = await earlierOf();
  const run = async (change: Partial<BackupManifest> | undefined, more: Parameters<typeof back>[1] = {}) => {
    const target = new MemoryTarget();
    target.earlier = change && { ...earlier, ...change };
    target.had = new Set([first, second, third]);
    target.damaged = new Set([first, second]);
    const { copied, checked, damaged, missing } = await back(target, more);
    const next = decodeManifest(target.members.at(-1)!.bytes).checked_to;
    return { copied, checked, damaged, missing, next };
  };
  t.deepEqual(await run({}), { copied: 3, checked: 3, damaged: [first, second], missing: [], next: '' });
  t.deepEqual(await run(undefined), { copied: 3, checked: 3, damaged: [first, second], missing: [], next: '' });
  const later = { copied: 2, checked: 2, damaged: [second], missing: [], next: '' };
  t.deepEqual(await run({ checked_to: first }), later);
  const all = { copied: 3, checked: 3, damaged: [first, second], missing: [], next: '' };
  t.deepEqual(await run({ checked_to: fourth }, { checkAll: true }), all);
  // Each of them is more than a share of a small backup.
  await database.transaction((tx) => tx.run('UPDATE blobs SET size = ? WHERE digest <> ?', [2 ** 29, fourth]));
  const target = new MemoryTarget();
  target.had = new Set([first, second, third]);
  target.earlier = { ...earlier, blobs: { count: 4, bytes: 2 ** 36 } };
  t.is((await back(target)).checked, 3);
  target.earlier = { ...earlier, blobs: { count: 4, bytes: 2 ** 20 } };
  t.is((await back(target)).checked, 1);
  t.is(decodeManifest(target.members.at(-1)!.bytes).checked_to, first);
});

test('a backup that is stopped ends at the next step, and is not complete', async (t) => {
  const { commit, backUp: back, left, open } = await installed(t);
  await commit('a');
  for (const [at, last] of [
    ['putRows', ['putRows', 'putRows']],
    ['putMissing', ['put', 'putMissing']],
  ] as const) {
    const controller = new AbortController();
    const target = new MemoryTarget();
    target.onCall = (name) => name === at && controller.abort(new Error('stopped'));
    await t.throwsAsync(back(target, { signal: controller.signal }), { message: 'stopped' });
    if (at === 'putRows') t.is(target.calls.filter((name) => name === at).length, 1);
    else
      t.deepEqual(
        target.calls.slice(-2).map((name) => name.split(' ')[0]),
        [...last],
      );
    t.deepEqual(await left(), [0, 0], at);
  }
  const controller = new AbortController();
  const target = new MemoryTarget();
  const onRows = async () => controller.abort(new Error('stopped'));
  await t.throwsAsync(back(target, { signal: controller.signal, onRows }), { message: 'stopped' });
  t.false(target.calls.includes('has'));
  t.is(open.opened, open.closed);
});

/** The members of a backup with rows of several sizes. */
async function backup(t: ExecutionContext): Promise<Members> {
  const { database, driver, commit, backUp: back } = await installed(t);
  const digest = await commit('content');
  await commit('other');
  const word = { kind: 'nupkg', upstream: 'up', name: 'name' };
  const words = Array.from({ length: 2001 }, (_, index) => ({ ...word, suffix: String(index) }));
  await database.transaction((tx) => tx.insertNew('mirror_words', words));
  await database.transaction((tx) => tx.insertNew('mirror_entries', [mirrorEntry(digest)]));
  const gone = await commit('gone');
  await driver.delete(gone);
  const target = new MemoryTarget();
  t.deepEqual((await back(target)).missing, [gone]);
  return target.members;
}

const stateOf = (members: Members) => decodeManifest(members.at(-1)!.bytes).state;
const textOf = (members: Members, table: string) =>
  members.find(({ name }) => name === rowsName(stateOf(members), table))!.bytes.toString();

/** The members with other lines of a table, or without it, and a manifest that fits them. */
function withTable(members: Members, table: string, change: (lines: string[]) => string[] | undefined): Members {
  const manifest = decodeManifest(members.at(-1)!.bytes);
  const name = rowsName(manifest.state, table);
  const before =
    members
      .find((each) => each.name === name)
      ?.bytes.toString()
      .trimEnd()
      .split('\n') ?? [];
  const lines = change(before);
  const bytes = Buffer.from(lines?.map((line) => `${line}\n`).join('') ?? '');
  const entry = { name: table, rows: (lines?.length ?? 1) - 1, bytes: bytes.length, digest: digestOf(bytes) };
  const others = manifest.tables.filter((each) => each.name !== table);
  const tables = lines ? [...others, entry] : others;
  const rest = members.slice(0, -1).filter((each) => each.name !== name);
  return [
    ...(lines ? [{ name, bytes }] : []),
    ...rest,
    { name: manifestName, bytes: encodeManifest({ ...manifest, tables }) },
  ];
}

const withManifest = (members: Members, change: (manifest: BackupManifest) => Partial<BackupManifest>): Members => {
  const manifest = decodeManifest(members.at(-1)!.bytes);
  const bytes = encodeManifest({ ...manifest, ...change(manifest) });
  return [...members.slice(0, -1), { name: manifestName, bytes }];
};

async function emptyPlace(t: ExecutionContext) {
  const database = await openUntilEnd(t, await emptyDatabase(t, 'sqlite'));
  const paths = new Paths(await folderUntilEnd(t));
  await makeFolder(paths.staging);
  const driver = new MemoryDriver();
  return { database, driver, paths };
}

const rowsIn = async (database: Database, table: string) =>
  (await database.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n;

test('a restore writes the bytes, then the rows in transactions of bounded size', async (t) => {
  const members = await backup(t);
  const place = await emptyPlace(t);
  let steps = 0;
  const seen: number[] = [];
  const onStep = async () => {
    steps += 1;
    if (steps === 1) t.is(place.driver.contents.size, 2, 'all bytes are there before the first row');
    else seen.push(await rowsIn(place.database, 'mirror_words'));
  };
  const { manifest, missing, damaged } = await restore(place, fromMemory(members), { onStep });
  t.deepEqual([...place.driver.contents.values()].map(String).toSorted(), ['content', 'other']);
  t.deepEqual(manifest, decodeManifest(members.at(-1)!.bytes));
  t.deepEqual([missing.map(({ kind }) => kind), damaged], [['missing'], []]);
  t.deepEqual([...new Set(seen)], [0, 1000, 2000, 2001]);
  for (const { name, rows } of manifest.tables) t.is(await rowsIn(place.database, name), rows, name);
  t.deepEqual(await readdir(place.paths.staging), []);
  t.like(await place.database.get('SELECT state FROM storage_identity'), { state: 'paired' });
  t.not(await place.driver.readIdentity(), manifest.installation, 'it is a new installation');

  // Rows of exactly the bytes of one transaction.
  const [header, line] = textOf(members, 'mirror_entries').trimEnd().split('\n') as [string, string];
  const { columns } = JSON.parse(header) as { columns: { name: string }[] };
  const at = (column: string) => columns.findIndex(({ name }) => name === column);
  const values = JSON.parse(line) as (string | number | null)[];
  values[at('attributes')] = '';
  const size = values.reduce<number>((all, each) => all + (typeof each === 'string' ? each.length : 8), 0);
  values[at('attributes')] = 'x'.repeat(2 ** 20 - size);
  const rows = ['1', '2', '3'].map((last) =>
    JSON.stringify(values.with(at('id'), `${String(values[at('id')]).slice(0, -1)}${last}`)),
  );
  const counted = await emptyPlace(t);
  let count = -1;
  await restore(counted, fromMemory(withTable(members, 'mirror_entries', () => [header, ...rows])), {
    onStep: async () => void (count += 1),
  });
  t.is(count, seen.length + 2, 'three transactions instead of one');
});

test('a restore that is not whole is refused, and a second one continues', async (t) => {
  const members = await backup(t);
  const place = await emptyPlace(t);
  const damagedBlob = members.map((each) =>
    each.name === blobName(digestOf('content')) ? { ...each, bytes: Buffer.from('Content') } : each,
  );
  await t.throwsAsync(restore(place, fromMemory(damagedBlob)), {
    name: 'Invalid',
    message: /^the backup is damaged: of its blobs, 1 are missing or wrong, the first is sha256:[^]*"entrepot verify"/,
  });
  t.deepEqual(await place.database.select("SELECT name FROM sqlite_schema WHERE type = 'table'"), []);
  t.deepEqual(await readdir(place.paths.staging), []);
  const controller = new AbortController();
  let steps = 0;
  const stop = restore(place, fromMemory(members), {
    signal: controller.signal,
    onStep: async () => {
      if ((steps += 1) === 3) controller.abort(new Error('stopped'));
    },
  });
  await t.throwsAsync(stop, { message: 'stopped' });
  t.like(await place.database.get('SELECT state FROM storage_identity'), { state: 'restoring' });
  t.deepEqual(await readdir(place.paths.staging), []);
  const { damaged } = await restore(place, fromMemory(damagedBlob), { withoutDamaged: true });
  t.deepEqual(damaged, [{ digest: digestOf('content'), kind: 'damaged' }]);
  t.is(await rowsIn(place.database, 'mirror_words'), 2001);
  await t.throwsAsync(restore({ ...place, driver: new MemoryDriver() }, fromMemory(members)), {
    message: /^the database is not empty: the table \w+ has rows\. Restore into an empty place$/,
  });
});

test('a restore into a database with only tables needs those of the backup', async (t) => {
  const members = await backup(t);
  const withTables = async () => {
    const place = await emptyPlace(t);
    await migrate(place.database);
    await place.database.transaction((tx) => tx.insertNew('probes', [{ id: 1, written_at: 1 }]));
    return place;
  };
  const { database, ...rest } = await withTables();
  await restore({ database, ...rest }, fromMemory(members));
  t.is(await rowsIn(database, 'mirror_words'), 2001);
  const older = withManifest(members, ({ migrations }) => ({ migrations: migrations.slice(0, -1) }));
  await t.throwsAsync(restore(await withTables(), fromMemory(older)), {
    message: /^the database has the tables of a newer version than the backup/,
  });
  const newer = withManifest(members, ({ migrations }) => ({ migrations: [...migrations, 'later'], program: '9.0.0' }));
  await t.throwsAsync(restore(await emptyPlace(t), fromMemory(newer)), {
    message: /^the backup was made by Entrepot 9\.0\.0, and this is /,
  });
});

const header = (change: (columns: { name: string; kind: string }[]) => object[]) => (lines: string[]) => {
  const { columns } = JSON.parse(lines[0]!) as { columns: { name: string; kind: string }[] };
  return [JSON.stringify({ columns: change(columns) }), ...lines.slice(1)];
};
const one = (lines: string[]) => lines.slice(0, 2);

test('rows that do not fit the tables are refused', async (t) => {
  const members = await backup(t);
  const columns = 'the table mirror_words has other columns in the backup';
  const cases: [string, Members][] = [
    [
      'the backup has other tables than this database, which has mirror_words',
      withTable(members, 'mirror_words', () => undefined),
    ],
    ['the backup has other tables than this database', withTable(members, 'more', () => ['{"columns":[]}'])],
    [
      columns,
      withTable(members, 'mirror_words', (lines) =>
        one(header((all) => all.map((each) => ({ ...each, name: `${each.name}x` })))(lines)),
      ),
    ],
    [
      columns,
      withTable(members, 'mirror_words', (lines) =>
        one(header((all) => [{ ...all[0]!, name: 'x' }, ...all.slice(1)])(lines)),
      ),
    ],
    [
      columns,
      withTable(members, 'mirror_words', (lines) => [
        header((all) => all.slice(1))(lines)[0]!,
        JSON.stringify((JSON.parse(lines[1]!) as unknown[]).slice(1)),
      ]),
    ],
    [
      'the table mirror_words has rows in the backup that are the same in this database',
      withTable(members, 'mirror_words', ([head, first]) => [head!, first!, first!]),
    ],
    [
      'the table mirror_words has 2001 rows, and 2002 in the backup',
      withManifest(members, ({ tables }) => ({
        tables: tables.map((each) => (each.name === 'mirror_words' ? { ...each, rows: 2002 } : each)),
      })),
    ],
  ];
  for (const [message, given] of cases)
    await t.throwsAsync(restore(await emptyPlace(t), fromMemory(given)), { name: 'Invalid', message }, message);
});

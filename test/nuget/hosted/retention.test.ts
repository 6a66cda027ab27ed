import test from 'ava';
import { retainPackages } from '../../../src/nuget/hosted/retention.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

async function withVersions(t: Parameters<typeof HostedPackages.open>[0], deletedFor = 0) {
  const hosted = await HostedPackages.open(t, deletedFor);
  for (const version of ['1.0.0', '3.0.0', '2.0.0', '2.0.0-b', '2.0.0-c', '1.9.0-a', '10.0.0'])
    await hosted.push({ id: 'Lib', version });
  await hosted.push({ id: 'One', version: '1.0.0' });
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) await hosted.push({ id: 'Lib', version }, { account: 2 });
  await hosted.events();
  const said: string[] = [];
  const retain = (keepVersions: number, more: Partial<Parameters<typeof retainPackages>[1]> = {}) =>
    retainPackages(hosted.store.database, {
      now: 2000,
      keepVersions,
      protect: [],
      deletedFor,
      dryRun: false,
      signal: new AbortController().signal,
      say: (line) => said.push(line),
      ...more,
    });
  const left = async () =>
    (
      await hosted.rows<{ name: string }>(
        `SELECT p.account_id || ' ' || p.package_id || ' ' || v.version AS name FROM package_versions v
         JOIN packages p ON p.id = v.package_row ORDER BY p.id, v.sort_key`,
      )
    ).map(({ name }) => name);
  return { hosted, retain, left, said };
}

test('the newest releases and the newest prereleases of each package stay, counted by themselves', async (t) => {
  const { hosted, retain, left, said } = await withVersions(t);
  const sizes = async (where: string) =>
    (await hosted.rows<{ n: number }>(`SELECT SUM(size_bytes) AS n FROM package_versions ${where}`))[0]!.n;
  const before = await left();
  const all = await sizes('');
  const dry = await retain(2, { dryRun: true });
  t.deepEqual(await left(), before);
  const lines = ['package Lib 2.0.0', 'package Lib 1.0.0', 'package Lib 1.9.0-a', 'package Lib 1.0.0'];
  t.deepEqual(said.splice(0), lines);
  const done = await retain(2);
  t.deepEqual(said, lines);
  t.deepEqual(await left(), [
    '1 Lib 2.0.0-b',
    '1 Lib 2.0.0-c',
    '1 Lib 3.0.0',
    '1 Lib 10.0.0',
    '1 One 1.0.0',
    '2 Lib 2.0.0',
    '2 Lib 3.0.0',
  ]);
  t.deepEqual(done, { versions: 4, version_bytes: all - (await sizes('')) });
  t.deepEqual(dry, done);
  t.deepEqual(await hosted.rows('SELECT version_count, revision, updated_at FROM packages ORDER BY id'), [
    { version_count: 4, revision: 8, updated_at: 2000 },
    { version_count: 1, revision: 1, updated_at: 1000 },
    { version_count: 2, revision: 4, updated_at: 2000 },
  ]);
  t.deepEqual(await hosted.events(), [
    [2000, 'package.deleted', 1, 'Lib', '2.0.0', {}],
    [2000, 'package.deleted', 1, 'Lib', '1.0.0', {}],
    [2000, 'package.deleted', 1, 'Lib', '1.9.0-a', {}],
    [2000, 'package.deleted', 2, 'Lib', '1.0.0', {}],
  ]);
  t.deepEqual(await retain(2), { versions: 0, version_bytes: 0 });
  t.deepEqual(await retain(4), { versions: 0, version_bytes: 0 });
  t.deepEqual(await hosted.events(), []);
  t.is((await hosted.rows<{ revision: number }>('SELECT revision FROM packages'))[0]!.revision, 8);
});

test('rules of the account and of the settings keep older versions, and deletions can be undone', async (t) => {
  const { hosted, retain, left } = await withVersions(t, 500);
  await hosted.store.database.transaction((tx) =>
    tx.insert('permanence', {
      account_id: 2,
      rules: JSON.stringify({ freeze: { images: [] }, keep: { packages: ['lib:1.*'], images: [] } }),
      changed_at: 0,
    }),
  );
  t.is((await retain(1, { protect: ['LIB:2.0.0-B'] })).versions, 6 - 1 - 1 + 1);
  t.deepEqual(await left(), [
    '1 Lib 2.0.0-b',
    '1 Lib 2.0.0-c',
    '1 Lib 10.0.0',
    '1 One 1.0.0',
    '2 Lib 1.0.0',
    '2 Lib 3.0.0',
  ]);
  const deleted = await hosted.rows<object>(
    'SELECT account_id, name, reference, deleted_at, ends_at FROM deleted_items ORDER BY id',
  );
  const item = { name: 'Lib', deleted_at: 2000, ends_at: 2500 };
  t.deepEqual(deleted, [
    { ...item, account_id: 1, reference: '3.0.0' },
    { ...item, account_id: 1, reference: '2.0.0' },
    { ...item, account_id: 1, reference: '1.0.0' },
    { ...item, account_id: 1, reference: '1.9.0-a' },
    { ...item, account_id: 2, reference: '2.0.0' },
  ]);
});

test('many old versions are deleted 20 at a time, and an ended job deletes no more', async (t) => {
  const { hosted, retain, said } = await withVersions(t);
  const [row] = await hosted.rows<Record<string, string | number | null>>(
    "SELECT * FROM package_versions WHERE version = '10.0.0'",
  );
  const { id: _id, ...rest } = row!;
  const make = (count: number) =>
    hosted.store.database.transaction(async (tx) => {
      await tx.insertNew(
        'package_versions',
        Array.from({ length: count }, (_, index) => {
          const version = `0.${index}.0`;
          const names = { version, version_key: version, full_version: version, prerelease: 0 };
          return { ...rest, ...names, sort_key: `00${String(index).padStart(6, '0')}` };
        }),
      );
      await tx.run('UPDATE packages SET version_count = version_count + ? WHERE id = 1', [count]);
    });
  await retain(1);
  await make(45);
  await hosted.events();
  const revision = async () => (await hosted.rows<{ revision: number }>('SELECT revision FROM packages'))[0]!.revision;
  const before = await revision();
  t.is((await retain(1, { dryRun: true })).versions, 45);
  t.is((await retain(1)).versions, 45);
  t.is((await revision()) - before, 3);
  await make(40);
  said.length = 0;
  const end = new AbortController();
  const ended = retain(1, {
    signal: end.signal,
    say: (line) => {
      said.push(line);
      if (said.length === 20) end.abort(new Error('ended'));
    },
  });
  await t.throwsAsync(ended, { message: /ended|aborted/ });
  t.is(said.length, 20);
  t.is((await hosted.rows('SELECT id FROM package_versions WHERE package_row = 1')).length, 2 + 20);
});

test('versions beyond those that one statement reads are found, behind versions that a rule keeps', async (t) => {
  const { hosted, retain } = await withVersions(t);
  const [row] = await hosted.rows<Record<string, string | number | null>>(
    "SELECT * FROM package_versions WHERE version = '10.0.0'",
  );
  const { id: _id, ...rest } = row!;
  await hosted.store.database.transaction(async (tx) => {
    for (let start = 0; start < 1010; start += 101)
      await tx.insertNew(
        'package_versions',
        Array.from({ length: 101 }, (_, index) => {
          const version = `5.${start + index}.0`;
          const names = { version, version_key: version, full_version: version, prerelease: 0 };
          return { ...rest, ...names, sort_key: `05${String(start + index).padStart(6, '0')}` };
        }),
      );
  });
  const kept = { protect: ['lib:5.*'] };
  t.is((await retain(1, { ...kept, dryRun: true })).versions, 3 + 2 + 2);
  t.is((await retain(1, kept)).versions, 3 + 2 + 2);
});

test('old versions of more packages than one statement reads are deleted', async (t) => {
  const { hosted, retain, said } = await withVersions(t);
  const [packageRow] = await hosted.rows('SELECT * FROM packages WHERE id = 1');
  await hosted.store.database.transaction(async (tx) => {
    for (let index = 0; index < 200; index += 1)
      await tx.insert('packages', {
        ...packageRow!,
        id: 1000 + index,
        package_key: `p${index}`,
        package_id: `P${index}`,
      });
    await tx.run('UPDATE package_versions SET package_row = 1199 WHERE package_row = 1');
    await tx.run('DELETE FROM packages WHERE id IN (1, 2)');
  });
  t.is((await retain(2)).versions, 4);
  t.deepEqual(said, ['package Lib 1.0.0', 'package P199 2.0.0', 'package P199 1.0.0', 'package P199 1.9.0-a']);
});

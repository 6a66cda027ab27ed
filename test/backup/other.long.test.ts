import { execFile } from 'node:child_process';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { encodeManifest } from '../../src/backup/format.ts';
import { dialects } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { emptyPlace, manifestOf, serveOn } from './support.ts';

// A backup of another installation, or of none, never replaces an earlier one.

for (const dialect of dialects) {
  test(`${dialect}: an incremental backup of nothing, or of another installation, leaves the earlier backup whole`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const server = await serveOn(t, place);
    await new TestFeed(server).publish({ id: 'First', version: '1.0.0' });
    const folder = join(place.folder, 'backup');
    const back = (environment: Record<string, string>) => entrepot(environment, 'backup', folder, '--incremental');
    t.is((await back(place.environment)).code, 0);
    const manifest = await readFile(join(folder, 'manifest'));

    // The data is not mounted.
    const none = await emptyPlace(t, dialect);
    const nothing = await back(none.environment);
    t.deepEqual([nothing.code, nothing.stdout], [1, '']);
    t.regex(nothing.stderr, /^entrepot: no installation in .*as for the server\n$/);

    const other = await emptyPlace(t, dialect);
    await (await serveOn(t, other)).close();
    const refused = await back(other.environment);
    t.deepEqual([refused.code, refused.stdout], [1, '']);
    t.regex(refused.stderr, /has a backup of another installation/);

    t.deepEqual(await readFile(join(folder, 'manifest')), manifest);
    t.is((await readdir(join(folder, 'rows'))).length, 1);
    t.regex((await entrepot({}, 'verify', folder)).stdout, / 2 blobs/);
    t.regex((await back(place.environment)).stdout, /copied 0,/);
  });
}

test('a backup of an older version, which names no installation, is renewed only by the installation that made it', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'First', version: '1.0.0' });
  const folder = join(place.folder, 'backup');
  const back = (environment: Record<string, string>) => entrepot(environment, 'backup', folder, '--incremental');
  t.is((await back(place.environment)).code, 0);
  const { installation, ...unnamed } = await manifestOf(folder);
  t.regex(installation!, /^[0-9a-f-]{36}$/);
  await writeFile(join(folder, 'manifest'), encodeManifest(unnamed));
  const other = await emptyPlace(t, 'sqlite');
  await (await serveOn(t, other)).close();
  t.regex((await back(other.environment)).stderr, /has a backup of another installation/);
  t.is((await entrepot({}, 'verify', folder)).code, 0);
  t.deepEqual([(await back(place.environment)).code, (await manifestOf(folder)).installation], [0, installation]);

  await writeFile(join(folder, 'manifest'), 'damaged');
  t.regex((await back(place.environment)).stderr, /the manifest of the backup is damaged/);
  t.is((await readdir(join(folder, 'blobs'), { recursive: true })).filter((name) => name.length > 70).length, 2);
});

for (const dialect of dialects) {
  test(`${dialect}: only a command that creates makes an installation, where a setting names the place`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const commands = [
      'account list',
      'token list',
      'token revoke none',
      'publisher list',
      'claim list',
      'usage',
      'audit',
      'webhook list',
      `backup ${place.folder}/x.tar`,
      'verify',
      'doctor',
      'jobs list',
      'gc',
      'gc --files',
      'retention',
      'scrub',
      'instances',
      'storage copy --to s3',
      'prefetch --in-use',
    ];
    for (const command of commands) {
      const { code, stdout, stderr } = await entrepot(place.environment, ...command.split(' '));
      t.deepEqual([code, stdout], [1, ''], command);
      t.regex(
        stderr,
        /^entrepot: no installation in [^\n]*; set ENTREPOT_DATA[A-Z_]* or ENTREPOT_CONFIG as for the server\n$/,
      );
      if (dialect === 'sqlite') await t.throwsAsync(stat(place.data), { code: 'ENOENT' }, command);
    }
    t.is((await entrepot(place.environment, 'account', 'create', 'team')).code, 0);
    t.is((await entrepot(place.environment, 'account', 'list')).code, 0);
    t.is((await entrepot(place.environment, 'account', 'create', 'other')).code, 0);
  });
}

test('a command that creates makes no installation in a folder that no setting names', async (t) => {
  const folder = await folderUntilEnd(t);
  const main = join(import.meta.dirname, '../../bin/entrepot.js');
  const words = [main, 'token', 'create', '--name', 'x'];
  const run = (env: Record<string, string>) =>
    promisify(execFile)(process.execPath, words, { cwd: folder, env: { PATH: process.env['PATH'], ...env } });
  const error = await t.throwsAsync<Error & { stderr: string }>(run({}));
  t.regex(error.stderr, /^entrepot: no installation in .*data; set ENTREPOT_DATA or/);
  t.deepEqual(await readdir(folder), []);
  t.regex((await run({ ENTREPOT_DATA: './data' })).stdout, /^ent_/);
  t.regex((await run({})).stdout, /^ent_/, 'the installation exists');
  await rm(join(folder, 'data/entrepot.db'));
  await t.throwsAsync(run({}), {
    message: /the storage belongs to another database.*"npx --no-install entrepot adopt"/s,
  });
});

import { execFileSync } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf } from '../support/inside.ts';
import { CommandLine } from '../support/processes/command.ts';
import { until, within } from '../support/until.ts';
import { emptyPlace, serveOn, type Installed } from './support.ts';

// A person stops a command that has copies of all rows: none of them stays.

/** Files below a folder, which need not exist. */
async function filesIn(folder: string): Promise<string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return found.filter((each) => each.isFile()).map(({ name }) => name);
}

/** An installation with a package of 2 MiB, and its server. */
async function filled(t: ExecutionContext) {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'Large', version: '1.0.0', payloadBytes: 2 ** 21 });
  return { place, server, staging: join(place.data, 'staging') };
}

/** Starts a command of a place in a process of its own. */
async function begin(t: ExecutionContext, { environment }: Installed, tmp: string, ...words: string[]) {
  const { child, end } = (await CommandLine.create(t, { ...environment, TMPDIR: tmp })).begin(...words);
  t.teardown(() => child.kill('SIGKILL'));
  return { child, end: within(end) };
}

test('a backup that is stopped leaves no rows in the staging folder, and no hold', async (t) => {
  const { place, server, staging } = await filled(t);
  const tmp = await folderUntilEnd(t);
  for (const name of ['folder', 'file.tar']) {
    const target = join(place.folder, name);
    const { child, end } = await begin(t, place, tmp, 'backup', target, '--rate', '1KiB');
    const written = name === 'folder' ? join(target, 'rows') : target.replace('file.tar', 'file.tar.part');
    await until(async () => (await stat(written).catch(() => undefined)) !== undefined);
    await until(async () => (await filesIn(staging)).length > 0);
    child.kill('SIGINT');
    t.like(await end, { code: 1, stderr: 'entrepot: The backup was stopped, and is not complete.\n' });
    t.deepEqual(await filesIn(staging), [], name);
    t.deepEqual(await databaseOf(server).select('SELECT id FROM storage_holds'), []);
  }
  t.deepEqual(
    (await readdir(place.folder)).filter((each) => each.startsWith('file')),
    [],
  );
  const again = await entrepot(place.environment, 'backup', join(place.folder, 'folder'), '--incremental');
  t.is(again.code, 0);
});

for (const [command, message] of [
  ['verify', 'The check was stopped before its end.'],
  ['restore', 'The restore was stopped. Run the command again to finish it.'],
] as const)
  test(`${command} of a backup that is stopped leaves no rows`, async (t) => {
    const { place } = await filled(t);
    const archive = join(place.folder, 'backup.tar');
    t.is((await entrepot(place.environment, 'backup', archive)).code, 0);
    const bytes = await readFile(archive);
    const tmp = await folderUntilEnd(t);
    const other = await emptyPlace(t, 'sqlite');
    const pipe = join(other.folder, 'pipe.tar');
    execFileSync('mkfifo', [pipe]);
    const { child, end } = await begin(t, other, tmp, command, pipe);
    // The command ends before it has read all.
    const writer = createWriteStream(pipe).on('error', () => undefined);
    writer.write(bytes.subarray(0, bytes.length - 1.5 * 2 ** 20));
    const folders = async () => (await readdir(tmp)).filter((each) => each.startsWith('entrepot-verify-'));
    const copies = async () =>
      filesIn(command === 'verify' ? join(tmp, (await folders())[0] ?? 'none') : join(other.data, 'staging'));
    // A check writes only the rows of blobs.
    await until(async () => (await copies()).length > (command === 'verify' ? 0 : 5));
    child.kill('SIGINT');
    writer.end(bytes.subarray(bytes.length - 1.5 * 2 ** 20));
    t.like(await end, { code: 1, stderr: `entrepot: ${message}\n` });
    t.deepEqual(await folders(), []);
    t.deepEqual(await copies(), []);
    if (command === 'restore') t.is((await entrepot(other.environment, 'restore', archive)).code, 0);
  });

import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { serveOn, emptyPlace, type Installed } from '../backup/support.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');

interface Ended {
  code: number | null;
  stderr: string;
}

/** Runs a command whose results nothing reads: by default the reader of a pipe has ended. */
function runUnread({ environment }: Installed, words: string[], stdout: 'pipe' | number = 'pipe'): Promise<Ended> {
  const env = { PATH: process.env['PATH'], ...environment };
  const child = spawn(process.execPath, [main, ...words], { env, stdio: ['ignore', stdout, 'pipe'] });
  child.stdout?.destroy();
  let stderr = '';
  child.stderr!.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, stderr })));
}

test('a command finishes its work, and ends quietly, when its output is closed', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'First', version: '1.0.0' });
  const target = join(place.folder, 'backup.tar');
  for (const command of ['audit', 'token list', 'jobs list', 'gc', 'verify', `backup ${target}`, '--help']) {
    t.deepEqual(await runUnread(place, command.split(' ')), { code: 0, stderr: '' }, command);
  }
  t.is((await entrepot({}, 'verify', target)).code, 0, 'the backup is whole');
  const runs = await entrepot(place.environment, 'jobs', 'list');
  t.regex(runs.stdout, /^gc\t.*\tdone /m);
});

test('a command fails when its output cannot be written', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  t.is((await entrepot(place.environment, 'account', 'create', 'team')).code, 0);
  await using full = await open('/dev/full', 'w');
  const { code, stderr } = await runUnread(place, ['account', 'list'], full.fd);
  t.is(code, 1);
  t.regex(stderr, /^entrepot: the output could not be written: ENOSPC[^\n]*\n$/);
});

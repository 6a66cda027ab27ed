import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');
/** Far more than the start takes. */
const limit = 100_000;

async function failureOf(words: string[], settings: Record<string, string>): Promise<string> {
  const run = promisify(execFile);
  const env = { PATH: process.env['PATH'], ENTREPOT_PORT: '0', ...settings };
  const options = { env, timeout: limit, killSignal: 'SIGKILL' as const };
  const ended = await run(process.execPath, [main, ...words], options).catch((error: unknown) => error);
  const { killed, stderr } = ended as { killed?: boolean; stderr: string };
  return killed ? 'it did not end' : stderr;
}

// The system says "not found" to a new folder in /proc, which exists.
test('a folder that cannot be made ends the start with one line', async (t) => {
  const data = await folderUntilEnd(t);
  const [folder, database, certificate] = await Promise.all([
    failureOf(['serve'], { ENTREPOT_DATA: '/proc/nope/deep' }),
    failureOf(['serve'], { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: 'sqlite:/proc/nope/entrepot.db' }),
    failureOf(['cert', '--self-signed', '--out', '/proc/nope'], { ENTREPOT_DATA: data }),
  ]);
  t.regex(folder, /^entrepot: ENTREPOT_DATA: the data folder is not writable: ENOENT.*'\/proc\/nope'\n$/);
  t.regex(database, /^entrepot: ENTREPOT_DATABASE_URL: the database cannot be opened: ENOENT.*'\/proc\/nope'\n$/);
  t.regex(certificate, /^entrepot: .*ENOENT.*'\/proc\/nope'\n$/);
});

test('missing folders above the data folder are made, and a file in the way is named', async (t) => {
  const parent = await folderUntilEnd(t);
  const data = join(parent, 'a/b/data');
  const made = await failureOf(['token', 'create', '--name', 'x'], { ENTREPOT_DATA: data });
  t.is(made, '');
  const inside = join(data, 'entrepot.db', 'more');
  t.regex(await failureOf(['serve'], { ENTREPOT_DATA: inside }), /^entrepot: .*ENOTDIR.*\n$/);
});

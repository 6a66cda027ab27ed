import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startTestServer } from '../support/server.ts';
import { row, shown } from '../../src/cli/printed.ts';

const hostile = '\u001B]0;owned\u0007\u009B31m\u202Ered\nforged\tcolumn';
const visible = String.raw`\u001b]0;owned\u0007\u009b31m\u202ered\u000aforged\u0009column`;

test('characters that a terminal acts on are shown as text', (t) => {
  t.is(shown(hostile), visible);
  t.is(row('ünï 漢字 🎉', hostile, 3), `ünï 漢字 🎉\t${visible}\t3\n`);
});

test('no command prints control characters of names', async (t) => {
  const data = join(await folderUntilEnd(t), 'data');
  const server = await startTestServer(t, { data });
  const { database } = server.installation.core;
  await database.transaction((tx) => tx.run('UPDATE tokens SET name = ?', [hostile]));
  await database.transaction((tx) => tx.run('UPDATE accounts SET name = ? WHERE name = ?', [`x${hostile}`, 'other']));
  await server.close();
  const environment = { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' };
  const tokens = await entrepot(environment, 'token', 'list');
  t.true(tokens.stdout.includes(visible), tokens.stdout);
  t.is(tokens.stdout.split('\n').length, 2);
  for (const words of [
    ['token', 'list'],
    ['account', 'list'],
    ['audit'],
    ['doctor'],
    ['usage'],
    ['jobs', 'list'],
    ['token', 'list', '--account', hostile],
  ]) {
    const { stdout, stderr } = await entrepot(environment, ...words);
    t.notRegex(stdout + stderr, /(?![\n\t])[\p{Cc}\u202E]/u, words.join(' '));
  }
});

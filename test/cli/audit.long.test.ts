import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'ava';
import type { EventItem } from '../../src/events/event.ts';
import { said } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { tokenOf } from '../support/inside.ts';
import { CommandLine } from '../support/processes/command.ts';
import { startTestServer } from '../support/server.ts';
import { within } from '../support/until.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');

function eventsIn(stdout: string): EventItem[] {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as EventItem);
}

for (const dialect of dialects) {
  test(`${dialect}: audit prints events as JSON lines, the earliest first, and filters them`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { data, database: { url } });
    const audit = (...words: string[]) =>
      entrepot({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' }, 'audit', ...words);
    const feed = await TestFeed.ofAccount(server, 'other', ['write']);
    server.clock.now = Date.now() - 2 * 86_400_000;
    await feed.publish({ id: 'Early' });
    server.clock.now = undefined;
    await feed.publish({ id: 'Late' });
    await tokenOf(server, ['read']);
    const shown = async (...words: string[]) => {
      const { code, stdout, stderr } = await audit(...words);
      t.deepEqual([code, stderr], [0, '']);
      return eventsIn(stdout).map(said);
    };
    const [early, late] = ['package.published Early 1.0.0', 'package.published Late 1.0.0'];
    t.deepEqual(await shown(), [
      'token.created first token',
      'token.created a test',
      early,
      late,
      'token.created a test',
    ]);
    t.deepEqual(await shown('--type', 'package.*'), [early, late]);
    t.deepEqual(await shown('--type', 'package.*', '--since', '1d'), [late]);
    t.deepEqual(await shown('--type', 'package.*', '--until', '1d'), [early]);
    t.deepEqual(await shown('--account', 'other', '--subject', 'late'), [late]);
    t.deepEqual(await shown('--actor', 'a test', '--since', new Date(Date.now() - 86_400_000).toISOString()), [late]);
    t.deepEqual(await shown('--actor', 'none'), []);
    const answer = (await (await server.fetch('/v1/audit?subject=late')).json()) as { items: EventItem[] };
    t.deepEqual(eventsIn((await audit('--subject', 'late')).stdout), answer.items, 'as in /v1/audit');
    for (const [words, message] of [
      [['--type', 'package'], /--type needs a type such as/],
      [['--since', 'yesterday'], /--since needs a time such as/],
      [['--account', 'none'], /There is no account "none"/],
    ] as const) {
      const { code, stderr } = await audit(...words);
      t.is(code, 1);
      t.regex(stderr, message);
    }
  });
}

test('audit --follow prints new events until it is stopped, and events of a killed server are not lost', async (t) => {
  const line = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]' });
  t.is((await line.run('token', 'create', '--name', 'before')).code, 0);
  const environment = { PATH: process.env.PATH, ENTREPOT_DATA: line.data, ENTREPOT_UPSTREAMS: '[]' };
  const child = spawn(process.execPath, [main, 'audit', '--follow', '--type', 'token.*'], { env: environment });
  t.teardown(() => child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => said(JSON.parse((await within(lines.next(), 30_000)).value as string) as EventItem);
  t.is(await next(), 'token.created before');
  t.is((await line.run('token', 'create', '--name', 'meanwhile')).code, 0);
  t.is(await next(), 'token.created meanwhile');
  const token = 'token-of-a-server-that-is-killed';
  const serving = await line.serve({ ENTREPOT_BOOTSTRAP_TOKEN: token });
  t.is(await next(), 'token.created first token');
  const made = await fetch(`${serving.url}/v1/tokens`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'last', scopes: ['read'] }),
  });
  t.is(made.status, 201);
  await serving.stop('SIGKILL');
  t.is(await next(), 'token.created last');
  const ended = new Promise((resolve) => child.once('exit', (code) => resolve(code)));
  child.kill('SIGTERM');
  t.is(await within(ended), 0);
});

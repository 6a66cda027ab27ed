import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { CredentialCommand, type CredentialCommandParts } from '../../src/upstream/credential-command.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startTestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until, within } from '../support/until.ts';

// Credentials from a command and from files that change.

const node = process.execPath;
const hour = 3_600_000;
const start = Date.parse('2026-05-01T00:00:00Z');

function basicOf(password: string, username = 'me'): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

/** A command that writes what `print` set, and records its arguments. */
async function makeCommand(t: ExecutionContext) {
  const folder = await folderUntilEnd(t);
  const [script, output, record] = [join(folder, 'helper.cjs'), join(folder, 'output'), join(folder, 'record')];
  await writeFile(
    script,
    `const fs = require('node:fs');
     fs.appendFileSync(${JSON.stringify(record)}, JSON.stringify(process.argv.slice(2)) + '\\n');
     process.stdout.write(fs.readFileSync(${JSON.stringify(output)}));`,
  );
  return {
    command: [node, script],
    print: (value: object | string) => writeFile(output, typeof value === 'string' ? value : JSON.stringify(value)),
    runs: async () => (existsSync(record) ? (await readFile(record, 'utf8')).trim().split('\n') : []),
  };
}

/** A server with a registry that accepts `accepted.password` only. */
async function setUp(t: ExecutionContext, auth: Record<string, unknown>, more: Record<string, unknown> = {}) {
  const upstream = await startUpstreamRegistry(t);
  const accepted = { password: 'one' };
  const images = 12;
  for (let number = 0; number < images; number += 1) {
    upstream.on(`/v2/app/manifests/${number}`, (request, response) => {
      const isKnown = request.headers.authorization === basicOf(accepted.password);
      (isKnown ? answer(404) : answer(401, { 'www-authenticate': 'Basic realm="x"' }))(request, response);
    });
  }
  const settings = upstream.settings('up.test', { auth, negativeFor: '0s', ...more });
  const server = await startTestServer(t, { upstreams: [settings] });
  server.clock.now = start;
  const pull = async (number = 0) => {
    const response = await server.fetch(`/v2/up.test/app/manifests/${number}`);
    return { status: response.status, text: await response.text() };
  };
  return { upstream, server, accepted, pull };
}

const inTime = (milliseconds: number) => new Date(start + milliseconds).toISOString();

test('a command gives the credentials, in one run for many requests, and no shell reads its arguments', async (t) => {
  const { command, print, runs } = await makeCommand(t);
  await print({ username: 'me', password: 'one', expires_at: inTime(hour) });
  const argument = '$(touch /tmp/never) "; exit 1';
  const { pull, server } = await setUp(t, { exec: [...command, argument] });
  const answers = await Promise.all(Array.from({ length: 10 }, (_, number) => pull(number)));
  for (const { status } of answers) t.is(status, 404);
  t.deepEqual(await runs(), [JSON.stringify([argument])]);
  server.clock.now = start + hour / 2;
  t.is((await pull()).status, 404);
  t.is((await runs()).length, 1);
});

test('the command runs again before the credentials expire, and requests do not wait for it', async (t) => {
  const { command, print, runs } = await makeCommand(t);
  await print({ username: 'me', password: 'one', expires_at: inTime(hour) });
  const { pull, server, accepted, upstream } = await setUp(t, { exec: command });
  t.is((await pull()).status, 404);
  await print({ username: 'me', password: 'two', expires_at: inTime(2 * hour) });
  server.clock.now = start + 0.9 * hour;
  t.is((await pull()).status, 404, 'with the old credentials');
  await until(async () => (await runs()).length === 2);
  accepted.password = 'two';
  server.clock.now = start + hour;
  t.is((await pull()).status, 404);
  t.is(upstream.asked.at(-1)!.headers.authorization, basicOf('two'));
  t.is((await runs()).length, 2);
});

test('expired credentials are not sent', async (t) => {
  const { command, print } = await makeCommand(t);
  await print({ username: 'me', password: 'one', expires_at: inTime(hour) });
  const { pull, server, accepted, upstream } = await setUp(t, { exec: command });
  t.is((await pull()).status, 404);
  await print({ username: 'me', password: 'two', expires_at: inTime(2 * hour) });
  accepted.password = 'two';
  server.clock.now = start + hour;
  const before = upstream.asked.length;
  t.is((await pull()).status, 404);
  t.is(upstream.asked.length, before + 1);
});

test('after a 401 the command runs again, but not more often than every 10 s', async (t) => {
  const { command, print, runs } = await makeCommand(t);
  await print({ username: 'me', password: 'one' });
  const { pull, server, accepted } = await setUp(t, { exec: command });
  t.is((await pull()).status, 404);
  accepted.password = 'two';
  await print({ username: 'me', password: 'two' });
  server.clock.now = start + 9_999;
  t.is((await pull()).status, 502);
  t.is((await runs()).length, 1);
  server.clock.now = start + 10_000;
  t.is((await pull(1)).status, 404);
  t.is((await runs()).length, 2);
  accepted.password = 'three';
  for (let number = 2; number < 12; number += 1) t.is((await pull(number)).status, 502);
  t.is((await runs()).length, 2);
});

test('a token realm that refuses the credentials gets those of a new run', async (t) => {
  const { command, print, runs } = await makeCommand(t);
  await print({ username: 'me', password: 'one' });
  const upstream = await startUpstreamRegistry(t);
  let accepted = 'one';
  upstream.on('/token', (request, response) => {
    const isKnown = request.headers.authorization === basicOf(accepted);
    (isKnown ? answer(200, {}, JSON.stringify({ token: accepted })) : answer(401))(request, response);
  });
  const challenge = { 'www-authenticate': `Bearer realm="${upstream.url.href}token",service="s"` };
  upstream.on('/v2/app/manifests/v1', (request, response) => {
    const isKnown = request.headers.authorization === `Bearer ${accepted}`;
    (isKnown ? answer(404) : answer(401, challenge))(request, response);
  });
  const settings = upstream.settings('up.test', { auth: { exec: command }, negativeFor: '0s' });
  const server = await startTestServer(t, { upstreams: [settings] });
  server.clock.now = start;
  const pull = async () => (await server.fetch('/v2/up.test/app/manifests/v1')).status;
  t.is(await pull(), 404);
  accepted = 'two';
  await print({ username: 'me', password: 'two' });
  server.clock.now = start + 10_000;
  t.is(await pull(), 404);
  t.is((await runs()).length, 2);
});

test('a command that fails is a failure of the upstream, with a pause, and its output is never shown', async (t) => {
  const { command, print, runs } = await makeCommand(t);
  await print('{"username":"me","password":"s3cret-output"');
  const { pull, server, upstream } = await setUp(t, { exec: command }, { kind: 'registry' });
  const failed = await pull();
  t.is(failed.status, 502);
  t.regex(failed.text, /The upstream up\.test got no request: its command for credentials wrote no JSON/);
  t.regex(server.lines.join(''), /an upstream has no new credentials/);
  for (let number = 1; number < 10; number += 1) t.is((await pull(number)).status, 502);
  t.is((await runs()).length, 1, 'no second run in the pause');
  t.notRegex(server.lines.join('') + failed.text, /s3cret|helper\.cjs/);
  await print({ username: 'me', password: 'one' });
  server.clock.now = start + 1000;
  t.is((await pull(10)).status, 404);
  t.true(upstream.asked.length > 0);
});

function commandOf(t: ExecutionContext, script: string, more: Partial<CredentialCommandParts> = {}) {
  const reasons: string[] = [];
  const command = new CredentialCommand({
    command: [node, '-e', script],
    environment: process.env,
    now: () => start,
    onFailure: (reason) => reasons.push(reason),
    ...more,
  });
  t.teardown(() => command.close());
  return { command, reasons };
}

const writing = (text: string) => `process.stdout.write(${JSON.stringify(text)})`;

for (const [what, script, message] of [
  ['ends with a code', 'process.exitCode = 3', /ended with code 3/],
  ['is killed', 'process.kill(process.pid, "SIGTERM")', /ended with SIGTERM/],
  ['writes too much', writing('x'.repeat(65_537)), /wrote more than 65536 bytes/],
  ['writes no user name', writing('{"password":"s3cret"}'), /wrote no username and password/],
  ['writes null', writing('null'), /wrote no username and password/],
  ['writes no time', writing('{"username":"a","password":"s3cret","expires_at":"soon"}'), /not a time/],
  ['fails after its output', `${writing('{"username":"a","password":"s3cret"}')}; process.exitCode = 1`, /with code 1/],
] as const) {
  test(`a command that ${what} has failed`, async (t) => {
    const { command, reasons } = commandOf(t, script);
    await t.throwsAsync(command.get(), { message });
    t.is(reasons.length, 1);
    t.notRegex(reasons.join(), /s3cret/);
  });
}

test('a command gets the environment without the settings, of which some are secrets', async (t) => {
  const script = `const { USER_TOOL: username, ...rest } = process.env;
    const password = JSON.stringify(Object.keys(rest).filter((name) => /entrepot/i.test(name)));
    process.stdout.write(JSON.stringify({ username, password }))`;
  const environment = { USER_TOOL: 'helper', ENTREPOT_DATABASE_URL: 'mysql://u:s3cret@db/e', ENTREPOT_TOKEN: 's3cret' };
  const { command } = commandOf(t, script, { environment });
  t.deepEqual(await command.get(), { username: 'helper', password: '[]' });
});

test('a command that cannot be started has failed', async (t) => {
  const { command } = commandOf(t, '', { command: ['/nowhere/helper'] });
  await t.throwsAsync(command.get(), { message: /cannot be started \(ENOENT\)/ });
});

test('a command that does not end is killed, also if its child keeps the output open', async (t) => {
  const child = `require('node:child_process').spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)'], { stdio: 'inherit' })`;
  for (const script of ['setInterval(() => {}, 1000)', `${child}; setInterval(() => {}, 1000)`, child]) {
    const { command } = commandOf(t, script, { timeLimit: 500 });
    await within(t.throwsAsync(command.get(), { message: /did not end in 500 ms/ }), 30_000);
  }
});

test('a command gets the environment of the server', async (t) => {
  const script = 'process.stdout.write(JSON.stringify({ username: "me", password: String(process.env.PATH) }))';
  const { command } = commandOf(t, script);
  t.deepEqual(await command.get(), { username: 'me', password: process.env['PATH']! });
});

test('a passwordFile that changes is read again', async (t) => {
  const passwordFile = join(await folderUntilEnd(t), 'password');
  await writeFile(passwordFile, 'one\n');
  const { pull, server, accepted } = await setUp(t, { username: 'me', passwordFile });
  t.is((await pull()).status, 404);
  await writeFile(passwordFile, 'two\n');
  accepted.password = 'two';
  t.is((await pull(1)).status, 404, 'after a 401 at once');
  await writeFile(passwordFile, 'three\n');
  accepted.password = 'three';
  server.clock.now = start + 1000;
  t.is((await pull(2)).status, 404);
});

test('a changed file that cannot be used leaves the credentials as they were, with a line in the log', async (t) => {
  const passwordFile = join(await folderUntilEnd(t), 'password');
  await writeFile(passwordFile, 'one\n');
  const { pull, server, upstream } = await setUp(t, { username: 'me', passwordFile });
  t.is((await pull()).status, 404);
  for (const [change, reason] of [
    [() => writeFile(passwordFile, ''), /password is empty/],
    [() => writeFile(passwordFile, Buffer.alloc(65_537, 's3cret')), /larger than 65536 bytes/],
    [() => rm(passwordFile), /no such file/],
  ] as const) {
    await change();
    for (let round = 0; round < 3; round += 1) {
      server.clock.now! += 1000;
      t.is((await pull()).status, 404);
    }
    t.is(server.lines.filter((line) => reason.test(line)).length, 1);
  }
  t.true(upstream.asked.slice(1).every(({ headers }) => headers.authorization === basicOf('one')));
  t.notRegex(server.lines.join(''), /s3cret/);
});

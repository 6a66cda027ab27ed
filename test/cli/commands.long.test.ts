import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { greeting } from '../../src/cli/greeting.ts';
import { CommandLine } from '../support/processes/command.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const tokenLine = /^ent_[0-9A-Za-z]{36}\n$/;

for (const dialect of dialects) {
  test(`${dialect}: accounts and tokens by command, on a new database`, async (t) => {
    const environment = {
      ENTREPOT_DATA: join(await folderUntilEnd(t), 'data'),
      ENTREPOT_DATABASE_URL: await temporaryDatabase(t, dialect),
    };
    const made = await entrepot(environment, 'token', 'create', '--name=ci', '--scope=write,read', '--expires=90d');
    t.like(made, { code: 0, stderr: '' });
    t.regex(made.stdout, tokenLine, 'the token alone');
    t.deepEqual(await entrepot(environment, 'account', 'create', 'team'), { code: 0, stdout: 'team\n', stderr: '' });
    const accounts = await entrepot(environment, 'account', 'list');
    t.regex(accounts.stdout, /^default\t\S+Z\nteam\t\S+Z\n$/);
    const theirs = await entrepot(environment, 'token', 'create', '--account', 'team', '--name', 'theirs');
    t.regex(theirs.stdout, tokenLine);
    const listed = await entrepot(environment, 'token', 'list');
    const [id, prefix, scopes, end, name, by] = listed.stdout.trimEnd().split('\t');
    t.is(prefix, made.stdout.slice(0, 8));
    t.deepEqual([scopes, name, by], ['read,write', 'ci', 'by command']);
    const days = (Date.parse(end!.replace('expires ', '')) - Date.now()) / 86_400_000;
    t.true(days > 89.9 && days <= 90, end);
    const others = await entrepot(environment, 'token', 'list', '--account', 'team');
    t.regex(others.stdout, /\tread\tnever expires\ttheirs\tby command\n$/);
    t.is((await entrepot(environment, 'token', 'revoke', id!, '--account', 'team')).code, 1, 'another account’s');
    t.deepEqual(await entrepot(environment, 'token', 'revoke', id!), { code: 0, stdout: '', stderr: '' });
    t.regex((await entrepot(environment, 'token', 'list')).stdout, /\trevoked \d{4}-/);
  });
}

test('an error is one line on stderr, and the command fails', async (t) => {
  const environment = { ENTREPOT_DATA: await folderUntilEnd(t) };
  const cases: [string[], RegExp][] = [
    [
      ['token', 'create', '--name', 'x', '--scope', 'read,all'],
      /no scope "all"; there are read, write, delete, promote, admin, operate/,
    ],
    [['token', 'create', '--name', 'x', '--scope', ','], /at least one scope/],
    [['token', 'create', '--name', ' '], /name of 1 to 200/],
    [['token', 'create', '--name', 'x', '--expires', 'soon'], /--expires needs a duration/],
    [['token', 'create', '--name', 'x', '--expires', '0d'], /--expires needs a duration/],
    [['token', 'create', '--name', 'x', '--account', 'none'], /no account "none"/],
    [['token', 'list', '--account', 'none'], /no account "none"/],
    [['token', 'revoke', 'none'], /no such token/],
    [['account', 'create', 'No Good'], /account name/],
    [['account', 'create', 'default'], /"default" already/],
    [['token', 'create'], /--name <name>/],
    [['token', 'list', 'all'], /too many arguments/],
    [['publish'], /unknown command/],
    [['serve', '--port', '1'], /unknown option/],
    [['account', 'create'], /missing required argument/],
  ];
  for (const [words, message] of cases) {
    const { code, stdout, stderr } = await entrepot(environment, ...words);
    t.is(code, 1, words.join(' '));
    t.is(stdout, '', words.join(' '));
    t.regex(stderr, message);
    t.is(stderr.trimEnd().split('\n').length, 1, stderr);
  }
});

test('options limit a token to names, and the list shows the limits', async (t) => {
  const environment = { ENTREPOT_DATA: await folderUntilEnd(t) };
  const create = (...words: string[]) => entrepot(environment, 'token', 'create', '--name', 'ci', ...words);
  t.is((await create('--packages', 'Contoso.*, Fabrikam', '--containers', 'team/*')).code, 0);
  t.is((await create('--containers', 'team/*')).code, 0);
  t.is((await create()).code, 0);
  const { stdout } = await entrepot(environment, 'token', 'list');
  const shown = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split('\t').slice(4));
  t.deepEqual(
    shown.toSorted((a, b) => (String(a) < String(b) ? -1 : 1)),
    [
      ['ci', 'by command'],
      ['ci', 'packages: Contoso.*,Fabrikam; containers: team/*', 'by command'],
      ['ci', 'packages: none; containers: team/*', 'by command'],
    ],
  );
  for (const words of [
    ['--packages', ''],
    ['--packages', ' , '],
    ['--containers', 'a b'],
  ]) {
    const refused = await create(...words);
    t.deepEqual([refused.code, refused.stdout], [1, ''], words.join(' '));
    t.regex(refused.stderr, /pattern/);
  }
});

test('every command has help', async (t) => {
  const commands = ['', 'serve', 'doctor', 'account', 'account create', 'account list'];
  commands.push(
    'token',
    'token create',
    'token list',
    'token revoke',
    'claim',
    'claim list',
    'claim release',
    'adopt',
    'gc',
  );
  for (const command of commands) {
    const words = command.split(' ').filter(Boolean);
    const { code, stdout, stderr } = await entrepot({}, ...words, '--help');
    t.deepEqual([code, stderr], [0, ''], command);
    t.true(stdout.startsWith(`Usage: ${['entrepot', ...words].join(' ')} `), stdout);
  }
});

test('a failed start names the setting to check', async (t) => {
  const { port } = new URL((await startTestServer(t)).url);
  const data = await folderUntilEnd(t);
  const cases: [Record<string, string>, RegExp][] = [
    [{ ENTREPOT_DATABASE_URL: 'mysql://u:s3cr3t@127.0.0.1:1/x' }, /^entrepot: ENTREPOT_DATABASE_URL: .*ECONNREFUSED/],
    [{ ENTREPOT_DATABASE_URL: `sqlite:${import.meta.filename}` }, /^entrepot: ENTREPOT_DATABASE_URL: .*not a database/],
    [{ ENTREPOT_DATA: import.meta.filename }, /^entrepot: ENTREPOT_DATA: /],
    [{ ENTREPOT_PORT: port }, /^entrepot: ENTREPOT_PORT: .*EADDRINUSE/],
    [{ ENTREPOT_ADMIN_PORT: port }, /^entrepot: ENTREPOT_ADMIN_PORT: .*EADDRINUSE/],
    [{ ENTREPOT_HOST: '192.0.2.1' }, /^entrepot: ENTREPOT_HOST: /],
    [{ ENTREPOT_PORT: 'x' }, /^entrepot: ENTREPOT_PORT: expected a whole number/],
    [{ ENTREPOT_CONFIG: '/none.yaml' }, /^entrepot: ENTREPOT_CONFIG: cannot read/],
  ];
  for (const [settings, message] of cases) {
    const { code, stdout, stderr } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_PORT: '0', ...settings }, 'serve');
    t.is(code, 1);
    t.is(stdout, '');
    t.regex(stderr, message);
    t.is(stderr.trimEnd().split('\n').length, 1, stderr);
    t.false(stderr.includes('s3cr3t'));
  }
});

// The tests below start separate processes, one test at a time, because they measure time or start several processes.

test.serial('commands work while a server runs, and the server sees their changes at once', async (t) => {
  const commands = await CommandLine.create(t);
  const server = await commands.serve();
  const account = (token: string) =>
    fetch(`${server.url}/v1/account`, { headers: { authorization: `Bearer ${token}` } });
  const token = (await commands.run('token', 'create', '--name', 'beside')).stdout.trim();
  t.is((await account(token)).status, 200);
  const line = (await commands.run('token', 'list')).stdout.split('\n').find((each) => each.includes('\tbeside\t'))!;
  t.is((await commands.run('token', 'revoke', line.split('\t')[0]!)).code, 0);
  t.is((await account(token)).status, 401);
});

test.serial('a first start that cannot listen leaves the token to the next start, which shows it', async (t) => {
  const { port } = new URL((await startTestServer(t)).url);
  for (const setting of ['ENTREPOT_PORT', 'ENTREPOT_ADMIN_PORT']) {
    const commands = await CommandLine.create(t);
    const message = new RegExp(`ended with 1: entrepot: ${setting}: cannot listen: .*EADDRINUSE`);
    await t.throwsAsync(commands.serve({ [setting]: port }), { message });
    const server = await commands.serve();
    const [token] = /ent_[0-9A-Za-z]{36}/.exec(server.said()) ?? [];
    const headers = { authorization: `Bearer ${token}` };
    t.is((await fetch(`${server.url}/v1/tokens`, { headers })).status, 200, setting);
    await server.stop();
  }
});

test.serial(
  'the first start prints its token once, with commands to paste; two concurrent starts print one',
  async (t) => {
    const commands = await CommandLine.create(t);
    const servers = await Promise.all([commands.serve(), commands.serve()]);
    const printed = servers.filter((each) => each.said().includes('first token'));
    t.is(printed.length, 1);
    const [server] = printed;
    const token = /ent_[0-9A-Za-z]{36}/.exec(server!.said())![0];
    const { host } = new URL(server!.url);
    t.true(server!.said().includes(`docker login ${host} --username api --password-stdin`));
    t.true(server!.said().includes(`dotnet nuget add source ${server!.url}/v3/index.json`));
    t.true(server!.said().includes(`curl -H "Authorization: Bearer ${token}" ${server!.url}/v1/packages`));
    for (const each of servers) {
      const answer = await fetch(`${each.url}/v1/tokens`, { headers: { authorization: `Bearer ${token}` } });
      t.is(((await answer.json()) as { items: unknown[] }).items.length, 1);
      t.is((await each.stop()).code, 0);
    }
    const again = await commands.serve();
    t.false(again.said().includes('first token'));
    t.false(again.said().includes('ent_'));
  },
);

test.serial('a token from the settings is not printed', async (t) => {
  const commands = await CommandLine.create(t);
  const chosen = 'chosen-by-me-with-32-characters.';
  const server = await commands.serve({ ENTREPOT_BOOTSTRAP_TOKEN: chosen });
  const answer = await fetch(`${server.url}/v1/tokens`, { headers: { authorization: `Bearer ${chosen}` } });
  t.is(answer.status, 200);
  const { items } = (await answer.json()) as { items: { token_prefix: string }[] };
  t.deepEqual(
    items.map((each) => each.token_prefix),
    [''],
    'no part of it is stored or shown',
  );
  t.false(server.said().includes('chosen-by-me'));
  t.regex((await commands.run('token', 'list')).stdout, /^[0-9a-f-]{36}\t\tread,write,/);
});

test.serial('a new chosen token needs 32 characters; a shorter one that is stored stays valid', async (t) => {
  const commands = await CommandLine.create(t);
  const short = 'x'.repeat(31);
  const refused = await t.throwsAsync(commands.serve({ ENTREPOT_BOOTSTRAP_TOKEN: short }));
  t.regex(
    refused.message,
    /ended with 1: entrepot: ENTREPOT_BOOTSTRAP_TOKEN: a new token needs at least 32 characters/,
  );
  t.false(refused.message.includes(short));
  t.is((await commands.run('token', 'list')).stdout, '', 'nothing was created');
  const earlier = await startTestServer(t, { data: commands.data });
  await createToken(earlier, ['read', 'admin'], 'default', undefined, short);
  await earlier.close();
  const server = await commands.serve({ ENTREPOT_BOOTSTRAP_TOKEN: short });
  t.is((await fetch(`${server.url}/v1/tokens`, { headers: { authorization: `Bearer ${short}` } })).status, 200);
  t.regex(server.said(), /"level":40.*bootstrapToken has fewer than 32 characters/);
  t.false(server.said().includes(short));
});

test.serial('a start on an existing data folder takes less than three seconds of processor time', async (t) => {
  const commands = await CommandLine.create(t);
  await (await commands.serve()).stop();
  const times: number[] = [];
  // Processor time, and the best of three, because other tests use the machine.
  for (let index = 0; index < 3; index += 1) {
    const server = await commands.serve();
    t.is((await fetch(`${server.url}/readyz`)).status, 200);
    times.push(await processorTime(server.child.pid!));
    await server.stop('SIGINT');
  }
  t.true(Math.min(...times) < 3, times.join(', '));
});

/** The seconds of processor time that a process has used, from proc_pid_stat(5). */
async function processorTime(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const [user, system] = stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).map(Number);
  return (user! + system!) / 100;
}

test('the commands to paste use an address that clients can reach', (t) => {
  const lines = greeting('http://0.0.0.0:8080', 'ent_x');
  t.true(lines.includes('docker login 127.0.0.1:8080 '));
  t.true(greeting('http://[::]:8080', 'ent_x').includes('docker login 127.0.0.1:8080 '));
  t.true(lines.includes('--allow-insecure-connections'));
  const proxied = greeting('https://hub.example/', 'ent_x');
  t.true(proxied.includes('docker login hub.example '));
  t.true(proxied.includes('source https://hub.example/v3/index.json '));
  t.false(proxied.includes('--allow-insecure-connections'));
});

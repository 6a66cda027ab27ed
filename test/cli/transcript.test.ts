import { mkdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken, databaseOf, defaultAccountOf, flushUsage } from '../support/inside.ts';
import { osv } from '../support/known-bad.ts';
import { comparePrinted, Mask } from '../support/printed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What commands print that people use with one installation is in `transcript.txt`. After an intended change, write the file again,
// and read what differs:
//   ENTREPOT_TEST_SHOWN=write npm test -- test/cli/transcript.test.ts

const transcript = join(import.meta.dirname, 'transcript.txt');

test('the commands of one installation print what they did and found', async (t) => {
  t.timeout(240_000);
  const folder = await folderUntilEnd(t);
  const [data, path] = [join(folder, 'data'), (name: string) => join(folder, name)];
  const [feed, registry] = [await UpstreamFeed.start(t), await startUpstreamRegistry(t)];
  const versions = ['1.0.0', '2.0.0'].map((version) => ({ version, published: '2024-01-01T00:00:00Z' }));
  await feed.offer({ id: 'Theirs', versions });
  registry.image('library/redis', '7');
  const upstreams = [feed.as('feed.test'), registry.settings('docker.io', { default: true })];
  const trustedIssuers = [{ name: 'ci', issuer: 'https://ci.test', audience: 'https://hub.test', kind: 'github' }];
  const settings = { data, upstreams, deletedFor: '7d', trustedIssuers };
  const config = path('settings.json');
  await writeFile(config, JSON.stringify(settings));
  const other = path('other.json');
  await writeFile(other, JSON.stringify({ ...settings, data: path('other') }));
  const server = await startTestServer(t, settings);
  const now = Date.now();

  const mask = new Mask(folder);
  const printed: string[] = [];
  /** Runs a command; `@` begins the path of a file. Resolves to the first word that it prints. */
  const run = async (words: string, at = config): Promise<string> => {
    const list = words.match(/"[^"]*"|\S+/g)!.map((each) => each.replaceAll('"', '').replace(/^@/, `${folder}/`));
    const { code, stdout, stderr } = await entrepot({ ENTREPOT_CONFIG: at }, ...list);
    const text = mask
      // The example of a time in messages is no time of this test.
      .of(`$ ${words}\n${stdout}${stderr}= ${code}\n`.replaceAll('2027-01-31T12:00:00Z', 'EXAMPLE'))
      .replaceAll(/^(.+\n)\1{9,}/gm, (all, line: string) => `${line}(${all.length / line.length} such lines)\n`)
      .replaceAll(hostname(), 'HOST')
      // These depend on the hour and the day.
      .replaceAll(/\bnext NOW\S*/g, 'next TIME')
      .replaceAll(/\bin [\d.]+ s\b/g, 'in TIME')
      .replace(/: \d+ rows/, ': ROWS rows');
    printed.push(text);
    return stdout.split(/\s/, 1)[0]!;
  };

  await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' }, { id: 'Lib', version: '2.0.0' });
  const app = new TestRepository(server, 'team/app');
  const { digest } = await app.image('v1');
  const later = await app.image('v2');

  for (const name of ['team', 'team', 'A b']) await run(`account create "${name}"`);
  await run('account list');
  await run('account bills on');
  await run('account bills');
  for (const words of ['--key', 'maybe', 'off', 'on --account team']) await run(`account bills ${words}`);
  await run('account bills --account none');
  const token = await run('token create --name "of a job" --scope read,write --packages Lib*,Other --expires 30d');
  await run('token create --name plain --account team');
  await run('token create --name x --expires soon');
  await run('token create --name x --scope all');
  await run('token create --name x --expires 0s');
  await run('token list');
  await run('token list --account team');
  t.true(token.startsWith('ent_'));
  const reader = await createToken(server, ['read']);
  await run(`token revoke ${reader.token.id}`);
  await run('token list');

  const grant = await run('grant add account team --may read --packages Lib');
  await run('grant add group devs --may read,write --images team/* --issuer https://login.test');
  await run('grant list');
  await run('grant list --account team');
  await run(`grant accept ${grant} --account team`);
  await run('grant list');
  await run('access list read Lib');
  await run('access list write team/app');
  await run('access explain account team read Lib');
  await run('access explain account team write Lib');
  await run('access explain group devs write team/app');
  await run(`grant remove ${grant}`);
  await run('grant list');
  await run('person list');
  await run('person disable none --reason left');
  await addPeople(server, now);
  await run('person list');
  await run('person list --account team');
  await run('person disable ann --reason left');
  await run('person disable ann --reason left --account team');
  await run('person list');
  await run('person enable ann');
  await run('person enable bob --account team');
  await run('person enable bob --account none');
  await run('person list');
  await run('token list');
  await run('person limit');
  await run('person limit --longest 30d --scopes read,write');
  await run('person limit --scopes -');
  await run('person limit --longest -');
  for (const time of ['0d', '3650d', '3651d', '12h', 'x']) await run(`person limit --longest ${time}`);
  const rule = await run(
    'publisher create --name main --issuer ci --claim repository_id=1 --claim ref=a --claim ref=b',
  );
  await run('publisher list');
  await run(`publisher delete ${rule}`);
  await run('publisher create --name other --issuer ci --claim =a');
  await run('publisher create --name other --issuer ci --claim repository=a --scope read,write --packages A.*');
  await run('publisher list');
  await run('claim list');

  await run('deprecate Lib --version 1.0.0 --reason Legacy --message "use 2" --alternative Lib@2.0.0');
  await run('deprecate Lib --all --reason None');
  await run('deprecate Lib --all --undo');
  for (const words of ['--reason Legacy', '--all --version 1.0.0', '--all --undo --message x'])
    await run(`deprecate Lib ${words}`);
  await run('advisory create Lib --affected "[1.0.0, 2.0.0)" --severity high --url https://advisory.test/7');
  await run('advisory list');
  for (const [level, number] of [
    ['2', 8],
    ['4', 9],
    ['HIGH', 10],
  ] as const)
    await run(`advisory create Lib --affected [1.0.0] --severity ${level} --url https://advisory.test/${number}`);
  await run('advisory list');
  await run('permanence show');
  await run('permanence set --freeze-images team/*:v9,,team/base --keep-packages Kept.*');
  await run('permanence set --keep-images team/kept --keep-packages "" --freeze-images ""');
  await run('permanence set --keep-packages a@b@c');
  await run('promote Lib 1.0.0 --to-account team --reason tested');
  await run('promotion list');
  await run('promote team/app v1 --to-name team/prod');
  await run('promotion list --state done');
  await run('promotion approve 1');
  for (const words of ['approve x', 'reject 1', 'approve 9', 'list --account team', 'list --account none'])
    await run(`promotion ${words}`);
  await run(`promote Lib 1.0.0 --to-account team --reason ${'x'.repeat(501)}`);
  await run('exposed Lib@1.0.0');

  await writeFile(path('list.txt'), 'Theirs@1.0.0\nredis:7\nredis:8\n');
  await run('prefetch @list.txt --dry-run');
  await run('prefetch @list.txt');
  await run('prefetch @list.txt --kind lock');
  await run('explain Lib');
  await run('explain Lib 1.0.0');
  await run('explain Theirs');
  await run('explain Theirs 1.0.0');
  await run('explain redis --kind image');
  await run('explain redis 7 --kind image');
  for (const words of [
    'redis 7 8 --kind image',
    'redis 7 --kind file',
    'redis --kind image --at x',
    'other.test/x 1',
    'other.test/x',
  ])
    await run(`explain ${words}`);
  await run('explain Lib --kind image');
  await run('explain @list.txt');

  await run('policy show');
  const lists = [{ name: 'osv', file: path('osv.jsonl'), ids: ['MAL-*'] }];
  const policy = {
    minimumAge: { packages: '3d' },
    rules: [{ name: 'no', packages: ['Theirs'], verdict: 'deny', reason: 'bad' }],
  };
  await writeFile(path('policy.json'), JSON.stringify(policy));
  await run('policy apply @policy.json --dry-run');
  await run('policy apply @policy.json');
  await run('policy show');
  await run('policy held');
  for (const words of ['--json', '--limit 1', '--limit x', '--match THEIRS --limit 2', '--match none'])
    await run(`policy held ${words}`);
  await run('policy suspend --for x');
  await run('policy suspend --for 1h');
  await run('policy show');
  await run('policy resume');
  await run('explain Theirs 1.0.0');
  await run('explain @list.txt');
  await writeFile(path('osv.jsonl'), JSON.stringify(osv('MAL-1', 'Theirs')));
  await writeFile(path('listed.json'), JSON.stringify({ knownBad: { lists } }));
  await run('policy apply @listed.json --account team');
  await run('policy apply @listed.json');
  await run('doctor');
  await run('jobs run known-bad');
  await run('doctor');
  await run('explain Theirs 1.0.0 --account team');
  await run('policy apply @listed.json --account none');
  await writeFile(path('old.json'), JSON.stringify({ minimumAge: { packages: '40000d' } }));
  await run('policy apply @old.json --account team');
  await run('policy apply @old.json --account team --yes');
  await run('policy apply @list.txt');
  await run('policy apply @none.yaml');
  await writeFile(path('audited.json'), JSON.stringify({ ...policy, mode: 'audit' }));
  await run('policy apply @audited.json --account team');
  await run('explain Theirs 1.0.0 --account team');
  await run('explain Theirs 2.0.0 --account team --at 2024-01-02');
  await run('doctor');
  await writeFile(path('empty.json'), '');
  await run('policy apply @empty.json --account team');
  await run('policy show --account team');
  await run('policy apply @policy.json');
  await run('waiver request Theirs 1.0.0 --lifts rule --reason needed --for 1d');
  await run('waiver list');
  await run('waiver approve 1 --layer all');
  await run('waiver list --state approved');
  await run('waiver end 1');
  await run('waiver list');
  for (const words of [
    'request Theirs 2.0.0 --lifts rule --reason needed --for soon',
    'request Theirs 2.0.0 --lifts rule --reason needed --for 1d --kind file',
    'request redis 7 --kind image --lifts age --reason needed --for 2d',
    'approve x --layer all',
    'reject 2',
    'end 2',
    'list --account team',
    'list --state rejected --account default',
  ])
    await run(`waiver ${words}`);

  await writeFile(path('lib.nupkg'), await makeNupkg({ id: 'Brought', version: '1.0.0' }));
  await run('import @lib.nupkg --dry-run');
  await run('import folder @lib.nupkg --report @report.jsonl');
  await run('import folder @lib.nupkg');
  await run('import folder @lib.nupkg --only Other.*');
  await run('import registry @lib.nupkg');
  await flushUsage(server);
  await run('wanted --to @wanted.txt');
  await run('jobs list');
  await run('jobs run none');
  await run('gc --dry-run');
  await addLooseFiles(data);
  for (const words of ['--yes', '--files --yes --dry-run', '--files', '--files --yes', '--files'])
    await run(`gc ${words}`);
  await run('retention --dry-run');
  await run('scrub');
  await run('instances');
  await run('takeover status');
  const hook = JSON.parse(
    (
      await entrepot(
        { ENTREPOT_CONFIG: config },
        'webhook',
        'create',
        '--url',
        'https://hooks.test/',
        '--packages',
        'Lib',
      )
    ).stdout,
  ) as { id: string };
  await run('webhook list');
  await run(`webhook change ${hook.id} --name " chat " --events "package.*, image.*" --all-names --disable`);
  await run(`webhook deliveries ${hook.id}`);
  await run(`webhook redeliver ${hook.id} --since 1d`);
  for (const words of [
    `change ${hook.id} --enable --disable`,
    `change ${hook.id} --enable --packages A.*`,
    `redeliver ${hook.id}`,
    `redeliver ${hook.id} x --since 1d`,
    `redeliver ${hook.id} --since soon`,
    `deliveries ${hook.id} --limit 0`,
    `deliveries ${hook.id} --limit x`,
    'delete none',
  ])
    await run(`webhook ${words}`);
  await run(`webhook delete ${hook.id}`);
  await run('webhook list');
  await run('doctor');
  const removed = await server.fetch('/v1/packages/Lib/2.0.0', { method: 'DELETE' });
  t.is(removed.status, 204);
  for (const words of [
    'list',
    'purge 1 --reason " "',
    'restore x',
    'restore 99',
    'restore 1',
    'list',
    'list --account none',
  ])
    await run(`deleted ${words}`);
  await run('backup @backup.tar');
  await run('backup @folder --incremental');
  await run('backup @folder --incremental --check');
  await run('verify @backup.tar');
  await run('verify @folder');
  await run('verify');
  for (const words of ['@folder', '@data', '@x.tar --incremental', '@x --check', '@backup.tar'])
    await run(`backup ${words}`);
  for (const words of ['@data', '@none', '@none.tar']) await run(`verify ${words}`);
  await run('restore @backup.tar');
  const blobs = (hex: string) => join(folder, 'folder', 'blobs', 'sha256', hex.slice(0, 2), hex);
  const damaged = blobs(digest.slice('sha256:'.length));
  await writeFile(damaged, 'x'.repeat((await stat(damaged)).size));
  await run('verify @folder');
  await run('restore @folder', other);
  await run('restore @folder --without-damaged', other);
  await run('backup @folder --incremental --check');
  await run('verify @folder');
  await rm(blobs(later.digest.slice('sha256:'.length)));
  await run('verify @folder');
  await run('verify', other);
  await run('backup @of-other', other);
  await run('verify @of-other');
  await run('adopt');
  await run('cert --self-signed --host hub.test');
  await run('audit --type account.created');
  for (const words of [
    '--type none',
    '--since soon',
    '--until 1d',
    '--subject team --since 1d --actor command',
    '--account none',
  ])
    await run(`audit ${words}`);
  await run('usage --period 2020-01 --by token');
  await run('usage --period 2020-13');
  await addUsage(server);
  for (const by of ['day', 'package', 'container']) await run(`usage --period 2020-02 --by ${by}`);
  await run('nothing');

  await comparePrinted(t, transcript, printed);
});

/** People who signed in: one is disabled nowhere, one in an account, and one everywhere. */
async function addPeople(server: TestServer, now: number): Promise<void> {
  const disabled = { by: { kind: 'token', id: 'x', name: 'Ada' }, at: now, reason: 'left' };
  const places = { ann: undefined, bob: { team: disabled }, eve: { '*': disabled, team: disabled } };
  await databaseOf(server).transaction(async (tx) => {
    for (const [id, place] of Object.entries(places))
      await tx.insert('people', {
        id,
        person: JSON.stringify({
          issuer: 'https://login.test',
          subject: `${id}-subject`,
          name: `The ${id}`,
          claims: [],
        }),
        signed_in_at: now,
        disabled: place ? JSON.stringify(place) : null,
      });
    for (const [number, owner] of ['ann', 'eve', 'nobody'].entries())
      await tx.insert('tokens', {
        id: `00000000-0000-4000-8000-00000000000${number}`,
        account_id: defaultAccountOf(server),
        name: `personal of ${owner}`,
        token_prefix: '',
        hash: String(number).padStart(64, '0'),
        scopes: 'read',
        created_at: now - 1000 * (number + 1),
        owner_id: owner,
        created_by: number === 0 ? null : JSON.stringify({ kind: 'system', id: null, name: null }),
        revoked_at: number === 2 ? now : null,
      });
  });
}

/** Files in the storage that no row knows: more old ones than are named, and a young one. */
async function addLooseFiles(data: string): Promise<void> {
  const write = async (number: number, time: Date) => {
    const hex = number.toString(16).padStart(64, '0');
    const file = join(data, 'blobs', 'sha256', hex.slice(0, 2), hex);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, 'abc');
    await utimes(file, time, time);
  };
  const old = new Date(Date.now() - 40 * 86_400_000);
  for (let number = 1; number <= 102; number += 1) await write(number, old);
  await write(200, new Date());
}

/** Usage of two days and names of a month. */
async function addUsage(server: TestServer): Promise<void> {
  const month = Date.UTC(2020, 1, 1);
  const counts = Object.fromEntries(
    'requests downloads uploads version_checks cache_hits cache_misses egress_bytes ingress_bytes upstream_bytes'
      .split(' ')
      .map((each, index) => [each, index + 1]),
  );
  const rows = [
    ['account', '', month],
    ['account', '', month + 86_400_000],
    ['package', 'lib', month],
    ['package', '', month],
  ] as const;
  await databaseOf(server).transaction(async (tx) => {
    for (const [dimension, name, day] of rows)
      await tx.insert('usage_counts', {
        account_id: defaultAccountOf(server),
        dimension,
        period_start: month,
        name,
        day,
        ...counts,
      });
  });
}

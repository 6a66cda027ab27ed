import { rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken, flushUsage } from '../support/inside.ts';
import { osv } from '../support/known-bad.ts';
import { comparePrinted, Mask } from '../support/printed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
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

  const mask = new Mask(folder);
  const printed: string[] = [];
  /** Runs a command; `@` begins the path of a file. Resolves to the first word that it prints. */
  const run = async (words: string, at = config): Promise<string> => {
    const list = words.match(/"[^"]*"|\S+/g)!.map((each) => each.replaceAll('"', '').replace(/^@/, `${folder}/`));
    const { code, stdout, stderr } = await entrepot({ ENTREPOT_CONFIG: at }, ...list);
    const text = mask
      .of(`$ ${words}\n${stdout}${stderr}= ${code}\n`)
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
  await run('account bills --account none');
  const token = await run('token create --name "of a job" --scope read,write --packages Lib*,Other --expires 30d');
  await run('token create --name plain --account team');
  await run('token create --name x --expires soon');
  await run('token create --name x --scope all');
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
  const rule = await run(
    'publisher create --name main --issuer ci --claim repository_id=1 --claim ref=a --claim ref=b',
  );
  await run('publisher list');
  await run(`publisher delete ${rule}`);
  await run('publisher list');
  await run('claim list');

  await run('deprecate Lib --version 1.0.0 --reason Legacy --message "use 2" --alternative Lib@2.0.0');
  await run('deprecate Lib --all --reason None');
  await run('deprecate Lib --all --undo');
  await run('advisory create Lib --affected "[1.0.0, 2.0.0)" --severity high --url https://advisory.test/7');
  await run('advisory list');
  await run('permanence show');
  await run('promote Lib 1.0.0 --to-account team --reason tested');
  await run('promotion list');
  await run('promote team/app v1 --to-name team/prod');
  await run('promotion list --state done');
  await run('promotion approve 1');
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
  await run('policy apply @policy.json');
  await run('waiver request Theirs 1.0.0 --lifts rule --reason needed --for 1d');
  await run('waiver list');
  await run('waiver approve 1 --layer all');
  await run('waiver list --state approved');
  await run('waiver end 1');
  await run('waiver list');

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
  await run(`webhook delete ${hook.id}`);
  await run('webhook list');
  await run('doctor');
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
  await run('usage --period 2020-01 --by token');
  await run('nothing');

  await comparePrinted(t, transcript, printed);
});

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken, failuresOf, tokenOf } from '../support/inside.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { versionsOf } from '../support/policy.ts';

const day = 86_400_000;

test('policy held lists what an account does not get yet, on lines and as JSON', async (t) => {
  const data = await folderUntilEnd(t);
  const feed = await UpstreamFeed.start(t);
  const publishedAt = Math.floor(Date.now() / 1000) * 1000 - day;
  const young = new Date(publishedAt).toISOString();
  const old = new Date(Date.now() - 100 * day).toISOString();
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: old },
      { version: '1.1.0', published: young },
      { version: '2.0.0', published: old },
    ],
  });
  await feed.offer({ id: 'Other', versions: [{ version: '1.0.0', published: young }] });
  const server = await startMirrorOf(t, [feed.as('feed.test')], { data });
  await tokenOf(server, ['read'], 'team');
  const environment = { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: JSON.stringify([feed.as('feed.test')]) };
  const policy = (...words: string[]) => entrepot(environment, 'policy', ...words);
  const file = join(data, 'policy.yaml');
  await writeFile(
    file,
    'minimumAge: { packages: 3d }\nrules: [{ name: no-one, packages: [lib], versions: "[1.0.0]", verdict: deny }]\n',
  );
  t.is((await policy('apply', file, '--account', 'default')).code, 0);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
  t.deepEqual(await versionsOf(server, 'other'), []);

  const until = new Date(publishedAt + 3 * day).toISOString();
  const reason = `it is younger than 3 days; it can be used from ${until.slice(0, 16)}Z on`;
  const lines = [
    `hold\tlib\t1.1.0\t${until}\tage\taccount\tbelow a visible version\t${reason}`,
    'deny\tlib\t1.0.0\t-\tno-one\taccount\tbelow a visible version\tthe rule no-one denies it',
  ];
  const explain = async (...words: string[]) =>
    (await entrepot(environment, 'explain', 'Lib', '1.1.0', ...words)).stdout;
  const held = `hold: ${reason}\nrule: age, in the policy of the account\nuntil: ${until}\n`;
  t.true((await explain()).startsWith(held), await explain());
  t.true((await explain('--at', new Date(Date.parse(until) - 1).toISOString())).startsWith(held));
  t.regex(await explain('--at', until), /^allow\n/);
  t.regex(await explain('--account', 'team'), /^allow\n/, 'its policy is another one');
  const listed = await policy('held', '--match', 'LIB');
  t.deepEqual([listed.code, listed.stderr], [0, '']);
  t.deepEqual(listed.stdout.trimEnd().split('\n'), lines);
  t.is((await policy('held')).stdout.trimEnd().split('\n').length, 3);
  const first = await policy('held', '--match', 'lib', '--limit', '1', '--json');
  t.like(JSON.parse(first.stdout) as object, {
    kind: 'package',
    name: 'lib',
    reference: '1.1.0',
    upstream: 'feed.test',
    verdict: 'hold',
    layer: 'account',
    rule: 'age',
    until,
    below_visible: true,
  });
  t.regex(first.stderr, /^There may be more: these are the first 1\./);
  const build = await createToken(server, ['read']);
  t.is((await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg', { token: build.value })).status, 403);
  await failuresOf(server).flush();
  const refused = await policy('held', '--by-token');
  t.regex(refused.stdout, new RegExp(`^a test\t${build.token.id}\t1\t1\t20[^\t]+Z\n$`));
  const json = JSON.parse((await policy('held', '--by-token', '--json')).stdout) as object;
  t.like(json, { token_id: build.token.id, token_name: 'a test', count: 1, names: 1 });
  t.is((await policy('held', '--by-token', '--account', 'team')).stdout, '');
  t.like(await policy('held', '--account', 'team'), { code: 0, stdout: '', stderr: '' });
  t.regex((await policy('held', '--limit', '0')).stderr, /--limit: expected a number/);
});

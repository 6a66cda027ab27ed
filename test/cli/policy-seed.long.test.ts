import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// `entrepot policy seed`: a new server under a policy accepts what files name today.

const day = 86_400_000;
const manifest = (reference: string) => `/v2/registry.test/team/app/manifests/${reference}`;
const nupkg = (number: string) => `/v3/package/lib/${number}/lib.${number}.nupkg`;

for (const dialect of dialects) {
  test(`${dialect}: policy seed opens what files name today until it is old enough, and nothing else`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const [feed, registry] = [await UpstreamFeed.start(t), await startUpstreamRegistry(t)];
    const real = Date.now();
    const at = (days: number) => new Date(real - days * day).toISOString();
    const version = (number: string, days: number) => ({ version: number, published: at(days) });
    await feed.offer({
      id: 'Lib',
      versions: [version('1.0.0', 100), version('2.0.0', 1), version('2.1.0', 0.5), version('3.0.0', 1)],
    });
    await feed.offer({ id: 'Bad', versions: [version('1.0.0', 1)] });
    const image = registry.image('team/app', 'v1');
    registry.image('team/app', 'v2');
    const upstreams = [feed.as('feed.test'), registry.settings('registry.test', { freshFor: '1s' })];
    const server = await startTestServer(t, { data, database: { url }, upstreams });
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    };
    const policy = (...words: string[]) => entrepot(environment, 'policy', ...words);
    const fileOf = async (name: string, text: string) => {
      await writeFile(join(data, name), text);
      return join(data, name);
    };
    const apply = async (text: string, ...more: string[]) =>
      t.is((await policy('apply', await fileOf('policy.yaml', text), ...more)).code, 0);
    const rules = 'rules: [{ name: no-bad, packages: [Bad], verdict: deny, reason: see SEC-12 }]\n';
    await apply(`minimumAge: { packages: 3d, images: 2d }\n${rules}`);
    await apply('minimumAge: { packages: 5d }\n', '--account', 'default');
    const statuses = async (...paths: string[]) => {
      const found: number[] = [];
      for (const path of paths) found.push((await server.fetch(path)).status);
      return found;
    };
    const [one, two, three] = [nupkg('2.0.0'), nupkg('2.1.0'), nupkg('3.0.0')];
    t.deepEqual(await statuses(one, two, three), [404, 404, 404]);

    const list = await fileOf('list.txt', 'Lib@1.0.0\nLib@2.0.0\nLib@2.1.0\nregistry.test/team/app:v1\n');
    const missing = await policy('seed', list);
    t.regex(missing.stderr, /required option '--by <name>'/);
    const seeded = await policy('seed', list, '--by', 'Ada');
    t.is(seeded.code, 0, seeded.stderr);
    const lines = seeded.stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t'));
    t.deepEqual(
      lines.map(([outcome, text, until]) => [
        outcome,
        text,
        until === '-' ? '-' : Math.round(((Date.parse(until!) - real) / day) * 10) / 10,
      ]),
      [
        ['open', 'Lib 1.0.0', '-'],
        ['opened', 'Lib 2.0.0', 4.5],
        ['opened', 'Lib 2.1.0', 4.5],
        ['opened', 'registry.test/team/app:v1', 2],
      ],
    );
    t.deepEqual(await statuses(one, two, three), [200, 200, 404]);
    t.deepEqual(await statuses(manifest('v1'), manifest(image.manifest.digest), manifest('v2')), [200, 200, 403]);
    const blob = `/v2/registry.test/team/app/blobs/${image.layer.digest}`;
    t.deepEqual(await statuses(blob), [200]);
    const explained = await entrepot(environment, 'explain', 'Lib', '2.0.0');
    t.regex(explained.stdout, /waiver \d+ in the policy of all accounts, until .*, by command, for Ada/);
    const approved = await auditOf(server, 'type=waiver.approved');
    t.is(approved.length, 3, 'the two policies for the package, and one for the image');
    t.deepEqual(new Set(approved.map(({ actor }) => JSON.stringify(actor.name))), new Set(['"command, for Ada"']));

    const again = await policy('seed', list, '--by', 'Ada');
    t.deepEqual(again.stdout.match(/^\w+/gm), ['open', 'open', 'open', 'open']);
    t.is((await auditOf(server, 'type=waiver.approved')).length, 3);

    registry.image('team/app', 'v1');
    server.clock.now = real + 10_000;
    t.is(
      (await server.fetch(manifest('v1'))).headers.get('docker-content-digest'),
      image.manifest.digest,
      'the accepted one',
    );
    server.clock.now = real + 6 * day;
    t.deepEqual(
      await statuses(one, two, three, manifest(image.manifest.digest)),
      [200, 200, 200, 200],
      'old enough by now',
    );

    const refused = await policy('seed', await fileOf('bad.txt', 'Bad@1.0.0\nLib@3.0.0\n'), '--by', 'Ada');
    t.is(refused.code, 1);
    t.regex(refused.stdout, /^refused\tBad 1\.0\.0\t-\t.*\tsee SEC-12\nopened\tLib 3\.0\.0\t/);
    t.regex(refused.stderr, /^entrepot: Of 2, 1 could not be accepted/);
  });
}

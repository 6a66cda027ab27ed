import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { flushUses } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// `entrepot policy apply --dry-run`: what a policy would have refused of what clients downloaded.

const day = 86_400_000;

for (const dialect of dialects) {
  test(`${dialect}: a dry run says what would have been refused of the downloads of the last 30 days`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const [feed, registry] = [await UpstreamFeed.start(t), await startUpstreamRegistry(t)];
    const real = Date.now();
    const at = (days: number) => real - days * day;
    const version = (number: string, days: number) => ({
      version: number,
      published: new Date(at(days)).toISOString(),
    });
    await feed.offer({ id: 'Lib', versions: [version('1.0.0', 100), version('2.0.0', 1), version('3.0.0', 1)] });
    await feed.offer({ id: 'Old', versions: [version('1.0.0', 41)] });
    await feed.offer({ id: 'Away', versions: [version('1.0.0', 1)] });
    feed.upstream.on('/registration/away/index.json', (_request, response) => void response.writeHead(500).end());
    const upstreams = [feed.as('feed.test'), registry.settings('registry.test', { freshFor: '1s' })];
    const server = await startTestServer(t, { data, database: { url }, upstreams });
    const nupkg = async (id: string, number: string) =>
      t.is((await server.fetch(`/v3/package/${id}/${number}/${id}.${number}.nupkg`)).status, 200);
    const pull = async (reference: string) =>
      t.is((await server.fetch(`/v2/registry.test/team/app/manifests/${reference}`)).status, 200);

    server.clock.now = at(40);
    await nupkg('old', '1.0.0');
    server.clock.now = at(10);
    registry.image('team/app', 'v1');
    await nupkg('lib', '1.0.0');
    await pull('v1');
    server.clock.now = at(0.5);
    const byDigest = registry.image('team/app', 'v3').manifest.digest;
    registry.image('team/app', 'v2');
    await nupkg('lib', '2.0.0');
    await nupkg('away', '1.0.0');
    for (const each of ['v1', 'v2', byDigest]) await pull(each);
    await flushUses(server);
    const content = () => [...registry.requests(), ...feed.asked.filter((path) => path.endsWith('.nupkg'))];
    const asked = content().length;

    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    };
    const dryRun = async (text: string, ...more: string[]) => {
      const file = join(data, 'policy.yaml');
      await writeFile(file, text);
      const { code, stdout, stderr } = await entrepot(environment, 'policy', 'apply', file, '--dry-run', ...more);
      t.is(code, 0, stderr);
      return { lines: stdout.split('\n').filter(Boolean), stderr };
    };
    const first = (days: number) => new Date(at(days)).toISOString();
    const young = await dryRun('minimumAge: { packages: 3d, images: 3d }\n');
    t.is(
      young.stderr,
      'The policy of all accounts is valid; nothing was changed.\n' +
        'It would have refused 4 of 6 versions, tags and digests that clients have downloaded in the last 30 days.\n' +
        'Of 1 of them nothing is known: their upstream fails, or its documents cannot be read.\n',
    );
    const columns = young.lines.map((line) => line.split('\t').slice(0, 6).join(' '));
    t.deepEqual(
      columns.toSorted(),
      [
        `hold allow registry.test/team/app v1 ${first(10)} age`,
        `hold hold lib 2.0.0 ${first(0.5)} age`,
        `hold hold registry.test/team/app ${byDigest} ${first(0.5)} age`,
        `hold hold registry.test/team/app v2 ${first(0.5)} age`,
      ].toSorted(),
    );
    const rules =
      'rules: [{ name: no-lib, packages: [Lib], versions: "[1.0.0]", verdict: deny, reason: see SEC-12 }]\n';
    for (const more of [[], ['--account', 'default']]) {
      const denied = await dryRun(`mode: audit\n${rules}`, ...more);
      t.deepEqual(
        denied.lines.map((line) => line.split('\t')),
        [['deny', 'deny', 'lib', '1.0.0', first(10), 'no-lib', 'see SEC-12']],
      );
    }
    t.deepEqual((await dryRun('')).lines, []);
    t.is(content().length, asked, 'upstreams are asked for dates only');
    await nupkg('lib', '2.0.0');
  });
}

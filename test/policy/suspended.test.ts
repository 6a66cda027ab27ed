import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

const hour = 3_600_000;

for (const dialect of dialects) {
  test(`${dialect}: a suspended policy refuses only what its lists name, and what was served stays open`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const feed = await UpstreamFeed.start(t);
    const registry = await startUpstreamRegistry(t);
    const published = new Date(Date.now() - hour).toISOString();
    await feed.offer({ id: 'Lib', versions: ['1.0.0', '2.0.0'].map((version) => ({ version, published })) });
    for (const id of ['Ruled', 'Bad']) await feed.offer({ id, versions: [{ version: '1.0.0' }] });
    for (const tag of ['v1', 'v2']) registry.image('team/app', tag);
    const server = await startTestServer(t, {
      data,
      database: { url },
      upstreams: [feed.as('feed.test'), registry.settings('registry.test')],
    });
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
    const policy = (...words: string[]) => entrepot(environment, 'policy', ...words);
    const statuses = async () => {
      const found: number[] = [];
      for (const path of [
        '/v3/package/lib/1.0.0/lib.1.0.0.nupkg',
        '/v2/registry.test/team/app/manifests/v1',
        '/v3/package/ruled/1.0.0/ruled.1.0.0.nupkg',
        '/v3/package/bad/1.0.0/bad.1.0.0.nupkg',
      ])
        found.push((await server.fetch(path)).status);
      return found;
    };
    const shown = async () =>
      (await (await server.fetch('/v1/policy?layer=all')).json()) as { suspended_until: string | null };
    const [list, file] = [join(data, 'list.jsonl'), join(data, 'policy.yaml')];
    await writeFile(list, linesOf([osv('MAL-1', 'Bad')]));
    await writeFile(
      file,
      `minimumAge: { packages: 9d, images: 9d }
rules: [{ name: ruled, packages: [Ruled], verdict: deny }]
knownBad: { lists: [{ name: osv, file: ${list} }] }
`,
    );
    t.regex((await policy('suspend', '--for', '2h')).stderr, /There is no policy that is enforced/);
    await policy('apply', file);
    await server.installation.jobs.run('known-bad');
    t.deepEqual(await statuses(), [404, 403, 403, 403]);
    t.regex((await policy('suspend', '--for', '24.1h')).stderr, /24h at most/);
    t.regex((await policy('suspend', '--for', '0h')).stderr, /--for: expected/);
    t.regex((await policy('suspend', '--for', '2h', '--account', 'default')).stderr, /no policy that is enforced/);
    t.regex((await policy('resume')).stderr, /is not suspended/);
    t.deepEqual(await statuses(), [404, 403, 403, 403]);

    t.regex((await policy('suspend', '--for', '2h')).stderr, /^The policy of all accounts is suspended until 20/);
    t.deepEqual(await statuses(), [200, 200, 200, 403]);
    t.regex((await policy('show')).stderr, /^It is suspended until 20/);
    const until = (await shown()).suspended_until!;
    const [event] = await auditOf(server, 'type=policy.suspended');
    t.like(event, { account: null, details: { layer: 'all', until } });
    const page = async () => (await Visitor.signedIn(server)).page('/console/policy?layer=all');
    t.regex(await page(), /Suspended: it is enforced again/);
    const doctor = await entrepot(environment, 'doctor');
    t.regex(doctor.stdout + doctor.stderr, /it is suspended until 20/);
    server.clock.now = Date.parse(until) - 1;
    t.deepEqual(await statuses(), [200, 200, 200, 403]);
    server.clock.now = Date.parse(until);
    t.deepEqual(await statuses(), [200, 200, 403, 403]);
    t.is((await server.fetch('/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 404, 'it was not asked for');
    t.is((await server.fetch('/v2/registry.test/team/app/manifests/v2')).status, 403);
    t.is((await shown()).suspended_until, null);
    t.notRegex(await page(), /Suspended/);

    server.clock.now = undefined;
    await policy('suspend', '--for', '2h');
    t.deepEqual(await statuses(), [200, 200, 200, 403]);
    t.is((await policy('resume')).stderr, 'The policy of all accounts is enforced again.\n');
    t.deepEqual(await statuses(), [200, 200, 403, 403]);
    t.is((await auditOf(server, 'type=policy.resumed')).length, 1);
    await policy('suspend', '--for', '2h');
    await policy('apply', file);
    t.deepEqual(await statuses(), [200, 200, 403, 403], 'a policy that is applied is in force');
    t.is((await server.fetch('/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 404);
  });
}

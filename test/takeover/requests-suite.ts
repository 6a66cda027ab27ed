import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import type { Dialect } from '../../src/database/database.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { runJob } from '../support/inside.ts';
import { readNames, startMoving } from '../support/takeover.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

export const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;

/** What comes from a predecessor when it is asked for, on one database. */
export function requestsOn(dialect: Dialect): void {
  test(`${dialect}: packages of a predecessor come when they are asked for, once, and as hosted content; its names reach no upstream`, async (t) => {
    const upstream = await UpstreamFeed.start(t);
    await upstream.offer({ id: 'Contoso.Core', versions: [{ version: '9.0.0' }] });
    await upstream.offer({ id: 'Public', versions: [{ version: '1.0.0' }] });
    const { old, here } = await startMoving(t, {
      upstreams: [upstream.as('feed.test')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const from = new TestFeed(old);
    const bytes = await makeNupkg({ id: 'Contoso.Core', version: '1.0.0' });
    await from.push(bytes);
    await from.publish({ id: 'Contoso.Core', version: '2.0.0-beta' }, { id: 'Contoso.Other', version: '1.0.0' });
    const status = async (path: string) => (await here.fetch(path)).status;
    // Nothing is known yet, so nothing may be "not found", and no upstream may get a name.
    const early = await here.fetch('/v3/package/contoso.core/index.json');
    t.deepEqual([early.status, early.headers.get('retry-after')], [502, '10']);
    t.is(
      ((await early.json()) as any).detail,
      'contoso.core belongs to the predecessor old-feed and did not come: the list of its names was not read yet.',
    );
    await readNames(here);
    t.deepEqual(upstream.asked, []);
    t.is(await status('/v3/package/public/1.0.0/public.1.0.0.nupkg'), 200);
    // One version, by ten clients at the same time.
    const answers = await Promise.all(Array.from({ length: 10 }, () => here.fetch(nupkg('contoso.core', '1.0.0'))));
    for (const each of answers) t.deepEqual(Buffer.from(await each.arrayBuffer()), bytes);
    t.is(old.lines.filter((line) => line.includes('contoso.core.1.0.0.nupkg') && line.includes('"GET"')).length, 1);
    t.is(await status(nupkg('contoso.core', '9.0.0')), 404);
    const list = (await (await here.fetch('/v3/package/contoso.core/index.json')).json()) as any;
    t.deepEqual(list.versions, ['1.0.0', '2.0.0-beta']);
    t.is(((await (await here.fetch('/v1/packages/Contoso.Core')).json()) as any).origin, 'hosted');
    const events = ((await (await here.fetch('/v1/audit?type=package.published')).json()) as any).items;
    t.deepEqual([events.length, events[0].actor.kind, events[0].details.imported_from], [2, 'system', 'old-feed']);
    // What is deleted here does not come again.
    t.is((await here.fetch('/v1/packages/Contoso.Core/1.0.0', { method: 'DELETE' })).status, 204);
    t.is(await status(nupkg('contoso.core', '1.0.0')), 404);
    t.like(await runJob(here, 'takeover'), { names: 2, imported: 1, failed: 0 });
    t.is(await status(nupkg('contoso.core', '1.0.0')), 404);
    // Pushes go here only, and a push to the old server is found by the next run.
    await new TestFeed(here).publish({ id: 'Contoso.Core', version: '3.0.0' });
    t.is((await from.fetch('/package/contoso.core/3.0.0/contoso.core.3.0.0.nupkg')).status, 404);
    await from.publish({ id: 'Contoso.Core', version: '2.5.0' });
    t.is(await status(nupkg('contoso.core', '2.5.0')), 200);
    // While it is down, what is here is served.
    await old.close();
    t.is(await status(nupkg('contoso.core', '3.0.0')), 200);
    t.is(await status('/v3/package/contoso.core/index.json'), 200);
    t.is(await status(nupkg('contoso.core', '7.0.0')), 502);
  });
}

import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startImporting } from '../support/imports.ts';
import type { Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

test('a feed that ends its lists early is asked by the first letters of its ids', async (t) => {
  const source = await UpstreamFeed.start(t);
  const nupkg = await makeNupkg({ id: 'Any' });
  const ids = Array.from({ length: 900 }, (_, at) => `Lib.${'abc'[at % 3]}${'xyz'[Math.floor(at / 3) % 3]}.N${at}`);
  for (const id of ids) await source.offer({ id, versions: [{ version: '1.0.0', nupkg }] });
  // Ids that begin with the query, and no more than the first 150 of them.
  const listed =
    (of: (id: string) => unknown): Behaviour =>
    (request, response) => {
      const asked = new URL(request.url!, source.url).searchParams;
      const found = ids.filter((id) => id.toLowerCase().startsWith(asked.get('q')!.toLowerCase()));
      const data = Number(asked.get('skip')) > 0 ? [] : found.slice(0, 150).map(of);
      json({ totalHits: found.length, data })(request, response);
    };
  source.upstream.on('/autocomplete', listed(String));
  source.upstream.on(
    '/query',
    listed((id) => ({ id, version: '1.0.0', versions: [{ version: '1.0.0', downloads: 1 }] })),
  );
  const { bring } = await startImporting(t);
  const planned = await bring(`${source.url}/index.json`, '--dry-run');
  t.deepEqual([planned.code, planned.stderr], [0, '']);
  t.regex(planned.stdout, /^to import: 900 \(/);
});
